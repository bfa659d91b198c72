//! One take or one change that goes alone, or one of each, by a shorter way: one statement, which is its own transaction. It is
//! for the ordinary case, where nobody waits and everything is as expected; all else goes the long way, which
//! also tells.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use keylatch_table::{TaskState, Text};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::super::super::store::StoreError;
use super::super::super::tasks::store::{
    Change, Put, Ready, Stamp, Take, Taken, TaskRecord, Write, Written,
};
use super::super::call::{life, nonsense};
use super::super::pool::Params;
use super::{Lane, Work, code, text};

/// Where somebody waits the long way is taken at once for so long.
const WAITED: Duration = Duration::from_secs(1);

/// A statement. Where a connection stays the same one it is prepared; elsewhere a function has it, whose plan is
/// kept by whatever connection of PostgreSQL's it comes to.
struct Statement {
    /// Where it stands in `tasks.sql`.
    place: &'static str,
    text: &'static str,
    call: &'static str,
}

static TAKE: Statement = Statement {
    place: "{take}",
    text: include_str!("take.sql"),
    call: "SELECT * FROM keylatch.task_take_one($1, $2, $3, $4)",
};
static CREATE: Statement = Statement {
    place: "{create}",
    text: include_str!("create.sql"),
    call: "SELECT * FROM keylatch.task_create_one($1, $2, $3, $4, $5, $6, $7, $8)",
};
static PUT: Statement = Statement {
    place: "{put}",
    text: include_str!("put.sql"),
    call: "SELECT * FROM keylatch.task_put_one($1, $2, $3, $4, $5, $6, $7, $8, $9)",
};
static DELETE: Statement = Statement {
    place: "{delete}",
    text: include_str!("delete.sql"),
    call: "SELECT * FROM keylatch.task_delete_one($1, $2, $3)",
};

/// A put and a take: the arguments of the put, then those of the take. The put comes first, since the take looks at it: a task that its
/// worker is done with after its lease must not be the next one that it gets.
static PUT_AND_TAKE: LazyLock<String> = LazyLock::new(|| {
    let mut take = TAKE.text.to_string();
    for at in 1..=4 {
        take = take.replace(&format!("${at}"), &format!("${}", PUT_PARAMS + at));
    }
    let after = "l.due = 1";
    let take = take.replacen(after, "l.due = 1 AND (SELECT count(*) FROM put) >= 0", 1);
    format!(
        "WITH put AS ({}), took AS ({take}) SELECT put.*, took.* FROM (SELECT) one LEFT JOIN put ON true \
         LEFT JOIN took ON true",
        PUT.text
    )
});
/// How many arguments a put has, and how many columns it answers.
const PUT_PARAMS: usize = 9;
const PUT_COLUMNS: usize = 2;

/// `tasks.sql` with the statements in their places.
pub(super) fn with_statements(schema: &str) -> String {
    let put_in = |schema: String, one: &Statement| schema.replace(one.place, one.text);
    [&TAKE, &CREATE, &PUT, &DELETE].into_iter().fold(schema.to_string(), put_in)
}

/// Somebody waited in this pool a moment ago.
pub(super) type Waited = Option<(Text, Instant)>;

