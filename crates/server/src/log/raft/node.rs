//! One node: opened from its directory, recovered, and then asked to commit batches.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{Answer, Applied, Command, Query, Settings, Table};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{RPCError, Unreachable};
use openraft::network::RPCOption;
use openraft::network::v2::RaftNetworkV2;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, OptionalSend, RaftNetworkFactory, SnapshotPolicy};
use parking_lot::Mutex;

use super::bytes;
use super::identity::Identity;
use super::machine::{Handed, Machine};
use super::storage::Log;
use super::types::{Changes, LogId, Raft, Source, Types};
use crate::config::LogSizes;
use crate::log::store::{Options, Store, StoreError};

/// The number of a node that is alone, and of the first one of a cluster.
pub(super) const SELF: u64 = 1;

/// Why a log could not be opened, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The log's files.
    #[error("{0}")]
    Store(String),
    /// The operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The log says something that this version does not understand.
    #[error("{0}; use the version that wrote it, or a newer one")]
    Unreadable(String),
    /// It has locks of its own, which are not those of the cluster.
    #[error(
        "{} has locks of its own, so it cannot join another cluster: give an empty directory, or start it \
         without --join", .0.display()
    )]
    OwnData(PathBuf),
    /// It is a member already, and not of the one that it was told to join.
    #[error(
        "{} is of a node of another cluster than the one at {}, perhaps of one of its own because it was \
         started without --join before: give an empty directory, or the members of its own cluster", .0.display(), .1
    )]
    AnotherCluster(PathBuf, String),
    /// It cannot join anybody.
    #[error("there is no cluster to join: {0}")]
    NobodyToJoin(String),
    /// Something that fills a data directory has not ended.
    #[error(
        "the data directory {} is not whole: `keylatch cluster restore` or `init` was broken off. Run it again",
        .0.display()
    )]
    Unfinished(PathBuf),
    /// The cluster goes on without it.
    #[error(
        "this node was taken out of its cluster (`keylatch cluster remove`), and does not come back by itself: \
         to have it join again as a new member, empty its data directory"
    )]
    Removed,
    /// It is not alone.
    #[error(
        "this data directory is one of {0} members of a cluster: start it with --peer, or remove the other \
         members first"
    )]
    NotAlone(usize),
    /// Raft cannot go on; the cause is in the text.
    #[error(
        "the log has failed ({0}); nothing that was not acknowledged is promised. Restart the server"
    )]
    Failed(String),
}

pub(crate) struct Node {
    raft: Raft,
    log: Log,
    table: Arc<Mutex<Table>>,
    handed: Handed,
    /// A snapshot is made when the log has grown by this much since the last one.
    snapshot_bytes: u64,
    /// How much had gone into the log when the last snapshot was asked for.
    snapshot_at: u64,
}

impl Node {
    /// Opens a directory and brings the table to where it was.
    pub(crate) async fn open(
        dir: &Path,
        sizes: LogSizes,
        settings: &Settings,
        token: u64,
        hash_seed: u64,
    ) -> Result<Node, NodeError> {
        let snapshot_bytes = sizes.snapshot_bytes;
        let me = Identity::read(dir)?.map_or(SELF, |identity| identity.node);
        let Files { log, machine, is_new: new } = open_files(dir, sizes, settings, hash_seed)?;
        let (table, handed) = (machine.table(), machine.handed());
        let failed = |error: &dyn std::fmt::Display| NodeError::Failed(error.to_string());
        let config = Config {
            cluster_name: "keylatch".into(),
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: 0,
            ..Config::default()
        };
        let config = Arc::new(config.validate().map_err(|error| failed(&error))?);
        let raft = Raft::new(me, config, Alone, log.clone(), machine).await;
        let raft = raft.map_err(|error| failed(&error))?;
        // Whoever waits is only told that it ended.
        let metrics = raft.metrics();
        let failed = |error: &dyn std::fmt::Display| match &metrics.borrow_watched().running_state {
            Err(cause) => NodeError::Failed(cause.to_string()),
            Ok(()) => failed(error),
        };
        if new {
            let members = BTreeMap::from([(me, BasicNode::default())]);
            raft.initialize(members).await.map_err(|error| failed(&error))?;
        }
        let voters =
            raft.with_raft_state(|state| state.membership_state.effective().voter_ids().count());
        let voters = voters.await.map_err(|error| failed(&error))?;
        if voters > 1 {
            return Err(NodeError::NotAlone(voters));
        }
        let minute = Some(Duration::from_secs(60));
        raft.wait_for_recovery(minute).await.map_err(|error| failed(&error))?;
        let mut node = Node { raft, log, table, handed, snapshot_bytes, snapshot_at: 0 };
        // Not only if the log is new: a start that was broken off leaves a log without them.
        let stats = node.table.lock().query(0, &Query::Stats);
        let is_new = matches!(stats, Answer::Stats(stats) if stats.token == 0);
        // Nor are bounds those of the log: what is configured now counts from now on.
        let is_other = node.table.lock().settings() != settings;
        if is_new || is_other {
            let now = node.table.lock().now();
            let mut commands = vec![Command::Settings(Box::new(settings.clone()))];
            commands.extend(is_new.then_some(Command::TokenFloor(token)));
            let first = node.commit(now, &mut commands).await?;
            first.ok_or_else(|| NodeError::Store(format!("no room in {}", dir.display())))?;
        }
        Ok(node)
    }

    pub(crate) fn table(&self) -> Arc<Mutex<Table>> {
        Arc::clone(&self.table)
    }

