//! The log: what makes changes durable before anyone is told of them. The one seam of the server.

pub(crate) mod channel;
pub(crate) mod raft;
pub(crate) mod store;

pub use raft::NodeError;
