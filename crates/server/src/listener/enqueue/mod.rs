//! The enqueue protocol: JSON objects without framing (`request`), answered by others (`reply`).

mod reply;
mod request;

#[cfg(feature = "fuzzing")]
pub use request::fuzz;

use keylatch_table::{Answer as Found, Blocker, Command, Error, Event, Query, Reply, Target};

use super::{Answer as AnyAnswer, Ask, Fresh, Read};
use crate::clock::Clock;
use crate::turn::Context;
use reply::{ALREADY_EXISTS, DOES_NOT_EXIST, ListEntry};
use request::{Request, Splitter};

pub(crate) use request::js_number;

/// What is known of the bytes of a connection.
pub(crate) struct Session {
    splitter: Splitter,
    /// What the splitter is at work on.
    buffer: Vec<u8>,
}

/// How an answer is written.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Lock(keylatch_table::RequestId),
    Unlock,
    Promote,
    List,
}

impl Session {
    pub(crate) fn new() -> Session {
        Session { splitter: Splitter::new(), buffer: Vec::new() }
    }

    /// Whether it has some of a request, or more than one.
    pub(crate) fn has_bytes(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Takes all of the input, and reads the next request of what it has.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        context: &mut Context<'_>,
        may_block: &mut bool,
    ) -> Read {
        self.buffer.extend_from_slice(input);
        let taken = input.len();
        let request = match self.splitter.next(&mut self.buffer, context.frame_bytes) {
            None if taken == 0 => return Read::Incomplete,
            None => return Read::Nothing(taken),
            Some(Ok(request)) => request,
            Some(Err(malformed)) => {
                let mut out = Vec::new();
                reply::error(&mut out, &malformed.to_string());
                return Read::Ask(taken, Ask::Say(out));
            }
        };
        let change = |command, answer| Ask::Change(command, AnyAnswer::Enqueue(answer));
        let ask = match request {
            Request::Lock(lock) => {
                let shown = context.party().owner;
                let mut ask = lock.into_acquire(context.new_id(), &shown);
                ask.party.principal = context.principal();
                *may_block = ask.wait_ms > 0;
                let answer = Answer::Lock(ask.id.clone());
                change(Command::Acquire(ask), answer)
            }
            Request::Unlock(uuid) => {
                change(Command::Release(Target::Alias(uuid.into())), Answer::Unlock)
            }
            Request::Promote(uuid) => {
                change(Command::Promote(Target::Alias(uuid.into())), Answer::Promote)
            }
            Request::List(filter) => {
                let query = Query::Locks(filter.into_query());
                Ask::Question(vec![query], AnyAnswer::Enqueue(Answer::List), Fresh::Latest)
            }
            Request::Bad(text) => {
                let mut out = Vec::new();
                reply::error(&mut out, &text);
                Ask::Say(out)
            }
        };
        Read::Ask(taken, ask)
    }

    /// Whether the connection ended in the middle of a request: then this is what it is told.
    pub(crate) fn last_words(&self) -> Option<Vec<u8>> {
        let malformed = self.splitter.end().err()?;
        let mut out = Vec::new();
        reply::error(&mut out, &malformed.to_string());
        Some(out)
    }
}

/// The answer to a change.
pub(crate) fn write_answer(answer: &Answer, outcome: &Reply, out: &mut Vec<u8>) {
    match (answer, outcome) {
        (_, Reply::Error(Error::AliasInUse)) => reply::error(out, ALREADY_EXISTS),
        (_, Reply::Error(error)) => reply::error(out, &error.to_string()),
        (_, Reply::Granted(_) | Reply::Released | Reply::Promoted(_)) => reply::ok(out),
        (Answer::Promote, Reply::Busy(blocker)) => {
            reply::promote_refused(out, owner(blocker));
        }
        // Another one was promoted, or it ended otherwise: who asks has lost, and that is RC 2.
        (Answer::Promote, Reply::Lost(_)) => reply::promote_refused(out, None),
        (_, Reply::Busy(blocker) | Reply::Waiting(blocker)) => {
            reply::refused(out, owner(blocker));
        }
        (_, Reply::NotHeld | Reply::Lost(_)) => reply::error(out, DOES_NOT_EXIST),
        (_, other) => unreachable!("no command is answered so: {other:?}"),
    }
}

/// Only an owner that was named: what else is shown of a client means nothing to these clients.
fn owner(blocker: &Blocker) -> Option<&str> {
    blocker.explicit.then_some(&*blocker.owner)
}

/// The outcome of a lock that waited.
pub(crate) fn write_outcome_of(event: &Event, out: &mut Vec<u8>) {
    match event {
        Event::Granted { .. } => reply::ok(out),
        Event::TimedOut { blocker, .. } => reply::refused(out, owner(blocker)),
        Event::Deadlocked { deadlock, .. } => reply::refused(out, owner(&deadlock.blocker)),
        Event::Withdrawn { .. } => reply::error(out, DOES_NOT_EXIST),
        Event::Lost { .. } | Event::Task(_) => unreachable!("not the outcome of a wait"),
    }
}

/// Nothing was done, and why.
pub(crate) fn write_error(text: &str, out: &mut Vec<u8>) {
    reply::error(out, text);
}

/// The answer to a list.
pub(crate) fn write_found(found: &[Found], clock: &Clock, out: &mut Vec<u8>) {
    let [Found::Entries(entries)] = found else { unreachable!("a list was asked for") };
    let entries = entries.iter().map(|entry| ListEntry::new(entry, clock.wall_ms(entry.arrived)));
    reply::list(out, entries);
}
