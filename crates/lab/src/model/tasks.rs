//! Tasks and their claims, as plainly as the locks: a vector of tasks, one of waiting claims, one of
//! remembered answers. `claims` serves and ends what waits, `writes` are the commands that change a
//! task; this file has the state, the repeats and the checks.

mod claims;
mod writes;

use keylatch_table::{
    Error, Event, RequestId, Text, What,
    task::{Body, Claim, Claimed, TaskAction, TaskCommand, TaskEvent, TaskReply, TaskState},
};

use super::{Model, check::Lengths, request::Wait};

/// What a task costs besides its texts.
const TASK_BYTES: u64 = 200;

/// All tasks, claims and answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks {
    /// In the order of their numbers.
    pub(crate) all: Vec<Task>,
    /// Waiting claims of all pools, in the order of their seq.
    pub(crate) claims: Vec<WaitingClaim>,
    /// Remembered answers, oldest first.
    pub(crate) answers: Vec<Answered>,
    /// The last number given to a task.
    pub(crate) number: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) number: u64,
    pub(crate) pool: Text,
    pub(crate) key: Text,
    pub(crate) body: Option<Body>,
    pub(crate) state: TaskState,
    pub(crate) version: u64,
    pub(crate) created: u64,
    pub(crate) priority: i32,
    pub(crate) attempts: u32,
    /// Attempts after which it fails, if it has a bound of its own.
    pub(crate) most_attempts: Option<u32>,
    /// When it can be claimed, while it is free.
    pub(crate) ready: u64,
    pub(crate) error: Option<Text>,
    /// The last claim, also after it ended.
    pub(crate) claim: Option<LastClaim>,
}

#[derive(Clone, Debug)]
pub(crate) struct LastClaim {
    pub(crate) id: RequestId,
    pub(crate) owner: Text,
    pub(crate) token: u64,
    pub(crate) since: u64,
    pub(crate) lease_ms: u64,
    pub(crate) until: Option<u64>,
    /// Granted while detached, and neither repeated nor updated since.
    pub(crate) unconfirmed: bool,
    /// The task is free because this claim's lease ran out.
    pub(crate) lapsed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct WaitingClaim {
    pub(crate) id: RequestId,
    pub(crate) pool: Text,
    pub(crate) claim: Claim,
    pub(crate) seq: u64,
    /// When it was asked for last.
    pub(crate) asked_at: u64,
    pub(crate) wait: Wait,
}

#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) command: TaskCommand,
    pub(crate) at: u64,
    pub(crate) reply: TaskReply,
}

impl Task {
    pub(crate) fn bytes(&self) -> u64 {
        let body = self.body.as_ref().map_or(0, |body| body.bytes.len());
        let error = self.error.as_ref().map_or(0, |error| error.len());
        (self.pool.len() + self.key.len() + body + error) as u64 + TASK_BYTES
    }

    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.state == TaskState::Free && self.ready <= now
    }

    /// What is left of its claim; `None` is no lease, or not claimed.
    pub(crate) fn left(&self, now: u64) -> Option<u64> {
        let claim = self.claim.as_ref().filter(|_| self.state == TaskState::Claimed)?;
        Some(claim.until?.saturating_sub(now))
    }
}

/// Whether two commands ask for the same thing: the wait of a claim, the principal, and what is
/// shown for a worker that named no owner aside.
fn same_content(a: &TaskCommand, b: &TaskCommand) -> bool {
    let without_wait = |command: &TaskCommand| {
        let mut command = command.clone();
        if let TaskAction::Claim(claim) = &mut command.action {
            claim.wait_ms = 0;
            claim.party.principal = None;
            if !claim.party.explicit {
                claim.party.owner = "".into();
            }
        }
        command
    };
    without_wait(a) == without_wait(b)
}

impl Model {
    pub(crate) fn task(&mut self, command: &TaskCommand, events: &mut Vec<Event>) -> TaskReply {
        if command.action == TaskAction::Cancel {
            return self.cancel_claim(&command.id, events);
        }
        if let Err(error) = self.check_id(&command.id) {
            return TaskReply::Error(error);
        }
        if let Some(reply) = self.repeat_task(command, events) {
            return reply;
        }
        if let Err(error) = self.check_task_lengths(command) {
            return TaskReply::Error(error);
        }
        let pool = &command.pool;
        let reply = match &command.action {
            TaskAction::Create(create) => self.create(pool, create),
            TaskAction::Claim(claim) => return self.claim(command, claim),
            TaskAction::Update(checked, body, lease_ms) => {
                self.update(pool, checked, body.as_ref(), *lease_ms)
            }
            TaskAction::Finish(checked) => self.finish(pool, checked),
            TaskAction::PutBack(checked, put_back) => self.put_back(pool, checked, put_back),
            TaskAction::Delete(key, version) => self.delete(pool, key, *version),
            TaskAction::Retry(key) => self.retry(pool, key.as_ref()),
            TaskAction::Cancel => unreachable!("handled above"),
        };
        if !matches!(reply, TaskReply::Error(_)) {
            self.remember_answer(command.clone(), reply.clone());
        }
        reply
    }

