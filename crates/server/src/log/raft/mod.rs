//! The log as a Raft log, also of one node: growing to several changes no file and no path. This is
//! the only folder that knows openraft.
//!
//! - `types`: what is in the log: a batch of commands and the time at which they happen.
//! - `bytes`: those as bytes.
//! - `storage`: the log on disk (`log/store`), with all live entries in memory.
//! - `machine`: the table as Raft's state machine.
//! - `snapshot`: snapshots as files.
//! - `node`: opening, recovering, committing, for a node that is alone.
//!
//! And of a member of a cluster, in the order in which a batch meets them:
//!
//! - `desk`: where the loop leaves a batch and finds what became of it.
//! - `carry`: brings it to whoever leads, again and again.
//! - `message`, `peers`, `network`, `service`: what members say, over which lines, and what they answer.
//! - `lead`: what a leader does with it, and what else a leader does.
//! - `origins`: why it counts once, and who waits where.
//! - `member`: the thread on which all of this runs; `identity`, `join`, `waiting`: who it is and how it came
//!   to be one.
//! - `look`: how the cluster looks from here; `visit`: what an operator asks; `backup`: a snapshot in a file of its own; `offers`: how it
//!   is fetched; `found`: a new cluster of it, or of nothing.
//! - `runtime`, `watch`: tokio as openraft gets it. `outside`: chance and threads; `sim`: several members in a world that follows from a seed.

pub(crate) mod backup;
mod bytes;
mod carry;
mod desk;
pub(crate) mod found;
mod identity;
mod join;
mod lead;
mod look;
mod machine;
mod member;
mod message;
mod network;
mod node;
mod offers;
mod origins;
mod outside;
mod peers;
mod runtime;
mod service;
#[cfg(test)]
pub(crate) mod sim;
mod snapshot;
mod storage;
#[cfg(test)]
mod suite;
mod types;
pub(crate) mod visit;
mod waiting;
mod watch;

pub(crate) use desk::{Desk, Told};
pub(crate) use look::{Seen, View};
pub(crate) use member::{Life, Member, Start};
pub(crate) use node::Node;
pub use node::NodeError;
pub(crate) use waiting::whom_to_join;
