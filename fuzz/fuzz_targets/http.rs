//! What a client may send to the HTTP port, in pieces.
//! The body is in the server, whose parser is private; the lab replays it on stable Rust.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| keylatch_server::fuzzing::http(data));
