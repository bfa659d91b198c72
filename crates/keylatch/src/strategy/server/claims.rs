//! Claims on the connection: those that have no answer, or wait for the push that tells it. After the
//! connection was lost they are asked for again under the same id, with what is left of their wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use keylatch_table::{RequestId, TaskAction, TaskCommand, TaskReply};
use keylatch_wire::Value;
use tokio::sync::oneshot;

use super::tasks::{self, Outcome};
use crate::clock::Moment;
use crate::error::TaskError;

pub(super) type ClaimSender = oneshot::Sender<Result<TaskReply, TaskError>>;

/// A claim that is asked for or waits.
pub(super) struct ClaimWait {
    command: TaskCommand,
    outcome: ClaimSender,
    /// When it was first asked for.
    since: Moment,
    /// When it was last asked for: the server counts its wait from there.
    asked: Moment,
    /// When the wait is over.
    pub(super) end: Instant,
}

impl ClaimWait {
    pub(super) fn new(command: TaskCommand, outcome: ClaimSender) -> ClaimWait {
        let wait = match &command.action {
            TaskAction::Claim(claim) => Duration::from_millis(claim.wait_ms),
            _ => Duration::ZERO,
        };
        let now = Moment::now();
        ClaimWait { command, outcome, since: now, asked: now, end: Instant::now() + wait }
    }

    /// As it is asked for now.
    pub(super) fn bytes(&mut self) -> Vec<u8> {
        self.asked = Moment::now();
        if let TaskAction::Claim(claim) = &mut self.command.action
            && claim.wait_ms > 0
        {
            let left = self.end.saturating_duration_since(Instant::now());
            claim.wait_ms = (left.as_millis() as u64).max(1);
        }
        tasks::bytes_of(&self.command)
    }

    pub(super) fn done(self, outcome: Result<TaskReply, TaskError>) {
        let outcome = outcome.map(|reply| match reply {
            TaskReply::Claimed(mut claimed) => {
                // Whoever asked counts from the first time.
                claimed.waited_ms += self.asked.since(self.since).as_millis() as u64;
                TaskReply::Claimed(claimed)
            }
            reply => reply,
        });
        // If nobody waits for it any more, whoever stopped waiting looks after it.
        drop(self.outcome.send(outcome));
    }
}

/// Those that wait.
#[derive(Default)]
pub(super) struct Claims(HashMap<RequestId, ClaimWait>);

impl Claims {
    pub(super) fn answered(&mut self, wait: ClaimWait, value: &Value) {
        match tasks::outcome(value) {
            Outcome::Waiting => drop(self.0.insert(wait.command.id.clone(), wait)),
            Outcome::Done(outcome) => wait.done(outcome),
        }
    }

    /// Whether it was about one of them.
    pub(super) fn pushed(&mut self, id: &RequestId, about: &Value) -> bool {
        let Some(wait) = self.0.remove(id) else { return false };
        self.answered(wait, about);
        true
    }

    /// It was cancelled: the push that says so may not come.
    pub(super) fn cancelled(&mut self, id: &RequestId) {
        if let Some(wait) = self.0.remove(id) {
            wait.done(Ok(TaskReply::Cancelled(true)));
        }
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = ClaimWait> {
        std::mem::take(&mut self.0).into_values()
    }

    /// Those whose wait ended before then are told so.
    pub(super) fn give_up(&mut self, ended: impl Fn(Instant) -> bool, text: &str) {
        let over: Vec<RequestId> =
            self.0.iter().filter(|(_, wait)| ended(wait.end)).map(|(id, _)| id.clone()).collect();
        for wait in over.iter().filter_map(|id| self.0.remove(id)).collect::<Vec<_>>() {
            wait.done(Err(TaskError::Unknown(text.into())));
        }
    }
}
