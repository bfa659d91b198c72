//! Tasks over RESP: `TASK ..` as commands and questions of the table, and its answers as maps.

use keylatch_table::{
    Answer as Found, Body, Claimed, Command, Create, PoolCounts, Query, RequestId, TaskAction,
    TaskCommand, TaskEntry, TaskEvent, TaskReply,
};
use keylatch_wire::{TaskChange, TaskQuestion, TaskRequest, Writer};
use serde_json::{Value, json};

use super::Changes;
use super::answer::{Answer, lease, number, request_id, status, text, write_error};
use crate::listener::{Answer as AnyAnswer, Ask, Fresh};
use crate::turn::Context;

/// Tasks of one list at most.
const PAGE: usize = 10_000;
/// Bytes of the bodies of one list, unless it has only one: with their frames they must fit into what
/// may wait for a client that reads slowly.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// What is asked, or why that cannot be.
pub(super) fn ask(
    request: TaskRequest,
    context: &mut Context<'_>,
    changes: &mut Changes,
) -> Result<Ask, String> {
    let (question, stale) = match request {
        TaskRequest::Change(change) => return ask_change(*change, context, changes),
        TaskRequest::Question { question, stale } => (question, stale),
    };
    let (query, answer) = match question {
        TaskQuestion::Get(pool, key) => (Query::Task(pool, key), Answer::TaskEntry),
        TaskQuestion::List(mut query) => {
            query.limit = if query.limit == 0 { PAGE } else { query.limit.min(PAGE) };
            (Query::Tasks(query), Answer::Tasks)
        }
        TaskQuestion::Counts(pool) => (Query::Pools, Answer::Counts(pool)),
    };
    Ok(Ask::Question(vec![query], AnyAnswer::Resp(answer), Fresh::or_stale(stale)))
}

fn ask_change(
    change: TaskChange,
    context: &mut Context<'_>,
    changes: &mut Changes,
) -> Result<Ask, String> {
    let TaskChange { id, pool, mut action, asynchronous } = change;
    let id = id.unwrap_or_else(|| context.new_id());
    let answer = match &mut action {
        TaskAction::Claim(claim) => {
            changes.may_block = claim.wait_ms > 0 && !asynchronous;
            match claim.party.explicit {
                true => claim.party.principal = context.principal(),
                false => claim.party = context.party(),
            }
            Answer::Claim { id: id.clone(), asynchronous }
        }
        TaskAction::Create(Create { body, .. }) => {
            check_json(body.as_ref())?;
            Answer::Create
        }
        TaskAction::Update(_, body, _) => {
            check_json(body.as_ref())?;
            Answer::Task
        }
        _ => Answer::Task,
    };
    let command = TaskCommand { id, pool, action };
    Ok(Ask::Change(Command::Task(command), AnyAnswer::Resp(answer)))
}

fn check_json(body: Option<&Body>) -> Result<(), String> {
    let Some(body) = body.filter(|body| body.json) else { return Ok(()) };
    json_error(&body.bytes).map_or(Ok(()), Err)
}

/// Why this is not JSON that everyone can read.
pub(crate) fn json_error(bytes: &[u8]) -> Option<String> {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(value) if depth(&value) <= DEEPEST => None,
        Ok(_) => Some(format!("the body is nested more than {DEEPEST} deep")),
        Err(error) => Some(format!("the body is not JSON: {error}")),
    }
}

/// Values inside values: many readers stop at 128, and a list is around it.
const DEEPEST: usize = 100;

fn depth(value: &Value) -> usize {
    let inside = match value {
        Value::Array(values) => values.iter().map(depth).max(),
        Value::Object(values) => values.values().map(depth).max(),
        _ => return 0,
    };
    1 + inside.unwrap_or(0)
}

/// As many tasks as one answer has room for.
pub(crate) fn page(tasks: &[TaskEntry]) -> &[TaskEntry] {
    let mut bytes = 0;
    let fits = tasks.iter().take_while(|task| {
        bytes += task.body.as_ref().map_or(0, |body| body.bytes.len());
        bytes <= PAGE_BYTES
    });
    let count = fits.count().max(1).min(tasks.len());
    &tasks[..count]
}

