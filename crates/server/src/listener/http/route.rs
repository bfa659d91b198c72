//! From method and path to what is asked. The same table makes `/openapi.json`.

use keylatch_table::{Command, LocksQuery, Query, RequestId, Target};
use percent_encoding::percent_decode_str;

use super::head::{Head, Method};
use super::problem::Problem;
use super::{JSON, Kind, body, openapi, task_route};
use crate::turn::{Context, LOG_IN};

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Acquire,
    List,
    Show,
    Release,
    Renew,
    Promote,
    Revoke,
    Owners,
    Longest,
    Cluster,
    Events,
    Metrics,
    Live,
    Ready,
    OpenApi,
    Pools,
    CreateTasks,
    ListTasks,
    Claim,
    Retry,
    ShowTask,
    DeleteTask,
    UpdateTask,
    Finish,
    PutBack,
}

impl Op {
    /// Whether the table is asked, and nothing is changed.
    pub(super) fn is_question(self) -> bool {
        use Op::{List, ListTasks, Owners, Pools, Show, ShowTask};
        matches!(self, List | Show | Owners | Pools | ListTasks | ShowTask)
    }
}

/// Method, path and what it is.
pub(super) const ROUTES: [(Method, &str, Op); 25] = [
    (Method::Post, "/v1/locks", Op::Acquire),
    (Method::Get, "/v1/locks", Op::List),
    (Method::Get, "/v1/locks/{id}", Op::Show),
    (Method::Delete, "/v1/locks/{id}", Op::Release),
    (Method::Post, "/v1/locks/{id}/renew", Op::Renew),
    (Method::Post, "/v1/locks/{id}/promote", Op::Promote),
    (Method::Get, "/v1/tasks", Op::Pools),
    (Method::Post, "/v1/tasks/{pool}", Op::CreateTasks),
    (Method::Get, "/v1/tasks/{pool}", Op::ListTasks),
    (Method::Post, "/v1/tasks/{pool}/claim", Op::Claim),
    (Method::Post, "/v1/tasks/{pool}/retry", Op::Retry),
    (Method::Get, "/v1/tasks/{pool}/{key}", Op::ShowTask),
    (Method::Delete, "/v1/tasks/{pool}/{key}", Op::DeleteTask),
    (Method::Patch, "/v1/tasks/{pool}/{key}", Op::UpdateTask),
    (Method::Post, "/v1/tasks/{pool}/{key}/done", Op::Finish),
    (Method::Post, "/v1/tasks/{pool}/{key}/back", Op::PutBack),
    (Method::Post, "/v1/revoke", Op::Revoke),
    (Method::Get, "/v1/owners", Op::Owners),
    (Method::Get, "/v1/longest", Op::Longest),
    (Method::Get, "/v1/cluster", Op::Cluster),
    (Method::Get, "/v1/events", Op::Events),
    (Method::Get, "/metrics", Op::Metrics),
    (Method::Get, "/livez", Op::Live),
    (Method::Get, "/readyz", Op::Ready),
    (Method::Get, "/openapi.json", Op::OpenApi),
];

/// What becomes of a request.
pub(super) enum Asked {
    Change(Command, Kind),
    Changes(Vec<Command>, Kind),
    Question(Query, Kind),
    Events,
    Text(Text),
}

/// An answer that is known already.
pub(super) struct Text {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) etag: Option<String>,
    pub(super) body: String,
}

/// Locks or tasks in a list when nothing is said, and at most.
pub(super) const LIST: usize = 1_000;
pub(super) const LIST_MOST: usize = 10_000;

