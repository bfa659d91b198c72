//! Bodies of requests about tasks. What is to be done is any JSON, or bytes as base64.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use keylatch_table::{Body, Claim, Create, Party, PutBack, RequestId, Text};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{Whole, parse};
use super::problem::Problem;
use crate::listener::resp;
use crate::turn::Context;

/// The lease of a claim that names none.
const LEASE_MS: u64 = 60_000;

/// `POST /v1/tasks/{pool}`: one, or many.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateJson {
    tasks: Option<Vec<TaskJson>>,
    key: Option<String>,
    body: Option<Box<RawValue>>,
    body_base64: Option<String>,
    priority: Option<Signed>,
    delay_ms: Option<Whole>,
    attempts: Option<Whole>,
    id: Option<String>,
}

/// One of many.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskJson {
    key: String,
    body: Option<Box<RawValue>>,
    body_base64: Option<String>,
    priority: Option<Signed>,
    delay_ms: Option<Whole>,
    attempts: Option<Whole>,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimJson {
    key: Option<String>,
    owner: Option<String>,
    #[serde(default)]
    wait_ms: Whole,
    lease_ms: Option<Whole>,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdateJson {
    body: Option<Box<RawValue>>,
    body_base64: Option<String>,
    lease_ms: Option<Whole>,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FinishJson {
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackJson {
    #[serde(default)]
    delay_ms: Whole,
    error: Option<String>,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryJson {
    key: Option<String>,
    id: Option<String>,
}

/// A whole number of 32 bits that may have a sign, however it is written.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "serde_json::Number")]
struct Signed(i32);

impl TryFrom<serde_json::Number> for Signed {
    type Error = String;

    fn try_from(number: serde_json::Number) -> Result<Signed, String> {
        let whole = |number: f64| (number.fract() == 0.0).then_some(number as i64);
        let value = number.as_i64().or_else(|| number.as_f64().and_then(whole));
        let value = value.and_then(|value| i32::try_from(value).ok());
        let (least, most) = (i32::MIN, i32::MAX);
        value
            .map(Signed)
            .ok_or_else(|| format!("{number} is not a whole number from {least} to {most}"))
    }
}

/// What is to be created.
pub(super) enum Created {
    One(Option<RequestId>, Create),
    Many(Vec<(Option<RequestId>, Create)>),
}

fn invalid(text: &str) -> Problem {
    Problem::new(400, "invalid", text.into())
}

fn request_id(id: Option<String>) -> Option<RequestId> {
    id.map(|id| RequestId::new(&id))
}

fn text(text: Option<String>) -> Option<Text> {
    text.map(Into::into)
}

pub(super) fn create(body: &[u8]) -> Result<Created, Problem> {
    let CreateJson { tasks, key, body, body_base64, priority, delay_ms, attempts, id } =
        parse(body)?;
    if let Some(tasks) = tasks {
        let alone = key.is_none()
            && body.is_none()
            && body_base64.is_none()
            && priority.is_none()
            && delay_ms.is_none()
            && attempts.is_none()
            && id.is_none();
        if !alone {
            return Err(invalid("`tasks` stands alone; what it says of each task stands in it"));
        }
        return Ok(Created::Many(tasks.into_iter().map(task).collect::<Result<_, _>>()?));
    }
    let Some(key) = key else {
        return Err(invalid("say which task: `key`, or `tasks` with several"));
    };
    let one = TaskJson { key, body, body_base64, priority, delay_ms, attempts, id };
    let (id, create) = task(one)?;
    Ok(Created::One(id, create))
}

fn task(one: TaskJson) -> Result<(Option<RequestId>, Create), Problem> {
    let attempts = one.attempts.map(|attempts| u32::try_from(attempts.0)).transpose();
    let create = Create {
        key: one.key.into(),
        body: content(one.body, one.body_base64)?,
        priority: one.priority.map_or(0, |priority| priority.0),
        delay_ms: one.delay_ms.unwrap_or_default().0,
        attempts: attempts.map_err(|_| invalid("`attempts` is at most 4294967295"))?,
    };
    Ok((request_id(one.id), create))
}

fn content(json: Option<Box<RawValue>>, base64: Option<String>) -> Result<Option<Body>, Problem> {
    match (json, base64) {
        (Some(_), Some(_)) => Err(invalid("a task has `body` or `body_base64`, not both")),
        (None, None) => Ok(None),
        (Some(json), None) => match resp::json_error(json.get().as_bytes()) {
            None => Ok(Some(Body { json: true, bytes: json.get().as_bytes().into() })),
            Some(error) => Err(invalid(&error)),
        },
        (None, Some(base64)) => match BASE64_STANDARD.decode(base64) {
            Ok(bytes) => Ok(Some(Body { json: false, bytes: bytes.into() })),
            Err(error) => Err(invalid(&format!("`body_base64` is not base64: {error}"))),
        },
    }
}

pub(super) fn claim(body: &[u8], context: &mut Context<'_>) -> Result<(RequestId, Claim), Problem> {
    let ClaimJson { key, owner, wait_ms, lease_ms, id } = parse(body)?;
    let id = request_id(id).unwrap_or_else(|| context.new_id());
    let party = match owner {
        Some(owner) => Party { principal: context.principal(), ..Party::owner(&owner) },
        None => context.party(),
    };
    let lease_ms = lease_ms.map_or(LEASE_MS, |whole| whole.0);
    Ok((id, Claim { key: text(key), party, wait_ms: wait_ms.0, lease_ms }))
}

type Update = (Option<RequestId>, Option<Body>, Option<u64>);

pub(super) fn update(body: &[u8]) -> Result<Update, Problem> {
    let UpdateJson { body, body_base64, lease_ms, id } = parse(body)?;
    let body = content(body, body_base64)?;
    Ok((request_id(id), body, lease_ms.map(|whole| whole.0)))
}

pub(super) fn finish(body: &[u8]) -> Result<Option<RequestId>, Problem> {
    let FinishJson { id } = parse(body)?;
    Ok(request_id(id))
}

pub(super) fn put_back(body: &[u8]) -> Result<(Option<RequestId>, PutBack), Problem> {
    let BackJson { delay_ms, error, id } = parse(body)?;
    Ok((request_id(id), PutBack { delay_ms: delay_ms.0, error: text(error) }))
}

pub(super) fn retry(body: &[u8]) -> Result<(Option<RequestId>, Option<Text>), Problem> {
    let RetryJson { key, id } = parse(body)?;
    Ok((request_id(id), text(key)))
}
