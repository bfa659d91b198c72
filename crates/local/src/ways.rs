//! The ways to lock: each of them for exclusive and for shared access, and for guards that borrow
//! their table or own it.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashTable;

use crate::hold::{Access, Exclusive, Guard, Handle, ManyGuard, Shared, mode};
use crate::keyed_mutex::Keys;
use crate::lock::{Lock, LockMany, TimedOut, Timeout};
use crate::watch::Asking;
use crate::{Key, KeyedMutex, park};

/// The methods of one mode, for one kind of handle.
macro_rules! ways {
    (
        $mode:ident, $handle:ty, |$this:ident: $self_type:ty| $to_handle:expr, $access:literal, $guard:literal:
        $lock:ident $lock_timeout:ident $lock_deadline:ident
        $lock_blocking:ident $lock_blocking_timeout:ident $lock_blocking_deadline:ident
        $try_lock:ident $reserve:ident
    ) => {
        #[doc = concat!("Waits for ", $access, " access to `key`", $guard, ".")]
        ///
        /// The place in the queue is taken when the future is first polled.
        /// Cancel safe: dropping the future leaves the queue.
        #[inline]
        #[track_caller]
        pub fn $lock<Q: Key<K>>($this: $self_type, key: Q) -> Lock<$handle, Q, $mode> {
            Lock::new($to_handle, key, Asking::here())
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock), "`], for at most `timeout` from this call.")]
        #[track_caller]
        pub fn $lock_timeout<Q: Key<K>>(
            $this: $self_type,
            key: Q,
            timeout: Duration,
        ) -> Timeout<Lock<$handle, Q, $mode>> {
            let lock = Lock::new($to_handle, key, Asking::here());
            Timeout::new(lock, Instant::now().checked_add(timeout))
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock), "`], until `deadline`.")]
        #[track_caller]
        pub fn $lock_deadline<Q: Key<K>>(
            $this: $self_type,
            key: Q,
            deadline: Instant,
        ) -> Timeout<Lock<$handle, Q, $mode>> {
            Timeout::new(Lock::new($to_handle, key, Asking::here()), Some(deadline))
        }

        #[doc = concat!("Waits for ", $access, " access to `key`", $guard, "; blocks the thread meanwhile.")]
        #[inline]
        #[track_caller]
        pub fn $lock_blocking<Q: Key<K>>($this: $self_type, key: Q) -> Guard<$handle, $mode> {
            let lock = Lock::new($to_handle, key, Asking::here());
            park::wait(lock, None).expect("it waits until it has it")
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock_blocking), "`], for at most `timeout`.")]
        #[track_caller]
        pub fn $lock_blocking_timeout<Q: Key<K>>(
            $this: $self_type,
            key: Q,
            timeout: Duration,
        ) -> Result<Guard<$handle, $mode>, TimedOut> {
            let lock = Lock::new($to_handle, key, Asking::here());
            park::wait(lock, Instant::now().checked_add(timeout)).ok_or(TimedOut)
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock_blocking), "`], until `deadline`.")]
        #[track_caller]
        pub fn $lock_blocking_deadline<Q: Key<K>>(
            $this: $self_type,
            key: Q,
            deadline: Instant,
        ) -> Result<Guard<$handle, $mode>, TimedOut> {
            let lock = Lock::new($to_handle, key, Asking::here());
            park::wait(lock, Some(deadline)).ok_or(TimedOut)
        }

        #[doc = concat!("Takes ", $access, " access to `key`", $guard, ", if that is possible without waiting")]
        /// and without passing anyone who waits. Leaves no trace if it is not.
        #[inline]
        #[track_caller]
        pub fn $try_lock<Q: Key<K>>($this: $self_type, key: Q) -> Option<Guard<$handle, $mode>> {
            try_one($to_handle, key, Asking::here())
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock), "`], but takes the place in the queue now,")]
        /// so that the order of these calls is the order of access.
        ///
        /// If the key is free it is held from now on, also if the future is never polled: do not
        /// keep one without meaning to.
        #[track_caller]
        #[must_use = "the place is given up when the future is dropped"]
        pub fn $reserve<Q: Key<K>>($this: $self_type, key: Q) -> Lock<$handle, Q, $mode> {
            Lock::new($to_handle, key, Asking::here()).reserve()
        }
    };
}

