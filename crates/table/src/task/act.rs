//! What can be done to tasks. Update, finish and put back check only the version, so they also
//! succeed after the lease ran out, as long as nobody claimed the task since.

use super::store::Task;
use super::{Answered, Body, Checked, Create, PutBack, TaskAction, TaskCommand, TaskEvent};
use super::{TaskReply, TaskState};
use crate::board::deadlines::NEVER;
use crate::error::{Error, What};
use crate::lock::{long, long_ms};
use crate::{ClaimOutcome, Event, RequestId, Table, Text};

impl Table {
    pub(crate) fn task(&mut self, command: TaskCommand, events: &mut Vec<Event>) -> TaskReply {
        if command.action == TaskAction::Cancel {
            return self.cancel_claim(&command.id, events);
        }
        if let Err(error) = self.admit_id(&command.id) {
            return TaskReply::Error(error);
        }
        let print = command.print();
        if let Some(answered) = self.tasks.answered(&command.id) {
            if answered.print != print {
                return TaskReply::Error(Error::IdReused);
            }
            return self.answer_again(&command.id);
        }
        if let Some(at) = self.tasks.claim_of(&command.id) {
            return match command.action {
                TaskAction::Claim(claim) if self.tasks.claim(at).print == print => {
                    self.repeat_claim(at, &claim, events)
                }
                _ => TaskReply::Error(Error::IdReused),
            };
        }
        if let Err(error) = self.admit_task(&command) {
            if let TaskAction::Claim(_) = command.action {
                self.tally.count_claim(ClaimOutcome::Error);
            }
            return TaskReply::Error(error);
        }
        let TaskCommand { id, pool, action } = command;
        let reply = match action {
            TaskAction::Create(create) => self.create(&pool, create),
            TaskAction::Claim(claim) => return self.claim(id, &pool, claim, print),
            TaskAction::Update(checked, body, lease_ms) => {
                self.update(&pool, &checked, body, lease_ms)
            }
            TaskAction::Finish(checked) => self.finish(&pool, &checked, events),
            TaskAction::PutBack(checked, back) => self.put_back(&pool, &checked, back, events),
            TaskAction::Delete(key, version) => self.delete(&pool, &key, version),
            TaskAction::Retry(key) => self.retry(&pool, key.as_deref()),
            TaskAction::Cancel => unreachable!("answered above"),
        };
        if !matches!(reply, TaskReply::Error(_)) {
            self.remember_answer(id, print, pool, reply.clone());
        }
        reply
    }

    pub(super) fn remember_answer(
        &mut self,
        id: RequestId,
        print: u64,
        pool: Text,
        reply: TaskReply,
    ) {
        self.tasks.remember(self.now, Answered { id, print, reply, pool });
        self.tasks.forget(self.now, self.settings.ended_ms, self.settings.ended);
    }

    fn create(&mut self, pool: &Text, create: Create) -> TaskReply {
        if self.tasks.find(pool, &create.key).is_some() {
            return TaskReply::Exists;
        }
        let task = Task {
            pool: pool.clone(),
            key: create.key,
            number: self.tasks.number + 1,
            body: create.body,
            state: TaskState::Free,
            version: self.token + 1,
            priority: create.priority,
            attempts: 0,
            attempts_most: create.attempts,
            created: self.now,
            ready: self.now + create.delay_ms,
            error: None,
            claim: None,
            lapsed: false,
        };
        if let Err(error) = self.admit_bytes(0, task.bytes()) {
            return TaskReply::Error(error);
        }
        self.tasks.number += 1;
        let version = self.next_token();
        self.tasks.insert(task, self.now);
        TaskReply::Created(version)
    }

    fn update(
        &mut self,
        pool: &str,
        checked: &Checked,
        body: Option<Body>,
        lease_ms: Option<u64>,
    ) -> TaskReply {
        let at = match self.checked(pool, checked) {
            Ok(at) => at,
            Err(reply) => return reply,
        };
        let task = self.tasks.task(at);
        if let Some(body) = &body {
            let old = task.body.as_ref().map_or(0, |body| body.bytes.len());
            if let Err(error) = self.admit_bytes(old as u64, body.bytes.len() as u64) {
                return TaskReply::Error(error);
            }
        }
        let renew = task.state == TaskState::Claimed || task.lapsed;
        let version = self.next_token();
        let now = self.now;
        let mut left = None;
        self.tasks.change(at, now, |task| {
            task.version = version;
            task.body = body.or_else(|| task.body.take());
            if let Some(claim) = task.claim.as_mut().filter(|_| renew) {
                let lease_ms = lease_ms.unwrap_or(claim.lease_ms);
                claim.end = if lease_ms == 0 { NEVER } else { now + lease_ms };
                claim.detached = false;
                left = (lease_ms != 0).then_some(lease_ms);
                (task.state, task.lapsed) = (TaskState::Claimed, false);
            }
        });
        TaskReply::Updated { version, lease_ms: left }
    }

    fn finish(&mut self, pool: &Text, checked: &Checked, events: &mut Vec<Event>) -> TaskReply {
        let at = match self.checked(pool, checked) {
            Ok(at) => at,
            Err(reply) => return reply,
        };
        let version = self.next_token();
        self.tasks.change(at, self.now, |task| {
            (task.state, task.version, task.lapsed) = (TaskState::Done, version, false);
        });
        self.refuse_claims(pool, &checked.key, TaskState::Done, events);
        TaskReply::Finished(version)
    }

