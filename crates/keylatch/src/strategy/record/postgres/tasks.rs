//! Tasks in PostgreSQL: a table beside those of the locks, made when tasks are first asked for. Whatever waits
//! for a connection goes together: one call of a procedure, one transaction and one sync of the disk for all.

mod alone;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use keylatch_table::{PoolCounts, TaskState, Text};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OnceCell, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSqlOwned, Type};

use super::super::gather::{Calls, Gather};
use super::super::store::StoreError;
use super::super::tasks::store::{
    AT_ONCE, Change, NOTED_MS, Page, Put, Ready, Seen, Stamp, Take, Taken, TaskRecord, TaskStore,
    Told, Write, Written,
};
use super::call::{count, life, nonsense};
use super::link::explained;
use super::listen::Modes;
use super::pool::{Params, Pool};
use super::{LIMIT, ended, go};
use crate::strategy::Pending;

/// How many go together at most.
const MOST: usize = 32;
/// And how many bytes they have, more or less.
const MOST_BYTES: usize = 1 << 20;

/// The version of `tasks.sql` and what belongs to it.
const VERSION: i32 = 2;
const SCHEMA: &str = include_str!("tasks.sql");
const DO: &str = "CALL keylatch.do_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
    $15, $16, $17, $18, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";
const ONE: &str = "
    SELECT keylatch.now_ms(), t.key, t.version, t.time_ms, coalesce(t.wrote_version, t.version),
        coalesce(t.wrote_ms, t.time_ms), t.number, t.state::bigint, t.priority::bigint, t.ready_ms, t.bytes, t.claim
    FROM (SELECT) one LEFT JOIN keylatch.tasks t ON t.pool = $1 AND t.key = $2";
const PAGE: &str = "
    SELECT keylatch.now_ms(), t.key, t.version, t.time_ms, coalesce(t.wrote_version, t.version),
        coalesce(t.wrote_ms, t.time_ms), t.number, t.state::bigint, t.priority::bigint, t.ready_ms, t.bytes, t.claim
    FROM keylatch.tasks t WHERE t.pool = $1 AND t.number > $2 AND ($3 < 0 OR t.state = $3)
    ORDER BY t.number LIMIT $4";
/// The same, by the index that only these have.
const FAILED: &str = "
    SELECT keylatch.now_ms(), t.key, t.version, t.time_ms, coalesce(t.wrote_version, t.version),
        coalesce(t.wrote_ms, t.time_ms), t.number, t.state::bigint, t.priority::bigint, t.ready_ms, t.bytes, t.claim
    FROM keylatch.tasks t WHERE t.pool = $1 AND t.number > $2 AND t.state = 3
    ORDER BY t.number LIMIT $3";
const COUNTS: &str = "
    SELECT t.pool,
        count(*) FILTER (WHERE t.state < 2 AND (t.due = 1 OR t.ready_ms <= clock.now_ms)),
        count(*) FILTER (WHERE t.state = 0 AND t.due = 0 AND t.ready_ms > clock.now_ms),
        count(*) FILTER (WHERE t.state = 1 AND (t.due IS NULL OR t.due = 0 AND t.ready_ms > clock.now_ms)),
        count(*) FILTER (WHERE t.state = 2), count(*) FILTER (WHERE t.state = 3)
    FROM keylatch.tasks t CROSS JOIN (SELECT keylatch.now_ms() AS now_ms OFFSET 0) clock
    WHERE $1::bytea IS NULL OR t.pool = $1 GROUP BY t.pool ORDER BY t.pool";

enum Work {
    Change(Change, oneshot::Sender<Result<Written, StoreError>>),
    Take(Take, oneshot::Sender<Result<Taken, StoreError>>),
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Work::Change(Change { write: Write::Put(put), .. }, _) => put.bytes.len(),
            _ => 0,
        }
    }

    fn fail(self, error: &StoreError) {
        match self {
            Work::Change(_, reply) => drop(reply.send(Err(error.clone()))),
            Work::Take(_, reply) => drop(reply.send(Err(error.clone()))),
        }
    }
}

/// Where work goes once a connection is free; then all that waits goes together.
struct Lane {
    pool: Arc<Pool>,
    /// How many connections it uses at once.
    most: usize,
    waited: Mutex<alone::Waited>,
    made: OnceCell<()>,
}