/// The answer to a claim, at once or later.
pub(super) fn write_claim(id: &RequestId, reply: &TaskReply, writer: &mut Writer<'_>) {
    match reply {
        TaskReply::Claimed(claimed) => write_claimed(id, claimed, writer),
        TaskReply::Nothing => write_word("nothing", id, writer),
        TaskReply::Waiting => write_word("waiting", id, writer),
        TaskReply::Ended => write_word("ended", id, writer),
        TaskReply::Refused(state) => {
            writer.map(3);
            status("refused", writer);
            request_id(id, writer);
            text("state", state.word(), writer);
        }
        other => write_reply(other, writer),
    }
}

fn write_word(word: &str, id: &RequestId, writer: &mut Writer<'_>) {
    writer.map(2);
    status(word, writer);
    request_id(id, writer);
}

fn write_claimed(id: &RequestId, claimed: &Claimed, writer: &mut Writer<'_>) {
    writer.map(8 + if claimed.body.is_some() { 2 } else { 0 });
    status("claimed", writer);
    request_id(id, writer);
    text("key", &claimed.key, writer);
    number("version", claimed.version, writer);
    number("token", claimed.token, writer);
    number("attempts", u64::from(claimed.attempts), writer);
    lease("lease_ms", claimed.lease_ms, writer);
    number("waited_ms", claimed.waited_ms, writer);
    if let Some(body) = &claimed.body {
        write_body(Some(body), writer);
    }
}

/// Two pairs.
fn write_body(body: Option<&Body>, writer: &mut Writer<'_>) {
    writer.bulk(b"body");
    match body {
        Some(body) => writer.bulk(&body.bytes),
        None => writer.null(),
    }
    number("json", u64::from(body.is_some_and(|body| body.json)), writer);
}

/// The answer to any other change.
pub(super) fn write_reply(reply: &TaskReply, writer: &mut Writer<'_>) {
    let versioned = |word: &str, version: u64, writer: &mut Writer<'_>| {
        writer.map(2);
        status(word, writer);
        number("version", version, writer);
    };
    let plain = |word: &str, writer: &mut Writer<'_>| {
        writer.map(1);
        status(word, writer);
    };
    match reply {
        TaskReply::Created(version) => versioned("created", *version, writer),
        TaskReply::Exists => plain("exists", writer),
        TaskReply::Updated { version, lease_ms } => {
            writer.map(3);
            status("updated", writer);
            number("version", *version, writer);
            lease("lease_ms", *lease_ms, writer);
        }
        TaskReply::Finished(version) => versioned("done", *version, writer),
        TaskReply::PutBack { version, state, attempts } => {
            writer.map(4);
            status("back", writer);
            number("version", *version, writer);
            text("state", state.word(), writer);
            number("attempts", u64::from(*attempts), writer);
        }
        TaskReply::Deleted => plain("deleted", writer),
        TaskReply::Stale(version) => versioned("stale", *version, writer),
        TaskReply::NotFound => plain("notfound", writer),
        TaskReply::Refused(state) => {
            writer.map(2);
            status("refused", writer);
            text("state", state.word(), writer);
        }
        TaskReply::Retried(count) => {
            writer.map(2);
            status("retried", writer);
            number("count", *count, writer);
        }
        TaskReply::Cancelled(was) => writer.integer(i64::from(*was)),
        TaskReply::Error(error) => write_error(*error, writer),
        TaskReply::Claimed(_) | TaskReply::Nothing | TaskReply::Waiting | TaskReply::Ended => {
            unreachable!("only claims are answered so: {reply:?}")
        }
    }
}

/// What an event is called in a push.
pub(super) fn word(event: &TaskEvent) -> &'static str {
    match event {
        TaskEvent::Claimed(..) => "claimed",
        TaskEvent::TimedOut(..) => "timeout",
        TaskEvent::Refused(..) => "refused",
        TaskEvent::Withdrawn(..) => "cancelled",
        TaskEvent::Lapsed { .. } => "lapsed",
    }
}

