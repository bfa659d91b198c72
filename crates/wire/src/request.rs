//! Requests: what a client asks for, from the arguments of a frame.

use keylatch_table::{LocksQuery, RequestId};

use crate::arguments::{Capitals, Words};
use crate::frame::Arguments;
use crate::lock_words::{self, Lock};
use crate::redis_words::{self, KeyRequest, SetRequest};
use crate::task_words::{self, TaskRequest};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `LOCK`.
    Lock(Box<Lock>),
    /// `UNLOCK id`.
    Unlock(RequestId),
    /// `CANCEL id`.
    Cancel(RequestId),
    /// `RENEW id [LEASE ms]`.
    Renew(RequestId, Option<u64>),
    /// `PROMOTE id`.
    Promote(RequestId),
    /// `REVOKE token REASON s`.
    Revoke(u64, Box<str>),
    /// `LOCKS`; with `STALE` as the member that is asked knows it, without asking who leads.
    Locks {
        /// Which ones.
        query: LocksQuery,
        /// Whether they may be those of a while ago.
        stale: bool,
    },
    /// `TASK ..`.
    Task(TaskRequest),
    /// `SET`.
    Set(SetRequest),
    /// `GET`, `DEL`, `EXISTS`, `PTTL`, `PEXPIRE`.
    Key(KeyRequest),
    /// `PING [text]`.
    Ping(Option<Box<[u8]>>),
    /// `ECHO text`.
    Echo(Box<[u8]>),
    /// `HELLO`.
    Hello(Hello),
    /// `AUTH [user] password`: the password.
    Auth(Box<str>),
    /// `INFO`.
    Info,
    /// `CLIENT ..`.
    Client(ClientRequest),
    /// `COMMAND ..`.
    Command,
    /// `SELECT n`.
    Select(u64),
    /// `SUBSCRIBE channel...`.
    Subscribe(Vec<Box<str>>),
    /// `UNSUBSCRIBE [channel...]`.
    Unsubscribe(Vec<Box<str>>),
    /// `QUIT`.
    Quit,
}

/// `HELLO [2|3] [AUTH user password] [SETNAME name]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The protocol asked for.
    pub version: Option<u64>,
    /// The password that it came with.
    pub auth: Option<Box<str>>,
    /// The client's name.
    pub name: Option<Box<str>>,
}

/// `CLIENT ..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientRequest {
    /// `CLIENT ID`.
    Id,
    /// `CLIENT GETNAME`.
    GetName,
    /// `CLIENT SETNAME name`: shown as the owner of requests that name none.
    SetName(Box<str>),
    /// Others that clients send on connecting, and that mean nothing here.
    Ignored,
}

/// A request that is not understood. The connection goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code} {text}")]
pub struct WordError {
    /// The fixed code word.
    pub code: &'static str,
    /// What to do.
    pub text: String,
}

impl WordError {
    pub(crate) fn new(code: &'static str, text: String) -> WordError {
        WordError { code, text }
    }
}

impl Request {
    /// The request in the arguments of a frame, which must not be empty.
    pub fn read(buffer: &[u8], arguments: &Arguments) -> Result<Request, WordError> {
        let name = arguments.get(buffer, 0).unwrap_or_default();
        let words = |usage| Words::new(buffer, arguments, 1, usage);
        // Nearly always one of these, and in capitals already.
        let capitals;
        let name_in_capitals = match name {
            b"SET" | b"LOCK" | b"UNLOCK" => name,
            _ => {
                capitals = Capitals::of(name);
                capitals.as_bytes()
            }
        };
        Ok(match name_in_capitals {
            b"SET" => Request::Set(redis_words::read_set(&mut words(redis_words::SET_USAGE))?),
            b"LOCK" => {
                Request::Lock(Box::new(lock_words::read_lock(&mut words(lock_words::USAGE))?))
            }
            b"UNLOCK" => Request::Unlock(only_id(words("UNLOCK id"))?),
            b"CANCEL" => Request::Cancel(only_id(words("CANCEL id"))?),
            b"PROMOTE" => Request::Promote(only_id(words("PROMOTE id"))?),
            b"RENEW" => read_renew(words("RENEW id [LEASE ms]"))?,
            b"REVOKE" => read_revoke(words("REVOKE token REASON text"))?,
            b"LOCKS" => {
                let usage = "LOCKS [NAME n] [OWNER o] [WAITERS] [LIMIT n] [CURSOR seq] [STALE]";
                read_locks(words(usage))?
            }
            b"TASK" => Request::Task(task_words::read_task(buffer, arguments)?),
            b"GET" => Request::Key(KeyRequest::Get(only_key(words("GET key"))?)),
            b"PTTL" => Request::Key(KeyRequest::Pttl(only_key(words("PTTL key"))?)),
            b"DEL" => Request::Key(KeyRequest::Del(redis_words::read_keys(&mut words(
                "DEL key [key ..]",
            ))?)),
            b"EXISTS" => Request::Key(KeyRequest::Exists(redis_words::read_keys(&mut words(
                "EXISTS key [key ..]",
            ))?)),
            b"PEXPIRE" => {
                let mut words = words("PEXPIRE key ms");
                let key = redis_words::read_key(&mut words)?;
                let ms = words.number("the time")?;
                words.end()?;
                Request::Key(KeyRequest::Pexpire(key, ms))
            }
            b"PING" => {
                let mut words = words("PING [text]");
                let text = words.next().map(Box::from);
                words.end()?;
                Request::Ping(text)
            }
            b"ECHO" => {
                let mut words = words("ECHO text");
                let text = words.bytes("the text")?.into();
                words.end()?;
                Request::Echo(text)
            }
            b"HELLO" => read_hello(words("HELLO [2|3] [AUTH user password] [SETNAME name]"))?,
            b"AUTH" => read_auth(words("AUTH [user] token"))?,
            b"INFO" => Request::Info,
            b"CLIENT" => read_client(words("CLIENT ID|GETNAME|SETNAME name|SETINFO .."))?,
            b"COMMAND" => Request::Command,
            b"SELECT" => {
                let mut words = words("SELECT 0");
                let number = words.number("the database")?;
                words.end()?;
                Request::Select(number)
            }
            b"SUBSCRIBE" => Request::Subscribe(channels(words("SUBSCRIBE keylatch:events"), true)?),
            b"UNSUBSCRIBE" => {
                Request::Unsubscribe(channels(words("UNSUBSCRIBE [channel]"), false)?)
            }
            b"QUIT" => Request::Quit,
            _ => return Err(unknown(name)),
        })
    }
}

