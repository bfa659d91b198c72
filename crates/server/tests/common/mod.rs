//! A server in this process, on a free port, and a client that shows what it gets as text.
#![allow(dead_code)] // every test file uses some of it

pub(crate) mod http;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use keylatch_server::{Addresses, Config, NodeError, Server, ServerError, Stop};
use keylatch_wire::{Value, read_value};

/// Stops when it is dropped.
pub(crate) struct Running {
    pub(crate) addresses: Addresses,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start() -> Running {
        Running::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Running {
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut config =
            Config { resp: Some(free), enqueue: Some(free), http: Some(free), ..Config::default() };
        change(&mut config);
        let server = Server::bind(config).unwrap();
        let (addresses, stop) = (server.addresses(), server.stopper());
        let thread = std::thread::spawn(move || match server.run() {
            // A member that was taken out of its cluster ends by itself, sooner or later.
            Ok(()) | Err(ServerError::Log(NodeError::Removed)) => {}
            Err(error) => panic!("{error}"),
        });
        Running { addresses, stop, thread: Some(thread) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.addresses.resp.unwrap())
    }

    /// A client that speaks RESP3.
    pub(crate) fn client3(&self) -> Client {
        let mut client = self.client();
        client.say("HELLO 3");
        client
    }

    pub(crate) fn reload(&self) {
        self.stop.reload();
    }

    pub(crate) fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        // Longer than anything here takes: a hang is a failure, not a timing.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { stream, buffer: Vec::new() }
    }

    pub(crate) fn send(&mut self, lines: &str) {
        let lines: Vec<String> = lines.lines().map(|line| format!("{}\r\n", line.trim())).collect();
        self.stream.write_all(lines.concat().as_bytes()).unwrap();
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn value(&mut self) -> Value {
        loop {
            if let Some((value, taken)) = read_value(&self.buffer).unwrap() {
                self.buffer.drain(..taken);
                return value;
            }
            let mut room = [0; 8_192];
            let count = self.stream.read(&mut room).unwrap();
            assert!(count > 0, "the server closed the connection");
            self.buffer.extend_from_slice(&room[..count]);
        }
    }

    /// The next reply or push, as text.
    pub(crate) fn next(&mut self) -> String {
        show(&self.value())
    }

    /// Sends one line and returns its reply.
    pub(crate) fn say(&mut self, line: &str) -> String {
        self.send(line);
        self.next()
    }

    /// The reply to a line, as a value.
    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        self.value()
    }

    /// Says that nothing more will come; answers can still be read.
    pub(crate) fn done(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Whether the server has closed the connection (waits for it).
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut room = [0; 1_024];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }
}

/// What changes from run to run (ids made by the server, tokens, times) is left out.
pub(crate) fn show(value: &Value) -> String {
    let parts = |values: &[Value]| values.iter().map(show).collect::<Vec<_>>().join(" ");
    let pair = |key: &Value, value: &Value| {
        let key = show(key);
        match key.as_str() {
            "token" | "held_ms" | "lease_ms" | "waited_ms" | "seq" => None,
            "id" if show(value).len() == 36 => None,
            _ => Some(format!("{key}={}", show(value))),
        }
    };
    match value {
        Value::Simple(text) => text.clone(),
        Value::Error(text) => format!("-{text}"),
        Value::Integer(number) => number.to_string(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Null => "nil".into(),
        Value::Bool(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Array(values) if values.first().is_some_and(|first| first.is("status")) => {
            let pairs = values.chunks_exact(2).filter_map(|two| pair(&two[0], &two[1]));
            pairs.collect::<Vec<_>>().join(" ")
        }
        Value::Array(values) => format!("[{}]", parts(values)),
        Value::Map(pairs) => {
            let pairs = pairs.iter().filter_map(|(key, value)| pair(key, value));
            pairs.collect::<Vec<_>>().join(" ")
        }
        Value::Push(values) => format!("push {}", parts(values)),
    }
}

/// A client of the enqueue port.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
}

impl Peer {
    pub(crate) fn to(server: &Running) -> Peer {
        let stream = TcpStream::connect(server.addresses.enqueue.unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Peer { stream }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// The next chunk: a reply is always written at once.
    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut room = [0; 8_192];
        let count = self.stream.read(&mut room).unwrap();
        room[..count].to_vec()
    }

    pub(crate) fn say(&mut self, text: &str) -> String {
        self.send(text);
        String::from_utf8(self.next()).unwrap()
    }

    pub(crate) fn unlock(&mut self, uuid: &str) -> String {
        self.say(&format!(r#"{{"OP":"2","lockUUID":"{uuid}"}}"#))
    }
}

/// A lock of the enqueue protocol, on (A, anything), with the usual timeout.
pub(crate) fn lock(uuid: &str, mode: &str, owner: &str, wait: u64) -> String {
    lock_for(uuid, mode, owner, wait, 0)
}

pub(crate) fn lock_for(uuid: &str, mode: &str, owner: &str, wait: u64, timeout: u64) -> String {
    format!(
        r#"{{"OP":"1","eleLock":{{"name":"tab1","argument":["A","@"],"mode":"{mode}","owner":"{owner}","waitTime":{wait},"timeout":{timeout},"uuid":"{uuid}"}}}}"#
    )
}

pub(crate) const OK: &str = r#"{"RC":"0"}"#;

/// Until so many wait.
pub(crate) fn until_waiting(client: &mut Client, count: usize) {
    loop {
        let Value::Array(all) = client.ask("LOCKS WAITERS") else { panic!("a list") };
        let waits = |entry: &&Value| entry.field("state").unwrap().is("waiting");
        if all.iter().filter(waits).count() == count {
            return;
        }
        std::thread::yield_now();
    }
}
