//! The only door to threads and locks, so that shuttle can take their place in tests.

#[cfg(not(feature = "shuttle"))]
pub(crate) use {
    parking_lot::{Mutex, MutexGuard},
    std::thread,
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{Mutex, MutexGuard},
    thread,
};

/// A panic leaves nothing of ours half done: a caller's code (hashing, comparing, cloning a key)
/// runs only before the first change.
#[cfg(not(feature = "shuttle"))]
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(feature = "shuttle")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
