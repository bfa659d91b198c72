//! `postgres://`: a PostgreSQL you already run. A change is one call of a procedure, which takes the advisory locks
//! of its names, checks, draws the numbers and writes, in one transaction and one round trip; nothing of it
//! depends on which connection runs it, so it works behind a transaction pooler. Time is PostgreSQL's
//! own clock. What a fail-over to an asynchronous replica forgets is lost.
//!
//! - `link`: the URL, and which errors leave it open whether something happened.
//! - `tls`: how much of a certificate is looked at.
//! - `schema`: made when it is not there; `schema.sql` has the procedure.
//! - `pool`: some connections. `lane`: changes that wait for one of them go together.
//! - `call`: changes as arguments. `listen`: LISTEN, or looking where that does not work.
//! - `sweep`: what nobody needs any more.
//! - `tasks`: tasks; `tasks.sql` has their table and procedure.

mod call;
mod lane;
mod link;
mod listen;
mod pool;
mod schema;
mod sweep;
mod tasks;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_postgres::types::Type;

use super::super::Pending;
use super::store::{Change, Committed, Done, Name, Stand, Store, StoreError, Told, View, Write};
use super::tasks::store::{TaskStore, Told as TaskTold};
use crate::error::ConnectError;
use call::{count, is_durable, life, locks, nonsense, place, view};
use lane::Lane;
use link::Link;
use listen::{Mode, Modes, Tells};
use pool::{Params, Pool};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How long it is waited at first whether LISTEN works; until it does, we look.
const FIRST_PROOF: Duration = Duration::from_millis(500);
/// How many waiters are touched at once: each locks its names.
const MOST_TOUCHED: usize = 256;
/// The longest name: an index of PostgreSQL has no room for more.
const MOST_NAME_BYTES: usize = 2_048;

const READ: &str = "SELECT * FROM keylatch.read($1)";
const READ_ALL: &str = "
    SELECT 0, NULL::bytea, keylatch.now_ms(), 0::bigint, 0::bigint, NULL::bytea
    UNION ALL SELECT 1, name, version, time_ms, 0, bytes FROM keylatch.heads
    UNION ALL SELECT 2, name, seq, time_ms, alive_until_ms, bytes FROM keylatch.waiters";
const TOUCH: &str = "SELECT keylatch.touch($1, $2, $3, $4, $5, $6)";

pub(crate) struct Postgres {
    pool: Arc<Pool>,
    /// For changes that must survive a crash, and for the others.
    durable: Lane,
    quick: Lane,
    modes: Arc<Modes>,
    tell: mpsc::UnboundedSender<Told>,
    told: Mutex<Option<mpsc::UnboundedReceiver<Told>>>,
    /// Who hears of tasks, once somebody does.
    task_tell: Arc<Mutex<Option<mpsc::UnboundedSender<TaskTold>>>>,
}

impl Postgres {
    pub(crate) async fn connect(url: &str) -> Result<Postgres, ConnectError> {
        let link = Link::new(url).map_err(ConnectError::Url)?;
        let set_up = tokio::time::timeout(2 * LIMIT, schema::set_up(&link)).await;
        let silent = |_| format!("PostgreSQL at {} does not answer", link.at);
        set_up.map_err(silent).map_err(ConnectError::Unreachable)??;
        let (listens, connections) = (link.listens, link.connections);
        let pool = Arc::new(Pool::new(link));
        let quick = Lane::new(&pool, connections.div_ceil(3));
        let durable = Lane::new(&pool, connections.div_ceil(2));
        let (tell, told) = mpsc::unbounded_channel();
        let modes = Arc::new(Modes::new(Mode::default()));
        let task_tell = Arc::default();
        let tells = Tells { locks: tell.clone(), tasks: Arc::clone(&task_tell) };
        tokio::spawn(listen::look(Arc::clone(&pool), modes.subscribe(), tells.clone()));
        if listens {
            let listening = Arc::downgrade(&modes);
            tokio::spawn(listen::listen(Arc::clone(&pool), listening, tells));
            let mut mode = modes.subscribe();
            drop(tokio::time::timeout(FIRST_PROOF, mode.wait_for(|mode| mode.hears)).await);
        }
        sweep::sweep(&pool, &quick).await;
        tokio::spawn(sweep::run(Arc::clone(&pool), quick.clone(), modes.subscribe()));
        let told = Mutex::new(Some(told));
        Ok(Postgres { pool, durable, quick, modes, tell, told, task_tell })
    }
}

/// What a change may have to tell to this process, where PostgreSQL does not: of which names, who left, and
/// whether also if nobody waited.
struct ToTell(Vec<(Name, Vec<u64>, bool)>);

