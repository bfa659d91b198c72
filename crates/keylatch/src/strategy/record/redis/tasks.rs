//! Tasks in Redis. `tasks.lua` says what is kept; all that is done is one call of it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use keylatch_table::{PoolCounts, TaskState, Text};
use parking_lot::Mutex;
use redis::{Cmd, Script, Value};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::super::store::StoreError;
use super::super::tasks::store::{
    AT_ONCE, Change, NOTED_MS, Page, Ready, Seen, Stamp, Take, Taken, TaskRecord, TaskStore, Told,
    Write, Written,
};
use super::link::Link;
use super::words::{number, text};
use super::{failed, nonsense, run};
use crate::strategy::Pending;

/// Between two tries to subscribe again.
const AGAIN: Duration = Duration::from_millis(100);
/// At most so many tasks come with one answer.
const PAGE: usize = 100;

#[derive(Clone)]
struct Place {
    link: Arc<Link>,
    script: Arc<Script>,
    channel: Arc<str>,
}

pub(super) struct RedisTasks {
    place: Place,
    told: Mutex<Option<UnboundedReceiver<Told>>>,
}

impl RedisTasks {
    pub(super) fn new(link: &Arc<Link>, db: i64) -> RedisTasks {
        let channel: Arc<str> = format!("keylatch:tasks:{db}").into();
        let (tell, told) = unbounded_channel();
        tokio::spawn(listen(Arc::downgrade(link), Arc::clone(&channel), tell));
        let script = Arc::new(Script::new(include_str!("tasks.lua")));
        let place = Place { link: Arc::clone(link), script, channel };
        RedisTasks { place, told: Mutex::new(Some(told)) }
    }
}

impl Place {
    fn call(&self, what: &str, pool: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.script.get_hash()).arg(0).arg(what).arg(&*self.channel).arg(pool);
        command
    }

    async fn run(&self, command: Cmd) -> Result<Value, StoreError> {
        run(&self.link, &self.script, command).await
    }

    async fn take(&self, take: Take) -> Result<Taken, StoreError> {
        let mut command = self.call("take", &take.pool);
        command.arg(take.key.as_ref().map_or(String::new(), |key| format!("={key}")));
        command.arg(take.id.to_string()).arg(&take.claim[..]).arg(take.lease_ms);
        command.arg(u8::from(take.waits)).arg(AT_ONCE).arg(NOTED_MS);
        let value = self.run(command).await?;
        taken(&take, value).ok_or_else(nonsense)
    }

    async fn change(&self, change: Change) -> Result<Written, StoreError> {
        let mut command = self.call("change", &change.pool);
        command.arg(&*change.key);
        command.arg(change.expect.map_or(String::new(), |version| version.to_string()));
        match &change.write {
            Write::Delete => drop(command.arg("d").arg(["", "", "", "", ""].as_slice())),
            Write::Put(put) => {
                command.arg("p").arg(code(put.state)).arg(put.priority);
                match put.ready {
                    Ready::At(time) => command.arg(time),
                    Ready::After(ms) => command.arg(format!("+{ms}")),
                    Ready::Never => command.arg(""),
                };
                command.arg(&put.bytes[..]).arg(&put.claim[..]);
            }
        }
        let value = self.run(command).await?;
        written(&change, value).ok_or_else(nonsense)
    }

    async fn task(&self, pool: Text, key: Text) -> Result<Seen, StoreError> {
        let mut command = self.call("task", &pool);
        command.arg(&*key);
        let value = self.run(command).await?;
        seen(&pool, &key, value).ok_or_else(nonsense)
    }

    async fn page(&self, page: Page) -> Result<(u64, Vec<TaskRecord>), StoreError> {
        let set = match page.state {
            None | Some(TaskState::Free) => "all",
            Some(TaskState::Claimed) => "claimed",
            Some(TaskState::Done) => "done",
            Some(TaskState::Failed) => "failed",
        };
        let (mut now, mut all, mut after) = (0, Vec::new(), page.after);
        loop {
            let limit = PAGE.min(page.limit - all.len());
            let mut command = self.call("page", &page.pool);
            command.arg(set).arg(after).arg(limit);
            let value = self.run(command).await?;
            let (time, some) = records(&page.pool, value).ok_or_else(nonsense)?;
            now = now.max(time);
            let is_last = some.len() < limit;
            all.extend(some);
            match all.last() {
                Some(last) if !is_last && all.len() < page.limit => after = last.number,
                _ => return Ok((now, all)),
            }
        }
    }

    async fn counts(&self, pool: Option<Text>) -> Result<Vec<PoolCounts>, StoreError> {
        let mut pools = match pool {
            Some(pool) => vec![pool],
            None => self.pools().await?,
        };
        pools.sort_unstable();
        let mut all = Vec::with_capacity(pools.len());
        for pool in pools {
            let counts = loop {
                let mut command = self.call("counts", &pool);
                command.arg(AT_ONCE);
                let value = self.run(command).await?;
                let counts: [i64; 6] = redis::from_redis_value(value).map_err(|_| nonsense())?;
                if counts[0].cast_unsigned() < AT_ONCE as u64 {
                    break counts.map(i64::cast_unsigned);
                }
            };
            let [_, tasks, ready, claimed, done, failed] = counts;
            let delayed = tasks.saturating_sub(ready + claimed + done + failed);
            if tasks > 0 {
                all.push(PoolCounts { pool, ready, delayed, claimed, done, failed, waiting: 0 });
            }
        }
        Ok(all)
    }

    async fn pools(&self) -> Result<Vec<Text>, StoreError> {
        let (number, mut connection) = self.link.connection().await?;
        let mut members = redis::cmd("SMEMBERS");
        members.arg("keylatch:tasks:pools");
        let pools: Vec<String> = members.query_async(&mut connection).await.map_err(|error| {
            self.link.broke(number, &error);
            failed(&error)
        })?;
        Ok(pools.into_iter().map(Text::from).collect())
    }
}