fn unknown(name: &[u8]) -> WordError {
    let name = String::from_utf8_lossy(&name[..name.len().min(64)]).into_owned();
    let text = format!(
        "unknown command '{name}'; try LOCK, UNLOCK, RENEW, PROMOTE, CANCEL, LOCKS, TASK, or SET key \
         value NX PX ms (docs/protocol.md has them all)"
    );
    WordError::new("UNKNOWN", text)
}

fn only_id(mut words: Words<'_>) -> Result<RequestId, WordError> {
    let id = words.text("the id")?.into();
    words.end()?;
    Ok(id)
}

fn only_key(mut words: Words<'_>) -> Result<keylatch_table::Resource, WordError> {
    let key = redis_words::read_key(&mut words)?;
    words.end()?;
    Ok(key)
}

fn read_renew(mut words: Words<'_>) -> Result<Request, WordError> {
    let id = words.text("the id")?.into();
    let lease_ms = match words.next() {
        None => None,
        Some(word) if Capitals::of(word).as_bytes() == b"LEASE" => Some(words.number("LEASE")?),
        Some(word) => return Err(words.unknown(word)),
    };
    words.end()?;
    Ok(Request::Renew(id, lease_ms))
}

fn read_revoke(mut words: Words<'_>) -> Result<Request, WordError> {
    let token = words.number("the token")?;
    match words.next() {
        Some(word) if Capitals::of(word).as_bytes() == b"REASON" => {}
        _ => return Err(words.syntax("a revocation needs a REASON")),
    }
    let reason = words.text("REASON")?.into();
    words.end()?;
    Ok(Request::Revoke(token, reason))
}

fn read_locks(mut words: Words<'_>) -> Result<Request, WordError> {
    let (mut query, mut stale) = (LocksQuery::default(), false);
    while let Some(word) = words.next() {
        words.once(word)?;
        match Capitals::of(word).as_bytes() {
            b"NAME" => query.name = Some(words.text("NAME")?.into()),
            b"OWNER" => query.owner = Some(words.text("OWNER")?.into()),
            b"WAITERS" => query.waiters = true,
            b"LIMIT" => query.limit = words.number("LIMIT")? as usize,
            b"CURSOR" => query.cursor = words.number("CURSOR")?,
            b"STALE" => stale = true,
            _ => return Err(words.unknown(word)),
        }
    }
    Ok(Request::Locks { query, stale })
}

fn read_hello(mut words: Words<'_>) -> Result<Request, WordError> {
    let mut hello = Hello::default();
    if words.left() > 0 {
        hello.version = Some(words.number("the protocol version")?);
    }
    while let Some(word) = words.next() {
        match Capitals::of(word).as_bytes() {
            b"AUTH" => {
                words.bytes("the user")?;
                hello.auth = Some(words.text("the password")?.into());
            }
            b"SETNAME" => hello.name = Some(words.text("SETNAME")?.into()),
            _ => return Err(words.unknown(word)),
        }
    }
    Ok(Request::Hello(hello))
}

fn read_auth(mut words: Words<'_>) -> Result<Request, WordError> {
    let mut password = words.text("the token")?;
    // With two words the first one is a user, whose name the token says anyway.
    if words.left() > 0 {
        password = words.text("the token")?;
    }
    words.end()?;
    Ok(Request::Auth(password.into()))
}

fn read_client(mut words: Words<'_>) -> Result<Request, WordError> {
    let what = words.bytes("what to do")?;
    Ok(Request::Client(match Capitals::of(what).as_bytes() {
        b"ID" => ClientRequest::Id,
        b"GETNAME" => ClientRequest::GetName,
        b"SETNAME" => ClientRequest::SetName(words.text("the name")?.into()),
        b"SETINFO" | b"NO-EVICT" | b"NO-TOUCH" => ClientRequest::Ignored,
        _ => return Err(words.unknown(what)),
    }))
}

fn channels(mut words: Words<'_>, some: bool) -> Result<Vec<Box<str>>, WordError> {
    let mut channels = Vec::new();
    if some {
        channels.push(words.text("the channel")?.into());
    }
    while words.left() > 0 {
        channels.push(words.text("the channel")?.into());
    }
    Ok(channels)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
