//! What an operator is told of a cluster, and asks of it.

use crate::certificates::TlsError;
use crate::config::TlsFiles;
use crate::log::raft::visit;

/// A cluster, as one of its nodes sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Names the cluster; no other has the same.
    pub cluster: u128,
    /// The node that says this.
    pub node: u64,
    /// Who leads, if that is known.
    pub leader: Option<u64>,
    /// How often there may have been another leader.
    pub term: u64,
    /// The index of the last entry that this node has applied.
    pub applied: u64,
    /// All nodes.
    pub members: Vec<MemberStatus>,
}

/// One node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its number.
    pub node: u64,
    /// Where its peers find it.
    pub address: String,
    /// What it is.
    pub role: Role,
    /// Up to which entry it has the log, if the one who says this leads and knows.
    pub matched: Option<u64>,
}

/// A table in short: two members that have applied as much have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The index of the last entry that is applied.
    pub applied: u64,
    /// Of everything that is in the table then.
    pub hash: u64,
}

/// What a node is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its disk counts.
    Voter,
    /// It is catching up.
    Learner,
}

/// Why something that was asked of a cluster was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Nobody is there.
    #[error("{0}: {1}. Is this the peer address of a member?")]
    Unreachable(String, String),
    /// Nobody can decide.
    #[error("no member leads now: is a majority of them running? Try again")]
    NoLeader,
    /// A certificate, most likely.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// It was not done, and why.
    #[error("{0}")]
    Failed(String),
}

/// Asks a member, at its peer address.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Where: `HOST:PORT`, or a URL of a Redis with the name of the node (`&node=NAME`).
    pub peer: String,
    /// How members know each other, if they do.
    pub tls: Option<TlsFiles>,
}

impl Visit {
    /// Of a cluster without TLS between its members.
    pub fn plainly(peer: &impl ToString) -> Visit {
        Visit { peer: peer.to_string(), tls: None }
    }

    /// How the cluster looks from there.
    pub fn status(&self) -> Result<Status, ClusterError> {
        visit::status(self)
    }

    /// The table of that member. It takes it as long as a snapshot.
    pub fn fingerprint(&self) -> Result<Fingerprint, ClusterError> {
        visit::fingerprint(self)
    }

    /// Takes a node out of the cluster; it may be one that is gone for good.
    pub fn remove(&self, node: u64) -> Result<(), ClusterError> {
        visit::remove(self, node)
    }

    /// Has another node lead.
    pub fn transfer(&self, node: u64) -> Result<(), ClusterError> {
        visit::transfer(self, node)
    }
}
