//! Replies of the table as RESP.

use keylatch_table::{
    Answer as Found, Blocker, Cause, Deadlock, Entry, Error, Field, Grant, Reply, RequestId, State,
    Text,
};
use keylatch_wire::Writer;

use super::tasks;

/// Which command is answered, where the table's reply alone does not say how.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Lock {
        id: RequestId,
        asynchronous: bool,
    },
    Set,
    Unlock(RequestId),
    Cancel,
    Renew,
    Promote,
    Revoke(u64),
    Count,
    Locks,
    Get,
    Exists,
    Pttl,
    Claim {
        id: RequestId,
        asynchronous: bool,
    },
    Create,
    /// Any other change to tasks.
    Task,
    TaskEntry,
    Tasks,
    /// Of this pool, or of all.
    Counts(Option<Text>),
}

/// The answer to a change.
pub(crate) fn write_answer(answer: &Answer, reply: &Reply, writer: &mut Writer<'_>) {
    match (answer, reply) {
        (_, Reply::Error(error)) => write_error(*error, writer),
        (Answer::Claim { id, .. }, Reply::Task(reply)) => tasks::write_claim(id, reply, writer),
        (_, Reply::Task(reply)) => tasks::write_reply(reply, writer),
        (Answer::Set, Reply::Granted(_)) => writer.simple("OK"),
        (Answer::Set, _) => writer.null(),
        (Answer::Lock { id, .. }, reply) => write_outcome(id, reply, writer),
        (Answer::Unlock(_), reply) => writer.integer(i64::from(*reply == Reply::Released)),
        (_, Reply::Cancelled(was) | Reply::Revoked(was)) => writer.integer(i64::from(*was)),
        (_, Reply::Keyed(count)) => writer.integer(i64::from(count.matched)),
        (_, Reply::Renewed(lease_ms)) => {
            writer.map(2);
            status("renewed", writer);
            lease("lease_ms", *lease_ms, writer);
        }
        (_, Reply::Promoted(grant)) => {
            writer.map(3);
            status("promoted", writer);
            number("token", grant.token, writer);
            lease("lease_ms", grant.lease_ms, writer);
        }
        (_, Reply::Busy(blocker)) => {
            writer.map(7);
            status("busy", writer);
            write_blocker(blocker, writer);
        }
        (_, Reply::Lost(loss)) => {
            writer.map(1 + usize::from(loss.is_some()));
            status("lost", writer);
            if let Some(loss) = loss {
                text("cause", cause(loss.cause), writer);
            }
        }
        (_, other) => unreachable!("no command is answered so: {other:?}"),
    }
}

/// The outcome of a lock request, at once or later.
pub(crate) fn write_outcome(id: &RequestId, reply: &Reply, writer: &mut Writer<'_>) {
    let refused = |word, blocker: &Blocker, more: usize, writer: &mut Writer<'_>| {
        writer.map(8 + more);
        status(word, writer);
        request_id(id, writer);
        write_blocker(blocker, writer);
    };
    match reply {
        Reply::Granted(grant) => write_grant(id, grant, writer),
        Reply::Busy(blocker) => refused("busy", blocker, 0, writer),
        Reply::Waiting(blocker) => refused("waiting", blocker, 0, writer),
        Reply::Deadlock(Deadlock { blocker, cycle }) => {
            refused("deadlock", blocker, 1, writer);
            writer.bulk(b"cycle");
            writer.array(cycle.len());
            for owner in cycle {
                writer.bulk(owner.as_bytes());
            }
        }
        Reply::Ended(ended) => {
            writer.map(3);
            status("ended", writer);
            request_id(id, writer);
            text("cause", cause(*ended), writer);
        }
        Reply::Error(error) => write_error(*error, writer),
        other => unreachable!("no lock is answered so: {other:?}"),
    }
}

/// More than a grant with a UUID takes.
const GRANT_BYTES: usize = 192;

pub(crate) fn write_grant(id: &RequestId, grant: &Grant, writer: &mut Writer<'_>) {
    // Said so often that the words are not put together each time, and room is made for all of it at once.
    writer.out.reserve(GRANT_BYTES);
    writer.map(5);
    writer.raw(b"$6\r\nstatus\r\n$7\r\ngranted\r\n$2\r\nid\r\n");
    writer.bulk_with(id.text_len(), |out| id.append_to(out));
    writer.raw(b"$5\r\ntoken\r\n");
    writer.unsigned(grant.token);
    writer.raw(b"$8\r\nlease_ms\r\n");
    match grant.lease_ms {
        Some(left) => writer.unsigned(left),
        None => writer.integer(-1),
    }
    writer.raw(b"$9\r\nwaited_ms\r\n");
    writer.unsigned(grant.waited_ms);
}

