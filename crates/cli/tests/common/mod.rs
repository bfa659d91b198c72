//! The real binary, started and stopped from outside, and what a test asks of it.
#![allow(dead_code)] // every test file uses some of it

pub(crate) mod cli;
pub(crate) mod load;
pub(crate) mod node;
pub(crate) mod segments;
pub(crate) mod traced;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keylatch_wire::{Value, read_value};

/// Longer than anything here takes: a hang is a failure, not a timing.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// How a server is started.
pub(crate) struct Start {
    dir: Option<PathBuf>,
    under: Vec<String>,
    environment: Vec<(String, String)>,
    config: String,
}

impl Start {
    /// With its data in `dir`.
    pub(crate) fn in_dir(dir: &Path) -> Start {
        Start { dir: Some(dir.into()), ..Start::ephemeral() }
    }

    pub(crate) fn ephemeral() -> Start {
        Start { dir: None, under: Vec::new(), environment: Vec::new(), config: String::new() }
    }

    /// A program in front, such as strace.
    pub(crate) fn under(mut self, words: &[&str]) -> Start {
        self.under.extend(words.iter().map(ToString::to_string));
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: &str) -> Start {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// A line of the configuration file.
    pub(crate) fn config(mut self, line: &str) -> Start {
        self.config.push_str(line);
        self.config.push('\n');
        self
    }

    fn spawn(&self) -> Spawned {
        let mut words = self.under.clone();
        words.push(env!("CARGO_BIN_EXE_keylatch").into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["serve", "--resp", "127.0.0.1:0"]);
        command.args(["--enqueue", "127.0.0.1:0", "--http", "off"]);
        let config = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(config.path(), &self.config).unwrap();
        command.arg("--config").arg(config.path());
        match &self.dir {
            Some(dir) => command.arg("--data").arg(dir),
            None => command.arg("--ephemeral"),
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        // What it says is for people.
        command.env("RUST_BACKTRACE", "0");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| {
            panic!("{} cannot be run ({error}); scripts/setup installs it", words[0])
        });
        let mut stderr = process.stderr.take().unwrap();
        let said = std::thread::spawn(move || {
            let mut text = Vec::new();
            drop(stderr.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut address = |name: &str| -> Option<SocketAddr> {
            loop {
                let line = lines.next()?.unwrap();
                if let Some(address) = line.trim().strip_prefix(name) {
                    return Some(address.parse().unwrap());
                }
            }
        };
        let addresses = address("RESP on ").zip(address("enqueue on "));
        Spawned { process, said, addresses }
    }

    pub(crate) fn start(&self) -> Server {
        let Spawned { process, said, addresses } = self.spawn();
        let Some((resp, enqueue)) = addresses else {
            panic!("the server does not start: {}", said.join().unwrap());
        };
        Server { process, resp, enqueue, said: Some(said) }
    }

    /// Starts it, if it starts; otherwise what it said.
    pub(crate) fn try_start(&self) -> Result<Server, Ended> {
        let Spawned { mut process, said, addresses } = self.spawn();
        if let Some((resp, enqueue)) = addresses {
            return Ok(Server { process, resp, enqueue, said: Some(said) });
        }
        let status = process.wait().unwrap();
        Err(Ended { status, said: said.join().unwrap() })
    }
}

struct Spawned {
    process: Child,
    said: JoinHandle<String>,
    addresses: Option<(SocketAddr, SocketAddr)>,
}

/// A server that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// On its standard error.
    pub(crate) said: String,
}

/// A server that runs; killed when it is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) resp: SocketAddr,
    pub(crate) enqueue: SocketAddr,
    said: Option<JoinHandle<String>>,
}

impl Server {
    pub(crate) fn start(dir: &Path) -> Server {
        Start::in_dir(dir).start()
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.resp)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// As a power failure of the process: no chance to say goodbye.
    pub(crate) fn kill(&mut self) -> Ended {
        self.process.kill().unwrap();
        self.end()
    }

    /// Waits until it has stopped by itself.
    pub(crate) fn ended(mut self) -> Ended {
        let since = Instant::now();
        while self.process.try_wait().unwrap().is_none() {
            assert!(since.elapsed() < HANG, "the server does not stop");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.end()
    }

    fn end(&mut self) -> Ended {
        let status = self.process.wait().unwrap();
        let said = self.said.take().expect("once").join().unwrap();
        Ended { status, said }
    }

    /// Bytes of memory that it has in use.
    pub(crate) fn resident(&self) -> usize {
        let path = format!("/proc/{}/status", self.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
        kilobytes * 1_024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.said.is_some() {
            drop(self.process.kill());
            drop(self.process.wait());
        }
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Client {
        Client::try_to(address).unwrap()
    }

    pub(crate) fn try_to(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANG))?;
        Ok(Client { stream, buffer: Vec::new() })
    }

    pub(crate) fn send(&mut self, line: &str) -> Option<()> {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).ok()
    }

    /// The next reply or push; `None` if the server is gone.
    pub(crate) fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((value, taken)) = read_value(&self.buffer).unwrap() {
                self.buffer.drain(..taken);
                return Some(value);
            }
            let mut room = [0; 8_192];
            match self.stream.read(&mut room) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&room[..count]),
                Err(error) => {
                    let hangs = matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    );
                    assert!(!hangs, "no answer for {HANG:?}");
                    return None;
                }
            }
        }
    }

    /// `None` if the server is gone: then what was asked may have happened or not.
    pub(crate) fn ask(&mut self, line: &str) -> Option<Value> {
        self.send(line)?;
        self.next()
    }

    /// The reply of a server that must be there.
    pub(crate) fn say(&mut self, line: &str) -> Value {
        self.ask(line).unwrap_or_else(|| panic!("no answer to {line}"))
    }

    /// A lock that must be granted; its token.
    pub(crate) fn lock(&mut self, words: &str) -> i64 {
        token(&self.say(&format!("LOCK {words}")))
    }

    /// All locks, and with `WAITERS` all waiters, page by page.
    pub(crate) fn list(&mut self, words: &str) -> Vec<Value> {
        let (mut all, mut cursor) = (Vec::new(), 0);
        loop {
            let page = self.say(&format!("LOCKS {words} LIMIT 100 CURSOR {cursor}"));
            let Value::Array(locks) = page else { panic!("not a list: {page:?}") };
            let Some(last) = locks.last() else { return all };
            cursor = number(last, "seq");
            all.extend(locks);
        }
    }
}

