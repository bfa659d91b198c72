//! The tables, the clock that all processes share, and files of earlier versions.

use std::time::SystemTime;

use keylatch_table::Standing;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use rustix::time::{ClockId, clock_gettime};

/// The clock of a new file begins here, so that nothing lies before its beginning.
const BEGINNING: i64 = 1_000_000_000;
/// The version of the tables below. 1 had neither ids of waiters nor an end of what is kept.
const SCHEMA: i64 = 2;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        counter INTEGER NOT NULL, last_ms INTEGER NOT NULL,
        boot TEXT NOT NULL, offset_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS heads (
        name TEXT PRIMARY KEY, version INTEGER NOT NULL, time_ms INTEGER NOT NULL,
        keep_until_ms INTEGER, bytes BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS waiters (
        name TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, time_ms INTEGER NOT NULL,
        alive_until_ms INTEGER NOT NULL, bytes BLOB NOT NULL,
        PRIMARY KEY (name, seq), UNIQUE (name, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS news (
        n INTEGER PRIMARY KEY, name TEXT NOT NULL, version INTEGER NOT NULL, removed TEXT NOT NULL
    ) STRICT;
";

/// Why a file is not opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("{0}")]
    Refused(String),
}

/// `CLOCK_BOOTTIME`, which all processes of a machine share and which counts while it sleeps; after a
/// reboot it goes on from where it was when something was last written.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    offset_ms: i64,
}

impl Clock {
    pub(super) fn now(self) -> i64 {
        machine_ms() + self.offset_ms
    }
}

fn machine_ms() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
}

/// Where a counter begins that may have been lost: tokens do not fall back.
pub(super) fn wall_micros() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as i64)
}

/// Makes what is missing.
pub(super) fn set_up(connection: &mut Connection) -> Result<Clock, OpenError> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let change = Transaction::new(connection, TransactionBehavior::Immediate)?;
    let clock = clock(&change, &boot)?;
    change.commit()?;
    Ok(clock)
}

fn clock(change: &Transaction<'_>, boot: &str) -> Result<Clock, OpenError> {
    let schema: i64 = change.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = change.query_row(tables, [], |row| row.get(0))?;
    match schema {
        0 if tables > 0 => {
            let text = "this file is a database of another program";
            return Err(OpenError::Refused(text.into()));
        }
        0 | SCHEMA => {}
        1 => drop_heads_of_version_1(change, boot)?,
        newer => {
            let text = format!("this file has version {newer}, which is newer than this program");
            return Err(OpenError::Refused(text));
        }
    }
    if schema != SCHEMA {
        change.execute_batch(TABLES)?;
        change.pragma_update(None, "user_version", SCHEMA)?;
    }
    if let Some(clock) = known_clock(change, boot)? {
        return Ok(clock);
    }
    let offset_ms = BEGINNING - machine_ms();
    let insert = "INSERT INTO state VALUES (1, ?1, ?2, ?3, ?4)";
    change.execute(insert, params![wall_micros(), BEGINNING, boot, offset_ms])?;
    Ok(Clock { offset_ms })
}

fn known_clock(change: &Transaction<'_>, boot: &str) -> rusqlite::Result<Option<Clock>> {
    let state = "SELECT boot, offset_ms, last_ms FROM state";
    let state: Option<(String, i64, i64)> = change
        .query_row(state, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((known, offset_ms, last_ms)) = state else { return Ok(None) };
    if known == boot {
        return Ok(Some(Clock { offset_ms }));
    }
    // After a reboot time goes on from the last write: nobody loses a lease by it.
    let offset_ms = last_ms - machine_ms();
    let update = "UPDATE state SET boot = ?1, offset_ms = ?2";
    change.execute(update, params![boot, offset_ms])?;
    Ok(Some(Clock { offset_ms }))
}

/// What is held by a program of that version is not to be given to others; it cannot be carried over
/// either, for that program could not release it any more. Those who wait have to ask again anyway.
fn drop_heads_of_version_1(change: &Transaction<'_>, boot: &str) -> Result<(), OpenError> {
    let clock = known_clock(change, boot)?;
    let now = clock.map_or(0, Clock::now);
    {
        let mut heads = change.prepare("SELECT name, time_ms, bytes FROM heads")?;
        let mut heads = heads.query([])?;
        while let Some(head) = heads.next()? {
            let (name, time_ms): (String, i64) = (head.get(0)?, head.get(1)?);
            let bytes: Vec<u8> = head.get(2)?;
            let end = end_of_version_1(&bytes, time_ms.cast_unsigned());
            if end.is_none_or(|end| end > now.cast_unsigned()) {
                let text = format!(
                    "this file was written by an earlier version of keylatch, and '{name}' is held \
                     in it: end the programs that use it and open it again when their leases are \
                     over, or delete it"
                );
                return Err(OpenError::Refused(text));
            }
        }
    }
    Ok(change.execute_batch("DROP TABLE heads; DROP TABLE waiters;")?)
}

/// When the last holder of such a head has lost its lease; nothing, if it has none.
fn end_of_version_1(bytes: &[u8], time: u64) -> Option<u64> {
    // Above that, tokens and times were relative to the write.
    const FRESH: u64 = 1 << 60;
    let (version, rest) = bytes.split_first()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut end = 0;
    for _ in 0..u32::from_le_bytes(*count) {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let (standing, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let standing = Standing::decode(standing).ok()?;
        let deadline = standing.deadline?;
        end = end.max(if standing.token > FRESH { time + deadline } else { deadline });
        rest = behind;
    }
    (*version == 1).then_some(end)
}
