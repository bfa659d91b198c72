//! Events: pushed to the connection whose request it was, and to those that subscribed.

use keylatch_table::{Event, Part};
use keylatch_wire::Writer;
use serde_json::{Value, json};

use super::answer::{cause, write_grant, write_refusal};
use super::tasks;

/// `keylatch granted {map}`, `keylatch lost {map}`, or the refusal of an `ASYNC` request.
pub(crate) fn write_push(event: &Event, writer: &mut Writer<'_>) {
    let mut begin = |word: &str| {
        writer.push(3);
        writer.bulk(b"keylatch");
        writer.bulk(word.as_bytes());
    };
    match event {
        Event::Granted { id, grant } => {
            begin("granted");
            write_grant(id, grant, writer);
        }
        Event::Lost { id, token, cause: why, reason, .. } => {
            begin("lost");
            writer.map(3 + usize::from(reason.is_some()));
            writer.bulk(b"id");
            writer.bulk_with(id.text_len(), |out| id.append_to(out));
            writer.bulk(b"token");
            writer.unsigned(*token);
            writer.bulk(b"cause");
            writer.bulk(cause(*why).as_bytes());
            if let Some(reason) = reason {
                writer.bulk(b"reason");
                writer.bulk(reason.as_bytes());
            }
        }
        Event::TimedOut { .. } => {
            begin("timeout");
            write_outcome_of(event, writer);
        }
        Event::Deadlocked { .. } => {
            begin("deadlock");
            write_outcome_of(event, writer);
        }
        Event::Withdrawn { .. } => {
            begin("cancelled");
            write_outcome_of(event, writer);
        }
        Event::Task(event) => {
            begin(tasks::word(event));
            tasks::write_outcome_of(event, writer);
        }
    }
}

/// The outcome of a request that waited, as the answer to it.
pub(crate) fn write_outcome_of(event: &Event, writer: &mut Writer<'_>) {
    match event {
        Event::Granted { id, grant } => write_grant(id, grant, writer),
        Event::TimedOut { id, blocker, .. } => write_refusal("timeout", id, Some(blocker), writer),
        Event::Deadlocked { id, deadlock, .. } => {
            let reply = keylatch_table::Reply::Deadlock(deadlock.clone());
            super::write_outcome(id, &reply, writer);
        }
        Event::Withdrawn { id, .. } => write_refusal("cancelled", id, None, writer),
        Event::Task(event) => tasks::write_outcome_of(event, writer),
        Event::Lost { .. } => unreachable!("not the outcome of a wait"),
    }
}

/// An event as subscribers get it.
pub(crate) fn event_as_json(event: &Event) -> (&'static str, String) {
    let about = |about: &keylatch_table::About| {
        let resource = |part: &Part| json!({"resource": part.resource.to_string(), "mode": part.mode.letter()});
        json!({
            "seq": about.seq,
            "owner": &*about.owner,
            "resources": about.parts.iter().map(resource).collect::<Vec<_>>(),
        })
    };
    let (kind, value): (&'static str, Value) = match event {
        Event::Granted { id, grant } => (
            "granted",
            json!({
                "event": "granted", "id": id.to_string(), "token": grant.token,
                "lease_ms": grant.lease_ms, "waited_ms": grant.waited_ms,
            }),
        ),
        Event::TimedOut { id, about: what, .. } => (
            "timeout",
            json!({
                "event": "timeout", "id": id.to_string(), "request": about(what),
            }),
        ),
        Event::Deadlocked { id, about: what, .. } => (
            "deadlock",
            json!({
                "event": "deadlock", "id": id.to_string(), "request": about(what),
            }),
        ),
        Event::Withdrawn { id, about: what } => (
            "cancelled",
            json!({
                "event": "cancelled", "id": id.to_string(), "request": about(what),
            }),
        ),
        Event::Lost { id, token, cause: why, reason, about: what } => (
            "lost",
            json!({
                "event": "lost", "id": id.to_string(), "token": token, "cause": cause(*why),
                "reason": reason.as_deref(), "request": about(what),
            }),
        ),
        Event::Task(event) => tasks::event_as_json(event),
    };
    (kind, value.to_string())
}
