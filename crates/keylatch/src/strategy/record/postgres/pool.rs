//! A few connections, opened when they are needed. Each does one thing at a time: whoever waits for a lock inside of
//! PostgreSQL must not have others wait behind it.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use super::super::store::StoreError;
use super::LIMIT;
use super::link::{Link, Wire, failed};

pub(super) type Params<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

pub(super) struct Pool {
    pub(super) link: Link,
    /// One for each connection that may be used.
    free: Semaphore,
    idle: Mutex<Vec<Wire>>,
    /// A connection is the same one of PostgreSQL's all the time: then statements are prepared, which saves
    /// half of the work. Only if that was proven: behind a pooler they are lost, or somebody else's.
    pub(super) keeps: AtomicBool,
}

impl Pool {
    pub(super) fn new(link: Link) -> Pool {
        let free = Semaphore::new(link.connections);
        Pool { link, free, idle: Mutex::default(), keeps: AtomicBool::new(false) }
    }

    pub(super) fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// One statement, which is a transaction of its own and leaves nothing behind in the connection: the
    /// next one may run in another one, behind a pooler.
    pub(super) async fn query(
        &self,
        text: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.query_either(text, text, params).await
    }

    /// The same with one text to be prepared, in a connection that is set up (see [`Wire::query_prepared`]), and
    /// another one for where that is not possible.
    pub(super) async fn query_either(
        &self,
        prepared: &'static str,
        typed: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let mut sent = false;
        let send = self.send(prepared, typed, params, &mut sent);
        let answer = tokio::time::timeout(LIMIT, send).await;
        answer.unwrap_or_else(|_| {
            let (at, limit) = (&self.link.at, LIMIT.as_secs());
            let text = format!("PostgreSQL at {at} has not answered within {limit} s");
            Err(StoreError { text, unknown: sent })
        })
    }

    /// The same for what may as well happen twice: a connection that was lost meanwhile does not count.
    pub(super) async fn query_again(
        &self,
        text: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        match self.query(text, params).await {
            Err(error) if error.unknown => self.query(text, params).await,
            other => other,
        }
    }

    async fn send(
        &self,
        prepared: &'static str,
        typed: &'static str,
        params: Params<'_>,
        sent: &mut bool,
    ) -> Result<Vec<Row>, StoreError> {
        let Ok(_free) = self.free.acquire().await else {
            return Err(StoreError { text: "closed".into(), unknown: false });
        };
        let wire = match self.take() {
            Some(wire) => wire,
            // Nothing was sent.
            None => self.link.connect().await.map_err(|error| StoreError {
                text: self.link.unreachable(&error),
                unknown: false,
            })?,
        };
        *sent = true;
        // If this is dropped meanwhile, the connection goes with it.
        let mut wire = Cut(Some(wire));
        let Some(open) = &mut wire.0 else { return Ok(Vec::new()) };
        let mut answer = match self.keeps() {
            true => open.query_prepared(prepared, params).await,
            false => open.client.query_typed(typed, params).await,
        };
        if let Err(error) = &answer
            && matches!(error.code(), Some(&SqlState::INVALID_SQL_STATEMENT_NAME))
        {
            // There is a pooler after all, and nothing has happened.
            self.keeps.store(false, Ordering::Relaxed);
            answer = open.client.query_typed(typed, params).await;
        }
        let lost = open.client.is_closed()
            || answer.as_ref().is_err_and(|error| error.as_db_error().is_none());
        if !lost {
            self.idle.lock().extend(wire.0.take());
        }
        answer.map_err(|error| failed(&error))
    }

    /// The one that was used last: the others may be closed by whoever counts connections.
    fn take(&self) -> Option<Wire> {
        let mut idle = self.idle.lock();
        idle.retain(|wire| !wire.client.is_closed());
        idle.pop()
    }
}

/// A connection that is in use; it is ended if something is still under way.
struct Cut(Option<Wire>);

impl Drop for Cut {
    fn drop(&mut self) {
        if let Some(wire) = self.0.take() {
            wire.cut();
        }
    }
}
