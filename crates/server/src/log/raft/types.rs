//! What Raft carries for us.

use std::fmt;
use std::sync::Arc;

use keylatch_table::Applied;

use super::runtime::Runtime;

openraft::declare_raft_types!(
    /// Batches of commands in, their outcomes out.
    pub(crate) Types:
        D = Changes,
        R = Vec<Applied>,
        AsyncRuntime = Runtime,
);

pub(crate) type Raft = openraft::Raft<Types, super::machine::Machine>;
pub(crate) type Entry = openraft::alias::EntryOf<Types>;
pub(crate) type LogId = openraft::alias::LogIdOf<Types>;
pub(crate) type Vote = openraft::alias::VoteOf<Types>;
pub(crate) type Membership = openraft::Membership<u64, openraft::BasicNode>;
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<Types>;

/// Commands that commit together and happen at one time.
#[derive(Clone)]
pub(crate) struct Changes {
    /// Table time, stamped by the leader.
    pub(crate) at: u64,
    pub(crate) source: Source,
    /// The commands' bytes, each behind its length.
    pub(crate) commands: Arc<[u8]>,
}

/// Who asked for changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The leader itself, or a node that is alone.
    Leader,
    /// A member, for its connections.
    Member(Stamp),
    /// The leader, because this member cannot be reached: whoever waits there is detached.
    Gone(u64),
}

/// Names a batch of a member, so that it counts once, however often it had to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) node: u64,
    /// Which life of that node; it grows with each start.
    pub(crate) incarnation: u64,
    /// Which batch of that life, from 1.
    pub(crate) number: u64,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Changes { at, source, commands } = self;
        write!(f, "changes at {at} of {source:?} ({} bytes)", commands.len())
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
