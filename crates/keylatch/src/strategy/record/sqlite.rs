//! `sqlite:PATH`: one file, several processes on one machine. A thread of its own does all the work,
//! and looks whether other processes have written while somebody waits for that.
//!
//! Time is `CLOCK_BOOTTIME`, which all processes of a machine share; it goes on after a reboot from
//! where it was when something was last written.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{oneshot, watch};

use super::super::Pending;
use super::store::{
    Change, Committed, Expect, Head, Name, NameChange, Record, Store, StoreError, View, Waiter,
    Write,
};
use crate::error::ConnectError;

/// How long another process may be writing before we give up.
const BUSY: Duration = Duration::from_secs(10);
/// How often it is looked whether another process has written, while somebody waits.
const LOOK: Duration = Duration::from_millis(4);
/// The clock of a new file begins here, so that nothing lies before its beginning.
const BEGINNING: i64 = 1_000_000_000;
/// The version of the tables below.
const SCHEMA: i64 = 1;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        counter INTEGER NOT NULL, last_ms INTEGER NOT NULL,
        boot TEXT NOT NULL, offset_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS heads (
        name TEXT PRIMARY KEY, version INTEGER NOT NULL, time_ms INTEGER NOT NULL, bytes BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS waiters (
        name TEXT NOT NULL, seq INTEGER NOT NULL, time_ms INTEGER NOT NULL,
        alive_until_ms INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (name, seq)
    ) STRICT, WITHOUT ROWID;
";

type Work = Box<dyn FnOnce(&mut File) + Send>;

pub(crate) struct Sqlite {
    work: mpsc::Sender<Work>,
    changes: watch::Receiver<u64>,
}

/// The open file.
struct File {
    connection: Connection,
    /// What is added to the machine's clock.
    offset_ms: i64,
    changes: watch::Sender<u64>,
    /// What SQLite says of writes by others.
    seen: i64,
}

impl Sqlite {
    pub(crate) async fn open(path: &str) -> Result<Sqlite, ConnectError> {
        let refused = |text: String| ConnectError::Refused(format!("{path}: {text}"));
        if let Some(dir) = Path::new(path).parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir).map_err(|error| refused(error.to_string()))?;
        }
        let (changed, changes) = watch::channel(0);
        let (work, to_do) = mpsc::channel::<Work>();
        let (opened, file) = oneshot::channel();
        let owned = path.to_string();
        let thread = std::thread::Builder::new().name("keylatch-sqlite".into());
        let started = thread.spawn(move || match File::open(&owned, changed) {
            Ok(file) => {
                drop(opened.send(Ok(())));
                file.run(&to_do);
            }
            Err(error) => drop(opened.send(Err(error.to_string()))),
        });
        started.map_err(|error| refused(error.to_string()))?;
        let opened = file.await.unwrap_or_else(|_| Err("the thread ended".into()));
        opened.map_err(refused)?;
        Ok(Sqlite { work, changes })
    }

    fn ask<T: Send + 'static>(
        &self,
        writes: bool,
        work: impl FnOnce(&mut File) -> rusqlite::Result<T> + Send + 'static,
    ) -> Pending<Result<T, StoreError>> {
        let (send, answer) = oneshot::channel();
        let work: Work = Box::new(move |file| drop(send.send(work(file))));
        drop(self.work.send(work));
        Box::pin(async move {
            match answer.await {
                Ok(Ok(value)) => Ok(value),
                // A transaction that failed has not happened; one that failed to commit may have.
                Ok(Err(error)) => Err(StoreError { text: error.to_string(), unknown: writes }),
                Err(_) => Err(StoreError { text: "the file was closed".into(), unknown: writes }),
            }
        })
    }
}

