//! The command line of `keylatch serve`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

fn keylatch(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_keylatch")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_configuration_is_checked_with_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keylatch.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).unwrap();
        keylatch(&["serve", "--check", "--config", file.to_str().unwrap()])
    };
    let good =
        "resp = \"127.0.0.1:7000\"\nenqueue = \"off\"\nephemeral = true\n[settings]\nwaiters = 5\n";
    assert_eq!(check(good), (true, "the configuration is valid\n".into()));
    for (text, reason) in [
        ("resp = \"0.0.0.0:1\"", "0.0.0.0:1 is reachable from other machines"),
        ("resp = \"off\"\nenqueue = \"off\"\nhttp = \"off\"", "every listener is off"),
        ("enqueue = \"0.0.0.0:1\"\ninsecure = true", "the enqueue protocol has neither"),
        ("tls_cert = \"c.pem\"", "TLS needs both a certificate and its key"),
        ("resp = \"nonsense\"", "resp: 'nonsense' is neither HOST:PORT"),
        ("resp = \"nowhere.invalid:5625\"", "the host of 'nowhere.invalid:5625' has no address"),
        ("resp = \"127.0.0.1:5626\"", "127.0.0.1:5626 is named for two listeners"),
        ("[settings]\nid_bytes = 5", "id_bytes must be at least 36"),
        ("colour = 1", "unknown field `colour`"),
        ("[settings]\nlocks = 5", "[settings] has no `locks`; there are id_bytes"),
        ("[settings]\nid_bytes = 999", "settings: id_bytes is at most 255"),
    ] {
        let (success, output) = check(text);
        assert!(!success && output.contains(reason), "{text}: {output}");
    }
    let data = format!("data = {:?}", file.to_str().unwrap());
    let (success, output) = check(&data);
    assert!(!success && output.contains("cannot make the data directory"), "{output}");
    let (success, output) = keylatch(&["serve", "--check", "--config", "/nowhere"]);
    assert!(!success && output.contains("cannot read /nowhere"), "{output}");
}

#[test]
fn an_address_of_another_machine_is_called_so() {
    // For documentation (RFC 5737): nobody's.
    let words = ["serve", "--ephemeral", "--resp", "192.0.2.1:5625", "--insecure"];
    let (success, output) = keylatch(&words);
    assert!(!success && output.contains("it is no address of this machine"), "{output}");
}

#[test]
fn a_log_filter_that_is_none_is_refused() {
    let check = |filter: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keylatch"));
        let output = command.args(["serve", "--check"]).env("KEYLATCH_LOG", filter).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    for good in ["", "debug", "WARN", "off", "warn,keylatch_server=debug"] {
        assert!(check(good).0, "{good}");
    }
    for bad in ["!!!", "foo=bar=baz", "keylatch_server=loud", "wran", "warn,debgu"] {
        let (success, said) = check(bad);
        assert!(!success && said.contains("KEYLATCH_LOG: '"), "{bad}: {said}");
    }
}

/// Also where the directory around it is open to all.
#[test]
fn nobody_else_can_read_the_log() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let data = dir.path().to_str().unwrap();
    let running = Running::with(&["--data", data]);
    running.signal(Signal::TERM);
    let mode = dir.path().join("log").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn help_teaches() {
    let (success, output) = keylatch(&["serve", "--help"]);
    assert!(success && output.contains("redis-cli -p 5625 LOCK user:42"), "{output}");
    let (success, output) = keylatch(&[]);
    assert!(!success && output.contains("Usage: keylatch"), "{output}");
}

/// A server in memory that has said where it listens.
struct Running(Child);

impl Running {
    fn start() -> Running {
        Running::with(&["--ephemeral"])
    }

    fn with(words: &[&str]) -> Running {
        let mut server = Command::new(env!("CARGO_BIN_EXE_keylatch"))
            .args(["serve", "--resp", "localhost:0"])
            .args(words)
            .args(["--enqueue", "off", "--http", "off"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut first).unwrap();
        Running(server)
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Its exit code, and what it said.
    fn ends(mut self) -> (Option<i32>, String) {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "it does not stop");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            stderr.read_to_string(&mut said).unwrap();
        }
        (status.code(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Whoever reads what it says may go away; it still stops when it is told to.
#[test]
fn it_stops_also_if_nobody_reads_what_it_says() {
    let mut server = Running::start();
    drop(server.0.stderr.take());
    server.signal(Signal::TERM);
    assert_eq!(server.ends().0, Some(0));
}

#[test]
fn a_signal_to_end_finishes_and_a_second_one_ends_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let server = Running::start();
        server.signal(signal);
        let (code, said) = server.ends();
        assert_eq!(code, Some(0));
        assert!(said.contains("again to stop at once"), "{said}");
    }
    // Both have come when it goes on, so there was no time to finish.
    let server = Running::start();
    for signal in [Signal::STOP, Signal::TERM, Signal::INT, Signal::CONT] {
        server.signal(signal);
    }
    assert_eq!(server.ends().0, Some(130));
}

#[test]
fn a_hangup_without_a_terminal_is_no_end() {
    let server = Running::start();
    for _ in 0..3 {
        server.signal(Signal::HUP);
        std::thread::sleep(Duration::from_millis(50));
    }
    server.signal(Signal::TERM);
    assert_eq!(server.ends().0, Some(0));
}

/// It listens before it has read its log, and whoever is in a hurry may tell it to read its files again then.
#[test]
fn a_hangup_while_it_starts_is_no_end() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let resp = format!("127.0.0.1:{port}");
    let mut server = Command::new(env!("CARGO_BIN_EXE_keylatch"))
        .args(["serve", "--enqueue", "off", "--http", "off", "--resp", &resp, "--data"])
        .arg(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let since = Instant::now();
    while std::net::TcpStream::connect(&resp).is_err() {
        assert!(since.elapsed() < Duration::from_secs(60), "it does not listen");
    }
    server.signal(Signal::HUP);
    let mut first = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(!first.is_empty(), "it has ended");
    server.signal(Signal::TERM);
    assert_eq!(server.ends().0, Some(0));
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A second one makes each call for a socket cost more.
#[test]
fn a_server_in_memory_is_one_thread() {
    let server = Running::start();
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.0.id())).unwrap();
    assert_eq!(threads.count(), 1);
}

#[test]
fn a_data_directory_that_cannot_be_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let (success, output) = keylatch(&[
        "serve",
        "--data",
        file,
        "--resp",
        "127.0.0.1:0",
        "--enqueue",
        "off",
        "--http",
        "off",
    ]);
    let expected = format!("cannot make the data directory {file}");
    assert!(!success && output.contains(&expected), "{output}");
}