impl ToTell {
    fn new(change: &Change) -> ToTell {
        let names = change.names.iter();
        let names = names.filter(|(_, one)| {
            one.tell || !one.remove.is_empty() || !matches!(one.head, Write::Keep)
        });
        let names = names.map(|(name, one)| {
            (name.clone(), one.remove.iter().map(|stand| stand.seq).collect(), one.tell)
        });
        ToTell(names.collect())
    }

    fn tell(self, done: &Done, tell: &mpsc::UnboundedSender<Told>) {
        for (name, removed, always) in self.0 {
            if always || done.names.get(&name).is_some_and(|found| found.last_seq > 0) {
                drop(tell.send(Told::Changed { name, version: done.version, removed }));
            }
        }
    }
}

/// It goes on, whatever becomes of what is returned.
fn go<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Pending<Result<T, StoreError>> {
    let work = tokio::spawn(work);
    Box::pin(async move { work.await.unwrap_or_else(|_| Err(ended())) })
}

/// The runtime ends, and everything with it.
fn ended() -> StoreError {
    StoreError { text: "the program ends".into(), unknown: true }
}

async fn touch(
    pool: &Pool,
    waiters: &[(Stand, Vec<Name>)],
    live_ms: u64,
) -> Result<Vec<bool>, StoreError> {
    let locks = locks(waiters.iter().flat_map(|(_, names)| names));
    let (mut who, mut name, mut seq, mut id) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (number, (stand, names)) in waiters.iter().enumerate() {
        for one in names {
            who.push(count(number));
            name.push(one.as_bytes());
            seq.push(stand.seq.cast_signed());
            id.push(stand.id.to_string().into_bytes());
        }
    }
    let live_ms = life(live_ms);
    let params: Params<'_> = &[
        (&locks, Type::INT4_ARRAY),
        (&who, Type::INT4_ARRAY),
        (&name, Type::BYTEA_ARRAY),
        (&seq, Type::INT8_ARRAY),
        (&id, Type::BYTEA_ARRAY),
        (&live_ms, Type::INT8),
    ];
    let rows = pool.query_again(TOUCH, params).await?;
    let touched = rows.first().map(|row| row.try_get::<_, Vec<i32>>(0)).transpose();
    let touched = touched.map_err(|error| nonsense(&error))?.unwrap_or_default();
    let mut alive = vec![false; waiters.len()];
    for number in touched {
        alive[place(number)] = true;
    }
    Ok(alive)
}

impl Store for Postgres {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>> {
        let pool = Arc::clone(&self.pool);
        go(async move {
            let asked: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
            let rows = pool.query_again(READ, &[(&asked, Type::BYTEA_ARRAY)]).await?;
            view(names, &rows).map_err(|error| nonsense(&error))
        })
    }

    fn read_all(&self) -> Pending<Result<View, StoreError>> {
        let pool = Arc::clone(&self.pool);
        go(async move {
            let rows = pool.query_again(READ_ALL, &[]).await?;
            view([], &rows).map_err(|error| nonsense(&error))
        })
    }

    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>> {
        if change.names.keys().any(|name| name.len() > MOST_NAME_BYTES) {
            let text = format!("a name has at most {MOST_NAME_BYTES} bytes with PostgreSQL");
            return Box::pin(std::future::ready(Err(StoreError { text, unknown: false })));
        }
        // Where PostgreSQL tells everybody, it tells us too.
        let to_tell = (!self.modes.borrow().hears).then(|| ToTell::new(&change));
        let lane = if is_durable(&change) { &self.durable } else { &self.quick };
        let (committed, tell) = (lane.submit(change), self.tell.clone());
        Box::pin(async move {
            let committed = committed.await.unwrap_or_else(|| Err(ended()));
            if let (Ok(Committed::Done(done)), Some(to_tell)) = (&committed, to_tell) {
                to_tell.tell(done, &tell);
            }
            committed
        })
    }

    fn touch(
        &self,
        waiters: Vec<(Stand, Vec<Name>)>,
        live_ms: u64,
    ) -> Pending<Result<Vec<bool>, StoreError>> {
        let pool = Arc::clone(&self.pool);
        go(async move {
            let mut alive = Vec::with_capacity(waiters.len());
            for some in waiters.chunks(MOST_TOUCHED) {
                alive.extend(touch(&pool, some, live_ms).await?);
            }
            Ok(alive)
        })
    }

    fn told(&self) -> mpsc::UnboundedReceiver<Told> {
        self.told.lock().take().unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn somebody_waits(&self, waits: bool) {
        self.modes.send_if_modified(|mode| std::mem::replace(&mut mode.waits, waits) != waits);
    }

    fn tasks(&self) -> Option<Arc<dyn TaskStore>> {
        let (tell, told) = mpsc::unbounded_channel();
        *self.task_tell.lock() = Some(tell);
        Some(Arc::new(tasks::PostgresTasks::new(&self.pool, &self.modes, told)))
    }
}
