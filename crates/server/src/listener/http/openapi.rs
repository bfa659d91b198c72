//! The description of this interface, made from the table of its routes.

use serde_json::{Map, Value, json};

mod cluster;
mod tasks;

use super::head::Method;
use super::route::{Op, ROUTES};

pub(super) fn document() -> String {
    let mut paths: Map<String, Value> = Map::new();
    for (method, path, op) in ROUTES {
        let word = match method {
            Method::Get | Method::Head => "get",
            Method::Post => "post",
            Method::Delete => "delete",
            Method::Patch => "patch",
            Method::Other => unreachable!("no route has it"),
        };
        let at = paths.entry(path).or_insert_with(|| json!({}));
        at[word] = operation(op, path);
        if op.is_question() {
            cluster::add_stale(&mut at[word]);
        }
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Keylatch",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Keyed locks and tasks. A lock taken here is the same lock on every port of the server.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": all_schemas(),
        },
    });
    document.to_string()
}

fn all_schemas() -> Value {
    let mut all = schemas();
    for (name, schema) in tasks::schemas() {
        all[name] = schema;
    }
    all["Cluster"] = cluster::schema();
    all
}

fn schema(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn answers(good: &[(u16, &str, Value)], bad: &[u16]) -> Value {
    let mut all = Map::new();
    for (status, text, content) in good {
        let mut one = json!({ "description": text });
        if !content.is_null() {
            one["content"] = content.clone();
        }
        all.insert(status.to_string(), one);
    }
    // Whatever is asked may be asked wrongly, from the wrong place, or of a server that stops.
    for status in bad.iter().chain(&[400, 401, 403, 405, 413, 421, 431, 503]) {
        let content = json!({"application/problem+json": {"schema": schema("Problem")}});
        let text = super::reason(*status);
        all.insert(status.to_string(), json!({"description": text, "content": content}));
    }
    Value::Object(all)
}

fn json_of(name: &str) -> Value {
    json!({"application/json": {"schema": schema(name)}})
}

fn plain() -> Value {
    json!({"text/plain": {"schema": {"type": "string"}}})
}

fn operation(op: Op, path: &str) -> Value {
    let (id, summary, answers) = match op {
        Op::Pools
        | Op::CreateTasks
        | Op::ListTasks
        | Op::Claim
        | Op::Retry
        | Op::ShowTask
        | Op::DeleteTask
        | Op::UpdateTask
        | Op::Finish
        | Op::PutBack => return tasks::operation(op),
        Op::Acquire => (
            "acquire",
            "Take locks, all or none. With `wait_ms` the answer comes when they are granted, the wait is over, or after 20 s: then 202, and the same request again goes on waiting.",
            answers(
                &[(200, "Granted", json_of("Granted")), (202, "Waiting", json_of("Waiting"))],
                &[409, 410, 411, 415, 429],
            ),
        ),
        Op::List => (
            "list",
            "Who holds, and who waits, in the order of arrival.",
            answers(&[(200, "Locks", json_of("Locks"))], &[]),
        ),
        Op::Show => (
            "show",
            "One request.",
            answers(
                &[(200, "The request", json_of("Lock")), (304, "As it was", Value::Null)],
                &[404],
            ),
        ),
        Op::Release => (
            "release",
            "Give up what is held, or stop waiting.",
            answers(&[(204, "Released", Value::Null)], &[404]),
        ),
        Op::Renew => (
            "renew",
            "Extend the lease: the first one again, or another one. Never shortens.",
            answers(&[(200, "Renewed", json_of("Renewed"))], &[404, 409, 410, 411, 415]),
        ),
        Op::Promote => (
            "promote",
            "Turn an optimistic or shared lock into an exclusive one.",
            answers(&[(200, "Promoted", json_of("Promoted"))], &[404, 409, 410, 411, 415]),
        ),
        Op::Revoke => (
            "revoke",
            "End what another holds, by its token.",
            answers(&[(200, "Revoked", json_of("Revoked"))], &[404, 411, 415]),
        ),
        Op::Owners => (
            "owners",
            "The explicit owners with the most requests.",
            answers(&[(200, "Owners", json_of("Owners"))], &[]),
        ),
        Op::Longest => (
            "longest",
            "The longest waits and holds since the server started.",
            answers(&[(200, "The longest", json_of("Longest"))], &[]),
        ),
        Op::Cluster => return cluster::operation(),
        Op::Events => (
            "events",
            "What happens, as server-sent events. With Last-Event-ID from behind that one on.",
            answers(
                &[(200, "Events", json!({"text/event-stream": {"schema": {"type": "string"}}}))],
                &[],
            ),
        ),
        Op::Metrics => ("metrics", "For Prometheus.", answers(&[(200, "Metrics", plain())], &[])),
        Op::Live => ("live", "Whether it runs.", answers(&[(200, "It does", plain())], &[])),
        Op::Ready => {
            let mut answers = answers(&[(200, "It is", plain())], &[]);
            answers["503"] = json!({"description": "It is not", "content": plain()});
            ("ready", "Whether it takes locks; ?verbose says more.", answers)
        }
        Op::OpenApi => (
            "openapi",
            "This document.",
            answers(
                &[
                    (
                        200,
                        "This document",
                        json!({"application/json": {"schema": {"type": "object"}}}),
                    ),
                    (304, "As it was", Value::Null),
                ],
                &[],
            ),
        ),
    };
    let mut all = json!({"operationId": id, "summary": summary, "responses": answers});
    add_input(&mut all, op, path);
    all
}

/// Parameters and body.
fn add_input(all: &mut Value, op: Op, path: &str) {
    let mut parameters = Vec::new();
    let parameter = |name: &str, place: &str, schema: Value| json!({"name": name, "in": place, "required": place == "path", "schema": schema});
    if path.contains("{id}") {
        parameters.push(parameter(
            "id",
            "path",
            json!({"type": "string", "minLength": 1, "maxLength": 64}),
        ));
    }
    if op == Op::List {
        parameters.push(parameter("name", "query", json!({"type": "string"})));
        parameters.push(parameter("owner", "query", json!({"type": "string"})));
        parameters.push(parameter("waiters", "query", json!({"type": "boolean"})));
        let limit = json!({"type": "integer", "minimum": 1, "maximum": 10_000, "default": 1_000});
        parameters.push(parameter("limit", "query", limit));
        parameters.push(parameter("cursor", "query", json!({"type": "integer", "minimum": 0})));
    }
    if !parameters.is_empty() {
        all["parameters"] = parameters.into();
    }
    let body = match op {
        Op::Acquire => Some("Acquire"),
        Op::Renew => Some("Renew"),
        Op::Promote => Some("Nothing"),
        Op::Revoke => Some("Revoke"),
        _ => None,
    };
    if let Some(name) = body {
        all["requestBody"] = json!({"required": true, "content": json_of(name)});
    }
}

/// Not said is the same as null.
fn or_null(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn schemas() -> Value {
    let text = |most: u64| json!({"type": "string", "minLength": 1, "maxLength": most});
    let ms = || json!({"type": "integer", "minimum": 0, "maximum": 31_536_000_000u64});
    let number = || json!({"type": "integer", "minimum": 0});
    let lease = || json!({"type": ["integer", "null"], "minimum": 0, "description": "Milliseconds that are left; null is no lease."});
    let mode = || json!({"type": "string", "enum": ["S", "E", "X", "O"], "description": "Shared, exclusive (one owner may hold it several times), exclusive for one request, optimistic."});
    let argument = || {
        json!({
            "type": "array", "maxItems": 16, "items": {"type": ["string", "number", "boolean"]},
            "description": "Fields; \"@\" is any. A text that begins with @ or \\ has a \\ before it.",
        })
    };
    let status = |word: &str| json!({"type": "string", "const": word});
    let object = |properties: Value, required: &[&str]| {
        json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        })
    };
    let wanted = json!({"name": text(512), "argument": argument(), "mode": or_null(&mode())});
    let long = object(
        json!({"ms": number(), "name": {"type": "string"}, "owner": {"type": "string"}}),
        &["ms", "name", "owner"],
    );
    let mut acquire = object(
        json!({
            "name": or_null(&text(512)), "argument": or_null(&argument()), "mode": or_null(&mode()),
            "resources": {"type": ["array", "null"], "minItems": 1, "maxItems": 64, "items": object(wanted, &["name"])},
            "owner": or_null(&text(256)), "lease_ms": or_null(&ms()), "wait_ms": ms(), "id": or_null(&text(64)),
            "meta": {"type": ["string", "null"], "maxLength": 1_024}, "max_hold_ms": ms(), "detect": {"type": "boolean"},
        }),
        &[],
    );
    let given =
        |name: &str| json!({"required": [name], "properties": {name: {"not": {"type": "null"}}}});
    acquire["anyOf"] = json!([given("name"), given("resources")]);
    acquire["examples"] = json!([{"name": "user:42", "owner": "ann", "wait_ms": 5_000}]);
    json!({
        "Acquire": acquire,
        "Renew": object(json!({"lease_ms": or_null(&ms())}), &[]),
        "Nothing": object(json!({}), &[]),
        "Revoke": object(json!({"token": number(), "reason": text(1_024)}), &["token", "reason"]),
        "Granted": object(
            json!({"status": status("granted"), "id": text(64), "token": number(), "lease_ms": lease(), "waited_ms": number()}),
            &["status", "id", "token", "lease_ms", "waited_ms"],
        ),
        "Waiting": object(json!({"status": status("waiting"), "id": text(64)}), &["status", "id"]),
        "Renewed": object(json!({"status": status("renewed"), "lease_ms": lease()}), &["status", "lease_ms"]),
        "Promoted": object(
            json!({"status": status("promoted"), "token": number(), "lease_ms": lease()}),
            &["status", "token", "lease_ms"],
        ),
        "Revoked": object(json!({"status": status("revoked")}), &["status"]),
        "Lock": object(
            json!({
                "seq": number(), "token": number(), "id": {"type": ["string", "null"]}, "owner": {"type": "string"},
                "state": {"type": "string", "enum": ["held", "waiting"]}, "held_ms": number(), "lease_ms": lease(),
                "meta": {"type": ["string", "null"]},
                "resources": {"type": "array", "items": object(
                    json!({"name": {"type": "string"}, "argument": argument(), "mode": mode()}),
                    &["name", "argument", "mode"],
                )},
            }),
            &["seq", "token", "id", "owner", "state", "held_ms", "lease_ms", "meta", "resources"],
        ),
        "Locks": object(
            json!({"locks": {"type": "array", "items": schema("Lock")}, "next_cursor": {"type": ["integer", "null"]}}),
            &["locks", "next_cursor"],
        ),
        "Owners": object(
            json!({"owners": {"type": "array", "items": object(
                json!({"owner": {"type": "string"}, "requests": number()}), &["owner", "requests"])}}),
            &["owners"],
        ),
        "Longest": object(
            json!({"waits": {"type": "array", "items": long}, "holds": {"type": "array", "items": long}}),
            &["waits", "holds"],
        ),
        "Blocker": object(
            json!({
                "owner": {"type": "string"}, "mode": mode(), "state": {"type": "string", "enum": ["held", "waiting"]},
                "token": number(), "held_ms": number(), "lease_ms": lease(),
            }),
            &["owner", "mode", "state", "token", "held_ms", "lease_ms"],
        ),
        "Problem": {
            "type": "object",
            "description": "RFC 9457.",
            "properties": {
                "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
                "code": {"type": "string"}, "detail": {"type": "string"}, "id": {"type": "string"},
                "blocker": schema("Blocker"), "cycle": {"type": "array", "items": {"type": "string"}},
                "cause": {"type": "string", "enum": ["released", "expired", "superseded", "revoked"]},
                "version": {"type": "integer"}, "state": {"type": "string", "enum": ["free", "claimed", "done", "failed"]},
            },
            "required": ["type", "title", "status", "code", "detail"],
        },
    })
}
