//! HTTP/1.1 with JSON: the same requests, on the same path, as on every other port.
//!
//! A request is a head and, of a known length, a body. A lock that waits blocks its connection, like
//! any other; after `http_answer` it is told that it still waits, because proxies give up on an answer
//! that takes longer, and asks again under its id.

mod answer;
mod body;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod head;
mod openapi;
mod problem;
mod route;
mod task_body;
mod task_route;
mod tasks;

#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;

use std::time::Instant;

use keylatch_table::{Command, RequestId, TaskAction, Text};

use super::{Answer as AnyAnswer, Ask, Fresh, Read};
use crate::listener::resp::Changes;
use crate::turn::Context;
pub(crate) use answer::{write_answer, write_found, write_outcome_of, write_still_waiting};
pub(crate) use head::HEAD_BYTES;
use head::{Head, Method};
pub(crate) use problem::Problem;
pub(crate) use tasks::write_answers;

/// One connection's state.
#[derive(Default)]
pub(crate) struct Session {
    /// The answer that it waits for.
    pub(crate) waiting: Option<Waiting>,
    /// It is one too many, and let in for a probe only.
    only_probes: bool,
}

/// What tells how the server is. A busy one is not a dead one, so these are answered beyond the bound on connections.
const PROBES: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// What is said to whoever is one too many.
pub(crate) const TOO_MANY: &str = "too many connections; close some or raise `connections`";

/// A lock or a task that is waited for.
pub(crate) struct Waiting {
    pub(crate) id: RequestId,
    pub(crate) since: Instant,
    meta: Meta,
}

/// How any answer to a request is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The connection is closed behind it.
    pub(crate) close: bool,
    /// It is to have no body (`HEAD`).
    bare: bool,
}

impl Meta {
    /// Of an answer behind which the connection is closed.
    pub(crate) fn closing() -> Meta {
        Meta { close: true, bare: false }
    }
}

/// How the answer is written.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    pub(crate) meta: Meta,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Lock(RequestId),
    Release,
    Renew,
    Promote,
    Revoke(u64),
    /// How many at most.
    List(usize),
    /// One request, unless it is this one still.
    Show {
        if_none_match: Option<String>,
    },
    Owners,
    Claim(RequestId),
    /// A task with this pool and key.
    Create {
        pool: Text,
        key: Text,
    },
    /// Tasks with these keys.
    CreateMany(Vec<Text>),
    /// Any other change to tasks.
    Task,
    /// One task, unless it is this version still.
    ShowTask {
        if_none_match: Option<String>,
    },
    /// How many at most.
    Tasks(usize),
    Pools,
}

/// Events from behind this one on, or from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventsFrom(pub(crate) Option<String>);

impl Session {
    /// Of a connection beyond the bound: one probe is answered.
    pub(crate) fn for_a_probe() -> Session {
        Session { waiting: None, only_probes: true }
    }

    /// Reads the next request.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        context: &mut Context<'_>,
        changes: &mut Changes,
    ) -> Read {
        if input.is_empty() {
            return Read::Incomplete;
        }
        let broken = |problem: &Problem| {
            let mut out = Vec::new();
            write_problem(problem, Meta::closing(), &mut out);
            Read::Broken(out)
        };
        let (mut head, head_bytes) = match Head::read(input, context.hosts) {
            Ok(Some(read)) => read,
            Ok(None) => return Read::Incomplete,
            Err(problem) => return broken(&problem),
        };
        if head.body_bytes > context.frame_bytes {
            return broken(&Problem::too_large(context.frame_bytes));
        }
        let taken = head_bytes + head.body_bytes;
        if input.len() < taken {
            return Read::Incomplete;
        }
        let close = head.close || self.only_probes;
        let meta = Meta { close, bare: head.method == Method::Head };
        if self.only_probes && !PROBES.contains(&head.path.as_str()) {
            changes.close = true;
            return Read::Ask(taken, Ask::Say(unavailable("unavailable", TOO_MANY, meta)));
        }
        // Each request says who it is; the one before it counts for nothing.
        context.log_in_silently();
        if let Some(token) = &head.bearer
            && context.has_tokens()
            && !context.log_in(token)
        {
            changes.close = meta.close;
            return Read::Ask(taken, Ask::Say(refusal("NOAUTH", "this token is not known", meta)));
        }
        let asked = head.take_stale();
        let asked = asked.and_then(|()| route::ask(&head, &input[head_bytes..taken], context));
        let ask = match asked {
            Ok(route::Asked::Change(command, kind)) => {
                if let Some(id) = may_wait(&kind, &command) {
                    changes.may_block = true;
                    self.waiting = Some(Waiting { id: id.clone(), since: Instant::now(), meta });
                }
                Ask::Change(command, AnyAnswer::Http(Answer { kind, meta }))
            }
            Ok(route::Asked::Changes(commands, kind)) => {
                Ask::Changes(commands, AnyAnswer::Http(Answer { kind, meta }))
            }
            Ok(route::Asked::Question(query, kind)) => {
                let fresh = Fresh::or_stale(head.stale);
                Ask::Question(vec![query], AnyAnswer::Http(Answer { kind, meta }), fresh)
            }
            Ok(route::Asked::Events) => {
                return Read::Ask(taken, Ask::Events(EventsFrom(head.last_event_id)));
            }
            Ok(route::Asked::Text(text)) => {
                changes.close = meta.close;
                let mut out = Vec::new();
                let etag = text.etag.as_deref().map(|etag| ("ETag", etag));
                let etag = etag.as_slice();
                if text.etag.is_some() && text.etag == head.if_none_match {
                    write(304, text.kind, etag, b"", meta, &mut out);
                } else {
                    write(text.status, text.kind, etag, text.body.as_bytes(), meta, &mut out);
                }
                Ask::Say(out)
            }
            Err(problem) => {
                changes.close = meta.close;
                let mut out = Vec::new();
                write_problem(&problem, meta, &mut out);
                Ask::Say(out)
            }
        };
        Read::Ask(taken, ask)
    }
}

