//! The command line of `keylatch serve`.

use std::process::Command;

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
fn help_teaches() {
    let (success, output) = keylatch(&["serve", "--help"]);
    assert!(success && output.contains("redis-cli -p 5625 LOCK user:42"), "{output}");
    let (success, output) = keylatch(&[]);
    assert!(!success && output.contains("Usage: keylatch"), "{output}");
}

/// Whoever reads what it says may go away; it still stops when it is told to.
#[test]
fn it_stops_also_if_nobody_reads_what_it_says() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let mut server = Command::new(env!("CARGO_BIN_EXE_keylatch"))
        .args([
            "serve",
            "--ephemeral",
            "--resp",
            "localhost:0",
            "--enqueue",
            "off",
            "--http",
            "off",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut first).unwrap();
    drop(server.stderr.take());
    let id = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let since = std::time::Instant::now();
    while server.try_wait().unwrap().is_none() {
        if since.elapsed() > std::time::Duration::from_secs(60) {
            server.kill().unwrap();
            server.wait().unwrap();
            panic!("it does not stop");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
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
