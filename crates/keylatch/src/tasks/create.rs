//! A task that is made.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{Body, Create, TaskAction, TaskCommand, TaskReply, Text};

use super::{Tasks, strange};
use crate::ask::{Futures, ms, new_id};
use crate::error::TaskError;
use crate::locks::Inner;
use crate::strategy::Pending;

/// So many are on their way at once: the strategy carries them out together.
const TOGETHER: usize = 256;

/// A new task, before it is made. Awaiting it makes it and gives its version, or `None` if a task with
/// this key exists already, which then stays as it is; in a thread, `send()` does that.
#[must_use = "nothing is made before it is awaited (or, in a thread, sent)"]
pub struct CreateTask<For = Futures> {
    tasks: Tasks<For>,
    create: Create,
}

impl<For> CreateTask<For> {
    pub(super) fn new(tasks: Tasks<For>, key: Text) -> Self {
        let create = Create { key, body: None, priority: 0, delay_ms: 0, attempts: None };
        CreateTask { tasks, create }
    }

    /// What is to be done: bytes, up to 64 KiB.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.create.body = Some(Body { json: false, bytes: body.into().into() });
        self
    }

    /// What is to be done: text that is JSON, which is shown as such. A lock server refuses text that is not.
    pub fn json(mut self, body: impl Into<String>) -> Self {
        self.create.body = Some(Body { json: true, bytes: body.into().into_bytes().into() });
        self
    }

    /// Higher is claimed first; without it, 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.create.priority = priority;
        self
    }

    /// Not claimed before this has passed.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.create.delay_ms = ms(delay);
        self
    }

    /// How often it may be put back until it is failed; 0 for ever, without it 25.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.create.attempts = Some(attempts);
        self
    }

    pub(crate) async fn ask(self) -> Result<Option<u64>, TaskError> {
        created(self.tasks.carry_out(TaskAction::Create(self.create)).await?)
    }
}

impl IntoFuture for CreateTask {
    type Output = Result<Option<u64>, TaskError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

/// Submitted in their order, and so they are numbered in it where commands stand in one line.
pub(crate) async fn many<For>(
    new: impl IntoIterator<Item = CreateTask<For>>,
) -> Result<Vec<Option<u64>>, TaskError> {
    let mut made = Vec::new();
    let mut under_way = VecDeque::new();
    for create in new {
        if under_way.len() == TOGETHER
            && let Some(first) = under_way.pop_front()
        {
            made.push(finish(first).await?);
        }
        let locks = Arc::clone(&create.tasks.locks);
        let command = create.tasks.command(new_id(), TaskAction::Create(create.create));
        let pending = locks.submit_task(|tasks| tasks.task(command.clone()));
        under_way.push_back(UnderWay { locks, command, pending });
    }
    for one in under_way {
        made.push(finish(one).await?);
    }
    Ok(made)
}

/// One of many.
struct UnderWay {
    locks: Arc<Inner>,
    command: TaskCommand,
    pending: Pending<Result<TaskReply, TaskError>>,
}

async fn finish(one: UnderWay) -> Result<Option<u64>, TaskError> {
    created(match one.pending.await {
        Err(TaskError::Unknown(_)) => one.locks.carry_out(&one.command).await?,
        reply => reply?,
    })
}

fn created(reply: TaskReply) -> Result<Option<u64>, TaskError> {
    match reply {
        TaskReply::Created(version) => Ok(Some(version)),
        TaskReply::Exists => Ok(None),
        other => Err(strange(&other)),
    }
}
