//! The thread that does the work, and how others wait for it.
//!
//! A future is polled in the thread that waits for it, and that thread sleeps in between. It is not
//! `Runtime::block_on`, which panics inside of another runtime; here such a caller blocks its own
//! thread, as with any other blocking call, and the work goes on in ours.

use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::runtime::{Builder, Runtime};

use crate::error::ConnectError;

/// It lives as long as the program: what is held is renewed by it.
static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();

fn runtime() -> &'static io::Result<Runtime> {
    RUNTIME.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(1).thread_name("keylatch").enable_all().build()
    })
}

/// Starts it if it does not run yet.
pub(super) fn start() -> Result<(), ConnectError> {
    let failed = |error: &io::Error| {
        ConnectError::Unreachable(format!("no thread could be started for the locks: {error}"))
    };
    runtime().as_ref().map(drop).map_err(failed)
}

/// Waits for what the thread does. Only called with what [`start`] made possible.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = runtime().as_ref().expect("locks exist, so it has been started");
    let _entered = runtime.enter();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    // Unconstrained: a task's share of its thread does not grow again while it sits here.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
