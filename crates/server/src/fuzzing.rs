//! For the fuzzer only (feature `fuzzing`): the parser of the enqueue protocol, which is private.
//! `crates/lab` replays its corpus in the gate, `fuzz/` runs it under coverage.

pub use crate::listener::enqueue::fuzz as enqueue;
