//! Releases that have no answer yet: whoever closes waits for them.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::carried::{Carried, Push};
use crate::guard::Released;
use crate::strategy::Pending;

#[derive(Default)]
pub(crate) struct Releasing {
    /// Those that rest on whoever waits for them can be pushed.
    open: Mutex<Slab<Option<Weak<dyn Push>>>>,
    done: Notify,
}

/// One of them, until it is dropped: a runtime that ends drops what it has not done.
pub(crate) struct Counted {
    releasing: Arc<Releasing>,
    number: usize,
}

impl Releasing {
    /// Until all so far are answered. Those that rest on others who wait for them are to be told to hurry.
    pub(crate) async fn close(&self, hurry: impl Fn()) {
        loop {
            let done = self.done.notified();
            let open: Vec<Option<Weak<dyn Push>>> =
                self.open.lock().iter().map(|(_, open)| open.clone()).collect();
            if open.is_empty() {
                return;
            }
            open.iter().flatten().filter_map(Weak::upgrade).for_each(|open| open.push());
            hurry();
            done.await;
        }
    }
}

impl Counted {
    pub(crate) fn new(releasing: &Arc<Releasing>) -> Counted {
        let number = releasing.open.lock().insert(None);
        Counted { releasing: Arc::clone(releasing), number }
    }

    /// Until this has come to its end, which it does whatever becomes of what is returned.
    pub(crate) fn carry(self, runtime: &Handle, released: Pending<Released>) -> Pending<Released> {
        let (releasing, number) = (Arc::clone(&self.releasing), self.number);
        let work = Carried::new(
            runtime,
            Box::pin(async move {
                let released = released.await;
                drop(self);
                released
            }),
        );
        releasing.open.lock()[number] = Some(work.pusher());
        Box::pin(async move { work.await.unwrap_or(Released::Unknown) })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.releasing.open.lock().remove(self.number);
        self.releasing.done.notify_waiters();
    }
}