/// A request that left the queue without its locks.
pub(crate) fn write_refusal(
    word: &str,
    id: &RequestId,
    blocker: Option<&Blocker>,
    writer: &mut Writer<'_>,
) {
    writer.map(2 + if blocker.is_some() { 6 } else { 0 });
    status(word, writer);
    request_id(id, writer);
    if let Some(blocker) = blocker {
        write_blocker(blocker, writer);
    }
}

/// Six pairs.
fn write_blocker(blocker: &Blocker, writer: &mut Writer<'_>) {
    text("owner", &blocker.owner, writer);
    text("mode", blocker.mode.letter(), writer);
    text("state", state(blocker.state), writer);
    number("token", blocker.token, writer);
    number("held_ms", blocker.held_ms, writer);
    lease("lease_ms", blocker.lease_ms, writer);
}

pub(crate) fn write_error(error: Error, writer: &mut Writer<'_>) {
    let code = match error {
        Error::TooLong(..) | Error::TooMany(..) => "LIMIT",
        Error::IdReused => "IDREUSED",
        _ => "BADARG",
    };
    writer.error(code, &error.to_string());
}

/// The answer to questions, at this table time.
pub(crate) fn write_found(answer: &Answer, found: &[Found], now: u64, writer: &mut Writer<'_>) {
    let keys = || {
        found.iter().map(|found| match found {
            Found::Key(holder) => holder.as_ref(),
            other => unreachable!("a key was asked for: {other:?}"),
        })
    };
    match answer {
        Answer::Locks => {
            let [Found::Entries(entries)] = found else { unreachable!("entries were asked for") };
            writer.array(entries.len());
            for entry in entries {
                write_entry(entry, writer);
            }
        }
        Answer::TaskEntry | Answer::Tasks | Answer::Counts(_) => {
            tasks::write_found(answer, found, now, writer);
        }
        Answer::Exists => writer.unsigned(keys().flatten().count() as u64),
        Answer::Get => match keys().next().flatten() {
            None => writer.null(),
            Some(holder) => match &holder.value {
                Some(value) => writer.bulk(value),
                None => writer.bulk(format!("keylatch:{}", holder.token).as_bytes()),
            },
        },
        Answer::Pttl => match keys().next().flatten() {
            None => writer.integer(-2),
            Some(holder) => match holder.lease_ms {
                None => writer.integer(-1),
                Some(left) => writer.unsigned(left),
            },
        },
        other => unreachable!("not a question: {other:?}"),
    }
}

fn write_entry(entry: &Entry, writer: &mut Writer<'_>) {
    writer.map(11);
    number("seq", entry.seq, writer);
    number("token", entry.token, writer);
    request_id(&entry.id, writer);
    text("name", entry.resource.name(), writer);
    writer.bulk(b"argument");
    writer.array(entry.resource.arity());
    for field in entry.resource.fields() {
        match field {
            Field::Any => writer.bulk(b"@"),
            Field::Text(text) if text.starts_with(['@', '\\']) => {
                writer.bulk(format!("\\{text}").as_bytes());
            }
            Field::Text(text) | Field::Number(text) => writer.bulk(text.as_bytes()),
            Field::Bool(value) => writer.bulk(if value { b"true" } else { b"false" }),
        }
    }
    text("mode", entry.mode.letter(), writer);
    text("owner", &entry.owner, writer);
    text("state", state(entry.state), writer);
    number("held_ms", entry.held_ms, writer);
    lease("lease_ms", entry.lease_ms, writer);
    writer.bulk(b"meta");
    match &entry.meta {
        Some(meta) => writer.bulk(meta.as_bytes()),
        None => writer.null(),
    }
}

pub(crate) fn state(state: State) -> &'static str {
    match state {
        State::Held => "held",
        State::Waiting => "waiting",
    }
}

pub(crate) fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Released => "released",
        Cause::Expired => "expired",
        Cause::Superseded => "superseded",
        Cause::Revoked => "revoked",
    }
}

pub(super) fn status(word: &str, writer: &mut Writer<'_>) {
    text("status", word, writer);
}

pub(super) fn text(name: &str, value: &str, writer: &mut Writer<'_>) {
    writer.bulk(name.as_bytes());
    writer.bulk(value.as_bytes());
}

pub(super) fn request_id(id: &RequestId, writer: &mut Writer<'_>) {
    writer.bulk(b"id");
    writer.bulk_with(id.text_len(), |out| id.append_to(out));
}

pub(super) fn number(name: &str, value: u64, writer: &mut Writer<'_>) {
    writer.bulk(name.as_bytes());
    writer.unsigned(value);
}

/// No lease is -1.
pub(super) fn lease(name: &str, value: Option<u64>, writer: &mut Writer<'_>) {
    writer.bulk(name.as_bytes());
    match value {
        Some(value) => writer.unsigned(value),
        None => writer.integer(-1),
    }
}
