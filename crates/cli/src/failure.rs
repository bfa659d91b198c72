//! What is said when a command fails: for people a sentence, with `-o json` an object that has a
//! `status` word for programs beside the same sentence as `error`.

use std::io::Write;

use keylatch::{
    ChangeError, ClaimError, ConnectError, ListError, LockError, Lost, PromoteError, Released,
    RenewError, TaskError,
};
use keylatch_server::access::AccessError;
use serde_json::{Value, json};

/// What became of a release that was none.
#[derive(Debug)]
pub(crate) struct NotReleased(pub(crate) Released);

impl std::fmt::Display for NotReleased {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Released::Unknown => {
                "nobody answers: it may be released or not; it ends with its lease"
            }
            _ => "nothing is held under this id: it has ended, or never was",
        })
    }
}

impl std::error::Error for NotReleased {}

/// Nothing to revoke.
#[derive(Debug)]
pub(crate) struct NoGrant(pub(crate) u64);

impl std::fmt::Display for NoGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no grant has the token {}", self.0)
    }
}

impl std::error::Error for NoGrant {}

/// No token to revoke.
#[derive(Debug)]
pub(crate) struct NoToken(pub(crate) String);

impl std::fmt::Display for NoToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no token has the id '{}'; `keylatch token list` shows them", self.0)
    }
}

impl std::error::Error for NoToken {}

pub(crate) fn tell(is_json: bool, error: &anyhow::Error) {
    let text = format!("{error:#}");
    let mut out = std::io::stderr().lock();
    // If nobody hears it, the exit code is left.
    drop(match is_json {
        true => writeln!(out, "{}", json_of(error, &text)),
        false => writeln!(out, "keylatch: {text}"),
    });
}

/// A command line that is not understood.
pub(crate) fn tell_misuse(text: &str) {
    let text = text.trim_end().trim_start_matches("error: ");
    drop(writeln!(std::io::stderr(), "{}", json!({"status": "misused", "error": text})));
}

fn json_of(error: &anyhow::Error, text: &str) -> Value {
    let (status, lost) = status(error);
    let mut object = json!({"status": status, "error": text});
    if let Some(lost) = lost {
        let (cause, reason) = cause(lost);
        object["cause"] = cause.into();
        object["reason"] = reason.into();
    }
    object
}

/// One word for each kind of failure, in those of the protocol where it has them.
fn status(error: &anyhow::Error) -> (&'static str, Option<&Lost>) {
    if let Some(error) = error.downcast_ref::<LockError>() {
        let word = match error {
            LockError::Busy(_) => "busy",
            LockError::TimedOut(_) => "timeout",
            LockError::Deadlock(_) => "deadlock",
            LockError::Ended(_) => "ended",
            LockError::Cancelled => "cancelled",
            LockError::Invalid(_) => "invalid",
            LockError::Denied(_) => "denied",
            LockError::Unreachable(_) => "unreachable",
            LockError::Unknown(_) => "unknown",
        };
        return (word, None);
    }
    if let Some(error) = error.downcast_ref::<RenewError>() {
        return match error {
            RenewError::Lost(lost) => ("lost", Some(lost)),
            RenewError::NotHeld => ("not held", None),
            RenewError::Invalid(_) => ("invalid", None),
            RenewError::Denied(_) => ("denied", None),
            RenewError::Unknown(_) => ("unknown", None),
        };
    }
    if let Some(error) = error.downcast_ref::<PromoteError>() {
        return match error {
            PromoteError::Busy(_) => ("busy", None),
            PromoteError::Lost(lost) => ("lost", Some(lost)),
            PromoteError::NotHeld => ("not held", None),
            PromoteError::Invalid(_) => ("invalid", None),
            PromoteError::Denied(_) => ("denied", None),
            PromoteError::Unknown(_) => ("unknown", None),
        };
    }
    let word = if let Some(word) = task_status(error) {
        word
    } else if let Some(error) = error.downcast_ref::<ConnectError>() {
        match error {
            ConnectError::Configuration(_) | ConnectError::Url(_) => "invalid",
            ConnectError::Unreachable(_) => "unreachable",
            ConnectError::Refused(_) => "refused",
            ConnectError::Denied(_) => "denied",
        }
    } else if let Some(error) = error.downcast_ref::<ListError>() {
        match error {
            ListError::Refused(_) => "refused",
            ListError::Denied(_) => "denied",
            ListError::Unreachable(_) => "unreachable",
        }
    } else if let Some(NotReleased(released)) = error.downcast_ref() {
        match released {
            Released::Unknown => "unknown",
            _ => "not held",
        }
    } else if error.is::<NoGrant>() {
        "not held"
    } else if error.is::<NoToken>() {
        "not found"
    } else if error.is::<AccessError>() {
        "invalid"
    } else {
        "failed"
    };
    (word, None)
}

/// The same, of tasks.
fn task_status(error: &anyhow::Error) -> Option<&'static str> {
    let of_any = |error: &TaskError| match error {
        TaskError::Invalid(_) => "invalid",
        TaskError::Denied(_) => "denied",
        TaskError::Unreachable(_) => "unreachable",
        TaskError::Unknown(_) => "unknown",
    };
    if let Some(error) = error.downcast_ref::<ClaimError>() {
        return Some(match error {
            ClaimError::Refused(_) => "refused",
            ClaimError::Cancelled => "cancelled",
            ClaimError::Ended => "ended",
            ClaimError::Task(error) => of_any(error),
        });
    }
    if let Some(error) = error.downcast_ref::<ChangeError>() {
        return Some(match error {
            ChangeError::Stale(_) => "stale",
            ChangeError::NotFound => "not found",
            ChangeError::Refused(_) => "refused",
            ChangeError::Task(error) => of_any(error),
        });
    }
    error.downcast_ref::<TaskError>().map(of_any)
}

/// Why something was lost, in the words of the protocol, and what is known besides.
pub(crate) fn cause(lost: &Lost) -> (&'static str, Option<&str>) {
    match lost {
        Lost::Expired => ("expired", None),
        Lost::Superseded(by) => ("superseded", by.as_deref()),
        Lost::Revoked(reason) => ("revoked", reason.as_deref()),
        Lost::Unreachable => ("unreachable", None),
        Lost::Released => ("released", None),
    }
}

/// Whether the command line asks for JSON, also if the rest of it is wrong.
pub(crate) fn wants_json(words: impl Iterator<Item = std::ffi::OsString>) -> bool {
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.take_while(|word| word != "--").collect();
    let value = |word: &String| matches!(word.as_str(), "-ojson" | "-o=json" | "--output=json");
    let pair = |pair: &[String]| matches!(&*pair[0], "-o" | "--output") && pair[1] == "json";
    words.iter().any(value) || words.windows(2).any(pair)
}