impl File {
    fn open(path: &str, changes: watch::Sender<u64>) -> rusqlite::Result<File> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        // Several processes that switch at once are told that it is busy, whatever the time-out.
        let mut tries = 0;
        while let Err(error) = connection.pragma_update(None, "journal_mode", "WAL") {
            tries += 1;
            if tries == 500 {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        let mut file = File { connection, offset_ms: 0, changes, seen: 0 };
        file.set_up()?;
        Ok(file)
    }

    fn set_up(&mut self) -> rusqlite::Result<()> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let here = machine_ms();
        let change = Transaction::new(&mut self.connection, TransactionBehavior::Immediate)?;
        let schema: i64 = change.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if schema > SCHEMA {
            let text = format!("this file has version {schema}, which is newer than this program");
            return Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(1), Some(text)));
        }
        change.execute_batch(TABLES)?;
        change.pragma_update(None, "user_version", SCHEMA)?;
        let state = "SELECT boot, offset_ms, last_ms FROM state";
        let state: Option<(String, i64, i64)> = change
            .query_row(state, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        self.offset_ms = match state {
            Some((known, offset, _)) if known == boot => offset,
            // After a reboot time goes on from the last write: nobody loses a lease by it.
            Some((_, _, last)) => {
                let offset = last - here;
                let update = "UPDATE state SET boot = ?1, offset_ms = ?2";
                change.execute(update, params![boot, offset])?;
                offset
            }
            None => {
                let offset = BEGINNING - here;
                let insert = "INSERT INTO state VALUES (1, 0, ?1, ?2, ?3)";
                change.execute(insert, params![BEGINNING, boot, offset])?;
                offset
            }
        };
        change.commit()
    }

    /// Works until nobody can ask for anything any more.
    fn run(mut self, to_do: &mpsc::Receiver<Work>) {
        loop {
            // Whoever waits holds a receiver besides the one of the store and its watcher.
            let work = match self.changes.receiver_count() > 2 {
                true => to_do.recv_timeout(LOOK),
                false => to_do.recv_timeout(LOOK * 10),
            };
            match work {
                Ok(work) => work(&mut self),
                Err(mpsc::RecvTimeoutError::Timeout) => self.look(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Whether another process has written.
    fn look(&mut self) {
        let seen = self.connection.pragma_query_value(None, "data_version", |row| row.get(0));
        if let Ok(seen) = seen
            && seen != self.seen
        {
            self.seen = seen;
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn now(&self) -> i64 {
        machine_ms() + self.offset_ms
    }

    fn commit(&mut self, change: &Change) -> rusqlite::Result<Committed> {
        let offset_ms = self.offset_ms;
        let writing = Transaction::new(&mut self.connection, TransactionBehavior::Immediate)?;
        // Not earlier: others may have written until now.
        let now = machine_ms() + offset_ms;
        for (name, one) in &change.names {
            if !is_as_expected(&writing, name, one)? {
                let names: Vec<Name> = change.names.keys().cloned().collect();
                return Ok(Committed::Mismatch(read(&writing, &names, now)?));
            }
        }
        // Drawn after the check, in the same transaction (8).
        let numbers = change.numbers.max(1) + u64::from(change.append.is_some());
        let counter =
            "UPDATE state SET counter = counter + ?1, last_ms = max(last_ms, ?2) RETURNING counter";
        let counter: i64 =
            writing.query_row(counter, params![numbers.cast_signed(), now], |row| row.get(0))?;
        let version = counter - numbers.cast_signed() + 1;
        for (name, one) in &change.names {
            write(&writing, name, one, version, now)?;
        }
        if let Some(append) = &change.append {
            let insert = "INSERT INTO waiters VALUES (?1, ?2, ?3, ?4, ?5)";
            let alive = now + append.live_ms.cast_signed();
            for name in &append.to {
                writing.execute(insert, params![name, counter, now, alive, append.bytes])?;
            }
        }
        writing.commit()?;
        self.changes.send_modify(|changes| *changes += 1);
        let (version, seq) = (version.cast_unsigned(), counter.cast_unsigned());
        Ok(Committed::Done { version, seq })
    }
}

fn is_as_expected(
    writing: &Transaction<'_>,
    name: &str,
    one: &NameChange,
) -> rusqlite::Result<bool> {
    let head = "SELECT version FROM heads WHERE name = ?1";
    let head: Option<i64> = writing.query_row(head, [name], |row| row.get(0)).optional()?;
    let last = "SELECT coalesce(max(seq), 0) FROM waiters WHERE name = ?1";
    let last: i64 = writing.query_row(last, [name], |row| row.get(0))?;
    let expected = match one.expect {
        Expect::Absent => head.is_none() && last == 0,
        Expect::There => head.is_some(),
        Expect::Version(version) => head == Some(version.cast_signed()),
    };
    let unseen = one.last_seq.is_some_and(|seen| last > seen.cast_signed());
    let mut there = true;
    for seq in &one.remove {
        let waiter = "SELECT 1 FROM waiters WHERE name = ?1 AND seq = ?2";
        let waiter = writing.query_row(waiter, params![name, seq.cast_signed()], |_| Ok(()));
        there &= waiter.optional()?.is_some();
    }
    Ok(expected && !unseen && there)
}

fn write(
    writing: &Transaction<'_>,
    name: &str,
    one: &NameChange,
    version: i64,
    now: i64,
) -> rusqlite::Result<()> {
    match &one.head {
        Write::Keep => {}
        Write::Delete => drop(writing.execute("DELETE FROM heads WHERE name = ?1", [name])?),
        Write::Put { bytes, .. } => {
            let put = "INSERT OR REPLACE INTO heads VALUES (?1, ?2, ?3, ?4)";
            writing.execute(put, params![name, version, now, bytes])?;
        }
    }
    for seq in &one.remove {
        let remove = "DELETE FROM waiters WHERE name = ?1 AND seq = ?2";
        writing.execute(remove, params![name, seq.cast_signed()])?;
    }
    Ok(())
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
            Ok(Head { version: number(row, 0)?, time: number(row, 1)?, bytes: row.get(2)? })
        });
        let queue = queue.query_map([name], |row| {
            Ok(Waiter {
                seq: number(row, 0)?,
                time: number(row, 1)?,
                alive_until: number(row, 2)?,
                bytes: row.get(3)?,
            })
        })?;
        let queue = queue.collect::<rusqlite::Result<_>>()?;
        view.names.insert(name.clone(), Record { head: head.optional()?, queue });
    }
    Ok(view)
}

/// Counts while the machine sleeps, and is the same for all its processes.
fn machine_ms() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
}

impl Store for Sqlite {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>> {
        self.ask(false, move |file| {
            let reading = file.connection.unchecked_transaction()?;
            // The clock after the snapshot: nothing in it is later.
            reading.query_row("SELECT counter FROM state", [], |_| Ok(()))?;
            read(&reading, &names, file.now())
        })
    }

    fn read_all(&self) -> Pending<Result<View, StoreError>> {
        self.ask(false, |file| {
            let reading = file.connection.unchecked_transaction()?;
            let names = "SELECT name FROM heads UNION SELECT name FROM waiters";
            let names: Vec<Name> = reading
                .prepare_cached(names)?
                .query_map([], |row| row.get::<_, String>(0).map(Into::into))?
                .collect::<rusqlite::Result<_>>()?;
            read(&reading, &names, file.now())
        })
    }

    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>> {
        self.ask(true, move |file| file.commit(&change))
    }

    fn touch(&self, to: Vec<Name>, seq: u64, live_ms: u64) -> Pending<Result<bool, StoreError>> {
        self.ask(false, move |file| {
            let offset_ms = file.offset_ms;
            let touch = "UPDATE waiters SET alive_until_ms = ?1
                         WHERE name = ?2 AND seq = ?3 AND alive_until_ms > ?4";
            let writing = Transaction::new(&mut file.connection, TransactionBehavior::Immediate)?;
            let now = machine_ms() + offset_ms;
            let mut alive = true;
            for name in &to {
                let until = now + live_ms.cast_signed();
                alive &= writing.execute(touch, params![until, name, seq.cast_signed(), now])? == 1;
            }
            writing.commit()?;
            Ok(alive)
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}
