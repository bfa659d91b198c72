//! What a client may send to the RESP port, in pieces.
//! The body is in the lab, where the gate replays it on stable Rust.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| keylatch_lab::fuzz::resp(data));
