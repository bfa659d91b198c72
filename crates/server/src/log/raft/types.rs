//! What Raft carries for us.

use std::fmt;
use std::sync::Arc;

use keylatch_table::Applied;

openraft::declare_raft_types!(
    /// Batches of commands in, their outcomes out.
    pub(crate) Types:
        D = Changes,
        R = Vec<Applied>,
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
    /// The commands' bytes, each behind its length.
    pub(crate) commands: Arc<[u8]>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "changes at {} ({} bytes)", self.at, self.commands.len())
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
