//! The three protocols: a request to take a key, one to release it, and what the answers mean.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use keylatch_wire::{Protocol as Resp, Value, Writer, read_value};
use serde::Deserialize;

use super::Protocol;
use super::plan::Plan;

/// The release that every Redis lock library has: only whoever set the value deletes it.
const RELEASE: &str = r#"if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end"#;
/// How long the first answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes requests and reads answers.
pub(crate) struct Speaker {
    protocol: Protocol,
    lease_ms: String,
    wait_ms: String,
    /// The name that Redis gave to the release script.
    script: Vec<u8>,
}

/// What an answer says.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer<'a> {
    /// Taken. RESP names the request and has a token.
    Granted { id: Option<&'a [u8]>, token: Option<u64> },
    /// Not free.
    Refused,
    /// Given back.
    Released,
    /// The server says no.
    Error(String),
}

/// An answer, and how many bytes it took.
type Found<'a> = Option<(Answer<'a>, usize)>;

impl Speaker {
    /// Talks to the server once, so that a wrong address or protocol is known before the load.
    pub(crate) fn meet(plan: &Plan) -> Result<Speaker> {
        let mut stream = TcpStream::connect_timeout(&plan.address, PATIENCE)
            .with_context(|| format!("cannot connect to {}", plan.address))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let protocol = plan.protocol;
        let name = format!("{protocol:?}").to_lowercase();
        let script = greet(&mut stream, protocol).with_context(|| {
            format!(
                "{} does not answer as `{name}` does (--protocol says what it speaks)",
                plan.address
            )
        })?;
        let (lease_ms, wait_ms) = (plan.lease_ms.to_string(), plan.wait_ms.to_string());
        Ok(Speaker { protocol, lease_ms, wait_ms, script })
    }

    /// Appends a request for `key`. Where the caller names its request, the name is in `id`.
    pub(crate) fn write_acquire(&self, key: &[u8], id: &[u8], out: &mut Vec<u8>) {
        let (wait, lease) = (self.wait_ms.as_bytes(), self.lease_ms.as_bytes());
        match self.protocol {
            Protocol::Resp => words(out, &[b"LOCK", key, b"WAIT", wait, b"LEASE", lease]),
            Protocol::Redis => words(out, &[b"SET", key, id, b"NX", b"PX", lease]),
            Protocol::Enqueue => {
                for part in [
                    br#"{"OP":"1","eleLock":{"name":"bench","argument":[""#,
                    key,
                    br#""],"mode":"X","owner":""#,
                    id,
                    br#"","waitTime":"#,
                    wait,
                    br#","timeout":"#,
                    lease,
                    br#","uuid":""#,
                    id,
                    br#""}}"#,
                ] {
                    out.extend_from_slice(part);
                }
            }
        }
    }

    /// Appends a release of `key`, taken under `id`.
    pub(crate) fn write_release(&self, key: &[u8], id: &[u8], out: &mut Vec<u8>) {
        match self.protocol {
            Protocol::Resp => words(out, &[b"UNLOCK", id]),
            Protocol::Redis => words(out, &[b"EVALSHA", &self.script, b"1", key, id]),
            Protocol::Enqueue => {
                for part in [br#"{"OP":"2","lockUUID":""#, id, br#""}"#] {
                    out.extend_from_slice(part);
                }
            }
        }
    }

    /// Whether the caller makes up the names of its requests.
    pub(crate) fn names_requests(&self) -> bool {
        self.protocol != Protocol::Resp
    }

    /// Whether a refused request has to be made again and again: nobody waits at the server.
    pub(crate) fn polls(&self) -> bool {
        self.protocol == Protocol::Redis
    }

    /// Reads the answer to a request for a key; nothing if it is not complete.
    pub(crate) fn read_acquired<'a>(&self, input: &'a [u8]) -> Result<Found<'a>> {
        const TAKEN: Answer<'static> = Answer::Granted { id: None, token: None };
        match (self.protocol, input) {
            (Protocol::Enqueue, _) => read_enqueue(input, TAKEN),
            (Protocol::Redis, b"+OK\r\n") => Ok(Some((TAKEN, 5))),
            (Protocol::Redis, b"$-1\r\n") => Ok(Some((Answer::Refused, 5))),
            (Protocol::Resp, [b'*', ..]) => read_lock(input),
            _ => other(input),
        }
    }

    /// Reads the answer to a release.
    pub(crate) fn read_released<'a>(&self, input: &'a [u8]) -> Result<Found<'a>> {
        match (self.protocol, input) {
            (Protocol::Enqueue, _) => read_enqueue(input, Answer::Released),
            (_, b":1\r\n") => Ok(Some((Answer::Released, 4))),
            (_, b":0\r\n") => {
                Ok(Some((Answer::Error("a lock was gone before its release".into()), 4)))
            }
            _ => other(input),
        }
    }
}

