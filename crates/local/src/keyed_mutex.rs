//! The table of keys: shards behind their locks, and what is done to them.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;

use crate::Key;
use crate::many::{Many, Part};
use crate::queue::Wait;
use crate::shard::{Mode, Refused, Shard, Standing};
use crate::sync::{Mutex, MutexGuard, lock};
use crate::wakes::Wakes;
use crate::watch::Watcher;

/// Reader/writer locks by key, with fair queues.
///
/// A key costs memory only while it is held or waited for. The [crate] has the ways of use.
pub struct KeyedMutex<K, S = RandomState> {
    shards: Box<[Padded<K>]>,
    hasher: S,
    pub(crate) watcher: Watcher<K>,
}

/// A shard on cache lines of its own (two, because processors fetch pairs).
#[repr(align(128))]
struct Padded<K>(Mutex<Shard<K>>);

/// More than enough for two threads to meet rarely in one, on machines with up to a hundred cores.
const SHARDS: usize = 64;

/// How a [`KeyedMutex`] is made, where the defaults do not do.
///
/// ```
/// use keylatch_local::{KeyedMutex, Options};
///
/// let small: KeyedMutex<u32> = Options::new().shards(1).build();
/// ```
#[must_use]
pub struct Options<K, S = RandomState> {
    shards: usize,
    hasher: S,
    pub(crate) watcher: Watcher<K>,
}

impl<K> Options<K> {
    /// The defaults.
    pub fn new() -> Options<K> {
        Options { shards: SHARDS, hasher: RandomState::default(), watcher: Watcher::new() }
    }
}

impl<K> Default for Options<K> {
    fn default() -> Options<K> {
        Options::new()
    }
}

impl<K, S> Options<K, S> {
    /// Into how many parts the table is split: the next power of two, at least 1 and at most 4,096. More
    /// parts let more threads work at once, and cost 128 bytes each. The default is 64.
    pub fn shards(self, shards: usize) -> Options<K, S> {
        Options { shards: shards.clamp(1, 4096).next_power_of_two(), ..self }
    }

    /// How keys are hashed. The default is quick and seeded at random, which keeps outsiders from
    /// choosing keys that collide unless they can watch timings closely; use
    /// [`std::hash::RandomState`] for keys that attackers make up.
    pub fn hasher<T>(self, hasher: T) -> Options<K, T> {
        Options { shards: self.shards, hasher, watcher: self.watcher }
    }

    /// The table.
    pub fn build(self) -> KeyedMutex<K, S> {
        let shards = (0..self.shards).map(|_| Padded(Mutex::new(Shard::new()))).collect();
        KeyedMutex { shards, hasher: self.hasher, watcher: self.watcher }
    }
}

impl<K> KeyedMutex<K> {
    /// An empty table with the default [`Options`].
    pub fn new() -> KeyedMutex<K> {
        Options::new().build()
    }
}

impl<K> Default for KeyedMutex<K> {
    fn default() -> KeyedMutex<K> {
        KeyedMutex::new()
    }
}

/// A panic never leaves it half done; see `sync`.
impl<K, S> std::panic::UnwindSafe for KeyedMutex<K, S> {}
impl<K, S> std::panic::RefUnwindSafe for KeyedMutex<K, S> {}

impl<K, S> fmt::Debug for KeyedMutex<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedMutex").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<K, S> KeyedMutex<K, S> {
    /// How many keys are held or waited for. Looks at one shard after another, so while others lock
    /// and unlock it is an estimate.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(&shard.0).len()).sum()
    }

    /// Whether no key is held or waited for; see [`KeyedMutex::len`].
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| lock(&shard.0).len() == 0)
    }

    /// The bits in the middle: a hash table takes those at both ends.
    fn shard_number(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    pub(crate) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<K>> {
        lock(&self.shards[self.shard_number(hash)].0)
    }
}

