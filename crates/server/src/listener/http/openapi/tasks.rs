//! The part of the description that is about tasks.

use serde_json::{Value, json};

use super::{answers, json_of, or_null, schema};
use crate::listener::http::route::Op;

pub(super) fn operation(op: Op) -> Value {
    let (id, summary, answers) = about(op);
    let mut all = json!({"operationId": id, "summary": summary, "responses": answers});
    for status in ["200", "201", "304"] {
        if has_version(op) && all["responses"].get(status).is_some() {
            let etag = json!({"description": "The version.", "schema": {"type": "string"}});
            all["responses"][status]["headers"] = json!({ "ETag": etag });
        }
    }
    let parameters = parameters(op);
    if !parameters.is_empty() {
        all["parameters"] = parameters.into();
    }
    let body = match op {
        Op::CreateTasks => "CreateTasks",
        Op::Claim => "Claim",
        Op::Retry => "Retry",
        Op::UpdateTask => "UpdateTask",
        Op::Finish => "Finish",
        Op::PutBack => "PutBack",
        _ => return all,
    };
    all["requestBody"] = json!({"required": true, "content": json_of(body)});
    all
}

/// Whether its answer has the version of a task.
fn has_version(op: Op) -> bool {
    !matches!(op, Op::Pools | Op::ListTasks | Op::Retry | Op::DeleteTask)
}

fn about(op: Op) -> (&'static str, &'static str, Value) {
    match op {
        Op::Pools => (
            "pools",
            "The pools that have tasks or waiting claims, and how many in each state.",
            answers(&[(200, "Pools", json_of("Pools"))], &[]),
        ),
        Op::CreateTasks => (
            "createTasks",
            "Create a task, or with `tasks` many: then each has an answer of its own.",
            answers(
                &[
                    (201, "Created", json_of("CreatedTask")),
                    (200, "What became of each", json_of("CreatedTasks")),
                ],
                &[409, 411, 415, 429],
            ),
        ),
        Op::ListTasks => (
            "listTasks",
            "Tasks of a pool in the order in which they were created.",
            answers(&[(200, "Tasks", json_of("Tasks"))], &[]),
        ),
        Op::Claim => (
            "claim",
            "Claim a task that is free: `key`, or any. With `wait_ms` the answer comes when there is one, the wait is over, or after 20 s: then 202, and the same request again goes on waiting.",
            answers(
                &[
                    (200, "Claimed", json_of("ClaimedTask")),
                    (202, "Waiting", json_of("Waiting")),
                    (204, "Nothing to claim, or not in time", Value::Null),
                ],
                &[409, 410, 411, 415, 429],
            ),
        ),
        Op::Retry => (
            "retryTasks",
            "Free failed tasks again: `key`, or all of the pool.",
            answers(&[(200, "Retried", json_of("Retried"))], &[409, 411, 415]),
        ),
        Op::ShowTask => (
            "showTask",
            "One task.",
            answers(&[(200, "The task", json_of("Task")), (304, "As it was", Value::Null)], &[404]),
        ),
        Op::DeleteTask => (
            "deleteTask",
            "Remove a task, with `If-Match` only at that version.",
            answers(&[(204, "Deleted", Value::Null)], &[404, 412]),
        ),
        Op::UpdateTask => (
            "updateTask",
            "Renew a claim, with another body if one is given.",
            answers(
                &[(200, "Updated", json_of("UpdatedTask"))],
                &[404, 409, 411, 412, 415, 428, 429],
            ),
        ),
        Op::Finish => (
            "finishTask",
            "Mark a task done: it is not claimed again.",
            answers(&[(200, "Done", json_of("FinishedTask"))], &[404, 409, 411, 412, 415, 428]),
        ),
        Op::PutBack => (
            "putBackTask",
            "Free a task again and count the attempt; with the last one it has failed.",
            answers(&[(200, "Put back", json_of("PutBackTask"))], &[404, 409, 411, 412, 415, 428]),
        ),
        other => unreachable!("not about tasks: {other:?}"),
    }
}

fn parameters(op: Op) -> Vec<Value> {
    let parameter = |name: &str, place: &str, required: bool, schema: Value| json!({"name": name, "in": place, "required": required, "schema": schema});
    let mut all = Vec::new();
    if op != Op::Pools {
        all.push(parameter("pool", "path", true, text()));
    }
    if matches!(op, Op::ShowTask | Op::DeleteTask | Op::UpdateTask | Op::Finish | Op::PutBack) {
        all.push(parameter("key", "path", true, text()));
    }
    let version = json!({"type": "string", "pattern": "^\"[0-9]{1,19}\"$"});
    match op {
        Op::ShowTask => {
            all.push(parameter("If-None-Match", "header", false, json!({"type": "string"})));
        }
        Op::DeleteTask => all.push(parameter("If-Match", "header", false, version)),
        Op::UpdateTask | Op::Finish | Op::PutBack => {
            all.push(parameter("If-Match", "header", true, version));
        }
        Op::ListTasks => {
            all.push(parameter("state", "query", false, state()));
            all.push(parameter("prefix", "query", false, json!({"type": "string"})));
            let limit =
                json!({"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000});
            all.push(parameter("limit", "query", false, limit));
            let cursor = json!({"type": "integer", "minimum": 0});
            all.push(parameter("cursor", "query", false, cursor));
        }
        _ => {}
    }
    all
}

/// A pool or a key.
fn text() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 512})
}

