//! Tasks on record stores: each is one record, which a claim takes in one step and everything else
//! changes by compare and swap. The rules are those of the table: what was read becomes a small table, the
//! command is applied to it, and what then stands is written if nobody has written meanwhile.
//!
//! - `store`: what a store has to do. `contract`: the same as tests.
//! - `format`: records as bytes, and back.
//! - `decide`: from what was read to what is to be written.
//! - `driver`: the strategy. `known`: records that need not be read.
//! - `wait`: claims that wait, woken by what the store tells.

#[cfg(test)]
pub(super) mod contract;
mod decide;
mod driver;
mod format;
mod known;
pub(super) mod store;
mod wait;

pub(super) use driver::Tasks;
