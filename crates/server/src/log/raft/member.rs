//! A member of a cluster: Raft, and what it does beside it. It shares a thread with the loop that serves connections,
//! so that a request hops to no other thread; the two meet at the desk.
//!
//! How members reach each other is not known here: a member is given a channel and a place where it is called.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use keylatch_table::{Settings, Table};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::{BasicNode, Config, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::NodeError;
use super::carry::Carry;
use super::desk::{Desk, Told, Wake};
use super::identity::Identity;
use super::join;
use super::lead::Lead;
use super::look::View;
use super::machine::Cluster;
use super::network::Network;
use super::node::{Files, open_files};
use super::outside::of_this_node;
use super::peers::Peers;
use super::service::Service;
use super::types::Raft;
use crate::clock::Clock;
use crate::config::LogSizes;
use crate::log::channel::{Channel, Serves};

#[cfg(test)]
mod tests;

/// What a member needs to start.
pub(crate) struct Start {
    pub(crate) dir: PathBuf,
    pub(crate) sizes: LogSizes,
    pub(crate) settings: Settings,
    pub(crate) hash_seed: u64,
    /// How others are called.
    pub(crate) channel: Arc<dyn Channel>,
    /// Where others call, and as what they know it.
    pub(crate) serves: Box<dyn Serves>,
    pub(crate) address: String,
    /// Members to ask, if this node is to join them.
    pub(crate) join: Vec<String>,
    /// Wakes the loop.
    pub(crate) wake: Wake,
}

/// A member that runs.
pub(crate) struct Member {
    pub(crate) desk: Arc<Desk>,
    lead: Arc<Lead>,
    orders: mpsc::UnboundedSender<Order>,
}

/// What a member does as long as it is there.
pub(crate) type Life = BoxFuture<'static, ()>;

enum Order {
    /// Somebody else shall lead; it is told when that is so, or cannot be.
    HandOver(oneshot::Sender<()>),
    Close,
}

/// How often the files of the log are looked after.
const TEND_EVERY: Duration = Duration::from_millis(200);
/// How soon what changes in Raft is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A heartbeat four times as often as the shortest time after which somebody else wants to lead. Raft grants nobody
/// else a vote until the last sign of the leader is as old as the longer of the two, and only then begins to count to
/// one of them by chance: so an election begins 550 to 700 ms after it, which is longer than a disk usually takes.
const HEARTBEAT_MS: u64 = 50;
const ELECTION_MS: (u64, u64) = (200, 350);
/// Entries that are kept behind a snapshot, so that who is a little behind needs no snapshot. They are in memory
/// too, and each may be a whole turn of requests.
#[cfg(not(test))]
const KEEP_ENTRIES: u64 = 500;
#[cfg(test)]
const KEEP_ENTRIES: u64 = 20;

impl Member {
    /// A member on the runtime that this is called on, and its life, which somebody has to await there. Its own state
    /// is there when this returns, a leader perhaps not yet. The life ends some time after the member is dropped. If it
    /// is dropped before, that is the end of everything the member does, as if it had been killed.
    pub(crate) async fn open(start: Start) -> Result<(Member, Life), NodeError> {
        let (orders, taken) = mpsc::unbounded_channel();
        let running = Running::open(start).await?;
        let (desk, lead) = (Arc::clone(&running.desk), Arc::clone(&running.lead));
        Ok((Member { desk, lead, orders }, Box::pin(running.run(taken))))
    }

    pub(crate) fn table(&self) -> Arc<Mutex<Table>> {
        Arc::clone(&self.lead.table)
    }

    /// Table time, as the log says it.
    pub(crate) fn clock(&self) -> Clock {
        self.lead.clock.clone()
    }

    /// How the cluster looks from here.
    pub(crate) fn view(&self) -> View {
        View(Arc::clone(&self.lead))
    }

    /// Lets another node lead, if this one does. What is returned is ready when that is done or given up.
    pub(crate) fn hand_over(&self) -> oneshot::Receiver<()> {
        let (done, wait) = oneshot::channel();
        drop(self.orders.send(Order::HandOver(done)));
        wait
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.desk.close();
        drop(self.orders.send(Order::Close));
    }
}

/// What is awaited.
struct Running {
    lead: Arc<Lead>,
    desk: Arc<Desk>,
    serving: BoxFuture<'static, ()>,
    join: Vec<String>,
    snapshot_bytes: u64,
}

