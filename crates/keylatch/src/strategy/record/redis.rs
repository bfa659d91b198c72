//! `redis://`: a Redis you already run. One script a change, and a channel that tells of it. Time is
//! Redis's own. What a fail-over of Redis forgets is lost: it does not wait for its replicas.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, Script, Value};
use tokio::sync::watch;

use super::super::Pending;
use super::store::{
    Change, Committed, Expect, Head, Name, Record, Store, StoreError, View, Waiter, Write,
};
use crate::error::ConnectError;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Between two tries to subscribe again.
const AGAIN: Duration = Duration::from_millis(200);
/// While there is no subscription, whoever waits looks by itself this often.
const LOOK: Duration = Duration::from_millis(100);

const PREFIX: &str = "keylatch:lock:";
const COUNTER: &str = "keylatch:counter";
const CHANNEL: &str = "keylatch:changed";

const READ: &str = "
    local time = redis.call('TIME')
    local found = { string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)) }
    for _, key in ipairs(KEYS) do found[#found + 1] = redis.call('HGETALL', key) end
    return found";

/// KEYS: the names; ARGV: the waiter's seq and how long it lives.
const TOUCH: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    for _, key in ipairs(KEYS) do
        local waiter = redis.call('HGET', key, 'w:' .. ARGV[1])
        if not waiter then return 0 end
        local came, alive, start = string.match(waiter, '^(%d+) (%d+) ()')
        if tonumber(alive) <= now then return 0 end
        alive = string.format('%.0f', now + tonumber(ARGV[2]))
        redis.call('HSET', key, 'w:' .. ARGV[1], came .. ' ' .. alive .. ' ' .. string.sub(waiter, start))
    end
    return 1";

pub(crate) struct Redis {
    connection: ConnectionManager,
    scripts: Arc<Scripts>,
    changes: watch::Receiver<u64>,
    /// Ends with the store.
    _listener: tokio::task::JoinHandle<()>,
}

struct Scripts {
    commit: Script,
    read: Script,
    touch: Script,
}

impl Redis {
    pub(crate) async fn connect(url: &str) -> Result<Redis, ConnectError> {
        let unreachable = |error: RedisError| ConnectError::Unreachable(format!("Redis: {error}"));
        let client = Client::open(url).map_err(|error| ConnectError::Url(error.to_string()))?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(3)
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        let manager = ConnectionManager::new_with_config(client.clone(), config);
        let mut connection = manager.await.map_err(unreachable)?;
        check(&mut connection).await?;
        let (changed, changes) = watch::channel(0);
        let listener = tokio::spawn(listen(client, changed));
        let scripts = Scripts {
            commit: Script::new(include_str!("redis.lua")),
            read: Script::new(READ),
            touch: Script::new(TOUCH),
        };
        Ok(Redis { connection, scripts: Arc::new(scripts), changes, _listener: listener })
    }
}

/// Whether locks are safe there.
async fn check(connection: &mut ConnectionManager) -> Result<(), ConnectError> {
    let info: Result<String, RedisError> = redis::cmd("INFO").query_async(connection).await;
    let info = info.map_err(|error| ConnectError::Unreachable(format!("Redis: {error}")))?;
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("")
    };
    if field("cluster_enabled") == "1" {
        return Err(ConnectError::Refused(
            "this Redis is a cluster, whose keys cannot change together: use one Redis, or the lock \
             server"
                .into(),
        ));
    }
    let policy = field("maxmemory_policy");
    if field("maxmemory") != "0" && policy != "noeviction" {
        return Err(ConnectError::Refused(format!(
            "this Redis may evict locks when its memory is full (maxmemory-policy is {policy}): set it \
             to noeviction, or use another Redis"
        )));
    }
    Ok(())
}

/// Hears of changes, by whomever.
async fn listen(client: Client, changed: watch::Sender<u64>) {
    while !changed.is_closed() {
        if let Ok(mut subscription) = client.get_async_pubsub().await
            && subscription.subscribe(CHANNEL).await.is_ok()
        {
            // Something may have happened before.
            changed.send_modify(|changes| *changes += 1);
            let mut messages = subscription.on_message();
            loop {
                tokio::select! {
                    message = messages.next() => match message {
                        Some(_) => changed.send_modify(|changes| *changes += 1),
                        None => break,
                    },
                    () = changed.closed() => return,
                }
            }
        }
        changed.send_modify(|changes| *changes += 1);
        tokio::time::sleep(AGAIN.min(LOOK)).await;
    }
}

fn key(name: &str) -> String {
    format!("{PREFIX}{name}")
}

fn failed(error: &RedisError) -> StoreError {
    // Only what Redis itself answered has certainly not happened.
    let answered = matches!(error.kind(), redis::ErrorKind::Server(_));
    StoreError { text: format!("Redis: {error}"), unknown: !answered }
}

fn nonsense() -> StoreError {
    StoreError {
        text: "Redis has records of another program under keylatch:".into(),
        unknown: false,
    }
}

