//! What is noticed besides the locking itself: a task that asks for what it holds ([`reentry`]),
//! and counts and times for an observer ([`observe`]). What is not compiled in is empty here and
//! costs nothing.
//!
//! [`reentry`]: crate::Reentry
//! [`observe`]: crate::Options

use std::marker::PhantomData;
use std::task::Waker;

use crate::KeyedMutex;
#[cfg(feature = "observe")]
use crate::observe::{Observing, Seen, Watching};
#[cfg(any(debug_assertions, feature = "reentry"))]
use crate::reentry::Place;
use crate::reentry::Reentries;
use crate::shard::Mode;

/// An entry, by hash and number.
pub(crate) type Entry = (u64, u32);

/// Of a table of keys.
pub(crate) struct Watcher<K> {
    pub(crate) reentries: Reentries,
    #[cfg(feature = "observe")]
    pub(crate) observing: Observing<K>,
    key: PhantomData<fn(K)>,
}

/// Of one who asks.
pub(crate) struct Asking {
    #[cfg(any(debug_assertions, feature = "reentry"))]
    place: Place,
    #[cfg(feature = "observe")]
    watching: Watching,
}

/// Of one who holds.
#[derive(Default)]
pub(crate) struct Watch {
    #[cfg(any(debug_assertions, feature = "reentry"))]
    holder: u64,
    #[cfg(feature = "observe")]
    seen: Option<Seen>,
}

#[allow(unused_variables, clippy::unused_self)] // by which features are on
impl<K> Watcher<K> {
    pub(crate) fn new() -> Watcher<K> {
        Watcher {
            reentries: Reentries::new(),
            #[cfg(feature = "observe")]
            observing: Observing::new(),
            key: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn released(&self, watch: &mut Watch, entries: &[Entry]) {
        #[cfg(any(debug_assertions, feature = "reentry"))]
        self.reentries.released(watch.holder, entries);
        #[cfg(feature = "observe")]
        if let Some(seen) = watch.seen.take() {
            self.observing.released(&seen);
        }
    }
}

#[allow(unused_variables, clippy::unused_self)] // by which features are on
impl<K> Watcher<K> {
    /// A guard has another mode now.
    pub(crate) fn turned(&self, watch: &mut Watch, mode: Mode) {
        #[cfg(feature = "observe")]
        self.observing.turned(&mut watch.seen, mode);
    }
}

#[allow(unused_variables, clippy::unused_self)] // by which features are on
impl Asking {
    /// It has its place, or holds, before anyone has polled it.
    pub(crate) fn reserved<K, S>(
        &mut self,
        mutex: &KeyedMutex<K, S>,
        entries: &[Entry],
        mode: Mode,
        holds: bool,
    ) {
        #[cfg(feature = "observe")]
        self.watching.reserved(mutex, entries, mode, holds);
    }

    #[inline]
    #[track_caller]
    pub(crate) fn here() -> Asking {
        Asking {
            #[cfg(any(debug_assertions, feature = "reentry"))]
            place: Place::here(),
            #[cfg(feature = "observe")]
            watching: Watching::default(),
        }
    }

    /// It has to wait; called whenever it is polled in vain.
    pub(crate) fn waits<K, S>(
        &mut self,
        mutex: &KeyedMutex<K, S>,
        entries: &[Entry],
        mode: Mode,
        waker: &Waker,
    ) {
        #[cfg(any(debug_assertions, feature = "reentry"))]
        mutex.watcher.reentries.waits(&mut self.place, entries, waker);
        #[cfg(feature = "observe")]
        self.watching.waits(mutex, entries, mode);
    }

    #[inline]
    pub(crate) fn held<K, S>(
        &mut self,
        mutex: &KeyedMutex<K, S>,
        entries: &[Entry],
        mode: Mode,
        waker: Option<&Waker>,
    ) -> Watch {
        Watch {
            #[cfg(any(debug_assertions, feature = "reentry"))]
            holder: mutex.watcher.reentries.held(&self.place, entries, waker),
            #[cfg(feature = "observe")]
            seen: self.watching.held(mutex, entries, mode),
        }
    }

    pub(crate) fn gave_up<K, S>(&mut self, mutex: &KeyedMutex<K, S>) {
        #[cfg(feature = "observe")]
        self.watching.gave_up(&mutex.watcher.observing);
    }
}