/// The methods for several keys, for one kind of handle.
macro_rules! ways_many {
    (
        $handle:ty, |$this:ident: $self_type:ty| $to_handle:expr, $guard:literal:
        $lock_many:ident $lock_many_timeout:ident $lock_many_deadline:ident
        $lock_many_blocking:ident $lock_many_blocking_timeout:ident
        $lock_many_blocking_deadline:ident $try_lock_many:ident
    ) => {
        #[doc = concat!("Waits for exclusive access to all of `keys` at once", $guard, ".")]
        ///
        /// All or nothing: it keeps its place in the queues of all keys, but holds none until it
        /// can hold all of them. (A key that only such a request waits for counts in
        /// [`KeyedMutex::len`], has no holder, and cannot be had by `try_lock`: that would be passing
        /// the one who waits.) So callers may name keys in any order, and a key named twice
        /// counts once. (A caller that already holds a guard and asks for more can still deadlock
        /// with another that does the same.)
        ///
        /// The places are taken when the future is first polled.
        /// Cancel safe: dropping the future leaves all queues.
        #[track_caller]
        pub fn $lock_many<Q: Key<K>>(
            $this: $self_type,
            keys: impl IntoIterator<Item = Q>,
        ) -> LockMany<$handle> {
            LockMany::new($to_handle, $this.distinct(keys), Asking::here())
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock_many), "`], for at most `timeout` from this call.")]
        #[track_caller]
        pub fn $lock_many_timeout<Q: Key<K>>(
            $this: $self_type,
            keys: impl IntoIterator<Item = Q>,
            timeout: Duration,
        ) -> Timeout<LockMany<$handle>> {
            let lock = LockMany::new($to_handle, $this.distinct(keys), Asking::here());
            Timeout::new(lock, Instant::now().checked_add(timeout))
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock_many), "`], until `deadline`.")]
        #[track_caller]
        pub fn $lock_many_deadline<Q: Key<K>>(
            $this: $self_type,
            keys: impl IntoIterator<Item = Q>,
            deadline: Instant,
        ) -> Timeout<LockMany<$handle>> {
            let lock = LockMany::new($to_handle, $this.distinct(keys), Asking::here());
            Timeout::new(lock, Some(deadline))
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock_many), "`]; blocks the thread meanwhile.")]
        #[track_caller]
        pub fn $lock_many_blocking<Q: Key<K>>(
            $this: $self_type,
            keys: impl IntoIterator<Item = Q>,
        ) -> ManyGuard<$handle> {
            let lock = LockMany::new($to_handle, $this.distinct(keys), Asking::here());
            park::wait(lock, None).expect("it waits until it has them")
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock_many_blocking), "`], for at most `timeout`.")]
        #[track_caller]
        pub fn $lock_many_blocking_timeout<Q: Key<K>>(
            $this: $self_type,
            keys: impl IntoIterator<Item = Q>,
            timeout: Duration,
        ) -> Result<ManyGuard<$handle>, TimedOut> {
            let lock = LockMany::new($to_handle, $this.distinct(keys), Asking::here());
            park::wait(lock, Instant::now().checked_add(timeout)).ok_or(TimedOut)
        }

        #[doc = concat!("The same as [`Self::", stringify!($lock_many_blocking), "`], until `deadline`.")]
        #[track_caller]
        pub fn $lock_many_blocking_deadline<Q: Key<K>>(
            $this: $self_type,
            keys: impl IntoIterator<Item = Q>,
            deadline: Instant,
        ) -> Result<ManyGuard<$handle>, TimedOut> {
            let lock = LockMany::new($to_handle, $this.distinct(keys), Asking::here());
            park::wait(lock, Some(deadline)).ok_or(TimedOut)
        }

        #[doc = concat!("Takes exclusive access to all of `keys`", $guard, ", if nobody holds or waits for any")]
        /// of them. Leaves no trace otherwise.
        #[track_caller]
        pub fn $try_lock_many<Q: Key<K>>(
            $this: $self_type,
            keys: impl IntoIterator<Item = Q>,
        ) -> Option<ManyGuard<$handle>> {
            let held = $this.try_ask_many($this.distinct(keys))?;
            let mut asking = Asking::here();
            let guard = ManyGuard::new($to_handle, held);
            let mode = crate::shard::Mode::Exclusive;
            Some(guard.watched(|handle, held| asking.held(handle.mutex(), held, mode, None)))
        }
    };
}

/// # Exclusive access
///
/// ```
/// use keylatch_local::KeyedMutex;
/// # futures_lite::future::block_on(async {
/// let locks = KeyedMutex::<&str>::new();
/// let first = locks.lock("k").await;
/// // The order of these two calls is the order of access, whoever is polled first.
/// let (second, third) = (locks.reserve("k"), locks.reserve("k"));
/// assert_eq!(locks.waiters("k"), 2);
/// drop(first);
/// drop(second.await);
/// drop(third.await);
/// # });
/// ```
impl<K: Hash + Eq, S: BuildHasher> KeyedMutex<K, S> {
    ways! {
        Exclusive, &Self, |self: &Self| self, "exclusive", "":
        lock lock_timeout lock_deadline
        lock_blocking lock_blocking_timeout lock_blocking_deadline
        try_lock reserve
    }
}