pub(super) struct PostgresTasks {
    lane: Arc<Lane>,
    gather: Gather<Arc<Lane>>,
    modes: Arc<Modes>,
    told: Mutex<Option<UnboundedReceiver<Told>>>,
}

impl PostgresTasks {
    pub(super) fn new(
        pool: &Arc<Pool>,
        modes: &Arc<Modes>,
        told: UnboundedReceiver<Told>,
    ) -> PostgresTasks {
        // All of them: each waits for the disk, and PostgreSQL syncs once for those that wait together.
        let (pool, most) = (Arc::clone(pool), pool.link.connections);
        let lane = Lane { pool, most, waited: Mutex::default(), made: OnceCell::new() };
        let (lane, modes) = (Arc::new(lane), Arc::clone(modes));
        let gather = Gather::new(Arc::clone(&lane));
        PostgresTasks { lane, gather, modes, told: Mutex::new(Some(told)) }
    }

    fn submit<T: Send + 'static>(
        &self,
        work: Work,
        answered: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Pending<Result<T, StoreError>> {
        let answered = self.gather.submit((Instant::now(), work), answered);
        Box::pin(async move { answered.await.unwrap_or_else(|| Err(ended())) })
    }
}

impl Calls for Arc<Lane> {
    /// With the time since which it waits.
    type Job = (Instant, Work);

    fn most(&self) -> usize {
        self.most
    }

    /// One connection that takes all who wait is faster than several that take a few each, as long as one call has room for them.
    fn gathers(&self) -> bool {
        true
    }

    fn crowd(&self, _under_way: usize) -> usize {
        MOST
    }

    fn together(&self, waiting: &mut VecDeque<(Instant, Work)>) -> Vec<(Instant, Work)> {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        while let Some((_, next)) = waiting.front() {
            bytes += next.bytes();
            if jobs.len() == MOST || (!jobs.is_empty() && bytes > MOST_BYTES) {
                break;
            }
            jobs.extend(waiting.pop_front());
        }
        jobs
    }

    async fn call(&self, jobs: Vec<(Instant, Work)>) {
        let mut works = Vec::with_capacity(jobs.len());
        for (since, work) in jobs {
            match since.elapsed() >= LIMIT {
                true => work.fail(&busy()),
                false => works.push(work),
            }
        }
        match self.make().await {
            Ok(()) if works.is_empty() => {}
            Ok(()) => send(self, works).await,
            Err(error) => works.into_iter().for_each(|work| work.fail(&error)),
        }
    }
}

