//! What a leader does: it stamps time, appends what members ask for, lets time pass, notices members that
//! are gone, and lets others in and out.
//!
//! A node that was elected does none of this before an entry of its own term is applied: only then does it
//! know all that was acknowledged, and only then does it know what time it is in the log. It counts on from
//! there with its own clock, so the time without a leader is charged to nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use keylatch_table::{Answer, Command, Query, Settings, Table};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::raft::ReadPolicy;
use openraft::{BasicNode, ChangeMembers, Instant as _, ServerState};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::bytes;
use super::look::{ALIVE, Seen};
use super::machine::Machine;
use super::message::{self, Led, Request};
use super::outside::of_this_node;
use super::peers::Peers;
use super::storage::Log;
use super::types::{Changes, Raft, Source, Stamp, Types, Vote};
use crate::clock::{Clock, wall};

/// A member that has not answered for so long is gone, as far as those who wait there are concerned: they
/// are detached, and have a grace to come back by another member.
const GONE_AFTER: Duration = Duration::from_secs(3);
/// A leader that says nothing for so long, though it has a heartbeat, is none.
const SILENT: Duration = Duration::from_secs(1);
/// How old the last logged time may be while something is running.
const LOGGED_EVERY_MS: u64 = 1_000;
/// How long a leader waits for the one it has handed over to.
const HAND_OVER: Duration = Duration::from_secs(2);

pub(crate) struct Lead {
    pub(crate) raft: Raft,
    pub(crate) peers: Arc<Peers>,
    pub(crate) log: Log,
    pub(crate) machine: Machine,
    pub(crate) table: Arc<Mutex<Table>>,
    pub(crate) clock: Clock,
    /// Whether this node leads, and is ready to.
    pub(crate) leads: Arc<AtomicBool>,
    /// Since which vote: its clock counts on from what the log said then.
    since: Mutex<Option<Vote>>,
    /// When it last began to lead.
    pub(super) began: Mutex<Instant>,
    /// It has become ready.
    pub(crate) ready: Notify,
    /// What is configured here counts when this node leads.
    pub(crate) settings: Settings,
    /// Where the others find this node.
    pub(crate) address: String,
    /// Nodes that are being let in.
    joining: Mutex<BTreeSet<u64>>,
    /// Changes of the members that this node is at.
    changing: AtomicUsize,
    /// When a leader was last heard.
    heard: Mutex<Heard>,
    pub(crate) seen: Seen,
    /// Raft is about to end: nothing is asked of it any more.
    pub(crate) ending: AtomicBool,
}

/// When a leader was last heard, or how long one is waited for.
struct Heard {
    at: Instant,
    ever: bool,
}

/// Counted while it lasts, however it ends.
struct AtIt<'a>(&'a AtomicUsize);

impl AtIt<'_> {
    fn new(count: &AtomicUsize) -> AtIt<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        AtIt(count)
    }
}

impl Drop for AtIt<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lead {
    #[allow(clippy::too_many_arguments)] // it is made in one place
    pub(crate) fn new(
        raft: Raft,
        peers: Arc<Peers>,
        log: Log,
        machine: Machine,
        clock: Clock,
        leads: Arc<AtomicBool>,
        settings: Settings,
        address: String,
    ) -> Lead {
        Lead {
            table: machine.table(),
            joining: Mutex::default(),
            changing: AtomicUsize::new(0),
            ready: Notify::new(),
            heard: Mutex::new(Heard { at: Instant::now(), ever: false }),
            seen: Seen::default(),
            ending: AtomicBool::new(false),
            raft,
            peers,
            log,
            machine,
            clock,
            leads,
            since: Mutex::default(),
            began: Mutex::new(Instant::now()),
            settings,
            address,
        }
    }

    /// Not if it was elected again meanwhile: then the time that the log had under others is not counted yet.
    pub(crate) fn leads(&self) -> bool {
        let since = *self.since.lock();
        self.leads.load(Ordering::Relaxed) && since.is_some_and(|vote| self.is_elected(vote))
    }