/// The outcome of a claim that waited, as the answer to it.
pub(super) fn write_outcome_of(event: &TaskEvent, writer: &mut Writer<'_>) {
    match event {
        TaskEvent::Claimed(id, _, claimed) => write_claimed(id, claimed, writer),
        TaskEvent::Refused(id, _, state) => {
            write_claim(id, &TaskReply::Refused(*state), writer);
        }
        TaskEvent::TimedOut(id, _) | TaskEvent::Withdrawn(id, _) => {
            write_word(word(event), id, writer);
        }
        TaskEvent::Lapsed { .. } => unreachable!("not the outcome of a wait"),
    }
}

/// An event as subscribers get it: without the body, which is as long as it is.
pub(super) fn event_as_json(event: &TaskEvent) -> (&'static str, Value) {
    let ended = |kind: &'static str, id: &RequestId, pool: &str| {
        (kind, json!({"event": kind, "id": id.to_string(), "pool": pool}))
    };
    match event {
        TaskEvent::Claimed(id, pool, claimed) => (
            "claimed",
            json!({
                "event": "claimed", "id": id.to_string(), "pool": &**pool, "key": &*claimed.key,
                "token": claimed.token, "attempts": claimed.attempts,
                "lease_ms": claimed.lease_ms, "waited_ms": claimed.waited_ms,
            }),
        ),
        TaskEvent::TimedOut(id, pool) => ended("claim_timeout", id, pool),
        TaskEvent::Withdrawn(id, pool) => ended("claim_cancelled", id, pool),
        TaskEvent::Refused(id, pool, state) => {
            let (kind, mut value) = ended("claim_refused", id, pool);
            value["state"] = state.word().into();
            (kind, value)
        }
        TaskEvent::Lapsed { id, pool, key, token } => {
            let (kind, mut value) = ended("lapsed", id, pool);
            (value["key"], value["token"]) = ((&**key).into(), (*token).into());
            (kind, value)
        }
    }
}

/// The answer to questions.
pub(super) fn write_found(answer: &Answer, found: &[Found], now: u64, writer: &mut Writer<'_>) {
    match (answer, found) {
        (Answer::TaskEntry, [Found::Task(None)]) => writer.null(),
        (Answer::TaskEntry, [Found::Task(Some(task))]) => write_entry(task, now, writer),
        (Answer::Tasks, [Found::Tasks(tasks)]) => {
            let tasks = page(tasks);
            writer.array(tasks.len());
            for task in tasks {
                write_entry(task, now, writer);
            }
        }
        (Answer::Counts(wanted), [Found::Pools(pools)]) => {
            let wanted =
                |counts: &&PoolCounts| wanted.as_ref().is_none_or(|pool| *pool == counts.pool);
            writer.array(pools.iter().filter(wanted).count());
            for counts in pools.iter().filter(wanted) {
                write_counts(counts, writer);
            }
        }
        _ => unreachable!("not a question about tasks: {answer:?}"),
    }
}

fn write_entry(task: &TaskEntry, now: u64, writer: &mut Writer<'_>) {
    let optional = |name: &str, value: Option<&str>, writer: &mut Writer<'_>| {
        writer.bulk(name.as_bytes());
        match value {
            Some(value) => writer.bulk(value.as_bytes()),
            None => writer.null(),
        }
    };
    writer.map(15);
    number("number", task.number, writer);
    text("key", &task.key, writer);
    text("state", task.state.word(), writer);
    number("version", task.version, writer);
    optional("owner", task.owner.as_deref(), writer);
    number("token", task.token, writer);
    number("created_ms", now.saturating_sub(task.created), writer);
    lease("claimed_ms", task.claimed.map(|at| now.saturating_sub(at)), writer);
    writer.bulk(b"priority");
    writer.integer(i64::from(task.priority));
    number("attempts", u64::from(task.attempts), writer);
    number("due_ms", task.due.saturating_sub(now), writer);
    lease("lease_ms", task.lease_ms, writer);
    optional("error", task.error.as_deref(), writer);
    write_body(task.body.as_ref(), writer);
}

fn write_counts(counts: &PoolCounts, writer: &mut Writer<'_>) {
    writer.map(7);
    text("pool", &counts.pool, writer);
    number("ready", counts.ready, writer);
    number("delayed", counts.delayed, writer);
    number("claimed", counts.claimed, writer);
    number("done", counts.done, writer);
    number("failed", counts.failed, writer);
    number("waiting", counts.waiting, writer);
}
