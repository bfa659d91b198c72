//! `keylatch bench` against real servers, and against one that grants everybody.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

struct Server {
    _process: Running,
    resp: String,
    enqueue: String,
}

impl Server {
    fn start() -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_keylatch"))
            .args([
                "serve",
                "--ephemeral",
                "--resp",
                "127.0.0.1:0",
                "--enqueue",
                "127.0.0.1:0",
                "--http",
                "off",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut after = |prefix: &str| loop {
            let line = lines.next().expect("the server says where it listens").unwrap();
            if let Some(address) = line.trim().strip_prefix(prefix) {
                break address.to_string();
            }
        };
        let (resp, enqueue) = (after("RESP on "), after("enqueue on "));
        Server { _process: Running(process), resp, enqueue }
    }
}

/// Exit code, standard output, standard error.
fn bench(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylatch"));
    let output = command.arg("bench").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A bench that must succeed, as JSON.
fn measured(arguments: &[&str]) -> Value {
    let (code, out, err) = bench(&[arguments, &["-o", "json"]].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(err, "", "nothing is shown where nobody looks");
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(result["errors"], 0, "{out}");
    assert_eq!((&result["double_grants"], &result["token_falls"]), (&0.into(), &0.into()), "{out}");
    result
}

#[test]
fn pairs_are_counted_on_own_and_shared_keys() {
    let server = Server::start();
    for (address, protocol) in [(&server.resp, "resp"), (&server.enqueue, "enqueue")] {
        for keys in ["own", "own:3", "shared:2"] {
            let result = measured(&[
                address,
                "--protocol",
                protocol,
                "--keys",
                keys,
                "--pairs",
                "400",
                "-c",
                "8",
            ]);
            assert_eq!(result["pairs"], 400);
            assert_eq!((&result["protocol"], &result["keys"]), (&protocol.into(), &keys.into()));
            assert!(result["requests"].as_u64().unwrap() >= 800, "{result}");
            let at = |name: &str| result["acquire_us"][name].as_f64().unwrap();
            assert!(at("p50") > 0.0 && at("p50") <= at("p99") && at("p99") <= at("max"));
            assert!(result["fairness"]["min"].as_u64().unwrap() > 0, "{result}");
        }
    }
}

#[test]
fn nothing_is_left_held_and_a_load_may_hold_and_keep_a_rate() {
    let server = Server::start();
    let url = format!("keylatch://{}", server.resp);
    let result = measured(&[
        &url,
        "--keys",
        "shared:3",
        "--pairs",
        "60",
        "-c",
        "6",
        "--hold-ms",
        "2",
        "--rate",
        "2000",
    ]);
    assert_eq!((&result["pairs"], &result["hold_ms"]), (&60.into(), &2.into()));
    assert!(result["rate"].as_f64().unwrap() > 1_999.0);
    let mut stream = TcpStream::connect(&server.resp).unwrap();
    stream.write_all(b"LOCKS WAITERS\r\n").unwrap();
    let mut answer = [0; 64];
    let count = stream.read(&mut answer).unwrap();
    assert_eq!(&answer[..count], b"*0\r\n");
}

#[test]
fn a_table_is_for_people_and_progress_for_those_who_ask() {
    let server = Server::start();
    let seconds = ["--seconds", "1.5", "--warm-up", "0", "-c", "2", "--progress"];
    let (code, out, err) = bench(&[&[server.resp.as_str()], &seconds[..]].concat());
    assert_eq!(code, Some(0), "{err}");
    for part in
        ["pairs/s", "p99.9", "fairness", "errors                 0", "held by two at once    0"]
    {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(err.contains("pairs/s  p50"), "{err}");
}

#[test]
fn redis_is_measured_by_set_nx_px_and_its_script() {
    let dir = tempfile::tempdir().unwrap();
    // Redis picks no port by itself, so one that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let redis = Command::new("redis-server")
        .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("redis-server is installed (scripts/setup)");
    let mut redis = Running(redis);
    let mut lines = BufReader::new(redis.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("Ready to accept connections")));
    let url = format!("redis://127.0.0.1:{port}");
    for keys in ["own", "shared:2"] {
        let result = measured(&[&url, "--keys", keys, "--pairs", "300", "-c", "8"]);
        assert_eq!((&result["pairs"], &result["protocol"]), (&300.into(), &"redis".into()));
    }
    let (code, _, err) = bench(&[&format!("127.0.0.1:{port}"), "--pairs", "1"]);
    assert!(code == Some(1) && err.contains("unknown command 'LOCK'"), "{err}");
    assert!(err.contains("--protocol redis"), "{err}");
}

/// Answers each request of each connection, one read a request, as `answer` says.
fn fake(answer: fn(&[u8]) -> Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut room = [0; 4_096];
                while let Ok(count @ 1..) = stream.read(&mut room) {
                    stream.write_all(&answer(&room[..count])).unwrap();
                    // Slow, so that locks are held while others are granted.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
    });
    address
}

fn has(request: &[u8], word: &str) -> bool {
    request.windows(word.len()).any(|part| part == word.as_bytes())
}

#[test]
fn a_server_that_grants_everybody_is_found_out() {
    let address = fake(|request| {
        let lock =
            "*6\r\n$6\r\nstatus\r\n$7\r\ngranted\r\n$2\r\nid\r\n$1\r\nx\r\n$5\r\ntoken\r\n:7\r\n";
        let answers = [("PING", "+PONG\r\n"), ("UNLOCK", ":1\r\n"), ("LOCK", lock)];
        answers.iter().find(|(word, _)| has(request, word)).unwrap().1.into()
    });
    let address = address.to_string();
    let shared = [&address, "--keys", "shared:1", "--pairs", "20", "-c", "4", "--hold-ms", "5"];
    let (code, out, err) = bench(&[&shared[..], &["-o", "json"]].concat());
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(err.contains("times two connections held one key at once"), "{err}");
    let result: Value = serde_json::from_str(&out).unwrap();
    assert!(result["double_grants"].as_u64() > Some(0), "{out}");
    assert!(result["token_falls"].as_u64() > Some(0), "{out}");
    // One connection alone never meets another, but sees the same token twice.
    let (code, _, err) = bench(&[&address, "--pairs", "20", "-c", "1"]);
    assert!(code == Some(1) && err.contains("a token was not above the one before"), "{err}");
}

#[test]
fn an_answer_in_pieces_is_put_together() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let (mut room, mut token) = ([0; 4_096], 0);
                while let Ok(count @ 1..) = stream.read(&mut room) {
                    token += 1;
                    let lock = format!(
                        "*6\r\n+status\r\n+granted\r\n$2\r\nid\r\n$2\r\nxy\r\n+token\r\n:{token}\r\n"
                    );
                    let answers = [("PING", "+PONG\r\n"), ("UNLOCK", ":1\r\n"), ("LOCK", &lock)];
                    let request = &room[..count];
                    let answer = answers.iter().find(|(word, _)| has(request, word)).unwrap().1;
                    for byte in answer.as_bytes() {
                        stream.write_all(&[*byte]).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(measured(&[&address, "--pairs", "30", "-c", "1"])["pairs"], 30);
}

#[test]
fn what_cannot_work_is_said_clearly() {
    let server = Server::start();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let refuses = fake(|request| {
        if has(request, "PING") { b"+PONG\r\n".into() } else { b"-LIMIT too many\r\n".into() }
    });
    let refuses = refuses.to_string();
    let (resp, enqueue) = (server.resp.as_str(), server.enqueue.as_str());
    let resp_as_redis = format!("redis://{resp}");
    for (arguments, reason) in [
        (&[gone.as_str()][..], "cannot connect to 127.0.0.1:"),
        (&["nonsense"], "'nonsense' is not an address: say HOST:PORT"),
        (&["http://127.0.0.1:1"], "'http://': say keylatch://, redis:// or enqueue://"),
        (
            &[&resp_as_redis],
            "does not answer as `redis` does (--protocol says what it speaks): it says: UNKNOWN",
        ),
        (&[enqueue], "does not answer as `resp` does"),
        (&[&refuses], "the server answered: LIMIT too many"),
        (&[resp, "--keys", "many"], "say `own`, `own:N` or `shared:N`"),
        (&[resp, "--connections", "0"], "--connections is 1 to"),
        (&[resp, "--hold-ms", "50", "--lease-ms", "50"], "--hold-ms must be below --lease-ms"),
        (&[resp, "--rate", "0"], "--rate is 0.001 to"),
        (&[resp, "--pairs", "0"], "--pairs is at least 1"),
        (&[resp, "--seconds", "0"], "--seconds is above 0"),
        (&[resp, "--seconds", "1e9"], "--seconds is 0 to"),
    ] {
        let (code, out, err) = bench(arguments);
        assert!(code != Some(0) && err.contains(reason), "{arguments:?}: {out}{err}");
    }
}

#[test]
fn help_teaches() {
    let (code, out, _) = bench(&["--help"]);
    assert!(code == Some(0) && out.contains("keylatch bench --keys shared:8"), "{out}");
}
