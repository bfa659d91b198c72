//! Published clients against the real server, in memory and durable: each script of `tests/clients`
//! is one test, and so is each example of the README. `scripts/setup` installs the clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The path of something in the repository.
fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The same, of something that `scripts/setup` puts there.
fn installed(path: &str) -> PathBuf {
    let found = here(path);
    assert!(found.exists(), "{path} is missing: run scripts/setup");
    found
}

fn node() -> Command {
    installed("tests/clients/node_modules/.stamp");
    Command::new("node")
}

/// What a server keeps, and where it listens.
struct Server {
    process: Child,
    data: Option<tempfile::TempDir>,
    resp: SocketAddr,
    enqueue: SocketAddr,
}

impl Server {
    fn start(durable: bool) -> Server {
        let data = durable.then(|| tempfile::tempdir().unwrap());
        let free = "127.0.0.1:0".parse().unwrap();
        let (process, resp, enqueue) = serve(data.as_ref(), free, free).expect("a server");
        Server { process, data, resp, enqueue }
    }

    /// Without a chance to say goodbye, and on the same ports.
    fn restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // A client that tries to connect may have been given one of the ports for its own end.
        for _ in 0..100 {
            if let Some((process, ..)) = serve(self.data.as_ref(), self.resp, self.enqueue) {
                self.process = process;
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the ports are taken");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Starts a server; `None` if it ends at once.
fn serve(
    data: Option<&tempfile::TempDir>,
    resp: SocketAddr,
    enqueue: SocketAddr,
) -> Option<(Child, SocketAddr, SocketAddr)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylatch"));
    let (resp, enqueue) = (resp.to_string(), enqueue.to_string());
    command.args(["serve", "--resp", &resp, "--enqueue", &enqueue, "--http", "off"]);
    match data {
        Some(dir) => command.arg("--data").arg(dir.path()),
        None => command.arg("--ephemeral"),
    };
    let mut process = command.env("KEYLATCH_LOG", "warn").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut after = |begin: &str| {
        lines.by_ref().find_map(|line| line.unwrap().trim().strip_prefix(begin)?.parse().ok())
    };
    let (Some(resp), Some(enqueue)) = (after("RESP on "), after("enqueue on ")) else {
        process.wait().unwrap();
        return None;
    };
    Some((process, resp, enqueue))
}

/// Runs a program to its end and returns what it said. Where it says `restart`, the server is.
fn run(mut command: Command, server: &mut Server) -> String {
    let kind = if server.data.is_some() { "durable" } else { "ephemeral" };
    let mut process = command
        .env("KEYLATCH_KIND", kind)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}: run scripts/setup"));
    let mut errors = process.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).unwrap();
        text
    });
    let mut input = process.stdin.take().unwrap();
    let mut said = String::new();
    for line in BufReader::new(process.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line == "restart" {
            server.restart();
            input.write_all(b"restarted\n").unwrap();
        } else {
            said += &line;
            said.push('\n');
        }
    }
    let (status, errors) = (process.wait().unwrap(), errors.join().unwrap());
    assert!(status.success(), "{command:?}, {kind} server: {status}\n{said}{errors}");
    said
}

/// Runs a script against both kinds of server, each new.
fn check(script: &str, program: impl Fn() -> Command) {
    for durable in [false, true] {
        let mut server = Server::start(durable);
        let mut command = program();
        let ports = [server.resp.port().to_string(), server.enqueue.port().to_string()];
        command.arg(here("tests/clients").join(script)).args(ports);
        let said = run(command, &mut server);
        assert!(said.ends_with("done\n"), "{script} ended early:\n{said}");
    }
}

#[test]
fn enqueue_client() {
    check("enqueue_client.js", node);
}

#[test]
fn ioredis() {
    check("ioredis.js", node);
}

#[test]
fn node_redis() {
    check("node_redis.js", node);
}

#[test]
fn redis_py() {
    check("redis_py.py", || Command::new(installed("tests/clients/.venv/bin/python")));
}

#[test]
fn redis_cli() {
    check("redis_cli.sh", || Command::new("bash"));
}

/// `enqueue_transcript.txt` is what every server of the protocol says to this client.
#[test]
fn enqueue_client_is_told_what_the_protocol_says() {
    let wanted = std::fs::read_to_string(here("tests/clients/enqueue_transcript.txt")).unwrap();
    for durable in [false, true] {
        let mut server = Server::start(durable);
        let mut command = node();
        command.arg(here("tests/clients/enqueue_transcript.js"));
        command.arg(server.enqueue.port().to_string());
        let said = run(command, &mut server);
        for (at, (said, wanted)) in said.lines().zip(wanted.lines()).enumerate() {
            assert_eq!(said, wanted, "line {}", at + 1);
        }
        assert_eq!(said.lines().count(), wanted.lines().count());
    }
}

/// The code blocks of the README in this language.
fn readme(language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(here("README.md")).unwrap();
    let begin = format!("\n```{language}\n");
    let blocks = text.split(&begin).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_string()).collect()
}

#[test]
fn the_enqueue_example_of_the_readme_works_as_written() {
    let [example] = &readme("js")[..] else { panic!("there is one example in JavaScript") };
    let install = readme("sh").concat();
    assert!(install.contains("npm install enqueue-client\n"), "it says how to get the client");
    assert!(example.contains("3721"), "the default port is there to be replaced");
    let mut server = Server::start(false);
    let example = example.replace("3721", &server.enqueue.port().to_string());
    // Found from there: packages are looked up from the folder that Node is run in.
    let mut command = node();
    command.current_dir(here("tests/clients")).args(["-e", &example]);
    assert_eq!(run(command, &mut server), "locked\nreleased\n");
    // Somebody has it: that is said too.
    let mut taken = Command::new("redis-cli");
    let port = server.resp.port().to_string();
    taken.args(["-p", &port, "LOCK", "product", "ARG", "2", "Computer", "@", "OWNER", "bob"]);
    assert!(run(taken, &mut server).contains("granted"));
    let mut command = node();
    let impatient = example.replace("waitTime: 5000", "waitTime: 50");
    assert_ne!(impatient, example, "it waits for 5 s");
    command.current_dir(here("tests/clients")).args(["-e", &impatient]);
    assert_eq!(run(command, &mut server), "bob has it\n");
}

#[test]
fn the_redis_cli_lines_of_the_readme_work_as_written() {
    let blocks = readme("sh").concat();
    let lines: Vec<&str> = blocks.lines().filter(|line| line.starts_with("redis-cli ")).collect();
    let mut server = Server::start(false);
    let port = format!("-p {}", server.resp.port());
    let mut said = String::new();
    for line in &lines {
        assert!(line.contains("-p 5625"), "{line}: the default port is there to be replaced");
        let mut command = Command::new("bash");
        command.args(["-ec", &line.replace("-p 5625", &port)]);
        said += &run(command, &mut server);
    }
    assert!(lines.len() >= 2, "{lines:?}");
    assert!(said.starts_with("status\ngranted\n"), "{said}");
    assert!(said.contains("user:42\n") && said.contains("ann\n"), "{said}");
    assert!(said.ends_with("1\n"), "it is released: {said}");
    assert!(!said.contains("ERR") && !said.contains("SYNTAX"), "{said}");
}

#[test]
fn the_first_command_of_the_readme_is_the_server() {
    let [start, ..] = &readme("sh")[..] else { panic!("it says how to start") };
    let commands: Vec<&str> =
        start.lines().map(|line| line.split('#').next().unwrap().trim()).collect();
    assert_eq!(commands, ["cargo run --release -- serve", "scripts/test"], "two, and no third");
}
