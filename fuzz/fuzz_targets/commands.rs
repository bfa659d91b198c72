//! Bytes of commands: decoding them, and what the table does with them beside the model.
//! The body is in the lab, where the gate replays it on stable Rust.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| keylatch_lab::fuzz::commands(data));