/// The id of a request that is told of its outcome when there is one.
fn may_wait<'k>(kind: &'k Kind, command: &Command) -> Option<&'k RequestId> {
    match (kind, command) {
        (Kind::Lock(id), Command::Acquire(ask)) => (ask.wait_ms > 0).then_some(id),
        (Kind::Claim(id), Command::Task(task)) => match &task.action {
            TaskAction::Claim(claim) => (claim.wait_ms > 0).then_some(id),
            _ => None,
        },
        _ => None,
    }
}

/// What is said to one who may not do this, or has not said who it is.
pub(crate) fn refusal(code: &'static str, text: &str, meta: Meta) -> Vec<u8> {
    let (status, code) = match code {
        "NOAUTH" => (401, "unauthorized"),
        "IDREUSED" => (409, "id_reused"),
        _ => (403, "forbidden"),
    };
    let mut out = Vec::new();
    write_problem(&Problem::new(status, code, text.into()), meta, &mut out);
    out
}

/// What is said to one who cannot be served now, whatever was asked.
pub(crate) fn unavailable(code: &'static str, text: &str, meta: Meta) -> Vec<u8> {
    let mut out = Vec::new();
    write_problem(&Problem::new(503, code, text.into()), meta, &mut out);
    out
}

/// The beginning of a stream of events.
pub(crate) const EVENTS_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
    Cache-Control: no-store\r\nX-Accel-Buffering: no\r\nConnection: close\r\n\r\n: events follow\n\n";

fn write_problem(problem: &Problem, meta: Meta, out: &mut Vec<u8>) {
    let allow = problem.allow.as_deref().map(|methods| ("Allow", methods));
    write(problem.status, PROBLEM, allow.as_slice(), &problem.body(), meta, out);
}

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// One answer.
fn write(
    status: u16,
    kind: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    meta: Meta,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    let mut number = itoa::Buffer::new();
    out.extend_from_slice(number.format(status).as_bytes());
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    for (name, value) in headers {
        for part in ["\r\n", *name, ": ", *value] {
            out.extend_from_slice(part.as_bytes());
        }
    }
    if status == 401 {
        out.extend_from_slice(b"\r\nWWW-Authenticate: Bearer");
    }
    if matches!(status, 202 | 429 | 503) {
        out.extend_from_slice(if status == 202 {
            b"\r\nRetry-After: 0"
        } else {
            b"\r\nRetry-After: 1"
        });
    }
    // What is answered holds for a moment, and may be secret.
    out.extend_from_slice(b"\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff");
    if meta.close {
        out.extend_from_slice(b"\r\nConnection: close");
    }
    if !matches!(status, 204 | 304) {
        out.extend_from_slice(b"\r\nContent-Type: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\r\nContent-Length: ");
        out.extend_from_slice(number.format(body.len()).as_bytes());
    }
    out.extend_from_slice(b"\r\n\r\n");
    if !meta.bare && !matches!(status, 204 | 304) {
        out.extend_from_slice(body);
    }
}

/// What a status is called.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    }
}
