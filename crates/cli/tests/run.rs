//! `keylatch run` as its callers see it: the real binary over a real server.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use common::cli::{Cli, Running, eventually, number_in, signal, state_of};
use common::{Server, Start, token};

fn start() -> (Server, Cli) {
    let server = Start::ephemeral().start();
    let cli = Cli::over(&server);
    (server, cli)
}

#[test]
fn the_exit_code_is_that_of_the_command_and_the_lock_is_free_after_it() {
    let (_server, cli) = start();
    for (command, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "kill -KILL $$"], 128 + 9),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["/etc/passwd"], 126),
        (&["/nowhere/at-all"], 127),
        (&["no-such-command-anywhere"], 127),
    ] {
        let done = cli.run(&[&["run", "k", "--wait", "0", "--"], command].concat());
        assert_eq!(done.code, Some(code), "{command:?}: {done:?}");
        let is_ours = matches!(code, 126 | 127);
        assert_eq!(!done.err.is_empty(), is_ours, "{command:?}: {done:?}");
    }
}

#[test]
fn the_command_knows_its_lock() {
    let (server, cli) = start();
    let script = "echo $KEYLATCH_KEY; echo $KEYLATCH_TOKEN; echo $KEYLATCH_ID; cat";
    let done = cli.run(&["run", "product", "--arg", "a", "--arg", "@", "--", "sh", "-c", script]);
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "product(a,@)"), "{done:?}");
    let token: i64 = lines[1].parse().unwrap();
    assert!(server.client().lock("product") > token);
    let status = server.client().say(&format!("RENEW {}", lines[2]));
    assert_eq!(common::text(&status, "cause"), "released", "{status:?}");
}

#[test]
fn a_lock_that_is_not_free_is_75() {
    let (server, cli) = start();
    server.client().lock("k OWNER ann");
    for (options, code, reason) in [
        (&["--wait", "0"][..], 75, "busy: ann has it"),
        (&["--wait", "50ms"], 75, "not free in time: ann has it"),
        (&["--wait", "0", "-E", "9"], 9, "busy"),
        (&["--wait", "50ms", "--shared", "-E", "0"], 0, "not free in time"),
        (&["--wait", "0", "-o", "json"], 75, "\"status\":\"busy\""),
        (&["--wait", "50ms", "-o", "json"], 75, "\"status\":\"timeout\""),
    ] {
        let done = cli.run(&[&["run", "k"], options, &["--", "echo", "ran"]].concat());
        assert_eq!((done.code, &*done.out), (Some(code), ""), "{options:?}: {done:?}");
        assert!(done.err.contains(reason), "{options:?}: {done:?}");
    }
    assert_eq!(cli.run(&["run", "k", "--wait", "0", "--mode", "E", "--", "true"]).code, Some(75));
}

