//! The protocols: from bytes to asks, and from replies to bytes. Nothing here touches a socket or
//! the table.

pub(crate) mod enqueue;
pub(crate) mod http;
pub(crate) mod resp;

use keylatch_table::{Command, Query};
use keylatch_wire::Writer;

/// What a connection speaks, and the state of that.
pub(crate) enum Speaks {
    Resp(resp::Session),
    Enqueue(enqueue::Session),
    Http(http::Session),
}

impl Speaks {
    /// How long a request can be whose frame, or body, has at most so many bytes.
    pub(crate) fn most_bytes(&self, frame_bytes: usize) -> usize {
        match self {
            Speaks::Resp(_) | Speaks::Enqueue(_) => frame_bytes,
            Speaks::Http(_) => frame_bytes.saturating_add(http::HEAD_BYTES),
        }
    }

    /// Whether it has something to read that is not in the input any more.
    pub(crate) fn has_in_hand(&self) -> bool {
        matches!(self, Speaks::Enqueue(session) if session.has_bytes())
    }

    /// Nothing was done, and why.
    pub(crate) fn error(&self, code: &str, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Speaks::Resp(session) => {
                Writer { out: &mut out, protocol: session.protocol }.error(code, text);
            }
            Speaks::Enqueue(_) => enqueue::write_error(text, &mut out),
            Speaks::Http(_) => {
                return http::unavailable("unavailable", text, http::Meta::closing());
            }
        }
        out
    }
}

/// What one request asks for, and how it wants to be answered.
pub(crate) enum Ask {
    /// A change.
    Change(Command, Answer),
    /// Several changes that have one answer.
    Changes(Vec<Command>, Answer),
    /// A question; several for one answer.
    Question(Vec<Query>, Answer, Fresh),
    /// Answered already.
    Say(Vec<u8>),
    /// All events from now on; the connection is for nothing else any more.
    Events(http::EventsFrom),
}

/// What a member of a cluster may answer a question with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// Everything that was acknowledged before is in it.
    Latest,
    /// What it knows itself. It is answered without a leader.
    Stale,
}

impl Fresh {
    pub(crate) fn or_stale(stale: bool) -> Fresh {
        if stale { Fresh::Stale } else { Fresh::Latest }
    }
}

/// How the answer is written.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Resp(resp::Answer),
    Enqueue(enqueue::Answer),
    Http(http::Answer),
}

impl Answer {
    /// Whether the connection is closed behind it.
    pub(crate) fn closes(&self) -> bool {
        matches!(self, Answer::Http(answer) if answer.meta.close)
    }
}

/// What reading one request from the input came to.
pub(crate) enum Read {
    /// It is not complete.
    Incomplete,
    /// So many bytes were taken, and this is asked.
    Ask(usize, Ask),
    /// Nothing is asked; so many bytes were taken.
    Nothing(usize),
    /// Say this and close: what follows cannot be understood.
    Broken(Vec<u8>),
}
