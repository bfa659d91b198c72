//! Guards: who has one holds the key.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::KeyedMutex;
use crate::shard::Mode;
use crate::watch::Watch;

mod sealed {
    pub trait Sealed {}
}

/// How a guard reaches its [`KeyedMutex`]: by reference, or through an [`Arc`] that it owns.
pub trait Handle: sealed::Sealed {
    /// The type of the keys.
    type Key: Hash + Eq;
    /// What hashes them.
    type Hasher: BuildHasher;
    #[doc(hidden)]
    fn mutex(&self) -> &KeyedMutex<Self::Key, Self::Hasher>;
}

impl<K: Hash + Eq, S: BuildHasher> sealed::Sealed for &KeyedMutex<K, S> {}

impl<K: Hash + Eq, S: BuildHasher> Handle for &KeyedMutex<K, S> {
    type Key = K;
    type Hasher = S;
    #[inline]
    fn mutex(&self) -> &KeyedMutex<K, S> {
        self
    }
}

impl<K: Hash + Eq, S: BuildHasher> sealed::Sealed for Arc<KeyedMutex<K, S>> {}

impl<K: Hash + Eq, S: BuildHasher> Handle for Arc<KeyedMutex<K, S>> {
    type Key = K;
    type Hasher = S;
    #[inline]
    fn mutex(&self) -> &KeyedMutex<K, S> {
        self
    }
}

/// [`Exclusive`] or [`Shared`].
pub trait Access: sealed::Sealed {
    #[doc(hidden)]
    const SHARED: bool;
}

pub(crate) const fn mode<A: Access>() -> Mode {
    if A::SHARED { Mode::Shared } else { Mode::Exclusive }
}

/// One holder, and no other.
#[derive(Debug)]
pub enum Exclusive {}

/// Any number of holders, and none that is exclusive.
#[derive(Debug)]
pub enum Shared {}

impl sealed::Sealed for Exclusive {}
impl sealed::Sealed for Shared {}

impl Access for Exclusive {
    const SHARED: bool = false;
}

impl Access for Shared {
    const SHARED: bool = true;
}

/// What holds one key, until it is dropped.
#[must_use = "the key is released as soon as the guard is dropped"]
pub struct Guard<H: Handle, M> {
    handle: H,
    hash: u64,
    number: u32,
    held: bool,
    watch: Watch,
    mode: PhantomData<M>,
}

/// Holds a key alone.
pub type ExclusiveGuard<'a, K, S = RandomState> = Guard<&'a KeyedMutex<K, S>, Exclusive>;
/// Holds a key together with other readers.
pub type SharedGuard<'a, K, S = RandomState> = Guard<&'a KeyedMutex<K, S>, Shared>;
/// Holds a key alone, and its [`KeyedMutex`] through an [`Arc`].
pub type OwnedExclusiveGuard<K, S = RandomState> = Guard<Arc<KeyedMutex<K, S>>, Exclusive>;
/// Holds a key together with other readers, and its [`KeyedMutex`] through an [`Arc`].
pub type OwnedSharedGuard<K, S = RandomState> = Guard<Arc<KeyedMutex<K, S>>, Shared>;

impl<H: Handle, M> Guard<H, M> {
    #[inline]
    pub(crate) fn new(handle: H, hash: u64, number: u32) -> Guard<H, M> {
        let watch = Watch::default();
        Guard { handle, hash, number, held: true, watch, mode: PhantomData }
    }

    /// Tells whoever watches, now that nothing can be lost by a panic there.
    #[inline]
    pub(crate) fn watched(mut self, watch: impl FnOnce(&H) -> Watch) -> Guard<H, M> {
        self.watch = watch(&self.handle);
        self
    }

    /// Releases the key now. Doing it again, or dropping the guard afterwards, changes nothing.
    /// Returns whether it was held.
    #[inline]
    pub fn unlock(&mut self) -> bool {
        let held = std::mem::replace(&mut self.held, false);
        if held {
            let mutex = self.handle.mutex();
            mutex.release(self.hash, self.number);
            mutex.watcher.released(&mut self.watch, &[(self.hash, self.number)]);
        }
        held
    }

    /// The key. It is a copy, because a guard has none of its own.
    ///
    /// # Panics
    /// After [`Guard::unlock`].
    pub fn key(&self) -> H::Key
    where
        H::Key: Clone,
    {
        assert!(self.held, "a guard that was unlocked has no key any more");
        self.handle.mutex().shard(self.hash).key(self.hash, self.number).clone()
    }

