//! Deadlines for asynchronous code on any executor: one thread for the whole program, started when
//! the first task has to wait with a time-out, wakes tasks when their time has come.

use std::time::Instant;

#[cfg(not(feature = "shuttle"))]
pub(crate) fn is_past(deadline: Instant) -> bool {
    Instant::now() >= deadline
}

/// Shuttle has no time: any moment may be the one.
#[cfg(feature = "shuttle")]
pub(crate) fn is_past(_: Instant) -> bool {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_bool(0.3)
}

/// A task that will be woken at its deadline, unless this is dropped before.
pub(crate) struct Alarm {
    #[cfg(not(feature = "shuttle"))]
    key: (Instant, u64),
}

#[cfg(feature = "shuttle")]
impl Alarm {
    pub(crate) fn set(_: Instant, waker: &std::task::Waker) -> Alarm {
        waker.wake_by_ref();
        Alarm {}
    }
}

#[cfg(not(feature = "shuttle"))]
mod thread {
    use std::collections::BTreeMap;
    use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
    use std::task::Waker;
    use std::time::Instant;

    #[derive(Default)]
    struct Timer {
        alarms: Mutex<Alarms>,
        earlier: Condvar,
    }

    #[derive(Default)]
    struct Alarms {
        /// By time, then by a number that tells them apart.
        wakers: BTreeMap<(Instant, u64), Waker>,
        last: u64,
    }

    static TIMER: OnceLock<&'static Timer> = OnceLock::new();

    fn timer() -> &'static Timer {
        TIMER.get_or_init(|| {
            let timer: &'static Timer = Box::leak(Box::default());
            let thread = std::thread::Builder::new().name("keylatch-timer".into());
            thread.spawn(|| timer.run()).expect("the operating system starts a thread");
            timer
        })
    }

    impl Timer {
        fn alarms(&self) -> MutexGuard<'_, Alarms> {
            self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
        }

        fn run(&self) {
            let mut alarms = self.alarms();
            loop {
                let now = Instant::now();
                let first = alarms.wakers.first_key_value().map(|(key, _)| *key);
                alarms = match first {
                    None => self.earlier.wait(alarms).unwrap_or_else(PoisonError::into_inner),
                    Some((deadline, _)) if deadline > now => {
                        let waited = self.earlier.wait_timeout(alarms, deadline - now);
                        waited.unwrap_or_else(PoisonError::into_inner).0
                    }
                    Some(key) => {
                        let waker = alarms.wakers.remove(&key);
                        drop(alarms);
                        // A waker that panics must not take everyone's deadlines with it.
                        let wake = || waker.into_iter().for_each(Waker::wake);
                        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wake)));
                        self.alarms()
                    }
                }
            }
        }
    }

    impl super::Alarm {
        pub(crate) fn set(deadline: Instant, waker: &Waker) -> super::Alarm {
            let timer = timer();
            let waker = waker.clone();
            let mut alarms = timer.alarms();
            alarms.last += 1;
            let key = (deadline, alarms.last);
            alarms.wakers.insert(key, waker);
            if alarms.wakers.first_key_value().is_some_and(|(first, _)| *first == key) {
                timer.earlier.notify_one();
            }
            super::Alarm { key }
        }
    }

    impl Drop for super::Alarm {
        fn drop(&mut self) {
            let waker = timer().alarms().wakers.remove(&self.key);
            drop(waker);
        }
    }
}
