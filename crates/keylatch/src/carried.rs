//! Work that whoever waits for it does himself: that spares a task, and often the way to another thread and
//! back. It goes on in a task of its own as soon as he goes away or others depend on it, since nobody knows
//! when a future that somebody holds is polled again.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::JoinHandle;

use crate::strategy::Pending;

/// The work, for whoever waits for it: what came of it, or nothing if its runtime has ended.
pub(crate) struct Carried<T: Send + 'static>(Arc<Work<T>>);

/// The work, for those who depend on it.
pub(crate) trait Push: Send + Sync {
    /// From now on it does not rest on whoever waits for it.
    fn push(&self);
}

struct Work<T> {
    runtime: Handle,
    /// Somebody depends on it.
    pushed: AtomicBool,
    state: Mutex<State<T>>,
}

enum State<T> {
    /// Done by whoever waits, who was last known by this.
    Here(Pending<T>, Option<Waker>),
    Away(JoinHandle<T>),
    Over,
}

impl<T: Send + 'static> Carried<T> {
    pub(crate) fn new(runtime: &Handle, work: Pending<T>) -> Carried<T> {
        Carried(Arc::new(Work {
            runtime: runtime.clone(),
            pushed: AtomicBool::new(false),
            state: Mutex::new(State::Here(work, None)),
        }))
    }

    /// Until it is answered, by the work; or nothing if the runtime ends. Whoever does the work himself looks whether it has
    /// answered, and is not told: a task that wakes itself is polled once more, and that mostly on another
    /// thread.
    pub(crate) async fn or<A>(mut self, mut answered: oneshot::Receiver<A>) -> Option<A> {
        let early = poll_fn(|context| {
            if Pin::new(&mut self).poll(context).is_ready() {
                return Poll::Ready(None);
            }
            if self.is_away() {
                return Pin::new(&mut answered).poll(context).map(|answer| Some(answer.ok()));
            }
            match answered.try_recv() {
                Ok(answer) => Poll::Ready(Some(Some(answer))),
                Err(TryRecvError::Empty) => Poll::Pending,
                Err(TryRecvError::Closed) => Poll::Ready(Some(None)),
            }
        });
        match early.await {
            Some(answer) => answer,
            None => answered.await.ok(),
        }
    }

    /// From now on it does not rest on whoever waits for it.
    pub(crate) fn push(&self) {
        self.0.push();
    }

    fn is_away(&self) -> bool {
        matches!(*self.0.state.lock(), State::Away(_))
    }

    pub(crate) fn pusher(&self) -> Weak<dyn Push> {
        // Named, because a reference to it is what becomes one to the trait.
        let work: Weak<Work<T>> = Arc::downgrade(&self.0);
        work
    }
}

impl<T: Send + 'static> Work<T> {
    /// Into a task, unless it is over, there already, or being polled: whoever polls it looks again.
    fn away(&self) {
        let Some(mut state) = self.state.try_lock() else { return };
        if !matches!(*state, State::Here(..)) {
            return;
        }
        if let State::Here(work, waker) = std::mem::replace(&mut *state, State::Over) {
            *state = State::Away(self.runtime.spawn(work));
            drop(state);
            // It waits for something else now.
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.state.lock();
        let polled = match &mut *state {
            State::Here(work, waker) => {
                // It may be polled in another runtime, or in none.
                let _on = self.runtime.enter();
                let polled = work.as_mut().poll(context).map(Some);
                if polled.is_pending() {
                    match waker {
                        Some(waker) => waker.clone_from(context.waker()),
                        None => *waker = Some(context.waker().clone()),
                    }
                }
                polled
            }
            State::Away(task) => Pin::new(task).poll(context).map(Result::ok),
            State::Over => Poll::Ready(None),
        };
        if polled.is_ready() {
            *state = State::Over;
        }
        polled
    }
}

impl<T: Send + 'static> Push for Work<T> {
    fn push(&self) {
        self.pushed.store(true, Ordering::SeqCst);
        self.away();
    }
}

impl<T: Send + 'static> Future for Carried<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let polled = self.0.poll(context);
        if polled.is_pending() && self.0.pushed.load(Ordering::SeqCst) {
            self.0.away();
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Carried<T> {
    fn drop(&mut self) {
        self.0.push();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Ends when it is told to, and then tells.
    fn work() -> (oneshot::Sender<u8>, Carried<u8>, oneshot::Receiver<u8>) {
        let (go, gone) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let work = async move {
            let number = gone.await.unwrap_or(0);
            _ = tell.send(number);
            number
        };
        (go, Carried::new(&Handle::current(), Box::pin(work)), told)
    }

    async fn poll_once(carried: &mut Carried<u8>) {
        let soon = timeout(Duration::ZERO, carried).await;
        assert!(soon.is_err(), "it has nothing to end with");
    }

    #[tokio::test]
    async fn whoever_waits_does_it() {
        let (go, carried, _told) = work();
        go.send(7).unwrap();
        assert_eq!(carried.await, Some(7));
    }

    #[tokio::test]
    async fn nobody_does_it_who_does_not_look() {
        let (go, mut carried, mut told) = work();
        poll_once(&mut carried).await;
        go.send(7).unwrap();
        tokio::task::yield_now().await;
        assert!(told.try_recv().is_err(), "a task was spent on it");
        assert_eq!(carried.await, Some(7));
    }

    #[tokio::test]
    async fn it_goes_on_without_the_one_who_went_away() {
        let (go, mut carried, told) = work();
        poll_once(&mut carried).await;
        drop(carried);
        go.send(7).unwrap();
        assert_eq!(told.await, Ok(7));
    }

    #[tokio::test]
    async fn it_goes_on_for_others_while_nobody_looks() {
        let (go, mut carried, told) = work();
        poll_once(&mut carried).await;
        carried.pusher().upgrade().unwrap().push();
        go.send(7).unwrap();
        assert_eq!(told.await, Ok(7));
        assert_eq!(carried.await, Some(7), "and who waited is told too");
    }

    #[tokio::test]
    async fn whoever_waits_is_woken_when_it_ends_elsewhere() {
        let (go, carried, _told) = work();
        let pusher = carried.pusher();
        let waits = tokio::spawn(carried);
        tokio::task::yield_now().await;
        pusher.upgrade().unwrap().push();
        tokio::task::yield_now().await;
        go.send(7).unwrap();
        assert_eq!(waits.await.unwrap(), Some(7));
    }

    #[tokio::test]
    async fn work_that_is_needed_while_it_is_polled_goes_away_afterwards() {
        let (go, gone) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let own: Arc<Mutex<Option<Weak<dyn Push>>>> = Arc::default();
        let pusher = Arc::clone(&own);
        let work = async move {
            let pusher = pusher.lock().take().unwrap();
            pusher.upgrade().unwrap().push();
            gone.await.unwrap();
            _ = tell.send(7);
            7
        };
        let mut carried = Carried::new(&Handle::current(), Box::pin(work));
        *own.lock() = Some(carried.pusher());
        poll_once(&mut carried).await;
        go.send(()).unwrap();
        assert_eq!(told.await, Ok(7));
    }
}
