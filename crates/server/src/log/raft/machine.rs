//! The table as Raft's state machine.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use keylatch_table::{Applied, Command, Detach, Progress, Settings, SnapshotWriter, Table};
use openraft::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::bytes;
use super::desk::{Desk, Told};
use super::origins::{Arrival, Noted, Origins};
use super::snapshot::{self, Meta};
use super::types::{Changes, Entry, LogId, Source, StoredMembership, Types};
use crate::clock::Clock;
use crate::cluster::Fingerprint;
use crate::log::store::is_full;

#[derive(Clone)]
pub(crate) struct Machine {
    table: Arc<Mutex<Table>>,
    state: Arc<Mutex<State>>,
    handed: Handed,
    dir: PathBuf,
    hash_seed: u64,
    /// The last state that another member has sent; held while a snapshot becomes the one that counts, so that an
    /// older one, of which the log is gone, never takes its place.
    sent: Arc<Mutex<Option<LogId>>>,
    /// Of a member of a cluster: where outcomes go.
    cluster: Option<Cluster>,
}

/// What a member of a cluster has besides.
#[derive(Clone)]
pub(crate) struct Cluster {
    /// Whose outcomes are answers.
    pub(crate) node: u64,
    pub(crate) incarnation: u64,
    pub(crate) desk: Arc<Desk>,
    /// Follows the times in the log, unless this node leads and stamps them.
    pub(crate) clock: Clock,
    pub(crate) leads: Arc<AtomicBool>,
}

/// How long the places of waiters are kept whose member is gone, until they come back by another one.
const GRACE_MS: u64 = 10_000;

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
    origins: Origins,
}

