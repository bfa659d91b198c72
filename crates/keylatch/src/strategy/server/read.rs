//! Replies of the server as what they mean.

use std::time::Duration;

use keylatch_table::{
    Blocker, Cause, Deadlock, Entry, Field, Grant, Mode, RequestId, Resource, State, Text,
};
use keylatch_wire::Value;

use super::super::{Granted, Renewed};
use crate::clock::Moment;
use crate::error::{ListError, LockError, PromoteError};
use crate::guard::Lost;

/// What an error says if it is one of those that mean "you may not".
pub(super) fn denied(text: &str) -> Option<String> {
    let (code, reason) = text.split_once(' ')?;
    matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM").then(|| reason.into())
}

/// What an error says if it is that nobody leads the cluster just now. What was asked for may have happened all the
/// same, by an earlier try, whatever the server says of this one.
pub(super) fn leaderless(text: &str) -> Option<String> {
    let none = text.starts_with("NOLEADER ");
    none.then(|| "no leader of the cluster was reached (NOLEADER): try again".into())
}

/// Whether a value says that this connection has to say again who it is.
pub(super) fn is_logged_out(value: &Value) -> bool {
    matches!(value, Value::Error(text) if text.starts_with("NOAUTH "))
}

/// Why a list or an administrator's command was refused.
pub(super) fn refused(text: String) -> ListError {
    denied(&text).map_or(ListError::Refused(text), ListError::Denied)
}

/// What a lock was told: granted, refused, or that it waits.
pub(super) enum Outcome {
    Done(Result<Grant, LockError>),
    Waiting,
}

pub(super) fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value.field(field)?.text()
}

pub(super) fn number(value: &Value, field: &str) -> Option<u64> {
    value.field(field)?.integer().and_then(|number| u64::try_from(number).ok())
}

/// No lease is -1.
pub(super) fn lease(value: &Value) -> Option<u64> {
    number(value, "lease_ms")
}

fn grant(value: &Value) -> Option<Grant> {
    let waited_ms = number(value, "waited_ms").unwrap_or(0);
    Some(Grant { token: number(value, "token")?, lease_ms: lease(value), waited_ms })
}

fn blocker(value: &Value) -> Option<Blocker> {
    Some(Blocker {
        owner: text(value, "owner")?.into(),
        // The protocol does not say; what is shown is taken as named.
        explicit: true,
        mode: Mode::from_letter(text(value, "mode")?)?,
        state: state(value)?,
        token: number(value, "token")?,
        held_ms: number(value, "held_ms")?,
        lease_ms: lease(value),
    })
}

fn state(value: &Value) -> Option<State> {
    match text(value, "state")? {
        "held" => Some(State::Held),
        "waiting" => Some(State::Waiting),
        _ => None,
    }
}

fn cause(value: &Value) -> Option<Cause> {
    cause_of(text(value, "cause")?)
}

pub(super) fn cause_of(word: &str) -> Option<Cause> {
    Some(match word {
        "released" => Cause::Released,
        "expired" => Cause::Expired,
        "superseded" => Cause::Superseded,
        "revoked" => Cause::Revoked,
        _ => return None,
    })
}

/// The answer to `LOCK`, or the push that follows it.
pub(super) fn outcome(value: &Value) -> Outcome {
    if let Value::Error(text) = value {
        if let Some(text) = leaderless(text) {
            return Outcome::Done(Err(LockError::Unknown(text)));
        }
        let invalid = || LockError::Invalid(text.clone());
        return Outcome::Done(Err(denied(text).map_or_else(invalid, LockError::Denied)));
    }
    let understood = || -> Option<Outcome> {
        Some(Outcome::Done(match text(value, "status")? {
            "granted" => Ok(grant(value)?),
            "waiting" => return Some(Outcome::Waiting),
            "busy" => Err(LockError::Busy(blocker(value)?)),
            "timeout" => Err(LockError::TimedOut(blocker(value))),
            "cancelled" => Err(LockError::Cancelled),
            "ended" => Err(LockError::Ended(cause(value)?)),
            "deadlock" => {
                let Some(Value::Array(owners)) = value.field("cycle") else { return None };
                let cycle = owners.iter().filter_map(|owner| Some(owner.text()?.into())).collect();
                Err(LockError::Deadlock(Deadlock { blocker: blocker(value)?, cycle }))
            }
            _ => return None,
        }))
    };
    understood().unwrap_or_else(|| {
        Outcome::Done(Err(LockError::Unknown(format!("not an answer to LOCK: {value:?}"))))
    })
}

