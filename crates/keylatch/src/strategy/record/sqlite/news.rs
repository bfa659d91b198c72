//! What is told across processes: a table of the last changes that somebody may wait for. SQLite itself
//! tells nobody, so each process reads what has come since it last looked.

use rusqlite::{Connection, Transaction, params};

use super::super::store::{Stand, Told};
use super::file::File;

/// So many are kept. Whoever looks too seldom for that is told that it may have missed something.
const KEPT: i64 = 1_000;

/// Its number.
pub(super) fn tell(
    writing: &Transaction<'_>,
    name: &str,
    version: i64,
    removed: &[Stand],
) -> rusqlite::Result<i64> {
    let removed: Vec<String> = removed.iter().map(|stand| stand.seq.to_string()).collect();
    let insert = "INSERT INTO news (name, version, removed) VALUES (?1, ?2, ?3)";
    writing.prepare_cached(insert)?.execute(params![name, version, removed.join(" ")])?;
    Ok(writing.last_insert_rowid())
}

/// Those before the last ones go. Never all: numbers go on from what is there.
pub(super) fn forget(writing: &Transaction<'_>, last: i64) -> rusqlite::Result<()> {
    let delete = "DELETE FROM news WHERE n <= ?1";
    writing.prepare_cached(delete)?.execute([last - KEPT])?;
    Ok(())
}

fn since(connection: &Connection, heard: i64) -> rusqlite::Result<Vec<(i64, Told)>> {
    let news = "SELECT n, name, version, removed FROM news WHERE n > ?1 ORDER BY n";
    let mut news = connection.prepare_cached(news)?;
    let news = news.query_map([heard], |row| {
        let (name, removed): (String, String) = (row.get(1)?, row.get(3)?);
        let version = row.get::<_, i64>(2)?.cast_unsigned();
        let removed = removed.split(' ').filter_map(|seq| seq.parse().ok()).collect();
        Ok((row.get(0)?, Told::Changed { name: name.into(), version, removed }))
    })?;
    news.collect()
}

impl File {
    pub(super) fn last_news(&self) -> rusqlite::Result<i64> {
        let last = "SELECT coalesce(max(n), 0) FROM news";
        self.connection.query_row(last, [], |row| row.get(0))
    }

    /// Tells what has come, by whomever.
    pub(super) fn hear(&mut self) {
        // A file that cannot be read now is looked at again soon.
        let Ok(news) = since(&self.connection, self.heard) else { return };
        for (number, told) in news {
            if number > self.heard + 1 {
                drop(self.tell.send(Told::Anything));
            }
            self.heard = number;
            drop(self.tell.send(told));
        }
    }
}
