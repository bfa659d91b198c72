//! What nobody needs any more goes (7): heads whose time is over, with those in their queue if all of them are dead.
//! It goes by an ordinary change, so that whoever comes meanwhile is seen.

use std::sync::Arc;
use std::time::Duration;

use keylatch_table::RequestId;
use tokio::sync::watch;

use super::super::store::{Change, Expect, NameChange, Stand, Write};
use super::lane::Lane;
use super::listen::{Mode, closed};
use super::pool::Pool;

/// How often. A bit more or less, so that not all processes do it at once.
const EVERY: Duration = Duration::from_secs(60);
/// How many at once.
const MOST: usize = 500;

const STALE: &str = "
    SELECT h.name, h.version,
        ARRAY(SELECT w.seq FROM keylatch.waiters w WHERE w.name = h.name ORDER BY w.seq),
        ARRAY(SELECT w.id FROM keylatch.waiters w WHERE w.name = h.name ORDER BY w.seq)
    FROM keylatch.heads h CROSS JOIN (SELECT keylatch.now_ms() AS now_ms OFFSET 0) clock
    WHERE h.forget_ms <= clock.now_ms AND NOT EXISTS (
        SELECT FROM keylatch.waiters w WHERE w.name = h.name AND w.alive_until_ms > clock.now_ms)
    LIMIT 500";

/// Sweeps as long as the store is there.
pub(super) async fn run(pool: Arc<Pool>, lane: Lane, mut mode: watch::Receiver<Mode>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY.mul_f64(rand::random_range(0.5..1.5))) => {}
            () = closed(&mut mode) => return,
        }
        while sweep(&pool, &lane).await == MOST {}
    }
}

/// How many were found. What goes wrong here goes right another time.
pub(super) async fn sweep(pool: &Pool, lane: &Lane) -> usize {
    let Ok(rows) = pool.query_again(STALE, &[]).await else { return 0 };
    let gone = rows.iter().filter_map(|row| {
        let name = String::from_utf8(row.try_get(0).ok()?).ok()?;
        let version = row.try_get::<_, i64>(1).ok()?.cast_unsigned();
        let seqs: Vec<i64> = row.try_get(2).ok()?;
        let ids: Vec<Vec<u8>> = row.try_get(3).ok()?;
        let remove = seqs.iter().zip(ids).map(|(seq, id)| {
            let id = RequestId::new(&String::from_utf8(id).ok()?);
            Some(Stand { id, seq: seq.cast_unsigned() })
        });
        let last_seq = seqs.last().copied().unwrap_or_default().cast_unsigned();
        let gone = NameChange {
            expect: Expect::Version(version),
            last_seq: Some(last_seq),
            head: Write::Delete,
            remove: remove.collect::<Option<_>>()?,
            tell: false,
            own_up_to: None,
        };
        Some(lane.submit(Change::of(name, gone)))
    });
    let gone: Vec<_> = gone.collect();
    for gone in gone {
        drop(gone.await);
    }
    rows.len()
}
