//! One take or one change that goes alone, by a shorter way: one statement, which is its own transaction. It is
//! for the ordinary case, where nobody waits and everything is as expected; all else goes the long way, which
//! also tells.

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

    async fn take_alone(&self, take: &Take) -> Result<Option<Taken>, StoreError> {
        let (pool, id) = (take.pool.as_bytes(), take.id.to_string());
        let (id, claim, lease) = (id.as_bytes(), &take.claim[..], life(take.lease_ms));
        let params = &[
            (&pool as _, Type::BYTEA),
            (&id as _, Type::BYTEA),
            (&claim as _, Type::BYTEA),
            (&lease as _, Type::INT8),
        ];
        let Some(row) = self.one(&TAKE, params).await? else { return Ok(None) };
        let record = || {
            let number = |at: usize| row.try_get::<_, i64>(at).map(i64::cast_unsigned);
            let stamp = |at: usize| Ok(Stamp { version: number(at)?, time: number(at + 1)? });
            Ok(TaskRecord {
                pool: take.pool.clone(),
                key: text(row.try_get::<_, &[u8]>(0)?),
                last: stamp(1)?,
                written: stamp(3)?,
                number: number(5)?,
                state: TaskState::Claimed,
                priority: row.try_get(6)?,
                ready: row.try_get::<_, Option<i64>>(7)?.map(i64::cast_unsigned),
                alive: None,
                bytes: row.try_get::<_, &[u8]>(8)?.into(),
                claim: take.claim.clone(),
            })
        };
        let record = record().map_err(|error: tokio_postgres::Error| nonsense(&error))?;
        Ok(Some(Taken::Task { now: record.last.time, record }))
    }

    async fn change_alone(&self, change: &Change) -> Result<Option<Written>, StoreError> {
        let (pool, key) = (change.pool.as_bytes(), change.key.as_bytes());
        let (pool, key) = ((&pool as _, Type::BYTEA), (&key as _, Type::BYTEA));
        let expect = change.expect.map(u64::cast_signed);
        let expect = (&expect as &(dyn ToSql + Sync), Type::INT8);
        let row = match &change.write {
            Write::Delete => self.one(&DELETE, &[pool, key, expect]).await?,
            Write::Put(Put { state, priority, ready, bytes, claim }) => {
                let (at, after) = match *ready {
                    Ready::At(time) => (Some(time.cast_signed()), None),
                    Ready::After(ms) => (None, Some(life(ms))),
                    Ready::Never => (None, None),
                };
                let (state, bytes, claim) = (code(*state), &bytes[..], &claim[..]);
                let params = &[
                    pool,
                    key,
                    (&state as _, Type::INT2),
                    (priority as _, Type::INT4),
                    (&at as _, Type::INT8),
                    (&after as _, Type::INT8),
                    (&bytes as _, Type::BYTEA),
                    (&claim as _, Type::BYTEA),
                    expect,
                ];
                match change.expect {
                    Some(_) => self.one(&PUT, params).await?,
                    None => self.one(&CREATE, &params[..8]).await?,
                }
            }
        };
        let Some(row) = row else { return Ok(None) };
        let stamp = || {
            let number = |at: usize| row.try_get::<_, i64>(at).map(i64::cast_unsigned);
            Ok(Stamp { version: number(0)?, time: number(1)? })
        };
        let stamp = stamp().map_err(|error: tokio_postgres::Error| nonsense(&error))?;
        Ok(Some(Written::Done(stamp)))
    }
}