impl TaskStore for PostgresTasks {
    fn take(&self, take: Take) -> Pending<Result<Taken, StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.submit(Work::Take(take, reply), answer)
    }

    fn change(&self, change: Change) -> Pending<Result<Written, StoreError>> {
        let (reply, answer) = oneshot::channel();
        self.submit(Work::Change(change, reply), answer)
    }

    fn task(&self, pool: &Text, key: &Text) -> Pending<Result<Seen, StoreError>> {
        let (lane, pool, key) = (Arc::clone(&self.lane), pool.clone(), key.clone());
        go(async move {
            lane.make().await?;
            let (in_pool, in_key) = (pool.as_bytes(), key.as_bytes());
            let params = &[(&in_pool as _, Type::BYTEA), (&in_key as _, Type::BYTEA)];
            let rows = lane.pool.query_again(ONE, params).await?;
            let row = rows.first().ok_or_else(nothing)?;
            let now = row.try_get::<_, i64>(0).map_err(|error| nonsense(&error))?.cast_unsigned();
            let there = row.try_get::<_, Option<Vec<u8>>>(1).map_err(|error| nonsense(&error))?;
            let record = there.map(|_| record(&pool, row)).transpose();
            Ok(Seen { now, record: record.map_err(|error| nonsense(&error))? })
        })
    }

    fn page(&self, page: Page) -> Pending<Result<(u64, Vec<TaskRecord>), StoreError>> {
        let lane = Arc::clone(&self.lane);
        go(async move {
            lane.make().await?;
            let (pool, limit) = (page.pool.as_bytes(), count(page.limit).into());
            let (after, limit): (i64, i64) = (page.after.min(1 << 62).cast_signed(), limit);
            let state = page.state.map_or(-1, code);
            let [pool, after] = [(&pool as _, Type::BYTEA), (&after as _, Type::INT8)];
            let rows = if page.state == Some(TaskState::Failed) {
                let params = &[pool, after, (&limit as _, Type::INT8)];
                lane.pool.query_again(FAILED, params).await?
            } else {
                let params = &[pool, after, (&state as _, Type::INT2), (&limit as _, Type::INT8)];
                lane.pool.query_again(PAGE, params).await?
            };
            let now = rows.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0));
            let records = rows.iter().map(|row| record(&page.pool, row));
            let records = records.collect::<Result<_, _>>().map_err(|error| nonsense(&error))?;
            Ok((now.map_err(|error| nonsense(&error))?.cast_unsigned(), records))
        })
    }

    fn counts(&self, pool: Option<Text>) -> Pending<Result<Vec<PoolCounts>, StoreError>> {
        let lane = Arc::clone(&self.lane);
        go(async move {
            lane.make().await?;
            let pool = pool.as_ref().map(|pool| pool.as_bytes());
            let rows = lane.pool.query_again(COUNTS, &[(&pool, Type::BYTEA)]).await?;
            let counts = |row: &Row| {
                let count = |at: usize| row.try_get::<_, i64>(at).map(i64::cast_unsigned);
                Ok::<_, tokio_postgres::Error>(PoolCounts {
                    pool: text(row.try_get::<_, &[u8]>(0)?),
                    ready: count(1)?,
                    delayed: count(2)?,
                    claimed: count(3)?,
                    done: count(4)?,
                    failed: count(5)?,
                    waiting: 0,
                })
            };
            rows.iter().map(counts).collect::<Result<_, _>>().map_err(|error| nonsense(&error))
        })
    }

    fn hold(&self) -> Option<Box<dyn Send>> {
        Some(Box::new(self.gather.hold()))
    }

    fn told(&self) -> UnboundedReceiver<Told> {
        self.told.lock().take().unwrap_or_else(|| unbounded_channel().1)
    }

    fn somebody_waits(&self, waits: bool) {
        let set = |mode: &mut super::listen::Mode| {
            std::mem::replace(&mut mode.claims_wait, waits) != waits
        };
        self.modes.send_if_modified(set);
    }
}

fn nothing() -> StoreError {
    StoreError { text: "PostgreSQL answers nothing".into(), unknown: true }
}

fn code(state: TaskState) -> i16 {
    match state {
        TaskState::Free => 0,
        TaskState::Claimed => 1,
        TaskState::Done => 2,
        TaskState::Failed => 3,
    }
}

fn state(code: i64) -> TaskState {
    match code {
        0 => TaskState::Free,
        1 => TaskState::Claimed,
        2 => TaskState::Done,
        _ => TaskState::Failed,
    }
}

/// Only we write here.
fn text(bytes: &[u8]) -> Text {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Behind the time.
fn record(pool: &Text, row: &Row) -> Result<TaskRecord, tokio_postgres::Error> {
    let number = |at: usize| row.try_get::<_, i64>(at);
    let ready: Option<i64> = row.try_get(9)?;
    let numbers = [
        number(2)?,
        number(3)?,
        number(4)?,
        number(5)?,
        number(6)?,
        number(7)?,
        number(8)?,
        ready.unwrap_or(-1),
    ];
    let bytes = [row.try_get(10)?, row.try_get(11)?];
    Ok(made_of(pool.clone(), text(row.try_get::<_, &[u8]>(1)?), &numbers, bytes))
}

/// What `keylatch.task_numbers` makes.
fn eight(bytes: &[u8]) -> [i64; 8] {
    let mut numbers = bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_be_bytes(*bytes));
    std::array::from_fn(|_| numbers.next().unwrap_or(-1))
}

