//! How a node finds the cluster it is to join, and asks to be let in; or tells the others that it has moved.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::Instant;

use super::NodeError;
use super::bytes::{BadBytes, Reader};
use super::desk::{Desk, Told};
use super::identity::Identity;
use super::lead::Lead;
use super::message::{self, Led, Request};
use crate::log::channel::{Channel, Hello};

/// Somebody who is not a member yet.
pub(super) const VISITOR: Hello = Hello { cluster: 0, from: 0, to: 0 };
/// How long a node looks for the cluster it is to join.
const LOOK: Duration = Duration::from_secs(30);
/// How long somebody is waited for who need not be there.
const GLANCE: Duration = Duration::from_secs(1);
/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(5);
/// How long it may take until there is a leader, when all members are started.
const ELECTION: Duration = Duration::from_secs(3);
/// How often it is said of somebody that it cannot be reached.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(250);

/// The cluster that is found at one of these addresses.
pub(crate) async fn find_cluster(
    channel: &dyn Channel,
    addresses: &[String],
) -> Result<u128, NodeError> {
    let until = Instant::now() + LOOK;
    let (mut why, mut said) = (String::new(), Said::after(Duration::ZERO));
    loop {
        for address in addresses {
            let failed = match channel.connect(address, VISITOR).await {
                Ok((_, welcome)) if welcome.cluster != 0 => return Ok(welcome.cluster),
                Ok(_) => "it waits itself to be added to a cluster".into(),
                Err(error) => error.to_string(),
            };
            why = format!("{address}: {failed}");
            if said.is_due(address) {
                tracing::warn!(address, why = failed, "no cluster to join there yet");
            }
        }
        if Instant::now() >= until {
            return Err(NodeError::NobodyToJoin(why));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Which of these addresses is of another cluster than this one, if the first of them that answers is.
pub(crate) async fn another_cluster<'a>(
    channel: &dyn Channel,
    addresses: &'a [String],
    cluster: u128,
) -> Option<&'a String> {
    for address in addresses {
        let connected = tokio::time::timeout(GLANCE, channel.connect(address, VISITOR)).await;
        match connected {
            Ok(Ok((_, welcome))) if welcome.cluster == cluster => return None,
            Ok(Ok((_, welcome))) if welcome.cluster != 0 => return Some(address),
            // It will be asked again.
            _ => {}
        }
    }
    None
}

/// What was said of whom, so that it is not said all the time.
struct Said {
    last: BTreeMap<String, Instant>,
    /// Nothing is said before.
    from: Instant,
}

impl Said {
    fn after(wait: Duration) -> Said {
        Said { last: BTreeMap::new(), from: Instant::now() + wait }
    }

    /// Whether it is time to say something of this address.
    fn is_due(&mut self, address: &str) -> bool {
        let due = Instant::now() >= self.from
            && self.last.get(address).is_none_or(|at| at.elapsed() >= SAY_EVERY);
        if due {
            self.last.insert(address.into(), Instant::now());
        }
        due
    }
}

/// What a node is to its cluster, as far as it knows.
enum Standing {
    /// It votes, and is found where it is.
    Settled,
    /// It has moved, was told to join, or hears no leader.
    Wants,
}

/// Asks to be let in, or to be found elsewhere, until that is so, and whenever no leader is heard. Says why it cannot be, if it
/// cannot.
pub(crate) async fn announce(lead: Arc<Lead>, join: Vec<String>, desk: Arc<Desk>) {
    let mut said = Said::after(ELECTION);
    loop {
        if let Standing::Settled = standing(&lead, &join) {
            tokio::time::sleep(ELECTION).await;
            continue;
        }
        let Identity { cluster, node, .. } = lead.peers.identity;
        let request = Request::Join { cluster, node, address: lead.address.clone() }.to_bytes();
        let channel = &*lead.peers.channel;
        let (mut left, mut tried) = (VecDeque::from(known(&lead, &join)), BTreeSet::new());
        while let Some(address) = left.pop_front() {
            if !tried.insert(address.clone()) {
                continue;
            }
            match ask(channel, &address, &request, message::read_led).await {
                Ok(Led::Removed) => return desk.tell(Told::Failed(NodeError::Removed)),
                Ok(Led::Refused(why)) | Err(why) if said.is_due(&address) => {
                    tracing::warn!(address, why, "{}", lacks(&lead));
                }
                // Where that is, members know.
                Ok(Led::NotLeader(Some(leader))) => {
                    let status = Request::Status.to_bytes();
                    let status = ask(channel, &address, &status, message::read_status).await;
                    let members = status.into_iter().flat_map(|status| status.members);
                    let found = members.filter(|member| member.node == leader);
                    found.for_each(|member| left.push_front(member.address));
                }
                Ok(Led::NotLeader(None)) if said.is_due(&address) => {
                    tracing::warn!(address, "{}: none is known there", lacks(&lead));
                }
                Ok(Led::Done | Led::Short | Led::Index(_)) => break,
                Ok(_) | Err(_) => {}
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What a node lacks that asks.
fn lacks(lead: &Lead) -> &'static str {
    let me = lead.peers.identity.node;
    match lead.raft.voter_ids().any(|voter| voter == me) {
        true => "this member looks for a leader",
        false => "not in the cluster yet, and looks for its leader",
    }
}

fn standing(lead: &Lead, join: &[String]) -> Standing {
    let me = lead.peers.identity.node;
    let metrics = lead.raft.server_metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let votes = membership.voter_ids().any(|voter| voter == me);
    match membership.get_node(&me) {
        // A leader sees to it itself.
        _ if metrics.current_leader == Some(me) => Standing::Settled,
        Some(node) if node.addr != lead.address => Standing::Wants,
        _ if !join.is_empty() && (!votes || lead.heard_ms().is_none()) => Standing::Wants,
        // If nobody leads it, it may not be what it thinks it is.
        _ if lead.leader().is_none() => Standing::Wants,
        _ => Standing::Settled,
    }
}

/// Everyone who may know who leads, the leader first if it is known.
fn known(lead: &Lead, join: &[String]) -> Vec<String> {
    let metrics = lead.raft.server_metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let leader = metrics.current_leader.and_then(|leader| membership.get_node(&leader));
    // Its own former address is nobody's.
    let others = membership.nodes().filter(|(node, _)| **node != lead.peers.identity.node);
    let members = others.map(|(_, node)| &node.addr);
    let mut seen = BTreeSet::from([&lead.address]);
    let all = leader.map(|node| &node.addr).into_iter().chain(join).chain(members);
    all.filter(|address| seen.insert(address)).cloned().collect()
}

/// One question to whoever is at an address.
async fn ask<T>(
    channel: &dyn Channel,
    address: &str,
    request: &[u8],
    read: fn(&mut Reader<'_>) -> Result<T, BadBytes>,
) -> Result<T, String> {
    let asking = async {
        let connected = channel.connect(address, VISITOR).await;
        let (mut link, _) = connected.map_err(|error| error.to_string())?;
        let reply = link.call(request).await.map_err(|error| error.to_string())?;
        message::reply_from_bytes(&reply, read)
    };
    tokio::time::timeout(WITHIN, asking).await.unwrap_or_else(|_| Err("no answer".into()))
}
