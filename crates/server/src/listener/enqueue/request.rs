//! Bytes to requests, for the enqueue listener. No I/O: the connection feeds [`Splitter`] what it
//! reads and carries out the [`Request`]s that come out.
//!
//! `split` (where a request ends) -> `scan` (the JSON grammar) -> here (what it says) -> `number`
//! (what JavaScript makes of numbers).
//!
//! Decoding takes two steps, because a JSON library would round a number before we see it: serde
//! hands out the members as their raw text, and each is read here as JavaScript reads it. (The
//! feature `arbitrary_precision` keeps the text as well, but it changes `Number` for the whole
//! workspace; `raw_value` only adds a type.)

#[cfg(feature = "fuzzing")]
mod fuzz;
mod number;
mod scan;
mod split;
#[cfg(test)]
mod tests;

use std::fmt;

use keylatch_table::{ANY, ResourceError};
use keylatch_table::{Acquire, Extra, Field, LocksQuery, Mode, Part, Party, RequestId, Resource};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The canonical text of a number in a field: the same on every port that takes JSON.
pub(crate) use number::js_text as js_number;

#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
#[cfg(test)]
use split::Malformed;
pub(crate) use split::Splitter;

/// The timeout of a lock that asks for none: 15 minutes, as the original server has it.
pub(crate) const DEFAULT_TIMEOUT_MS: u64 = 900_000;

/// What a lock whose `argument` is anything but an array is told, word for word as by the original.
pub(crate) const ARGUMENT_MUST_BE_ARRAY: &str = "Lock argument must be array!";

/// The field that is the wildcard. This protocol has no escape: every other string is literal.
const WILDCARD: &str = "@";

/// What a peer asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// OP 1.
    Lock(Lock),
    /// OP 2: give up the lock with this uuid.
    Unlock(String),
    /// OP 3: turn the lock with this uuid into E.
    Promote(String),
    /// OP 4.
    List(Filter),
    /// A JSON value that asks for nothing we know: RC 4 with this text, and the connection goes on.
    Bad(String),
}

/// A lock that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// What.
    pub(crate) resource: Resource,
    /// How.
    pub(crate) mode: Mode,
    /// The explicit owner; never empty.
    pub(crate) owner: Option<String>,
    /// How long to queue; 0 never queues.
    pub(crate) wait_ms: u64,
    /// How long it is held at most; never 0, which the table would take for ever.
    pub(crate) timeout_ms: u64,
    /// The name that the client will use for it; never empty.
    pub(crate) uuid: String,
}

impl Lock {
    /// The command's content. The client's uuid can be guessed and comes back, so it is only the
    /// alias of an `id` that the server makes. `shown` stands for a client that named no owner.
    pub(crate) fn into_acquire(self, id: RequestId, shown: &str) -> Acquire {
        let party = self.owner.as_deref().map_or_else(|| Party::client(shown), Party::owner);
        Acquire {
            id,
            part: Part::new(self.resource, self.mode),
            also: Vec::new(),
            party,
            wait_ms: self.wait_ms,
            lease_ms: self.timeout_ms,
            detect: false,
            extra: Some(Box::new(Extra { alias: Some(self.uuid.into()), ..Extra::default() })),
        }
    }
}

/// Which locks to list: what is given must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Only this name; never empty.
    pub(crate) name: Option<String>,
    /// Only this owner; never empty.
    pub(crate) owner: Option<String>,
}

impl Filter {
    /// The question to the table: all that match, waiters like holders.
    pub(crate) fn into_query(self) -> LocksQuery {
        LocksQuery {
            name: self.name.map(Into::into),
            owner: self.owner.map(Into::into),
            waiters: true,
            limit: 0,
            cursor: 0,
        }
    }
}

/// The members of a request. `null` and missing are the same in all of them. Others (the client's
/// `reqUUID`, say) are ignored, but the same one twice is an error: which would count?
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "OP")]
    op: Option<&'a RawValue>,
    #[serde(borrow, rename = "eleLock")]
    lock: Option<&'a RawValue>,
    #[serde(borrow, rename = "lockUUID")]
    uuid: Option<&'a RawValue>,
    #[serde(borrow, rename = "lockName")]
    name: Option<&'a RawValue>,
    #[serde(borrow, rename = "lockOwner")]
    owner: Option<&'a RawValue>,
}

