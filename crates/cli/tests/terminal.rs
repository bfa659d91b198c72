//! `keylatch run` at a terminal. The scenarios are in `terminal.py`: a controlling terminal cannot be
//! had in Rust without unsafe code, and Python's standard library has it.

mod common;

use std::process::Command;

use common::Start;

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { play(stringify!($name)); })* };
}

scenarios![
    a_command_reads_what_is_typed,
    it_also_reads_if_it_does_so_at_once,
    interrupting_interrupts_the_command,
    interrupting_ends_the_script_around_it,
    it_is_stopped_and_continued_as_one_job,
    in_the_background_it_stops_when_it_wants_the_terminal,
    a_killed_command_leaves_the_terminal_as_it_was,
];

fn play(scenario: &str) {
    let server = Start::ephemeral().start();
    let url = format!("keylatch://{}", server.resp);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/terminal.py");
    let mut python = Command::new("python3");
    python.args([script, env!("CARGO_BIN_EXE_keylatch"), &url, scenario]);
    let output = python.output().expect("python3 is missing: scripts/setup installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
