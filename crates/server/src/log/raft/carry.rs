//! Carries what the loop wants to whoever leads, this node or another, again and again until it is applied
//! here. A batch keeps its stamp, so it counts once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::alias::WatchReceiverOf;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::metrics::RaftServerMetrics;

use super::desk::{Desk, Outgoing, Told, Wanted};
use super::lead::Lead;
use super::message::{self, Led, Request};
use super::peers::Line;
use super::types::{Stamp, Types};

/// How long the leader may take to answer before it is asked again.
const WITHIN: Duration = Duration::from_secs(5);
/// What is acknowledged arrives here soon; if it does not, the leader is asked again.
const ARRIVES: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

type Metrics = WatchReceiverOf<Types, RaftServerMetrics<Types>>;

pub(crate) struct Carry {
    lead: Arc<Lead>,
    desk: Arc<Desk>,
    line: Option<Line>,
}

impl Carry {
    pub(crate) fn new(lead: Arc<Lead>, desk: Arc<Desk>) -> Carry {
        Carry { lead, desk, line: None }
    }

    pub(crate) async fn run(mut self) {
        // How often the present thing was tried.
        let mut tries = (0, 0);
        // One for all of them: a new one would take what it sees first for a change.
        let mut metrics = self.lead.raft.server_metrics();
        loop {
            if !self.desk.has_any() {
                self.desk.changed.notified().await;
                continue;
            }
            let Some(leader) = self.lead.leader() else {
                self.something_new(&mut metrics, PAUSE * 5).await;
                continue;
            };
            let here = leader == self.lead.peers.identity.node;
            if here && !self.lead.leads() {
                self.something_new(&mut metrics, PAUSE).await;
                continue;
            }
            let Some(out) = self.desk.take_up() else { continue };
            #[cfg(test)]
            if matches!(out.what, Wanted::Read) && super::sim::reads_stale() {
                self.desk.tell(Told::Read { number: out.number });
                continue;
            }
            tries = if tries.0 == out.number { (tries.0, tries.1 + 1) } else { (out.number, 1) };
            let led = tokio::select! {
                biased;
                led = ask(&self.lead, &mut self.line, leader, &out) => led,
                () = another_leader(&self.lead, leader) => continue,
            };
            match (led, &out.what) {
                (led @ (Led::Done | Led::Short), Wanted::Commit(_)) => {
                    self.desk.full.store(led == Led::Short, Ordering::Relaxed);
                    self.arrival(out.number).await;
                }
                (Led::Index(index), Wanted::Read) => {
                    let wait = self.lead.raft.wait(Some(ARRIVES));
                    let applied = wait.applied_index_at_least(Some(index), "a question").await;
                    if applied.is_ok() {
                        self.desk.tell(Told::Read { number: out.number });
                    }
                }
                // An earlier try may still come to something.
                (Led::NoRoom, _) if tries.1 == 1 => {
                    self.desk.full.store(true, Ordering::Relaxed);
                    self.desk.tell(Told::NoRoom { number: out.number });
                }
                (why, _) => {
                    tracing::debug!(?why, "the leader is asked again");
                    self.something_new(&mut metrics, PAUSE).await;
                }
            }
        }
    }

    /// Waits until a batch has come back through the log.
    async fn arrival(&self, number: u64) {
        let arrives = async {
            while self.desk.wants(number) {
                self.desk.changed.notified().await;
            }
        };
        drop(tokio::time::timeout(ARRIVES, arrives).await);
    }

    /// Waits for another leader, for another thing to carry, or for this long.
    async fn something_new(&self, metrics: &mut Metrics, within: Duration) {
        tokio::select! {
            biased;
            Ok(()) = metrics.changed() => {}
            () = self.desk.changed.notified() => {}
            () = self.lead.ready.notified() => {}
            () = tokio::time::sleep(within) => {}
        }
    }
}

async fn ask(lead: &Arc<Lead>, line: &mut Option<Line>, leader: u64, out: &Outgoing) -> Led {
    let identity = &lead.peers.identity;
    let (node, incarnation) = (identity.node, identity.incarnation);
    let stamp = Stamp { node, incarnation, number: out.number };
    if leader == node {
        return match &out.what {
            Wanted::Commit(commands) => lead.commit_of(stamp, Arc::clone(commands)).await,
            Wanted::Read => lead.read_index().await,
        };
    }
    let request = match &out.what {
        Wanted::Commit(commands) => Request::Commit(stamp, Arc::clone(commands)),
        Wanted::Read => Request::ReadIndex,
    };
    if line.as_ref().is_none_or(|line| line.node() != leader) {
        *line = Some(lead.peers.line(leader));
    }
    let line = line.as_mut().expect("just made");
    match line.call(&request.to_bytes(), WITHIN).await {
        Err(error) => Led::Refused(error.to_string()),
        Ok(reply) => {
            message::reply_from_bytes(&reply, message::read_led).unwrap_or_else(Led::Refused)
        }
    }
}

async fn another_leader(lead: &Lead, leader: u64) {
    let mut metrics = lead.raft.server_metrics();
    while metrics.borrow_watched().current_leader == Some(leader) {
        if metrics.changed().await.is_err() {
            // Raft has ended, and there will be none.
            std::future::pending::<()>().await;
        }
    }
}
