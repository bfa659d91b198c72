//! Changes as arguments of the scripts, and their answers. What is kept is described in `commit.lua`.

use redis::{Cmd, Script, Value};

use super::super::store::{
    Change, Committed, Done, Expect, Found, Head, Landed, Name, Plain, Put, Record, Stand,
    StoreError, Told, View, Waiter, Write,
};
use super::lane::Job;
use super::{PREFIX, Scripts};

fn call<'a>(script: &Script, names: impl ExactSizeIterator<Item = &'a Name>) -> Cmd {
    // What there mostly is of each name.
    let mut command = Cmd::with_capacity(8 + 3 * names.len(), 128 + 192 * names.len());
    command.arg("EVALSHA").arg(script.get_hash()).arg(names.len());
    let mut key = String::from(PREFIX);
    for name in names {
        key.truncate(PREFIX.len());
        key.push_str(name);
        command.arg(&key);
    }
    command
}

/// A key without an end has none; Redis knows no end at once.
fn keep(command: &mut Cmd, put: &Put) {
    match put.keep_ms {
        Some(keep_ms) => command.arg(keep_ms.max(1)),
        None => command.arg(""),
    };
}

/// The script for one plain change, and how it is called.
pub(super) fn one<'a>(scripts: &'a Scripts, Job { name, plain, .. }: &Job) -> (&'a Script, Cmd) {
    match plain {
        Plain::Take(put) => {
            let mut command = call(&scripts.take, [name].into_iter());
            keep(&mut command, put);
            command.arg(&put.bytes[..]);
            (&scripts.take, command)
        }
        Plain::Leave(version) => {
            let mut command = call(&scripts.leave, [name].into_iter());
            command.arg(start_of_head(*version));
            (&scripts.leave, command)
        }
    }
}

/// Several of them in one script: first those that take.
pub(super) fn plain(script: &Script, jobs: &[Job]) -> Cmd {
    let mut command = call(script, jobs.iter().map(|job| &job.name));
    command.arg(takes(jobs));
    for job in jobs {
        match &job.plain {
            Plain::Take(put) => {
                keep(&mut command, put);
                command.arg(&put.bytes[..]);
            }
            Plain::Leave(version) => drop(command.arg(start_of_head(*version))),
        }
    }
    command
}

/// How many of these take.
fn takes(jobs: &[Job]) -> usize {
    jobs.iter().filter(|job| matches!(job.plain, Plain::Take(_))).count()
}

/// What the script for one says.
pub(super) fn landed_one(job: &Job, value: Value) -> Option<Landed> {
    match (value, &job.plain) {
        (Value::Int(1), Plain::Leave(version)) => Some(Landed::Left { version: *version }),
        (Value::BulkString(stamp), Plain::Take(_)) => {
            let mut words = Words(&stamp);
            Some(Landed::Took { version: words.number()?, now: words.time()? })
        }
        (found, _) => Some(Landed::Otherwise(view(std::slice::from_ref(&job.name), found)?)),
    }
}

/// What the script for several says, of each of them.
pub(super) fn landed(jobs: &[Job], value: Value) -> Option<Vec<Result<Landed, StoreError>>> {
    let (stamp, others) = match value {
        Value::BulkString(stamp) => (stamp, Vec::new()),
        Value::Array(mut all) if !all.is_empty() => {
            let others = all.split_off(1);
            let Some(Value::BulkString(stamp)) = all.pop() else { return None };
            (stamp, others)
        }
        _ => return None,
    };
    let mut words = Words(&stamp);
    let (mut version, now) = (words.number()?, words.time()?);
    let done = |job: &Job| {
        Ok(match job.plain {
            Plain::Take(_) => {
                version += 1;
                Landed::Took { version: version - 1, now }
            }
            Plain::Leave(version) => Landed::Left { version },
        })
    };
    let mut each: Vec<Result<Landed, StoreError>> = jobs.iter().map(done).collect();
    let mut others = others.into_iter();
    while let (Some(place), Some(other)) = (others.next(), others.next()) {
        let Value::Int(place) = place else { return None };
        let at = usize::try_from(place).ok()?.checked_sub(1)?;
        let name = std::slice::from_ref(&jobs.get(at)?.name);
        *each.get_mut(at)? = match text(&other).and_then(|text| text.strip_prefix(b"!")) {
            Some(why) => {
                let text = format!("Redis: {}", String::from_utf8_lossy(why));
                Err(StoreError { text, unknown: false })
            }
            None => Ok(Landed::Otherwise(view(name, other)?)),
        };
    }
    Some(each)
}

/// How a head begins where nobody waits.
fn start_of_head(version: u64) -> String {
    format!("-{version} ")
}