impl<K: Hash + Eq, S: BuildHasher> KeyedMutex<K, S> {
    /// How many hold `key`. Changes as soon as you have read it: for display, not for decisions.
    #[allow(clippy::needless_pass_by_value)] // as everywhere else
    pub fn holders(&self, key: impl Key<K>) -> usize {
        self.count(&key).0
    }

    /// How many wait for `key`. Changes as soon as you have read it: for display, not for
    /// decisions.
    #[allow(clippy::needless_pass_by_value)] // as everywhere else
    pub fn waiters(&self, key: impl Key<K>) -> usize {
        self.count(&key).1
    }

    fn count(&self, key: &impl Key<K>) -> (usize, usize) {
        let hash = self.hash(key);
        self.shard(hash).count(hash, key)
    }

    pub(crate) fn hash(&self, key: &impl Key<K>) -> u64 {
        key.hash_with(&self.hasher)
    }

    fn rehash(&self) -> impl Fn(&K) -> u64 {
        |key| self.hasher.hash_one(key)
    }

    #[inline]
    pub(crate) fn try_ask<Q: Key<K>>(&self, hash: u64, key: Q, mode: Mode) -> Option<u32> {
        let asked = self.shard(hash).try_ask(hash, key, mode, self.rehash());
        // What is left of the key is dropped here, outside the shard.
        asked.ok()
    }

    /// Holds the key, or takes the last place in its queue; `waker` is told when it is granted.
    pub(crate) fn ask<Q: Key<K>>(
        &self,
        hash: u64,
        key: Q,
        mode: Mode,
        waker: Option<&Waker>,
    ) -> Standing {
        let mut shard = self.shard(hash);
        match shard.try_ask(hash, key, mode, self.rehash()) {
            Ok(number) => Standing::holds(number),
            Err(Refused { key, number, state }) => {
                let wait = waker.map_or(Wait::New, |waker| Wait::Task(waker.clone()));
                let standing = shard.stand(hash, number, state, mode, wait);
                // The key is dropped outside the shard.
                drop(shard);
                drop(key);
                standing
            }
        }
    }

    #[inline]
    pub(crate) fn release(&self, hash: u64, number: u32) {
        let mut shard = self.shard(hash);
        match shard.release(hash, number, self.rehash()) {
            Ok(key) => {
                drop(shard);
                drop(key);
            }
            Err(queue) => self.release_queued(shard, queue),
        }
    }

    #[inline(never)]
    fn release_queued(&self, mut shard: MutexGuard<'_, Shard<K>>, queue: usize) {
        let mut wakes = Wakes::new();
        shard.release_queued(queue, self.rehash(), &mut wakes);
        drop(shard);
        self.deliver(wakes);
    }

    /// See [`Shard::leave`].
    pub(crate) fn leave(&self, hash: u64, place: usize) -> bool {
        let mut wakes = Wakes::new();
        let granted = self.shard(hash).leave(place, self.rehash(), &mut wakes);
        self.deliver(wakes);
        granted
    }

    pub(crate) fn downgrade(&self, hash: u64, number: u32) {
        let mut wakes = Wakes::new();
        self.shard(hash).downgrade(hash, number, self.rehash(), &mut wakes);
        self.deliver(wakes);
    }

    /// Tells those who were granted something. No shard is locked meanwhile: a waker may run
    /// anything.
    #[inline]
    fn deliver(&self, mut wakes: Wakes<K>) {
        while let Some(many) = wakes.pop_ready() {
            self.try_grant(&many, &mut wakes);
        }
        wakes.wake();
    }

    /// Grants a request for several keys, whose turn has come in all of its queues, unless it has
    /// left.
    #[cold]
    fn try_grant(&self, many: &Many, wakes: &mut Wakes<K>) {
        let parts = many.parts();
        let mut shards = self.lock_all(parts.iter().map(|part| part.hash));
        if !many.waits() {
            return;
        }
        debug_assert!(parts.iter().all(|part| shards.of(part.hash).is_ready(part.place)));
        for Part { hash, place, .. } in parts {
            shards.of_mut(*hash).grant_many(*place, self.rehash(), wakes);
        }
        if let Some(waker) = many.grant() {
            wakes.push(waker);
        }
    }

