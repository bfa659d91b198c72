//! The table as Raft's state machine.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use keylatch_table::{Applied, Command, Progress, Settings, SnapshotWriter, Table};
use openraft::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::bytes;
use super::snapshot::{self, Meta};
use super::types::{LogId, StoredMembership, Types};
use crate::log::store::is_full;

#[derive(Clone)]
pub(crate) struct Machine {
    table: Arc<Mutex<Table>>,
    state: Arc<Mutex<State>>,
    handed: Handed,
    dir: PathBuf,
    hash_seed: u64,
}

/// The commands whose bytes are on their way through the log. Whoever wrote the bytes leaves them
/// here, so that they need not be read again when they come out; those of a restart, or of another
/// node, are read.
#[derive(Clone, Default)]
pub(crate) struct Handed(Arc<Mutex<Option<Commands>>>);

/// Commands, and the bytes that they are in the log.
type Commands = (Arc<[u8]>, Vec<Command>);

impl Handed {
    pub(crate) fn leave(&self, bytes: &Arc<[u8]>, commands: Vec<Command>) {
        *self.0.lock() = Some((Arc::clone(bytes), commands));
    }

    /// The commands of these very bytes, if they are here. They are kept alive by what is left
    /// here, so no others can lie at the same place.
    fn take(&self, bytes: &Arc<[u8]>) -> Option<Vec<Command>> {
        self.0.lock().take_if(|(of, _)| Arc::ptr_eq(of, bytes)).map(|(_, commands)| commands)
    }
}

#[derive(Default)]
struct State {
    last: Option<LogId>,
    membership: StoredMembership,
}

impl Machine {
    /// The state of the last snapshot, or an empty table.
    pub(crate) fn open(dir: &Path, settings: &Settings, hash_seed: u64) -> io::Result<Machine> {
        snapshot::remove_new(dir);
        let (table, state) = match snapshot::open(dir)? {
            Some(mut file) => {
                let read = snapshot::read(&mut file, hash_seed);
                let (meta, table) = read.map_err(|error| {
                    let path = dir.join("snapshot");
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
                (table, State::from(meta))
            }
            None => (Table::new(settings.clone(), 0, hash_seed), State::default()),
        };
        Ok(Machine {
            table: Arc::new(Mutex::new(table)),
            state: Arc::new(Mutex::new(state)),
            handed: Handed::default(),
            dir: dir.into(),
            hash_seed,
        })
    }

    pub(crate) fn table(&self) -> Arc<Mutex<Table>> {
        Arc::clone(&self.table)
    }

    /// Where commands are left for it.
    pub(crate) fn handed(&self) -> Handed {
        self.handed.clone()
    }

    /// The last entry that has been applied.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.state.lock().last
    }

    fn apply_changes(&self, changes: &super::types::Changes) -> io::Result<Vec<Applied>> {
        let read = || bytes::decode_commands(&changes.commands).map_err(io::Error::other);
        let commands = match self.handed.take(&changes.commands) {
            None => read()?,
            Some(commands) => {
                debug_assert_eq!(read()?, commands, "what comes out is what went in");
                commands
            }
        };
        let mut table = self.table.lock();
        Ok(commands.into_iter().map(|command| table.apply(changes.at, command)).collect())
    }
}

impl From<Meta> for State {
    fn from(meta: Meta) -> State {
        State { last: meta.last_log_id, membership: meta.last_membership }
    }
}

/// What is sent to the thread that writes the file.
enum Piece {
    Bytes(Vec<u8>),
    /// That was all. Without it the snapshot was given up.
    End,
}

/// Records that are written in one go, between requests: some 30 us.
const RECORDS: usize = 256;
/// Pieces that may wait for the disk.
const PIECES: usize = 64;
/// How long a snapshot waits for room on a full disk before it tries again.
const RETRY: Duration = Duration::from_secs(1);

impl RaftSnapshotBuilder<Types> for Machine {
    type SnapshotData = File;

    /// The table is written in pieces between requests, and the file on another thread.
    async fn build_snapshot(&mut self) -> Result<SnapshotOf<Types, File>, io::Error> {
        loop {
            match self.write_snapshot().await {
                Err(error) if is_full(&error) => {
                    tracing::warn!(%error, "no room for a snapshot; it will be tried again");
                    snapshot::remove_new(&self.dir);
                    tokio::time::sleep(RETRY).await;
                }
                other => return other,
            }
        }
    }
}

impl Machine {
    async fn write_snapshot(&self) -> io::Result<SnapshotOf<Types, File>> {
        let (meta, mut writer) = {
            let state = self.state.lock();
            let meta = Meta { last_log_id: state.last, last_membership: state.membership.clone() };
            (meta, SnapshotWriter::begin(&mut self.table.lock()))
        };
        let (pieces, mut to_write) = mpsc::channel(PIECES);
        let (dir, head) = (self.dir.clone(), meta.clone());
        let written = tokio::task::spawn_blocking(move || {
            let mut file = snapshot::Writing::begin(&dir, &head)?;
            while let Some(piece) = to_write.blocking_recv() {
                match piece {
                    Piece::Bytes(bytes) => file.add(&bytes)?,
                    Piece::End => return file.finish(&dir),
                }
            }
            Err(io::Error::other("the snapshot was given up"))
        });
        loop {
            let mut bytes = Vec::new();
            let progress = writer.write(&mut self.table.lock(), RECORDS, &mut bytes);
            if progress == Progress::Overtaken {
                return Err(io::Error::other("another state was installed meanwhile"));
            }
            // If nobody takes it, the file has failed, and says why below.
            let taken = pieces.send(Piece::Bytes(bytes)).await.is_ok();
            if progress == Progress::Done {
                drop(pieces.send(Piece::End).await);
            }
            if !taken || progress == Progress::Done {
                break;
            }
            tokio::task::yield_now().await;
        }
        let file = written.await.map_err(io::Error::other)??;
        Ok(Snapshot { meta, snapshot: file })
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = File;
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
            // Both together: a snapshot says up to where it goes.
            let mut state = self.state.lock();
            let applied = match &entry.payload {
                EntryPayload::Normal(changes) => self.apply_changes(changes)?,
                EntryPayload::Membership(membership) => {
                    let stored = StoredMembership::new(Some(entry.log_id), membership.clone());
                    state.membership = stored;
                    Vec::new()
                }
                EntryPayload::Blank => Vec::new(),
            };
            state.last = Some(entry.log_id);
            drop(state);
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
        mut snapshot: File,
    ) -> Result<(), io::Error> {
        let (_, table) = snapshot::read(&mut snapshot, self.hash_seed)?;
        snapshot.rewind()?;
        let mut file = snapshot::Writing::begin(&self.dir, meta)?;
        file.add(&table.snapshot())?;
        file.finish(&self.dir)?;
        *self.table.lock() = table;
        *self.state.lock() = State::from(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<Types, File>>, io::Error> {
        let Some(mut file) = snapshot::open(&self.dir)? else { return Ok(None) };
        let meta = snapshot::read_meta(&mut file)?;
        Ok(Some(Snapshot { meta, snapshot: file }))
    }
}
