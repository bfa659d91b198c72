//! The libraries, all behind one trait: take the lock of a key, give it back by dropping a guard.

#![allow(async_fn_in_trait)] // used in this crate only, without a Send bound to forget
#![allow(missing_docs)]

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// What a library promises, for who is compared with whom.
#[derive(Clone, Copy)]
pub struct Traits {
    /// Waiting does not block the thread.
    pub asynchronous: bool,
    /// A key that nobody holds costs nothing.
    pub frees: bool,
    /// There is a queue, first come, first served.
    pub fair: bool,
    pub ours: bool,
    /// Not a keyed lock, but what one could be measured against.
    pub floor: bool,
}

const PEER: Traits =
    Traits { asynchronous: true, frees: true, fair: true, ours: false, floor: false };

pub trait Subject: Sized + Send + Sync + 'static {
    const NAME: &'static str;
    const TRAITS: Traits = PEER;
    type Guard<'a>;
    fn new() -> Self;
    async fn lock(&self, key: u64) -> Self::Guard<'_>;
}

/// Shared access, for those who have it.
pub trait Readers: Subject {
    type Read<'a>;
    async fn read(&self, key: u64) -> Self::Read<'_>;
}

macro_rules! subject {
    ($type:ident($inner:ty) $name:literal, $traits:expr, $guard:ty, $new:expr, |$this:ident, $key:ident| $lock:expr) => {
        pub struct $type($inner);
        impl Subject for $type {
            const NAME: &'static str = $name;
            const TRAITS: Traits = $traits;
            type Guard<'a> = $guard;
            fn new() -> Self {
                $type($new)
            }
            #[inline]
            async fn lock(&self, $key: u64) -> Self::Guard<'_> {
                let $this = &self.0;
                $lock
            }
        }
    };
}

const OURS: Traits = Traits { ours: true, ..PEER };
const THREADS: Traits = Traits { asynchronous: false, ..PEER };
const FLOOR: Traits = Traits { asynchronous: false, fair: false, floor: true, ..PEER };

subject! {
    Keylatch(keylatch_local::KeyedMutex<u64>) "keylatch-local", OURS,
    keylatch_local::ExclusiveGuard<'a, u64>, keylatch_local::KeyedMutex::new(),
    |locks, key| locks.lock(key).await
}

impl Readers for Keylatch {
    type Read<'a> = keylatch_local::SharedGuard<'a, u64>;
    async fn read(&self, key: u64) -> Self::Read<'_> {
        self.0.lock_shared(key).await
    }
}

impl Keylatch {
    pub fn locks(&self) -> &keylatch_local::KeyedMutex<u64> {
        &self.0
    }
}

subject! {
    KeylatchBlocking(keylatch_local::KeyedMutex<u64>) "keylatch-local, blocking",
    Traits { asynchronous: false, ..OURS },
    keylatch_local::ExclusiveGuard<'a, u64>, keylatch_local::KeyedMutex::new(),
    |locks, key| locks.lock_blocking(key)
}

subject! {
    KeylatchOwned(Arc<keylatch_local::KeyedMutex<u64>>) "keylatch-local, owned", OURS,
    keylatch_local::OwnedExclusiveGuard<u64>, Arc::new(keylatch_local::KeyedMutex::new()),
    |locks, key| locks.lock_owned(key).await
}

subject! {
    Pool(lockable::LockPool<u64>) "lockable (pool)", PEER,
    <lockable::LockPool<u64> as lockable::Lockable<u64, ()>>::Guard<'a>, lockable::LockPool::new(),
    |locks, key| locks.async_lock(key).await
}

subject! {
    Map(lockable::LockableHashMap<u64, ()>) "lockable (map)", PEER,
    <lockable::LockableHashMap<u64, ()> as lockable::Lockable<u64, ()>>::Guard<'a>,
    lockable::LockableHashMap::new(),
    |locks, key| {
        let locked = locks.async_lock(key, lockable::AsyncLimit::no_limit()).await;
        locked.unwrap_or_else(|never| match never {})
    }
}

subject! {
    KeyedLock(keyed_lock::r#async::KeyedLock<u64>) "keyed-lock", PEER,
    keyed_lock::r#async::Guard<'a, u64>, keyed_lock::r#async::KeyedLock::new(),
    |locks, key| locks.lock(key).await
}

subject! {
    KeyLock(key_lock::KeyLock<u64>) "key-lock", PEER,
    tokio::sync::OwnedMutexGuard<()>, key_lock::KeyLock::new(),
    |locks, key| locks.lock(key).await
}

subject! {
    KeyRwLock(key_rwlock::KeyRwLock<u64>) "key-rwlock", PEER,
    tokio::sync::OwnedRwLockWriteGuard<()>, key_rwlock::KeyRwLock::new(),
    |locks, key| locks.write(key).await
}

impl Readers for KeyRwLock {
    type Read<'a> = tokio::sync::OwnedRwLockReadGuard<()>;
    async fn read(&self, key: u64) -> Self::Read<'_> {
        self.0.read(key).await
    }
}

