//! Counts and times for those who want to see how locks are used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::shard::Mode;
use crate::watch::Entry;
use crate::{KeyedMutex, Options};

/// What an [`Observer`] is told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed {
    /// What [`Observer::class`] said of the key; of several keys, of the first.
    pub class: &'static str,
    /// Whether shared access was asked for.
    pub shared: bool,
    /// How many keys were asked for at once; 1 unless by `lock_many`.
    pub keys: usize,
}

/// Is told of every lock taken, released, or given up. A guard that is up- or downgraded is released
/// in the one mode and acquired in the other. Called by the task concerned, so it should be quick;
/// no part of the table is locked meanwhile, except for [`Observer::class`].
pub trait Observer<K>: Send + Sync {
    /// The class of a key, such as the kind of thing that it names: metrics by key would have no
    /// bound. Called while a part of the table is locked, so it must not use the table.
    fn class(&self, key: &K) -> &'static str {
        let _ = key;
        ""
    }

    /// Somebody has it now, after waiting that long behind (or among) so many waiters; both are zero
    /// for who did not have to wait.
    fn acquired(&self, observed: &Observed, waited: Duration, queue: usize);

    /// Somebody has released it.
    fn released(&self, observed: &Observed, held: Duration);

    /// Somebody has left the queue without it.
    fn gave_up(&self, observed: &Observed, waited: Duration);
}

impl<K, S> Options<K, S> {
    /// Who is told how locks are used. (Feature `observe`.)
    pub fn observer(mut self, observer: impl Observer<K> + 'static) -> Options<K, S> {
        self.watcher.observing.0 = Some(Arc::new(observer));
        self
    }
}

pub(crate) struct Observing<K>(Option<Arc<dyn Observer<K>>>);

impl<K> Observing<K> {
    pub(crate) fn new() -> Observing<K> {
        Observing(None)
    }

    pub(crate) fn turned(&self, seen: &mut Option<Seen>, mode: Mode) {
        let (Some(observer), Some(seen)) = (&self.0, seen) else { return };
        observer.released(&seen.observed, seen.since.elapsed());
        seen.observed.shared = mode == Mode::Shared;
        seen.since = Instant::now();
        observer.acquired(&seen.observed, Duration::ZERO, 0);
    }

    pub(crate) fn released(&self, seen: &Seen) {
        if let Some(observer) = &self.0 {
            observer.released(&seen.observed, seen.since.elapsed());
        }
    }
}

/// A lock that is held.
pub(crate) struct Seen {
    observed: Observed,
    since: Instant,
}

/// A request.
#[derive(Default)]
pub(crate) struct Watching {
    wait: Option<(Seen, usize)>,
    /// Held since it was reserved.
    held: Option<Seen>,
}

impl Watching {
    pub(crate) fn reserved<K, S>(
        &mut self,
        mutex: &KeyedMutex<K, S>,
        entries: &[Entry],
        mode: Mode,
        holds: bool,
    ) {
        if holds {
            self.held = self.held(mutex, entries, mode);
        } else {
            self.waits(mutex, entries, mode);
        }
    }

    pub(crate) fn waits<K, S>(&mut self, mutex: &KeyedMutex<K, S>, entries: &[Entry], mode: Mode) {
        if mutex.watcher.observing.0.is_none() || self.wait.is_some() {
            return;
        }
        let queued = |(hash, number): &Entry| mutex.shard(*hash).queue_len(*hash, *number);
        let queue = entries.iter().map(queued).max().unwrap_or(0);
        self.wait = see(mutex, entries, mode).map(|seen| (seen, queue));
    }

    pub(crate) fn held<K, S>(
        &mut self,
        mutex: &KeyedMutex<K, S>,
        entries: &[Entry],
        mode: Mode,
    ) -> Option<Seen> {
        if let Some(seen) = self.held.take() {
            return Some(seen);
        }
        let seen = see(mutex, entries, mode)?;
        let (waited, queue) = match self.wait.take() {
            Some((wait, queue)) => (seen.since - wait.since, queue),
            None => (Duration::ZERO, 0),
        };
        mutex.watcher.observing.0.as_ref()?.acquired(&seen.observed, waited, queue);
        Some(seen)
    }

    pub(crate) fn gave_up<K>(&mut self, observing: &Observing<K>) {
        if let Some(seen) = self.held.take() {
            return observing.released(&seen);
        }
        if let (Some(observer), Some((wait, _))) = (&observing.0, self.wait.take()) {
            observer.gave_up(&wait.observed, wait.since.elapsed());
        }
    }
}

fn see<K, S>(mutex: &KeyedMutex<K, S>, entries: &[Entry], mode: Mode) -> Option<Seen> {
    let observer = mutex.watcher.observing.0.as_ref()?;
    let class = |(hash, number): &Entry| observer.class(mutex.shard(*hash).key(*hash, *number));
    let class = entries.first().map_or("", class);
    let observed = Observed { class, shared: mode == Mode::Shared, keys: entries.len() };
    Some(Seen { observed, since: Instant::now() })
}

/// An [`Observer`] that writes `tracing` events at level `TRACE`, target `keylatch_local`.
/// (Feature `tracing`.)
#[cfg(feature = "tracing")]
pub struct Traced<K> {
    class: fn(&K) -> &'static str,
}

#[cfg(feature = "tracing")]
impl<K> Traced<K> {
    /// All keys in one class.
    pub fn new() -> Traced<K> {
        Traced { class: |_| "" }
    }

    /// Keys in the classes that `class` gives them.
    pub fn by(class: fn(&K) -> &'static str) -> Traced<K> {
        Traced { class }
    }
}

#[cfg(feature = "tracing")]
impl<K> Default for Traced<K> {
    fn default() -> Traced<K> {
        Traced::new()
    }
}

#[cfg(feature = "tracing")]
impl<K> std::fmt::Debug for Traced<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Traced")
    }
}

#[cfg(feature = "tracing")]
impl<K> Observer<K> for Traced<K> {
    fn class(&self, key: &K) -> &'static str {
        (self.class)(key)
    }

    fn acquired(&self, observed: &Observed, waited: Duration, queue: usize) {
        let Observed { class, shared, keys } = *observed;
        tracing::trace!(target: "keylatch_local", class, shared, keys, ?waited, queue, "acquired");
    }

    fn released(&self, observed: &Observed, held: Duration) {
        let Observed { class, shared, keys } = *observed;
        tracing::trace!(target: "keylatch_local", class, shared, keys, ?held, "released");
    }

    fn gave_up(&self, observed: &Observed, waited: Duration) {
        let Observed { class, shared, keys } = *observed;
        tracing::trace!(target: "keylatch_local", class, shared, keys, ?waited, "gave up");
    }
}
