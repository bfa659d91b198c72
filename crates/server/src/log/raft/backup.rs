//! Backups: a snapshot in a file of its own, which says of which cluster it is and when it was made. It is
//! made of a member that runs (`visit`), or of the data directory of one that does not. `docs/log-format.md` has
//! the form.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use keylatch_table::{Answer, Query, Settings, Table};
use rand::RngCore;

use super::bytes::Reader;
use super::identity::Identity;
use super::node::{Files, open_files};
use super::snapshot;
use super::types::LogId;
use crate::clock::wall;
use crate::cluster::{Backup, BackupError};
use crate::config::LogSizes;

const MAGIC: &[u8; 8] = b"KLBACK01";
/// Magic and checksum of the head; cluster, node, time and length.
const HEAD_BYTES: usize = 12 + 16 + 8 + 8 + 8;

/// What a backup says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// 0 of a server that was alone.
    pub(crate) cluster: u128,
    pub(crate) node: u64,
    pub(crate) made_ms: u64,
    /// Of the snapshot behind this.
    pub(crate) length: u64,
}

impl Head {
    pub(crate) fn new(cluster: u128, node: u64, length: u64) -> Head {
        Head { cluster, node, made_ms: wall().as_millis() as u64, length }
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut body = self.cluster.to_le_bytes().to_vec();
        for number in [self.node, self.made_ms, self.length] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        [MAGIC.as_slice(), &crc32fast::hash(&body).to_le_bytes(), &body].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Head, &'static str> {
        let rest = bytes.strip_prefix(MAGIC).ok_or("its beginning")?;
        let (sum, body) = rest.split_at_checked(4).ok_or("its length")?;
        if sum != crc32fast::hash(body).to_le_bytes() {
            return Err("the checksum of its head");
        }
        let mut from = Reader(body);
        let mut read = || {
            let (cluster, node) = (from.u128()?, from.u64()?);
            Ok(Head { cluster, node, made_ms: from.u64()?, length: from.u64()? })
        };
        read().map_err(|_: super::bytes::BadBytes| "its length")
    }
}

/// A backup that is being written, under another name until it is whole.
pub(crate) struct Writing {
    file: File,
    path: PathBuf,
    new: PathBuf,
}

impl Writing {
    pub(crate) fn begin(path: &Path, head: Head) -> Result<Writing, BackupError> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let failed = BackupError::writing(path);
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        // Ids are in it, and who knows an id may release its lock.
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&new).map_err(&failed)?;
        file.write_all(&head.to_bytes()).map_err(&failed)?;
        Ok(Writing { file, path: path.into(), new })
    }

    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), BackupError> {
        self.file.write_all(piece).map_err(BackupError::writing(&self.path))
    }

    /// Reads it again, so that what it says is what can be restored, and makes it the one that counts.
    pub(crate) fn finish(self) -> Result<Backup, BackupError> {
        let failed = BackupError::writing(&self.path);
        self.file.sync_all().map_err(&failed)?;
        let (backup, _) = read(&self.new)?;
        std::fs::rename(&self.new, &self.path).map_err(&failed)?;
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        File::open(parent).and_then(|dir| dir.sync_all()).map_err(&failed)?;
        Ok(backup)
    }
}

/// What is half written is of no use.
impl Drop for Writing {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.new));
    }
}

/// Everything that is in a backup, checked.
pub(crate) fn read(path: &Path) -> Result<(Backup, Table), BackupError> {
    let bytes = std::fs::read(path).map_err(BackupError::reading(path))?;
    let damaged = |what| BackupError::Damaged { path: path.into(), what };
    if !bytes.starts_with(MAGIC) {
        return Err(BackupError::NotABackup(path.into()));
    }
    let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or(damaged("its length"))?;
    let head = Head::from_bytes(head).map_err(damaged)?;
    if head.length != body.len() as u64 {
        return Err(damaged("its length"));
    }
    let hash_seed = rand::rng().next_u64();
    let (meta, _, table) = snapshot::from_bytes(body, hash_seed).map_err(damaged)?;
    let Answer::Stats(stats) = table.query(0, &Query::Stats) else {
        unreachable!("statistics were asked for")
    };
    let last = meta.last_log_id.unwrap_or(NOTHING);
    let Head { cluster, node, made_ms, .. } = head;
    let (term, index) = (last.leader_id.term, last.index);
    let backup = Backup {
        cluster,
        node,
        made_ms,
        term,
        index,
        bytes: bytes.len() as u64,
        token: stats.token,
        held: stats.held,
        waiting: stats.waiting,
        tasks: stats.tasks,
    };
    Ok((backup, table))
}

/// The entry in front of all others.
pub(super) const NOTHING: LogId =
    LogId { leader_id: openraft::impls::leader_id_adv::LeaderId { term: 0, node_id: 0 }, index: 0 };

/// A backup of a data directory that nobody uses: its snapshot, and all entries of its log. Some of those may
/// not have been acknowledged; none that its node has acknowledged is missing.
pub(crate) fn of_data(dir: &Path, path: &Path) -> Result<Backup, BackupError> {
    // To open a log that is not there would make one.
    if !dir.join("log").is_dir() {
        return Err(BackupError::NoData(dir.into()));
    }
    let reading = |error| BackupError::Data { dir: dir.into(), error };
    let identity = Identity::read(dir).map_err(BackupError::reading(dir))?;
    let hash_seed = rand::rng().next_u64();
    // Nothing is written there that needs room.
    let sizes = LogSizes { reserve_bytes: 0, ..LogSizes::default() };
    let Files { log, machine, is_new } =
        open_files(dir, sizes, &Settings::default(), hash_seed).map_err(reading)?;
    if is_new {
        return Err(BackupError::NoData(dir.into()));
    }
    let applied = machine.last().map(|log_id| log_id.index);
    for entry in log.entries() {
        if applied.is_none_or(|applied| entry.log_id.index > applied) {
            machine.apply_entry(&entry).map_err(|error| reading(error.into()))?;
        }
    }
    let (_, bytes) = machine.as_snapshot();
    let (cluster, node) = identity.map_or((0, super::node::SELF), |it| (it.cluster, it.node));
    let mut writing = Writing::begin(path, Head::new(cluster, node, bytes.len() as u64))?;
    writing.add(&bytes)?;
    writing.finish()
}

impl BackupError {
    fn writing(path: &Path) -> impl Fn(io::Error) -> BackupError {
        move |error| BackupError::Io { doing: "write", path: path.into(), error }
    }

    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> BackupError {
        move |error| BackupError::Io { doing: "read", path: path.into(), error }
    }
}