pub(super) fn ask(head: &Head, body: &[u8], context: &mut Context<'_>) -> Result<Asked, Problem> {
    let (op, words) = find(head)?;
    let id = words.first().map_or("", String::as_str);
    // Without this a page of another site could make a browser send it without being asked.
    if matches!(head.method, Method::Post | Method::Patch) && !head.is_json {
        let text = "say Content-Type: application/json";
        return Err(Problem::new(415, "not_json", text.into()));
    }
    // Whether it runs, and what it speaks, anybody may know.
    let open = matches!(op, Op::Live | Op::Ready | Op::OpenApi);
    if !open && context.must_log_in() {
        context.refuse("ask", LOG_IN);
        return Err(Problem::new(401, "unauthorized", LOG_IN.into()));
    }
    let forbidden = |context: &mut Context<'_>, what| {
        let text = "this tells of all names: it needs the right `observe` on every name";
        context.refuse(what, text);
        Problem::new(403, "forbidden", text.into())
    };
    let target = || Target::Id(RequestId::new(id));
    Ok(match op {
        Op::Acquire => {
            let ask = body::lock(body, context)?;
            let id = ask.id.clone();
            Asked::Change(Command::Acquire(ask), Kind::Lock(id))
        }
        Op::List => {
            let query = list(&head.query)?;
            let limit = query.limit;
            Asked::Question(Query::Locks(query), Kind::List(limit))
        }
        Op::Show => {
            no_query(head)?;
            let if_none_match = head.if_none_match.clone();
            Asked::Question(Query::Request(RequestId::new(id)), Kind::Show { if_none_match })
        }
        Op::Release => Asked::Change(Command::Release(target()), Kind::Release),
        Op::Renew => {
            let renew: body::Renew = body::parse(body)?;
            let lease_ms = renew.lease_ms.map(|whole| whole.0);
            Asked::Change(Command::Renew(target(), lease_ms), Kind::Renew)
        }
        Op::Promote => {
            let body::Nothing {} = body::parse(body)?;
            Asked::Change(Command::Promote(target()), Kind::Promote)
        }
        Op::Revoke => {
            let body::Revoke { token, reason } = body::parse(body)?;
            Asked::Change(Command::Revoke(token.0, reason.into()), Kind::Revoke(token.0))
        }
        Op::Owners => Asked::Question(Query::TopOwners(100), Kind::Owners),
        Op::Longest if !context.may_observe_all() => return Err(forbidden(context, "LONGEST")),
        Op::Metrics if !context.may_observe() => return Err(forbidden(context, "METRICS")),
        Op::Longest => text(200, JSON, context.longest()),
        Op::Cluster if !context.may_observe_all() => return Err(forbidden(context, "CLUSTER")),
        Op::Cluster => {
            let alone = "this server is no member of a cluster: it was started without --peer";
            let alone = || Problem::new(404, "no_cluster", alone.into());
            text(200, JSON, context.cluster().ok_or_else(alone)?)
        }
        Op::Events if head.method == Method::Head && !context.may_observe_all() => {
            return Err(forbidden(context, "EVENTS"));
        }
        // All that there is without a body.
        Op::Events if head.method == Method::Head => text(200, "text/event-stream", String::new()),
        Op::Events => Asked::Events,
        Op::Metrics => text(200, "text/plain; version=0.0.4; charset=utf-8", context.metrics()),
        Op::Live => text(200, "text/plain; charset=utf-8", "ok\n".into()),
        Op::Ready => {
            let verbose = matches!(head.query.as_str(), "verbose" | "verbose=");
            let (ready, report) = context.readiness(verbose && context.may_observe());
            text(if ready { 200 } else { 503 }, "text/plain; charset=utf-8", report)
        }
        Op::OpenApi => {
            let etag = Some(concat!("\"", env!("CARGO_PKG_VERSION"), "\"").into());
            Asked::Text(Text { status: 200, kind: JSON, etag, body: openapi::document() })
        }
        Op::Pools
        | Op::CreateTasks
        | Op::ListTasks
        | Op::Claim
        | Op::Retry
        | Op::ShowTask
        | Op::DeleteTask
        | Op::UpdateTask
        | Op::Finish
        | Op::PutBack => return task_route::ask(op, &words, head, body, context),
    })
}

fn text(status: u16, kind: &'static str, body: String) -> Asked {
    Asked::Text(Text { status, kind, etag: None, body })
}

/// Which of the routes, and what stands in its path for the words in braces.
fn find(head: &Head) -> Result<(Op, Vec<String>), Problem> {
    let method = if head.method == Method::Head { Method::Get } else { head.method };
    let (mut allowed, mut first) = (Vec::new(), None);
    for (of, path, op) in ROUTES {
        let Some(words) = matches(path, &head.path) else { continue };
        // A key may be called `claim`; what is said of that path is what it is for.
        if *first.get_or_insert(path) == path {
            allowed.push(of.word());
        }
        if of != method {
            continue;
        }
        let decode = |word| match percent_decode_str(word).decode_utf8() {
            Ok(word) => Ok(word.into_owned()),
            Err(_) => Err(Problem::new(400, "invalid", "the path is not UTF-8".into())),
        };
        return Ok((op, words.into_iter().map(decode).collect::<Result<_, _>>()?));
    }
    if allowed.is_empty() {
        let text = "there is nothing here; see /openapi.json";
        return Err(Problem::new(404, "no_such_path", text.into()));
    }
    if allowed.contains(&"GET") {
        allowed.push("HEAD");
    }
    let text = "this path has other methods; see /openapi.json";
    let problem = Problem::new(405, "bad_method", text.into());
    Err(Problem { allow: Some(allowed.join(", ")), ..problem })
}

/// What stands for the words in braces, if the path is like this one.
fn matches<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let mut words = Vec::new();
    let mut parts = path.split('/');
    for wanted in pattern.split('/') {
        match parts.next()? {
            part if wanted.starts_with('{') && !part.is_empty() => words.push(part),
            part if part == wanted => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some(words)
}

pub(super) fn no_query(head: &Head) -> Result<(), Problem> {
    match head.query.is_empty() {
        true => Ok(()),
        false => Err(Problem::new(400, "invalid", "this path takes no query".into())),
    }
}

fn list(query: &str) -> Result<LocksQuery, Problem> {
    let invalid = |text: String| Problem::new(400, "invalid", text);
    let mut found = LocksQuery { limit: LIST, ..LocksQuery::default() };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let number = || {
            value.parse::<u64>().map_err(|_| invalid(format!("{name}: '{value}' is not a number")))
        };
        match &*name {
            "name" => found.name = Some((*value).into()),
            "owner" => found.owner = Some((*value).into()),
            "waiters" => {
                found.waiters = match &*value {
                    "" | "true" | "1" => true,
                    "false" | "0" => false,
                    _ => {
                        return Err(invalid(format!(
                            "waiters: '{value}' is neither true nor false"
                        )));
                    }
                }
            }
            "limit" => {
                found.limit = match number()? {
                    limit if (1..=LIST_MOST as u64).contains(&limit) => limit as usize,
                    _ => return Err(invalid(format!("limit is from 1 to {LIST_MOST}"))),
                }
            }
            "cursor" => found.cursor = number()?,
            _ => {
                let known = "name, owner, waiters, limit, cursor";
                return Err(invalid(format!("there is no '{name}' here; there are {known}")));
            }
        }
    }
    Ok(found)
}
