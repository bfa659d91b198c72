//! How a cluster looks from one member, at this moment: what `cluster status`, `/v1/cluster`, `/readyz` and
//! `/metrics` show.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, ServerState};

use super::lead::Lead;
use super::types::Types;
use crate::cluster::{MemberStatus, Role, State, Status};

/// A member that has not answered its leader for so long does not count when a majority is looked for.
const MUTE: Duration = Duration::from_secs(2);
/// One that has answered within this runs where it is known to be: ten heartbeats.
pub(super) const ALIVE: Duration = Duration::from_millis(500);

/// What has happened since this node was started.
#[derive(Default)]
pub(crate) struct Seen {
    /// The last leader, and how often there was another.
    leader: AtomicU64,
    pub(crate) leaders: AtomicU64,
    /// The end of the last snapshot, and how many there were, one that was sent included.
    snapshot: AtomicU64,
    pub(crate) snapshots: AtomicU64,
}

impl Seen {
    /// Raft says that something has changed.
    pub(super) fn note(&self, metrics: &openraft::RaftMetrics<Types>) {
        let note = |value: Option<u64>, last: &AtomicU64, count: &AtomicU64| {
            if let Some(value) = value
                && last.swap(value, Ordering::Relaxed) != value
            {
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        note(metrics.current_leader, &self.leader, &self.leaders);
        note(metrics.snapshot.map(|log_id| log_id.index), &self.snapshot, &self.snapshots);
    }
}

/// A member, seen from outside of its thread.
#[derive(Clone)]
pub(crate) struct View(pub(super) Arc<Lead>);

impl View {
    pub(crate) fn status(&self) -> Status {
        self.0.status()
    }

    pub(crate) fn seen(&self) -> &Seen {
        &self.0.seen
    }
}

impl Lead {
    /// Whether this node leads nobody, or most of them answer it. Whoever has just been elected has time to hear of them.
    pub(super) fn is_followed(&self) -> bool {
        !self.leads() || self.began.lock().elapsed() < MUTE || self.status().majority
    }

    /// Whether a member has answered just now where it is known to be.
    pub(super) fn hears(&self, node: u64) -> bool {
        let metrics = self.raft.data_metrics();
        let metrics = metrics.borrow_watched();
        let heard = metrics.heartbeat.as_ref().and_then(|heard| heard.get(&node)?.as_ref());
        heard.is_some_and(|at| at.elapsed() < ALIVE)
    }

    pub(crate) fn status(&self) -> Status {
        let me = self.peers.identity.node;
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let matched = |node: &u64| {
            let matched = metrics.replication.as_ref()?.get(node)?.as_ref()?;
            Some(matched.index)
        };
        let heard = |node: &u64| metrics.heartbeat.as_ref()?.get(node)?.as_ref();
        let answers = |node: &u64| *node == me || heard(node).is_some_and(|at| at.elapsed() < MUTE);
        let leads = metrics.current_leader == Some(me);
        // Whoever has not said anything since this node leads is silent at least since then.
        let silent = || leads.then(|| self.began.lock().elapsed());
        let silence = |node: &u64| match heard(node) {
            Some(at) => Some(at.elapsed()),
            None => silent().filter(|_| *node != me),
        };
        let members: Vec<MemberStatus> = membership
            .nodes()
            .map(|(node, at)| MemberStatus {
                node: *node,
                address: at.addr.clone(),
                role: if voters.contains(node) { Role::Voter } else { Role::Learner },
                matched: matched(node),
                heard_ms: silence(node).map(|silence| silence.as_millis() as u64),
            })
            .collect();
        // Of the members as they were, and as they will be, while that changes.
        let majority = !leads
            || membership.get_joint_config().iter().all(|config| {
                2 * config.iter().filter(|node| answers(node)).count() > config.len()
            });
        let index = |log_id: Option<super::types::LogId>| log_id.map_or(0, |log_id| log_id.index);
        Status {
            cluster: self.peers.identity.cluster,
            node: me,
            state: match metrics.state {
                ServerState::Leader => State::Leader,
                ServerState::Candidate => State::Candidate,
                ServerState::Follower if voters.contains(&me) => State::Follower,
                _ if membership.get_node(&me).is_some() => State::Learner,
                _ => State::Stranger,
            },
            leader: self.leader().filter(|_| majority),
            heard_ms: (!leads).then(|| self.heard_ms()).flatten(),
            majority,
            term: metrics.current_term,
            last_log: metrics.last_log_index.unwrap_or(0),
            applied: index(metrics.last_applied),
            snapshot: index(metrics.snapshot),
            members,
        }
    }
}
