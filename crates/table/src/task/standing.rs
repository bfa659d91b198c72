//! A task as a value: what a record store keeps of it between two commands, and the small table that
//! decides on it. As `standing.rs` does it for locks: the rules are the same code as in a big table.
//!
//! What a big table remembers of answered commands, a record store keeps with the task: the commands
//! that are known by it are answered again, not carried out twice.

use super::bytes::{read_body, read_reply, read_state, write_body, write_reply, write_state};
use super::store::TaskClaim;
use super::{Answered, Body, Claimed, Task, TaskCommand, TaskReply, TaskState};
use crate::board::deadlines::NEVER;
use crate::codec::{CodecError, Read, Reader, Writer};
use crate::snapshot::LATEST;
use crate::{Counters, RequestId, Settings, Table, Text};

/// A task in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStanding {
    /// Its pool.
    pub pool: Text,
    /// Its key.
    pub key: Text,
    /// In the order of creation.
    pub number: u64,
    /// What is to be done.
    pub body: Option<Body>,
    /// Its state as it was last written: a claim may have run out since.
    pub state: TaskState,
    /// Its version.
    pub version: u64,
    /// Its priority.
    pub priority: i32,
    /// How often it was put back.
    pub attempts: u32,
    /// The attempts after which it is failed, if it has a number of its own.
    pub attempts_most: Option<u32>,
    /// When it was created.
    pub created: u64,
    /// When it became, or becomes, ready.
    pub ready: u64,
    /// The last error.
    pub error: Option<Text>,
    /// The claim it has, or had last.
    pub claim: Option<ClaimStanding>,
    /// Free because the lease of its claim ran out.
    pub lapsed: bool,
    /// Commands that were answered, but for the claim.
    pub answers: Vec<TaskAnswer>,
}

/// A claim of a [`TaskStanding`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimStanding {
    /// Its id.
    pub id: RequestId,
    /// Stands for what was asked.
    pub print: u64,
    /// Its token.
    pub token: u64,
    /// Who claimed.
    pub owner: Text,
    /// When.
    pub at: u64,
    /// The lease asked for; 0 is none.
    pub lease_ms: u64,
    /// When the lease ends; `None` is never.
    pub end: Option<u64>,
}

/// An answer, by which a repeat of its command is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskAnswer {
    /// The command's id.
    pub id: RequestId,
    /// Stands for what was asked.
    pub print: u64,
    /// What was answered.
    pub reply: TaskReply,
}

impl Table {
    /// A table with these tasks. What should have ended before the time of the counters is dealt with by
    /// the first command.
    ///
    /// # Panics
    /// If the settings do not pass [`Settings::validate`].
    pub fn from_tasks(
        settings: Settings,
        counters: Counters,
        hash_seed: u64,
        tasks: impl IntoIterator<Item = TaskStanding>,
    ) -> Result<Table, CodecError> {
        let mut table = Table::from_standings(settings, counters, hash_seed, [])?;
        for standing in tasks {
            table.seat_task(standing)?;
        }
        Ok(table)
    }

    /// A task, as it stands.
    pub fn task_standing(&self, pool: &str, key: &str) -> Option<TaskStanding> {
        let task = self.tasks.task(self.tasks.find(pool, key)?);
        let claim = task.claim.as_ref().map(|claim| ClaimStanding {
            id: claim.id.clone(),
            print: self.tasks.answered(&claim.id).map_or(0, |answered| answered.print),
            token: claim.token,
            owner: claim.owner.clone(),
            at: claim.at,
            lease_ms: claim.lease_ms,
            end: (claim.end != NEVER).then_some(claim.end),
        });
        Some(TaskStanding {
            pool: task.pool.clone(),
            key: task.key.clone(),
            number: task.number,
            body: task.body.clone(),
            state: task.state,
            version: task.version,
            priority: task.priority,
            attempts: task.attempts,
            attempts_most: task.attempts_most,
            created: task.created,
            ready: task.ready,
            error: task.error.clone(),
            claim,
            lapsed: task.lapsed,
            answers: Vec::new(),
        })
    }

    /// What was answered to a command, if that is remembered.
    pub fn task_answer(&self, id: &RequestId) -> Option<TaskAnswer> {
        let answered = self.tasks.answered(id)?;
        let Answered { id, print, reply, .. } = answered.clone();
        Some(TaskAnswer { id, print, reply })
    }