    fn put_back(
        &mut self,
        pool: &Text,
        checked: &Checked,
        back: PutBack,
        events: &mut Vec<Event>,
    ) -> TaskReply {
        let at = match self.checked(pool, checked) {
            Ok(at) => at,
            Err(reply) => return reply,
        };
        let task = self.tasks.task(at);
        if matches!(task.state, TaskState::Done | TaskState::Failed) {
            return TaskReply::Refused(task.state);
        }
        let most = task.attempts_most.map_or(self.settings.task_attempts, u64::from);
        let attempts = task.attempts.saturating_add(1);
        let state = match most > 0 && u64::from(attempts) >= most {
            true => TaskState::Failed,
            false => TaskState::Free,
        };
        let kept = task.error.as_ref().map_or(0, |error| error.len() as u64);
        let room = self.settings.task_bytes.saturating_sub(self.tasks.bytes() - kept);
        let error = back.error.map(|error| shorten(&error, room));
        let (version, now) = (self.next_token(), self.now);
        self.tasks.change(at, now, |task| {
            (task.state, task.version, task.lapsed) = (state, version, false);
            task.attempts = attempts;
            task.ready = now + back.delay_ms;
            task.error = error.or_else(|| task.error.take());
        });
        if state == TaskState::Failed {
            self.refuse_claims(pool, &checked.key, state, events);
        }
        TaskReply::PutBack { version, state, attempts }
    }

    fn delete(&mut self, pool: &str, key: &Text, version: Option<u64>) -> TaskReply {
        let Some(at) = self.tasks.find(pool, key) else { return TaskReply::NotFound };
        let present = self.tasks.task(at).version;
        if version.is_some_and(|version| version != present) {
            return TaskReply::Stale(present);
        }
        self.tasks.remove(at, self.now);
        TaskReply::Deleted
    }

    fn retry(&mut self, pool: &str, key: Option<&str>) -> TaskReply {
        let Some(node) = self.tasks.pool(pool) else { return TaskReply::Retried(0) };
        let failed = node.failed.iter().map(|number| node.tasks[number]);
        let wanted = |at: &u32| key.is_none_or(|key| *self.tasks.task(*at).key == *key);
        let failed: Vec<u32> = failed.filter(wanted).collect();
        let now = self.now;
        for at in &failed {
            let version = self.next_token();
            self.tasks.change(*at, now, |task| {
                (task.state, task.version) = (TaskState::Free, version);
                (task.attempts, task.ready) = (0, now);
            });
        }
        TaskReply::Retried(failed.len() as u64)
    }

    /// The task at that version, or what to answer instead.
    fn checked(&self, pool: &str, checked: &Checked) -> Result<u32, TaskReply> {
        let at = self.tasks.find(pool, &checked.key).ok_or(TaskReply::NotFound)?;
        match self.tasks.task(at).version {
            version if version == checked.version => Ok(at),
            version => Err(TaskReply::Stale(version)),
        }
    }

    fn refuse_claims(&mut self, pool: &Text, key: &str, state: TaskState, events: &mut Vec<Event>) {
        let named = self.tasks.pool(pool).and_then(|pool| pool.named.get(key));
        let waiting: Vec<u32> =
            named.into_iter().flat_map(|named| named.values().copied()).collect();
        for at in waiting {
            let claim = self.tasks.dequeue(at);
            self.tally.count_claim(ClaimOutcome::Refused);
            events.push(Event::Task(TaskEvent::Refused(claim.id, pool.clone(), state)));
        }
    }

    pub(super) fn admit_task(&self, command: &TaskCommand) -> Result<(), Error> {
        let settings = &self.settings;
        let name = |what, text: &str| match text.len() {
            0 => Err(Error::Empty(what)),
            length => long(what, length, settings.task_key_bytes),
        };
        let body = |body: &Option<Body>| {
            let length = body.as_ref().map_or(0, |body| body.bytes.len());
            long(What::TaskBody, length, settings.task_body_bytes)
        };
        name(What::Pool, &command.pool)?;
        match &command.action {
            TaskAction::Create(create) => {
                name(What::TaskKey, &create.key)?;
                body(&create.body)?;
                long_ms(What::TaskDelay, create.delay_ms, settings.lease_ms)
            }
            TaskAction::Claim(claim) => {
                if let Some(key) = &claim.key {
                    name(What::TaskKey, key)?;
                }
                self.admit_party(&claim.party)?;
                long_ms(What::Wait, claim.wait_ms, settings.wait_ms)?;
                long_ms(What::Lease, claim.lease_ms, settings.lease_ms)
            }
            TaskAction::Update(checked, content, lease_ms) => {
                name(What::TaskKey, &checked.key)?;
                body(content)?;
                long_ms(What::Lease, lease_ms.unwrap_or(0), settings.lease_ms)
            }
            TaskAction::PutBack(checked, back) => {
                name(What::TaskKey, &checked.key)?;
                let error = back.error.as_ref().map_or(0, |error| error.len());
                long(What::TaskError, error, settings.meta_bytes)?;
                long_ms(What::TaskDelay, back.delay_ms, settings.lease_ms)
            }
            TaskAction::Finish(Checked { key, .. })
            | TaskAction::Delete(key, _)
            | TaskAction::Retry(Some(key)) => name(What::TaskKey, key),
            TaskAction::Retry(None) | TaskAction::Cancel => Ok(()),
        }
    }

    /// Whether all tasks together may grow by `new - old` bytes.
    fn admit_bytes(&self, old: u64, new: u64) -> Result<(), Error> {
        let most = self.settings.task_bytes;
        if new > old && self.tasks.bytes() - old + new > most {
            return Err(Error::TooMany(What::TaskBytes, most));
        }
        Ok(())
    }
}

/// As much of a text as `room` bytes can hold.
fn shorten(text: &Text, room: u64) -> Text {
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    if text.len() <= room {
        return text.clone();
    }
    let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].into()
}
