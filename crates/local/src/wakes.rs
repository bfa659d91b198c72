//! Who is to be told once the shard is unlocked: a waker may run anything, so none is called, and
//! none dropped, while one is locked.

use std::sync::Arc;
use std::task::Waker;

use crate::many::Many;

/// Nearly always one task, or none: that needs no allocation, and little to look at afterwards.
#[derive(Default)]
pub(crate) struct Wakes {
    one: Option<Waker>,
    rest: Option<Box<Rest>>,
}

#[derive(Default)]
struct Rest {
    more: Vec<Waker>,
    /// Not needed any more; one may be the last trace of a task, with guards in it.
    stale: Vec<Waker>,
    /// Those that stand in several queues, and are first and free in one of them.
    ready: Vec<Arc<Many>>,
}

impl Wakes {
    #[inline]
    pub(crate) fn push(&mut self, waker: Waker) {
        match &self.one {
            None => self.one = Some(waker),
            Some(_) => self.rest().more.push(waker),
        }
    }

    /// A waker to drop.
    pub(crate) fn push_stale(&mut self, waker: Waker) {
        self.rest().stale.push(waker);
    }

    pub(crate) fn push_ready(&mut self, many: Arc<Many>) {
        self.rest().ready.push(many);
    }

    #[inline]
    pub(crate) fn pop_ready(&mut self) -> Option<Arc<Many>> {
        self.rest.as_mut()?.ready.pop()
    }

    /// Wakes them, in the order in which they were granted.
    #[inline]
    pub(crate) fn wake(self) {
        if let Some(waker) = self.one {
            waker.wake();
        }
        if let Some(rest) = self.rest {
            rest.more.into_iter().for_each(Waker::wake);
        }
    }

    fn rest(&mut self) -> &mut Rest {
        self.rest.get_or_insert_default()
    }
}
