//! Tasks over HTTP: what the table answered. A version is an `ETag`, and in the body as well.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use keylatch_table::{
    Answer as Found, Body, Claimed, PoolCounts, Reply, RequestId, TaskEntry, TaskEvent, TaskReply,
    TaskState, Text,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::refused;
use super::problem::Problem;
use super::{Answer, JSON, Kind, Meta, write, write_problem};
use crate::listener::{Answer as AnyAnswer, resp};

/// What a segment of a path need not have written otherwise.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// The body of a task in an answer: as JSON if it is that, else as base64.
#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

impl Content<'_> {
    fn of(body: Option<&Body>) -> Content<'_> {
        let Some(Body { json, bytes }) = body else {
            return Content { body: None, body_base64: None };
        };
        match serde_json::from_slice(bytes) {
            Ok(raw) if *json => Content { body: Some(raw), body_base64: None },
            _ => Content { body: None, body_base64: Some(BASE64_STANDARD.encode(bytes)) },
        }
    }
}

#[derive(Serialize)]
struct ClaimedJson<'a> {
    status: &'static str,
    id: String,
    key: &'a str,
    version: u64,
    token: u64,
    attempts: u32,
    lease_ms: Option<u64>,
    waited_ms: u64,
    #[serde(flatten)]
    content: Content<'a>,
}

/// Times are how long ago something was, or in how long it will be.
#[derive(Serialize)]
struct TaskJson<'a> {
    number: u64,
    key: &'a str,
    state: &'static str,
    version: u64,
    owner: Option<&'a str>,
    token: u64,
    created_ms: u64,
    claimed_ms: Option<u64>,
    priority: i32,
    attempts: u32,
    due_ms: u64,
    lease_ms: Option<u64>,
    error: Option<&'a str>,
    #[serde(flatten)]
    content: Content<'a>,
}

impl TaskJson<'_> {
    fn of(task: &TaskEntry, now: u64) -> TaskJson<'_> {
        TaskJson {
            number: task.number,
            key: &task.key,
            state: task.state.word(),
            version: task.version,
            owner: task.owner.as_deref(),
            token: task.token,
            created_ms: now.saturating_sub(task.created),
            claimed_ms: task.claimed.map(|at| now.saturating_sub(at)),
            priority: task.priority,
            attempts: task.attempts,
            due_ms: task.due.saturating_sub(now),
            lease_ms: task.lease_ms,
            error: task.error.as_deref(),
            content: Content::of(task.body.as_ref()),
        }
    }
}

fn json_of(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers, text and what was JSON before")
}

fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

/// The answer to a change.
pub(super) fn write_answer(answer: &Answer, reply: &TaskReply, out: &mut Vec<u8>) {
    let meta = answer.meta;
    let done = |body: Value, version: Option<u64>, out: &mut Vec<u8>| {
        let etag = version.map(etag);
        let header = etag.as_deref().map(|etag| ("ETag", etag));
        write(200, JSON, header.as_slice(), body.to_string().as_bytes(), meta, out);
    };
    match (&answer.kind, reply) {
        (Kind::Claim(id), reply) => claim(id, reply, meta, out),
        (Kind::Create { pool, key }, TaskReply::Created(version)) => {
            let body = json!({"status": "created", "key": &**key, "version": version}).to_string();
            let place = location(pool, key);
            let headers = [("ETag", etag(*version)), ("Location", place)];
            let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
            write(201, JSON, &headers, body.as_bytes(), meta, out);
        }
        (_, TaskReply::Exists) => {
            let text = "there is a task with this key";
            write_problem(&Problem::new(409, "exists", text.into()), meta, out);
        }
        (_, TaskReply::Updated { version, lease_ms }) => {
            let body = json!({"status": "updated", "version": version, "lease_ms": lease_ms});
            done(body, Some(*version), out);
        }
        (_, TaskReply::Finished(version)) => {
            done(json!({"status": "done", "version": version}), Some(*version), out);
        }
        (_, TaskReply::PutBack { version, state, attempts }) => {
            let body = json!({
                "status": "back", "version": version, "state": state.word(), "attempts": attempts,
            });
            done(body, Some(*version), out);
        }
        (_, TaskReply::Deleted) => write(204, JSON, &[], b"", meta, out),
        (_, TaskReply::Stale(version)) => write_problem(&stale(*version), meta, out),
        (_, TaskReply::NotFound) => write_problem(&not_found(), meta, out),
        (_, TaskReply::Refused(state)) => write_problem(&not_free(None, *state), meta, out),
        (_, TaskReply::Retried(count)) => {
            done(json!({"status": "retried", "count": count}), None, out);
        }
        (_, TaskReply::Error(error)) => write_problem(&refused(*error), meta, out),
        (kind, reply) => unreachable!("{kind:?} is not answered so: {reply:?}"),
    }
}

fn location(pool: &str, key: &str) -> String {
    let encode = |text| utf8_percent_encode(text, SEGMENT).to_string();
    // A segment of dots alone means something else to whoever follows it.
    let key = match key {
        "." | ".." => key.replace('.', "%2E"),
        key => encode(key),
    };
    format!("/v1/tasks/{}/{key}", encode(pool))
}

fn not_found() -> Problem {
    Problem::new(404, "no_such_task", "there is no task with this key".into())
}

fn stale(version: u64) -> Problem {
    let text = "somebody has written this task since; nothing has changed";
    Problem::new(412, "stale", text.into()).with("version", version.into())
}

fn not_free(id: Option<&RequestId>, state: TaskState) -> Problem {
    let text = format!("the task is {}", state.word());
    let problem = Problem::new(409, "refused", text).with("state", state.word().into());
    match id {
        Some(id) => problem.with("id", id.to_string().into()),
        None => problem,
    }
}

