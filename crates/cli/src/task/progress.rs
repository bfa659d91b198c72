//! What a worker has done so far: counted, and shown on a terminal in one line that is written again
//! and again.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keylatch::Tasks;

const EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Progress {
    pub(super) running: AtomicU64,
    pub(super) done: AtomicU64,
    pub(super) back: AtomicU64,
    pub(super) lost: AtomicU64,
    /// Whether the line stands on the terminal.
    shown: Mutex<bool>,
}

impl Progress {
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether there was a task so far.
    pub(super) fn has_begun(&self) -> bool {
        let counts = [&self.running, &self.done, &self.back, &self.lost];
        counts.iter().any(|count| count.load(Ordering::SeqCst) > 0)
    }

    pub(super) fn summary(&self) -> String {
        let [done, back, lost] =
            [&self.done, &self.back, &self.lost].map(|count| count.load(Ordering::SeqCst));
        let lost = if lost > 0 { format!(", {lost} lost") } else { String::new() };
        format!("{done} done, {back} put back{lost}")
    }

    /// Something for standard error, without the line in its way.
    pub(super) fn write(&self, bytes: &[u8]) {
        let mut shown = self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut out = io::stderr().lock();
        if std::mem::take(&mut *shown) {
            drop(out.write_all(b"\r\x1b[K"));
        }
        // If nobody hears it, that is no failure.
        drop(out.write_all(bytes));
    }

    /// About once a second, on a terminal; for ever.
    pub(super) async fn show(&self, tasks: &Tasks) {
        if !io::stderr().is_terminal() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(EVERY).await;
            let Ok(counts) = tasks.counts().await else { continue };
            let running = self.running.load(Ordering::SeqCst);
            let line = format!(
                "keylatch: {}: {running} running, {}; {} ready, {} delayed, {} failed",
                tasks.pool(),
                self.summary(),
                counts.ready,
                counts.delayed,
                counts.failed
            );
            self.write(line.as_bytes());
            *self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        }
    }
}
