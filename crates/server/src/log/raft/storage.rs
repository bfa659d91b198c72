//! The Raft log on disk: `log/store` keeps the bytes, and all live entries stay in memory, because
//! Raft reads each of them again when it is applied.
//!
//! Raft counts entries from 0, the store from 1.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use parking_lot::Mutex;

use super::bytes;
use super::types::{Entry, LogId, Types, Vote};
use crate::log::store::Store;

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
}

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
        Log(Arc::new(Mutex::new(Inner { store, entries, purged, vote, preparing: false })))
    }

    /// Bytes of the log on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().store.bytes()
    }

    /// Writes the next segment in good time, and not on this thread.
    fn prepare(&self) {
        let mut inner = self.0.lock();
        if inner.preparing {
            return;
        }
        let Some(preparation) = inner.store.preparation() else { return };
        inner.preparing = true;
        let log = self.clone();
        tokio::task::spawn_blocking(move || {
            let prepared = preparation.run();
            let mut inner = log.0.lock();
            inner.preparing = false;
            match prepared {
                Ok(prepared) => inner.store.adopt(prepared),
                // It is tried again; if there is still no room when it is needed, that is an error.
                Err(error) => tracing::warn!(%error, "the next part of the log could not be made"),
            }
        });
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
