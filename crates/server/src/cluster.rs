//! What an operator is told of a cluster, and asks of it.

use std::io;
use std::path::{Path, PathBuf};

use crate::NodeError;
use crate::certificates::TlsError;
use crate::config::TlsFiles;
use crate::log::raft::{backup, found, visit};

/// A cluster, as one of its nodes sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Names the cluster; no other has the same.
    pub cluster: u128,
    /// The node that says this.
    pub node: u64,
    /// What that node does.
    pub state: State,
    /// Who leads, if that is known: nobody whom this node does not hear, and not itself without a majority.
    pub leader: Option<u64>,
    /// How long ago this node heard a leader; `None` if it leads itself, or has heard none since it was
    /// started.
    pub heard_ms: Option<u64>,
    /// Of a leader, whether a majority answers it; true of others.
    pub majority: bool,
    /// How often there may have been another leader.
    pub term: u64,
    /// The index of the last entry in the log of this node.
    pub last_log: u64,
    /// The index of the last entry that this node has applied.
    pub applied: u64,
    /// The index of the last entry that is in its snapshot.
    pub snapshot: u64,
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
    /// How long ago it has answered, if the one who says this leads and has asked it.
    pub heard_ms: Option<u64>,
}

/// What a node does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It leads.
    Leader,
    /// It follows whoever leads, and votes.
    Follower,
    /// It wants to lead.
    Candidate,
    /// It gets the log, and does not vote yet.
    Learner,
    /// It is no member: not yet, or not any more.
    Stranger,
}

impl State {
    /// All of them.
    pub const ALL: [State; 5] =
        [State::Leader, State::Follower, State::Candidate, State::Learner, State::Stranger];

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            State::Leader => "leader",
            State::Follower => "follower",
            State::Candidate => "candidate",
            State::Learner => "learner",
            State::Stranger => "stranger",
        }
    }
}

impl Status {
    /// As JSON. Numbers of nodes are text: they are larger than what JSON readers take for whole numbers.
    pub fn to_json(&self) -> serde_json::Value {
        let members = self.members.iter().map(|member| {
            serde_json::json!({
                "node": member.node.to_string(),
                "peer": member.address,
                "role": member.role.word(),
                "leads": self.leader == Some(member.node),
                "matched": member.matched,
                "heard_ms": member.heard_ms,
            })
        });
        serde_json::json!({
            "cluster": format!("{:032x}", self.cluster),
            "node": self.node.to_string(),
            "state": self.state.word(),
            "leader": self.leader.map(|leader| leader.to_string()),
            "leader_heard_ms": self.heard_ms,
            "majority": self.majority,
            "term": self.term,
            "last_log": self.last_log,
            "applied": self.applied,
            "snapshot": self.snapshot,
            "members": members.collect::<Vec<_>>(),
        })
    }
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

impl Role {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Role::Voter => "voter",
            Role::Learner => "learner",
        }
    }
}

/// A backup, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The cluster that it is of; 0 of a server that was alone.
    pub cluster: u128,
    /// The node that it was made of.
    pub node: u64,
    /// When, in milliseconds since 1970, by the clock of whoever made it.
    pub made_ms: u64,
    /// The term of the last entry of the log that is in it.
    pub term: u64,
    /// The index of that entry.
    pub index: u64,
    /// How long the file is.
    pub bytes: u64,
    /// The last token that was given.
    pub token: u64,
    /// Requests that hold.
    pub held: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Tasks.
    pub tasks: u64,
}

/// A new cluster of one node, which has not been started yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Founded {
    /// Names it.
    pub cluster: u128,
    /// Its node.
    pub node: u64,
    /// Tokens are larger than this.
    pub token: u64,
}

/// Why there is no backup, or nothing was made of it.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// Read or write.
        doing: &'static str,
        /// Which one.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It does not begin as one.
    #[error(
        "{} is no backup: `keylatch cluster snapshot` makes one, also of a data directory (--from-data)",
        .0.display()
    )]
    NotABackup(PathBuf),
    /// It is not as it was written.
    #[error("the backup {} is damaged ({what}), so nothing was made of it: take another one", path.display())]
    Damaged {
        /// Which one.
        path: PathBuf,
        /// What of it.
        what: &'static str,
    },
    /// Something is there that would be lost.
    #[error("{} is not empty: a new cluster needs a directory of its own", .0.display())]
    NotEmpty(PathBuf),
    /// Nothing is there.
    #[error("{} is not the data directory of a server, or nothing is in it yet", .0.display())]
    NoData(PathBuf),
    /// What is there cannot be read.
    #[error("{}: {error}", dir.display())]
    Data {
        /// Where.
        dir: PathBuf,
        /// Why.
        error: NodeError,
    },
    /// The member that was asked for it.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Something else.
    #[error("{0}")]
    Refused(String),
}

/// A backup of the data directory of a server that does not run.
pub fn back_up_data(dir: &Path, file: &Path) -> Result<Backup, BackupError> {
    backup::of_data(dir, file)
}

/// A new cluster of one node in an empty directory.
pub fn init(dir: &Path) -> Result<Founded, BackupError> {
    found::init(dir)
}

/// A new cluster of one node in an empty directory, with the locks and tasks of a backup.
pub fn restore(file: &Path, dir: &Path) -> Result<(Backup, Founded), BackupError> {
    found::restore(file, dir)
}

/// Why something that was asked of a cluster was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Nobody is there.
    #[error("{0}: {1} (is this the peer address of a member?)")]
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

    /// Has a node that was started with `--join wait` join, and waits until it votes; its number.
    pub fn add(&self, address: &str) -> Result<u64, ClusterError> {
        visit::add(self, address)
    }

    /// A backup of everything that was acknowledged before this is asked.
    pub fn snapshot(&self, file: &Path) -> Result<Backup, BackupError> {
        visit::snapshot(self, file)
    }
}
