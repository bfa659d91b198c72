//! The lock rules at work: a file for each thing that can happen to a request. They extend
//! [`crate::Table`]; `blockers` is the question they all ask.

mod acquire;
mod admit;
mod alone;
mod blockers;
mod deadlock;
mod end;
mod keyed;
mod list;
mod promote;
mod settle;

pub use alone::Alone;

pub(crate) use acquire::lease_end;
pub(crate) use admit::{long, long_ms};
pub(crate) use blockers::{Asker, left};
