//! The open file, used by one thread.

use std::collections::BTreeMap;
use std::time::Duration;

use keylatch_table::RequestId;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::mpsc::UnboundedSender;

use super::super::store::{
    Change, Committed, Done, Expect, Found, Head, Name, NameChange, Record, Stand, Told, View,
    Waiter, Write,
};
use super::schema::{self, Clock, OpenError};
use super::sweep::Sweeper;
use super::tasks::Hears;

/// Statements that are kept, so that none is compiled twice.
const STATEMENTS: usize = 64;

pub(super) struct File {
    pub(super) connection: Connection,
    pub(super) clock: Clock,
    /// Numbers are larger than this, whatever the file says: it may be an old copy.
    pub(super) counter_at_least: i64,
    pub(super) tell: UnboundedSender<Told>,
    /// The last of the news that was told here.
    pub(super) heard: i64,
    pub(super) sweeper: Sweeper,
    /// Once somebody has asked for tasks.
    pub(super) hears: Option<Hears>,
    syncs: bool,
}

/// Why something did not happen, and whether it may have all the same.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) text: String,
    pub(super) unknown: bool,
}

/// A transaction that fails before its end has not happened.
impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Failed {
        Failed { text: error.to_string(), unknown: false }
    }
}

/// While another process writes. It does not say when it is done, and that is soon: SQLite's own
/// pauses, of up to 100 ms, would be most of the time that it takes. About 10 s in all.
fn is_busy(times: i32) -> bool {
    let pause = Duration::from_micros(500) * (1 + times.cast_unsigned() / 16).min(5);
    std::thread::sleep(pause);
    times < 4_000
}