impl Machine {
    /// The state of the last snapshot, or an empty table.
    pub(crate) fn open(dir: &Path, settings: &Settings, hash_seed: u64) -> io::Result<Machine> {
        snapshot::remove_new(dir);
        let (table, state) = match snapshot::open(dir)? {
            Some(mut file) => {
                let read = snapshot::read(&mut file, hash_seed);
                let (meta, origins, table) = read.map_err(|error| {
                    let path = dir.join("snapshot");
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
                (table, State::new(meta, origins))
            }
            None => (Table::new(settings.clone(), 0, hash_seed), State::default()),
        };
        #[cfg(test)]
        super::sim::opened(state.last, || {
            (table.state_hash(), crc32fast::hash(&state.origins.to_bytes()))
        });
        Ok(Machine {
            table: Arc::new(Mutex::new(table)),
            state: Arc::new(Mutex::new(state)),
            handed: Handed::default(),
            dir: dir.into(),
            hash_seed,
            sent: Arc::default(),
            cluster: None,
        })
    }

    /// The same, of a member of a cluster.
    pub(crate) fn in_cluster(self, cluster: Cluster) -> Machine {
        Machine { cluster: Some(cluster), ..self }
    }

    /// The table, in short. Takes as long as a snapshot.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let state = self.state.lock();
        let hash = self.table.lock().state_hash();
        Fingerprint { applied: state.last.map_or(0, |log_id| log_id.index), hash }
    }

    /// The nodes where somebody waits for something.
    pub(crate) fn nodes_with_waiters(&self) -> BTreeSet<u64> {
        self.state.lock().origins.nodes()
    }

    /// Whether somebody waits for something at this node.
    pub(crate) fn waits_at(&self, node: u64) -> bool {
        self.state.lock().origins.waits_at(node)
    }

    /// Whether a node has ever changed anything.
    pub(crate) fn has_heard_of(&self, node: u64) -> bool {
        self.state.lock().origins.knows(node)
    }

    /// As far as the log is applied.
    pub(crate) fn is_member(&self, node: u64) -> bool {
        self.state.lock().membership.membership().get_node(&node).is_some()
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

    /// All of it, and up to which entry it goes.
    pub(crate) fn as_snapshot(&self) -> (Option<LogId>, Vec<u8>) {
        let state = self.state.lock();
        let meta = Meta { last_log_id: state.last, last_membership: state.membership.clone() };
        (state.last, snapshot::to_bytes(&meta, &state.origins, &self.table.lock()))
    }

    pub(crate) fn apply_entry(&self, entry: &Entry) -> io::Result<Vec<Applied>> {
        // Both together: a snapshot says up to where it goes.
        let mut state = self.state.lock();
        let applied = match &entry.payload {
            EntryPayload::Normal(changes) => self.apply_changes(changes, &mut state)?,
            EntryPayload::Membership(membership) => {
                state.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                Vec::new()
            }
            EntryPayload::Blank => Vec::new(),
        };
        state.last = Some(entry.log_id);
        #[cfg(test)]
        super::sim::applied(entry, || self.digest(&state));
        Ok(applied)
    }

    fn commands_of(&self, changes: &Changes) -> io::Result<Vec<Command>> {
        let read = || bytes::decode_commands(&changes.commands).map_err(io::Error::other);
        match self.handed.take(&changes.commands) {
            None => read(),
            Some(commands) => {
                debug_assert_eq!(read()?, commands, "what comes out is what went in");
                Ok(commands)
            }
        }
    }

    fn apply_changes(&self, changes: &Changes, state: &mut State) -> io::Result<Vec<Applied>> {
        let commands = self.commands_of(changes)?;
        let mut table = self.table.lock();
        let Some(cluster) = &self.cluster else {
            if state.origins.is_empty() && changes.source == Source::Leader {
                table.go_ahead(&commands);
                return Ok(commands.into_iter().map(|one| table.apply(changes.at, one)).collect());
            }
            // What is left of a cluster is replayed as it was.
            let (_, applied) = apply_of_cluster(changes, commands, &mut table, &mut state.origins);
            return Ok(applied.unwrap_or_default());
        };
        let (before, applied) = apply_of_cluster(changes, commands, &mut table, &mut state.origins);
        drop(table);
        if !cluster.leads.load(Ordering::Relaxed) {
            cluster.clock.set(changes.at);
        }
        if let Some(before) = before {
            cluster.desk.tell(Told::Events(vec![before]));
        }
        match (changes.source, applied) {
            (_, None) => {}
            (Source::Member(stamp), Some(applied))
                if (stamp.node, stamp.incarnation) == (cluster.node, cluster.incarnation) =>
            {
                cluster.desk.tell(Told::Done { number: stamp.number, applied });
            }
            (Source::Gone(node), Some(_)) if node == cluster.node => {
                cluster.desk.tell(Told::Detached);
            }
            (_, Some(applied)) => {
                if applied.iter().any(|applied| !applied.events.is_empty()) {
                    cluster.desk.tell(Told::Events(applied));
                }
            }
        }
        // Outcomes have gone where they are waited for.
        Ok(Vec::new())
    }
}

/// What became of those who waited at a member whose life has ended, and of the commands; `None` if
/// they had been applied before.
fn apply_of_cluster(
    changes: &Changes,
    commands: Vec<Command>,
    table: &mut Table,
    origins: &mut Origins,
) -> (Option<Applied>, Option<Vec<Applied>>) {
    let (node, ended) = match changes.source {
        Source::Leader => (None, None),
        Source::Gone(node) => (None, Some(node)),
        Source::Member(stamp) => match origins.arrive(&stamp) {
            Arrival::Again => return (None, None),
            Arrival::Next => (Some(stamp.node), None),
            Arrival::NewLife => (Some(stamp.node), Some(stamp.node)),
        },
    };
    let ids = ended.map(|node| origins.leave(node)).filter(|ids| !ids.is_empty());
    let before = ids.map(|ids| {
        let command = Command::Detach(Detach { ids: Some(ids), grace_ms: GRACE_MS });
        let applied = table.apply(changes.at, command);
        origins.note(None, Noted::Nothing, &applied);
        applied
    });
    let apply = |command: Command| {
        let command = origins.without_returned(node, command);
        let noted = Noted::of(&command);
        let applied = table.apply(changes.at, command);
        origins.note(node, noted, &applied);
        applied
    };
    (before, Some(commands.into_iter().map(apply).collect()))
}

impl State {
    fn new(meta: Meta, origins: Origins) -> State {
        State { last: meta.last_log_id, membership: meta.last_membership, origins }
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
                // The leader has sent a newer state. An error would be the end of Raft here.
                Ok(None) => {}
                Ok(Some(snapshot)) => return Ok(snapshot),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Machine {
    /// `None` if another state was installed meanwhile.
    async fn write_snapshot(&self) -> io::Result<Option<SnapshotOf<Types, File>>> {
        #[cfg(test)]
        if super::sim::is_here() {
            return self.write_snapshot_here().await;
        }
        let (meta, origins, mut writer) = {
            let state = self.state.lock();
            let meta = Meta { last_log_id: state.last, last_membership: state.membership.clone() };
            (meta, state.origins.clone(), SnapshotWriter::begin(&mut self.table.lock()))
        };
        let (pieces, mut to_write) = mpsc::channel(PIECES);
        let (dir, head, sent) = (self.dir.clone(), meta.clone(), Arc::clone(&self.sent));
        let written = tokio::task::spawn_blocking(move || {
            let mut file = snapshot::Writing::begin(dir.join(snapshot::OWN), &head, &origins)?;
            while let Some(piece) = to_write.blocking_recv() {
                match piece {
                    Piece::Bytes(bytes) => file.add(&bytes)?,
                    Piece::End => return finish(file, &dir, &head, &sent),
                }
            }
            Err(io::Error::other("the snapshot was given up"))
        });
        loop {
            let mut bytes = Vec::new();
            let progress = writer.write(&mut self.table.lock(), RECORDS, &mut bytes);
            if progress == Progress::Overtaken {
                return Ok(None);
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
        Ok(file.map(|snapshot| Snapshot { meta, snapshot }))
    }
}

/// Makes a snapshot of the own table the one that counts; `None` if a newer one was sent meanwhile.
fn finish(
    file: snapshot::Writing,
    dir: &Path,
    meta: &Meta,
    sent: &Mutex<Option<LogId>>,
) -> io::Result<Option<File>> {
    let sent = sent.lock();
    if *sent > meta.last_log_id { Ok(None) } else { file.finish(dir).map(Some) }
}

#[cfg(test)]
impl Machine {
    /// The same without a thread, in smaller pieces.
    async fn write_snapshot_here(&self) -> io::Result<Option<SnapshotOf<Types, File>>> {
        let (meta, mut file, mut writer) = {
            let state = self.state.lock();
            let meta = Meta { last_log_id: state.last, last_membership: state.membership.clone() };
            let origins = match super::sim::forgets_origins() {
                true => Origins::default(),
                false => state.origins.clone(),
            };
            let own = self.dir.join(snapshot::OWN);
            let file = snapshot::Writing::begin(own, &meta, &origins)?;
            (meta, file, SnapshotWriter::begin(&mut self.table.lock()))
        };
        loop {
            let mut bytes = Vec::new();
            let progress = writer.write(&mut self.table.lock(), 2, &mut bytes);
            file.add(&bytes)?;
            match progress {
                Progress::Overtaken => return Ok(None),
                Progress::Done => {
                    let file = finish(file, &self.dir, &meta, &self.sent)?;
                    return Ok(file.map(|snapshot| Snapshot { meta, snapshot }));
                }
                Progress::More => super::sim::a_moment().await,
            }
        }
    }

    /// Everything that has to be the same everywhere, in short: the table, and who waits where.
    fn digest(&self, state: &State) -> (u64, u32) {
        (self.table.lock().state_hash(), crc32fast::hash(&state.origins.to_bytes()))
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
        let mut waits = true;
        while let Some((entry, responder)) = entries.try_next().await? {
            // Where nobody waits for the outcome the leader waits for what is said of the entries that
            // came along, so that goes first.
            if std::mem::take(&mut waits) && responder.is_none() {
                tokio::task::yield_now().await;
            }
            if let Some(cluster) = &self.cluster {
                cluster.desk.room().await;
            }
            let applied = self.apply_entry(&entry)?;
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
        let (_, origins, table) = snapshot::read(&mut snapshot, self.hash_seed)?;
        snapshot.rewind()?;
        let mut file = snapshot::Writing::begin(self.dir.join(snapshot::SENT), meta, &origins)?;
        file.add(&table.snapshot())?;
        {
            let mut sent = self.sent.lock();
            file.finish(&self.dir)?;
            *sent = meta.last_log_id;
        }
        let now = table.now();
        let mut state = self.state.lock();
        *self.table.lock() = table;
        if let Some(cluster) = &self.cluster {
            cluster.clock.set(now);
            let number = origins.last(cluster.node, cluster.incarnation);
            cluster.desk.tell(Told::Installed { number });
        }
        *state = State::new(meta.clone(), origins);
        #[cfg(test)]
        super::sim::installed(state.last, || self.digest(&state));
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<Types, File>>, io::Error> {
        let Some(mut file) = snapshot::open(&self.dir)? else { return Ok(None) };
        let meta = snapshot::read_meta(&mut file)?;
        Ok(Some(Snapshot { meta, snapshot: file }))
    }
}
