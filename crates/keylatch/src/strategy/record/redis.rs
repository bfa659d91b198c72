//! `redis://`: a Redis you already run. One script a change, and a channel that tells of it. Time is
//! Redis's own. What a fail-over of Redis forgets is lost: it does not wait for its replicas.
//!
//! - `place`: what a URL says; one Redis, or the one that Sentinels name.
//! - `lane`: what is wanted at the same time goes together.
//! - `link`: the connection, made again when it breaks, and whether that Redis is fit for locks.
//! - `listen`: the second connection, on which changes are told.
//! - `tasks`: tasks, whose records and rules of keeping are in `tasks.lua`.
//! - `words`: changes as arguments of the scripts, and their answers.
//! - `commit.lua` says what is kept; `take.lua` and `leave.lua` are its two most frequent cases, where nobody else is,
//!   and `plain.lua` several of those.

mod lane;
mod link;
mod listen;
mod place;
mod tasks;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use parking_lot::Mutex;
use redis::{Cmd, RedisError, Script, Value};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::lane::Lane;
use self::link::Link;
use super::super::Pending;
use super::store::{Change, Committed, Landing, Name, Plain, Stand, Store, StoreError, Told, View};
use super::tasks::store::TaskStore;
use crate::carried::Carried;
use crate::error::ConnectError;

/// The length of this is in the scripts.
const PREFIX: &str = "keylatch:lock:";
/// So many names or waiters are looked at by one script: nobody else is served meanwhile.
const AT_ONCE: usize = 500;

pub(crate) struct Redis {
    link: Arc<Link>,
    scripts: Arc<Scripts>,
    lane: Lane,
    told: Mutex<Option<UnboundedReceiver<Told>>>,
    db: i64,
}

struct Scripts {
    take: Script,
    leave: Script,
    commit: Script,
    read: Script,
    touch: Script,
    plain: Script,
    channel: String,
}

impl Redis {
    pub(crate) async fn connect(url: &str) -> Result<Redis, ConnectError> {
        let place = place::Place::parse(url)?;
        // Messages of all databases of a Redis are told to all.
        let db = place.db();
        let channel = format!("keylatch:changed:{db}");
        let link = Arc::new(Link::connect(place).await?);
        let (tell, told) = unbounded_channel();
        listen::start(&link, channel.clone(), tell).await?;
        let scripts = Scripts {
            take: Script::new(include_str!("redis/take.lua")),
            leave: Script::new(include_str!("redis/leave.lua")),
            commit: Script::new(include_str!("redis/commit.lua")),
            read: Script::new(include_str!("redis/read.lua")),
            touch: Script::new(include_str!("redis/touch.lua")),
            plain: Script::new(include_str!("redis/plain.lua")),
            channel,
        };
        let scripts = Arc::new(scripts);
        let lane = Lane::new(&link, &scripts);
        Ok(Redis { link, scripts, lane, told: Mutex::new(Some(told)), db })
    }
}

fn failed(error: &RedisError) -> StoreError {
    // Only what Redis itself answered has certainly not happened.
    let answered =
        matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension);
    StoreError { text: format!("Redis: {error}"), unknown: !answered }
}

fn nonsense() -> StoreError {
    StoreError {
        text: "Redis has records of another program under keylatch:".into(),
        unknown: false,
    }
}

/// Runs a script. A Redis that was restarted does not know it any more, and is told again.
async fn run(link: &Link, script: &Script, command: Cmd) -> Result<Value, StoreError> {
    let (number, mut connection) = link.connection().await?;
    let mut answer: Result<Value, RedisError> = command.query_async(&mut connection).await;
    let unknown = redis::ErrorKind::Server(redis::ServerErrorKind::NoScript);
    if answer.as_ref().is_err_and(|error| error.kind() == unknown) {
        answer = match script.load_async(&mut connection).await {
            Ok(_) => command.query_async(&mut connection).await,
            Err(error) => Err(error),
        };
    }
    answer.map_err(|error| {
        link.broke(number, &error);
        failed(&error)
    })
}

async fn read(link: &Link, scripts: &Scripts, names: &[Name]) -> Result<View, StoreError> {
    let mut view = View::default();
    // At least once: for the time.
    for names in names.chunks(AT_ONCE).chain(names.is_empty().then_some(&[][..])) {
        let value = run(link, &scripts.read, words::read(&scripts.read, names)).await?;
        let some = words::view(names, value).ok_or_else(nonsense)?;
        view.now = some.now;
        view.names.extend(some.names);
    }
    Ok(view)
}

async fn all_names(link: &Link) -> Result<Vec<Name>, StoreError> {
    let (number, mut connection) = link.connection().await?;
    let (mut names, mut cursor) = (Vec::new(), 0u64);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{PREFIX}*")).arg("COUNT").arg(1_000);
        let found: Result<(u64, Vec<Vec<u8>>), RedisError> =
            scan.query_async(&mut connection).await;
        let (next, keys) = found.map_err(|error| {
            link.broke(number, &error);
            failed(&error)
        })?;
        let name = |key: &Vec<u8>| Some(std::str::from_utf8(&key[PREFIX.len()..]).ok()?.into());
        names.extend(keys.iter().filter_map(name));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

impl Store for Redis {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>> {
        let (link, scripts) = (Arc::clone(&self.link), Arc::clone(&self.scripts));
        Box::pin(async move { read(&link, &scripts, &names).await })
    }

    fn read_all(&self) -> Pending<Result<View, StoreError>> {
        let (link, scripts) = (Arc::clone(&self.link), Arc::clone(&self.scripts));
        Box::pin(async move {
            let mut view = read(&link, &scripts, &all_names(&link).await?).await?;
            // What has gone since it was found.
            view.names.retain(|_, record| record.head.is_some() || !record.queue.is_empty());
            Ok(view)
        })
    }

    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>> {
        let (link, scripts) = (Arc::clone(&self.link), Arc::clone(&self.scripts));
        Box::pin(async move {
            let value = run(&link, &scripts.commit, words::commit(&scripts, &change)).await?;
            words::committed(&change, value).ok_or_else(nonsense)
        })
    }

    fn land(
        &self,
        _runtime: &Handle,
        name: Name,
        plain: Plain,
        landing: Landing,
    ) -> Option<Carried<()>> {
        self.lane.land(name, plain, landing)
    }

    fn touch(
        &self,
        waiters: Vec<(Stand, Vec<Name>)>,
        live_ms: u64,
    ) -> Pending<Result<Vec<bool>, StoreError>> {
        let (link, scripts) = (Arc::clone(&self.link), Arc::clone(&self.scripts));
        Box::pin(async move {
            let mut alive = Vec::with_capacity(waiters.len());
            for some in waiters.chunks(AT_ONCE) {
                let command = words::touch(&scripts.touch, some, live_ms);
                let value = run(&link, &scripts.touch, command).await?;
                let answers = words::text(&value).filter(|text| text.len() == some.len());
                alive.extend(answers.ok_or_else(nonsense)?.iter().map(|answer| *answer == b'1'));
            }
            Ok(alive)
        })
    }

    fn told(&self) -> UnboundedReceiver<Told> {
        self.told.lock().take().unwrap_or_else(|| unbounded_channel().1)
    }

    fn tasks(&self) -> Option<Arc<dyn TaskStore>> {
        Some(Arc::new(tasks::RedisTasks::new(&self.link, self.db)))
    }
}