/// How the script for any change is called.
pub(super) fn commit(scripts: &Scripts, change: &Change) -> Cmd {
    let mut command = call(&scripts.commit, change.names.keys());
    command.arg(&scripts.channel).arg(change.numbers.max(1)).arg(change.appends.len());
    for one in change.names.values() {
        match one.expect {
            Expect::Absent => command.arg("a"),
            Expect::There => command.arg("t"),
            Expect::Version(version) => command.arg(version),
        };
        command.arg(one.last_seq.map_or(-1, u64::cast_signed));
        let (tell, own) = (u8::from(one.tell), one.own_up_to.unwrap_or(0));
        match &one.head {
            Write::Keep => drop(command.arg("k").arg("").arg(tell).arg(own).arg("")),
            Write::Delete => drop(command.arg("d").arg("").arg(tell).arg(own).arg("")),
            Write::Put(put) => {
                command.arg("p");
                keep(&mut command, put);
                command.arg(tell).arg(own).arg(&put.bytes[..]);
            }
        }
        command.arg(one.remove.len());
        for stand in &one.remove {
            command.arg(stand.id.to_string()).arg(stand.seq);
        }
    }
    for append in &change.appends {
        command.arg(append.id.to_string()).arg(append.live_ms).arg(&append.bytes[..]);
        command.arg(append.to.len());
        for name in &append.to {
            let place = change.names.keys().position(|one| one == name);
            command.arg(1 + place.expect("the names of a waiter are among those of the change"));
        }
    }
    command
}

pub(super) fn read(script: &Script, names: &[Name]) -> Cmd {
    call(script, names.iter())
}

pub(super) fn touch(script: &Script, waiters: &[(Stand, Vec<Name>)], live_ms: u64) -> Cmd {
    let names: Vec<&Name> = waiters.iter().flat_map(|(_, names)| names).collect();
    let mut command = call(script, names.into_iter());
    command.arg(live_ms);
    for (stand, names) in waiters {
        command.arg(stand.id.to_string()).arg(stand.seq).arg(names.len());
    }
    command
}

pub(super) fn text(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(text) => Some(text),
        _ => None,
    }
}

/// What came of a change.
pub(super) fn committed(change: &Change, value: Value) -> Option<Committed> {
    match value {
        Value::BulkString(answer) => {
            let mut words = Words(&answer);
            let (version, now) = (words.number()?, words.time()?);
            let found = |name: &Name| {
                Some((name.clone(), Found { version: words.number()?, last_seq: words.number()? }))
            };
            let names = change.names.keys().map(found).collect::<Option<_>>()?;
            Some(Committed::Done(Done { version, now, names }))
        }
        other => {
            let names: Vec<Name> = change.names.keys().cloned().collect();
            Some(Committed::Mismatch(view(&names, other)?))
        }
    }
}

/// The time, and a head and a queue for each name.
pub(super) fn view(names: &[Name], value: Value) -> Option<View> {
    let Value::Array(found) = value else { return None };
    let mut found = found.into_iter();
    let (seconds, micros) = (found.next()?, found.next()?);
    let now = millis(number(text(&seconds)?)?, number(text(&micros)?)?);
    let mut view = View { now, ..View::default() };
    for name in names {
        let head = match found.next()? {
            Value::BulkString(bytes) => head(&bytes)?,
            _ => None,
        };
        let Value::Array(fields) = found.next()? else { return None };
        let mut queue = Vec::with_capacity(fields.len() / 2);
        let (pairs, _) = fields.as_chunks::<2>();
        for [field, value] in pairs {
            if text(field)? != b"q" {
                queue.push(waiter(text(value)?)?);
            }
        }
        queue.sort_unstable_by_key(|waiter| waiter.seq);
        view.names.insert(name.clone(), Record { head, queue });
    }
    Some(view)
}

/// The inner one is nothing, if only the queue is there.
#[allow(clippy::option_option)]
fn head(bytes: &[u8]) -> Option<Option<Head>> {
    let (_, rest) = bytes.split_first()?;
    let mut words = Words(rest);
    let (version, time) = (words.number()?, words.time()?);
    Some((version > 0).then(|| Head { version, time, bytes: words.0.into(), alive: None }))
}

fn waiter(bytes: &[u8]) -> Option<Waiter> {
    let mut words = Words(bytes);
    let (seq, time, alive_until) = (words.number()?, words.time()?, words.number()?);
    Some(Waiter { seq, time, alive_until, came: None, bytes: words.0.into() })
}

/// What is told of a change: a name, its version and who left, for each name.
pub(super) fn news(message: &[u8]) -> Option<Vec<Told>> {
    let mut words = Words(message);
    let mut news = Vec::new();
    while !words.0.is_empty() {
        let length = words.number()? as usize;
        let (name, rest) = words.0.split_at_checked(length)?;
        words.0 = rest;
        let (version, count) = (words.number()?, words.number()?);
        let removed = (0..count).map(|_| words.number()).collect::<Option<_>>()?;
        news.push(Told::Changed { name: std::str::from_utf8(name).ok()?.into(), version, removed });
    }
    Some(news)
}

fn millis(seconds: u64, micros: u64) -> u64 {
    seconds * 1_000 + micros / 1_000
}

pub(super) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Numbers with a blank after each, the last of all perhaps without; and what stands behind them.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn number(&mut self) -> Option<u64> {
        let end = self.0.iter().position(|byte| *byte == b' ');
        let (word, rest) = match end {
            Some(end) => (&self.0[..end], &self.0[end + 1..]),
            None => (self.0, &[][..]),
        };
        self.0 = rest;
        number(word)
    }

    /// Seconds and microseconds, in milliseconds.
    fn time(&mut self) -> Option<u64> {
        let seconds = self.number()?;
        Some(millis(seconds, self.number()?))
    }
}