fn words(out: &mut Vec<u8>, words: &[&[u8]]) {
    let mut writer = Writer { out, protocol: Resp::Resp2 };
    writer.array(words.len());
    for word in words {
        writer.bulk(word);
    }
}

/// The answer to `LOCK` as flat pairs, without a copy: this is most of the generator's own time.
fn read_lock(input: &[u8]) -> Result<Found<'_>> {
    let mut parts = Parts { rest: &input[1..] };
    let Some(count) = parts.number()? else { return Ok(None) };
    let (mut granted, mut refused, mut id, mut token) = (false, false, None, None);
    for _ in 0..count / 2 {
        let Some(name) = parts.next()? else { return Ok(None) };
        let Some(value) = parts.next()? else { return Ok(None) };
        match name {
            b"status" => (granted, refused) = (value == b"granted", value != b"ended"),
            b"id" => id = Some(value),
            b"token" => token = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
            _ => {}
        }
    }
    let taken = input.len() - parts.rest.len();
    let answer = match (granted, id, token) {
        (true, Some(_), Some(_)) => Answer::Granted { id, token },
        (true, ..) => bail!("a grant without id or token"),
        (false, ..) if refused => Answer::Refused,
        _ => bail!("an answer to LOCK without a status that is known"),
    };
    Ok(Some((answer, taken)))
}

/// Strings and numbers, one after the other.
struct Parts<'a> {
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn line(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|byte| *byte == b'\n')?;
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let Some(line) = self.line() else { return Ok(None) };
        Ok(Some(std::str::from_utf8(line)?.parse().context("the answer is not RESP")?))
    }

    fn next(&mut self) -> Result<Option<&'a [u8]>> {
        let Some((kind, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        match kind {
            b'$' => {
                let Some(length) = self.number()? else { return Ok(None) };
                let Some((text, rest)) = self.rest.split_at_checked(length) else {
                    return Ok(None);
                };
                let Some(rest) = rest.get(2..) else { return Ok(None) };
                self.rest = rest;
                Ok(Some(text))
            }
            b'+' | b':' => Ok(self.line()),
            _ => bail!("an answer to LOCK that is not flat pairs"),
        }
    }
}

/// Anything else in RESP: an error, part of an answer, or what nobody expected.
fn other(input: &[u8]) -> Result<Found<'_>> {
    Ok(match read_value(input)? {
        None => None,
        Some((Value::Error(text), taken)) => Some((Answer::Error(text), taken)),
        Some((value, _)) => bail!("the server answered {value:?}"),
    })
}

#[derive(Deserialize)]
struct EnqueueReply {
    #[serde(rename = "RC")]
    code: String,
    #[serde(rename = "MSG", default)]
    message: String,
}

fn read_enqueue<'a>(input: &'a [u8], success: Answer<'a>) -> Result<Found<'a>> {
    const OK: &[u8] = br#"{"RC":"0"}"#;
    if input == OK {
        return Ok(Some((success, OK.len())));
    }
    let mut replies = serde_json::Deserializer::from_slice(input).into_iter::<EnqueueReply>();
    let reply = match replies.next() {
        None => return Ok(None),
        Some(Err(error)) if error.is_eof() => return Ok(None),
        Some(reply) => reply.context("the answer is not one of the enqueue protocol")?,
    };
    let answer = match reply.code.as_str() {
        "0" => success,
        "1" => Answer::Refused,
        code => Answer::Error(format!("RC {code}: {}", reply.message)),
    };
    Ok(Some((answer, replies.byte_offset())))
}

/// A first exchange. Returns the name of the release script, where there is one.
fn greet(stream: &mut TcpStream, protocol: Protocol) -> Result<Vec<u8>> {
    let mut request = Vec::new();
    match protocol {
        Protocol::Resp => words(&mut request, &[b"PING"]),
        Protocol::Redis => words(&mut request, &[b"SCRIPT", b"LOAD", RELEASE.as_bytes()]),
        Protocol::Enqueue => request.extend(br#"{"OP":"4","lockName":"no such","lockOwner":"no"}"#),
    }
    stream.write_all(&request)?;
    let mut input = Vec::new();
    loop {
        let mut room = [0; 4_096];
        let Ok(count) = stream.read(&mut room) else { bail!("there is no answer") };
        ensure!(count > 0, "it closed the connection");
        input.extend_from_slice(&room[..count]);
        if protocol == Protocol::Enqueue {
            // A length of four bytes, then an array.
            let start = [2, 0, 0, 0, b'[', b']'];
            ensure!(start.starts_with(&input), "that is not a list of locks");
            if input == start {
                return Ok(Vec::new());
            }
        } else if let Some((value, _)) = read_value(&input)? {
            return match (protocol, value) {
                (Protocol::Resp, value) if value.is("PONG") => Ok(Vec::new()),
                (Protocol::Redis, Value::Bulk(name)) => Ok(name),
                (_, Value::Error(text)) => bail!("it says: {text}"),
                (_, other) => bail!("it says {other:?}"),
            };
        }
    }
}