    /// Holds all of the keys if nobody holds or waits for any of them.
    pub(crate) fn try_ask_many(&self, keys: Keys<K>) -> Option<Box<[(u64, u32)]>> {
        let mut shards = self.lock_all(keys.iter().map(|(hash, _)| *hash));
        shards.are_vacant(&keys).then(|| shards.hold(keys))
    }

    /// Holds all of the keys, or takes the last place in the queues of all of them.
    pub(crate) fn ask_many(&self, keys: Keys<K>) -> Result<Box<[(u64, u32)]>, Arc<Many>> {
        let mut shards = self.lock_all(keys.iter().map(|(hash, _)| *hash));
        if shards.are_vacant(&keys) {
            return Ok(shards.hold(keys));
        }
        let many = Arc::new(Many::new());
        let mut spare = Vec::new();
        let stand = |(hash, key)| {
            let (standing, key) = shards.of_mut(hash).stand_many(hash, key, self.rehash(), &many);
            spare.push(key);
            let place = standing.place().expect("it waits");
            Part { hash, number: standing.number, place }
        };
        let parts: Box<[Part]> = keys.into_iter().map(stand).collect();
        assert!(many.parts.set(parts).is_ok(), "set once");
        // Keys are dropped outside the shards.
        drop(shards);
        drop(spare);
        Err(many)
    }

    /// Leaves all queues; true if everything has been granted already, and the caller holds it.
    pub(crate) fn leave_many(&self, many: &Many) -> bool {
        let mut wakes = Wakes::new();
        let parts = many.parts();
        let mut shards = self.lock_all(parts.iter().map(|part| part.hash));
        let left = many.leave();
        for Part { hash, place, .. } in parts.iter().filter(|_| left.is_ok()) {
            shards.of_mut(*hash).leave(*place, self.rehash(), &mut wakes);
        }
        drop(shards);
        self.deliver(wakes);
        left.is_err()
    }

    /// Locks the shards of these hashes, in the order of their numbers.
    fn lock_all(&self, hashes: impl Iterator<Item = u64>) -> Shards<'_, K, S> {
        let mut numbers: Vec<usize> = hashes.map(|hash| self.shard_number(hash)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let shards = numbers.into_iter().map(|at| (at, lock(&self.shards[at].0))).collect();
        Shards { mutex: self, shards }
    }
}

/// Keys with their hashes, none of them twice.
pub(crate) type Keys<K> = Vec<(u64, K)>;

/// Some of the shards, all locked.
struct Shards<'a, K, S> {
    mutex: &'a KeyedMutex<K, S>,
    shards: Vec<(usize, MutexGuard<'a, Shard<K>>)>,
}

impl<K, S> Shards<'_, K, S> {
    fn at(&self, hash: u64) -> usize {
        let number = self.mutex.shard_number(hash);
        let at = self.shards.binary_search_by_key(&number, |(number, _)| *number);
        at.expect("the shard of one of the keys")
    }

    fn of(&self, hash: u64) -> &Shard<K> {
        &self.shards[self.at(hash)].1
    }

    fn of_mut(&mut self, hash: u64) -> &mut Shard<K> {
        let at = self.at(hash);
        &mut self.shards[at].1
    }
}

impl<K: Hash + Eq, S: BuildHasher> Shards<'_, K, S> {
    fn are_vacant(&self, keys: &Keys<K>) -> bool {
        keys.iter().all(|(hash, key)| self.of(*hash).is_vacant(*hash, key))
    }

    /// Holds keys that are vacant.
    fn hold(&mut self, keys: Keys<K>) -> Box<[(u64, u32)]> {
        let rehash = self.mutex.rehash();
        let held = keys.into_iter().map(|(hash, key)| {
            let asked = self.of_mut(hash).try_ask(hash, key, Mode::Exclusive, &rehash);
            (hash, asked.ok().expect("nobody has it"))
        });
        held.collect()
    }
}