impl TaskStore for RedisTasks {
    fn take(&self, take: Take) -> Pending<Result<Taken, StoreError>> {
        let place = self.place.clone();
        Box::pin(async move { place.take(take).await })
    }

    fn change(&self, change: Change) -> Pending<Result<Written, StoreError>> {
        let place = self.place.clone();
        Box::pin(async move { place.change(change).await })
    }

    fn task(&self, pool: &Text, key: &Text) -> Pending<Result<Seen, StoreError>> {
        let (place, pool, key) = (self.place.clone(), pool.clone(), key.clone());
        Box::pin(async move { place.task(pool, key).await })
    }

    fn page(&self, page: Page) -> Pending<Result<(u64, Vec<TaskRecord>), StoreError>> {
        let place = self.place.clone();
        Box::pin(async move { place.page(page).await })
    }

    fn counts(&self, pool: Option<Text>) -> Pending<Result<Vec<PoolCounts>, StoreError>> {
        let place = self.place.clone();
        Box::pin(async move { place.counts(pool).await })
    }

    fn told(&self) -> UnboundedReceiver<Told> {
        self.told.lock().take().unwrap_or_else(|| unbounded_channel().1)
    }
}

fn code(state: TaskState) -> u8 {
    match state {
        TaskState::Free => 0,
        TaskState::Claimed => 1,
        TaskState::Done => 2,
        TaskState::Failed => 3,
    }
}

/// The fields of a task. The inner one is nothing, if there is none.
#[allow(clippy::option_option)]
fn record(pool: &Text, key: &Text, value: Value) -> Option<Option<TaskRecord>> {
    let Value::Array(fields) = value else { return None };
    if matches!(fields.first()?, Value::Nil) {
        return Some(None);
    }
    let whole = |at: usize| number(text(fields.get(at)?)?);
    let ready = text(fields.get(7)?)?;
    Some(Some(TaskRecord {
        pool: pool.clone(),
        key: key.clone(),
        last: Stamp { version: whole(0)?, time: whole(1)? },
        written: Stamp { version: whole(2)?, time: whole(3)? },
        number: whole(4)?,
        state: match text(fields.get(5)?)? {
            b"0" => TaskState::Free,
            b"1" => TaskState::Claimed,
            b"2" => TaskState::Done,
            b"3" => TaskState::Failed,
            _ => return None,
        },
        priority: std::str::from_utf8(text(fields.get(6)?)?).ok()?.parse().ok()?,
        ready: if ready.is_empty() { None } else { Some(number(ready)?) },
        alive: None,
        claim: text(fields.get(8)?)?.into(),
        bytes: text(fields.get(9)?)?.into(),
    }))
}