/// The answer to `RENEW`; `None` if it is none.
pub(super) fn renewed(value: &Value, since: Moment) -> Option<Renewed> {
    if let Value::Error(text) = value {
        if leaderless(text).is_some() {
            return None;
        }
        let refused = || Renewed::Refused(text.clone());
        return Some(denied(text).map_or_else(refused, Renewed::Denied));
    }
    match text(value, "status")? {
        "renewed" => {
            let end = lease(value).map(|left| since.after(Duration::from_millis(left)));
            Some(Renewed::Until(end))
        }
        "lost" => Some(known_loss(value).map_or(Renewed::NotHeld, Renewed::Lost)),
        _ => None,
    }
}

pub(super) fn promoted(value: &Value, since: Moment) -> Result<Granted, PromoteError> {
    if let Value::Error(text) = value {
        if let Some(text) = leaderless(text) {
            return Err(PromoteError::Unknown(text));
        }
        let invalid = || PromoteError::Invalid(text.clone());
        return Err(denied(text).map_or_else(invalid, PromoteError::Denied));
    }
    let unknown = || PromoteError::Unknown(format!("not an answer to PROMOTE: {value:?}"));
    match text(value, "status") {
        Some("promoted") => Ok(Granted { grant: grant(value).ok_or_else(unknown)?, since }),
        Some("busy") => Err(PromoteError::Busy(blocker(value).ok_or_else(unknown)?)),
        Some("lost") => Err(known_loss(value).map_or(PromoteError::NotHeld, PromoteError::Lost)),
        _ => Err(unknown()),
    }
}

/// Of a push: it was held.
pub(super) fn lost(value: &Value) -> Lost {
    known_loss(value).unwrap_or(Lost::Expired)
}

/// Why it is not held, if the server knows.
fn known_loss(value: &Value) -> Option<Lost> {
    let detail: Option<Text> = text(value, "reason").map(Into::into);
    cause(value).map(|cause| Lost::from_cause(cause, detail))
}

pub(super) fn entries(value: &Value) -> Result<Vec<Entry>, ListError> {
    match value {
        Value::Error(text) => Err(refused(text.clone())),
        Value::Array(values) => values
            .iter()
            .map(|value| {
                entry(value).ok_or_else(|| ListError::Refused(format!("not a lock: {value:?}")))
            })
            .collect(),
        other => Err(ListError::Refused(format!("not a list: {other:?}"))),
    }
}

fn entry(value: &Value) -> Option<Entry> {
    let Some(Value::Array(argument)) = value.field("argument") else { return None };
    let fields: Vec<Field<'_>> = argument.iter().map(field).collect::<Option<_>>()?;
    Some(Entry {
        seq: number(value, "seq")?,
        token: number(value, "token")?,
        id: RequestId::new(text(value, "id")?),
        resource: Resource::new(text(value, "name")?, &fields).ok()?,
        mode: Mode::from_letter(text(value, "mode")?)?,
        owner: text(value, "owner")?.into(),
        explicit: true,
        principal: None,
        state: state(value)?,
        held_ms: number(value, "held_ms")?,
        lease_ms: lease(value),
        arrived: 0,
        wait_ms: 0,
        lease_asked_ms: 0,
        meta: text(value, "meta").map(Into::into),
        alias: None,
    })
}

/// As it is written in a request: a bare `@` is the wildcard, a backslash quotes.
fn field(value: &Value) -> Option<Field<'_>> {
    Some(match value.text()? {
        "@" => Field::Any,
        text => Field::Text(text.strip_prefix('\\').unwrap_or(text)),
    })
}
