//! Tasks in a snapshot.

use super::bytes::{read_body, read_reply, read_state, write_body, write_reply, write_state};
use super::store::TaskClaim;
use super::{Answered, ClaimNode, Task, TaskReply, TaskState, Tasks};
use crate::codec::{CodecError, Read, Reader, Writer};
use crate::command_bytes::{read_party, write_party};
use crate::snapshot::{LATEST, read_time, write_time};
use crate::{Table, Text};

/// The way through all tasks: pools by name, their tasks by number; then waiting claims by seq; then
/// answers by age. Which tasks there are is noted at the beginning, and so is what comes behind them.
#[derive(Debug)]
pub(crate) struct TaskWalk {
    /// What comes before the tasks.
    head: Vec<u8>,
    pools: std::vec::IntoIter<(Text, Vec<u32>)>,
    tasks: std::vec::IntoIter<u32>,
    /// What comes behind them.
    tail: Vec<u8>,
}

impl TaskWalk {
    pub(crate) fn new(tasks: &Tasks) -> TaskWalk {
        let full = tasks.pools.iter().filter(|(_, pool)| !pool.tasks.is_empty());
        let pools: Vec<_> = full
            .map(|(name, pool)| (name.clone(), pool.tasks.values().copied().collect()))
            .collect();
        let mut head = Writer::default();
        head.u64(tasks.number);
        head.u64(pools.len() as u64);
        let mut tail = Writer::default();
        let mut claims: Vec<_> = tasks.claims().map(|(_, claim)| claim).collect();
        claims.sort_unstable_by_key(|claim| claim.seq);
        tail.list(claims.into_iter(), write_claim);
        let answers: Vec<_> = tasks.answers.iter().collect();
        tail.list(answers.into_iter(), |to, (at, answered)| {
            to.u64(at);
            to.id(&answered.id);
            to.u64(answered.print);
            to.text(&answered.pool);
            write_reply(to, &answered.reply);
        });
        TaskWalk {
            head: head.bytes,
            pools: pools.into_iter(),
            tasks: Vec::new().into_iter(),
            tail: tail.bytes,
        }
    }

    /// Writes what stands before the next task, and returns that one.
    pub(crate) fn next(&mut self, to: &mut Writer) -> Option<u32> {
        to.bytes.append(&mut self.head);
        if let Some(at) = self.tasks.next() {
            return Some(at);
        }
        if let Some((name, tasks)) = self.pools.next() {
            to.text(&name);
            to.u64(tasks.len() as u64);
            self.tasks = tasks.into_iter();
            return self.tasks.next();
        }
        to.bytes.append(&mut self.tail);
        None
    }
}

impl Table {
    pub(crate) fn read_tasks(&mut self, from: &mut Reader<'_>) -> Read<()> {
        self.tasks.number = from.u64()?;
        if self.tasks.number > LATEST {
            return Err(CodecError::Bad("counter"));
        }
        for (name, tasks) in from.list(|from| {
            let name = from.shared()?;
            let tasks = from.list(|from| read_task(from, &name))?;
            Ok((name, tasks))
        })? {
            if tasks.is_empty()
                || self.tasks.pools.last_key_value().is_some_and(|(n, _)| *n >= name)
            {
                return Err(CodecError::Bad("pool"));
            }
            tasks.into_iter().try_for_each(|task| self.restore_task(task))?;
        }
        let mut last = 0;
        for claim in from.list(read_claim)? {
            if claim.seq <= last {
                return Err(CodecError::Bad("claim"));
            }
            last = claim.seq;
            self.restore_claim(claim)?;
        }
        for (at, answered) in from.list(read_answer)? {
            let known = self.tasks.answered(&answered.id).is_some()
                || self.tasks.claim_of(&answered.id).is_some();
            if at > self.now || known {
                return Err(CodecError::Bad("answer"));
            }
            self.tasks.remember(at, answered);
        }
        self.tasks.fresh.clear();
        Ok(())
    }

    fn restore_task(&mut self, task: Task) -> Read<()> {
        let now = self.now;
        let pool = self.tasks.pool(&task.pool);
        let ordered = pool.and_then(|pool| pool.tasks.last_key_value());
        let claim = task.claim.as_ref();
        let live = claim.filter(|_| task.state == TaskState::Claimed);
        let possible = task.number <= self.tasks.number
            && ordered.is_none_or(|(number, _)| *number < task.number)
            && self.tasks.find(&task.pool, &task.key).is_none()
            && task.version <= self.token
            && task.created <= now
            && task.ready < LATEST
            && claim.is_none_or(|claim| claim.at <= now && claim.token <= self.token)
            && live.is_none_or(|claim| claim.end > now)
            && (task.state != TaskState::Claimed || claim.is_some())
            && (!task.lapsed || (claim.is_some() && task.state == TaskState::Free));
        if !possible {
            return Err(CodecError::Bad("task"));
        }
        self.tasks.insert(task, now);
        Ok(())
    }