    /// Makes the commands durable and applies them. `None` if there is no room for them on the disk:
    /// then nothing has happened, and the commands are still there; else they are gone.
    pub(crate) async fn commit(
        &mut self,
        at: u64,
        commands: &mut Vec<Command>,
    ) -> Result<Option<Vec<Applied>>, NodeError> {
        let commands_bytes = bytes::encode_commands(commands);
        let changes = Changes { at, source: Source::Leader, commands: commands_bytes };
        if !self.log.make_room(changes.commands.len() as u64)? {
            return Ok(None);
        }
        self.handed.leave(&changes.commands, std::mem::take(commands));
        let written = self.raft.client_write(changes).await;
        let written = written.map_err(|error| NodeError::Failed(error.to_string()))?;
        if self.log.appended() > self.snapshot_at + self.snapshot_bytes {
            self.snapshot().await?;
        }
        Ok(Some(written.data))
    }

    /// Whether the disk is full, so that what is left should go to releases and the like.
    pub(crate) fn is_full(&self) -> bool {
        self.log.is_full()
    }

    /// To be called once in a while: tries again what a full disk has refused.
    pub(crate) fn tend(&self) {
        self.log.prepare();
    }

    /// Begins a snapshot, which shortens the log when it is written.
    pub(crate) async fn snapshot(&mut self) -> Result<(), NodeError> {
        self.snapshot_at = self.log.appended();
        let triggered = self.raft.trigger().snapshot().await;
        triggered.map_err(|error| NodeError::Failed(error.to_string()))
    }

    pub(crate) async fn close(self) -> Result<(), NodeError> {
        self.raft.shutdown().await.map_err(|error| NodeError::Failed(error.to_string()))
    }
}

/// What is in a data directory.
pub(super) struct Files {
    pub(super) log: Log,
    pub(super) machine: Machine,
    pub(super) is_new: bool,
}

/// Opens the files of a data directory, and reads them.
pub(super) fn open_files(
    dir: &Path,
    sizes: LogSizes,
    settings: &Settings,
    hash_seed: u64,
) -> Result<Files, NodeError> {
    super::found::check(dir)?;
    let LogSizes { segment_bytes, reserve_bytes, .. } = sizes;
    let options = Options { segment_bytes, reserve_bytes };
    let (store, recovered) = Store::open(&dir.join("log"), options)
        .map_err(|error: StoreError| NodeError::Store(error.to_string()))?;
    if let Some(cut) = &recovered.cut {
        tracing::warn!(%cut, "the end of the log was torn, as after a power failure, and was cut off");
    }
    let (entries, purged) = (recovered.entries.len(), recovered.purged);
    tracing::debug!(entries, purged, "the log has been read");
    let unreadable = |error: bytes::BadBytes| NodeError::Unreadable(error.to_string());
    let entries = recovered.entries.iter().map(|(_, bytes)| bytes::decode_entry(bytes));
    let entries = entries.collect::<Result<VecDeque<_>, _>>().map_err(unreadable)?;
    let decode = |bytes: &[u8]| (!bytes.is_empty()).then(|| bytes.to_vec());
    let vote = decode(&recovered.meta).map(|bytes| bytes::decode_vote(&bytes));
    let vote = vote.transpose().map_err(unreadable)?;
    let purged = decode(&recovered.purged_meta).map(|bytes| bytes::decode_log_id(&bytes));
    let purged = purged.transpose().map_err(unreadable)?;
    let log = Log::new(store, entries, purged, vote);
    let machine = Machine::open(dir, settings, hash_seed)?;
    check_together(dir, &log, purged.as_ref(), machine.last().as_ref())?;
    let is_new = log.is_empty() && machine.last().is_none();
    Ok(Files { log, machine, is_new })
}

/// A snapshot and a log that begins behind it are nothing without each other: with one of them gone
/// the table would have fewer locks than were granted. A log that has nothing but a vote is that of a member which
/// was sent a snapshot and ended before it noted that.
fn check_together(
    dir: &Path,
    log: &Log,
    purged: Option<&LogId>,
    applied: Option<&LogId>,
) -> Result<(), NodeError> {
    let index = |log_id: Option<&LogId>| log_id.map(|log_id| log_id.index);
    let (gone, other, why) = if index(purged) > index(applied) {
        ("snapshot", "log", "older than the log, which begins behind it")
    } else if log.is_empty() && !log.has_vote() && applied.is_some() {
        ("log", "snapshot", "empty, though there is a snapshot")
    } else {
        return Ok(());
    };
    Err(NodeError::Store(format!(
        "{} is missing or {why}: granted locks would be forgotten. Restore it together with {} from a \
         backup, or start with an empty data directory if nothing in it matters",
        dir.join(gone).display(),
        dir.join(other).display(),
    )))
}

/// No network: there is nobody to talk to.
struct Alone;

impl RaftNetworkFactory<Types> for Alone {
    type Network = Alone;

    async fn new_client(&mut self, _: u64, _: &BasicNode) -> Alone {
        Alone
    }
}

fn nobody() -> Unreachable<Types> {
    Unreachable::new(&io::Error::other("this node is alone"))
}

impl RaftNetworkV2<Types> for Alone {
    type SnapshotData = File;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(nobody()))
    }

    async fn vote(
        &mut self,
        _: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(RPCError::Unreachable(nobody()))
    }

    async fn full_snapshot(
        &mut self,
        _: super::types::Vote,
        _: openraft::alias::SnapshotOf<Types, File>,
        _: impl Future<Output = openraft::errors::ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, openraft::errors::StreamingError<Types>> {
        Err(openraft::errors::StreamingError::Unreachable(nobody()))
    }
}

#[cfg(test)]
mod tests;