/// 29: a wrapper command hides its child's exit code, kills only the shell, or lets the child run on
/// after the lease has ended. The first is tested above, the others here.
#[test]
fn bug_29_a_lost_lock_ends_the_command_and_all_that_it_started() {
    let (server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    let pids = ["shell", "deaf"].map(|name| dir.path().join(name));
    let [shell, deaf] = pids.each_ref().map(|path| path.to_str().unwrap());
    // One that does not hear TERM, in the background of a shell that goes with it.
    let script = format!(
        "(trap '' TERM; sh -c 'echo $PPID' > {deaf}.tmp; mv {deaf}.tmp {deaf}; while :; do sleep 1; done) & \
         echo $$ > {shell}; wait"
    );
    let mut run = cli.start(&["run", "k", "--owner", "ann", "--", "sh", "-c", &script]);
    let processes = pids.each_ref().map(|path| number_in(path));
    assert!(processes.iter().all(|process| state_of(*process).is_some()));
    assert!(!run.has_ended());
    let mut client = server.client();
    let token = common::number(&client.list("NAME k")[0], "token");
    client.say(&format!("REVOKE {token} REASON enough"));
    let done = run.done();
    assert_eq!(done.code, Some(76), "{done:?}");
    assert!(done.err.contains("it was revoked (enough)"), "{done:?}");
    eventually("all have ended", || processes.iter().all(|it| state_of(*it).is_none()));
}

/// The same number, for a lease that ends because nobody is reached. The server says when it ended.
#[test]
fn bug_29_the_command_has_ended_before_the_lease_has() {
    let (server, _) = start();
    let way = Way::to(server.resp);
    let cli = Cli::at(format!("keylatch://{}", way.address));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("trap '' TERM; echo $$ > {}; while :; do sleep 1; done", file.display());
    let run = cli.start(&["run", "k", "--lease", "8s", "--", "sh", "-c", &script]);
    let process = number_in(&file);
    way.cut();
    let granted = server.client().say("LOCK k WAIT 50000");
    assert_eq!(state_of(process), None, "it runs, and somebody else has the lock");
    token(&granted);
    let done = run.done();
    assert_eq!(done.code, Some(76), "{done:?}");
    assert!(done.err.contains("about to end"), "{done:?}");
}

#[test]
fn a_longest_hold_ends_the_command() {
    let (server, cli) = start();
    let words = ["run", "k", "--max-hold", "600ms", "--", "sh", "-c", "sleep 600"];
    let done = cli.run(&words);
    assert_eq!(done.code, Some(76), "{done:?}");
    server.client().lock("k");
}

#[test]
fn signals_are_passed_on() {
    let (server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    for (name, code) in [("INT", 41), ("TERM", 42), ("HUP", 43), ("QUIT", 44)] {
        let file = dir.path().join(name);
        let script = format!(
            "trap 'exit {code}' {name}; echo $$ > {}; while :; do sleep 0.05; done",
            file.display()
        );
        let run = cli.start(&["run", "k", "--wait", "0", "--", "sh", "-c", &script]);
        number_in(&file);
        run.signal(name);
        let done = run.done();
        assert_eq!(done.code, Some(code), "{name}: {done:?}");
    }
    // Without a trap it ends the command, and the lock is free.
    let file = dir.path().join("plain");
    let script = format!("echo $$ > {}; exec sleep 600", file.display());
    let run = cli.start(&["run", "k", "--wait", "0", "--", "sh", "-c", &script]);
    let process = number_in(&file);
    run.signal("TERM");
    assert_eq!(run.done().code, Some(128 + 15));
    assert_eq!(state_of(process), None);
    server.client().lock("k");
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let (_server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script =
        format!("echo $$ > {}; while [ ! -e {0}.go ]; do sleep 0.05; done", file.display());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_keylatch")]);
    let inner = cli.command(&["run", "k", "--", "sh", "-c", &script]);
    command.args(inner.get_args());
    for (name, value) in inner.get_envs() {
        command.env(name, value.unwrap());
    }
    let run = Running::start(command);
    let process = number_in(&file);
    run.signal("HUP");
    signal(process, "HUP");
    std::fs::write(dir.path().join("pid.go"), "").unwrap();
    let done = run.done();
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// A command must not run on while nobody renews its lease.
#[test]
fn stopping_the_wrapper_stops_the_command() {
    let (_server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script =
        format!("echo $$ > {}; while [ ! -e {0}.go ]; do sleep 0.05; done; exit 5", file.display());
    let run = cli.start(&["run", "k", "--lease", "10m", "--", "sh", "-c", &script]);
    let process = number_in(&file);
    run.signal("TSTP");
    eventually("both are stopped", || {
        [run.id(), process].iter().all(|process| state_of(*process) == Some('T'))
    });
    std::fs::write(dir.path().join("pid.go"), "").unwrap();
    run.signal("CONT");
    let done = run.done();
    assert_eq!(done.code, Some(5), "{done:?}");
}

#[test]
fn a_signal_while_it_waits_withdraws_the_request() {
    let (server, cli) = start();
    let mut client = server.client();
    client.lock("k");
    let run = cli.start(&["run", "k", "--", "echo", "ran"]);
    eventually("it waits", || client.list("WAITERS").len() == 2);
    // Job control does not end it.
    run.signal("CONT");
    run.signal("TERM");
    let done = run.done();
    assert_eq!((done.code, &*done.out), (Some(128 + 15), ""), "{done:?}");
    assert_eq!(client.list("WAITERS").len(), 1);
}

#[test]
fn it_waits_and_says_for_whom() {
    let (server, cli) = start();
    let mut client = server.client();
    client.lock("k OWNER ann ID secret");
    let text = cli.start(&["run", "k", "--verbose", "--", "echo", "ran"]);
    let json = cli.start(&["run", "k", "-v", "-o", "json", "--owner", "bob", "--", "echo", "ran"]);
    eventually("both wait", || client.list("WAITERS").len() == 3);
    eventually("both have said so", || {
        text.has_said("ann has it (X) for ") && json.has_said("\"ann\"")
    });
    client.say("UNLOCK secret");
    let (text, json) = (text.done(), json.done());
    assert_eq!((text.code, &*text.out), (Some(0), "ran\n"), "{text:?}");
    assert!(
        text.err.contains("waiting for k (") && text.err.contains("ann has it (X) for "),
        "{text:?}"
    );
    assert_eq!((json.code, &*json.out), (Some(0), "ran\n"), "{json:?}");
    let first: serde_json::Value = serde_json::from_str(json.err.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["status"], &first["holders"][0]["owner"]),
        (&"waiting".into(), &"ann".into())
    );
    assert!(!json.err.contains("secret"), "{json:?}");
    // Without either there is nothing to say.
    assert_eq!(cli.run(&["run", "k", "--", "true"]).err, "");
}

#[test]
fn two_runs_exclude_each_other() {
    let (_server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("count");
    std::fs::write(&file, "0\n").unwrap();
    let script = format!("n=$(cat {0}); sleep 0.05; echo $((n + 1)) > {0}", file.display());
    let runs: Vec<Running> =
        (0..8).map(|_| cli.start(&["run", "k", "--", "sh", "-c", &script])).collect();
    for run in runs {
        let done = run.done();
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    assert_eq!(number_in(&file), 8);
}

/// A way to the server that can be cut.
struct Way {
    address: SocketAddr,
    /// Both ends of what goes over it; `None` once it is cut.
    streams: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Way {
    fn to(server: SocketAddr) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let streams = Arc::new(Mutex::new(Some(Vec::new())));
        let shared = Arc::clone(&streams);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Some(streams) = &mut *shared.lock().unwrap() else { return };
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    streams.push(from.try_clone().unwrap());
                    std::thread::spawn(move || carry(from, to));
                }
            }
        });
        Way { address, streams }
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().take().unwrap() {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut room = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut room) {
        if to.write_all(&room[..count]).is_err() {
            return;
        }
    }
}
