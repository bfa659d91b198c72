//! Commands over a server that wants to know who they are: tokens from the URL and the environment,
//! and what is said to whoever has none.

mod common;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use common::cli::{Cli, Done, Running, eventually};
use keylatch_server::{Config, Server, Stop};

/// A server with an access file; it stops when it is dropped.
struct Guarded {
    dir: tempfile::TempDir,
    address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    /// The token of somebody who may do everything with names that begin with `a:`.
    token: String,
}

impl Guarded {
    fn start() -> Guarded {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("access.toml");
        let rights = ["--prefix", "a:", "--right", "shared,exclusive,observe"];
        let token = desk(&file, &[&["create", "ann"], &rights[..]].concat());
        let config = Config {
            resp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            enqueue: None,
            http: None,
            access: Some(file),
            ..Config::default()
        };
        let server = Server::bind(config).unwrap();
        let (address, stop) = (server.addresses().resp.unwrap(), server.stopper());
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        Guarded { dir, address, stop, thread, token }
    }

    fn revoke(&self) {
        let id = self.token.split('_').nth(1).unwrap();
        desk(&self.dir.path().join("access.toml"), &["revoke", id]);
    }

    /// Without a token in the URL.
    fn cli(&self) -> Cli {
        Cli::at(format!("keylatch://{}", self.address))
    }

    /// With one in the environment.
    fn run(&self, token: &str, words: &[&str]) -> Done {
        self.start_run(token, words).done()
    }

    fn start_run(&self, token: &str, words: &[&str]) -> Running {
        let mut command = self.cli().command(words);
        command.env("KEYLATCH_AUTH", token);
        Running::start(command)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// `keylatch token`; what it says.
fn desk(file: &PathBuf, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylatch"));
    command.arg("token").args(words).env("KEYLATCH_ACCESS", file).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// It failed for this reason, as any other error, and does not say the token.
fn denied(done: &Done, reason: &str) {
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("not allowed: ") && done.err.contains(reason), "{done:?}");
    assert!(!format!("{done:?}").contains("klt_"), "{done:?}");
}

#[test]
fn commands_have_their_token_from_the_url_or_the_environment() {
    let server = Guarded::start();
    let locked = server.run(&server.token, &["lock", "a:1", "--owner", "ann"]);
    assert_eq!(locked.code, Some(0), "{locked:?}");
    let id = locked.out.split(' ').next().unwrap();
    let busy = server.run(&server.token, &["lock", "a:1"]);
    assert_eq!(busy.code, Some(75), "{busy:?}");
    let url = format!("keylatch://:{}@{}", server.token, server.address);
    let listed = server.run("klt_1_wrong", &["ls", "--url", &url]);
    assert_eq!(listed.code, Some(0), "the URL wins: {listed:?}");
    assert!(listed.out.contains("a:1"), "{listed:?}");
    let unlocked = Cli::at(url).run(&["unlock", id]);
    assert_eq!(unlocked.code, Some(0), "{unlocked:?}");
}

#[test]
fn whoever_may_not_is_told_so_and_nothing_runs() {
    let server = Guarded::start();
    let run = ["run", "b:1", "--", "echo", "ran"];
    denied(&server.cli().run(&["ls"]), "KEYLATCH_AUTH");
    denied(&server.run("klt_1_wrong", &["ls"]), "this token is not known");
    denied(&server.run("klt_1_wrong", &run), "this token is not known");
    denied(&server.run(&server.token, &["lock", "b:1"]), "`exclusive`");
    denied(&server.run(&server.token, &["watch"]), "`observe`");
    let ran = server.run(&server.token, &run);
    denied(&ran, "`exclusive`");
    assert_eq!(ran.out, "");
    let json = server.run(&server.token, &["lock", "b:1", "-o", "json"]);
    assert!(json.err.contains(r#""status":"denied""#), "{json:?}");
    let json = server.run("klt_1_wrong", &["ls", "-o", "json"]);
    assert!(json.err.contains(r#""status":"denied""#), "{json:?}");
}

#[test]
fn a_command_under_a_lock_has_both_tokens() {
    let server = Guarded::start();
    let command = format!("echo $KEYLATCH_TOKEN; {} ls", env!("CARGO_BIN_EXE_keylatch"));
    let words = ["run", "a:1", "--", "sh", "-c", &command];
    let ran = server.run(&server.token, &words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.lines().next().unwrap().parse::<u64>().is_ok(), "{ran:?}");
    assert!(ran.out.contains("a:1"), "{ran:?}");
    let url = format!("keylatch://:{}@{}", server.token, server.address);
    let ran = Cli::at(url).run(&words);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("a:1"), "{ran:?}");
}

#[test]
fn a_command_is_stopped_when_its_lock_cannot_be_renewed_for_want_of_a_token() {
    let server = Guarded::start();
    let running = server.start_run(
        &server.token,
        &["run", "a:1", "--lease", "2s", "-o", "json", "--", "sleep", "600"],
    );
    eventually("it runs", || running.has_said("granted"));
    server.revoke();
    let done = running.done();
    assert_eq!(done.code, Some(76), "{done:?}");
    assert!(!format!("{done:?}").contains("klt_"), "{done:?}");
}
