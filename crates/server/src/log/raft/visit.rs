//! What somebody asks of a cluster who is no member: an operator.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backup::{Head, Writing};
use super::bytes::{BadBytes, Reader};
use super::join::VISITOR;
use super::message::{self, Led, Request};
use crate::cluster::{
    Backup, BackupError, ClusterError, Fingerprint, MemberStatus, Role, Status, Visit,
};
#[cfg(feature = "redis")]
use crate::config::{ConfigError, RedisPeer};
#[cfg(feature = "redis")]
use crate::log::channel::redis::Redis;
use crate::log::channel::tcp::Tcp;
use crate::log::channel::tls::Tls;
use crate::log::channel::{self, Channel};

/// How long an answer may take; a change of members waits for a majority.
const WITHIN: Duration = Duration::from_secs(30);
/// How long a member may take to write a snapshot; one that finds no room gives up before.
const MAKING: Duration = Duration::from_secs(150);
/// How long a node that was added may take until it votes: it gets the log first.
const JOINS: Duration = Duration::from_secs(120);
/// How long a leader is waited for: one that has just died is named for a second, and elections take less.
const LEADS: Duration = Duration::from_secs(5);
/// How long a node may take until it waits to be added.
const STARTS: Duration = Duration::from_secs(3);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

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

/// Has a node that waits for it join, and waits until it votes; its number.
pub(crate) fn add(at: &Visit, address: &str) -> Result<u64, ClusterError> {
    block_on(async {
        let (channel, member) = reach(at)?;
        let status = ask(&*channel, &member, &Request::Status, message::read_status).await?;
        if status.leader.is_none() {
            return Err(ClusterError::NoLeader);
        }
        let members = status.members.into_iter().map(|member| member.address).collect();
        let request = Request::Add(status.cluster, members);
        let mut added = Link::to_new(&*channel, address).await?;
        let node = match added.ask(&request, WITHIN, message::read_led).await? {
            Led::Index(node) => node,
            Led::Refused(why) => return Err(ClusterError::Failed(format!("{address}: {why}"))),
            _ => return Err(ClusterError::Failed(format!("{address} does not wait to be added"))),
        };
        let until = Instant::now() + JOINS;
        loop {
            let status = ask(&*channel, &member, &Request::Status, message::read_status).await?;
            let votes = |member: &MemberStatus| member.node == node && member.role == Role::Voter;
            if status.members.iter().any(votes) {
                return Ok(node);
            }
            if Instant::now() >= until {
                let text = format!(
                    "{address} was told to join as {node}, and does not vote yet: see `cluster status`, and \
                     what it logs"
                );
                return Err(ClusterError::Failed(text));
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// Has a backup made, and fetches it.
pub(crate) fn snapshot(at: &Visit, file: &Path) -> Result<Backup, BackupError> {
    block_on(async {
        let (channel, member) = reach(at)?;
        let mut link = Link::to(&*channel, &member).await?;
        let offer = link.ask(&Request::Backup, MAKING, message::read_offer).await?;
        let head = Head::new(offer.cluster, offer.node, offer.length);
        let mut writing = Writing::begin(file, head)?;
        let mut offset = 0;
        while offset < offer.length {
            let request = Request::BackupPiece(offer.backup, offset);
            let piece = link.ask(&request, WITHIN, message::read_bytes).await?;
            if piece.is_empty() {
                return Err(ClusterError::Failed("the backup has ended too early".into()).into());
            }
            writing.add(&piece)?;
            offset += piece.len() as u64;
        }
        writing.finish()
    })
}

fn block_on<T, E: From<ClusterError>>(asking: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| ClusterError::Failed(error.to_string()))?.block_on(asking)
}

/// Asks whoever leads, as the member that is visited knows. If that one is not there (any more), waits for another one.
async fn ask_leader(at: &Visit, request: &Request) -> Result<(), ClusterError> {
    let (channel, address) = reach(at)?;
    let until = Instant::now() + LEADS;
    loop {
        let mut leader = match find_leader(&*channel, &address).await {
            Ok(leader) => leader,
            Err(error) if error.is_settled(&address) || Instant::now() >= until => {
                return Err(error);
            }
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        match leader.ask(request, WITHIN, message::read_led).await? {
            Led::Done | Led::Short | Led::Index(_) => return Ok(()),
            Led::NotLeader(_) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
            Led::NotLeader(_) => return Err(ClusterError::NoLeader),
            Led::NoRoom => return Err(ClusterError::Failed("the disk of its log is full".into())),
            Led::Refused(why) => return Err(ClusterError::Failed(why)),
            Led::Removed => return Err(ClusterError::Failed("it is no member any more".into())),
        }
    }
}

/// Nothing has been asked of it yet.
async fn find_leader(channel: &dyn Channel, address: &str) -> Result<Link, ClusterError> {
    let status = ask(channel, address, &Request::Status, message::read_status).await?;
    let leads = |member: &&MemberStatus| Some(member.node) == status.leader;
    let leader = status.members.iter().find(leads).ok_or(ClusterError::NoLeader)?;
    Link::to(channel, &leader.address).await
}

impl ClusterError {
    /// Whether it is the same a moment later: it is not about who leads, which changes.
    fn is_settled(&self, visited: &str) -> bool {
        match self {
            ClusterError::NoLeader => false,
            ClusterError::Unreachable(address, _) => address == visited,
            ClusterError::Tls(_) | ClusterError::Failed(_) => true,
        }
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
    Link::to(channel, address).await?.ask(request, WITHIN, read).await
}

/// A link to whoever is at an address.
struct Link {
    link: Box<dyn channel::Link>,
    address: String,
}

impl Link {
    async fn to(channel: &dyn Channel, address: &str) -> Result<Link, ClusterError> {
        let connected = channel.connect(address, VISITOR).await;
        let unreachable = |why| ClusterError::Unreachable(address.into(), why);
        let (link, _) = connected.map_err(|error| unreachable(error.to_string()))?;
        Ok(Link { link, address: address.into() })
    }

    /// To a node that may have been started a moment ago.
    async fn to_new(channel: &dyn Channel, address: &str) -> Result<Link, ClusterError> {
        let until = Instant::now() + STARTS;
        loop {
            match Link::to(channel, address).await {
                Err(_) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
                settled => return settled,
            }
        }
    }

    async fn ask<T>(
        &mut self,
        request: &Request,
        within: Duration,
        read: fn(&mut Reader<'_>) -> Result<T, BadBytes>,
    ) -> Result<T, ClusterError> {
        let unreachable = |why| ClusterError::Unreachable(self.address.clone(), why);
        let request = request.to_bytes();
        let reply = match tokio::time::timeout(within, self.link.call(&request)).await {
            Err(_) => {
                let why = "no answer in time; it may have happened all the same";
                return Err(unreachable(why.into()));
            }
            Ok(reply) => reply.map_err(|error| unreachable(error.to_string()))?,
        };
        message::reply_from_bytes(&reply, read).map_err(ClusterError::Failed)
    }
}
