//! A task that a worker asks for.

use std::pin::Pin;
use std::time::Duration;

use keylatch_table::{
    Checked, Claim as Wanted, Claimed, Party, TaskAction, TaskCommand, TaskReply, Text,
};

use super::claim::Claim;
use super::keep::GIVEN_BACK_MS;
use super::{PAUSE, REPEAT, Tasks, strange};
use crate::ask::{Futures, WEEK, ms, new_id};
use crate::clock::Moment;
use crate::error::{ClaimError, TaskError};
use crate::strategy::Pending;

/// The lease of a claim that names none.
const LEASE: Duration = Duration::from_secs(60);

/// A claim, before it is asked for. Awaiting it gives a [`Claim`], or `None` if nothing became free in
/// time; in a thread, `take()` does that.
///
/// Dropping the future withdraws it. If it had got a task by then, that task is free again at once, and
/// no attempt is counted.
#[must_use = "nothing is claimed before it is awaited (or, in a thread, taken)"]
pub struct ClaimTask<For = Futures> {
    tasks: Tasks<For>,
    key: Option<Text>,
    owner: Option<Text>,
    wait: Duration,
    lease: Duration,
    renew: bool,
}

impl<For> ClaimTask<For> {
    pub(super) fn new(tasks: Tasks<For>, key: Option<Text>) -> Self {
        ClaimTask { tasks, key, owner: None, wait: WEEK, lease: LEASE, renew: true }
    }

    /// Who works on it; shown to others.
    pub fn owner(mut self, owner: impl Into<Text>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Waits at most so long; without it, until there is one.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Does not wait: now or not at all.
    pub fn try_now(self) -> Self {
        self.wait(Duration::ZERO)
    }

    /// How long it is claimed without being renewed (60 s); zero is for ever.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Does not renew: the task is free when the lease is over.
    pub fn no_renew(mut self) -> Self {
        self.renew = false;
        self
    }

    pub(crate) async fn ask(self) -> Result<Option<Claim>, ClaimError> {
        let tasks = self.tasks.awaited();
        let party = match &self.owner {
            Some(owner) => Party::owner(owner),
            None => Party::client(&tasks.locks.shown),
        };
        let end = Moment::now().after(self.wait);
        let lease = tasks.locks.capabilities.lease(self.lease);
        let mut wanted =
            Wanted { key: self.key, party, wait_ms: ms(self.wait), lease_ms: ms(lease) };
        let command = tasks.command(new_id(), TaskAction::Cancel);
        let mut withdraw = Withdraw { tasks: tasks.clone(), command, pending: None, armed: true };
        let (reply, since) = loop {
            let since = Moment::now();
            let action = TaskAction::Claim(wanted.clone());
            let command = TaskCommand { action, ..withdraw.command.clone() };
            match withdraw.outcome(command).await {
                Err(TaskError::Unknown(_)) if !end.after(REPEAT).has_passed() => {
                    tokio::time::sleep(PAUSE).await;
                    // Under the same id: it gets its place, or its task, again.
                    wanted.wait_ms = ms(end.left());
                }
                reply => break (reply, since),
            }
        };
        withdraw.armed = matches!(reply, Err(TaskError::Unknown(_)));
        drop(withdraw);
        match reply? {
            TaskReply::Claimed(claimed) => {
                Ok(Some(Claim::new(tasks, claimed, since, lease, self.renew)))
            }
            TaskReply::Nothing => Ok(None),
            TaskReply::Refused(state) => Err(ClaimError::Refused(state)),
            TaskReply::Cancelled(_) => Err(ClaimError::Cancelled),
            TaskReply::Ended => Err(ClaimError::Ended),
            other => Err(strange(&other).into()),
        }
    }
}

impl IntoFuture for ClaimTask {
    type Output = Result<Option<Claim>, ClaimError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

/// Cancels a claim whose outcome nobody waits for any more, and frees what it got all the same.
struct Withdraw {
    tasks: Tasks,
    /// The cancellation: it has the claim's id.
    command: TaskCommand,
    pending: Option<Pending<Result<TaskReply, TaskError>>>,
    armed: bool,
}

impl Withdraw {
    async fn outcome(&mut self, command: TaskCommand) -> Result<TaskReply, TaskError> {
        let pending = self.tasks.locks.submit_task(|tasks| tasks.task(command));
        // It stays here while it is waited for: a claim that is dropped needs it to the end.
        let reply = self.pending.insert(pending).await;
        self.pending = None;
        reply
    }
}

impl Drop for Withdraw {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (tasks, pending) = (self.tasks.clone(), self.pending.take());
        let cancelled = tasks.locks.submit_task(|tasks| tasks.task(self.command.clone()));
        let locks = std::sync::Arc::clone(&tasks.locks);
        locks.in_background(async move {
            drop(cancelled.await);
            let Some(pending) = pending else { return };
            if let Ok(TaskReply::Claimed(claimed)) = pending.await {
                free(&tasks, claimed).await;
            }
        });
    }
}

/// Nobody works on it: it is free after the shortest lease, and no attempt is counted.
async fn free(tasks: &Tasks, claimed: Claimed) {
    let checked = Checked { key: claimed.key, version: claimed.version };
    // If this fails its lease ends later.
    drop(tasks.change(TaskAction::Update(checked, None, Some(GIVEN_BACK_MS))).await);
}
