//! Replies of the table as HTTP.

use keylatch_table::{
    Answer as Found, Blocker, Cause, Deadlock, Entry, Error, Event, Reply, RequestId,
};
use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::{Answer, JSON, Kind, Meta, Session, body, tasks, write, write_problem};
use crate::listener::resp::{cause, state};

/// The answer to a change.
pub(crate) fn write_answer(answer: &Answer, reply: &Reply, out: &mut Vec<u8>) {
    let done = |body: Value, out: &mut Vec<u8>| {
        write(200, JSON, &[], body.to_string().as_bytes(), answer.meta, out);
    };
    let gone = |out: &mut Vec<u8>| {
        let text = "nothing is held or waited for under this id";
        write_problem(&Problem::new(404, "not_held", text.into()), answer.meta, out);
    };
    match (&answer.kind, reply) {
        (Kind::Lock(id), reply) => outcome(id, reply, answer.meta, out),
        (_, Reply::Task(reply)) => tasks::write_answer(answer, reply, out),
        (_, Reply::Error(error)) => write_problem(&refused(*error), answer.meta, out),
        (Kind::Release, Reply::Released) => write(204, JSON, &[], b"", answer.meta, out),
        (_, Reply::Renewed(lease_ms)) => {
            done(json!({"status": "renewed", "lease_ms": lease_ms}), out);
        }
        (_, Reply::Promoted(grant)) => {
            done(
                json!({"status": "promoted", "token": grant.token, "lease_ms": grant.lease_ms}),
                out,
            );
        }
        (_, Reply::Busy(by)) => write_problem(&busy("busy", None, by), answer.meta, out),
        (Kind::Release, _) | (_, Reply::Lost(None)) => gone(out),
        (_, Reply::Lost(Some(loss))) => {
            write_problem(&lost(None, loss.cause), answer.meta, out);
        }
        (_, Reply::Revoked(true)) => done(json!({"status": "revoked"}), out),
        (_, Reply::Revoked(false)) => {
            let text = "no lock is held under this token";
            write_problem(&Problem::new(404, "not_held", text.into()), answer.meta, out);
        }
        (_, other) => unreachable!("nothing is answered so: {other:?}"),
    }
}

/// What became of a request that waited.
pub(crate) fn write_outcome_of(event: &Event, session: &mut Session, out: &mut Vec<u8>) -> Meta {
    let meta = session.waiting.take().map_or_else(Meta::default, |waiting| waiting.meta);
    match event {
        Event::Granted { id, grant } => outcome(id, &Reply::Granted(grant.clone()), meta, out),
        Event::TimedOut { id, blocker, .. } => {
            write_problem(&busy("timeout", Some(id), blocker), meta, out);
        }
        Event::Deadlocked { id, deadlock, .. } => {
            outcome(id, &Reply::Deadlock(deadlock.clone()), meta, out);
        }
        Event::Withdrawn { id, .. } => {
            let problem =
                Problem::new(409, "cancelled", "the request was told to stop waiting".into());
            write_problem(&problem.with("id", id.to_string().into()), meta, out);
        }
        Event::Task(event) => tasks::write_outcome_of(event, meta, out),
        Event::Lost { .. } => unreachable!("not the outcome of a wait"),
    }
    meta
}

/// A request waits longer than an answer may take.
pub(crate) fn write_still_waiting(session: &mut Session, out: &mut Vec<u8>) -> Meta {
    let Some(waiting) = session.waiting.take() else { return Meta::default() };
    let body = json!({"status": "waiting", "id": waiting.id.to_string()});
    write(202, JSON, &[], body.to_string().as_bytes(), waiting.meta, out);
    waiting.meta
}

fn outcome(id: &RequestId, reply: &Reply, meta: Meta, out: &mut Vec<u8>) {
    let problem = match reply {
        Reply::Granted(grant) => {
            let body = json!({
                "status": "granted", "id": id.to_string(), "token": grant.token,
                "lease_ms": grant.lease_ms, "waited_ms": grant.waited_ms,
            });
            return write(200, JSON, &[], body.to_string().as_bytes(), meta, out);
        }
        Reply::Busy(by) => busy("busy", Some(id), by),
        Reply::Deadlock(Deadlock { blocker: by, cycle }) => {
            let cycle: Vec<&str> = cycle.iter().map(AsRef::as_ref).collect();
            busy("deadlock", Some(id), by).with("cycle", cycle.into())
        }
        Reply::Ended(cause) => lost(Some(id), *cause),
        Reply::Error(error) => refused(*error),
        other => unreachable!("no lock is answered so: {other:?}"),
    };
    write_problem(&problem, meta, out);
}

