//! The server: its listeners, its loop, and how it is stopped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keylatch_table::{Applied, Command, Table};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};
use parking_lot::Mutex;
use rand::RngCore;

use crate::clock::{Clock, wall};
use crate::config::{Config, ConfigError};
use crate::listener::{Speaks, resp};
use crate::turn::{FIRST_CONNECTION, Turns};

const STOP: Token = Token(0);
const RESP: Token = Token(1);
const ENQUEUE: Token = Token(2);

/// Why a server could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It cannot run so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address is taken, most likely.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    /// The operating system refused something.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Where a server really listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// RESP.
    pub resp: Option<SocketAddr>,
    /// The enqueue protocol.
    pub enqueue: Option<SocketAddr>,
}

/// Stops a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stop {
    told: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Stop {
    /// Finishes what has been asked for, sends the answers, and ends [`Server::run`].
    pub fn stop(&self) {
        self.told.store(true, Ordering::SeqCst);
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "the server could not be woken to stop");
        }
    }
}

/// A lock server.
pub struct Server {
    poll: Poll,
    resp: Option<TcpListener>,
    enqueue: Option<TcpListener>,
    addresses: Addresses,
    stop: Stop,
    turns: Turns,
    table: Arc<Mutex<Table>>,
    clock: Clock,
}

impl Server {
    /// Binds the listeners of a server that keeps everything in memory. Nobody is served before
    /// [`Server::run`].
    pub fn bind(config: Config) -> Result<Server, ServerError> {
        config.validate()?;
        let poll = Poll::new()?;
        let bind = |address: Option<SocketAddr>, token| -> Result<_, ServerError> {
            let Some(address) = address else { return Ok((None, None)) };
            let failed = |error| ServerError::Listen(address, error);
            let mut listener = TcpListener::bind(address).map_err(failed)?;
            poll.registry().register(&mut listener, token, Interest::READABLE)?;
            let address = listener.local_addr()?;
            Ok((Some(listener), Some(address)))
        };
        let (resp, resp_address) = bind(config.resp, RESP)?;
        let (enqueue, enqueue_address) = bind(config.enqueue, ENQUEUE)?;
        let waker = Arc::new(Waker::new(poll.registry(), STOP)?);
        // Tokens must not fall back, though everything before is forgotten.
        let token = wall().as_micros() as u64;
        let table = Table::new(config.settings.clone(), token, rand::rng().next_u64());
        let table = Arc::new(Mutex::new(table));
        let clock = Clock::new(0);
        let registry = poll.registry().try_clone()?;
        Ok(Server {
            turns: Turns::new(config, registry, Arc::clone(&table), clock),
            poll,
            resp,
            enqueue,
            addresses: Addresses { resp: resp_address, enqueue: enqueue_address },
            stop: Stop { told: Arc::default(), waker },
            table,
            clock,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// What stops it.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// Serves until it is stopped.
    pub fn run(mut self) -> Result<(), ServerError> {
        let mut events = Events::with_capacity(1_024);
        loop {
            let stopping = self.stop.told.load(Ordering::SeqCst);
            let timeout = if stopping { Duration::ZERO } else { self.timeout() };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            self.turns.resume();
            for event in &events {
                match event.token() {
                    STOP => {}
                    RESP => self.accept_resp(),
                    ENQUEUE => {}
                    Token(number) => {
                        let readable = event.is_readable() || event.is_error();
                        self.turns.ready(number - FIRST_CONNECTION, readable, event.is_writable());
                    }
                }
            }
            self.turns.sweep();
            self.tick();
            self.finish();
            if stopping && !self.turns.is_busy() {
                tracing::info!(connections = self.turns.connection_count(), "stopped");
                return Ok(());
            }
        }
    }

    fn accept_resp(&mut self) {
        if let Some(listener) = &self.resp {
            self.turns.accept(listener, || Speaks::Resp(resp::Session::default()));
        }
    }

    /// Until there is something to do: more to take, something that ends, or the next sweep.
    fn timeout(&self) -> Duration {
        if self.turns.is_busy() {
            return Duration::ZERO;
        }
        let second = Duration::from_secs(1);
        let next = self.table.lock().next_deadline();
        next.map_or(second, |at| self.clock.until(at).min(second))
    }

    fn tick(&mut self) {
        let due = self.table.lock().next_deadline().is_some_and(|at| at <= self.clock.now());
        if due {
            self.turns.propose(Command::Tick);
        }
    }

    /// Carries out what was asked for, until nothing follows from it.
    fn finish(&mut self) {
        loop {
            let mut batch = self.turns.take_batch();
            if !batch.is_empty() {
                let commands = std::mem::take(&mut batch.commands);
                let now = self.clock.now();
                let mut table = self.table.lock();
                let applied: Vec<Applied> =
                    commands.into_iter().map(|command| table.apply(now, command)).collect();
                drop(table);
                self.turns.finish(batch, applied);
            }
            self.turns.send();
            if !self.turns.has_batch() {
                return;
            }
        }
    }
}