    fn is_elected(&self, vote: Vote) -> bool {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.vote == vote && metrics.state == ServerState::Leader
    }

    fn me(&self) -> u64 {
        self.peers.identity.node
    }

    /// Who leads, unless nothing was heard of it for a while: Raft itself names the last one until there is
    /// another.
    pub(crate) fn leader(&self) -> Option<u64> {
        let leader = self.raft.server_metrics().borrow_watched().current_leader?;
        let alive = leader == self.me() || self.heard.lock().at.elapsed() < SILENT;
        alive.then_some(leader)
    }

    /// A leader has said something.
    pub(crate) fn hear(&self) {
        *self.heard.lock() = Heard { at: Instant::now(), ever: true };
    }

    /// How long ago a leader was heard, if one ever was.
    pub(crate) fn heard_ms(&self) -> Option<u64> {
        let heard = self.heard.lock();
        heard.ever.then(|| heard.at.elapsed().as_millis() as u64)
    }

    fn elsewhere(&self) -> Led {
        Led::NotLeader(self.leader().filter(|leader| *leader != self.me()))
    }

    /// Leads whenever this node is elected. Ends with Raft.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut metrics = self.raft.server_metrics();
        while !self.ending.load(Ordering::Relaxed) {
            let (vote, elected) = {
                let metrics = metrics.borrow_watched();
                (metrics.vote, metrics.state == ServerState::Leader)
            };
            if elected && self.begin(vote).await {
                tracing::info!(term = vote.leader_id.term, "this node leads");
                // What was begun as the leader may never hear of its end once there is another one.
                tokio::select! {
                    biased;
                    () = self.until_deposed(vote) => {}
                    () = self.tend() => {}
                }
                self.leads.store(false, Ordering::Relaxed);
                tracing::info!(term = vote.leader_id.term, "this node does not lead any more");
            } else if elected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            } else if metrics.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whether an entry of this leader's own term is applied, and with it everything before.
    async fn begin(&self, vote: Vote) -> bool {
        if self.raft.ensure_linearizable(ReadPolicy::ReadIndex).await.is_err() {
            return false;
        }
        if !self.is_elected(vote) {
            return false;
        }
        *self.since.lock() = Some(vote);
        *self.began.lock() = Instant::now();
        #[cfg(test)]
        let keeps_time = super::sim::has_own_time();
        #[cfg(not(test))]
        let keeps_time = false;
        if !keeps_time {
            self.clock.set(self.table.lock().now());
        }
        self.leads.store(true, Ordering::Relaxed);
        self.ready.notify_waiters();
        true
    }

    /// What a new log has to begin with; what is configured here; where this node is found now.
    async fn settle(&self) {
        let stats = self.table.lock().query(0, &Query::Stats);
        let is_new = matches!(stats, Answer::Stats(stats) if stats.token == 0);
        let mut commands = Vec::new();
        if is_new || *self.table.lock().settings() != self.settings {
            commands.push(Command::Settings(Box::new(self.settings.clone())));
        }
        if is_new {
            // Tokens must not fall back behind those of whatever was here before.
            commands.push(Command::TokenFloor(wall().as_micros() as u64));
        }
        if !commands.is_empty() {
            self.commit(Source::Leader, bytes::encode_commands(&commands)).await;
        }
        self.end_change().await;
        let there = self.address_of(self.me());
        if there.is_some_and(|there| there != self.address) {
            let node = BasicNode { addr: self.address.clone() };
            let change = ChangeMembers::SetNodes(BTreeMap::from([(self.me(), node)]));
            if let Err(error) = self.raft.change_membership(change, true).await {
                tracing::warn!(%error, "the address of this node could not be changed");
            }
        }
    }

