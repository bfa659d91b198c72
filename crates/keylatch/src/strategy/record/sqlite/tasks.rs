//! Tasks in the file: a table of its own, made when the first task is asked for. `due` says where a task
//! stands: 1 in the line of those that are due, 0 among those that will be, nothing if time alone does not
//! free it. Each has an index, so that a take looks at one row of each.

use keylatch_table::{PoolCounts, TaskState, Text};
use parking_lot::Mutex;
use rusqlite::{
    Connection, OptionalExtension, Row, Transaction, TransactionBehavior, named_params, params,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::super::store::StoreError;
use super::super::tasks::store::{
    AT_ONCE, Change, NOTED_MS, Page, Put, Ready, Seen, Stamp, Take, Taken, TaskRecord, TaskStore,
    Told, Write, Written,
};
use super::file::{Failed, File};
use super::{Work, answered};
use crate::strategy::Pending;

/// So many of the news are kept. Whoever looks too seldom for that is told that it may have missed something.
const KEPT: i64 = 1_000;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS tasks (
        pool TEXT NOT NULL, key TEXT NOT NULL,
        version INTEGER NOT NULL, time_ms INTEGER NOT NULL,
        wrote_version INTEGER NOT NULL, wrote_ms INTEGER NOT NULL,
        number INTEGER NOT NULL, state INTEGER NOT NULL, priority INTEGER NOT NULL,
        ready_ms INTEGER, due INTEGER, claim_id TEXT, claim BLOB NOT NULL, bytes BLOB NOT NULL,
        UNIQUE (pool, key)
    ) STRICT;
    CREATE INDEX IF NOT EXISTS tasks_line ON tasks (pool, priority DESC, ready_ms, number)
        WHERE due = 1;
    CREATE INDEX IF NOT EXISTS tasks_later ON tasks (pool, ready_ms) WHERE due = 0;
    CREATE INDEX IF NOT EXISTS tasks_number ON tasks (pool, number);
    CREATE INDEX IF NOT EXISTS tasks_state ON tasks (pool, state, number);
    CREATE INDEX IF NOT EXISTS tasks_claim ON tasks (claim_id) WHERE claim_id IS NOT NULL;
    CREATE TABLE IF NOT EXISTS task_waits (
        pool TEXT PRIMARY KEY, until_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS task_news (
        n INTEGER PRIMARY KEY, pool TEXT NOT NULL, key TEXT NOT NULL, due_ms INTEGER
    ) STRICT;
";

const COLUMNS: &str = "pool, key, version, time_ms, wrote_version, wrote_ms, number, state, priority, \
    ready_ms, bytes, claim";

/// What a take looks at: those that became due, the first in the line, and when there will be one.
pub(super) const LINE: &str = "UPDATE tasks SET due = 1 WHERE rowid IN (
    SELECT rowid FROM tasks WHERE pool = ?1 AND due = 0 AND ready_ms <= ?2
    ORDER BY ready_ms LIMIT ?3)";
pub(super) const FIRST: &str = "SELECT rowid FROM tasks WHERE pool = ?1 AND due = 1
    ORDER BY priority DESC, ready_ms, number LIMIT 1";
pub(super) const NEXT: &str = "SELECT min(ready_ms) FROM tasks WHERE pool = ?1 AND due = 0";

/// What goes together in a transaction.
pub(super) enum TaskWork {
    Take(Take, Reply<Taken>),
    Change(Change, Reply<Written>),
}

type Reply<T> = oneshot::Sender<Result<T, Failed>>;

/// What came of it, to be told once it is on the disk.
enum Came {
    Taken(Taken, Reply<Taken>),
    Written(Written, Reply<Written>),
}

impl Came {
    fn tell(self, failed: Option<&Failed>) {
        match (self, failed) {
            (Came::Taken(taken, reply), None) => drop(reply.send(Ok(taken))),
            (Came::Written(written, reply), None) => drop(reply.send(Ok(written))),
            (Came::Taken(_, reply), Some(failed)) => drop(reply.send(Err(failed.clone()))),
            (Came::Written(_, reply), Some(failed)) => drop(reply.send(Err(failed.clone()))),
        }
    }
}

impl TaskWork {
    fn fail(self, failed: &Failed) {
        match self {
            TaskWork::Take(_, reply) => drop(reply.send(Err(failed.clone()))),
            TaskWork::Change(_, reply) => drop(reply.send(Err(failed.clone()))),
        }
    }
}

/// What the open file knows of tasks, once somebody has asked for them.
pub(super) struct Hears {
    tell: UnboundedSender<Told>,
    /// The last of the news that was told here.
    heard: i64,
}

pub(super) struct SqliteTasks {
    work: std::sync::mpsc::Sender<Work>,
    told: Mutex<Option<UnboundedReceiver<Told>>>,
}

impl SqliteTasks {
    pub(super) fn new(work: &std::sync::mpsc::Sender<Work>) -> SqliteTasks {
        let (tell, told) = unbounded_channel();
        let begin = move |file: &mut File| match file.begin_tasks(tell) {
            Ok(()) => {}
            // Whoever asks for a task will be told.
            Err(error) => tracing::warn!(%error, "no tasks in this file"),
        };
        drop(work.send(Work::Other(Box::new(begin))));
        SqliteTasks { work: work.clone(), told: Mutex::new(Some(told)) }
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut File) -> Result<T, Failed> + Send + 'static,
    ) -> Pending<Result<T, StoreError>> {
        let (send, answer) = oneshot::channel();
        drop(self.work.send(Work::Other(Box::new(move |file| drop(send.send(work(file)))))));
        answered(answer)
    }
}