fn state() -> Value {
    json!({"type": "string", "enum": ["free", "claimed", "done", "failed"]})
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    })
}

fn with(mut one: Value, other: &Value) -> Value {
    for (name, value) in other.as_object().into_iter().flatten() {
        one[name] = value.clone();
    }
    one
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    [asked(), answered()].concat()
}

/// What is to be done, in both directions.
fn content() -> Value {
    json!({
        "body": {"description": "What is to be done: any JSON. Null is none."},
        "body_base64": {"type": ["string", "null"], "contentEncoding": "base64", "description": "The same, of a body that is not JSON."},
    })
}

fn priority() -> Value {
    json!({"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX})
}

fn asked() -> Vec<(&'static str, Value)> {
    let ms = || json!({"type": "integer", "minimum": 0, "maximum": 31_536_000_000u64});
    let id = || or_null(&json!({"type": "string", "minLength": 1, "maxLength": 64}));
    let create = with(
        json!({
            "key": text(), "priority": or_null(&priority()), "delay_ms": or_null(&ms()), "id": id(),
            "attempts": or_null(&json!({"type": "integer", "minimum": 0, "maximum": u32::MAX})),
        }),
        &content(),
    );
    let one = with(
        object(&create, &["key"]),
        &json!({"examples": [{"key": "mail:42", "body": {"to": "ann"}}]}),
    );
    let many =
        json!({"type": "array", "minItems": 1, "maxItems": 1_000, "items": schema("CreateTask")});
    let error = json!({"type": ["string", "null"], "maxLength": 1_024});
    vec![
        ("CreateTask", one),
        (
            "CreateTasks",
            json!({"anyOf": [schema("CreateTask"), object(&json!({ "tasks": many }), &["tasks"])]}),
        ),
        (
            "Claim",
            object(
                &json!({
                    "key": or_null(&text()), "wait_ms": ms(), "lease_ms": or_null(&ms()), "id": id(),
                    "owner": or_null(&json!({"type": "string", "minLength": 1, "maxLength": 256})),
                }),
                &[],
            ),
        ),
        (
            "UpdateTask",
            object(&with(json!({"lease_ms": or_null(&ms()), "id": id()}), &content()), &[]),
        ),
        ("Finish", object(&json!({"id": id()}), &[])),
        ("PutBack", object(&json!({"delay_ms": ms(), "error": error, "id": id()}), &[])),
        ("Retry", object(&json!({"key": or_null(&text()), "id": id()}), &[])),
    ]
}

fn answered() -> Vec<(&'static str, Value)> {
    let number = || json!({"type": "integer", "minimum": 0});
    let lease = || json!({"type": ["integer", "null"], "minimum": 0, "description": "Milliseconds that are left; null is no lease."});
    let status = |word: &str| json!({"type": "string", "const": word});
    let versioned = |word: &str, more: &Value, required: &[&str]| {
        let properties = with(json!({"status": status(word), "version": number()}), more);
        object(&properties, &[&["status", "version"], required].concat())
    };
    let claimed = json!({
        "id": {"type": "string"}, "key": text(), "token": number(), "attempts": number(),
        "lease_ms": lease(), "waited_ms": number(),
    });
    let claimed_fields = ["id", "key", "token", "attempts", "lease_ms", "waited_ms"];
    let task = json!({
        "number": number(), "key": text(), "state": state(), "version": number(), "owner": {"type": ["string", "null"]},
        "token": number(), "created_ms": number(), "claimed_ms": {"type": ["integer", "null"], "minimum": 0},
        "priority": priority(), "attempts": number(), "due_ms": number(), "lease_ms": lease(),
        "error": {"type": ["string", "null"]},
    });
    let task_fields: Vec<&str> =
        task.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let counts = ["ready", "delayed", "claimed", "done", "failed", "waiting"];
    let mut pool = json!({"pool": text()});
    for name in counts {
        pool[name] = number();
    }
    let of_each = json!({
        "key": {"type": "string"}, "status": {"type": "string", "enum": ["created", "exists", "refused"]},
        "version": number(), "code": {"type": "string"}, "detail": {"type": "string"},
    });
    vec![
        ("CreatedTask", versioned("created", &json!({"key": text()}), &["key"])),
        (
            "CreatedTasks",
            object(
                &json!({"tasks": {"type": "array", "items": object(&of_each, &["key", "status"])}}),
                &["tasks"],
            ),
        ),
        ("ClaimedTask", versioned("claimed", &with(claimed, &content()), &claimed_fields)),
        ("UpdatedTask", versioned("updated", &json!({"lease_ms": lease()}), &["lease_ms"])),
        ("FinishedTask", versioned("done", &json!({}), &[])),
        (
            "PutBackTask",
            versioned(
                "back",
                &json!({"state": state(), "attempts": number()}),
                &["state", "attempts"],
            ),
        ),
        (
            "Retried",
            object(&json!({"status": status("retried"), "count": number()}), &["status", "count"]),
        ),
        ("Task", object(&with(task.clone(), &content()), &task_fields)),
        (
            "Tasks",
            object(
                &json!({"tasks": {"type": "array", "items": schema("Task")}, "next_cursor": {"type": ["integer", "null"]}}),
                &["tasks", "next_cursor"],
            ),
        ),
        (
            "Pools",
            object(
                &json!({"pools": {"type": "array", "items": object(&pool, &[&["pool"], &counts[..]].concat())}}),
                &["pools"],
            ),
        ),
    ]
}
