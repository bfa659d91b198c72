//! Makes the data directory of a new cluster of one: an empty one, or one with the locks of a backup. It has a
//! new id, so members of the cluster that the backup is of are strangers to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use keylatch_table::{Command, Detach, Reply, Settings, Table};
use openraft::BasicNode;
use openraft::impls::leader_id_adv::LeaderId;
use rand::RngCore;

use super::backup;
use super::bytes;
use super::identity::Identity;
use super::origins::Origins;
use super::snapshot::{self, Meta};
use super::types::{LogId, Membership, StoredMembership, Vote};
use crate::clock::wall;
use crate::cluster::{Backup, BackupError, Founded};
use crate::log::store::{Options, Store};

/// It is there while the others are being written. A server does not start with it.
const UNFINISHED: &str = "unfinished";
/// For a clock that is behind the last token of a backup, and so wrong: tokens begin so far behind that one, because
/// the cluster may have given others since. It is what a hundred thousand grants a second take eight days for.
const TOKENS: u64 = 1 << 36;
/// How long whoever waited has to come back, as after any restart.
const GRACE_MS: u64 = 10_000;

/// A new cluster without locks.
pub(crate) fn init(dir: &Path) -> Result<Founded, BackupError> {
    let table = Table::new(Settings::default(), microseconds(), rand::rng().next_u64());
    found(dir, &table, backup::NOTHING)
}

/// A new cluster with the locks and tasks of a backup.
pub(crate) fn restore(file: &Path, dir: &Path) -> Result<(Backup, Founded), BackupError> {
    let (backup, mut table) = backup::read(file)?;
    let now = table.now();
    let floor = first_token(backup.token, microseconds());
    for command in [
        Command::TokenFloor(floor),
        // None of their connections is there.
        Command::Detach(Detach { ids: None, grace_ms: GRACE_MS }),
    ] {
        if let Reply::Error(error) = table.apply(now, command).reply {
            return Err(BackupError::Refused(error.to_string()));
        }
    }
    let leader_id = LeaderId { term: backup.term, node_id: 0 };
    let founded = found(dir, &table, LogId { leader_id, index: backup.index })?;
    Ok((backup, founded))
}

/// Nobody gives a million tokens a second, so none is as large as the time in microseconds when it is given. With that
/// as the first one they grow from one restore to the next, also of one backup twice.
fn first_token(last: u64, microseconds: u64) -> u64 {
    if microseconds > last { microseconds } else { last.saturating_add(TOKENS) }
}

fn microseconds() -> u64 {
    wall().as_micros() as u64
}

fn found(dir: &Path, table: &Table, last: LogId) -> Result<Founded, BackupError> {
    let writing = |error| BackupError::Io { doing: "write to", path: dir.into(), error };
    make_empty(dir)?;
    let marker = File::create(dir.join(UNFINISHED)).map_err(writing)?;
    marker.sync_all().and_then(|()| sync(dir)).map_err(writing)?;
    let identity = Identity::founder().begin(dir).map_err(writing)?;
    let log = Options { segment_bytes: 1 << 16, reserve_bytes: 0 };
    let (mut store, _) = Store::open(&dir.join("log"), log)
        .map_err(|error| BackupError::Refused(error.to_string()))?;
    // Behind every vote that the last entry can have had.
    let leader_id = LeaderId { term: last.leader_id.term + 1, node_id: identity.node };
    let vote = Vote { leader_id, committed: false };
    store.save_meta(&bytes::encode_vote(&vote)).map_err(writing)?;
    store.purge(last.index + 1, &bytes::encode_log_id(&last)).map_err(writing)?;
    drop(store);
    // Where it is found, it says when it starts.
    let nodes = BTreeMap::from([(identity.node, BasicNode::default())]);
    let members = Membership::new(vec![BTreeSet::from([identity.node])], nodes)
        .expect("the one voter is among the nodes");
    let last_membership = StoredMembership::new(Some(last), members);
    let meta = Meta { last_log_id: Some(last), last_membership };
    let new = dir.join(snapshot::OWN);
    let mut file = snapshot::Writing::begin(new, &meta, &Origins::default()).map_err(writing)?;
    file.add(&table.snapshot()).and_then(|()| file.finish(dir)).map_err(writing)?;
    std::fs::remove_file(dir.join(UNFINISHED)).and_then(|()| sync(dir)).map_err(writing)?;
    let token = match table.query(0, &keylatch_table::Query::Stats) {
        keylatch_table::Answer::Stats(stats) => stats.token,
        other => unreachable!("statistics were asked for: {other:?}"),
    };
    Ok(Founded { cluster: identity.cluster, node: identity.node, token })
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes the directory, or sees to it that there is nothing in it. What an earlier try has left is removed.
fn make_empty(dir: &Path) -> Result<(), BackupError> {
    let writing = |error| BackupError::Io { doing: "write to", path: dir.into(), error };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(writing)?;
    if dir.join(UNFINISHED).exists() {
        for name in ["member", "member.new", "snapshot", "snapshot.new"] {
            match std::fs::remove_file(dir.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(writing(error));
                }
                _ => {}
            }
        }
        match std::fs::remove_dir_all(dir.join("log")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(writing(error)),
            _ => {}
        }
    }
    for entry in std::fs::read_dir(dir).map_err(BackupError::reading(dir))? {
        let name = entry.map_err(BackupError::reading(dir))?.file_name();
        // A disk of its own has the second one.
        if name != UNFINISHED && name != "lost+found" {
            return Err(BackupError::NotEmpty(dir.into()));
        }
    }
    Ok(())
}

/// Whether a data directory is whole, as far as that was made here.
pub(super) fn check(dir: &Path) -> Result<(), super::NodeError> {
    match dir.join(UNFINISHED).exists() {
        true => Err(super::NodeError::Unfinished(dir.into())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_grow_from_one_restore_to_the_next() {
        let (hour, last) = (3_600_000_000, 1_795_000_000_000_000);
        // Twice of one backup; the first one has given some meanwhile.
        let one = first_token(last, last + hour);
        assert!(one > last && first_token(last, last + 2 * hour) > one + hour / 2);
        // Of a backup of what was restored.
        assert!(first_token(one + 1_000, last + 2 * hour) > one + 1_000);
        // By a clock that is wrong.
        assert_eq!(first_token(last, last - hour), last + TOKENS);
    }
}