impl File {
    pub(super) fn open(path: &str, tell: UnboundedSender<Told>) -> Result<File, OpenError> {
        let mut connection = Connection::open(path)?;
        connection.busy_handler(Some(is_busy))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // Several processes that switch at once are told that it is busy, whatever the handler says.
        let mut tries = 0;
        while let Err(error) = connection.pragma_update(None, "journal_mode", "WAL") {
            tries += 1;
            let busy = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy);
            if tries == 500 || !busy {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        let clock = schema::set_up(&mut connection)?;
        let mut file = File {
            connection,
            clock,
            counter_at_least: schema::wall_micros(),
            tell,
            heard: 0,
            sweeper: Sweeper::default(),
            hears: None,
            syncs: true,
        };
        file.heard = file.last_news()?;
        file.sweep_if_due(true);
        Ok(file)
    }

    /// Whether what is committed next has to survive a crash of the machine; it does that of this
    /// process anyway. What was committed before without is then synced with it.
    pub(super) fn sync(&mut self, syncs: bool) -> rusqlite::Result<()> {
        if self.syncs != syncs {
            let level = if syncs { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.syncs = syncs;
        }
        Ok(())
    }

    /// These names, or all.
    pub(super) fn read(&mut self, names: Option<Vec<Name>>) -> Result<View, Failed> {
        let reading = self.connection.unchecked_transaction()?;
        let names = if let Some(names) = names {
            // The clock after the snapshot: nothing in it is later.
            let any = "SELECT counter FROM state";
            reading.prepare_cached(any)?.query_row([], |_| Ok(()))?;
            names
        } else {
            let all = "SELECT name FROM heads UNION SELECT name FROM waiters";
            let mut all = reading.prepare_cached(all)?;
            let all = all.query_map([], |row| row.get::<_, String>(0).map(Into::into))?;
            all.collect::<rusqlite::Result<_>>()?
        };
        Ok(read(&reading, &names, self.clock.now())?)
    }

    /// Several changes, each all or nothing, in one transaction and with one sync.
    pub(super) fn commit(&mut self, changes: &[Change]) -> Result<Vec<Committed>, Failed> {
        self.sync(true)?;
        let writing = Transaction::new(&mut self.connection, TransactionBehavior::Immediate)?;
        // Not earlier: others may have written until now.
        let now = self.clock.now();
        let counter = "SELECT counter FROM state";
        let counter: i64 = writing.prepare_cached(counter)?.query_row([], |row| row.get(0))?;
        let mut commit = Commit {
            writing: &writing,
            now,
            counter: counter.max(self.counter_at_least),
            last_news: None,
        };
        let committed = changes.iter().map(|change| commit.commit(change));
        let committed: Vec<Committed> = committed.collect::<rusqlite::Result<_>>()?;
        let (after, news) = (commit.counter, commit.last_news);
        if !committed.iter().any(|committed| matches!(committed, Committed::Done(_))) {
            return Ok(committed);
        }
        let update = "UPDATE state SET counter = ?1, last_ms = max(last_ms, ?2)";
        writing.prepare_cached(update)?.execute(params![after, now])?;
        if let Some(news) = news {
            super::news::forget(&writing, news)?;
        }
        // The end of the transaction is the one step that may fail and have happened.
        let failed = |error: rusqlite::Error| Failed { text: error.to_string(), unknown: true };
        writing.commit().map_err(failed)?;
        self.counter_at_least = 0;
        if news.is_some() {
            self.hear();
        }
        Ok(committed)
    }

    /// Not synced: a machine that crashed has no waiters.
    pub(super) fn touch(
        &mut self,
        waiters: &[(Stand, Vec<Name>)],
        live_ms: u64,
    ) -> Result<Vec<bool>, Failed> {
        self.sync(false)?;
        let writing = Transaction::new(&mut self.connection, TransactionBehavior::Immediate)?;
        let now = self.clock.now();
        let until = now + live_ms.cast_signed();
        let mut alive = Vec::with_capacity(waiters.len());
        {
            let touch = "UPDATE waiters SET alive_until_ms = max(alive_until_ms, ?1)
                         WHERE name = ?2 AND seq = ?3 AND id = ?4 AND alive_until_ms > ?5";
            let mut touch = writing.prepare_cached(touch)?;
            for (Stand { id, seq }, names) in waiters {
                let (id, seq) = (id.to_string(), seq.cast_signed());
                let mut here = true;
                for name in names {
                    here &= touch.execute(params![until, name, seq, id, now])? == 1;
                }
                alive.push(here);
            }
        }
        writing.commit()?;
        Ok(alive)
    }
}

/// Changes within a transaction.
struct Commit<'a> {
    writing: &'a Transaction<'a>,
    now: i64,
    /// The last number that was taken.
    counter: i64,
    last_news: Option<i64>,
}

impl Commit<'_> {
    fn commit(&mut self, change: &Change) -> rusqlite::Result<Committed> {
        let mut found = BTreeMap::new();
        for (name, one) in &change.names {
            let Some(as_found) = self.as_expected(name, one, change)? else {
                let names: Vec<Name> = change.names.keys().cloned().collect();
                return Ok(Committed::Mismatch(read(self.writing, &names, self.now)?));
            };
            found.insert(name.clone(), as_found);
        }
        // Drawn after the checks, in the same transaction (8).
        let version = self.counter + 1;
        self.counter += change.all_numbers().cast_signed();
        for (name, one) in &change.names {
            self.write(name, one, version)?;
            let waited_for = found[name].last_seq > 0;
            let appends_only = matches!(one.head, Write::Keep) && one.remove.is_empty();
            if one.tell || waited_for && !appends_only {
                self.last_news = Some(super::news::tell(self.writing, name, version, &one.remove)?);
            }
        }
        for (number, append) in change.appends.iter().enumerate() {
            let insert = "INSERT INTO waiters VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let mut insert = self.writing.prepare_cached(insert)?;
            let (id, seq) = (append.id.to_string(), change.seq_of(version.cast_unsigned(), number));
            let alive = self.now + append.live_ms.cast_signed();
            for name in &append.to {
                let seq = seq.cast_signed();
                insert.execute(params![name, seq, id, self.now, alive, append.bytes])?;
            }
        }
        let (version, now) = (version.cast_unsigned(), self.now.cast_unsigned());
        Ok(Committed::Done(Done { version, now, names: found }))
    }