    /// A change of the members takes two steps, and an earlier leader may have made only the first, or this one while
    /// it was not sure for a moment that it leads: then a majority of the old members and one of the new ones is
    /// needed for everything, and nobody else makes the second.
    async fn end_change(&self) {
        let stays = {
            let metrics = self.raft.server_metrics();
            let metrics = metrics.borrow_watched();
            let configs = metrics.membership_config.membership().get_joint_config();
            if configs.len() < 2 || self.changing.load(Ordering::Relaxed) > 0 {
                return;
            }
            configs.last().is_some_and(|new| new.contains(&self.me()))
        };
        if stays {
            let nobody_else = ChangeMembers::AddVoterIds(BTreeSet::new());
            let outcome = self.change(nobody_else, false).await;
            tracing::info!(?outcome, "a change of the members was ended that was only begun");
        } else {
            // It is this node that is to go.
            self.hand_over().await;
        }
    }

    /// Until somebody else leads, or Raft has ended.
    async fn until_deposed(&self, vote: Vote) {
        let mut metrics = self.raft.server_metrics();
        while self.is_elected(vote) && metrics.changed().await.is_ok() {}
    }

    /// What a leader does by itself, for ever.
    async fn tend(&self) {
        self.settle().await;
        let since = Instant::now();
        loop {
            tokio::time::sleep(self.until_tick()).await;
            self.tick(since).await;
            self.end_change().await;
        }
    }

    /// Until something ends; and time is logged every second while anything runs, so that the next leader
    /// knows it.
    fn until_tick(&self) -> Duration {
        let second = Duration::from_millis(LOGGED_EVERY_MS);
        let next = self.table.lock().next_deadline();
        next.map_or(second, |at| self.clock.until(at).min(second)).max(Duration::from_millis(1))
    }

    async fn tick(&self, since: Instant) {
        let due = {
            let (table, now) = (self.table.lock(), self.clock.now());
            let stale = now >= table.now() + LOGGED_EVERY_MS;
            table.next_deadline().is_some_and(|at| at <= now || stale)
        };
        if due {
            self.commit(Source::Leader, bytes::encode_commands(&[Command::Tick])).await;
        }
        if since.elapsed() >= GONE_AFTER {
            for node in self.gone() {
                tracing::warn!(
                    node,
                    "a member cannot be reached: whoever waits there may come back elsewhere"
                );
                self.commit(Source::Gone(node), Arc::default()).await;
            }
        }
    }

    /// Members that cannot be reached, and at which somebody waits.
    fn gone(&self) -> Vec<u64> {
        let mut waited_at = self.machine.nodes_with_waiters();
        waited_at.remove(&self.me());
        if waited_at.is_empty() {
            return Vec::new();
        }
        let metrics = self.raft.data_metrics();
        let metrics = metrics.borrow_watched();
        let heard = |node: &u64| metrics.heartbeat.as_ref()?.get(node)?.as_ref();
        let gone = |node: &u64| heard(node).is_none_or(|at| at.elapsed() >= GONE_AFTER);
        waited_at.into_iter().filter(gone).collect()
    }

    /// Appends a batch and waits until it is applied here.
    pub(crate) async fn commit(&self, source: Source, commands: Arc<[u8]>) -> Led {
        if !self.leads() {
            return self.elsewhere();
        }
        match self.log.make_room(commands.len() as u64) {
            Ok(true) => {}
            Ok(false) => return Led::NoRoom,
            Err(error) => return Led::Refused(error.to_string()),
        }
        let changes = Changes { at: self.clock.now(), source, commands };
        match self.raft.client_write(changes).await {
            Ok(_) if self.log.is_full() => Led::Short,
            Ok(_) => Led::Done,
            Err(RaftError::APIError(
                ClientWriteError::ForwardToLeader(to) | ClientWriteError::LogEntryDiscarded(to),
            )) => Led::NotLeader(to.leader_id),
            Err(error) => Led::Refused(error.to_string()),
        }
    }

    pub(crate) async fn commit_of(&self, stamp: Stamp, commands: Arc<[u8]>) -> Led {
        self.commit(Source::Member(stamp), commands).await
    }

