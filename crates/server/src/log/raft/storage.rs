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
use tokio::time::Instant;

use super::bytes;
use super::outside;
use super::types::{Entry, LogId, Types, Vote};
use crate::log::store::{Store, is_full};

#[derive(Clone)]
pub(crate) struct Log(Arc<Mutex<Inner>>);

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
}

/// How long to wait before a full disk is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl Inner {
    /// The index of the first live entry.
    fn first(&self) -> u64 {
        self.purged.as_ref().map_or(0, |log_id| log_id.index + 1)
    }
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
        let inner = Inner { store, entries, purged, vote, preparing, no_room, appended };
        Log(Arc::new(Mutex::new(inner)))
    }

    /// Bytes that have gone into the log so far. It only grows.
    pub(crate) fn appended(&self) -> u64 {
        self.0.lock().appended
    }

    /// Whether the disk is full and what is left should go to releases and the like.
    pub(crate) fn is_full(&self) -> bool {
        let inner = self.0.lock();
        inner.no_room.is_some() && inner.store.is_short()
    }

    /// Whether a batch of so many bytes can be written. If not, nothing has happened.
    pub(crate) fn make_room(&self, bytes: u64) -> io::Result<bool> {
        let mut inner = self.0.lock();
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
        let mut inner = self.0.lock();
        if inner.preparing || inner.no_room.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let Some(preparation) = inner.store.preparation() else { return };
        inner.preparing = true;
        drop(inner);
        let log = self.clone();
        outside::spawn_blocking(move || {
            let prepared = preparation.run();
            let mut inner = log.0.lock();
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
        self.0.lock().entries.iter().cloned().collect()
    }

    /// Whether anything is in it.
    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.0.lock();
        inner.entries.is_empty() && inner.purged.is_none()
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, io::Error> {
        let inner = self.0.lock();
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
        Ok(self.0.lock().vote)
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let inner = self.0.lock();
        let last = inner.entries.back().map(|entry| entry.log_id).or(inner.purged);
        Ok(LogState { last_purged_log_id: inner.purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let mut inner = self.0.lock();
        #[cfg(test)]
        if super::sim::forgets_votes() {
            inner.vote = Some(*vote);
            return Ok(());
        }
        inner.store.save_meta(&bytes::encode_vote(vote))?;
        inner.vote = Some(*vote);
        Ok(())
    }

    /// One batch, one sync, here and now: with one voter there is nothing else to do meanwhile.
    async fn append<I>(&mut self, entries: I, done: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let encoded: Vec<(u64, Vec<u8>)> = entries
            .iter()
            .map(|entry| (entry.log_id.index + 1, bytes::encode_entry(entry)))
            .collect();
        let records: Vec<(u64, &[u8])> =
            encoded.iter().map(|(index, bytes)| (*index, &bytes[..])).collect();
        let outcome = {
            let mut inner = self.0.lock();
            let outcome = inner.store.append(&records);
            if outcome.is_ok() {
                inner.entries.extend(entries);
                inner.appended += encoded.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
            }
            outcome
        };
        match outcome {
            Ok(()) => {
                done.io_completed(Ok(()));
                self.prepare();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let mut inner = self.0.lock();
        let keep = last.map_or(0, |log_id| log_id.index + 1);
        inner.store.truncate_after(keep)?;
        let first = inner.first();
        inner.entries.truncate(keep.saturating_sub(first) as usize);
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let mut inner = self.0.lock();
        inner.store.purge(log_id.index + 1, &bytes::encode_log_id(&log_id))?;
        while inner.entries.front().is_some_and(|entry| entry.log_id.index <= log_id.index) {
            inner.entries.pop_front();
        }
        inner.purged = inner.purged.max(Some(log_id));
        Ok(())
    }
}