/// The members of `eleLock`.
#[derive(Deserialize)]
struct Elementary<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    argument: Option<&'a RawValue>,
    #[serde(borrow)]
    mode: Option<&'a RawValue>,
    #[serde(borrow)]
    owner: Option<&'a RawValue>,
    #[serde(borrow, rename = "waitTime")]
    wait: Option<&'a RawValue>,
    #[serde(borrow)]
    timeout: Option<&'a RawValue>,
    #[serde(borrow)]
    uuid: Option<&'a RawValue>,
}

/// Why a whole JSON object is no request. The texts are for the people who write clients.
#[derive(Debug)]
enum Refusal {
    Missing(&'static str),
    Wrong {
        member: &'static str,
        wanted: &'static str,
    },
    UnknownOp,
    UnknownMode,
    ArgumentNotArray,
    BadField,
    Resource(ResourceError),
    /// JSON that Rust cannot hold (half a surrogate pair), or a member that is given twice.
    Json(serde_json::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Missing(member) => write!(f, "{member} is missing!"),
            Refusal::Wrong { member, wanted } => write!(f, "{member} must be {wanted}!"),
            Refusal::UnknownOp => {
                f.write_str("Unknown OP: 1 is lock, 2 unlock, 3 promote and 4 list!")
            }
            Refusal::UnknownMode => f.write_str("Unknown lock mode: there are S, E, X and O!"),
            Refusal::ArgumentNotArray => f.write_str(ARGUMENT_MUST_BE_ARRAY),
            Refusal::BadField => {
                f.write_str("Each item of a lock argument must be a string, number or boolean!")
            }
            Refusal::Resource(error) => write!(f, "Bad lock: {error}!"),
            Refusal::Json(error) => write!(f, "Bad request: {error}!"),
        }
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Refusal {
        Refusal::Json(error)
    }
}

/// Reads one JSON object.
fn from_json(json: &str) -> Request {
    read(json).unwrap_or_else(|refusal| Request::Bad(refusal.to_string()))
}

fn read(json: &str) -> Result<Request, Refusal> {
    let envelope: Envelope<'_> = serde_json::from_str(json)?;
    match identifier("OP", envelope.op)?.as_str() {
        "1" => Ok(Request::Lock(read_lock(envelope.lock)?)),
        "2" => Ok(Request::Unlock(identifier("lockUUID", envelope.uuid)?)),
        "3" => Ok(Request::Promote(identifier("lockUUID", envelope.uuid)?)),
        "4" => Ok(Request::List(Filter {
            name: optional_text("lockName", envelope.name)?,
            owner: optional_text("lockOwner", envelope.owner)?,
        })),
        _ => Err(Refusal::UnknownOp),
    }
}

fn read_lock(raw: Option<&RawValue>) -> Result<Lock, Refusal> {
    let raw = raw.ok_or(Refusal::Missing("eleLock"))?.get();
    // serde would also take an array for a struct.
    if !raw.starts_with('{') {
        return Err(Refusal::Wrong { member: "eleLock", wanted: "an object" });
    }
    let lock: Elementary<'_> = serde_json::from_str(raw)?;
    let items = read_items(lock.argument)?;
    let name = match Value::read(lock.name)? {
        Value::Missing => return Err(Refusal::Missing("name")),
        Value::Text(name) if !name.is_empty() => name,
        _ => return Err(Refusal::Wrong { member: "name", wanted: "a string that is not empty" }),
    };
    let mode = match Value::read(lock.mode)? {
        Value::Missing => return Err(Refusal::Missing("mode")),
        Value::Text(letter) => Mode::from_letter(&letter).ok_or(Refusal::UnknownMode)?,
        _ => return Err(Refusal::UnknownMode),
    };
    let fields = items.iter().map(Item::field).collect::<Vec<_>>();
    Ok(Lock {
        resource: Resource::new(&name, &fields).map_err(Refusal::Resource)?,
        mode,
        owner: optional_text("owner", lock.owner)?,
        wait_ms: milliseconds("waitTime", lock.wait)?.unwrap_or(0),
        timeout_ms: milliseconds("timeout", lock.timeout)?.unwrap_or(DEFAULT_TIMEOUT_MS),
        uuid: identifier("uuid", lock.uuid)?,
    })
}

/// One item of `argument`, which [`Field`] borrows from.
enum Item {
    Text(String),
    Number(String),
    Bool(bool),
}

impl Item {
    fn field(&self) -> Field<'_> {
        match self {
            Item::Text(text) if text == WILDCARD => ANY,
            Item::Text(text) => Field::Text(text),
            Item::Number(text) => Field::Number(text),
            Item::Bool(value) => Field::Bool(*value),
        }
    }
}

