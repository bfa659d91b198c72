//! One take or one change that goes alone, by a shorter way: a function of its own and one transaction. It is
//! for the ordinary case, where nobody waits and everything is as expected; all else goes the long way, which
//! also tells.

use std::time::{Duration, Instant};

use keylatch_table::Text;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::super::store::StoreError;
use super::super::super::tasks::store::{Change, Ready, Stamp, Take, Taken, Write, Written};
use super::super::call::{life, lock, nonsense};
use super::{Lane, Work, code, eight, made_of, nothing, text};

/// Where somebody waits the long way is taken at once for so long.
const WAITED: Duration = Duration::from_secs(1);

const TAKE: &str = "SELECT * FROM keylatch.task_take_one($1, $2, $3, $4, $5)";
const CHANGE: &str =
    "SELECT * FROM keylatch.task_change_one($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// Somebody waited in this pool a moment ago.
pub(super) type Waited = Option<(Text, Instant)>;

impl Lane {
    /// What does not go this way comes back, and nothing has happened.
    pub(super) async fn alone(&self, work: Work) -> Option<Work> {
        match work {
            Work::Take(take, reply) if take.key.is_none() && !self.waited(&take.pool) => {
                match self.take_alone(&take).await {
                    Ok(Some(taken)) => drop(reply.send(Ok(taken))),
                    Ok(None) => return Some(Work::Take(take, reply)),
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

    /// Whether it was done.
    fn done(&self, pool: &Text, row: &Row) -> Result<bool, tokio_postgres::Error> {
        let case: i16 = row.try_get(0)?;
        if case == 1 {
            *self.waited.lock() = Some((pool.clone(), Instant::now()));
        }
        Ok(case == 0)
    }

    async fn take_alone(&self, take: &Take) -> Result<Option<Taken>, StoreError> {
        let (pool, id) = (take.pool.as_bytes(), take.id.to_string());
        let (lock, id, claim) = (lock(&take.pool), id.as_bytes(), &take.claim[..]);
        let lease = life(take.lease_ms);
        let params = &[
            (&lock as _, Type::INT4),
            (&pool as _, Type::BYTEA),
            (&id as _, Type::BYTEA),
            (&claim as _, Type::BYTEA),
            (&lease as _, Type::INT8),
        ];
        let row = self.pool.query(TAKE, params).await?.pop().ok_or_else(nothing)?;
        let taken = || {
            if !self.done(&take.pool, &row)? {
                return Ok(None);
            }
            let numbers = eight(row.try_get(3)?);
            let bytes = [row.try_get(4)?, take.claim.to_vec()];
            let key = text(row.try_get::<_, &[u8]>(2)?);
            let now = row.try_get::<_, i64>(1)?.cast_unsigned();
            let record = made_of(take.pool.clone(), key, &numbers, bytes);
            Ok(Some(Taken::Task { now, record }))
        };
        taken().map_err(|error: tokio_postgres::Error| nonsense(&error))
    }

    async fn change_alone(&self, change: &Change) -> Result<Option<Written>, StoreError> {
        let put = match &change.write {
            Write::Put(put) => Some(put),
            Write::Delete => None,
        };
        let (pool, key) = (change.pool.as_bytes(), change.key.as_bytes());
        let (lock, expect) = (lock(&change.pool), change.expect.map(u64::cast_signed));
        let write: i16 = if put.is_some() { 1 } else { 2 };
        let state = put.map_or(0, |put| code(put.state));
        let priority = put.map_or(0, |put| put.priority);
        let (at, after) = match put.map(|put| put.ready) {
            Some(Ready::At(time)) => (Some(time.cast_signed()), None),
            Some(Ready::After(ms)) => (None, Some(life(ms))),
            Some(Ready::Never) | None => (None, None),
        };
        let (bytes, claim) = (put.map(|put| &put.bytes[..]), put.map(|put| &put.claim[..]));
        let params = &[
            (&lock as _, Type::INT4),
            (&pool as _, Type::BYTEA),
            (&key as _, Type::BYTEA),
            (&expect as _, Type::INT8),
            (&write as _, Type::INT2),
            (&state as _, Type::INT2),
            (&priority as _, Type::INT4),
            (&at as _, Type::INT8),
            (&after as _, Type::INT8),
            (&bytes as _, Type::BYTEA),
            (&claim as _, Type::BYTEA),
        ];
        let row = self.pool.query(CHANGE, params).await?.pop().ok_or_else(nothing)?;
        let written = || {
            if !self.done(&change.pool, &row)? {
                return Ok(None);
            }
            let time = row.try_get::<_, i64>(1)?.cast_unsigned();
            let version = row.try_get::<_, i64>(2)?.cast_unsigned();
            Ok(Some(Written::Done(Stamp { version, time })))
        };
        written().map_err(|error: tokio_postgres::Error| nonsense(&error))
    }
}