    fn remember_answer(&mut self, command: TaskCommand, reply: TaskReply) {
        self.tasks.answers.push(Answered { command, at: self.now, reply });
        self.forget_beyond_bound();
    }

    /// The answer to a command whose id is known.
    fn repeat_task(&mut self, command: &TaskCommand, events: &mut Vec<Event>) -> Option<TaskReply> {
        let answered = self.tasks.answers.iter().find(|known| known.command.id == command.id);
        if let Some(answered) = answered.cloned() {
            if !same_content(&answered.command, command) {
                return Some(TaskReply::Error(Error::IdReused));
            }
            return Some(match answered.reply {
                TaskReply::Claimed(claimed) => self.repeat_granted(&command.pool, claimed),
                reply => reply,
            });
        }
        let at = self.tasks.claims.iter().position(|waiting| waiting.id == command.id)?;
        let waiting = &self.tasks.claims[at];
        let first = TaskCommand {
            id: waiting.id.clone(),
            pool: waiting.pool.clone(),
            action: TaskAction::Claim(waiting.claim.clone()),
        };
        let TaskAction::Claim(claim) = &command.action else {
            return Some(TaskReply::Error(Error::IdReused));
        };
        if !same_content(&first, command) {
            return Some(TaskReply::Error(Error::IdReused));
        }
        Some(self.repeat_waiting(at, claim.wait_ms, events))
    }

    fn repeat_granted(&mut self, pool: &Text, mut claimed: Claimed) -> TaskReply {
        let now = self.now;
        let task = self.tasks.all.iter_mut().find(|task| {
            task.pool == *pool
                && task.key == claimed.key
                && task.version == claimed.version
                && task.state == TaskState::Claimed
        });
        let Some(task) = task else { return TaskReply::Ended };
        let claim = task.claim.as_mut().expect("claimed by someone");
        if claim.unconfirmed {
            claim.unconfirmed = false;
            claim.until = super::request::end_after(now, claim.lease_ms);
        }
        claimed.lease_ms = task.left(now);
        claimed.waited_ms = 0;
        TaskReply::Claimed(claimed)
    }

    fn repeat_waiting(&mut self, at: usize, wait_ms: u64, events: &mut Vec<Event>) -> TaskReply {
        if wait_ms > self.settings.wait_ms {
            return TaskReply::Error(Error::TooLong(What::Wait, self.settings.wait_ms));
        }
        if wait_ms == 0 {
            let claim = self.tasks.claims.remove(at);
            events.push(Event::Task(TaskEvent::Withdrawn(claim.id, claim.pool)));
            return TaskReply::Nothing;
        }
        let until = self.now.saturating_add(wait_ms);
        self.tasks.claims[at].wait = Wait { until, grace: None };
        self.tasks.claims[at].asked_at = self.now;
        TaskReply::Waiting
    }

    fn check_task_lengths(&mut self, command: &TaskCommand) -> Result<(), Error> {
        let bounds = &self.settings;
        let mut lengths = Lengths::default();
        let mut text = |what, text: &str| {
            lengths.some(what, text.len());
            lengths.most(what, text.len(), bounds.task_key_bytes);
        };
        text(What::Pool, &command.pool);
        match &command.action {
            TaskAction::Create(create) => text(What::TaskKey, &create.key),
            TaskAction::Update(checked, ..)
            | TaskAction::Finish(checked)
            | TaskAction::PutBack(checked, _) => text(What::TaskKey, &checked.key),
            TaskAction::Delete(key, _)
            | TaskAction::Retry(Some(key))
            | TaskAction::Claim(Claim { key: Some(key), .. }) => text(What::TaskKey, key),
            TaskAction::Retry(None) | TaskAction::Claim(_) | TaskAction::Cancel => {}
        }
        let body_len = |body: &Option<Body>| body.as_ref().map_or(0, |body| body.bytes.len());
        match &command.action {
            TaskAction::Create(create) => {
                lengths.most(What::TaskBody, body_len(&create.body), bounds.task_body_bytes);
                lengths.most_ms(What::TaskDelay, create.delay_ms, bounds.lease_ms);
            }
            TaskAction::Claim(claim) => {
                lengths.party(&claim.party, bounds);
                lengths.most_ms(What::Wait, claim.wait_ms, bounds.wait_ms);
                lengths.most_ms(What::Lease, claim.lease_ms, bounds.lease_ms);
            }
            TaskAction::Update(_, body, lease_ms) => {
                lengths.most(What::TaskBody, body_len(body), bounds.task_body_bytes);
                lengths.most_ms(What::Lease, lease_ms.unwrap_or(0), bounds.lease_ms);
            }
            TaskAction::PutBack(_, put_back) => {
                let error = put_back.error.as_ref().map_or(0, |error| error.len());
                lengths.most(What::TaskError, error, bounds.meta_bytes);
                lengths.most_ms(What::TaskDelay, put_back.delay_ms, bounds.lease_ms);
            }
            TaskAction::Finish(_)
            | TaskAction::Delete(..)
            | TaskAction::Retry(_)
            | TaskAction::Cancel => {}
        }
        self.refuse_lengths(lengths)
    }
}
