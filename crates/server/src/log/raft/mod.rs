//! The log as a Raft log, also of one node: growing to several changes no file and no path. This is
//! the only folder that knows openraft.
//!
//! - `types`: what is in the log: a batch of commands and the time at which they happen.
//! - `bytes`: those as bytes.
//! - `storage`: the log on disk (`log/store`), with all live entries in memory.
//! - `machine`: the table as Raft's state machine.
//! - `snapshot`: snapshots as files.
//! - `node`: opening, recovering, committing.

mod bytes;
mod machine;
mod node;
mod snapshot;
mod storage;
#[cfg(test)]
mod suite;
mod types;

pub(crate) use node::Node;
pub use node::NodeError;
