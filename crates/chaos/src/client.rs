//! A client that knows several members and asks the same again, elsewhere, until it is answered.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keylatch_wire::{Value, read_value};

/// Longer than any wait and any fault.
const PATIENCE: Duration = Duration::from_secs(40);
/// Nothing takes so long in a cluster that goes on.
const HANG: Duration = Duration::from_secs(240);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// What clients have in common.
#[derive(Default)]
pub(crate) struct Shared {
    /// Where members are now.
    pub(crate) addresses: Mutex<Vec<SocketAddr>>,
    /// The run is over, whatever is under way.
    pub(crate) aborted: AtomicBool,
}

pub(crate) struct Client<'a> {
    shared: &'a Shared,
    at: usize,
    link: Option<Link>,
    /// Its connection was lost, or it met no leader, since this was asked last.
    pub(crate) interrupted: bool,
}

/// Why a client has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The run is over.
    Aborted,
    /// There never was one.
    Hang(String),
}

impl<'a> Client<'a> {
    pub(crate) fn new(shared: &'a Shared, at: usize) -> Client<'a> {
        Client { shared, at, link: None, interrupted: false }
    }

    /// The answer of whoever has one.
    pub(crate) fn ask(&mut self, line: &str) -> Result<Value, Unanswered> {
        self.ask_within(line, PATIENCE)
    }

    /// The same; the first member is left after `patience`, as by a client whose caller lost its own.
    pub(crate) fn ask_within(
        &mut self,
        line: &str,
        patience: Duration,
    ) -> Result<Value, Unanswered> {
        let since = Instant::now();
        let mut patience = patience;
        loop {
            match self.try_ask(line, patience) {
                // Nobody has done it, or it is not known: under the same id it is done once.
                Some(Value::Error(text)) if again(&text) => {}
                Some(answer) => return Ok(answer),
                None => self.link = None,
            }
            self.interrupted = true;
            patience = PATIENCE;
            if self.shared.aborted.load(Ordering::Relaxed) {
                return Err(Unanswered::Aborted);
            }
            if since.elapsed() > HANG {
                return Err(Unanswered::Hang(line.into()));
            }
            self.link = None;
            self.at += 1;
            std::thread::sleep(PAUSE);
        }
    }

    fn try_ask(&mut self, line: &str, patience: Duration) -> Option<Value> {
        if self.link.is_none() {
            let address = {
                let addresses = self.shared.addresses.lock().ok()?;
                *addresses.get(self.at.checked_rem(addresses.len())?)?
            };
            self.link = Link::to(address).ok();
        }
        self.link.as_mut()?.ask(line, patience).ok()
    }
}

fn again(error: &str) -> bool {
    error.starts_with("NOLEADER") || error.starts_with("FULL")
}

/// One connection.
pub(crate) struct Link {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Link {
    pub(crate) fn to(address: SocketAddr) -> io::Result<Link> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_nodelay(true)?;
        Ok(Link { stream, buffer: Vec::new() })
    }

    pub(crate) fn ask(&mut self, line: &str, patience: Duration) -> io::Result<Value> {
        self.stream.write_all(format!("{line}\r\n").as_bytes())?;
        let until = Instant::now() + patience;
        loop {
            let read = read_value(&self.buffer);
            if let Some((value, taken)) =
                read.map_err(|error| io::Error::other(format!("{error:?}")))?
            {
                self.buffer.drain(..taken);
                return Ok(value);
            }
            let left = until.saturating_duration_since(Instant::now());
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut room = [0; 16_384];
            match self.stream.read(&mut room)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.buffer.extend_from_slice(&room[..count]),
            }
        }
    }
}

pub(crate) fn number(value: &Value, field: &str) -> Option<i64> {
    value.field(field).and_then(Value::integer)
}

pub(crate) fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value.field(field).and_then(Value::text)
}
