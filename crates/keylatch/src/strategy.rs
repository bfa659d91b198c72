//! Who decides: one trait, and a URL that picks what is behind it.

mod memory;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "sqlite"))]
mod record;
#[cfg(feature = "server")]
mod server;

use std::pin::Pin;
use std::sync::Arc;

use keylatch_table::{
    Acquire, Entry, Grant, LocksQuery, PoolCounts, RequestId, TaskCommand, TaskReply, TasksQuery,
};
use tokio::sync::mpsc;

use crate::capabilities::Capabilities;
use crate::clock::Moment;
use crate::error::{ConnectError, ListError, LockError, PromoteError, TaskError};
use crate::event::Event;
use crate::guard::{Lost, Released};
use crate::releasing::Counted;
use crate::tasks::Task;

/// What comes of something that was submitted. It goes on also if this is dropped.
pub(crate) type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A grant, and from when its lease counts at the latest.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) grant: Grant,
    pub(crate) since: Moment,
}

/// What came of a renewal. An error of the way is none of these: it is tried again.
#[derive(Clone, Debug)]
pub(crate) enum Renewed {
    Until(Option<Moment>),
    Lost(Lost),
    /// Nothing is held under this id, and nobody knows whether anything was.
    NotHeld,
    /// Not carried out, and why.
    Refused(String),
    /// Not allowed, and why.
    Denied(String),
}

/// A holder that has lost its lock.
pub(crate) type Loss = (RequestId, Lost);

/// Everything is submitted in the order of the calls, not when the futures are polled.
pub(crate) trait Strategy: Send + Sync {
    /// A lock. A future that is dropped says nothing; whoever drops it releases the id.
    fn acquire(&self, ask: Acquire) -> Pending<Result<Granted, LockError>>;
    /// Ends what is held or waited for. Counted until that has come to its end.
    fn release(&self, id: &RequestId, counted: Counted) -> Pending<Released>;
    /// Releases go on, also those that rest on somebody who waits for them.
    fn hurry(&self) {}
    /// Leases anew: for so long, or as first asked for. `None` if that could not be found out.
    fn renew(&self, id: &RequestId, lease_ms: Option<u64>) -> Pending<Option<Renewed>>;
    fn promote(&self, id: &RequestId) -> Pending<Result<Granted, PromoteError>>;
    fn list(&self, query: LocksQuery) -> Pending<Result<Vec<Entry>, ListError>>;
    fn revoke(&self, token: u64, reason: &str) -> Pending<Result<bool, ListError>>;
    /// Everything that happens from when this resolves.
    fn watch(&self) -> Pending<Result<mpsc::Receiver<Event>, ListError>> {
        let refused = ListError::Refused(
            "this strategy does not tell what happens: use the lock server for that".into(),
        );
        Box::pin(std::future::ready(Err(refused)))
    }
}

/// Tasks, where a strategy has them. As with locks, everything is submitted in the order of the calls.
pub(crate) trait TaskStrategy: Send + Sync {
    /// Carries out a command. A claim that waits resolves with its outcome: `Claimed`, `Nothing` when
    /// the time is over, `Refused`, `Cancelled(true)` if it was told to stop. Never with `Waiting` or
    /// `Error`. What it waited counts from the call. A future that is dropped says nothing; whoever
    /// drops a waiting claim cancels its id.
    fn task(&self, command: TaskCommand) -> Pending<Result<TaskReply, TaskError>>;
    /// If commands that are asked for together go together, in their order: as long as what is returned is there, those that
    /// are asked for need not begin, since there is another one to come. Nobody waits for anything meanwhile.
    fn hold(&self) -> Option<Box<dyn Send>> {
        None
    }
    /// Tasks of a pool, in the order in which they were created.
    fn tasks(&self, query: TasksQuery) -> Pending<Result<Vec<Task>, ListError>>;
    fn task_entry(&self, pool: &str, key: &str) -> Pending<Result<Option<Task>, ListError>>;
    /// Of the pool, or of all that have tasks or waiting claims.
    fn pools(&self, pool: Option<&str>) -> Pending<Result<Vec<PoolCounts>, ListError>>;
}

/// What is behind a URL.
pub(crate) struct Opened {
    pub(crate) locks: Arc<dyn Strategy>,
    pub(crate) tasks: Arc<dyn TaskStrategy>,
}

impl Opened {
    /// One object for both.
    fn whole(strategy: impl Strategy + TaskStrategy + 'static) -> Opened {
        let strategy = Arc::new(strategy);
        Opened { locks: strategy.clone(), tasks: strategy }
    }
}

/// What is behind a URL, and where it tells of losses.
#[cfg_attr(not(feature = "server"), allow(clippy::unused_async))] // others connect
pub(crate) async fn connect(
    url: &str,
    losses: mpsc::UnboundedSender<Loss>,
) -> Result<Opened, ConnectError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(unknown(url));
    };
    match scheme {
        "memory" => Ok(Opened::whole(memory::Memory::new(losses))),
        #[cfg(feature = "server")]
        "keylatch" => {
            let server = server::Server::connect(server::Way::plain(rest)?, losses).await?;
            Ok(Opened::whole(server))
        }
        #[cfg(feature = "tls")]
        "keylatchs" => {
            let server = server::Server::connect(server::Way::tls(rest)?, losses).await?;
            Ok(Opened::whole(server))
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let path = rest.trim_start_matches("//");
            if path.is_empty() || path == ":memory:" {
                return Err(ConnectError::Url(format!(
                    "'{url}' names no file: sqlite:PATH does, and memory: is for one program"
                )));
            }
            let store = record::sqlite::Sqlite::open(path).await?;
            Ok(Opened::whole(record::Records::new(store, losses)))
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+unix" => {
            let store = record::redis::Redis::connect(url).await?;
            Ok(Opened::whole(record::Records::new(store, losses)))
        }
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => {
            let store = record::etcd::Etcd::connect(url).await?;
            Ok(Opened::whole(record::Records::new(store, losses)))
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let store = record::postgres::Postgres::connect(url).await?;
            Ok(Opened::whole(record::Records::new(store, losses)))
        }
        _ => Err(match Capabilities::of(url).and_then(|known| known.feature) {
            Some(feature) => ConnectError::Url(format!(
                "{scheme}: was not compiled in: enable the feature `{}`",
                if scheme == "keylatchs" { "tls" } else { feature }
            )),
            None => unknown(url),
        }),
    }
}

/// A member of a cluster in this process, and where it tells of losses.
#[cfg(feature = "cluster")]
pub(crate) async fn enter(
    door: keylatch_server::Door,
    losses: mpsc::UnboundedSender<Loss>,
) -> Result<Opened, ConnectError> {
    Ok(Opened::whole(server::Server::connect(server::Way::inside(door), losses).await?))
}

pub(crate) fn unknown(url: &str) -> ConnectError {
    // What stands before the last `@` may be a password.
    let shown = match url.rsplit_once('@') {
        Some((before, after)) => {
            let scheme = before.split_once(':').map_or("", |(scheme, _)| scheme);
            format!("{scheme}://..@{after}")
        }
        None => url.into(),
    };
    ConnectError::Url(format!(
        "'{shown}' names no strategy: there are memory:, sqlite:PATH, redis:// (rediss:// with TLS, \
         redis+sentinel://), postgres://, etcd:// (etcds://) and keylatch://HOST:PORT[,HOST:PORT...] \
         (keylatchs://)"
    ))
}
