//! Tasks over RESP: the words of `TASK ..`, and what the answers mean.

use std::time::Duration;

use keylatch_table::{
    Body, Claimed, PoolCounts, TaskAction, TaskCommand, TaskReply, TaskState, TasksQuery, Text,
};
use keylatch_wire::{TaskChange, TaskQuestion, TaskRequest, Value, write_task};
use tokio::sync::{mpsc, oneshot};

use super::super::{Pending, TaskStrategy};
use super::link::Submitted;
use super::read::{denied, leaderless, lease, number, refused, text};
use super::{Failure, Server, answer};
use crate::error::{ListError, TaskError};
use crate::tasks::Task;

/// What a claim was told.
pub(super) enum Outcome {
    Done(Result<TaskReply, TaskError>),
    Waiting,
}

fn encode(request: &TaskRequest) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_task(request, &mut bytes);
    bytes
}

/// A command as it is sent. A claim that waits does not block the connection: its outcome is pushed.
pub(super) fn bytes_of(command: &TaskCommand) -> Vec<u8> {
    let waits = matches!(&command.action, TaskAction::Claim(claim) if claim.wait_ms > 0);
    encode(&TaskRequest::Change(Box::new(TaskChange {
        id: Some(command.id.clone()),
        pool: command.pool.clone(),
        action: command.action.clone(),
        asynchronous: waits,
    })))
}

impl From<Failure> for TaskError {
    fn from(failure: Failure) -> TaskError {
        match failure {
            Failure::NotSent(text) => TaskError::Unreachable(text),
            Failure::Unknown(text) => TaskError::Unknown(text),
            Failure::Denied(text) => TaskError::Denied(text),
        }
    }
}

impl Server {
    fn ask(&self, request: &TaskRequest) -> oneshot::Receiver<Result<Value, Failure>> {
        let (send, receiver) = oneshot::channel();
        drop(self.submit.send(Submitted::Command(encode(request), send)));
        receiver
    }
}

impl TaskStrategy for Server {
    fn task(&self, command: TaskCommand) -> Pending<Result<TaskReply, TaskError>> {
        if matches!(command.action, TaskAction::Claim(_)) {
            let (send, outcome) = oneshot::channel();
            drop(self.submit.send(Submitted::Claim(Box::new(command), send)));
            return Box::pin(async move {
                let ended = TaskError::Unknown("the connection has been given up".into());
                outcome.await.unwrap_or(Err(ended))
            });
        }
        let (send, receiver) = oneshot::channel();
        let bytes = bytes_of(&command);
        drop(self.submit.send(match command.action {
            TaskAction::Cancel => Submitted::CancelClaim(command.id, bytes, send),
            _ => Submitted::Task(bytes, send),
        }));
        Box::pin(async move {
            let value = answer(receiver).await?;
            match outcome(&value) {
                Outcome::Done(reply) => reply,
                Outcome::Waiting => Err(strange(&value)),
            }
        })
    }

    fn hold(&self) -> Option<Box<dyn Send>> {
        // What is submitted before the connection's task runs is one write, and the server takes it as one batch.
        Some(Box::new(()))
    }

    fn tasks(&self, query: TasksQuery) -> Pending<Result<Vec<Task>, ListError>> {
        Box::pin(pages(self.submit.clone(), query))
    }

    fn task_entry(&self, pool: &str, key: &str) -> Pending<Result<Option<Task>, ListError>> {
        let receiver = self.ask(&TaskQuestion::Get(pool.into(), key.into()).into());
        Box::pin(async move {
            match answer(receiver).await? {
                Value::Null => Ok(None),
                value => task_of(&value).map(Some),
            }
        })
    }

    fn pools(&self, pool: Option<&str>) -> Pending<Result<Vec<PoolCounts>, ListError>> {
        let receiver = self.ask(&TaskQuestion::Counts(pool.map(Into::into)).into());
        Box::pin(async move { all(&answer(receiver).await?)?.iter().map(counts_of).collect() })
    }
}

/// The server answers with as much as fits into one answer; what is wanted is asked for from there on.
async fn pages(
    submit: mpsc::UnboundedSender<Submitted>,
    mut query: TasksQuery,
) -> Result<Vec<Task>, ListError> {
    let wanted = query.limit;
    let mut tasks: Vec<Task> = Vec::new();
    loop {
        let (send, receiver) = oneshot::channel();
        drop(
            submit
                .send(Submitted::Command(encode(&TaskQuestion::List(query.clone()).into()), send)),
        );
        let value = answer(receiver).await?;
        let page = all(&value)?;
        for value in page {
            tasks.push(task_of(value)?);
        }
        let enough = wanted > 0 && tasks.len() >= wanted;
        let Some(last) = tasks.last().filter(|_| !page.is_empty() && !enough) else {
            return Ok(tasks);
        };
        query.cursor = last.number;
        query.limit = wanted.saturating_sub(tasks.len());
    }
}

