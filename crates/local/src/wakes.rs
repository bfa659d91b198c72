//! What is to be done once the shard is unlocked. A waker may run anything, and so may the dropping
//! of a key, so nothing of that is done while one is locked.

use std::sync::Arc;
use std::task::Waker;

use crate::many::Many;

/// Nearly always one task, or none: that needs no allocation, and little to look at afterwards.
pub(crate) struct Wakes<K> {
    one: Option<Waker>,
    rest: Option<Box<Rest<K>>>,
}

struct Rest<K> {
    more: Vec<Waker>,
    /// Not needed any more; one may be the last trace of a task, with guards in it.
    stale: Vec<Waker>,
    /// Those that stand in several queues, and are first and free in one of them.
    ready: Vec<Arc<Many>>,
    /// Keys that nobody holds or waits for any more.
    keys: Vec<K>,
}

impl<K> Wakes<K> {
    #[inline]
    pub(crate) fn new() -> Wakes<K> {
        Wakes { one: None, rest: None }
    }

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

    /// A key to drop.
    pub(crate) fn push_key(&mut self, key: K) {
        self.rest().keys.push(key);
    }

    /// Wakes them, in the order in which they were granted. One that panics does not keep the
    /// others from being woken.
    #[inline]
    pub(crate) fn wake(self) {
        let rest = self.rest.map(|rest| Remaining(rest.more));
        if let Some(waker) = self.one {
            waker.wake();
        }
        drop(rest);
    }

    fn rest(&mut self) -> &mut Rest<K> {
        self.rest.get_or_insert_with(|| {
            let (more, stale, ready, keys) = Default::default();
            Box::new(Rest { more, stale, ready, keys })
        })
    }
}

/// Wakers that are woken when this is dropped, also by a panic.
struct Remaining(Vec<Waker>);

impl Drop for Remaining {
    fn drop(&mut self) {
        let mut wakers = std::mem::take(&mut self.0).into_iter();
        if let Some(waker) = wakers.next() {
            let _rest = Remaining(wakers.collect());
            waker.wake();
        }
    }
}
