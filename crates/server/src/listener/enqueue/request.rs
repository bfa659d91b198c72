//! Bytes to requests, for the enqueue listener. No I/O: the connection feeds [`Splitter`] what it
//! reads and carries out the [`Request`]s that come out.
//!
//! `split` (where a request ends) -> `scan` (the JSON grammar) -> here (what it says) -> `members` (its parts) ->
//! `number` (what JavaScript makes of numbers).
//!
//! A JSON library would round a number before we see it, and read again what the scan has read. So `members` cuts
//! a request into the text of its members, and each of those is read here as JavaScript reads it.

#[cfg(feature = "fuzzing")]
mod fuzz;
mod members;
mod number;
mod scan;
mod split;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use keylatch_table::{ANY, ResourceError};
use keylatch_table::{Acquire, Extra, Field, LocksQuery, Mode, Part, Party, RequestId, Resource};

use members::Walk;

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
            extra: Extra { alias: Some(self.uuid.into()), ..Extra::default() }.into(),
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
    /// Which of the two would count?
    Twice(&'static str),
    /// JSON that Rust cannot hold: half a surrogate pair.
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
            Refusal::Twice(member) => write!(f, "{member} is given twice!"),
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

/// What an object says of these names, as it is written. Other members (the client's `reqUUID`, say) are ignored.
struct Members<'a, const COUNT: usize> {
    names: [&'static str; COUNT],
    found: [Option<&'a str>; COUNT],
}

impl<'a, const COUNT: usize> Members<'a, COUNT> {
    fn new(names: [&'static str; COUNT]) -> Members<'a, COUNT> {
        Members { names, found: [None; COUNT] }
    }

    fn add(&mut self, name: &str, value: Option<&'a str>) -> Result<(), Refusal> {
        let Some(at) = self.names.iter().position(|known| *known == name) else { return Ok(()) };
        if self.found[at].is_some() {
            return Err(Refusal::Twice(self.names[at]));
        }
        self.found[at] = value;
        Ok(())
    }
}

/// The members of `eleLock`, in the order of [`LOCK`].
type LockMembers<'a> = [Option<&'a str>; 7];

const LOCK: [&str; 7] = ["name", "argument", "mode", "owner", "waitTime", "timeout", "uuid"];

fn read(json: &str) -> Result<Request, Refusal> {
    let mut walk = Walk::new(json);
    walk.goes_into('{');
    let mut members = Members::new(["OP", "lockUUID", "lockName", "lockOwner"]);
    let mut lock = None;
    while let Some(name) = walk.next() {
        let name = members::text(name)?;
        if name != "eleLock" {
            members.add(&name, walk.next())?;
        } else if lock.replace(walk_lock(&mut walk)).is_some() {
            return Err(Refusal::Twice("eleLock"));
        }
    }
    let [op, uuid, name, owner] = members.found;
    match &*identifier("OP", op)? {
        "1" => {
            let lock = lock.unwrap_or(Err(Refusal::Missing("eleLock")));
            Ok(Request::Lock(read_lock(lock?)?))
        }
        "2" => Ok(Request::Unlock(identifier("lockUUID", uuid)?.into_owned())),
        "3" => Ok(Request::Promote(identifier("lockUUID", uuid)?.into_owned())),
        "4" => Ok(Request::List(Filter {
            name: optional_text("lockName", name)?,
            owner: optional_text("lockOwner", owner)?,
        })),
        _ => Err(Refusal::UnknownOp),
    }
}

/// Walks through `eleLock`. What is wrong with it matters only if a lock is asked for.
fn walk_lock<'a>(walk: &mut Walk<'a>) -> Result<LockMembers<'a>, Refusal> {
    let before = *walk;
    let lock = walk_members(walk);
    if lock.is_err() {
        *walk = before;
        if walk.next() == Some("null") {
            return Err(Refusal::Missing("eleLock"));
        }
    }
    lock
}

fn walk_members<'a>(walk: &mut Walk<'a>) -> Result<LockMembers<'a>, Refusal> {
    if !walk.goes_into('{') {
        return Err(Refusal::Wrong { member: "eleLock", wanted: "an object" });
    }
    let mut members = Members::new(LOCK);
    while let Some(name) = walk.next() {
        members.add(&members::text(name)?, walk.next())?;
    }
    Ok(members.found)
}

