#![doc = include_str!("../README.md")]
//!
//! # How it works
//! `ways` (what callers call) -> `lock` (the futures) -> `keyed_mutex` (shards behind their locks) ->
//! `shard` and `queue` (who holds, who waits; the algorithm and its invariants) -> `hold` (guards).
//! `many` is for requests for several keys, `park` for threads, `timer` for deadlines of tasks,
//! `watch` for what can be noticed besides.

mod hold;
mod key;
mod keyed_mutex;
mod lock;
mod many;
#[cfg(feature = "observe")]
mod observe;
mod park;
mod queue;
mod reentry;
mod run;
mod shard;
mod sync;
mod timer;
mod wakes;
mod watch;
mod ways;

pub use hold::{
    Access, Exclusive, ExclusiveGuard, Guard, Handle, ManyGuard, OwnedExclusiveGuard,
    OwnedSharedGuard, Shared, SharedGuard,
};
pub use key::Key;
pub use keyed_mutex::{KeyedMutex, Options};
pub use lock::{Lock, LockMany, PendingFuture, TimedOut, Timeout};
#[cfg(feature = "tracing")]
pub use observe::Traced;
#[cfg(feature = "observe")]
pub use observe::{Observed, Observer};
pub use reentry::Reentry;
