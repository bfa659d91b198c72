//! `LOCK name [ARG n f1..fn] [MODE m] [AND name ..]... [OWNER o] [LEASE ms] [WAIT ms] [ID id]
//! [META s] [MAXHOLD ms] [DETECT] [ASYNC]`.

use keylatch_table::{Field, Mode, Part, RequestId, Resource, ResourceError};

use crate::arguments::{Capitals, Words};
use crate::request::WordError;

pub(crate) const USAGE: &str = "LOCK name [ARG n f1..fn] [MODE S|E|X|O] [AND name [ARG ..] [MODE ..]]... \
     [OWNER o] [LEASE ms] [WAIT ms] [ID id] [META s] [MAXHOLD ms] [DETECT] [ASYNC]";

/// The lease of a request that names none.
pub(crate) const LEASE_MS: u64 = 30_000;

/// A lock that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The first resource.
    pub part: Part,
    /// More of them, for all or nothing.
    pub also: Vec<Part>,
    /// Who asks, if it says so.
    pub owner: Option<Box<str>>,
    /// 0 is none.
    pub lease_ms: u64,
    /// 0 does not wait.
    pub wait_ms: u64,
    /// Chosen by the caller; the server makes one if there is none.
    pub id: Option<RequestId>,
    /// Free text.
    pub meta: Option<Box<str>>,
    /// 0 is unbounded.
    pub max_hold_ms: u64,
    /// Whether cycles are to be refused.
    pub detect: bool,
    /// Answer `waiting` at once and push the outcome.
    pub asynchronous: bool,
}

impl Lock {
    /// `resource`, with the defaults of everything else.
    pub fn new(resource: Resource) -> Lock {
        Lock {
            part: Part::new(resource, Mode::default()),
            also: Vec::new(),
            owner: None,
            lease_ms: LEASE_MS,
            wait_ms: 0,
            id: None,
            meta: None,
            max_hold_ms: 0,
            detect: false,
            asynchronous: false,
        }
    }
}

pub(crate) fn read_lock(words: &mut Words<'_>) -> Result<Lock, WordError> {
    let (first, mut option) = read_part(words)?;
    let mut lock = Lock::new(first.resource);
    lock.part.mode = first.mode;
    while let Some(word) = option {
        let capitals = Capitals::of(word);
        if capitals.as_bytes() == b"AND" {
            let (part, next) = read_part(words)?;
            lock.also.push(part);
            option = next;
            continue;
        }
        words.once(word)?;
        match capitals.as_bytes() {
            b"OWNER" => lock.owner = Some(words.text("OWNER")?.into()),
            b"LEASE" => lock.lease_ms = words.number("LEASE")?,
            b"WAIT" => lock.wait_ms = words.number("WAIT")?,
            b"ID" => lock.id = Some(words.text("ID")?.into()),
            b"META" => lock.meta = Some(words.text("META")?.into()),
            b"MAXHOLD" => lock.max_hold_ms = words.number("MAXHOLD")?,
            b"DETECT" => lock.detect = true,
            b"ASYNC" => lock.asynchronous = true,
            b"ARG" | b"MODE" => {
                return Err(words.syntax("ARG and MODE stand right behind the name they belong to"));
            }
            _ => return Err(words.unknown(word)),
        }
        option = words.next();
    }
    Ok(lock)
}

/// A resource with its mode, and the word behind it.
fn read_part<'b>(words: &mut Words<'b>) -> Result<(Part, Option<&'b [u8]>), WordError> {
    let name = words.text("the name")?;
    let (mut mode, mut has_arg) = (None, false);
    let mut fields: Vec<String> = Vec::new();
    let mut wild: Vec<bool> = Vec::new();
    let mut option = words.next();
    while let Some(word) = option {
        match Capitals::of(word).as_bytes() {
            b"ARG" if has_arg => return Err(words.twice(word)),
            b"MODE" if mode.is_some() => return Err(words.twice(word)),
            b"ARG" => {
                has_arg = true;
                let count = words.number("the number of fields")?;
                if count as usize > words.left() {
                    return Err(words.syntax(&format!("ARG {count} needs {count} fields")));
                }
                for _ in 0..count {
                    let (field, any) = read_field(words.text("a field")?)?;
                    fields.push(field);
                    wild.push(any);
                }
            }
            b"MODE" => {
                let letter = words.text("MODE")?;
                let wrong = || words.syntax(&format!("'{letter}' is not a mode"));
                mode = Some(Mode::from_letter(letter).ok_or_else(wrong)?);
            }
            _ => break,
        }
        option = words.next();
    }
    let fields: Vec<Field<'_>> = std::iter::zip(&fields, &wild)
        .map(|(text, any)| if *any { Field::Any } else { Field::Text(text) })
        .collect();
    let resource = Resource::new(name, &fields).map_err(bad_resource)?;
    Ok((Part::new(resource, mode.unwrap_or_default()), option))
}

pub(crate) fn bad_resource(error: ResourceError) -> WordError {
    WordError::new("BADARG", error.to_string())
}

/// A field as it is written: a bare `@` is the wildcard, and what begins with `@` or `\` has one `\` before it. Its text, and
/// whether it is the wildcard.
pub fn read_field(text: &str) -> Result<(String, bool), WordError> {
    match text.as_bytes() {
        b"@" => Ok((String::new(), true)),
        [b'\\', b'@' | b'\\', ..] => Ok((text[1..].into(), false)),
        [first @ (b'@' | b'\\'), ..] => {
            let first = char::from(*first);
            let text = format!(
                "a field that begins with {first} is written \\{text}; a bare @ is the wildcard"
            );
            Err(WordError::new("BADARG", text))
        }
        _ => Ok((text.into(), false)),
    }
}

/// Appends a `LOCK` request to a buffer, as a client sends it.
pub fn write_lock(lock: &Lock, out: &mut Vec<u8>) {
    let mut words: Vec<String> = vec!["LOCK".into()];
    for (position, part) in std::iter::once(&lock.part).chain(&lock.also).enumerate() {
        if position > 0 {
            words.push("AND".into());
        }
        words.push(part.resource.name().into());
        if part.resource.arity() > 0 {
            words.push("ARG".into());
            words.push(part.resource.arity().to_string());
            words.extend(part.resource.fields().map(|field| match field {
                Field::Any => "@".into(),
                Field::Text(text) if text.starts_with(['@', '\\']) => format!("\\{text}"),
                Field::Text(text) | Field::Number(text) => text.into(),
                Field::Bool(value) => value.to_string(),
            }));
        }
        if part.mode != Mode::default() {
            words.extend(["MODE".into(), part.mode.letter().into()]);
        }
    }
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([name.into(), value]);
        }
    };
    option("OWNER", lock.owner.as_deref().map(str::to_string));
    option("LEASE", (lock.lease_ms != LEASE_MS).then(|| lock.lease_ms.to_string()));
    option("WAIT", (lock.wait_ms > 0).then(|| lock.wait_ms.to_string()));
    option("ID", lock.id.as_ref().map(ToString::to_string));
    option("META", lock.meta.as_deref().map(str::to_string));
    option("MAXHOLD", (lock.max_hold_ms > 0).then(|| lock.max_hold_ms.to_string()));
    words.extend(lock.detect.then(|| "DETECT".into()));
    words.extend(lock.asynchronous.then(|| "ASYNC".into()));
    let protocol = crate::Protocol::Resp2;
    let mut writer = crate::Writer { out, protocol };
    writer.array(words.len());
    for word in &words {
        writer.bulk(word.as_bytes());
    }
}
