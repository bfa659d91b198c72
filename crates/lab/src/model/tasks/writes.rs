//! The commands that write a task: each gives it the next number of the token counter as version.

use keylatch_table::{
    Error, Text, What,
    task::{Body, Checked, Create, PutBack, TaskReply, TaskState},
};

use super::Task;
use crate::model::{Bug, Model, request::end_after};

/// As many whole characters of `text` as fit into `room` bytes.
fn beginning(text: &str, room: u64) -> &str {
    let fits = |end: &usize| *end as u64 <= room && text.is_char_boundary(*end);
    &text[..(0..=text.len()).rev().find(fits).unwrap_or(0)]
}

impl Model {
    pub(crate) fn task_bytes(&self) -> u64 {
        self.tasks.all.iter().map(Task::bytes).sum()
    }

    fn task_at(&self, pool: &Text, key: &Text) -> Option<usize> {
        self.tasks.all.iter().position(|task| task.pool == *pool && task.key == *key)
    }

    /// The task at this version, or the answer that says why not.
    fn checked(&self, pool: &Text, checked: &Checked) -> Result<usize, TaskReply> {
        let at = self.task_at(pool, &checked.key).ok_or(TaskReply::NotFound)?;
        let task = &self.tasks.all[at];
        let stale = self.has_bug(Bug::LapsedClaimsAreStale)
            && task.claim.as_ref().is_some_and(|claim| claim.lapsed);
        if task.version != checked.version || stale {
            return Err(TaskReply::Stale(task.version));
        }
        Ok(at)
    }

    pub(crate) fn create(&mut self, pool: &Text, create: &Create) -> TaskReply {
        if self.task_at(pool, &create.key).is_some() {
            return TaskReply::Exists;
        }
        let mut task = Task {
            number: self.tasks.number + 1,
            pool: pool.clone(),
            key: create.key.clone(),
            body: create.body.clone(),
            state: TaskState::Free,
            version: 0,
            created: self.now,
            priority: create.priority,
            attempts: 0,
            most_attempts: create.attempts,
            ready: self.now.saturating_add(create.delay_ms),
            error: None,
            claim: None,
        };
        if self.task_bytes() + task.bytes() > self.settings.task_bytes {
            return TaskReply::Error(Error::TooMany(What::TaskBytes, self.settings.task_bytes));
        }
        self.tasks.number += 1;
        task.version = self.next_token();
        let version = task.version;
        self.tasks.all.push(task);
        TaskReply::Created(version)
    }

    pub(crate) fn update(
        &mut self,
        pool: &Text,
        checked: &Checked,
        body: Option<&Body>,
        lease_ms: Option<u64>,
    ) -> TaskReply {
        let at = match self.checked(pool, checked) {
            Ok(at) => at,
            Err(reply) => return reply,
        };
        let mut task = self.tasks.all[at].clone();
        let before = task.bytes();
        if let Some(body) = body {
            task.body = Some(body.clone());
        }
        // What does not grow is let through: a bound that was lowered must not stop renewals.
        let grows = task.bytes() > before;
        if grows && self.task_bytes() - before + task.bytes() > self.settings.task_bytes {
            return TaskReply::Error(Error::TooMany(What::TaskBytes, self.settings.task_bytes));
        }
        task.version = self.next_token();
        let lapsed = task.claim.as_ref().is_some_and(|claim| claim.lapsed);
        if task.state == TaskState::Claimed || (task.state == TaskState::Free && lapsed) {
            task.state = TaskState::Claimed;
            let claim = task.claim.as_mut().expect("claimed by someone");
            claim.until = end_after(self.now, lease_ms.unwrap_or(claim.lease_ms));
            claim.unconfirmed = false;
            claim.lapsed = false;
        }
        let (version, left) = (task.version, task.left(self.now));
        self.tasks.all[at] = task;
        TaskReply::Updated { version, lease_ms: left }
    }

    pub(crate) fn finish(&mut self, pool: &Text, checked: &Checked) -> TaskReply {
        let at = match self.checked(pool, checked) {
            Ok(at) => at,
            Err(reply) => return reply,
        };
        let version = self.next_token();
        let task = &mut self.tasks.all[at];
        task.state = TaskState::Done;
        task.version = version;
        TaskReply::Finished(version)
    }

    pub(crate) fn put_back(
        &mut self,
        pool: &Text,
        checked: &Checked,
        put_back: &PutBack,
    ) -> TaskReply {
        let at = match self.checked(pool, checked) {
            Ok(at) => at,
            Err(reply) => return reply,
        };
        let mut task = self.tasks.all[at].clone();
        if matches!(task.state, TaskState::Done | TaskState::Failed) {
            return TaskReply::Refused(task.state);
        }
        if let Some(error) = &put_back.error {
            let others = self.task_bytes() - task.bytes();
            task.error = None;
            let room = self.settings.task_bytes.saturating_sub(others + task.bytes());
            task.error = Some(beginning(error, room).into());
        }
        task.attempts += 1;
        let setting = self.settings.task_attempts;
        let most = task.most_attempts.map_or(setting, u64::from);
        let failed = most > 0 && u64::from(task.attempts) >= most;
        task.state = if failed { TaskState::Failed } else { TaskState::Free };
        task.ready = self.now.saturating_add(put_back.delay_ms);
        task.version = self.next_token();
        if let Some(claim) = &mut task.claim {
            claim.lapsed = false;
        }
        let (version, state, attempts) = (task.version, task.state, task.attempts);
        self.tasks.all[at] = task;
        TaskReply::PutBack { version, state, attempts }
    }

    pub(crate) fn delete(&mut self, pool: &Text, key: &Text, version: Option<u64>) -> TaskReply {
        let Some(at) = self.task_at(pool, key) else { return TaskReply::NotFound };
        let present = self.tasks.all[at].version;
        if version.is_some_and(|version| version != present) {
            return TaskReply::Stale(present);
        }
        self.tasks.all.remove(at);
        TaskReply::Deleted
    }

    pub(crate) fn retry(&mut self, pool: &Text, key: Option<&Text>) -> TaskReply {
        let mut retried = 0;
        for at in 0..self.tasks.all.len() {
            let task = &self.tasks.all[at];
            let meant = task.pool == *pool && key.is_none_or(|key| task.key == *key);
            if !meant || task.state != TaskState::Failed {
                continue;
            }
            let version = self.next_token();
            let task = &mut self.tasks.all[at];
            task.state = TaskState::Free;
            task.attempts = 0;
            task.ready = self.now;
            task.version = version;
            retried += 1;
        }
        TaskReply::Retried(retried)
    }
}
