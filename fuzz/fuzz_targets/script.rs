//! Bytes that choose commands from small alphabets, so that deep states are reached.
//! The body is in the lab, where the gate replays it on stable Rust.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| keylatch_lab::fuzz::script(data));
