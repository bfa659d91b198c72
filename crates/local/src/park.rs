//! How a plain thread waits: as a task whose waker unparks the thread.

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::time::Instant;

use crate::lock::Pending;
use crate::sync::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// The waker of this thread, made once.
pub(crate) fn waker() -> Waker {
    #[cfg(not(feature = "shuttle"))]
    {
        use std::cell::OnceCell;
        thread_local!(static WAKER: OnceCell<Waker> = const { OnceCell::new() });
        let make = || Waker::from(Arc::new(Unpark(thread::current())));
        // A thread that is ending may have lost its own already.
        WAKER.try_with(|waker| waker.get_or_init(make).clone()).unwrap_or_else(|_| make())
    }
    #[cfg(feature = "shuttle")]
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// Waits for what was asked for, until `deadline` if there is one.
pub(crate) fn wait<P: Pending>(mut pending: P, deadline: Option<Instant>) -> Option<P::Guard> {
    if let Some(guard) = pending.start() {
        return Some(guard);
    }
    let waker = waker();
    loop {
        if let Poll::Ready(guard) = pending.poll_with(&waker) {
            return Some(guard);
        }
        match deadline {
            None => thread::park(),
            Some(deadline) if crate::timer::is_past(deadline) => return pending.give_up(),
            Some(deadline) => park_until(deadline),
        }
    }
}

#[cfg(not(feature = "shuttle"))]
fn park_until(deadline: Instant) {
    thread::park_timeout(deadline.saturating_duration_since(Instant::now()));
}

/// Shuttle has no time: the thread goes on whenever it is scheduled.
#[cfg(feature = "shuttle")]
fn park_until(_: Instant) {
    thread::yield_now();
}