    fn restore_claim(&mut self, claim: ClaimNode) -> Read<()> {
        let possible = claim.seq <= self.seq
            && claim.asked <= self.now
            && claim.deadline() > self.now
            && claim.grace.is_none_or(|(grace_ms, _)| grace_ms > 0)
            && self.tasks.claim_of(&claim.id).is_none()
            && matches!(self.claimable(&claim.pool, claim.key.as_deref()), Ok(None));
        if !possible {
            return Err(CodecError::Bad("claim"));
        }
        self.tasks.enqueue(claim);
        Ok(())
    }
}

pub(crate) fn write_task(to: &mut Writer, task: &Task) {
    to.text(&task.key);
    to.u64(task.number);
    write_body(to, task.body.as_ref());
    write_state(to, task.state);
    to.u64(task.version);
    to.i32(task.priority);
    to.u32(task.attempts);
    to.option(task.attempts_most, Writer::u32);
    to.u64(task.created);
    to.u64(task.ready);
    to.option(task.error.as_deref(), Writer::text);
    to.option(task.claim.as_ref(), |to, claim| {
        to.id(&claim.id);
        to.u64(claim.token);
        to.text(&claim.owner);
        to.u64(claim.at);
        to.u64(claim.lease_ms);
        write_time(to, claim.end);
        to.bool(claim.detached);
    });
    to.bool(task.lapsed);
}

fn read_task(from: &mut Reader<'_>, pool: &Text) -> Read<Task> {
    Ok(Task {
        pool: pool.clone(),
        key: from.shared()?,
        number: from.u64()?,
        body: read_body(from)?,
        state: read_state(from)?,
        version: from.u64()?,
        priority: from.i32()?,
        attempts: from.u32()?,
        attempts_most: from.option(Reader::u32)?,
        created: from.u64()?,
        ready: from.u64()?,
        error: from.option(Reader::shared)?,
        claim: from.option(|from| {
            Ok(TaskClaim {
                id: from.id()?,
                token: from.u64()?,
                owner: from.shared()?,
                at: from.u64()?,
                lease_ms: read_length(from)?,
                end: read_time(from)?,
                detached: from.bool()?,
            })
        })?,
        lapsed: from.bool()?,
    })
}

fn write_claim(to: &mut Writer, claim: &ClaimNode) {
    to.id(&claim.id);
    to.u64(claim.seq);
    to.text(&claim.pool);
    to.option(claim.key.as_deref(), Writer::text);
    write_party(to, &claim.party);
    to.u64(claim.lease_ms);
    to.u64(claim.asked);
    to.u64(claim.end);
    to.option(claim.grace, |to, (grace_ms, end)| {
        to.u64(grace_ms);
        to.u64(end);
    });
    to.u64(claim.print);
}

fn read_claim(from: &mut Reader<'_>) -> Read<ClaimNode> {
    Ok(ClaimNode {
        id: from.id()?,
        seq: from.u64()?,
        pool: from.shared()?,
        key: from.option(Reader::shared)?,
        party: read_party(from)?,
        lease_ms: read_length(from)?,
        asked: from.u64()?,
        end: read_length(from)?,
        grace: from.option(|from| Ok((read_length(from)?, read_length(from)?)))?,
        print: from.u64()?,
    })
}

fn read_answer(from: &mut Reader<'_>) -> Read<(u64, Answered)> {
    let at = from.u64()?;
    let (id, print, pool) = (from.id()?, from.u64()?, from.shared()?);
    let reply = read_reply(from)?;
    if matches!(&reply, TaskReply::Claimed(claimed) if claimed.waited_ms > at) {
        return Err(CodecError::Bad("answer"));
    }
    Ok((at, Answered { id, print, reply, pool }))
}

/// A length of time, short enough to be added to any time.
fn read_length(from: &mut Reader<'_>) -> Read<u64> {
    from.u64().and_then(|ms| if ms < LATEST { Ok(ms) } else { Err(CodecError::Bad("length")) })
}