/// # Shared access
///
/// ```
/// use keylatch_local::KeyedMutex;
/// # futures_lite::future::block_on(async {
/// let locks = KeyedMutex::<&str>::new();
/// let readers = (locks.lock_shared("k").await, locks.lock_shared_blocking("k"));
/// assert_eq!(locks.holders("k"), 2);
/// assert!(locks.try_lock("k").is_none());
/// # drop(readers);
/// # });
/// ```
impl<K: Hash + Eq, S: BuildHasher> KeyedMutex<K, S> {
    ways! {
        Shared, &Self, |self: &Self| self, "shared", "":
        lock_shared lock_shared_timeout lock_shared_deadline
        lock_shared_blocking lock_shared_blocking_timeout lock_shared_blocking_deadline
        try_lock_shared reserve_shared
    }
}

/// # Several keys at once
///
/// ```
/// use keylatch_local::KeyedMutex;
///
/// let accounts = KeyedMutex::<u64>::new();
/// std::thread::scope(|scope| {
///     // Opposite orders, and still no deadlock.
///     scope.spawn(|| drop(accounts.lock_many_blocking([1, 2])));
///     scope.spawn(|| drop(accounts.lock_many_blocking([2, 1])));
/// });
/// ```
impl<K: Hash + Eq, S: BuildHasher> KeyedMutex<K, S> {
    ways_many! {
        &Self, |self: &Self| self, "":
        lock_many lock_many_timeout lock_many_deadline
        lock_many_blocking lock_many_blocking_timeout lock_many_blocking_deadline try_lock_many
    }

    /// The keys with their hashes, each once.
    fn distinct<Q: Key<K>>(&self, keys: impl IntoIterator<Item = Q>) -> Keys<K> {
        let mut distinct: Keys<K> = Vec::new();
        let mut known: HashTable<usize> = HashTable::new();
        for key in keys {
            let hash = self.hash(&key);
            let same = |at: &usize| distinct[*at].0 == hash && key.is(&distinct[*at].1);
            if known.find(hash, same).is_none() {
                known.insert_unique(hash, distinct.len(), |at| distinct[*at].0);
                distinct.push((hash, key.into_key()));
            }
        }
        distinct
    }
}

/// # Guards that own the table
///
/// They are `'static`, for tasks that are spawned and for structs.
///
/// ```
/// use std::sync::Arc;
/// use keylatch_local::{KeyedMutex, OwnedExclusiveGuard};
///
/// struct Upload { lock: OwnedExclusiveGuard<String> }
///
/// # futures_lite::future::block_on(async {
/// let locks = Arc::new(KeyedMutex::<String>::new());
/// let upload = Upload { lock: locks.lock_owned("a").await };
/// let thread = std::thread::spawn(move || upload.lock.key());
/// assert_eq!(thread.join().unwrap(), "a");
/// assert!(locks.is_empty());
/// # });
/// ```
impl<K: Hash + Eq, S: BuildHasher> KeyedMutex<K, S> {
    ways! {
        Exclusive, Arc<Self>, |self: &Arc<Self>| Arc::clone(self), "exclusive", ", with a guard that owns the table":
        lock_owned lock_owned_timeout lock_owned_deadline
        lock_owned_blocking lock_owned_blocking_timeout lock_owned_blocking_deadline
        try_lock_owned reserve_owned
    }

    ways! {
        Shared, Arc<Self>, |self: &Arc<Self>| Arc::clone(self), "shared", ", with a guard that owns the table":
        lock_shared_owned lock_shared_owned_timeout lock_shared_owned_deadline
        lock_shared_owned_blocking lock_shared_owned_blocking_timeout lock_shared_owned_blocking_deadline
        try_lock_shared_owned reserve_shared_owned
    }

    ways_many! {
        Arc<Self>, |self: &Arc<Self>| Arc::clone(self), ", with a guard that owns the table":
        lock_many_owned lock_many_owned_timeout lock_many_owned_deadline
        lock_many_owned_blocking lock_many_owned_blocking_timeout
        lock_many_owned_blocking_deadline try_lock_many_owned
    }
}

#[inline]
pub(crate) fn try_one<H: Handle, Q: Key<H::Key>, M: Access>(
    handle: H,
    key: Q,
    mut asking: Asking,
) -> Option<Guard<H, M>> {
    let mutex = handle.mutex();
    let hash = mutex.hash(&key);
    let number = mutex.try_ask(hash, key, mode::<M>())?;
    Some(
        Guard::new(handle, hash, number)
            .watched(|handle| asking.held(handle.mutex(), &[(hash, number)], mode::<M>(), None)),
    )
}