    /// Up to where a table must be to show everything that is acknowledged now.
    pub(crate) async fn read_index(&self) -> Led {
        if !self.leads() {
            return self.elsewhere();
        }
        match self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
            Ok(linearizer) => Led::Index(linearizer.read_log_id().index()),
            Err(RaftError::Fatal(error)) => Led::Refused(error.to_string()),
            Err(RaftError::APIError(_)) => self.elsewhere(),
        }
    }

    fn address_of(&self, node: u64) -> Option<String> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        membership.get_node(&node).map(|node| node.addr.clone())
    }

    fn is_voter(&self, node: u64) -> bool {
        self.raft.voter_ids().any(|voter| voter == node)
    }

    /// A node wants to be a member, or is a member and has moved. `Done` once it votes; until then it asks
    /// again, so that another leader can go on with it.
    pub(crate) async fn join(self: &Arc<Self>, node: u64, address: String) -> Led {
        if !self.leads() {
            return self.elsewhere();
        }
        let there = self.address_of(node);
        // It has sent batches, so it was a member. While the log that says otherwise is not acknowledged, it may
        // be one yet.
        if there.is_none() && self.machine.has_heard_of(node) {
            return if self.machine.is_member(node) { Led::Index(0) } else { Led::Removed };
        }
        if let Some(there) = there.as_ref().filter(|there| **there != address)
            && (node == self.me() || self.hears(node))
        {
            return Led::Refused(format!(
                "node {node} runs at {there}: a copy of its data directory cannot be a member too, join with an empty one"
            ));
        }
        self.peers.learn(node, &address);
        if there.as_ref().is_some_and(|there| *there != address) {
            let nodes = BTreeMap::from([(node, BasicNode { addr: address })]);
            return self.change(ChangeMembers::SetNodes(nodes), true).await;
        }
        if self.is_voter(node) {
            return Led::Done;
        }
        let Some(vote) = *self.since.lock() else { return self.elsewhere() };
        if self.joining.lock().insert(node) {
            let lead = Arc::clone(self);
            tokio::spawn(of_this_node(async move {
                tokio::select! {
                    biased;
                    () = lead.until_deposed(vote) => {}
                    () = lead.let_in(node, address) => {}
                }
                lead.joining.lock().remove(&node);
            }));
        }
        Led::Index(0)
    }

    /// It gets the log first, and votes when it has it.
    async fn let_in(&self, node: u64, address: String) {
        tracing::info!(node, address, "a node joins: it is catching up");
        let learner = self.raft.add_learner(node, BasicNode { addr: address }, true).await;
        let voter = match learner {
            Ok(_) => self.change(ChangeMembers::AddVoterIds(BTreeSet::from([node])), true).await,
            Err(error) => not_changed(error),
        };
        match voter {
            Led::Done => tracing::info!(node, "a node has joined"),
            why => tracing::warn!(node, ?why, "a node has not joined yet; it will ask again"),
        }
    }

    pub(crate) async fn remove(&self, node: u64) -> Led {
        if !self.leads() {
            return self.elsewhere();
        }
        if self.address_of(node).is_none() {
            return Led::Refused(format!("there is no node {node}"));
        }
        if node == self.me() && self.raft.voter_ids().count() > 1 {
            return self.have_removed().await;
        }
        let nodes = BTreeSet::from([node]);
        if !self.is_voter(node) {
            return self.change(ChangeMembers::RemoveNodes(nodes), false).await;
        }
        if self.raft.voter_ids().count() == 1 {
            return Led::Refused("it is the last one: stop it instead".into());
        }
        if let Err((answer, left)) = self.would_do_without(node).await {
            return Led::Refused(format!(
                "of the {left} members that would be left, {answer} answer, and that is no majority: nothing would be \
                 granted any more. Take out one that does not answer first, or start it"
            ));
        }
        self.change(ChangeMembers::RemoveVoters(nodes), false).await
    }

    /// Whether most of those who would vote without this one answer; else how many do, and of how many. A new leader
    /// may have heard nobody yet.
    async fn would_do_without(&self, node: u64) -> Result<(), (usize, usize)> {
        let until = Instant::now() + ALIVE;
        loop {
            let left: BTreeSet<u64> = self.raft.voter_ids().filter(|one| *one != node).collect();
            let answers = |one: &&u64| **one == self.me() || self.hears(**one);
            let answer = left.iter().filter(answers).count();
            if 2 * answer > left.len() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err((answer, left.len()));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Another one leads, and takes this node out. Raft would let a leader go on that is no member any more, and
    /// what that one then does with the members is not defined.
    async fn have_removed(&self) -> Led {
        self.hand_over().await;
        let until = Instant::now() + HAND_OVER;
        let request = Request::Remove(self.me()).to_bytes();
        loop {
            let leader = self.leader().filter(|leader| *leader != self.me());
            let led = match leader.map(|leader| self.peers.line(leader)) {
                None => Led::Refused("nobody has taken over: try again".into()),
                Some(mut line) => match line.call(&request, HAND_OVER).await {
                    Err(error) => Led::Refused(error.to_string()),
                    Ok(reply) => message::reply_from_bytes(&reply, message::read_led)
                        .unwrap_or_else(Led::Refused),
                },
            };
            // Who has just been elected is not ready at once.
            if led == Led::Done || Instant::now() >= until {
                return led;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn change(&self, change: ChangeMembers<u64, BasicNode>, retain: bool) -> Led {
        let _at_it = AtIt::new(&self.changing);
        match self.raft.change_membership(change, retain).await {
            Ok(_) if self.log.is_full() => Led::Short,
            Ok(_) => Led::Done,
            Err(error) => not_changed(error),
        }
    }

    /// Another node shall lead.
    pub(crate) async fn hand_over_to(&self, node: u64) -> Led {
        if !self.leads() {
            return self.elsewhere();
        }
        if !self.is_voter(node) {
            return Led::Refused(format!("{node} is no voter"));
        }
        if node == self.me() {
            return Led::Done;
        }
        // Once it is asked to, nobody leads until it does, or somebody's patience is over. A new leader may have heard nobody yet.
        let until = Instant::now() + ALIVE;
        while !self.hears(node) {
            if Instant::now() >= until {
                return Led::Refused(format!("{node} does not answer, so it cannot take over"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        if let Err(error) = self.raft.trigger().transfer_leader(node).await {
            return Led::Refused(error.to_string());
        }
        let wait = self.raft.wait(Some(HAND_OVER));
        let another = |leader: Option<u64>| leader.is_some_and(|leader| leader != self.me());
        let led =
            wait.metrics(|metrics| another(metrics.current_leader), "another one leads").await;
        match led.map(|metrics| metrics.current_leader) {
            Ok(leader) if leader == Some(node) => Led::Done,
            // Somebody else was quicker, and can hand over in turn.
            Ok(leader) => Led::NotLeader(leader),
            Err(_) => Led::Refused(format!("{node} has not taken over in time: try again")),
        }
    }

    /// The node that has most of the log takes over, of those that answer, if there is another.
    pub(crate) async fn hand_over(&self) {
        let matched: Vec<_> = {
            let metrics = self.raft.data_metrics();
            let metrics = metrics.borrow_watched();
            let matched = metrics.replication.iter().flatten();
            matched.map(|(node, matched)| (*node, *matched)).collect()
        };
        let others =
            matched.into_iter().filter(|(node, _)| *node != self.me() && self.is_voter(*node));
        let best = others.max_by_key(|(node, matched)| (self.hears(*node), *matched, *node));
        let best = best.map(|(node, _)| node);
        if let (true, Some(node)) = (self.leads(), best) {
            let outcome = self.hand_over_to(node).await;
            tracing::info!(node, ?outcome, "leadership was handed over, because this node stops");
        }
    }
}

/// Why the members are as they were.
fn not_changed(error: RaftError<Types, ClientWriteError<Types>>) -> Led {
    use ChangeMembershipError::InProgress;
    match error {
        RaftError::APIError(
            ClientWriteError::ForwardToLeader(to) | ClientWriteError::LogEntryDiscarded(to),
        ) => Led::NotLeader(to.leader_id),
        RaftError::APIError(ClientWriteError::ChangeMembershipError(InProgress(_))) => {
            Led::Refused("another change of the members is under way: wait for its end".into())
        }
        error => Led::Refused(error.to_string()),
    }
}