impl Running {
    async fn open(start: Start) -> Result<Running, NodeError> {
        let Start { dir, sizes, settings, hash_seed, channel, serves, address, join, wake } = start;
        let desk = Arc::new(Desk::new(wake));
        let Files { log, machine, is_new } = open_files(&dir, sizes, &settings, hash_seed)?;
        let identity = match Identity::read(&dir)? {
            Some(identity) => identity,
            None if join.is_empty() => Identity::first(super::node::SELF),
            None if !is_new => return Err(NodeError::OwnData(dir)),
            None => Identity::new(join::find_cluster(&*channel, &join).await?),
        };
        if let Some(address) = join::another_cluster(&*channel, &join, identity.cluster).await {
            return Err(NodeError::AnotherCluster(dir, address.clone()));
        }
        let identity = identity.begin(&dir)?;
        let peers = Arc::new(Peers::new(identity, channel));
        let clock = Clock::new(machine.table().lock().now());
        let leads = Arc::new(AtomicBool::new(false));
        let machine = machine.in_cluster(Cluster {
            node: identity.node,
            incarnation: identity.incarnation,
            desk: Arc::clone(&desk),
            clock: clock.clone(),
            leads: Arc::clone(&leads),
        });
        let failed = |error: &dyn std::fmt::Display| NodeError::Failed(error.to_string());
        let config = Arc::new(config().validate().map_err(|error| failed(&error))?);
        let network = Network { peers: Arc::clone(&peers), machine: machine.clone() };
        let raft = Raft::new(identity.node, config, network, log.clone(), machine.clone()).await;
        let raft = raft.map_err(|error| failed(&error))?;
        if join.is_empty() && !raft.is_initialized().await.map_err(|error| failed(&error))? {
            let members = BTreeMap::from([(identity.node, BasicNode { addr: address.clone() })]);
            raft.initialize(members).await.map_err(|error| failed(&error))?;
        }
        let lead = Lead::new(raft, peers, log, machine, clock, leads, settings, address);
        let (lead, snapshot_bytes) = (Arc::new(lead), sizes.snapshot_bytes);
        let serving = serves.serve(Arc::new(Service::new(Arc::clone(&lead), dir)))?;
        Ok(Running { lead, desk, serving, join, snapshot_bytes })
    }

    async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let Running { lead, desk, serving, join, snapshot_bytes } = self;
        // They end when this does: the runtime may be somebody else's, and go on.
        let mut tasks = JoinSet::new();
        tasks.spawn(of_this_node(serving));
        tasks.spawn(of_this_node(lead.log.clone().write_later(lead.peers.identity.node)));
        tasks.spawn(of_this_node(Arc::clone(&lead).run()));
        tasks.spawn(of_this_node(Carry::new(Arc::clone(&lead), Arc::clone(&desk)).run()));
        tasks.spawn(of_this_node(tend(Arc::clone(&lead), snapshot_bytes)));
        tasks.spawn(of_this_node(join::announce(Arc::clone(&lead), join, Arc::clone(&desk))));
        tasks.spawn(of_this_node(watch(Arc::clone(&lead), desk)));
        while let Some(order) = orders.recv().await {
            match order {
                Order::HandOver(done) => {
                    lead.hand_over().await;
                    let _ = done.send(());
                }
                Order::Close => break,
            }
        }
        lead.ending.store(true, Ordering::Relaxed);
        if let Err(error) = lead.raft.shutdown().await {
            tracing::warn!(%error, "the log did not end well");
        }
    }
}

fn config() -> Config {
    Config {
        cluster_name: "keylatch".into(),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_MS.0,
        election_timeout_max: ELECTION_MS.1,
        enable_pre_vote: Some(true),
        // A table is in memory, and how much of the log was committed is not written down.
        enable_leader_restore: Some(false),
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: KEEP_ENTRIES,
        ..Config::default()
    }
}

/// Looks after the files of the log, and says who leads.
async fn tend(lead: Arc<Lead>, snapshot_bytes: u64) {
    let (mut snapshot_at, mut led_by, mut was_full) = (0, None, false);
    let mut is_followed = true;
    loop {
        let leader = lead.leader();
        if leader != led_by {
            if let Some(node) = leader {
                tracing::info!(node, "there is a leader");
            } else {
                tracing::warn!("no leader is heard: nothing is granted until there is one");
            }
            led_by = leader;
        }
        let followed = lead.is_followed();
        if followed != is_followed {
            if followed {
                tracing::info!("most members answer this node again");
            } else {
                tracing::warn!(
                    "this node leads, but most members do not answer: nothing is granted until they do"
                );
            }
            is_followed = followed;
        }
        lead.log.prepare();
        let appended = lead.log.appended();
        // On a full disk a shorter log may be all it takes.
        let is_full = lead.log.is_full();
        if appended > snapshot_at + snapshot_bytes || (is_full && !was_full) {
            snapshot_at = appended;
            if lead.raft.trigger().snapshot().await.is_err() {
                return;
            }
        }
        was_full = is_full;
        tokio::time::sleep(TEND_EVERY).await;
    }
}

/// Learns where the members are, and notices when Raft has ended.
async fn watch(lead: Arc<Lead>, desk: Arc<Desk>) {
    let mut metrics = lead.raft.metrics();
    loop {
        {
            let metrics = metrics.borrow_watched();
            if let Err(error) = &metrics.running_state {
                return desk.tell(Told::Failed(NodeError::Failed(error.to_string())));
            }
            lead.seen.note(&metrics);
            for (node, at) in metrics.membership_config.membership().nodes() {
                lead.peers.learn(*node, &at.addr);
            }
        }
        if metrics.changed().await.is_err() {
            let error = io::Error::other("Raft has ended");
            return desk.tell(Told::Failed(NodeError::Io(error)));
        }
        // Every entry changes something several times.
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
