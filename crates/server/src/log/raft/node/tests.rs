//! Which files of a data directory go together.

use openraft::vote::leader_id_adv::LeaderId;

use super::super::types::Vote;
use super::*;

/// The files of a member that has a snapshot, and a log in which nothing but this was noted.
fn open(noted: impl FnOnce(&mut Store)) -> Result<Files, NodeError> {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("data");
    super::super::found::init(&dir).unwrap();
    std::fs::remove_dir_all(dir.join("log")).unwrap();
    let (segment_bytes, reserve_bytes) = (65_536, 0);
    let options = Options { segment_bytes, reserve_bytes };
    noted(&mut Store::open(&dir.join("log"), options).unwrap().0);
    let sizes = LogSizes { segment_bytes, reserve_bytes, snapshot_bytes: 65_536 };
    open_files(&dir, sizes, &Settings::default(), 1)
}

#[test]
fn a_snapshot_that_was_sent_counts_though_the_log_does_not_say_so_yet() {
    let vote = Vote { leader_id: LeaderId { term: 3, node_id: 7 }, committed: true };
    let files = open(|store| store.save_meta(&bytes::encode_vote(&vote)).unwrap()).unwrap();
    assert!(files.log.is_empty() && files.machine.last().is_some());
    assert!(!files.is_new, "it has what was sent to it");
}

#[test]
fn a_snapshot_does_not_count_whose_log_is_gone() {
    let refused = open(|_| ()).err();
    assert!(matches!(refused, Some(NodeError::Store(why)) if why.contains("would be forgotten")));
}
