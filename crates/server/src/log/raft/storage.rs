//! The Raft log on disk: `log/store` keeps the bytes, and all live entries stay in memory, because
//! Raft reads each of them again when it is applied.
//!
//! Raft counts entries from 0, the store from 1.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bytes;
use super::outside;
use super::types::{Entry, LogId, Types, Vote};
use crate::log::store::{Store, is_full};

#[derive(Clone)]
pub(crate) struct Log {
    inner: Arc<Mutex<Inner>>,
    /// There is something to write.
    pending: Arc<Notify>,
}

struct Inner {
    store: Store,
    /// Live entries; the first has the index `first`.
    entries: VecDeque<Entry>,
    purged: Option<LogId>,
    vote: Option<Vote>,
    /// The next segment is being written.
    preparing: bool,
    /// The last try to write one found no room, and when the next try is.
    no_room: Option<Instant>,
    /// Bytes of all entries that were ever appended, or found when the log was opened.
    appended: u64,
    /// Entries that are not on the disk yet, and who is to be told when they are.
    pending: Vec<(u64, Vec<u8>)>,
    told: Vec<IOFlushed<Types>>,
    /// The node of whose entries somebody writes them a little later.
    later: Option<u64>,
}

/// What an entry takes on the disk beside its own bytes, and not less.
const RECORD: usize = 16;
/// Bytes that are not left for later.
const MOST_PENDING: u64 = 1024 * 1024;
/// How long to wait before a full disk is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl Inner {
    /// The index of the first live entry.
    fn first(&self) -> u64 {
        self.purged.as_ref().map_or(0, |log_id| log_id.index + 1)
    }

    fn pending_bytes(&self) -> u64 {
        self.pending.iter().map(|(_, bytes)| (bytes.len() + RECORD) as u64).sum()
    }

    /// Writes what is pending: one batch, one sync.
    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let records: Vec<(u64, &[u8])> =
            pending.iter().map(|(index, bytes)| (*index, &bytes[..])).collect();
        let written = self.store.append(&records);
        for done in self.told.drain(..) {
            done.io_completed(written.as_ref().copied().map_err(again));
        }
        if written.is_err() {
            // Raft has been told, and ends. What it may still do until then must not leave a gap.
            self.pending = pending;
        }
        written
    }
}