subject! {
    KeyMutex(key_mutex::tokio::KeyRwLock<u64, ()>) "key-mutex (rw)", PEER,
    key_mutex::tokio::OwnedWriteGuard<u64, ()>, key_mutex::tokio::KeyRwLock::new(),
    |locks, key| locks.write(key).await
}

impl Readers for KeyMutex {
    type Read<'a> = key_mutex::tokio::OwnedReadGuard<u64, ()>;
    async fn read(&self, key: u64) -> Self::Read<'_> {
        self.0.read(key).await
    }
}

subject! {
    Dash(dashmap::DashMap<u64, Arc<tokio::sync::RwLock<()>>>) "DashMap of tokio RwLock",
    Traits { frees: false, ..PEER },
    tokio::sync::OwnedRwLockWriteGuard<()>, dashmap::DashMap::new(),
    |locks, key| {
        let lock = Arc::clone(&*locks.entry(key).or_default());
        lock.write_owned().await
    }
}

impl Readers for Dash {
    type Read<'a> = tokio::sync::OwnedRwLockReadGuard<()>;
    async fn read(&self, key: u64) -> Self::Read<'_> {
        // The quickest way to use one: make the entry only if it is not there.
        let found = self.0.get(&key).map(|lock| Arc::clone(&lock));
        let lock = found.unwrap_or_else(|| Arc::clone(&*self.0.entry(key).or_default()));
        lock.read_owned().await
    }
}

subject! {
    LockMap(lockmap::LockMap<u64, ()>) "lockmap", THREADS,
    lockmap::Entry<'a, u64, ()>, lockmap::LockMap::new(),
    |locks, key| locks.entry(key)
}

/// The floor: a map in shards that knows only whether a key is taken. No queue, so who does not get
/// it would have to try again. It hashes each key once.
pub struct Sharded {
    shards: Vec<Padded>,
    hasher: RandomState,
}

#[repr(align(128))]
struct Padded(Mutex<hashbrown::HashTable<u64>>);

pub struct ShardedGuard<'a> {
    floor: &'a Sharded,
    hash: u64,
    key: u64,
}

impl Sharded {
    fn shard(&self, hash: u64) -> &Mutex<hashbrown::HashTable<u64>> {
        &self.shards[(hash >> 40) as usize & 63].0
    }
}

impl Drop for ShardedGuard<'_> {
    fn drop(&mut self) {
        let mut shard = self.floor.shard(self.hash).lock();
        if let Ok(entry) = shard.find_entry(self.hash, |other| *other == self.key) {
            entry.remove();
        }
    }
}

impl Subject for Sharded {
    const NAME: &'static str = "floor: 64 shards, no queue";
    const TRAITS: Traits = FLOOR;
    type Guard<'a> = ShardedGuard<'a>;
    fn new() -> Self {
        let shard = |_| Padded(Mutex::new(hashbrown::HashTable::new()));
        Sharded { shards: (0..64).map(shard).collect(), hasher: RandomState::default() }
    }
    async fn lock(&self, key: u64) -> ShardedGuard<'_> {
        let hash = self.hasher.hash_one(key);
        let rehash = |key: &u64| self.hasher.hash_one(key);
        match self.shard(hash).lock().entry(hash, |other| *other == key, rehash) {
            hashbrown::hash_table::Entry::Vacant(entry) => drop(entry.insert(key)),
            hashbrown::hash_table::Entry::Occupied(_) => panic!("somebody else has it"),
        }
        ShardedGuard { floor: self, hash, key }
    }
}

subject! {
    NoKey(tokio::sync::RwLock<()>) "floor: tokio RwLock, no key",
    Traits { asynchronous: true, fair: true, ..FLOOR },
    tokio::sync::RwLockWriteGuard<'a, ()>, tokio::sync::RwLock::new(()),
    |lock, _key| lock.write().await
}

impl Readers for NoKey {
    type Read<'a> = tokio::sync::RwLockReadGuard<'a, ()>;
    async fn read(&self, _key: u64) -> Self::Read<'_> {
        self.0.read().await
    }
}
