//! `kill -9` under load: no acknowledged grant is missing afterwards, no token is given twice, no
//! lease is shorter than promised. `KEYLATCH_CRASHES` says how often (20).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use keylatch_wire::{Value, read_value};

struct Server {
    process: Child,
    resp: SocketAddr,
}

impl Server {
    fn start(dir: &Path) -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_keylatch"))
            .args(["serve", "--resp", "127.0.0.1:0", "--enqueue", "off", "--data"])
            .arg(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let resp = loop {
            let line = lines.next().expect("the server says where it listens").unwrap();
            if let Some(address) = line.trim().strip_prefix("RESP on ") {
                break address.parse().unwrap();
            }
        };
        Server { process, resp }
    }

    /// As a power failure of the process: no chance to say goodbye.
    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

struct Client(TcpStream);

impl Client {
    fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client(stream)
    }

    /// `None` if the server is gone: then what was asked may have happened or not.
    fn ask(&mut self, line: &str) -> Option<Value> {
        self.0.write_all(format!("{line}\r\n").as_bytes()).ok()?;
        let mut buffer = Vec::new();
        loop {
            if let Some((value, taken)) = read_value(&buffer).unwrap() {
                assert_eq!(taken, buffer.len());
                return Some(value);
            }
            let mut room = [0; 8_192];
            match self.0.read(&mut room) {
                Ok(0) | Err(_) => return None,
                Ok(count) => buffer.extend_from_slice(&room[..count]),
            }
        }
    }
}

const LEASE_MS: i64 = 3_600_000;

/// What the server has said yes to.
#[derive(Default)]
struct Acknowledged {
    /// Token and time of each grant, by id.
    held: BTreeMap<String, (i64, Instant)>,
    /// Asked to release without an answer.
    unsure: BTreeSet<String>,
    tokens: BTreeSet<i64>,
}

/// Locks, and releases some, until the server is gone.
fn work(address: SocketAddr, name: &str, acknowledged: &Mutex<Acknowledged>) {
    let mut client = Client::to(address);
    for number in 0.. {
        let id = format!("{name}-{number}");
        let line = format!("LOCK key:{id} ID {id} LEASE {LEASE_MS}");
        let Some(answer) = client.ask(&line) else { return };
        assert!(answer.field("status").unwrap().is("granted"), "{answer:?}");
        let token = answer.field("token").and_then(Value::integer).unwrap();
        {
            let mut acknowledged = acknowledged.lock().unwrap();
            assert!(acknowledged.tokens.insert(token), "token {token} was given twice");
            acknowledged.held.insert(id.clone(), (token, Instant::now()));
        }
        if number % 3 != 0 {
            acknowledged.lock().unwrap().unsure.insert(id.clone());
            let Some(answer) = client.ask(&format!("UNLOCK {id}")) else { return };
            assert_eq!(answer, Value::Integer(1));
            let mut acknowledged = acknowledged.lock().unwrap();
            acknowledged.unsure.remove(&id);
            acknowledged.held.remove(&id);
        }
    }
}

/// Everything acknowledged is there, and nothing that was released.
fn check(address: SocketAddr, acknowledged: &mut Acknowledged) {
    let mut client = Client::to(address);
    let (mut found, mut cursor) = (BTreeMap::new(), 0);
    loop {
        let page = client.ask(&format!("LOCKS LIMIT 100 CURSOR {cursor}"));
        let Some(Value::Array(locks)) = page else { panic!("a list") };
        for lock in &locks {
            let text = |name| lock.field(name).and_then(Value::text).unwrap().to_string();
            let number = |name| lock.field(name).and_then(Value::integer).unwrap();
            found.insert(text("id"), (number("token"), number("lease_ms")));
            cursor = number("seq");
        }
        if locks.is_empty() {
            break;
        }
    }
    for (id, (token, since)) in &acknowledged.held {
        match found.get(id) {
            None => assert!(acknowledged.unsure.contains(id), "{id} was granted and is not there"),
            Some((now, left)) => {
                assert_eq!(now, token, "{id} has another token");
                let gone = i64::try_from(since.elapsed().as_millis()).unwrap();
                assert!(*left >= LEASE_MS - gone, "{id} has {left} ms left after {gone} ms");
            }
        }
    }
    // What was asked for and not answered may be there; it is known from now on.
    acknowledged.held.retain(|id, _| found.contains_key(id));
    acknowledged.unsure.clear();
    for (id, (token, _)) in found {
        acknowledged.tokens.insert(token);
        acknowledged.held.entry(id).or_insert((token, Instant::now()));
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let crashes = std::env::var("KEYLATCH_CRASHES").unwrap_or_else(|_| "20".into());
    let crashes: u64 = crashes.parse().expect("KEYLATCH_CRASHES is a number");
    let dir = tempfile::tempdir().unwrap();
    let acknowledged = Mutex::new(Acknowledged::default());
    let mut server = Server::start(dir.path());
    for crash in 0..crashes {
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (address, acknowledged) = (server.resp, &acknowledged);
                scope.spawn(move || work(address, &format!("{crash}-{worker}"), acknowledged));
            }
            // At another point each time.
            std::thread::sleep(Duration::from_millis(20 + crash * 7 % 60));
            let next = || Server::start(dir.path());
            let old = &mut server;
            old.process.kill().unwrap();
            old.process.wait().unwrap();
            *old = next();
        });
        check(server.resp, &mut acknowledged.lock().unwrap());
    }
    assert!(acknowledged.lock().unwrap().tokens.len() > crashes as usize, "there was a load");
    server.kill();
}
