//! What can go wrong, operation by operation. An outcome that is not known is never reported as a
//! failure.

use keylatch_table::{Blocker, Cause, Deadlock, TaskState};

use crate::guard::Lost;

/// Why a strategy could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// What says where the locks are (the environment, the user's file) cannot be understood.
    #[error("{0}")]
    Configuration(String),
    /// Not a URL that names a strategy.
    #[error("{0}")]
    Url(String),
    /// Nobody answers there.
    #[error("{0}")]
    Unreachable(String),
    /// Somebody answers, and it is not what was expected.
    #[error("{0}")]
    Refused(String),
    /// Who we are is not accepted: a token or a certificate is missing, or is not known there.
    #[error("not allowed: {0}")]
    Denied(String),
}

/// Why a lock was not granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Somebody has it, and the request does not wait.
    #[error("busy: {}", show(.0))]
    Busy(Blocker),
    /// It was not free in time.
    #[error("not free in time{}", .0.as_ref().map_or_else(String::new, |by| format!(": {}", show(by))))]
    TimedOut(Option<Blocker>),
    /// To wait would have closed a cycle of owners.
    #[error("deadlock: {} wait for each other", .0.cycle.join(", "))]
    Deadlock(Deadlock),
    /// This request id was granted before, and that grant has ended.
    #[error("this request id was granted before, and has ended")]
    Ended(Cause),
    /// The request was told to stop waiting.
    #[error("cancelled")]
    Cancelled,
    /// The request itself is wrong, or beyond a bound.
    #[error("{0}")]
    Invalid(String),
    /// Who we are is not accepted, or we have no right to this; trying again does not help.
    #[error("not allowed: {0}")]
    Denied(String),
    /// Nobody was reached in time, so nothing has happened.
    #[error("{0}")]
    Unreachable(String),
    /// It was sent, and the answer is not known. What may have been granted lapses with its lease.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
}

/// Why a lock was not promoted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromoteError {
    /// Somebody is in the way; what is held stays held.
    #[error("busy: {}", show(.0))]
    Busy(Blocker),
    /// It is not held any more.
    #[error("{0}")]
    Lost(Lost),
    /// Nothing is held under this id, and nobody knows of anything that was.
    #[error("nothing is held under this id: it has ended, or never was")]
    NotHeld,
    /// A lock of this mode cannot be promoted.
    #[error("{0}")]
    Invalid(String),
    /// Who we are is not accepted, or we have no right to this; trying again does not help.
    #[error("not allowed: {0}")]
    Denied(String),
    /// It was sent, and the answer is not known.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
}

/// Why a lease was not renewed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// It is not held any more.
    #[error("{0}")]
    Lost(Lost),
    /// Nothing is held under this id, and nobody knows of anything that was.
    #[error("nothing is held under this id: it has ended, or never was")]
    NotHeld,
    /// The request itself is wrong, or beyond a bound.
    #[error("{0}")]
    Invalid(String),
    /// Who we are is not accepted, or we have no right to this; trying again does not help.
    #[error("not allowed: {0}")]
    Denied(String),
    /// It was sent, and the answer is not known.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
}

/// Why a task command was not carried out, or may not have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The command itself is wrong, or beyond a bound, or this strategy cannot do it.
    #[error("{0}")]
    Invalid(String),
    /// Who we are is not accepted, or we have no right to this; trying again does not help.
    #[error("not allowed: {0}")]
    Denied(String),
    /// Nobody was reached in time, so nothing has happened.
    #[error("{0}")]
    Unreachable(String),
    /// It was sent, and the answer is not known. The same command under the same id tells.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
}

/// Why nothing was claimed, other than that nothing was free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The task that was asked for is done or failed and will not become free.
    #[error("the task is {}", .0.word())]
    Refused(TaskState),
    /// The claim was told to stop waiting.
    #[error("cancelled")]
    Cancelled,
    /// It was claimed, and while the answer was on its way the claim ended.
    #[error("the claim has ended before its answer came")]
    Ended,
    /// As with every command.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Why a task was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Somebody has written it since: it has this version now. Nothing was changed.
    #[error("somebody else has claimed or changed the task since; its version is {0} now")]
    Stale(u64),
    /// There is no such task.
    #[error("there is no such task")]
    NotFound,
    /// A task that is done or failed is not put back.
    #[error("the task is {}", .0.word())]
    Refused(TaskState),
    /// As with every command.
    #[error(transparent)]
    Task(#[from] TaskError),
}

/// Why a list, or an administrator's command, has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Refused, and why.
    #[error("{0}")]
    Refused(String),
    /// Who we are is not accepted, or we have no right to this; trying again does not help.
    #[error("not allowed: {0}")]
    Denied(String),
    /// No answer came in time.
    #[error("{0}")]
    Unreachable(String),
}

/// Why a task under a lock has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The lock was not granted, so the task did not run.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The lock was lost while the task ran. A future was dropped then; a function in a thread went
    /// on to its end.
    #[error("{0} while the task ran")]
    Lost(Lost),
}

fn show(blocker: &Blocker) -> String {
    let state = match blocker.state {
        keylatch_table::State::Held => "has it",
        keylatch_table::State::Waiting => "waits for it",
    };
    let (seconds, tenths) = (blocker.held_ms / 1_000, blocker.held_ms / 100 % 10);
    format!("{} {state} ({}, for {seconds}.{tenths} s)", blocker.owner, blocker.mode.letter())
}