impl TaskStore for SqliteTasks {
    fn take(&self, take: Take) -> Pending<Result<Taken, StoreError>> {
        let (send, answer) = oneshot::channel();
        drop(self.work.send(Work::Task(TaskWork::Take(take, send))));
        answered(answer)
    }

    fn change(&self, change: Change) -> Pending<Result<Written, StoreError>> {
        let (send, answer) = oneshot::channel();
        drop(self.work.send(Work::Task(TaskWork::Change(change, send))));
        answered(answer)
    }

    fn task(&self, pool: &Text, key: &Text) -> Pending<Result<Seen, StoreError>> {
        let (pool, key) = (pool.clone(), key.clone());
        self.ask(move |file| {
            let reading = file.connection.unchecked_transaction()?;
            let record = one(&reading, &pool, &key)?;
            // The clock after the snapshot: nothing in it is later.
            Ok(Seen { now: file.clock.now().cast_unsigned(), record })
        })
    }

    fn page(&self, page: Page) -> Pending<Result<(u64, Vec<TaskRecord>), StoreError>> {
        self.ask(move |file| {
            let reading = file.connection.unchecked_transaction()?;
            let state = page.state.map(|_| "AND state = ?4").unwrap_or_default();
            let select = format!(
                "SELECT {COLUMNS} FROM tasks WHERE pool = ?1 AND number > ?2 {state}
                 ORDER BY number LIMIT ?3"
            );
            let mut select = reading.prepare_cached(&select)?;
            let after = page.after.min(i64::MAX as u64).cast_signed();
            let limit = (page.limit as u64).cast_signed();
            let records = match page.state {
                Some(state) => {
                    select.query_map(params![page.pool, after, limit, code(state)], record)?
                }
                None => select.query_map(params![page.pool, after, limit], record)?,
            };
            let records = records.collect::<rusqlite::Result<_>>()?;
            Ok((file.clock.now().cast_unsigned(), records))
        })
    }

    fn counts(&self, pool: Option<Text>) -> Pending<Result<Vec<PoolCounts>, StoreError>> {
        self.ask(move |file| {
            let now = file.clock.now();
            let counts = "SELECT pool,
                    sum(state < 2 AND (due = 1 OR ready_ms <= ?1)),
                    sum(state = 0 AND due = 0 AND ready_ms > ?1),
                    sum(state = 1 AND (due IS NULL OR due = 0 AND ready_ms > ?1)),
                    sum(state = 2), sum(state = 3)
                FROM tasks WHERE ?2 IS NULL OR pool = ?2 GROUP BY pool ORDER BY pool";
            let mut counts = file.connection.prepare_cached(counts)?;
            let counts = counts.query_map(params![now, pool], |row| {
                let count =
                    |at| row.get::<_, Option<i64>>(at).map(|it| it.unwrap_or(0).cast_unsigned());
                Ok(PoolCounts {
                    pool: row.get::<_, String>(0)?.into(),
                    ready: count(1)?,
                    delayed: count(2)?,
                    claimed: count(3)?,
                    done: count(4)?,
                    failed: count(5)?,
                    waiting: 0,
                })
            })?;
            Ok(counts.collect::<rusqlite::Result<_>>()?)
        })
    }

