//! What somebody asks of a cluster who is no member: an operator.

use std::sync::Arc;
use std::time::Duration;

use super::bytes::{BadBytes, Reader};
use super::join::VISITOR;
use super::message::{self, Led, Request};
use crate::cluster::{ClusterError, Fingerprint, Status, Visit};
#[cfg(feature = "redis")]
use crate::config::{ConfigError, RedisPeer};
use crate::log::channel::Channel;
#[cfg(feature = "redis")]
use crate::log::channel::redis::Redis;
use crate::log::channel::tcp::Tcp;
use crate::log::channel::tls::Tls;

/// How long an answer may take; a change of members waits for a majority.
const WITHIN: Duration = Duration::from_secs(30);

/// How the cluster looks from the member at this peer address.
pub(crate) fn status(at: &Visit) -> Result<Status, ClusterError> {
    block_on(async {
        let (channel, address) = reach(at)?;
        ask(&*channel, &address, &Request::Status, message::read_status).await
    })
}

/// The table of the member at this peer address, in short.
pub(crate) fn fingerprint(at: &Visit) -> Result<Fingerprint, ClusterError> {
    block_on(async {
        let (channel, address) = reach(at)?;
        ask(&*channel, &address, &Request::Fingerprint, message::read_fingerprint).await
    })
}

/// Has the leader take a node out.
pub(crate) fn remove(at: &Visit, node: u64) -> Result<(), ClusterError> {
    block_on(ask_leader(at, &Request::Remove(node)))
}

/// Has the leader hand over to a node.
pub(crate) fn transfer(at: &Visit, node: u64) -> Result<(), ClusterError> {
    block_on(ask_leader(at, &Request::Lead(node)))
}

fn block_on<T>(asking: impl Future<Output = Result<T, ClusterError>>) -> Result<T, ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| ClusterError::Failed(error.to_string()))?.block_on(asking)
}

/// Asks whoever leads, as the member that is visited knows.
async fn ask_leader(at: &Visit, request: &Request) -> Result<(), ClusterError> {
    let (channel, address) = reach(at)?;
    let status = ask(&*channel, &address, &Request::Status, message::read_status).await?;
    let leads = |member: &&crate::cluster::MemberStatus| Some(member.node) == status.leader;
    let leader = status.members.iter().find(leads).ok_or(ClusterError::NoLeader)?;
    match ask(&*channel, &leader.address, request, message::read_led).await? {
        Led::Done | Led::Index(_) => Ok(()),
        Led::NotLeader(_) => Err(ClusterError::NoLeader),
        Led::NoRoom => Err(ClusterError::Failed("the disk of its log is full".into())),
        Led::Refused(why) => Err(ClusterError::Failed(why)),
    }
}

/// How a member is visited, and where.
fn reach(at: &Visit) -> Result<(Box<dyn Channel>, String), ClusterError> {
    #[cfg(feature = "redis")]
    if RedisPeer::is_meant(&at.peer) {
        let failed = |error: ConfigError| ClusterError::Failed(error.to_string());
        let peer = RedisPeer::parse(&at.peer).map_err(failed)?;
        let node = peer.node().ok_or_else(|| failed(ConfigError::RedisWithoutNode))?.to_owned();
        let own = format!("visitor-{:032x}", rand::random::<u128>());
        return Ok((Box::new(Redis::new(&peer, own).map_err(failed)?), node));
    }
    let tls = at.tls.clone().map(Tls::read).transpose()?;
    Ok((Box::new(Tcp { tls: tls.map(Arc::new) }), at.peer.clone()))
}

async fn ask<T>(
    channel: &dyn Channel,
    address: &str,
    request: &Request,
    read: fn(&mut Reader<'_>) -> Result<T, BadBytes>,
) -> Result<T, ClusterError> {
    let unreachable = |why: String| ClusterError::Unreachable(address.into(), why);
    let asking = async {
        let connected = channel.connect(address, VISITOR).await;
        let (mut link, _) = connected.map_err(|error| unreachable(error.to_string()))?;
        let reply = link.call(&request.to_bytes()).await;
        let reply = reply.map_err(|error| unreachable(error.to_string()))?;
        message::reply_from_bytes(&reply, read).map_err(ClusterError::Failed)
    };
    let late = |_| unreachable("no answer in time; it may have happened all the same".into());
    tokio::time::timeout(WITHIN, asking).await.map_err(late)?
}