fn read_items(raw: Option<&RawValue>) -> Result<Vec<Item>, Refusal> {
    let raw = raw.map_or("", RawValue::get);
    if !raw.starts_with('[') {
        return Err(Refusal::ArgumentNotArray);
    }
    let items: Vec<&RawValue> = serde_json::from_str(raw)?;
    if items.len() > Resource::FIELDS {
        return Err(Refusal::Resource(ResourceError::TooManyFields));
    }
    let item = |raw| match Value::read(Some(raw))? {
        Value::Text(text) => Ok(Item::Text(text)),
        Value::Number(value) if value.is_finite() => Ok(Item::Number(number::js_text(value))),
        Value::Bool(value) => Ok(Item::Bool(value)),
        _ => Err(Refusal::BadField),
    };
    items.into_iter().map(item).collect()
}

/// A member as JavaScript sees it.
enum Value {
    /// Or `null`.
    Missing,
    Bool(bool),
    /// May be infinite: `1e999`.
    Number(f64),
    Text(String),
    /// An object or array; its content is nobody's business here.
    Nested,
}

impl Value {
    fn read(raw: Option<&RawValue>) -> Result<Value, Refusal> {
        let text = raw.map_or("null", RawValue::get);
        Ok(match text.as_bytes().first() {
            Some(b'n') => Value::Missing,
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            Some(b'"') => Value::Text(serde_json::from_str(text)?),
            Some(b'{' | b'[') => Value::Nested,
            _ => Value::Number(text.parse().expect("the scan saw a number here")),
        })
    }

    /// What JavaScript takes for false in an `if`.
    fn is_falsy(&self) -> bool {
        match self {
            Value::Missing | Value::Bool(false) => true,
            Value::Number(value) => *value == 0.0,
            Value::Text(text) => text.is_empty(),
            Value::Bool(true) | Value::Nested => false,
        }
    }
}

/// A string that is not empty, or a number's text.
fn identifier(member: &'static str, raw: Option<&RawValue>) -> Result<String, Refusal> {
    match Value::read(raw)? {
        Value::Missing => Err(Refusal::Missing(member)),
        Value::Text(text) if !text.is_empty() => Ok(text),
        Value::Number(value) if value.is_finite() => Ok(number::js_text(value)),
        _ => Err(Refusal::Wrong { member, wanted: "a string that is not empty" }),
    }
}

/// A string, or nothing if falsy. Not a number: owners and names are equal only if they are of one
/// type, and the table knows only text.
fn optional_text(member: &'static str, raw: Option<&RawValue>) -> Result<Option<String>, Refusal> {
    match Value::read(raw)? {
        value if value.is_falsy() => Ok(None),
        Value::Text(text) => Ok(Some(text)),
        _ => Err(Refusal::Wrong { member, wanted: "a string" }),
    }
}

/// A number, or a string that holds one; nothing if falsy, and the string of a zero counts as that.
fn milliseconds(member: &'static str, raw: Option<&RawValue>) -> Result<Option<u64>, Refusal> {
    let value = match Value::read(raw)? {
        value if value.is_falsy() => return Ok(None),
        Value::Number(value) => Some(value),
        Value::Text(text) => number::from_text(&text),
        _ => None,
    };
    let wrong = Refusal::Wrong { member, wanted: "a number of milliseconds, 0 or more" };
    let ms = value.and_then(number::whole_ms).ok_or(wrong)?;
    Ok(Some(ms).filter(|ms| *ms > 0))
}