    fn seat_task(&mut self, standing: TaskStanding) -> Read<()> {
        let TaskStanding { pool, key, number, version, answers, .. } = standing;
        let (state, ready) = (standing.state, standing.ready);
        let claim = standing.claim.as_ref();
        let possible = number <= LATEST
            && version <= self.token
            && standing.created <= self.now
            && ready < LATEST
            && self.tasks.find(&pool, &key).is_none()
            && self.tasks.pool(&pool).is_none_or(|pool| !pool.tasks.contains_key(&number))
            && claim.is_none_or(|claim| {
                claim.token <= self.token
                    && claim.at <= self.now
                    && claim.lease_ms < LATEST
                    && claim.end.is_none_or(|end| end < LATEST)
            })
            && (state != TaskState::Claimed || claim.is_some())
            && (!standing.lapsed || (claim.is_some() && state == TaskState::Free));
        if !possible {
            return Err(CodecError::Bad("task"));
        }
        self.tasks.number = self.tasks.number.max(number);
        let claimed = claim.map(|claim| TaskAnswer {
            id: claim.id.clone(),
            print: claim.print,
            reply: TaskReply::Claimed(Claimed {
                key: key.clone(),
                body: None,
                // What a claim writes has its token as its version.
                version: claim.token,
                token: claim.token,
                attempts: standing.attempts,
                lease_ms: (claim.lease_ms > 0).then_some(claim.lease_ms),
                waited_ms: 0,
            }),
        });
        for TaskAnswer { id, print, reply } in answers.into_iter().chain(claimed) {
            // A command that was answered twice was answered alike.
            if self.tasks.answered(&id).is_none() {
                self.tasks.remember(self.now, Answered { id, print, reply, pool: pool.clone() });
            }
        }
        let task = Task {
            pool,
            key,
            number,
            body: standing.body,
            state,
            version,
            priority: standing.priority,
            attempts: standing.attempts,
            attempts_most: standing.attempts_most,
            created: standing.created,
            ready,
            error: standing.error,
            claim: standing.claim.map(|claim| TaskClaim {
                id: claim.id,
                token: claim.token,
                owner: claim.owner,
                at: claim.at,
                lease_ms: claim.lease_ms,
                end: claim.end.unwrap_or(NEVER),
                detached: false,
            }),
            lapsed: standing.lapsed,
        };
        self.tasks.insert(task, self.now);
        Ok(())
    }
}

impl TaskCommand {
    /// Stands for what is asked: of two commands with the same one, the later is a repeat.
    pub fn fingerprint(&self) -> u64 {
        self.print()
    }
}

impl TaskStanding {
    /// As bytes, all but the claim and where it is: a record store has these beside them.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        write_body(&mut to, self.body.as_ref());
        write_state(&mut to, self.state);
        to.i32(self.priority);
        to.u32(self.attempts);
        to.option(self.attempts_most, Writer::u32);
        for number in [self.number, self.version, self.created, self.ready] {
            to.u64(number);
        }
        to.option(self.error.as_deref(), Writer::text);
        to.bool(self.lapsed);
        to.list(self.answers.iter(), |to, answer| {
            to.id(&answer.id);
            to.u64(answer.print);
            write_reply(to, &answer.reply);
        });
        to.bytes
    }

    /// From bytes. Whether there can be such a task is for [`Table::from_tasks`].
    pub fn decode(pool: Text, key: Text, bytes: &[u8]) -> Result<TaskStanding, CodecError> {
        let mut from = Reader::new(bytes);
        let (body, state) = (read_body(&mut from)?, read_state(&mut from)?);
        let standing = TaskStanding {
            pool,
            key,
            body,
            state,
            priority: from.i32()?,
            attempts: from.u32()?,
            attempts_most: from.option(Reader::u32)?,
            number: from.u64()?,
            version: from.u64()?,
            created: from.u64()?,
            ready: from.u64()?,
            error: from.option(Reader::shared)?,
            claim: None,
            lapsed: from.bool()?,
            answers: from.list(|from| {
                let (id, print) = (from.id()?, from.u64()?);
                Ok(TaskAnswer { id, print, reply: read_reply(from)? })
            })?,
        };
        from.end()?;
        Ok(standing)
    }
}

impl ClaimStanding {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.id(&self.id);
        to.u64(self.print);
        to.u64(self.token);
        to.text(&self.owner);
        to.u64(self.at);
        to.u64(self.lease_ms);
        to.option(self.end, Writer::u64);
        to.bytes
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<ClaimStanding, CodecError> {
        let mut from = Reader::new(bytes);
        let claim = ClaimStanding {
            id: from.id()?,
            print: from.u64()?,
            token: from.u64()?,
            owner: from.shared()?,
            at: from.u64()?,
            lease_ms: from.u64()?,
            end: from.option(Reader::u64)?,
        };
        from.end()?;
        Ok(claim)
    }
}