fn busy(code: &'static str, id: Option<&RequestId>, by: &Blocker) -> Problem {
    let detail = match code {
        "timeout" => format!("{} was in the way until the wait was over", by.owner),
        "deadlock" => "waiting would have closed a cycle of owners".into(),
        _ => format!("{} is in the way", by.owner),
    };
    let problem = Problem::new(409, code, detail).with("blocker", blocker(by));
    match id {
        Some(id) => problem.with("id", id.to_string().into()),
        None => problem,
    }
}

fn lost(id: Option<&RequestId>, why: Cause) -> Problem {
    let detail = format!("what was held under this id has ended: {}", cause(why));
    let problem = Problem::new(410, "ended", detail).with("cause", cause(why).into());
    match id {
        Some(id) => problem.with("id", id.to_string().into()),
        None => problem,
    }
}

fn blocker(by: &Blocker) -> Value {
    json!({
        "owner": &*by.owner, "mode": by.mode.letter(), "state": state(by.state),
        "token": by.token, "held_ms": by.held_ms, "lease_ms": by.lease_ms,
    })
}

pub(super) fn refused(error: Error) -> Problem {
    let (status, code) = match error {
        Error::TooMany(..) => (429, "limit"),
        Error::IdReused | Error::AliasInUse => (409, "id_reused"),
        Error::NeverPromotable => (409, "never_promotable"),
        _ => (400, "invalid"),
    };
    Problem::new(status, code, error.to_string())
}

/// The answer to questions, at this table time.
pub(crate) fn write_found(answer: &Answer, found: &[Found], now: u64, out: &mut Vec<u8>) {
    match (&answer.kind, found) {
        (Kind::List(limit), [Found::Entries(entries)]) => {
            let locks = requests(entries);
            let full = locks.len() == *limit;
            let next = entries.last().filter(|_| full).map(|entry| entry.seq);
            let body = json!({"locks": locks, "next_cursor": next});
            write(200, JSON, &[], body.to_string().as_bytes(), answer.meta, out);
        }
        (Kind::Show { if_none_match }, [Found::Entries(entries)]) => {
            let Some(first) = entries.first() else {
                let text = "nothing is held or waited for under this id";
                let problem = Problem::new(404, "not_held", text.into());
                return write_problem(&problem, answer.meta, out);
            };
            // Weak: times in it go on.
            let etag = format!("W/\"{}-{}\"", first.seq, first.token);
            if if_none_match.as_deref() == Some(etag.as_str()) {
                return write(304, JSON, &[("ETag", &etag)], b"", answer.meta, out);
            }
            let body = Value::Object(requests(entries).remove(0)).to_string();
            write(200, JSON, &[("ETag", &etag)], body.as_bytes(), answer.meta, out);
        }
        (Kind::Owners, [Found::Owners(owners)]) => {
            let owner = |(owner, requests): &(_, u64)| json!({"owner": AsRef::<str>::as_ref(owner), "requests": requests});
            let owners: Vec<Value> = owners.iter().map(owner).collect();
            let body = json!({ "owners": owners }).to_string();
            write(200, JSON, &[], body.as_bytes(), answer.meta, out);
        }
        _ => tasks::write_found(answer, found, now, out),
    }
}

/// One for each request, with all its resources.
fn requests(entries: &[Entry]) -> Vec<Map<String, Value>> {
    let of_one = entries.chunk_by(|one, other| one.seq == other.seq);
    let request = |entries: &[Entry]| {
        let first = &entries[0];
        let resource = |entry: &Entry| {
            let argument: Vec<Value> = entry.resource.fields().map(body::field).collect();
            json!({"name": entry.resource.name(), "argument": argument, "mode": entry.mode.letter()})
        };
        let id = first.id.to_string();
        let all = json!({
            "seq": first.seq, "token": first.token, "id": (!id.is_empty()).then_some(id),
            "owner": &*first.owner, "state": state(first.state), "held_ms": first.held_ms,
            "lease_ms": first.lease_ms, "meta": first.meta.as_deref(),
            "resources": entries.iter().map(resource).collect::<Vec<_>>(),
        });
        match all {
            Value::Object(all) => all,
            _ => unreachable!("it was written as an object"),
        }
    };
    of_one.map(request).collect()
}
