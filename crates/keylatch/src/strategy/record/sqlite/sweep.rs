//! What nobody needs any more goes (7): heads that nobody holds by and nobody waits for, left by
//! processes that died, and waiters long dead. Whoever comes by a name cleans it up himself; this is for
//! names that nobody ever asks for again. A little at a time, so that nobody has to wait for it.

use std::time::{Duration, Instant};

use rusqlite::{Transaction, TransactionBehavior, params};

use super::file::File;

/// Between two sweeps; twice that if there is always something else to do.
const OFTEN: Duration = Duration::from_secs(30);
/// So many names are looked at when the file is opened: a program that only locks once is to be quick.
/// Whoever holds more locks than that lives longer, and sweeps on.
const FIRST: i64 = 1_000;
/// And so many later: some milliseconds.
const MORE: i64 = 10_000;
/// So many go at once: a millisecond or two in which nobody else can write.
const AT_ONCE: usize = 500;
/// A dead waiter of a lock that is still held is left to those who hand over, for so long.
const DEAD_MS: i64 = 60_000;

const IS_STALE: &str = "keep_until_ms <= ?2 AND NOT EXISTS (
    SELECT 1 FROM waiters WHERE waiters.name = heads.name AND alive_until_ms > ?2)";

#[derive(Default)]
pub(super) struct Sweeper {
    /// None before the first.
    last: Option<Instant>,
    /// The name where the next one begins.
    next: String,
}

impl File {
    /// Failing at it harms nobody: the next one tries again.
    pub(super) fn sweep_if_due(&mut self, idle: bool) {
        let often = if idle { OFTEN } else { OFTEN * 2 };
        let due = self.sweeper.last.is_none_or(|last| last.elapsed() >= often);
        if due && let Err(error) = self.sweep() {
            tracing::debug!(%error, "the file could not be swept");
        }
    }

    fn sweep(&mut self) -> rusqlite::Result<()> {
        let limit = if self.sweeper.last.is_none() { FIRST } else { MORE };
        self.sweeper.last = Some(Instant::now());
        let now = self.clock.now();
        // Only looking keeps nobody from writing.
        let stale = self.stale(now, limit)?;
        let dead = "SELECT EXISTS (SELECT 1 FROM waiters WHERE alive_until_ms <= ?1)";
        let dead: bool =
            self.connection.prepare_cached(dead)?.query_row([now - DEAD_MS], |row| row.get(0))?;
        if stale.is_empty() && !dead {
            return Ok(());
        }
        self.sync(false)?;
        let writing = Transaction::new(&mut self.connection, TransactionBehavior::Immediate)?;
        {
            let delete = format!("DELETE FROM heads WHERE name = ?1 AND {IS_STALE}");
            let mut delete = writing.prepare_cached(&delete)?;
            let mut queue = writing.prepare_cached("DELETE FROM waiters WHERE name = ?1")?;
            for name in stale {
                if delete.execute(params![name, now])? == 1 {
                    queue.execute([name])?;
                }
            }
            let dead = "DELETE FROM waiters WHERE alive_until_ms <= ?1";
            writing.prepare_cached(dead)?.execute([now - DEAD_MS])?;
        }
        writing.commit()
    }

    /// Names that may go, of the next ones in order.
    fn stale(&mut self, now: i64, limit: i64) -> rusqlite::Result<Vec<String>> {
        let names = format!(
            "SELECT name, coalesce({IS_STALE}, 0) FROM heads WHERE name >= ?1 ORDER BY name LIMIT ?3"
        );
        let mut names = self.connection.prepare_cached(&names)?;
        let mut names = names.query(params![self.sweeper.next, now, limit])?;
        let (mut stale, mut looked_at) = (Vec::new(), 0);
        while let Some(row) = names.next()? {
            let name: String = row.get(0)?;
            looked_at += 1;
            let is_stale: bool = row.get(1)?;
            if looked_at == limit || stale.len() == AT_ONCE {
                self.sweeper.next = name;
                return Ok(stale);
            }
            if is_stale {
                stale.push(name);
            }
        }
        self.sweeper.next = String::new();
        Ok(stale)
    }
}
