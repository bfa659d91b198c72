//! What `docs/semantics.md` says about tasks, sentence by sentence.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod claims;
mod lease;
mod lists;
mod repeats;
mod standing;
mod waiting;
mod writes;