fn taken(take: &Take, value: Value) -> Option<Taken> {
    let Value::Array(answer) = value else { return None };
    let [now, got, word, fields] = <[Value; 4]>::try_from(answer).ok()?;
    let (now, word) = (number(text(&now)?)?, text(&word)?);
    if text(&got)? == b"1" {
        let key: Text = std::str::from_utf8(word).ok()?.into();
        return Some(Taken::Task { now, record: record(&take.pool, &key, fields)?? });
    }
    if let Some(key) = &take.key {
        let record = record(&take.pool, key, fields)?;
        let next_ms = record.as_ref().and_then(|record| record.ready);
        let next_ms = next_ms.map(|ready| ready.saturating_sub(now));
        return Some(Taken::Nothing { now, record, next_ms });
    }
    let next_ms = if word.is_empty() { None } else { Some(number(word)?) };
    Some(Taken::Nothing { now, record: None, next_ms })
}

fn written(change: &Change, value: Value) -> Option<Written> {
    if let Value::BulkString(answer) = &value {
        let (version, time) = std::str::from_utf8(answer).ok()?.split_once(' ')?;
        let (version, time) = (version.parse().ok()?, time.parse().ok()?);
        return Some(Written::Done(Stamp { version, time }));
    }
    Some(Written::Other(seen(&change.pool, &change.key, value)?))
}

fn seen(pool: &Text, key: &Text, value: Value) -> Option<Seen> {
    let Value::Array(answer) = value else { return None };
    let [now, fields] = <[Value; 2]>::try_from(answer).ok()?;
    Some(Seen { now: number(text(&now)?)?, record: record(pool, key, fields)? })
}

fn records(pool: &Text, value: Value) -> Option<(u64, Vec<TaskRecord>)> {
    let Value::Array(answer) = value else { return None };
    let mut answer = answer.into_iter();
    let now = number(text(&answer.next()?)?)?;
    let mut all = Vec::new();
    while let Some(key) = answer.next() {
        let key: Text = std::str::from_utf8(text(&key)?).ok()?.into();
        all.extend(record(pool, &key, answer.next()?)?);
    }
    Some((now, all))
}

/// A pool and a key, each with its length in front, and in how long it is due.
fn news(message: &[u8]) -> Option<Told> {
    let part = |bytes: &[u8]| {
        let blank = bytes.iter().position(|byte| *byte == b' ')?;
        let (length, rest) = (number(&bytes[..blank])? as usize, &bytes[blank + 1..]);
        let (part, rest) = rest.split_at_checked(length)?;
        Some((Text::from(std::str::from_utf8(part).ok()?), rest.to_vec()))
    };
    let (pool, rest) = part(message)?;
    let (key, due) = part(&rest)?;
    let due_ms = if due.is_empty() { None } else { Some(number(&due)?) };
    Some(Told::Changed { pool, key, due_ms })
}

/// Listens as long as somebody wants to hear.
async fn listen(link: Weak<Link>, channel: Arc<str>, tell: UnboundedSender<Told>) {
    loop {
        let Some(here) = link.upgrade() else { return };
        let mut broken = here.broken();
        let subscribed = async {
            let mut subscription = here.client().await?.get_async_pubsub().await?;
            subscription.subscribe(&*channel).await?;
            Ok::<_, redis::RedisError>(subscription)
        };
        let subscribed = subscribed.await;
        drop(here);
        // Something may have happened before.
        drop(tell.send(Told::Anything));
        if let Ok(mut subscription) = subscribed {
            let mut messages = subscription.on_message();
            loop {
                tokio::select! {
                    message = messages.next() => {
                        let Some(message) = message else { break };
                        let told = news(message.get_payload_bytes());
                        drop(tell.send(told.unwrap_or(Told::Anything)));
                    }
                    // The other connection broke: this one may be to nobody, too, and not know.
                    _ = broken.changed() => break,
                    () = tell.closed() => return,
                }
            }
        }
        if tell.is_closed() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}
