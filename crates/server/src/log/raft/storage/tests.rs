//! When entries are on the disk: what is read back by another opening of a copy of the directory.

use openraft::EntryPayload;
use openraft::type_config::TypeConfigExt;
use openraft::vote::leader_id_adv::LeaderId;
use tempfile::TempDir;
use tokio::sync::oneshot::Receiver;

use super::*;
use crate::log::store::Options;

const ME: u64 = 7;

struct Lab {
    dir: TempDir,
    log: Log,
    next: u64,
}

impl Lab {
    fn new() -> Lab {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path(), OPTIONS).unwrap();
        Lab { dir, log: Log::new(store, [].into(), None, None), next: 0 }
    }

    /// One more entry, of the leader of this node.
    async fn append(&mut self, node_id: u64) -> Receiver<io::Result<()>> {
        let log_id = LogId { leader_id: LeaderId { term: 1, node_id }, index: self.next };
        self.next += 1;
        let (told, tell) = Types::oneshot();
        let entry = Entry { log_id, payload: EntryPayload::Blank };
        self.log.append([entry], IOFlushed::signal(told)).await.unwrap();
        tell
    }

    /// Entries that a crash would leave.
    fn on_disk(&self) -> usize {
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(self.dir.path()).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        Store::open(copy.path(), OPTIONS).unwrap().1.entries.len()
    }
}

const OPTIONS: Options = Options { segment_bytes: 65_536, reserve_bytes: 0 };

async fn is_read(log: &mut Log, count: usize) {
    assert_eq!(log.try_get_log_entries(..).await.unwrap().len(), count);
}

#[tokio::test]
async fn a_leader_s_entries_are_synced_together_when_nothing_else_can_be_done() {
    let mut lab = Lab::new();
    let writes = tokio::spawn(lab.log.clone().write_later(ME));
    tokio::task::yield_now().await;
    let mut told = vec![lab.append(ME).await, lab.append(ME).await];
    is_read(&mut lab.log, 2).await;
    assert_eq!(lab.on_disk(), 0);
    assert!(told.iter_mut().all(|told| told.try_recv().is_err()), "nobody is told before");
    for told in told {
        told.await.unwrap().unwrap();
    }
    assert_eq!(lab.on_disk(), 2);
    writes.abort();
}

#[tokio::test]
async fn those_of_another_leader_are_synced_at_once_and_take_along_what_is_pending() {
    let mut lab = Lab::new();
    let writes = tokio::spawn(lab.log.clone().write_later(ME));
    tokio::task::yield_now().await;
    let mut mine = lab.append(ME).await;
    let mut theirs = lab.append(8).await;
    assert_eq!(lab.on_disk(), 2);
    assert!(mine.try_recv().unwrap().is_ok() && theirs.try_recv().unwrap().is_ok());
    writes.abort();
}

#[tokio::test]
async fn nothing_else_is_written_before_what_is_pending() {
    let mut lab = Lab::new();
    let writes = tokio::spawn(lab.log.clone().write_later(ME));
    tokio::task::yield_now().await;
    let leader_id = LeaderId { term: 2, node_id: 8 };
    let mut told = lab.append(ME).await;
    lab.log.save_vote(&Vote { leader_id, committed: false }).await.unwrap();
    assert!(told.try_recv().unwrap().is_ok(), "a vote is behind it");
    let (mut first, mut second) = (lab.append(ME).await, lab.append(ME).await);
    lab.log.truncate_after(Some(LogId { leader_id, index: 1 })).await.unwrap();
    assert!(first.try_recv().unwrap().is_ok() && second.try_recv().unwrap().is_ok());
    is_read(&mut lab.log, 2).await;
    assert_eq!(lab.on_disk(), 2);
    writes.abort();
}

#[tokio::test]
async fn alone_each_append_is_durable_when_it_returns() {
    let mut lab = Lab::new();
    for count in 1..=3 {
        let mut told = lab.append(ME).await;
        assert!(told.try_recv().unwrap().is_ok());
        assert_eq!(lab.on_disk(), count);
    }
}
