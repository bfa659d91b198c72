//! The least that a server can do: reads, answers, and nothing else; what the system itself costs.
//! `scripts/bench server` measures it beside the others.
//!
//!     floor PORT [gather | FILE]
//!
//! `LOCK` and `UNLOCK` have a queue a key, without leases, modes, owners or anything that could go wrong;
//! whatever else is asked is answered with `+OK`, or as the enqueue protocol says yes. With a file, what was read is written to it
//! and synced before anything is answered, all of a turn at once, and with it what has come until then. With `gather`, a few requests of many connections are
//! let gather for a moment, so that clients need not wake us for each of them.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX - 1);
/// Written before, so that a sync has nothing else to write.
const FILE_BYTES: u64 = 64 << 20;
/// From so many connections on, so few requests at a time are let gather for so long. The system adds 50 us.
const MANY: usize = 32;
const FEW: usize = 16;
const GATHER: Duration = Duration::from_micros(50);

/// How often the sockets are looked at before a sync, as long as there is something new.
const LOOKS: usize = 8;

fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1);
    let port = words.next().and_then(|port| port.parse().ok()).unwrap_or(0);
    let word = words.next();
    let gathers = word.as_deref() == Some("gather");
    let mut log = word.filter(|_| !gathers).map(Log::new).transpose()?;
    let poll = Poll::new()?;
    let mut listener = TcpListener::bind(([127, 0, 0, 1], port).into())?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut server = Server { poll, listener, connections: Vec::new(), room: vec![0; 65_536] };
    let mut events = Events::with_capacity(1_024);
    let (mut read, mut locks) = (Vec::new(), Locks::default());
    loop {
        let connections = server.connections.iter().flatten().count();
        if gathers && connections >= MANY && locks.turn < FEW {
            std::thread::sleep(GATHER);
        }
        server.poll.poll(&mut events, None)?;
        read.clear();
        locks.turn = 0;
        server.read(&events, &mut read, &mut locks)?;
        if let Some(log) = &mut log {
            for _ in 0..LOOKS {
                server.poll.poll(&mut events, Some(Duration::ZERO))?;
                if events.is_empty() {
                    break;
                }
                server.read(&events, &mut read, &mut locks)?;
            }
            log.write(&read)?;
        }
        // Others wait for what these do next.
        for (at, answer) in locks.grants.drain(..).chain(locks.answers.drain(..)) {
            if let Some(stream) = &mut server.connections[at] {
                drop(stream.write(&answer));
            }
        }
    }
}

struct Server {
    poll: Poll,
    listener: TcpListener,
    connections: Vec<Option<TcpStream>>,
    room: Vec<u8>,
}

impl Server {
    /// What has come goes to the end of `all`.
    fn read(
        &mut self,
        events: &Events,
        all: &mut Vec<u8>,
        locks: &mut Locks,
    ) -> std::io::Result<()> {
        for event in events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = self.listener.accept() {
                    stream.set_nodelay(true)?;
                    let token = Token(self.connections.len());
                    self.poll.registry().register(&mut stream, token, Interest::READABLE)?;
                    self.connections.push(Some(stream));
                }
                continue;
            }
            let at = event.token().0;
            let Some(stream) = &mut self.connections[at] else { continue };
            match stream.read(&mut self.room) {
                Ok(0) => self.connections[at] = None,
                Ok(count) => {
                    all.extend_from_slice(&self.room[..count]);
                    locks.requests(at, &self.room[..count]);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Who holds a key, and then who waits for it.
#[derive(Default)]
struct Locks {
    keys: HashMap<Vec<u8>, usize>,
    queues: Vec<VecDeque<usize>>,
    token: u64,
    /// Requests of this turn.
    turn: usize,
    grants: Vec<(usize, Vec<u8>)>,
    answers: Vec<(usize, Vec<u8>)>,
}

impl Locks {
    /// Whole requests: nobody here sends halves.
    fn requests(&mut self, from: usize, bytes: &[u8]) {
        let mut oks = Vec::new();
        self.turn += 1;
        if bytes.starts_with(b"{") {
            let lists = bytes.windows(8).any(|part| part == br#""OP":"4""#);
            let answer = if lists { b"\x02\0\0\0[]".to_vec() } else { br#"{"RC":"0"}"#.to_vec() };
            self.answers.push((from, answer));
            return;
        }
        // Each request begins with a star, and these have no other.
        for request in bytes.split(|byte| *byte == b'*').skip(1) {
            let mut lines = request.split(|byte| *byte == b'\n');
            let word = lines.nth(2).unwrap_or_default();
            let first = lines.nth(1).unwrap_or_default();
            match word {
                b"PING\r" => oks.extend(b"+PONG\r\n"),
                b"LOCK\r" => self.lock(from, first),
                b"UNLOCK\r" => self.unlock(from, first),
                _ => oks.extend(b"+OK\r\n"),
            }
        }
        if !oks.is_empty() {
            self.answers.push((from, oks));
        }
    }

    fn lock(&mut self, from: usize, key: &[u8]) {
        let slot = *self.keys.entry(key.to_vec()).or_insert_with(|| {
            self.queues.push(VecDeque::new());
            self.queues.len() - 1
        });
        self.queues[slot].push_back(from);
        if self.queues[slot].len() == 1 {
            self.grant(slot);
        }
    }

    fn unlock(&mut self, from: usize, id: &[u8]) {
        self.answers.push((from, b":1\r\n".to_vec()));
        let id = std::str::from_utf8(id).unwrap_or_default();
        let Ok(slot) = id.trim_end().parse::<usize>() else { return };
        let Some(queue) = self.queues.get_mut(slot) else { return };
        queue.pop_front();
        self.grant(slot);
    }

    /// An answer as long as that of the real one.
    fn grant(&mut self, slot: usize) {
        let Some(to) = self.queues[slot].front() else { return };
        self.token += 1;
        let (id, token) = (format!("{slot:022}"), self.token);
        let answer = format!(
            "*10\r\n$6\r\nstatus\r\n$7\r\ngranted\r\n$2\r\nid\r\n$22\r\n{id}\r\n$5\r\ntoken\r\n:{token}\r\n\
             $8\r\nlease_ms\r\n:10000\r\n$9\r\nwaited_ms\r\n:0\r\n"
        );
        self.grants.push((*to, answer.into_bytes()));
    }
}

struct Log {
    file: File,
    end: u64,
}

impl Log {
    fn new(path: String) -> std::io::Result<Log> {
        let mut file = File::create(path)?;
        for _ in 0..FILE_BYTES >> 20 {
            file.write_all(&vec![0; 1 << 20])?;
        }
        file.sync_all()?;
        Ok(Log { file, end: 0 })
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.end + bytes.len() as u64 > FILE_BYTES {
            self.end = 0;
        }
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        self.file.sync_data()
    }
}