/// The same error for one more of those who are told.
fn again(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

impl Log {
    pub(crate) fn new(
        store: Store,
        entries: VecDeque<Entry>,
        purged: Option<LogId>,
        vote: Option<Vote>,
    ) -> Log {
        let appended = store.bytes();
        let (preparing, no_room) = (false, None);
        let (pending, told, later) = (Vec::new(), Vec::new(), None);
        let inner = Inner {
            store,
            entries,
            purged,
            vote,
            preparing,
            no_room,
            appended,
            pending,
            told,
            later,
        };
        Log { inner: Arc::new(Mutex::new(inner)), pending: Arc::default() }
    }

    /// From now on entries of this node as the leader are written when everything else that can be done has been done:
    /// it has sent them before it syncs them itself, and its disk works at the same time as the others'. Runs for
    /// ever.
    pub(crate) async fn write_later(self, leader: u64) {
        self.inner.lock().later = Some(leader);
        loop {
            self.pending.notified().await;
            // All tasks that can run do so first.
            tokio::task::yield_now().await;
            #[cfg(test)]
            super::sim::while_it_syncs().await;
            // Raft has been told of an error, and ends.
            let _ = self.inner.lock().flush();
            self.prepare();
        }
    }

    /// Bytes that have gone into the log so far. It only grows.
    pub(crate) fn appended(&self) -> u64 {
        self.inner.lock().appended
    }

    /// Whether the disk is full and what is left should go to releases and the like.
    pub(crate) fn is_full(&self) -> bool {
        let inner = self.inner.lock();
        inner.no_room.is_some() && inner.store.is_short()
    }

    /// Whether a batch of so many bytes can be written. If not, nothing has happened.
    pub(crate) fn make_room(&self, bytes: u64) -> io::Result<bool> {
        let mut inner = self.inner.lock();
        let bytes = bytes + inner.pending_bytes();
        match inner.store.make_room(bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                inner.no_room.get_or_insert_with(|| Instant::now() + RETRY);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the next segment in good time, and not on this thread.
    pub(crate) fn prepare(&self) {
        let mut inner = self.inner.lock();
        if inner.preparing || inner.no_room.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let Some(preparation) = inner.store.preparation() else { return };
        inner.preparing = true;
        drop(inner);
        let log = self.clone();
        outside::spawn_blocking(move || {
            let prepared = preparation.run();
            let mut inner = log.inner.lock();
            inner.preparing = false;
            match prepared {
                Ok(prepared) => {
                    inner.store.adopt(prepared);
                    inner.no_room = None;
                    if let Err(error) = inner.store.restore_reserve() {
                        tracing::warn!(%error, "the log's reserve could not be made");
                    }
                }
                // It is tried again, and until then there is some room left.
                Err(error) if is_full(&error) => {
                    if inner.no_room.is_none() {
                        tracing::warn!(%error, "no room for the next part of the log: free space");
                    }
                    inner.no_room = Some(Instant::now() + RETRY);
                }
                // When it is needed, that is an error.
                Err(error) => tracing::error!(%error, "the next part of the log could not be made"),
            }
        });
    }

    /// All live entries.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.inner.lock().entries.iter().cloned().collect()
    }

    /// Whether this node has ever voted, or followed somebody.
    pub(crate) fn has_vote(&self) -> bool {
        self.inner.lock().vote.is_some()
    }

    /// Whether any entry is in it, or was.
    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.inner.lock();
        inner.entries.is_empty() && inner.purged.is_none()
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, io::Error> {
        let inner = self.inner.lock();
        let first = inner.first();
        let from = match range.start_bound() {
            Bound::Included(index) => *index,
            Bound::Excluded(index) => index + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(index) => index + 1,
            Bound::Excluded(index) => *index,
            Bound::Unbounded => u64::MAX,
        };
        let (from, to) = (from.max(first), to.min(first + inner.entries.len() as u64));
        if from >= to {
            return Ok(Vec::new());
        }
        let range = (from - first) as usize..(to - first) as usize;
        Ok(inner.entries.range(range).cloned().collect())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.inner.lock().vote)
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let inner = self.inner.lock();
        let last = inner.entries.back().map(|entry| entry.log_id).or(inner.purged);
        Ok(LogState { last_purged_log_id: inner.purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let mut inner = self.inner.lock();
        #[cfg(test)]
        if super::sim::forgets_votes() {
            inner.vote = Some(*vote);
            return Ok(());
        }
        inner.flush()?;
        inner.store.save_meta(&bytes::encode_vote(vote))?;
        inner.vote = Some(*vote);
        Ok(())
    }

    /// They can be read when this returns, and are durable when Raft is told so: at once, with one sync, or a little
    /// later (see [`Log::write_later`]).
    async fn append<I>(&mut self, entries: I, done: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let later = {
            let mut inner = self.inner.lock();
            let mut later = inner.later.is_some();
            for entry in entries {
                later &= inner.later == Some(entry.log_id.leader_id.node_id);
                let bytes = bytes::encode_entry(&entry);
                inner.appended += bytes.len() as u64;
                inner.pending.push((entry.log_id.index + 1, bytes));
                inner.entries.push_back(entry);
            }
            later &= inner.pending_bytes() < MOST_PENDING;
            #[cfg(test)]
            let done = if later && super::sim::counts_unsynced() {
                done.io_completed(Ok(()));
                IOFlushed::noop()
            } else {
                done
            };
            inner.told.push(done);
            if !later {
                inner.flush()?;
            }
            later
        };
        if later {
            self.pending.notify_one();
        } else {
            self.prepare();
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let mut inner = self.inner.lock();
        let keep = last.map_or(0, |log_id| log_id.index + 1);
        inner.flush()?;
        inner.store.truncate_after(keep)?;
        let first = inner.first();
        inner.entries.truncate(keep.saturating_sub(first) as usize);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let mut inner = self.inner.lock();
        inner.flush()?;
        inner.store.purge(log_id.index + 1, &bytes::encode_log_id(&log_id))?;
        while inner.entries.front().is_some_and(|entry| entry.log_id.index <= log_id.index) {
            inner.entries.pop_front();
        }
        inner.purged = inner.purged.max(Some(log_id));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
