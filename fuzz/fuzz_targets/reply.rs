//! What a server may send to a client, and what it writes.
//! The body is in the lab, where the gate replays it on stable Rust.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| keylatch_lab::fuzz::reply(data));
