//! The commands of Redis that lock libraries use.

use keylatch_table::{Resource, Value};

use crate::arguments::{Capitals, Words};
use crate::lock_words::bad_resource;
use crate::request::WordError;

pub(crate) const SET_USAGE: &str = "SET key value NX [PX ms|EX s]";

/// `SET key value NX [PX ms|EX s]`: an exclusive lock with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRequest {
    /// The plain name.
    pub key: Resource,
    /// What `GET` and the scripts compare.
    pub value: Value,
    /// 0 is none.
    pub lease_ms: u64,
}

/// A command about one key, or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRequest {
    /// `GET key`.
    Get(Resource),
    /// `DEL key...`.
    Del(Vec<Resource>),
    /// `EXISTS key...`.
    Exists(Vec<Resource>),
    /// `PTTL key`.
    Pttl(Resource),
    /// `PEXPIRE key ms`.
    Pexpire(Resource, u64),
}

pub(crate) fn read_key(words: &mut Words<'_>) -> Result<Resource, WordError> {
    Resource::plain_bytes(words.bytes("the key")?).map_err(bad_resource)
}

pub(crate) fn read_keys(words: &mut Words<'_>) -> Result<Vec<Resource>, WordError> {
    let mut keys = vec![read_key(words)?];
    while words.left() > 0 {
        keys.push(read_key(words)?);
    }
    Ok(keys)
}

pub(crate) fn read_set(words: &mut Words<'_>) -> Result<SetRequest, WordError> {
    let key = read_key(words)?;
    let value = words.bytes("the value")?;
    let (mut new, mut lease_ms) = (false, None);
    while let Some(word) = words.next() {
        // Nearly always in capitals already.
        let capitals;
        let word_in_capitals = match word {
            b"NX" | b"PX" | b"EX" => word,
            _ => {
                capitals = Capitals::of(word);
                capitals.as_bytes()
            }
        };
        match word_in_capitals {
            b"NX" => new = true,
            b"PX" | b"EX" if lease_ms.is_some() => {
                return Err(words.syntax("SET takes PX or EX, once"));
            }
            b"PX" => lease_ms = Some(words.number("PX")?),
            b"EX" => lease_ms = Some(words.number("EX")?.saturating_mul(1_000)),
            _ => return Err(words.unknown(word)),
        }
    }
    if !new {
        return Err(words.syntax("SET takes a lock here, so it needs NX"));
    }
    if lease_ms == Some(0) {
        return Err(WordError::new("BADARG", "PX and EX must be more than 0".into()));
    }
    Ok(SetRequest { key, value: value.into(), lease_ms: lease_ms.unwrap_or(0) })
}
