//! openraft's own tests of a log and a state machine, over ours.
//!
//! Its cases are written for a log that takes entries at any index: many begin with entry 1 or 2 of
//! an empty log. Ours refuses a hole, and Raft never makes one, so holes are filled here first.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;

use futures_util::FutureExt;
use keylatch_table::Settings;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{EntryPayload, OptionalSend, StorageError};
use tempfile::TempDir;

use super::*;
use crate::log::store::{Options, Store};
use machine::Machine;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use storage::Log;
use types::{Entry, LogId, Types, Vote};

/// A log that fills holes with empty entries.
#[derive(Clone)]
struct Filled(Log);

impl RaftLogReader<Types> for Filled {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry>, io::Error> {
        self.0.try_get_log_entries(range).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        self.0.read_vote().await
    }
}

impl RaftLogStorage<Types> for Filled {
    type LogReader = Filled;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        self.0.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> Filled {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.0.save_vote(vote).await
    }

    async fn append<I>(&mut self, entries: I, done: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut entries: Vec<Entry> = entries.into_iter().collect();
        let last = self.get_log_state().await?.last_log_id;
        let next = last.map_or(0, |log_id| log_id.index + 1);
        let first = entries[0].log_id;
        let filler = |index| {
            let log_id = LogId { leader_id: first.leader_id, index };
            Entry { log_id, payload: EntryPayload::Blank }
        };
        entries.splice(0..0, (next..first.index).map(filler));
        self.0.append(entries, done).await
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.0.truncate_after(last).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.0.purge(log_id).await
    }
}

struct Builder;

impl StoreBuilder<Types, Filled, Machine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, Filled, Machine), StorageError<Types>> {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { segment_bytes: 4_096, reserve_bytes: 0 };
        let (store, _) = Store::open(&dir.path().join("log"), options).unwrap();
        let log = Log::new(store, [].into(), None, None);
        let machine = Machine::open(dir.path(), &Settings::default(), 1).unwrap();
        Ok((dir, Filled(log), machine))
    }
}

type Cases = Suite<Types, Filled, Machine, Builder, TempDir>;

/// Runs cases one by one, so that all that fail are named.
macro_rules! run {
    ($($case:ident)*) => {{
        let mut failed: Vec<String> = Vec::new();
        $(
            let (guard, log, machine) = Builder.build().await.unwrap();
            let case = std::panic::AssertUnwindSafe(Cases::$case(log, machine));
            match case.catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => failed.push(format!("{}: {error}", stringify!($case))),
                Err(_) => failed.push(format!("{} panics", stringify!($case))),
            }
            drop(guard);
        )*
        failed
    }};
}

#[tokio::test]
async fn the_log_and_the_table_are_what_openraft_expects() {
    let failed = run!(
        last_membership_in_log_initial last_membership_in_log last_membership_in_log_multi_step
        get_membership_initial get_membership_from_log_and_empty_sm
        get_membership_from_empty_log_and_sm get_membership_from_log_le_sm_last_applied
        get_membership_from_log_gt_sm_last_applied_1 get_membership_from_log_gt_sm_last_applied_2
        get_initial_state_without_init get_initial_state_membership_from_empty_log_and_sm
        get_initial_state_membership_from_sm_inlog_is_smaller
        get_initial_state_membership_from_log_insm_is_smaller get_initial_state_with_state
        get_initial_state_last_log_gt_sm get_initial_state_last_log_lt_sm
        get_initial_state_inverted_log_order get_initial_state_conflict_at_same_index
        get_initial_state_log_ids get_initial_state_re_apply_committed save_vote get_log_entries
        limited_get_log_entries leader_bounded_stream entries_stream try_get_log_entry
        log_reader_reads_new_entries initial_logs get_log_state get_log_id last_id_in_log
        last_applied_state purge_logs_upto_0 purge_logs_upto_5 purge_logs_upto_20
        delete_logs_after_11 delete_logs_after_5 delete_logs_after_0 delete_logs_after_none
        append_to_log snapshot_meta snapshot_meta_optional apply_single apply_multiple
    );
    assert_eq!(failed, [""; 0]);
    Cases::transfer_snapshot(&Builder).await.unwrap();
}