fn view(names: &[Name], value: Value) -> Option<View> {
    let Value::Array(found) = value else { return None };
    let mut found = found.into_iter();
    let mut view = View { now: number(&bytes(found.next()?)?)?, ..View::default() };
    for name in names {
        let fields: HashMap<Vec<u8>, Vec<u8>> = redis::from_redis_value(found.next()?).ok()?;
        let mut record = Record::default();
        for (field, value) in fields {
            let (first, rest) = word(&value)?;
            let (second, rest) = word(rest)?;
            if field == b"h" {
                let bytes = rest.to_vec();
                record.head = Some(Head { version: first, time: second, bytes });
            } else {
                let seq = number(field.strip_prefix(b"w:")?)?;
                let bytes = rest.to_vec();
                record.queue.push(Waiter { seq, time: first, alive_until: second, bytes });
            }
        }
        record.queue.sort_by_key(|waiter| waiter.seq);
        view.names.insert(name.clone(), record);
    }
    Some(view)
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    redis::from_redis_value(value).ok()
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number and what stands behind the blank.
fn word(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    Some((number(&text[..end])?, &text[end + 1..]))
}

async fn read(
    mut connection: ConnectionManager,
    scripts: &Scripts,
    names: &[Name],
) -> Result<View, StoreError> {
    let mut read = scripts.read.prepare_invoke();
    for name in names {
        read.key(key(name));
    }
    let value: Value = read.invoke_async(&mut connection).await.map_err(|error| failed(&error))?;
    view(names, value).ok_or_else(nonsense)
}

impl Store for Redis {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>> {
        let (connection, scripts) = (self.connection.clone(), Arc::clone(&self.scripts));
        Box::pin(async move { read(connection, &scripts, &names).await })
    }

    fn read_all(&self) -> Pending<Result<View, StoreError>> {
        let (mut connection, scripts) = (self.connection.clone(), Arc::clone(&self.scripts));
        Box::pin(async move {
            let (mut names, mut cursor) = (Vec::new(), 0u64);
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(format!("{PREFIX}*")).arg("COUNT").arg(1_000);
                let (next, found): (u64, Vec<String>) =
                    scan.query_async(&mut connection).await.map_err(|error| failed(&error))?;
                names.extend(
                    found.iter().filter_map(|key| key.strip_prefix(PREFIX)).map(Name::from),
                );
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            names.sort_unstable();
            names.dedup();
            read(connection, &scripts, &names).await
        })
    }

    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>> {
        let (mut connection, scripts) = (self.connection.clone(), Arc::clone(&self.scripts));
        Box::pin(async move {
            let mut commit = scripts.commit.prepare_invoke();
            commit.key(COUNTER);
            for name in change.names.keys() {
                commit.key(key(name));
            }
            let (live_ms, bytes, to) = match &change.append {
                Some(append) => (append.live_ms, &append.bytes[..], &append.to[..]),
                None => (0, &[][..], &[][..]),
            };
            commit.arg(CHANNEL).arg(change.numbers).arg(u8::from(change.append.is_some()));
            commit.arg(live_ms).arg(bytes);
            for (name, one) in &change.names {
                match one.expect {
                    Expect::Absent => commit.arg("absent"),
                    Expect::There => commit.arg("there"),
                    Expect::Version(version) => commit.arg(version),
                };
                commit.arg(one.last_seq.map_or(-1, u64::cast_signed));
                match &one.head {
                    Write::Keep => commit.arg("keep").arg("").arg(-1),
                    Write::Delete => commit.arg("delete").arg("").arg(-1),
                    Write::Put { bytes, keep_ms } => {
                        let keep = keep_ms.map_or(-1, u64::cast_signed);
                        commit.arg("put").arg(&bytes[..]).arg(keep)
                    }
                };
                commit.arg(u8::from(to.contains(name))).arg(one.remove.len());
                for seq in &one.remove {
                    commit.arg(*seq);
                }
            }
            let value: Value =
                commit.invoke_async(&mut connection).await.map_err(|error| failed(&error))?;
            let names: Vec<Name> = change.names.keys().cloned().collect();
            let done = |value: &Value| -> Option<Committed> {
                let Value::Array(words) = value else { return None };
                let [first, version, seq] = &words[..] else { return None };
                if bytes_of(first)? != b"done" {
                    return None;
                }
                let (version, seq) = (number(bytes_of(version)?)?, number(bytes_of(seq)?)?);
                Some(Committed::Done { version, seq })
            };
            match done(&value) {
                Some(done) => Ok(done),
                None => view(&names, value).map(Committed::Mismatch).ok_or_else(nonsense),
            }
        })
    }

    fn touch(&self, to: Vec<Name>, seq: u64, live_ms: u64) -> Pending<Result<bool, StoreError>> {
        let (mut connection, scripts) = (self.connection.clone(), Arc::clone(&self.scripts));
        Box::pin(async move {
            let mut touch = scripts.touch.prepare_invoke();
            for name in &to {
                touch.key(key(name));
            }
            touch.arg(seq).arg(live_ms);
            let alive: i64 =
                touch.invoke_async(&mut connection).await.map_err(|error| failed(&error))?;
            Ok(alive == 1)
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

fn bytes_of(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}
