//! Polling by hand, and tasks that count how often they are woken.
#![allow(dead_code)] // every test file uses some of it

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls once, as a task that nobody wakes.
pub(crate) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once; the future must be ready.
#[track_caller]
pub(crate) fn ready<F: Future + Unpin>(mut future: F) -> F::Output {
    match poll(&mut future) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it is not ready"),
    }
}

/// Polls once; the future must have to wait.
#[track_caller]
pub(crate) fn waits<F: Future + Unpin>(mut future: F) -> F {
    assert!(poll(&mut future).is_pending(), "it does not have to wait");
    future
}

/// A task that counts its wake-ups.
#[derive(Default)]
pub(crate) struct Task(AtomicUsize);

impl Task {
    pub(crate) fn new() -> Arc<Task> {
        Arc::default()
    }

    pub(crate) fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn poll<F: Future + Unpin>(self: &Arc<Task>, future: &mut F) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
