//! The commands, answers and events of tasks.

use std::sync::Arc;

use crate::{Error, Party, RequestId, Text};

/// What a worker is to do, as the creator wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Whether the bytes are JSON text; the table does not look inside.
    pub json: bool,
    /// The content.
    pub bytes: Arc<[u8]>,
}

/// A change to tasks. Each carries a request id, so that a repeat gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCommand {
    /// The request's secret name; of its own kind, apart from the ids of lock requests.
    pub id: RequestId,
    /// The pool.
    pub pool: Text,
    /// What to do there.
    pub action: TaskAction,
}

/// What to do in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskAction {
    /// Make a task, unless its key exists.
    Create(Create),
    /// Take a free task.
    Claim(Claim),
    /// Renew a claim, with another body and another lease if given.
    Update(Checked, Option<Body>, Option<u64>),
    /// Mark a task done: it is not claimed again, and stays until it is deleted.
    Finish(Checked),
    /// Free a task again.
    PutBack(Checked, PutBack),
    /// Remove a task (its key) at a version, or whatever its version.
    Delete(Text, Option<u64>),
    /// Free failed tasks again with their attempts at 0: this one, or all of the pool.
    Retry(Option<Text>),
    /// Stop a waiting claim (the one with the command's id).
    Cancel,
}

/// A new task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Its key.
    pub key: Text,
    /// What is to be done.
    pub body: Option<Body>,
    /// Higher is claimed first.
    pub priority: i32,
    /// Not claimed before this has passed.
    pub delay_ms: u64,
    /// Attempts after which it is failed, 0 for never; `None` takes the setting.
    pub attempts: Option<u32>,
}

/// A request for a free task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// This one, or any.
    pub key: Option<Text>,
    /// The worker.
    pub party: Party,
    /// How long to wait for one; 0 does not wait.
    pub wait_ms: u64,
    /// How long the claim lives without an update; 0 is for ever.
    pub lease_ms: u64,
}

/// A task at a version: the command does nothing if the version has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The task's key.
    pub key: Text,
    /// The version last seen.
    pub version: u64,
}

/// How a task is put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    /// Not claimed again before this has passed.
    pub delay_ms: u64,
    /// What went wrong.
    pub error: Option<Text>,
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskState {
    /// Nobody works on it (it may not be due yet).
    Free,
    /// Somebody has claimed it.
    Claimed,
    /// Finished.
    Done,
    /// Put back too often.
    Failed,
}

impl TaskState {
    /// All states, in the order of their codes.
    pub const ALL: [TaskState; 4] =
        [TaskState::Free, TaskState::Claimed, TaskState::Done, TaskState::Failed];

    /// As it is called everywhere.
    pub fn word(self) -> &'static str {
        match self {
            TaskState::Free => "free",
            TaskState::Claimed => "claimed",
            TaskState::Done => "done",
            TaskState::Failed => "failed",
        }
    }

    /// The state that a word names, in upper or lower case.
    pub fn from_word(word: &str) -> Option<TaskState> {
        TaskState::ALL.into_iter().find(|state| state.word().eq_ignore_ascii_case(word))
    }
}

/// The answer to a task command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskReply {
    /// The task exists now, at this version.
    Created(u64),
    /// A task with this key exists already.
    Exists,
    /// A task was claimed.
    Claimed(Claimed),
    /// Nothing to claim, and the request does not wait.
    Nothing,
    /// Queued; an event will tell the outcome.
    Waiting,
    /// The task asked for is done or failed and will not become free.
    Refused(TaskState),
    /// The claim lives on.
    Updated {
        /// The version to use from now on.
        version: u64,
        /// How long the claim has left; `None` is for ever, or that the task was not claimed.
        lease_ms: Option<u64>,
    },
    /// The task is done, at this version.
    Finished(u64),
    /// The task was put back.
    PutBack {
        /// Its version now.
        version: u64,
        /// Free, or failed if that was the last attempt.
        state: TaskState,
        /// The attempts counted so far.
        attempts: u32,
    },
    /// The task was removed.
    Deleted,
    /// The task has another version: somebody wrote it since. Nothing has changed.
    Stale(u64),
    /// There is no such task.
    NotFound,
    /// So many failed tasks are free again.
    Retried(u64),
    /// Whether a waiting claim was cancelled.
    Cancelled(bool),
    /// The claim was granted before and is not held any more.
    Ended,
    /// The command was not carried out; nothing has changed.
    Error(Error),
}

/// A claimed task, as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Its key.
    pub key: Text,
    /// What is to be done.
    pub body: Option<Body>,
    /// The version that update, finish and put back check.
    pub version: u64,
    /// The fencing token of the claim.
    pub token: u64,
    /// How often it was put back before.
    pub attempts: u32,
    /// How long the claim lives without an update; `None` is for ever.
    pub lease_ms: Option<u64>,
    /// How long the request waited since it was last asked for; 0 in the answer to a repeat.
    pub waited_ms: u64,
}

/// What happened to a task or a claim other than the command's own. The text is the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// A waiting claim got a task.
    Claimed(RequestId, Text, Claimed),
    /// A waiting claim got nothing in time.
    TimedOut(RequestId, Text),
    /// The task that a claim waited for is done or failed.
    Refused(RequestId, Text, TaskState),
    /// A waiting claim left because it was told to, or its connection stayed away.
    Withdrawn(RequestId, Text),
    /// A claim's lease ran out; the task is free.
    Lapsed {
        /// The claim's id.
        id: RequestId,
        /// The pool.
        pool: Text,
        /// The task.
        key: Text,
        /// The claim's token.
        token: u64,
    },
}