fn made_of(pool: Text, key: Text, numbers: &[i64; 8], [bytes, claim]: [Vec<u8>; 2]) -> TaskRecord {
    let [version, time, wrote, wrote_ms, number, state_code, priority, ready] = *numbers;
    let stamp = |version: i64, time: i64| Stamp {
        version: version.cast_unsigned(),
        time: time.cast_unsigned(),
    };
    TaskRecord {
        pool,
        key,
        last: stamp(version, time),
        written: stamp(wrote, wrote_ms),
        number: number.cast_unsigned(),
        state: state(state_code),
        priority: i32::try_from(priority).unwrap_or_default(),
        ready: u64::try_from(ready).ok(),
        alive: None,
        bytes: bytes.into(),
        claim: claim.into(),
    }
}

/// Whoever waited for too long has been given up, or is about to be.
fn busy() -> StoreError {
    let text = format!("PostgreSQL was busy for {} s", LIMIT.as_secs());
    StoreError { text, unknown: false }
}

async fn send(lane: &Lane, works: Vec<Work>) {
    // What goes alone has a shorter way, if it is an ordinary case; so have two.
    let mut works = match <[Work; 1]>::try_from(works) {
        Ok([work]) => Vec::from_iter(lane.alone(work).await),
        Err(works) => match <[Work; 2]>::try_from(works) {
            Ok(works) => lane.both(works).await,
            Err(works) => works,
        },
    };
    if works.is_empty() {
        return;
    }
    let pool = &lane.pool;
    let rows = together(pool, &mut works).await;
    let error = match rows {
        Ok(row) => match answers(&works, &row) {
            Ok(mut answers) => {
                lane.saw(&works, &row);
                for (n, work) in works.into_iter().enumerate() {
                    match (work, answers.remove(&n)) {
                        (Work::Change(_, reply), Some(Came::Written(it))) => {
                            drop(reply.send(Ok(it)));
                        }
                        (Work::Take(_, reply), Some(Came::Taken(it))) => drop(reply.send(Ok(it))),
                        (work, _) => work.fail(&nothing()),
                    }
                }
                return;
            }
            Err(error) => nonsense(&error),
        },
        Err(error) => error,
    };
    // One of them is not as PostgreSQL likes it, and the others are not to blame.
    if !error.unknown && works.len() > 1 {
        for work in works {
            Box::pin(send(lane, vec![work])).await;
        }
        return;
    }
    for work in works {
        work.fail(&error);
    }
}

