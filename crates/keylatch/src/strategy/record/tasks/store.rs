//! What a record store has to do for tasks. The numbers are those of the contract's tests.
//!
//! 1. A record is written if it is as expected, all or nothing, and else it is told as it is.
//! 2. Every write has a version that is larger than all before, of this task and of all others, also after
//!    it was deleted and created again; and a time of the store's clock. Locks and tasks share the counter.
//! 3. The first that is due is taken in one step, by one only: of the free or claimed tasks of a pool whose
//!    time has come, highest priority first, then the earliest time, then the smallest number. Nothing of the
//!    record is changed by that but its version, its time, its claim, and until when it is claimed.
//! 4. That a lease ran out is no write: the record stays as it is, and is taken like a free one.
//! 5. What a claim took is found again by the claim's id, for as long as the task is claimed by it or for a
//!    minute, whichever is less: a repeat takes nothing more.
//! 6. What a take costs does not grow with the number of tasks. Tasks that became due since the last one are
//!    put into the line first, at most [`AT_ONCE`] by one take; behind so many the order is not exact.
//! 7. If a take that waits found nothing, whatever is written from what it saw on is told, for
//!    [`NOTED_MS`]: see [`Told`]. Who does not wait costs others no message.

use std::sync::Arc;

use keylatch_table::{PoolCounts, RequestId, TaskState, Text};
use tokio::sync::mpsc;

use super::super::store::StoreError;
use crate::strategy::Pending;

/// So many tasks that became due are put into the line by one take.
pub(crate) const AT_ONCE: usize = 200;
/// For so long a store tells what happens in a pool since somebody waited there and found nothing.
pub(crate) const NOTED_MS: u64 = 15_000;

/// Which write it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) version: u64,
    /// On the store's clock.
    pub(crate) time: u64,
}

/// A task as a store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskRecord {
    pub(crate) pool: Text,
    pub(crate) key: Text,
    /// The last write of whatever kind; its version is the task's.
    pub(crate) last: Stamp,
    /// The last write that was not a take: what its bytes count from.
    pub(crate) written: Stamp,
    /// The version that created it.
    pub(crate) number: u64,
    /// As it was last written.
    pub(crate) state: TaskState,
    pub(crate) priority: i32,
    /// When it is due, or was: of a claimed one the end of the lease. Nothing is never.
    pub(crate) ready: Option<u64>,
    /// Only of a store that has leases and no clock to read: whether that time is still to come. Elsewhere
    /// the clock decides.
    pub(crate) alive: Option<bool>,
    pub(crate) bytes: Arc<[u8]>,
    /// Empty, if it was never claimed.
    pub(crate) claim: Arc<[u8]>,
}

/// When a task is due, once it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    At(u64),
    /// So long after the write.
    After(u64),
    /// A task that is done or failed, or claimed for ever.
    Never,
}

/// A change of one task.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) pool: Text,
    pub(crate) key: Text,
    /// The version it has; nothing if there is no such task.
    pub(crate) expect: Option<u64>,
    pub(crate) write: Write,
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Put(Put),
    Delete,
}

#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) state: TaskState,
    pub(crate) priority: i32,
    pub(crate) ready: Ready,
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) claim: Arc<[u8]>,
}

/// What came of a change.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// Of a deletion too, whose version nobody has.
    Done(Stamp),
    /// It is otherwise, and nothing has happened.
    Other(Seen),
}

/// A task at a moment, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The store's clock.
    pub(crate) now: u64,
    pub(crate) record: Option<TaskRecord>,
}

/// A claim of the first task that is due, or of this one if it is.
#[derive(Clone, Debug)]
pub(crate) struct Take {
    pub(crate) pool: Text,
    pub(crate) key: Option<Text>,
    pub(crate) id: RequestId,
    /// What the record has as its claim then.
    pub(crate) claim: Arc<[u8]>,
    /// How long it is claimed; 0 is for ever.
    pub(crate) lease_ms: u64,
    /// If there is nothing, somebody waits for it.
    pub(crate) waits: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Taken {
    /// Claimed, by this or by an earlier call with the same id.
    Task { now: u64, record: TaskRecord },
    Nothing {
        now: u64,
        /// The task that was asked for, if there is one.
        record: Option<TaskRecord>,
        /// The next one is due so much later, if that is known: what was asked for, or any.
        next_ms: Option<u64>,
    },
}

/// Tasks of a pool by their numbers.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) pool: Text,
    /// Only those last written in this state.
    pub(crate) state: Option<TaskState>,
    /// Only larger ones.
    pub(crate) after: u64,
    pub(crate) limit: usize,
}

/// What is told of a pool in which somebody waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Changed {
        pool: Text,
        key: Text,
        /// It is due in so long; never, if it is done or failed, or claimed for ever.
        due_ms: Option<u64>,
    },
    /// Something may have happened, anywhere: messages may have been lost.
    Anything,
}

pub(crate) trait TaskStore: Send + Sync + 'static {
    fn take(&self, take: Take) -> Pending<Result<Taken, StoreError>>;
    fn change(&self, change: Change) -> Pending<Result<Written, StoreError>>;
    fn task(&self, pool: &Text, key: &Text) -> Pending<Result<Seen, StoreError>>;
    /// The time, and these tasks at about that time.
    fn page(&self, page: Page) -> Pending<Result<(u64, Vec<TaskRecord>), StoreError>>;
    /// Of this pool, or of all with tasks, by name. Without those who wait.
    fn counts(&self, pool: Option<Text>) -> Pending<Result<Vec<PoolCounts>, StoreError>>;
    /// What is told. Called once.
    fn told(&self) -> mpsc::UnboundedReceiver<Told>;
    /// Whether somebody of this process waits: a store that must look for changes does so only then.
    fn somebody_waits(&self, _waits: bool) {}
    /// As long as what is returned is there, nothing begins that is asked for: it goes together then. Only of a store where that
    /// spares something, and only for as long as it takes to ask.
    fn hold(&self) -> Option<Box<dyn Send>> {
        None
    }
    /// The shortest lease, and the unit of leases.
    fn lease_unit_ms(&self) -> u64 {
        1
    }
}