impl Lane {
    /// What does not go this way comes back, and nothing has happened.
    pub(super) async fn alone(&self, work: Work) -> Option<Work> {
        match work {
            Work::Take(take, reply) if take.key.is_none() && !self.waited(&take.pool) => {
                match self.take_alone(&take).await {
                    Ok(Some(taken)) => drop(reply.send(Ok(taken))),
                    // It may be a repeat; or the long way says what is wrong.
                    Ok(None) | Err(StoreError { unknown: false, .. }) => {
                        return Some(Work::Take(take, reply));
                    }
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Work::Change(change, reply) if !self.waited(&change.pool) => {
                match self.change_alone(&change).await {
                    Ok(Some(written)) => drop(reply.send(Ok(written))),
                    Ok(None) => return Some(Work::Change(change, reply)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            other => return Some(other),
        }
        None
    }

    fn waited(&self, pool: &Text) -> bool {
        let waited = self.waited.lock();
        waited.as_ref().is_some_and(|(there, since)| there == pool && since.elapsed() < WAITED)
    }

    /// What came of something that went the long way says whether somebody waits.
    pub(super) fn saw(&self, works: &[Work], row: &Row) {
        let [Work::Take(Take { pool, .. }, _) | Work::Change(Change { pool, .. }, _)] = works
        else {
            return;
        };
        if row.try_get::<_, Option<bool>>(9).is_ok_and(|waits| waits == Some(true)) {
            *self.waited.lock() = Some((pool.clone(), Instant::now()));
        }
    }

    async fn one(
        &self,
        statement: &Statement,
        params: Params<'_>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.pool.query_either(statement.text, statement.call, params).await?.pop())
    }

    /// The same for two of them.
    pub(super) async fn both(&self, works: [Work; 2]) -> Vec<Work> {
        let (change, written, take, taken) = match works {
            [Work::Change(change, written), Work::Take(take, taken)]
            | [Work::Take(take, taken), Work::Change(change, written)] => {
                (change, written, take, taken)
            }
            others => return others.into(),
        };
        let waited = self.waited(&change.pool) || self.waited(&take.pool);
        let came = match (&change, waited || take.key.is_some() || !self.pool.keeps()) {
            (Change { expect: Some(_), write: Write::Put(put), .. }, false) => {
                self.put_and_take(&change, put, &take).await
            }
            _ => Ok((None, None)),
        };
        let (stamp, record) = match came {
            // It may be a repeat; or the long way says what is wrong.
            Err(StoreError { unknown: false, .. }) => (None, None),
            Err(error) => {
                drop(written.send(Err(error.clone())));
                drop(taken.send(Err(error)));
                return Vec::new();
            }
            Ok(came) => came,
        };
        let mut left = Vec::new();
        match stamp {
            Some(stamp) => drop(written.send(Ok(Written::Done(stamp)))),
            None => left.push(Work::Change(change, written)),
        }
        match record {
            Some(record) => drop(taken.send(Ok(task(record)))),
            None => left.push(Work::Take(take, taken)),
        }
        left
    }

    async fn put_and_take(
        &self,
        change: &Change,
        put: &Put,
        take: &Take,
    ) -> Result<(Option<Stamp>, Option<TaskRecord>), StoreError> {
        let (change, put, took) = (ChangeArgs::new(change), PutArgs::new(put), TakeArgs::new(take));
        let params: Vec<Param<'_>> = put.params(&change).into_iter().chain(took.params()).collect();
        // Where statements are prepared, and only there.
        let text = &**PUT_AND_TAKE;
        let Some(row) = self.pool.query(text, &params).await?.pop() else {
            return Ok((None, None));
        };
        let came = || {
            let put = row.try_get::<_, Option<i64>>(0)?.map(|_| stamp(&row, 0)).transpose()?;
            let took = row.try_get::<_, Option<&[u8]>>(PUT_COLUMNS)?;
            let took = took.map(|_| record(take, &row, PUT_COLUMNS)).transpose()?;
            Ok((put, took))
        };
        came().map_err(|error: tokio_postgres::Error| nonsense(&error))
    }

    async fn take_alone(&self, take: &Take) -> Result<Option<Taken>, StoreError> {
        let Some(row) = self.one(&TAKE, &TakeArgs::new(take).params()).await? else {
            return Ok(None);
        };
        let record = record(take, &row, 0).map_err(|error| nonsense(&error))?;
        Ok(Some(task(record)))
    }

    async fn change_alone(&self, change: &Change) -> Result<Option<Written>, StoreError> {
        let args = ChangeArgs::new(change);
        let row = match (&change.write, change.expect) {
            (Write::Delete, _) => self.one(&DELETE, &args.params()).await?,
            (Write::Put(put), Some(_)) => self.one(&PUT, &PutArgs::new(put).params(&args)).await?,
            (Write::Put(put), None) => {
                self.one(&CREATE, &PutArgs::new(put).params(&args)[..8]).await?
            }
        };
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Written::Done(stamp(&row, 0).map_err(|error| nonsense(&error))?)))
    }
}

fn task(record: TaskRecord) -> Taken {
    Taken::Task { now: record.last.time, record }
}

/// The first of two columns that are one.
fn stamp(row: &Row, at: usize) -> Result<Stamp, tokio_postgres::Error> {
    let number = |at: usize| row.try_get::<_, i64>(at).map(i64::cast_unsigned);
    Ok(Stamp { version: number(at)?, time: number(at + 1)? })
}

/// What was taken, from this column on.
fn record(take: &Take, row: &Row, at: usize) -> Result<TaskRecord, tokio_postgres::Error> {
    Ok(TaskRecord {
        pool: take.pool.clone(),
        key: text(row.try_get::<_, &[u8]>(at)?),
        last: stamp(row, at + 1)?,
        written: stamp(row, at + 3)?,
        number: row.try_get::<_, i64>(at + 5)?.cast_unsigned(),
        state: TaskState::Claimed,
        priority: row.try_get(at + 6)?,
        ready: row.try_get::<_, Option<i64>>(at + 7)?.map(i64::cast_unsigned),
        alive: None,
        bytes: row.try_get::<_, &[u8]>(at + 8)?.into(),
        claim: take.claim.clone(),
    })
}

type Param<'a> = (&'a (dyn ToSql + Sync), Type);

struct TakeArgs<'a> {
    pool: &'a [u8],
    id: Vec<u8>,
    claim: &'a [u8],
    lease: i64,
}

impl<'a> TakeArgs<'a> {
    fn new(take: &'a Take) -> TakeArgs<'a> {
        let (pool, id) = (take.pool.as_bytes(), take.id.to_string().into_bytes());
        TakeArgs { pool, id, claim: &take.claim, lease: life(take.lease_ms) }
    }

    fn params(&self) -> [Param<'_>; 4] {
        [
            (&self.pool, Type::BYTEA),
            (&self.id, Type::BYTEA),
            (&self.claim, Type::BYTEA),
            (&self.lease, Type::INT8),
        ]
    }
}

struct ChangeArgs<'a> {
    pool: &'a [u8],
    key: &'a [u8],
    expect: Option<i64>,
}

impl<'a> ChangeArgs<'a> {
    fn new(change: &'a Change) -> ChangeArgs<'a> {
        let (pool, key) = (change.pool.as_bytes(), change.key.as_bytes());
        ChangeArgs { pool, key, expect: change.expect.map(u64::cast_signed) }
    }

    fn params(&self) -> [Param<'_>; 3] {
        [(&self.pool, Type::BYTEA), (&self.key, Type::BYTEA), (&self.expect, Type::INT8)]
    }
}

struct PutArgs<'a> {
    state: i16,
    priority: i32,
    at: Option<i64>,
    after: Option<i64>,
    bytes: &'a [u8],
    claim: &'a [u8],
}

impl<'a> PutArgs<'a> {
    fn new(put: &'a Put) -> PutArgs<'a> {
        let Put { state, priority, ready, bytes, claim } = put;
        let (at, after) = match *ready {
            Ready::At(time) => (Some(time.cast_signed()), None),
            Ready::After(ms) => (None, Some(life(ms))),
            Ready::Never => (None, None),
        };
        PutArgs { state: code(*state), priority: *priority, at, after, bytes, claim }
    }

    fn params<'b>(&'b self, change: &'b ChangeArgs<'_>) -> [Param<'b>; PUT_PARAMS] {
        let [pool, key, expect] = change.params();
        [
            pool,
            key,
            (&self.state, Type::INT2),
            (&self.priority, Type::INT4),
            (&self.at, Type::INT8),
            (&self.after, Type::INT8),
            (&self.bytes, Type::BYTEA),
            (&self.claim, Type::BYTEA),
            expect,
        ]
    }
}