fn read_lock(members: LockMembers<'_>) -> Result<Lock, Refusal> {
    let [name, argument, mode, owner, wait, timeout, uuid] = members;
    let items = read_items(argument)?;
    let name = match Value::read(name)? {
        Value::Missing => return Err(Refusal::Missing("name")),
        Value::Text(name) if !name.is_empty() => name,
        _ => return Err(Refusal::Wrong { member: "name", wanted: "a string that is not empty" }),
    };
    let mode = match Value::read(mode)? {
        Value::Missing => return Err(Refusal::Missing("mode")),
        Value::Text(letter) => Mode::from_letter(&letter).ok_or(Refusal::UnknownMode)?,
        _ => return Err(Refusal::UnknownMode),
    };
    let fields = items.iter().map(Item::field).collect::<Vec<_>>();
    Ok(Lock {
        resource: Resource::new(&name, &fields).map_err(Refusal::Resource)?,
        mode,
        owner: optional_text("owner", owner)?,
        wait_ms: milliseconds("waitTime", wait)?.unwrap_or(0),
        timeout_ms: milliseconds("timeout", timeout)?.unwrap_or(DEFAULT_TIMEOUT_MS),
        uuid: identifier("uuid", uuid)?.into_owned(),
    })
}

/// One item of `argument`, which [`Field`] borrows from.
enum Item<'a> {
    Text(Cow<'a, str>),
    Number(String),
    Bool(bool),
}

impl Item<'_> {
    fn field(&self) -> Field<'_> {
        match self {
            Item::Text(text) if text == WILDCARD => ANY,
            Item::Text(text) => Field::Text(text),
            Item::Number(text) => Field::Number(text),
            Item::Bool(value) => Field::Bool(*value),
        }
    }
}

fn read_items(json: Option<&str>) -> Result<Vec<Item<'_>>, Refusal> {
    let mut walk = Walk::new(json.unwrap_or_default());
    if !walk.goes_into('[') {
        return Err(Refusal::ArgumentNotArray);
    }
    let mut items = Vec::new();
    while let Some(item) = walk.next() {
        if items.len() == Resource::FIELDS {
            return Err(Refusal::Resource(ResourceError::TooManyFields));
        }
        items.push(match Value::read(Some(item))? {
            Value::Text(text) => Item::Text(text),
            Value::Number(value) if value.is_finite() => Item::Number(number::js_text(value)),
            Value::Bool(value) => Item::Bool(value),
            _ => return Err(Refusal::BadField),
        });
    }
    Ok(items)
}

/// A member as JavaScript sees it.
enum Value<'a> {
    /// Or `null`.
    Missing,
    Bool(bool),
    /// May be infinite: `1e999`.
    Number(f64),
    Text(Cow<'a, str>),
    /// An object or array; its content is nobody's business here.
    Nested,
}

impl<'a> Value<'a> {
    fn read(json: Option<&'a str>) -> Result<Value<'a>, Refusal> {
        let text = json.unwrap_or("null");
        Ok(match text.as_bytes().first() {
            Some(b'n') => Value::Missing,
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            Some(b'"') => Value::Text(members::text(text)?),
            Some(b'{' | b'[') => Value::Nested,
            // Nearly all are short whole numbers.
            Some(b'0'..=b'9')
                if text.len() <= 9
                    && let Ok(whole) = text.parse::<u32>() =>
            {
                Value::Number(f64::from(whole))
            }
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
fn identifier<'a>(member: &'static str, json: Option<&'a str>) -> Result<Cow<'a, str>, Refusal> {
    match Value::read(json)? {
        Value::Missing => Err(Refusal::Missing(member)),
        Value::Text(text) if !text.is_empty() => Ok(text),
        Value::Number(value) if value.is_finite() => Ok(number::js_text(value).into()),
        _ => Err(Refusal::Wrong { member, wanted: "a string that is not empty" }),
    }
}

/// A string, or nothing if falsy. Not a number: owners and names are equal only if they are of one
/// type, and the table knows only text.
fn optional_text(member: &'static str, json: Option<&str>) -> Result<Option<String>, Refusal> {
    match Value::read(json)? {
        value if value.is_falsy() => Ok(None),
        Value::Text(text) => Ok(Some(text.into_owned())),
        _ => Err(Refusal::Wrong { member, wanted: "a string" }),
    }
}

/// A number, or a string that holds one; nothing if falsy, and the string of a zero counts as that.
fn milliseconds(member: &'static str, json: Option<&str>) -> Result<Option<u64>, Refusal> {
    let value = match Value::read(json)? {
        value if value.is_falsy() => return Ok(None),
        Value::Number(value) => Some(value),
        Value::Text(text) => number::from_text(&text),
        _ => None,
    };
    let wrong = Refusal::Wrong { member, wanted: "a number of milliseconds, 0 or more" };
    let ms = value.and_then(number::whole_ms).ok_or(wrong)?;
    Ok(Some(ms).filter(|ms| *ms > 0))
}
