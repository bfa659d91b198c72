//! What the contract (section 5) and `docs/semantics.md` say about tasks, sentence by sentence.

#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod bounds;
mod claims;
mod lease;
mod lists;
mod repeats;
mod waiting;
mod writes;
