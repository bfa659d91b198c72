//! A task that is made.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use keylatch_table::{Body, Create, TaskAction, TaskReply, Text};

use super::{Tasks, strange};
use crate::ask::{Futures, ms};
use crate::error::TaskError;

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
        match self.tasks.carry_out(TaskAction::Create(self.create)).await? {
            TaskReply::Created(version) => Ok(Some(version)),
            TaskReply::Exists => Ok(None),
            other => Err(strange(&other)),
        }
    }
}

impl IntoFuture for CreateTask {
    type Output = Result<Option<u64>, TaskError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

pub(crate) async fn many<For: 'static>(
    new: impl IntoIterator<Item = CreateTask<For>>,
) -> Result<Vec<Option<u64>>, TaskError> {
    let mut made = Vec::new();
    let mut under_way = VecDeque::new();
    for create in new {
        if under_way.len() == TOGETHER {
            made.push(joined(under_way.pop_front()).await?);
        }
        // In a task of its own: it is submitted although nobody has waited for it yet.
        let runtime = create.tasks.locks.runtime.clone();
        under_way.push_back(runtime.spawn(create.ask()));
    }
    while !under_way.is_empty() {
        made.push(joined(under_way.pop_front()).await?);
    }
    Ok(made)
}

type Created = Result<Option<u64>, TaskError>;

async fn joined(task: Option<tokio::task::JoinHandle<Created>>) -> Created {
    let task = task.expect("the caller has looked");
    task.await.unwrap_or_else(|_| Err(TaskError::Unknown("the runtime has ended".into())))
}