pub(crate) fn number(value: &Value, field: &str) -> i64 {
    let found = value.field(field).and_then(Value::integer);
    found.unwrap_or_else(|| panic!("no {field} in {value:?}"))
}

pub(crate) fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    let found = value.field(field).and_then(Value::text);
    found.unwrap_or_else(|| panic!("no {field} in {value:?}"))
}

/// The token of a grant.
pub(crate) fn token(value: &Value) -> i64 {
    assert_eq!(text(value, "status"), "granted", "{value:?}");
    number(value, "token")
}

/// How much of a long test is run: the number in an environment variable, or the short version.
pub(crate) fn how_many(variable: &str, short: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")),
        Err(_) => short,
    }
}

/// Repeatable choices (`SplitMix64`).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound.max(1) as u64) as usize
    }
}

/// An address that was free a moment ago: a member keeps its own when it is started again. Not one of those that
/// the system gives to whoever asks for any.
pub(crate) fn free() -> SocketAddr {
    use std::hash::{BuildHasher, Hasher};
    let chance = || std::hash::RandomState::new().build_hasher().finish();
    let bind = |chance| {
        let port = 10_000 + (chance % 20_000) as u16;
        std::net::TcpListener::bind(("127.0.0.1", port)).ok()?.local_addr().ok()
    };
    std::iter::repeat_with(chance).find_map(bind).expect("there is no end of them")
}