    /// What is there, if it is what was expected.
    fn as_expected(
        &self,
        name: &Name,
        one: &NameChange,
        change: &Change,
    ) -> rusqlite::Result<Option<Found>> {
        let found = "SELECT (SELECT version FROM heads WHERE name = ?1),
                            (SELECT max(seq) FROM waiters WHERE name = ?1)";
        let mut found = self.writing.prepare_cached(found)?;
        let (head, last): (Option<i64>, Option<i64>) =
            found.query_row([name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (head, last) = (head.map(i64::cast_unsigned), last.map_or(0, i64::cast_unsigned));
        let expected = match one.expect {
            Expect::Absent => head.is_none() && last == 0,
            Expect::There => head.is_some(),
            Expect::Version(version) => head == Some(version),
        };
        if !expected || one.last_seq.is_some_and(|seen| last > seen) {
            return Ok(None);
        }
        for stand in &one.remove {
            if self.seq_of(name, &stand.id)? != Some(stand.seq) {
                return Ok(None);
            }
        }
        for append in change.appends.iter().filter(|append| append.to.contains(name)) {
            let removed = one.remove.iter().any(|stand| stand.id == append.id);
            if !removed && self.seq_of(name, &append.id)?.is_some() {
                return Ok(None);
            }
        }
        Ok(Some(Found { version: head.unwrap_or(0), last_seq: last }))
    }

    /// Where a waiter stands.
    fn seq_of(&self, name: &Name, id: &RequestId) -> rusqlite::Result<Option<u64>> {
        let seq = "SELECT seq FROM waiters WHERE name = ?1 AND id = ?2";
        let mut seq = self.writing.prepare_cached(seq)?;
        let seq = seq.query_row(params![name, id.to_string()], |row| row.get::<_, i64>(0));
        Ok(seq.optional()?.map(i64::cast_unsigned))
    }

    fn write(&self, name: &Name, one: &NameChange, version: i64) -> rusqlite::Result<()> {
        match &one.head {
            Write::Keep => {}
            Write::Delete => {
                let delete = "DELETE FROM heads WHERE name = ?1";
                self.writing.prepare_cached(delete)?.execute([name])?;
            }
            Write::Put(put) => {
                let upsert = "INSERT INTO heads VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (name) DO
                              UPDATE SET version = ?2, time_ms = ?3, keep_until_ms = ?4, bytes = ?5";
                let until = put.keep_ms.map(|keep| self.now.saturating_add_unsigned(keep));
                let mut upsert = self.writing.prepare_cached(upsert)?;
                upsert.execute(params![name, version, self.now, until, put.bytes])?;
            }
        }
        for stand in &one.remove {
            let remove = "DELETE FROM waiters WHERE name = ?1 AND seq = ?2";
            let mut remove = self.writing.prepare_cached(remove)?;
            remove.execute(params![name, stand.seq.cast_signed()])?;
        }
        Ok(())
    }
}

fn read(connection: &Connection, names: &[Name], now: i64) -> rusqlite::Result<View> {
    let mut view = View { now: now.cast_unsigned(), ..View::default() };
    let head = "SELECT version, time_ms, bytes FROM heads WHERE name = ?1";
    let mut head = connection.prepare_cached(head)?;
    let queue =
        "SELECT seq, time_ms, alive_until_ms, bytes FROM waiters WHERE name = ?1 ORDER BY seq";
    let mut queue = connection.prepare_cached(queue)?;
    let number = |row: &rusqlite::Row<'_>, at| row.get::<_, i64>(at).map(i64::cast_unsigned);
    for name in names {
        let head = head.query_row([name], |row| {
            let (version, time, bytes) = (number(row, 0)?, number(row, 1)?, row.get(2)?);
            Ok(Head { version, time, bytes, alive: None })
        });
        let queue = queue.query_map([name], |row| {
            Ok(Waiter {
                seq: number(row, 0)?,
                time: number(row, 1)?,
                alive_until: number(row, 2)?,
                came: None,
                bytes: row.get(3)?,
            })
        })?;
        let queue = queue.collect::<rusqlite::Result<_>>()?;
        view.names.insert(name.clone(), Record { head: head.optional()?, queue });
    }
    Ok(view)
}
