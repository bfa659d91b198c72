//! For the fuzzer only (feature `fuzzing`): the parsers of the enqueue protocol and of HTTP,
//! which are private.
//! `crates/lab` replays their corpus in the gate, `fuzz/` runs them under coverage.

pub use crate::listener::enqueue::fuzz as enqueue;
pub use crate::listener::http::fuzz as http;
