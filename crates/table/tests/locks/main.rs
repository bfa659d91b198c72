//! What `docs/semantics.md` says about locks, sentence by sentence.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod aliases;
mod bounds;
mod deadlock;
mod detach;
mod each;
mod errors;
mod ids;
mod keyed;
mod lease;
mod listing;
mod modes;
mod promote;
mod release;
mod repeats;
mod several;
mod step;
mod waiting;