    fn told(&self) -> UnboundedReceiver<Told> {
        self.told.lock().take().unwrap_or_else(|| unbounded_channel().1)
    }
}

fn code(state: TaskState) -> i64 {
    match state {
        TaskState::Free => 0,
        TaskState::Claimed => 1,
        TaskState::Done => 2,
        TaskState::Failed => 3,
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<TaskRecord> {
    let number = |at| row.get::<_, i64>(at).map(i64::cast_unsigned);
    Ok(TaskRecord {
        pool: row.get::<_, String>(0)?.into(),
        key: row.get::<_, String>(1)?.into(),
        last: Stamp { version: number(2)?, time: number(3)? },
        written: Stamp { version: number(4)?, time: number(5)? },
        number: number(6)?,
        state: match row.get::<_, i64>(7)? {
            0 => TaskState::Free,
            1 => TaskState::Claimed,
            2 => TaskState::Done,
            _ => TaskState::Failed,
        },
        priority: row.get(8)?,
        ready: row.get::<_, Option<i64>>(9)?.map(i64::cast_unsigned),
        alive: None,
        bytes: row.get::<_, Vec<u8>>(10)?.into(),
        claim: row.get::<_, Vec<u8>>(11)?.into(),
    })
}

fn one(connection: &Connection, pool: &str, key: &str) -> rusqlite::Result<Option<TaskRecord>> {
    let select = format!("SELECT {COLUMNS} FROM tasks WHERE pool = ?1 AND key = ?2");
    connection.prepare_cached(&select)?.query_row([pool, key], record).optional()
}

impl File {
    fn begin_tasks(&mut self, tell: UnboundedSender<Told>) -> rusqlite::Result<()> {
        let made = "SELECT count(*) FROM sqlite_schema WHERE name = 'task_news'";
        let made: i64 = self.connection.query_row(made, [], |row| row.get(0))?;
        if made == 0 {
            let change = Transaction::new(&mut self.connection, TransactionBehavior::Immediate)?;
            change.execute_batch(TABLES)?;
            change.commit()?;
        }
        let last = "SELECT coalesce(max(n), 0) FROM task_news";
        let heard = self.connection.query_row(last, [], |row| row.get(0))?;
        self.hears = Some(Hears { tell, heard });
        Ok(())
    }

    /// All of these in one transaction and with one sync.
    pub(super) fn tasks(&mut self, works: Vec<TaskWork>) {
        let mut came = Vec::with_capacity(works.len());
        let mut works = works.into_iter();
        let done = self.try_tasks(&mut works, &mut came);
        let failed = done.err();
        for came in came {
            came.tell(failed.as_ref());
        }
        if let Some(failed) = failed {
            works.for_each(|work| work.fail(&failed));
        } else {
            self.hear_tasks();
        }
    }

    fn try_tasks(
        &mut self,
        works: &mut std::vec::IntoIter<TaskWork>,
        came: &mut Vec<Came>,
    ) -> Result<(), Failed> {
        self.sync(true)?;
        let writing = Transaction::new(&mut self.connection, TransactionBehavior::Immediate)?;
        let now = self.clock.now();
        let counter = "SELECT counter FROM state";
        let counter: i64 = writing.prepare_cached(counter)?.query_row([], |row| row.get(0))?;
        let counter = counter.max(self.counter_at_least);
        let mut turn = Turn { writing: &writing, now, counter, news: None };
        for work in works.by_ref() {
            match work {
                TaskWork::Take(take, reply) => match turn.take(&take) {
                    Ok(taken) => came.push(Came::Taken(taken, reply)),
                    Err(error) => return Err(fail(error, reply)),
                },
                TaskWork::Change(change, reply) => match turn.change(&change) {
                    Ok(written) => came.push(Came::Written(written, reply)),
                    Err(error) => return Err(fail(error, reply)),
                },
            }
        }
        let (after, news) = (turn.counter, turn.news);
        if after > counter {
            let update = "UPDATE state SET counter = ?1, last_ms = max(last_ms, ?2)";
            writing.prepare_cached(update)?.execute(params![after, now])?;
        }
        if let Some(news) = news {
            let delete = "DELETE FROM task_news WHERE n <= ?1";
            writing.prepare_cached(delete)?.execute([news - KEPT])?;
        }
        // The end of the transaction is the one step that may fail and have happened.
        let failed = |error: rusqlite::Error| Failed { text: error.to_string(), unknown: true };
        writing.commit().map_err(failed)?;
        if after > counter {
            self.counter_at_least = 0;
        }
        Ok(())
    }

    /// Tells what has come, by whomever.
    pub(super) fn hear_tasks(&mut self) {
        let Some(hears) = &mut self.hears else { return };
        // A file that cannot be read now is looked at again soon.
        let Ok(news) = since(&self.connection, hears.heard) else { return };
        for (number, told) in news {
            if number > hears.heard + 1 {
                drop(hears.tell.send(Told::Anything));
            }
            hears.heard = number;
            drop(hears.tell.send(told));
        }
    }
}

/// The one that failed is told like all others.
fn fail<T>(error: rusqlite::Error, reply: Reply<T>) -> Failed {
    let failed = Failed::from(error);
    drop(reply.send(Err(failed.clone())));
    failed
}

fn since(connection: &Connection, heard: i64) -> rusqlite::Result<Vec<(i64, Told)>> {
    let news = "SELECT n, pool, key, due_ms FROM task_news WHERE n > ?1 ORDER BY n";
    let mut news = connection.prepare_cached(news)?;
    let news = news.query_map([heard], |row| {
        let (pool, key): (String, String) = (row.get(1)?, row.get(2)?);
        let due_ms = row.get::<_, Option<i64>>(3)?.map(i64::cast_unsigned);
        Ok((row.get(0)?, Told::Changed { pool: pool.into(), key: key.into(), due_ms }))
    })?;
    news.collect()
}

/// Work within a transaction.
struct Turn<'a> {
    writing: &'a Transaction<'a>,
    now: i64,
    /// The last number that was taken.
    counter: i64,
    news: Option<i64>,
}

impl Turn<'_> {
    fn take(&mut self, take: &Take) -> rusqlite::Result<Taken> {
        let now = self.now.cast_unsigned();
        let id = take.id.to_string();
        // A repeat takes nothing more (5).
        let repeat = format!("SELECT {COLUMNS} FROM tasks WHERE claim_id = ?1 AND pool = ?2");
        let mut repeat = self.writing.prepare_cached(&repeat)?;
        if let Some(record) = repeat.query_row(params![id, take.pool], record).optional()? {
            return Ok(Taken::Task { now, record });
        }
        let found: Option<i64> = if let Some(key) = &take.key {
            let due = "SELECT rowid FROM tasks WHERE pool = ?1 AND key = ?2
                       AND (due = 1 OR due = 0 AND ready_ms <= ?3)";
            let mut due = self.writing.prepare_cached(due)?;
            due.query_row(params![take.pool, key, self.now], |row| row.get(0)).optional()?
        } else {
            self.put_in_line(&take.pool)?;
            let mut first = self.writing.prepare_cached(FIRST)?;
            first.query_row([&take.pool], |row| row.get(0)).optional()?
        };
        let Some(rowid) = found else { return self.nothing(take) };
        self.counter += 1;
        let until = (take.lease_ms > 0).then(|| self.now.saturating_add_unsigned(take.lease_ms));
        let update = format!(
            "UPDATE tasks SET version = ?2, time_ms = ?3, state = 1, ready_ms = ?4, due = ?5,
             claim_id = ?6, claim = ?7 WHERE rowid = ?1 RETURNING {COLUMNS}"
        );
        let mut update = self.writing.prepare_cached(&update)?;
        let due = until.map(|_| 0);
        let values = params![rowid, self.counter, self.now, until, due, id, &take.claim[..]];
        let record = update.query_row(values, record)?;
        self.tell(&take.pool, &record.key, (take.lease_ms > 0).then_some(take.lease_ms))?;
        Ok(Taken::Task { now, record })
    }

    /// Those that became due since somebody last looked (6).
    fn put_in_line(&self, pool: &str) -> rusqlite::Result<()> {
        let mut line = self.writing.prepare_cached(LINE)?;
        line.execute(params![pool, self.now, (AT_ONCE as u64).cast_signed()]).map(drop)
    }

    fn nothing(&mut self, take: &Take) -> rusqlite::Result<Taken> {
        if take.waits {
            // Only now and then: it is a write.
            let note = "INSERT INTO task_waits VALUES (?1, ?2 + ?3) ON CONFLICT (pool) DO
                UPDATE SET until_ms = excluded.until_ms WHERE until_ms < ?2 + ?3 * 2 / 3";
            let mut note = self.writing.prepare_cached(note)?;
            note.execute(params![take.pool, self.now, NOTED_MS.cast_signed()])?;
        }
        let record = match &take.key {
            Some(key) => one(self.writing, &take.pool, key)?,
            None => None,
        };
        let next: Option<i64> = match (&take.key, &record) {
            (Some(_), record) => {
                record.as_ref().and_then(|record| record.ready).map(u64::cast_signed)
            }
            (None, _) => {
                self.writing.prepare_cached(NEXT)?.query_row([&take.pool], |row| row.get(0))?
            }
        };
        let next_ms = next.map(|next| (next - self.now).max(0).cast_unsigned());
        Ok(Taken::Nothing { now: self.now.cast_unsigned(), record, next_ms })
    }

    fn change(&mut self, change: &Change) -> rusqlite::Result<Written> {
        let present = "SELECT version FROM tasks WHERE pool = ?1 AND key = ?2";
        let mut present = self.writing.prepare_cached(present)?;
        let names = params![change.pool, change.key];
        let present = present.query_row(names, |row| row.get::<_, i64>(0)).optional()?;
        if present.map(i64::cast_unsigned) != change.expect {
            let record = one(self.writing, &change.pool, &change.key)?;
            return Ok(Written::Other(Seen { now: self.now.cast_unsigned(), record }));
        }
        self.counter += 1;
        let stamp = Stamp { version: self.counter.cast_unsigned(), time: self.now.cast_unsigned() };
        match &change.write {
            Write::Delete => {
                let delete = "DELETE FROM tasks WHERE pool = ?1 AND key = ?2";
                self.writing.prepare_cached(delete)?.execute(names)?;
            }
            Write::Put(put) => self.put(change, put)?,
        }
        Ok(Written::Done(stamp))
    }

    fn put(&mut self, change: &Change, put: &Put) -> rusqlite::Result<()> {
        let ready = match put.ready {
            Ready::At(time) => Some(time.cast_signed()),
            Ready::After(ms) => Some(self.now.saturating_add_unsigned(ms)),
            Ready::Never => None,
        };
        // One that is claimed is never in the line before its lease ends.
        let due = ready.map(|ready| i64::from(put.state == TaskState::Free && ready <= self.now));
        let upsert =
            "INSERT INTO tasks (pool, key, version, time_ms, wrote_version, wrote_ms, number,
                state, priority, ready_ms, due, claim, bytes)
            VALUES (:pool, :key, :version, :now, :version, :now, :version,
                :state, :priority, :ready, :due, :claim, :bytes)
            ON CONFLICT (pool, key) DO UPDATE SET version = :version, time_ms = :now,
                wrote_version = :version, wrote_ms = :now, state = :state, priority = :priority,
                ready_ms = :ready, due = :due, claim = :claim, bytes = :bytes";
        self.writing.prepare_cached(upsert)?.execute(named_params! {
            ":pool": change.pool, ":key": change.key, ":version": self.counter, ":now": self.now,
            ":state": code(put.state), ":priority": put.priority, ":ready": ready, ":due": due,
            ":claim": &put.claim[..], ":bytes": &put.bytes[..],
        })?;
        let due_ms = ready.map(|ready| (ready - self.now).max(0).cast_unsigned());
        self.tell(&change.pool, &change.key, due_ms)
    }

    /// If somebody waits in that pool (7).
    fn tell(&mut self, pool: &str, key: &str, due_ms: Option<u64>) -> rusqlite::Result<()> {
        let tell = "INSERT INTO task_news (pool, key, due_ms) SELECT ?1, ?2, ?3
            WHERE EXISTS (SELECT 1 FROM task_waits WHERE pool = ?1 AND until_ms > ?4)";
        let due_ms = due_ms.map(u64::cast_signed);
        let mut tell = self.writing.prepare_cached(tell)?;
        if tell.execute(params![pool, key, due_ms, self.now])? > 0 {
            self.news = Some(self.writing.last_insert_rowid());
        }
        Ok(())
    }
}