/// Changes come first, in the order in which everybody locks them.
async fn together(pool: &Pool, works: &mut [Work]) -> Result<Row, StoreError> {
    works.sort_by(|one, other| match (one, other) {
        (Work::Change(one, _), Work::Change(other, _)) => {
            (&one.pool, &one.key).cmp(&(&other.pool, &other.key))
        }
        // Those who want any task of a pool next to each other.
        (Work::Take(one, _), Work::Take(other, _)) => {
            (one.key.is_some(), &one.pool).cmp(&(other.key.is_some(), &other.pool))
        }
        (Work::Change(..), Work::Take(..)) => std::cmp::Ordering::Less,
        (Work::Take(..), Work::Change(..)) => std::cmp::Ordering::Greater,
    });
    let changes = || {
        works.iter().filter_map(|work| match work {
            Work::Change(change, _) => Some(change),
            Work::Take(..) => None,
        })
    };
    let takes = || {
        works.iter().filter_map(|work| match work {
            Work::Take(take, _) => Some(take),
            Work::Change(..) => None,
        })
    };
    let put = |change: &Change| match &change.write {
        Write::Put(put) => Some(put.clone()),
        Write::Delete => None,
    };
    let puts: Vec<_> = changes().map(put).collect();
    let c_pool: Vec<&[u8]> = changes().map(|change| change.pool.as_bytes()).collect();
    let c_key: Vec<&[u8]> = changes().map(|change| change.key.as_bytes()).collect();
    let c_expect: Vec<Option<i64>> =
        changes().map(|change| change.expect.map(u64::cast_signed)).collect();
    let c_write: Vec<i16> = puts.iter().map(|put| if put.is_some() { 1 } else { 2 }).collect();
    let c_state: Vec<i16> =
        puts.iter().map(|put| put.as_ref().map_or(0, |put| code(put.state))).collect();
    let c_priority: Vec<i32> =
        puts.iter().map(|put| put.as_ref().map_or(0, |put| put.priority)).collect();
    let ready = |at: bool| {
        let ready = puts.iter().map(move |put| match put.as_ref()?.ready {
            Ready::At(time) if at => Some(time.cast_signed()),
            Ready::After(ms) if !at => Some(life(ms)),
            _ => None,
        });
        ready.collect::<Vec<Option<i64>>>()
    };
    let (c_at, c_after) = (ready(true), ready(false));
    let bytes = |put: &Option<Put>| put.as_ref().map(|put| put.bytes.to_vec());
    let claim = |put: &Option<Put>| put.as_ref().map(|put| put.claim.to_vec());
    let c_bytes: Vec<Option<Vec<u8>>> = puts.iter().map(bytes).collect();
    let c_claim: Vec<Option<Vec<u8>>> = puts.iter().map(claim).collect();
    let t_pool: Vec<&[u8]> = takes().map(|take| take.pool.as_bytes()).collect();
    let t_key: Vec<Option<&[u8]>> =
        takes().map(|take| take.key.as_ref().map(|key| key.as_bytes())).collect();
    let t_id: Vec<Vec<u8>> = takes().map(|take| take.id.to_string().into_bytes()).collect();
    let t_claim: Vec<&[u8]> = takes().map(|take| &take.claim[..]).collect();
    let t_lease: Vec<i64> = takes().map(|take| life(take.lease_ms)).collect();
    let t_waits: Vec<bool> = takes().map(|take| take.waits).collect();
    let (at_once, noted): (i32, i64) = (count(AT_ONCE), NOTED_MS.cast_signed());
    let params: Params<'_> = &[
        (&c_pool, Type::BYTEA_ARRAY),
        (&c_key, Type::BYTEA_ARRAY),
        (&c_expect, Type::INT8_ARRAY),
        (&c_write, Type::INT2_ARRAY),
        (&c_state, Type::INT2_ARRAY),
        (&c_priority, Type::INT4_ARRAY),
        (&c_at, Type::INT8_ARRAY),
        (&c_after, Type::INT8_ARRAY),
        (&c_bytes, Type::BYTEA_ARRAY),
        (&c_claim, Type::BYTEA_ARRAY),
        (&t_pool, Type::BYTEA_ARRAY),
        (&t_key, Type::BYTEA_ARRAY),
        (&t_id, Type::BYTEA_ARRAY),
        (&t_claim, Type::BYTEA_ARRAY),
        (&t_lease, Type::INT8_ARRAY),
        (&t_waits, Type::BOOL_ARRAY),
        (&at_once, Type::INT4),
        (&noted, Type::INT8),
    ];
    pool.query(DO, params).await?.pop().ok_or_else(nothing)
}

enum Came {
    Written(Written),
    Taken(Taken),
}

/// What came of each, by its place.
fn answers(works: &[Work], row: &Row) -> Result<BTreeMap<usize, Came>, tokio_postgres::Error> {
    let now = row.try_get::<_, Option<i64>>(0)?.unwrap_or(0).cast_unsigned();
    let (versions, got): (Vec<Option<i64>>, Vec<bool>) = (list(row, 1)?, list(row, 2)?);
    let next: Vec<Option<i64>> = list(row, 3)?;
    let numbers = list::<Vec<u8>>(row, 6)?;
    let records = list::<i32>(row, 4)?.into_iter().zip(list::<Vec<u8>>(row, 5)?);
    let records = records.zip(&numbers);
    let records = records.zip(list::<Vec<u8>>(row, 7)?).zip(list::<Vec<u8>>(row, 8)?);
    let mut found: BTreeMap<usize, TaskRecord> = BTreeMap::new();
    for ((((n, key), numbers), bytes), claim) in records {
        let at = super::call::place(n - 1);
        let pool = match &works[at] {
            Work::Change(change, _) => change.pool.clone(),
            Work::Take(take, _) => take.pool.clone(),
        };
        found.insert(at, made_of(pool, text(&key), &eight(numbers), [bytes, claim]));
    }
    let (mut versions, mut takes) = (versions.into_iter(), got.into_iter().zip(next));
    let mut came = BTreeMap::new();
    for (at, work) in works.iter().enumerate() {
        let record = found.remove(&at);
        let one = match work {
            Work::Change(..) => Came::Written(match versions.next().flatten() {
                Some(version) => {
                    Written::Done(Stamp { version: version.cast_unsigned(), time: now })
                }
                None => Written::Other(Seen { now, record }),
            }),
            Work::Take(..) => match (takes.next(), record) {
                (Some((true, _)), Some(record)) => {
                    Came::Taken(Taken::Task { now: now.max(record.last.time), record })
                }
                (Some((false, next)), record) => {
                    let next_ms = next.map(i64::cast_unsigned);
                    Came::Taken(Taken::Nothing { now, record, next_ms })
                }
                _ => continue,
            },
        };
        came.insert(at, one);
    }
    Ok(came)
}