/// The answer to a command, or the push that tells the outcome of a claim.
pub(super) fn outcome(value: &Value) -> Outcome {
    if let Value::Error(text) = value {
        if let Some(text) = leaderless(text) {
            return Outcome::Done(Err(TaskError::Unknown(text)));
        }
        let invalid = || TaskError::Invalid(text.clone());
        return Outcome::Done(Err(denied(text).map_or_else(invalid, TaskError::Denied)));
    }
    if let Value::Integer(count) = value {
        return Outcome::Done(Ok(TaskReply::Cancelled(*count == 1)));
    }
    if text(value, "status") == Some("waiting") {
        return Outcome::Waiting;
    }
    Outcome::Done(reply_of(value).ok_or_else(|| strange(value)))
}

fn reply_of(value: &Value) -> Option<TaskReply> {
    let version = || number(value, "version");
    Some(match text(value, "status")? {
        "created" => TaskReply::Created(version()?),
        "exists" => TaskReply::Exists,
        "claimed" => TaskReply::Claimed(Claimed {
            key: text(value, "key")?.into(),
            body: body_of(value),
            version: version()?,
            token: number(value, "token")?,
            attempts: attempts_of(value)?,
            lease_ms: lease(value),
            waited_ms: number(value, "waited_ms").unwrap_or(0),
        }),
        "nothing" | "timeout" => TaskReply::Nothing,
        "refused" => TaskReply::Refused(state_of(value)?),
        "cancelled" => TaskReply::Cancelled(true),
        "ended" => TaskReply::Ended,
        "updated" => TaskReply::Updated { version: version()?, lease_ms: lease(value) },
        "done" => TaskReply::Finished(version()?),
        "back" => TaskReply::PutBack {
            version: version()?,
            state: state_of(value)?,
            attempts: attempts_of(value)?,
        },
        "deleted" => TaskReply::Deleted,
        "stale" => TaskReply::Stale(version()?),
        "notfound" => TaskReply::NotFound,
        "retried" => TaskReply::Retried(number(value, "count")?),
        _ => return None,
    })
}

fn strange(value: &Value) -> TaskError {
    TaskError::Unknown(format!("not an answer to TASK: {value:?}"))
}

fn state_of(value: &Value) -> Option<TaskState> {
    TaskState::from_word(text(value, "state")?)
}

fn attempts_of(value: &Value) -> Option<u32> {
    number(value, "attempts")?.try_into().ok()
}

fn body_of(value: &Value) -> Option<Body> {
    let Some(Value::Bulk(bytes)) = value.field("body") else { return None };
    let json = number(value, "json") == Some(1);
    Some(Body { json, bytes: bytes.as_slice().into() })
}

fn all(value: &Value) -> Result<&[Value], ListError> {
    match value {
        Value::Error(text) => Err(refused(text.clone())),
        Value::Array(values) => Ok(values),
        other => Err(ListError::Refused(format!("not a list: {other:?}"))),
    }
}

fn task_of(value: &Value) -> Result<Task, ListError> {
    if let Value::Error(text) = value {
        return Err(refused(text.clone()));
    }
    let time = |field| number(value, field).map(Duration::from_millis);
    let optional = |field| text(value, field).map(Text::from);
    let read = || {
        Some(Task {
            number: number(value, "number")?,
            key: text(value, "key")?.into(),
            body: body_of(value),
            state: state_of(value)?,
            version: number(value, "version")?,
            owner: optional("owner"),
            token: number(value, "token")?,
            age: time("created_ms")?,
            claimed: time("claimed_ms"),
            priority: value.field("priority")?.integer()?.try_into().ok()?,
            attempts: attempts_of(value)?,
            due: time("due_ms").unwrap_or_default(),
            lease: lease(value).map(Duration::from_millis),
            error: optional("error"),
        })
    };
    read().ok_or_else(|| ListError::Refused(format!("not a task: {value:?}")))
}

fn counts_of(value: &Value) -> Result<PoolCounts, ListError> {
    let read = || {
        Some(PoolCounts {
            pool: text(value, "pool")?.into(),
            ready: number(value, "ready")?,
            delayed: number(value, "delayed")?,
            claimed: number(value, "claimed")?,
            done: number(value, "done")?,
            failed: number(value, "failed")?,
            waiting: number(value, "waiting")?,
        })
    };
    read().ok_or_else(|| ListError::Refused(format!("not the counts of a pool: {value:?}")))
}
