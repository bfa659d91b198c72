//! Task style: the lock is held around a task and released however the task ends.

use std::future::Future;
use std::hash::{BuildHasher, Hash};

use crate::hold::{Exclusive, Shared};
use crate::watch::Asking;
use crate::ways::try_one;
use crate::{Key, KeyedMutex};

/// # Around a task
///
/// The lock is released when the task ends, returns early, panics or is dropped, and the task's
/// result comes back as it is. A task is a closure that returns a future (`|| async { .. }`, or
/// `async || ..`); the `_blocking` ones take a plain closure and block the thread while they wait.
impl<K: Hash + Eq, S: BuildHasher> KeyedMutex<K, S> {
    /// Runs `task` with exclusive access to `key`.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// let locks = keylatch_local::KeyedMutex::<String>::new();
    /// let length = locks.run("user:42", || async { "result".len() }).await;
    /// assert_eq!(length, 6);
    /// # });
    /// ```
    #[track_caller]
    pub fn run<Q: Key<K>, F: Future>(
        &self,
        key: Q,
        task: impl FnOnce() -> F,
    ) -> impl Future<Output = F::Output> {
        let lock = self.lock(key);
        async move {
            let _guard = lock.await;
            task().await
        }
    }

    /// Runs `task` with shared access to `key`.
    #[track_caller]
    pub fn run_shared<Q: Key<K>, F: Future>(
        &self,
        key: Q,
        task: impl FnOnce() -> F,
    ) -> impl Future<Output = F::Output> {
        let lock = self.lock_shared(key);
        async move {
            let _guard = lock.await;
            task().await
        }
    }

    /// Runs `task` with exclusive access to `key` if that is possible at once when the future is
    /// first polled; `None`, and the task is not called, if not.
    #[track_caller]
    pub fn try_run<Q: Key<K>, F: Future>(
        &self,
        key: Q,
        task: impl FnOnce() -> F,
    ) -> impl Future<Output = Option<F::Output>> {
        let asking = Asking::here();
        async move {
            let _guard = try_one::<_, _, Exclusive>(self, key, asking)?;
            Some(task().await)
        }
    }

    /// Runs `task` with shared access to `key` if that is possible at once when the future is first
    /// polled; `None`, and the task is not called, if not.
    #[track_caller]
    pub fn try_run_shared<Q: Key<K>, F: Future>(
        &self,
        key: Q,
        task: impl FnOnce() -> F,
    ) -> impl Future<Output = Option<F::Output>> {
        let asking = Asking::here();
        async move {
            let _guard = try_one::<_, _, Shared>(self, key, asking)?;
            Some(task().await)
        }
    }

    /// Runs `task` with exclusive access to `key`; blocks the thread while it waits.
    ///
    /// ```
    /// let locks = keylatch_local::KeyedMutex::<u64>::new();
    /// assert_eq!(locks.run_blocking(42, || "result"), "result");
    /// ```
    #[track_caller]
    pub fn run_blocking<Q: Key<K>, R>(&self, key: Q, task: impl FnOnce() -> R) -> R {
        let _guard = self.lock_blocking(key);
        task()
    }

    /// Runs `task` with shared access to `key`; blocks the thread while it waits.
    #[track_caller]
    pub fn run_shared_blocking<Q: Key<K>, R>(&self, key: Q, task: impl FnOnce() -> R) -> R {
        let _guard = self.lock_shared_blocking(key);
        task()
    }

    /// Runs `task` with exclusive access to `key` if that is possible at once; `None`, and the task
    /// is not called, if not.
    #[track_caller]
    pub fn try_run_blocking<Q: Key<K>, R>(&self, key: Q, task: impl FnOnce() -> R) -> Option<R> {
        let _guard = self.try_lock(key)?;
        Some(task())
    }

    /// Runs `task` with shared access to `key` if that is possible at once; `None`, and the task is
    /// not called, if not.
    #[track_caller]
    pub fn try_run_shared_blocking<Q: Key<K>, R>(
        &self,
        key: Q,
        task: impl FnOnce() -> R,
    ) -> Option<R> {
        let _guard = self.try_lock_shared(key)?;
        Some(task())
    }
}