/// An array; nothing is an empty one.
fn list<T: FromSqlOwned>(row: &Row, at: usize) -> Result<Vec<T>, tokio_postgres::Error> {
    Ok(row.try_get::<_, Option<Vec<T>>>(at)?.unwrap_or_default())
}

impl Lane {
    /// Makes the tables if they are not there.
    async fn make(&self) -> Result<(), StoreError> {
        self.made.get_or_try_init(|| self.make_once()).await.copied()
    }

    async fn make_once(&self) -> Result<(), StoreError> {
        let failed = |error: tokio_postgres::Error| StoreError {
            text: format!(
                "PostgreSQL: the tables of tasks cannot be made or used: {}: connect once with a role that \
                 may create tables in the schema keylatch, and give this one the rights to them",
                explained(&error)
            ),
            unknown: false,
        };
        let there = "SELECT to_regclass('keylatch.task_schema') IS NOT NULL";
        let is_there = |rows: Vec<Row>| rows.first().is_some_and(|row| row.get::<_, bool>(0));
        if is_there(self.pool.query_again(there, &[]).await?) {
            let version = "SELECT version FROM keylatch.task_schema";
            return known(&self.pool.query_again(version, &[]).await?);
        }
        let wire = self.pool.link.connect().await.map_err(failed)?;
        // Others may be about to do the same: it is looked again under a lock.
        let begin =
            "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(1802728813, 2)";
        wire.client.batch_execute(begin).await.map_err(failed)?;
        if !is_there(wire.client.query_typed(there, &[]).await.map_err(failed)?) {
            let note = format!("INSERT INTO keylatch.task_schema (version) VALUES ({VERSION})");
            let make = format!("{}; {note}", alone::with_statements(SCHEMA));
            wire.client.batch_execute(&make).await.map_err(failed)?;
        }
        let version = "SELECT version FROM keylatch.task_schema";
        known(&wire.client.query_typed(version, &[]).await.map_err(failed)?)?;
        wire.client.batch_execute("COMMIT").await.map_err(failed)
    }
}

/// Whether the tables that are there are those that this program knows.
fn known(rows: &[Row]) -> Result<(), StoreError> {
    let version = rows.first().map_or(Ok(0), |row| row.try_get::<_, i32>(0));
    let version = version.map_err(|error| nonsense(&error))?;
    let remedy = match version.cmp(&VERSION) {
        std::cmp::Ordering::Equal => return Ok(()),
        // Nothing that was released has made such a one.
        std::cmp::Ordering::Less => {
            "stop all programs that use it, run DROP SCHEMA keylatch CASCADE, which forgets its locks and \
             tasks, and start them again"
        }
        std::cmp::Ordering::Greater => "use a newer program",
    };
    let text = format!(
        "PostgreSQL: the tables of tasks in the schema keylatch have version {version}, and this program knows \
         {VERSION}: {remedy}"
    );
    Err(StoreError { text, unknown: false })
}

/// `pool key due`, the first two in hexadecimal.
pub(super) fn news(message: &str) -> Option<Told> {
    let mut words = message.split(' ').map(|word| {
        let bytes = (0..word.len()).step_by(2);
        let bytes = bytes.map(|at| u8::from_str_radix(word.get(at..at + 2)?, 16).ok());
        String::from_utf8(bytes.collect::<Option<_>>()?).ok()
    });
    let (pool, key) = (words.next()??, words.next()??);
    let due = message.rsplit(' ').next()?;
    let due_ms = if due.is_empty() { None } else { Some(due.parse().ok()?) };
    Some(Told::Changed { pool: pool.into(), key: key.into(), due_ms })
}
