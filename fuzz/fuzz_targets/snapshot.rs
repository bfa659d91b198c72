//! Bytes of a snapshot: whatever they are, they are refused or make a sound table.
//! The body is in the lab, where the gate replays it on stable Rust.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| keylatch_lab::fuzz::snapshot(data));
