//! The runtime that openraft gets in tests: tokio's, of which chance is taken where it decides what happens, and
//! whose tasks belong to the process that begins them. Outside of the simulation it is tokio's as it is.

use std::time::Duration;

use openraft::async_runtime::AsyncRuntime;
use openraft::{OptionalSend, TokioRuntime};
use openraft_rt_sim::SimWatch;
use rand_of_openraft::SeedableRng;
use rand_of_openraft::rngs::Xoshiro256PlusPlus as Rng;

use super::here;

type Tokio = TokioRuntime;

/// As what openraft knows it.
#[derive(Debug)]
pub(crate) struct Runtime(Tokio);

impl AsyncRuntime for Runtime {
    type JoinError = <Tokio as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <Tokio as AsyncRuntime>::Sleep;
    type Instant = <Tokio as AsyncRuntime>::Instant;
    type TimeoutError = <Tokio as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <Tokio as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = Rng;
    type Mpsc = <Tokio as AsyncRuntime>::Mpsc;
    // That of tokio wakes those who wait in an order that chance decides.
    type Watch = SimWatch;
    type Oneshot = <Tokio as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        match here::process() {
            Some(process) => process.spawn(future),
            None => tokio::spawn(future),
        }
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        Tokio::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        Tokio::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        Tokio::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        Tokio::timeout_at(deadline, future)
    }

    fn is_panic(error: &Self::JoinError) -> bool {
        Tokio::is_panic(error)
    }

    fn thread_rng() -> Rng {
        Rng::seed_from_u64(super::super::outside::random())
    }

    fn new(threads: usize) -> Runtime {
        Runtime(Tokio::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
