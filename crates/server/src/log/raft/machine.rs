//! The table as Raft's state machine, and its snapshots: one file, written beside the old one and
//! renamed over it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt};
use keylatch_table::{Applied, Settings, Table};
use openraft::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::Mutex;

use super::bytes;
use super::types::{LogId, StoredMembership, Types};

const MAGIC: &[u8; 8] = b"KLSNAP01";
const NAME: &str = "snapshot";

#[derive(Clone)]
pub(crate) struct Machine {
    table: Arc<Mutex<Table>>,
    state: Arc<Mutex<State>>,
    dir: PathBuf,
    hash_seed: u64,
}

#[derive(Default)]
struct State {
    last: Option<LogId>,
    membership: StoredMembership,
}

/// What a snapshot file has.
struct Found {
    table: Table,
    state: State,
}

impl Machine {
    /// The state of the last snapshot, or an empty table.
    pub(crate) fn open(dir: &Path, settings: &Settings, hash_seed: u64) -> io::Result<Machine> {
        let found = match std::fs::read(dir.join(NAME)) {
            Ok(bytes) => read_snapshot(&bytes, hash_seed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Found { table: Table::new(settings.clone(), 0, hash_seed), state: State::default() }
            }
            Err(error) => return Err(error),
        };
        Ok(Machine {
            table: Arc::new(Mutex::new(found.table)),
            state: Arc::new(Mutex::new(found.state)),
            dir: dir.into(),
            hash_seed,
        })
    }

    pub(crate) fn table(&self) -> Arc<Mutex<Table>> {
        Arc::clone(&self.table)
    }

    fn apply_changes(&self, changes: &super::types::Changes) -> io::Result<Vec<Applied>> {
        let commands = bytes::decode_commands(&changes.commands).map_err(io::Error::other)?;
        let mut table = self.table.lock();
        Ok(commands.into_iter().map(|command| table.apply(changes.at, command)).collect())
    }
}

fn damaged(what: &str) -> io::Error {
    let text = format!(
        "the snapshot is damaged ({what}): restore the data directory from a backup, or start with an \
         empty one if nothing in it matters"
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn read_snapshot(bytes: &[u8], hash_seed: u64) -> io::Result<Found> {
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("its beginning"))?;
    let (sum, body) = rest.split_at_checked(4).ok_or_else(|| damaged("its length"))?;
    if sum != crc32fast::hash(body).to_le_bytes() {
        return Err(damaged("its checksum"));
    }
    let head = bytes::decode_snapshot_head(body).map_err(io::Error::other)?;
    let (last, membership_at, membership, length) = head;
    let table = Table::restore(&body[length..], hash_seed).map_err(|_| damaged("the table"))?;
    let membership = StoredMembership::new(membership_at, membership);
    Ok(Found { table, state: State { last, membership } })
}

impl RaftSnapshotBuilder<Types> for Machine {
    type SnapshotData = Vec<u8>;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<Types, Vec<u8>>, io::Error> {
        let (meta, bytes) = {
            let state = self.state.lock();
            let membership = &state.membership;
            let mut body = bytes::encode_snapshot_head(
                state.last.as_ref(),
                membership.log_id().as_ref(),
                membership.membership(),
            );
            body.extend_from_slice(&self.table.lock().snapshot());
            let mut bytes = MAGIC.to_vec();
            bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
            bytes.append(&mut body);
            let meta = SnapshotMetaOf::<Types> {
                last_log_id: state.last,
                last_membership: state.membership.clone(),
            };
            (meta, bytes)
        };
        let dir = self.dir.clone();
        // Writing it takes a while; requests go on meanwhile.
        let write = tokio::task::spawn_blocking(move || write_snapshot(&dir, &bytes));
        write.await.map_err(io::Error::other)??;
        Ok(Snapshot { meta, snapshot: Vec::new() })
    }
}

fn write_snapshot(dir: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = dir.join("snapshot.new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, dir.join(NAME))?;
    File::open(dir)?.sync_all()
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Vec<u8>;
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let state = self.state.lock();
        Ok((state.last, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            let applied = match &entry.payload {
                EntryPayload::Normal(changes) => self.apply_changes(changes)?,
                EntryPayload::Membership(membership) => {
                    let stored = StoredMembership::new(Some(entry.log_id), membership.clone());
                    self.state.lock().membership = stored;
                    Vec::new()
                }
                EntryPayload::Blank => Vec::new(),
            };
            self.state.lock().last = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(applied);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Types>,
        snapshot: Vec<u8>,
    ) -> Result<(), io::Error> {
        let found = read_snapshot(&snapshot, self.hash_seed)?;
        write_snapshot(&self.dir, &snapshot)?;
        *self.table.lock() = found.table;
        *self.state.lock() =
            State { last: meta.last_log_id, membership: meta.last_membership.clone() };
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<Types, Vec<u8>>>, io::Error> {
        let bytes = match std::fs::read(self.dir.join(NAME)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = read_snapshot(&bytes, self.hash_seed)?;
        let meta = SnapshotMetaOf::<Types> {
            last_log_id: found.state.last,
            last_membership: found.state.membership,
        };
        Ok(Some(Snapshot { meta, snapshot: bytes }))
    }
}