    /// Another mode, whose change in the shard the caller sees to.
    fn turn<N: Access>(mut self) -> Guard<H, N>
    where
        H: Clone,
    {
        let mut watch = std::mem::take(&mut self.watch);
        let guard = Guard::new(self.handle.clone(), self.hash, self.number);
        self.held = false;
        guard.watched(|handle| {
            handle.mutex().watcher.turned(&mut watch, mode::<N>());
            watch
        })
    }
}

impl<H: Handle + Clone> Guard<H, Exclusive> {
    /// Turns exclusive access into shared access without letting go in between. Readers that are
    /// next in the queue come in at once.
    ///
    /// ```
    /// use keylatch_local::KeyedMutex;
    ///
    /// let locks = KeyedMutex::<&str>::new();
    /// let reader = locks.lock_blocking("k").downgrade();
    /// assert!(locks.try_lock_shared("k").is_some());
    /// let writer = reader.try_upgrade().expect("it is alone again");
    /// assert!(locks.try_lock_shared("k").is_none());
    /// # drop(writer);
    /// ```
    ///
    /// # Panics
    /// After [`Guard::unlock`].
    pub fn downgrade(self) -> Guard<H, Shared> {
        assert!(self.held, "a guard that was unlocked cannot be downgraded");
        self.handle.mutex().downgrade(self.hash, self.number);
        self.turn()
    }
}

impl<H: Handle + Clone> Guard<H, Shared> {
    /// Turns shared access into exclusive access if this is the only holder, without letting go in
    /// between; gives the guard back otherwise, and after [`Guard::unlock`]. It does not wait (two
    /// readers that waited to upgrade would wait for each other), and does not look at who waits.
    pub fn try_upgrade(self) -> Result<Guard<H, Exclusive>, Guard<H, Shared>> {
        let mutex = self.handle.mutex();
        match self.held && mutex.shard(self.hash).try_upgrade(self.hash, self.number) {
            true => Ok(self.turn()),
            false => Err(self),
        }
    }
}

impl<H: Handle, M> Drop for Guard<H, M> {
    #[inline]
    fn drop(&mut self) {
        self.unlock();
    }
}

impl<H: Handle<Key: Clone + fmt::Debug>, M> fmt::Debug for Guard<H, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("key", &self.held.then(|| self.key())).finish_non_exhaustive()
    }
}

/// What holds several keys, all of them alone, until it is dropped.
#[must_use = "the keys are released as soon as the guard is dropped"]
pub struct ManyGuard<H: Handle> {
    handle: H,
    held: Box<[(u64, u32)]>,
    watch: Watch,
}

impl<H: Handle> ManyGuard<H> {
    pub(crate) fn new(handle: H, held: Box<[(u64, u32)]>) -> ManyGuard<H> {
        ManyGuard { handle, held, watch: Watch::default() }
    }

    pub(crate) fn watched(
        mut self,
        watch: impl FnOnce(&H, &[(u64, u32)]) -> Watch,
    ) -> ManyGuard<H> {
        self.watch = watch(&self.handle, &self.held);
        self
    }

    /// Releases the keys now. Doing it again, or dropping the guard afterwards, changes nothing.
    /// Returns whether they were held.
    pub fn unlock(&mut self) -> bool {
        let held = std::mem::take(&mut self.held);
        if held.is_empty() {
            return false;
        }
        for (hash, number) in &held {
            self.handle.mutex().release(*hash, *number);
        }
        self.handle.mutex().watcher.released(&mut self.watch, &held);
        true
    }

    /// Copies of the keys, each once, in no particular order; none after [`ManyGuard::unlock`].
    pub fn keys(&self) -> Vec<H::Key>
    where
        H::Key: Clone,
    {
        let key = |(hash, number): &(u64, u32)| {
            self.handle.mutex().shard(*hash).key(*hash, *number).clone()
        };
        self.held.iter().map(key).collect()
    }
}

impl<H: Handle> Drop for ManyGuard<H> {
    fn drop(&mut self) {
        self.unlock();
    }
}

impl<H: Handle<Key: Clone + fmt::Debug>> fmt::Debug for ManyGuard<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManyGuard").field("keys", &self.keys()).finish_non_exhaustive()
    }
}
