//! The part about clusters.

use serde_json::{Value, json};

use super::{answers, json_of};

pub(super) fn operation() -> Value {
    json!({
        "operationId": "cluster",
        "summary": "The cluster, as this member sees it: who is in it, who leads, how far each one is.",
        "responses": answers(&[(200, "The cluster", json_of("Cluster"))], &[404]),
    })
}

/// A parameter of every question.
pub(super) fn add_stale(operation: &mut Value) {
    let mut all = operation["parameters"].as_array().cloned().unwrap_or_default();
    all.push(json!({
        "name": "stale",
        "in": "query",
        "required": false,
        "description": "What the member that is asked knows itself, also without a leader.",
        "schema": {"type": "boolean", "default": false},
    }));
    operation["parameters"] = all.into();
}

pub(super) fn schema() -> Value {
    let number = || json!({"type": "integer", "minimum": 0});
    let maybe = || json!({"type": ["integer", "null"], "minimum": 0});
    let node = || json!({"type": "string", "pattern": "^[0-9]{1,20}$"});
    let leader = "Null if none is heard, or if this one leads without a majority.";
    let states = ["leader", "follower", "candidate", "learner", "stranger"];
    let member = object(&json!({
        "node": node(),
        "peer": {"type": "string"},
        "role": {"type": "string", "enum": ["voter", "learner"]},
        "leads": {"type": "boolean"},
        "matched": maybe(),
        "heard_ms": maybe(),
    }));
    object(&json!({
        "cluster": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "node": node(),
        "state": {"type": "string", "enum": states},
        "leader": {"type": ["string", "null"], "description": leader},
        "leader_heard_ms": maybe(),
        "majority": {"type": "boolean"},
        "term": number(),
        "last_log": number(),
        "applied": number(),
        "snapshot": number(),
        "caught_up": {"type": "boolean"},
        "members": {"type": "array", "items": member},
    }))
}

/// It has all of these.
fn object(properties: &Value) -> Value {
    let names: Vec<&String> =
        properties.as_object().into_iter().flat_map(|all| all.keys()).collect();
    json!({"type": "object", "properties": properties, "required": names})
}