/// The answer to a claim. That there is nothing is not a failure: it has no content.
fn claim(id: &RequestId, reply: &TaskReply, meta: Meta, out: &mut Vec<u8>) {
    let problem = match reply {
        TaskReply::Claimed(claimed) => return write_claimed(id, claimed, meta, out),
        TaskReply::Nothing => return write(204, JSON, &[], b"", meta, out),
        TaskReply::Refused(state) => not_free(Some(id), *state),
        TaskReply::Ended => {
            let text = "what was claimed under this id is not held any more";
            Problem::new(410, "ended", text.into()).with("id", id.to_string().into())
        }
        TaskReply::Error(error) => refused(*error),
        other => unreachable!("no claim is answered so: {other:?}"),
    };
    write_problem(&problem, meta, out);
}

fn write_claimed(id: &RequestId, claimed: &Claimed, meta: Meta, out: &mut Vec<u8>) {
    let body = ClaimedJson {
        status: "claimed",
        id: id.to_string(),
        key: &claimed.key,
        version: claimed.version,
        token: claimed.token,
        attempts: claimed.attempts,
        lease_ms: claimed.lease_ms,
        waited_ms: claimed.waited_ms,
        content: Content::of(claimed.body.as_ref()),
    };
    let etag = etag(claimed.version);
    write(200, JSON, &[("ETag", &etag)], &json_of(&body), meta, out);
}

/// What became of a claim that waited.
pub(super) fn write_outcome_of(event: &TaskEvent, meta: Meta, out: &mut Vec<u8>) {
    match event {
        TaskEvent::Claimed(id, _, claimed) => write_claimed(id, claimed, meta, out),
        TaskEvent::TimedOut(..) => write(204, JSON, &[], b"", meta, out),
        TaskEvent::Refused(id, _, state) => write_problem(&not_free(Some(id), *state), meta, out),
        TaskEvent::Withdrawn(id, _) => {
            let problem =
                Problem::new(409, "cancelled", "the request was told to stop waiting".into());
            write_problem(&problem.with("id", id.to_string().into()), meta, out);
        }
        TaskEvent::Lapsed { .. } => unreachable!("not the outcome of a wait"),
    }
}

/// The answer to many that were created together: one for each, in their order.
pub(crate) fn write_answers(answer: &AnyAnswer, replies: &[Reply], out: &mut Vec<u8>) {
    let AnyAnswer::Http(Answer { kind: Kind::CreateMany(keys), meta }) = answer else {
        unreachable!("nothing else is many: {answer:?}");
    };
    let one = |(key, reply): (&Text, &Reply)| match reply {
        Reply::Task(TaskReply::Created(version)) => {
            json!({"key": &**key, "status": "created", "version": version})
        }
        Reply::Task(TaskReply::Exists) => json!({"key": &**key, "status": "exists"}),
        Reply::Task(TaskReply::Error(error)) => {
            let problem = refused(*error);
            json!({"key": &**key, "status": "refused", "code": problem.code, "detail": problem.detail})
        }
        other => unreachable!("no creation is answered so: {other:?}"),
    };
    let tasks: Vec<Value> = keys.iter().zip(replies).map(one).collect();
    write(200, JSON, &[], json!({ "tasks": tasks }).to_string().as_bytes(), *meta, out);
}

/// The answer to questions.
pub(super) fn write_found(answer: &Answer, found: &[Found], now: u64, out: &mut Vec<u8>) {
    match (&answer.kind, found) {
        (Kind::ShowTask { .. }, [Found::Task(None)]) => {
            write_problem(&not_found(), answer.meta, out);
        }
        (Kind::ShowTask { if_none_match }, [Found::Task(Some(task))]) => {
            let etag = etag(task.version);
            let headers = [("ETag", etag.as_str())];
            if if_none_match.as_deref().is_some_and(|seen| is_among(&etag, seen)) {
                return write(304, JSON, &headers, b"", answer.meta, out);
            }
            let body = json_of(&TaskJson::of(task, now));
            write(200, JSON, &headers, &body, answer.meta, out);
        }
        (Kind::Tasks(limit), [Found::Tasks(tasks)]) => {
            #[derive(Serialize)]
            struct Page<'a> {
                tasks: Vec<TaskJson<'a>>,
                next_cursor: Option<u64>,
            }
            let shown = resp::page(tasks);
            let more = shown.len() == *limit || shown.len() < tasks.len();
            let next_cursor = shown.last().filter(|_| more).map(|task| task.number);
            let tasks = shown.iter().map(|task| TaskJson::of(task, now)).collect();
            let body = json_of(&Page { tasks, next_cursor });
            write(200, JSON, &[], &body, answer.meta, out);
        }
        (Kind::Pools, [Found::Pools(pools)]) => {
            let pools: Vec<Value> = pools.iter().map(counts).collect();
            let body = json!({ "pools": pools }).to_string();
            write(200, JSON, &[], body.as_bytes(), answer.meta, out);
        }
        (kind, _) => unreachable!("not a question: {kind:?}"),
    }
}

/// Whether an `If-None-Match` names this version, weakly or not.
fn is_among(etag: &str, seen: &str) -> bool {
    let same = |one: &str| one == "*" || one.strip_prefix("W/").unwrap_or(one) == etag;
    seen.split(',').any(|one| same(one.trim()))
}

fn counts(counts: &PoolCounts) -> Value {
    json!({
        "pool": &*counts.pool, "ready": counts.ready, "delayed": counts.delayed,
        "claimed": counts.claimed, "done": counts.done, "failed": counts.failed,
        "waiting": counts.waiting,
    })
}
