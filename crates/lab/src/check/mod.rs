//! Exhaustive model checking of the real lock table: every interleaving of a few requests, with
//! wildcards, all modes, pairs, promotion, waits, leases and detached connections, explored with
//! `stateright`, and every step held against rules that are written down here a second time.
//!
//! How a step meets the code: `action` (what can be done next) -> `subject` (the table, perhaps
//! with a planted fault) -> `replay` (what it told, checked and written into the `book`) ->
//! `listing` (what it shows, compared with the book) -> `fault` (which promise is broken). `rule`
//! and `cycle` are the rules, `worlds` the worlds, `run` the way in.
//!
//! "Exhaustive" means: of all states that differ in anything a command could be answered
//! differently for (see `book` for what is left out and why). What the table keeps *beside* that,
//! above all which of its blockers a waiter is parked on, does not make a state different unless
//! the world says so (see `parking`, also for what even that leaves out); the table's own
//! invariants are checked after every single step all the same.

pub mod action;
pub mod book;
pub mod coverage;
mod cycle;
mod drain;
pub mod fault;
mod listing;
mod parking;
pub mod plant;
mod replay;
pub mod rule;
pub mod run;
pub mod step;
mod subject;
pub mod world;
pub mod worlds;

pub use plant::Plant;
pub use run::{Outcome, explore, explore_planted};
pub use worlds::{Size, worlds};
