//! The server: its listeners, its loop, and how it is stopped.

mod door;
mod in_cluster;
mod reach;

use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keylatch_table::{Applied, Command, Detach, Table};
use mio::net::{TcpListener, UnixStream};
use mio::{Events, Interest, Poll, Token, Waker};
use parking_lot::Mutex;
use rand::RngCore;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinError;

use crate::access::{Access, AccessError, AuditLog};
use crate::certificates::{Certificates, TlsError};
use crate::clock::{Clock, wall};
use crate::config::{Config, ConfigError};
use crate::listener::{Speaks, enqueue, http, resp};
use crate::log::channel::tls::Tls;
use crate::log::raft::{Life, Member, Node, NodeError, Start, whom_to_join};
use crate::pace::GATHER;
use crate::turn::{FIRST_CONNECTION, Guard, KEEP, Turns};
use door::Comers;
pub use door::Door;
use reach::Reach;

const STOP: Token = Token(0);
const RESP: Token = Token(1);
const ENQUEUE: Token = Token(2);
const HTTP: Token = Token(3);
const HEEDED: Token = Token(4);

/// Why a server could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It cannot run so.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address is taken, most likely.
    #[error("cannot listen on {0}: {1}; {remedy}", remedy = remedy(.1))]
    Listen(SocketAddr, io::Error),
    /// A certificate, most likely.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Who may do what cannot be read.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Nowhere to write down what was refused.
    #[error("the audit log cannot be opened: {0}")]
    Audit(io::Error),
    /// There can be no data directory there.
    #[error("cannot make the data directory {}: {error}", dir.display())]
    Data {
        /// Where it should be.
        dir: std::path::PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The log.
    #[error(transparent)]
    Log(#[from] NodeError),
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What to do if nobody can listen there.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => "it is no address of this machine",
        io::ErrorKind::PermissionDenied => "ports below 1024 are for root: choose another one",
        _ => "is another server running there? Choose another port",
    }
}

/// Where a server really listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// RESP.
    pub resp: Option<SocketAddr>,
    /// The enqueue protocol.
    pub enqueue: Option<SocketAddr>,
    /// HTTP.
    pub http: Option<SocketAddr>,
    /// Other members of the cluster.
    pub peer: Option<SocketAddr>,
}

/// Stops a server, or has it read its certificates again, from any thread.
#[derive(Clone, Debug)]
pub struct Stop {
    told: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Stop {
    /// Finishes what has been asked for, sends the answers, and ends [`Server::run`].
    pub fn stop(&self) {
        self.told.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Reads the certificates again now: new connections get them, if they are good.
    pub fn reload(&self) {
        self.reload.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "the server could not be woken");
        }
    }
}

/// A lock server.
pub struct Server {
    poll: Poll,
    listeners: Listeners,
    stop: Stop,
    turns: Turns,
    log: Log,
    table: Arc<Mutex<Table>>,
    clock: Clock,
    comers: Comers,
    heeded: Option<Heeded>,
}

/// Something outside that the loop listens to, and what it does then.
struct Heeded {
    from: UnixStream,
    hear: Box<dyn FnMut() + Send>,
}

struct Listeners {
    resp: Option<TcpListener>,
    enqueue: Option<TcpListener>,
    http: Option<TcpListener>,
    /// For the member.
    peer: Option<std::net::TcpListener>,
    addresses: Addresses,
}

/// Connections that may wait to be accepted, if the system allows as many. Whoever comes beyond that tries again after a
/// second, and a thousand clients that come back at once are nothing special.
const AT_THE_DOOR: i32 = 4_096;

/// What makes changes durable, if anything does.
enum Log {
    Memory,
    Durable { runtime: Runtime, node: Box<Node> },
    Cluster { runtime: Runtime, member: Member, life: Life, told: Arc<Notify> },
}

/// How long the places of waiters are kept after a restart, until they come back.
const GRACE_AFTER_RESTART_MS: u64 = 10_000;

impl Server {
    /// Binds the listeners and, if there is a data directory, brings the table to where it was.
    /// Nobody is served before [`Server::run`].
    pub fn bind(config: Config) -> Result<Server, ServerError> {
        config.validate()?;
        let certificates = config.tls.clone().map(Certificates::read).transpose()?;
        let peer_tls = config.peer_tls.clone().map(Tls::read).transpose()?;
        let poll = Poll::new()?;
        let mut listeners = Listeners::bind(&config, &poll)?;
        let waker = Arc::new(Waker::new(poll.registry(), STOP)?);
        let stop = Stop { told: Arc::default(), reload: Arc::default(), waker };
        // Tokens must not fall back, though everything before may be forgotten.
        let token = wall().as_micros() as u64;
        let hash_seed = rand::rng().next_u64();
        let (log, table) = match &config.data {
            None => {
                let table = Table::new(config.settings.clone(), token, hash_seed);
                (Log::Memory, Arc::new(Mutex::new(table)))
            }
            Some(dir) => {
                // Ids in the log are as good as the locks: nobody else needs to read it.
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(dir)
                    .map_err(|error| ServerError::Data { dir: dir.clone(), error })?;
                let peer_tls = peer_tls.map(Arc::new);
                if config.join == ["wait"] {
                    // That may last, and meanwhile nobody is served: clients and probes are to see that.
                    listeners.close();
                }
                let join = match &listeners.peer {
                    Some(listener) => whom_to_join(&config.join, dir, listener, peer_tls.as_ref())?,
                    None => config.join.clone(),
                };
                listeners.open(&poll)?;
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                if let Some(reach) = Reach::open(&mut listeners, &config, peer_tls)? {
                    let told = Arc::new(Notify::new());
                    let loops = Arc::clone(&told);
                    let opening = Member::open(Start {
                        dir: dir.clone(),
                        sizes: config.log,
                        settings: config.settings.clone(),
                        hash_seed,
                        channel: reach.channel,
                        serves: reach.serves,
                        address: reach.address,
                        join,
                        wake: Box::new(move || loops.notify_one()),
                    });
                    let (member, life) = runtime.block_on(opening)?;
                    let table = member.table();
                    return Server::with(
                        (config, certificates),
                        (poll, listeners, stop),
                        (Log::Cluster { runtime, member, life, told }, table),
                    );
                }
                let node = Node::open(dir, config.log, &config.settings, token, hash_seed);
                let node = runtime.block_on(node)?;
                let table = node.table();
                (Log::Durable { runtime, node: Box::new(node) }, table)
            }
        };
        Server::with((config, certificates), (poll, listeners, stop), (log, table))
    }

    /// What is the same for all.
    fn with(
        (config, certificates): (Config, Option<Certificates>),
        (poll, listeners, stop): (Poll, Listeners, Stop),
        (log, table): (Log, Arc<Mutex<Table>>),
    ) -> Result<Server, ServerError> {
        let guard = match &config.access {
            None => None,
            Some(path) => {
                let audit = AuditLog::open(config.audit.as_deref()).map_err(ServerError::Audit)?;
                Some(Guard::open(path, audit, &config.enqueue_principal)?)
            }
        };
        if config.enqueue.is_some()
            && guard.as_ref().is_some_and(|guard| guard.of_enqueue().is_none())
        {
            let name = &config.enqueue_principal;
            tracing::warn!(%name, "the access file has no such principal: the enqueue port refuses everything");
        }
        table.lock().clear_tally();
        let clock = match &log {
            Log::Cluster { member, .. } => member.clock(),
            Log::Memory | Log::Durable { .. } => Clock::new(table.lock().now()),
        };
        let view = match &log {
            Log::Cluster { member, .. } => Some(member.view()),
            Log::Memory | Log::Durable { .. } => None,
        };
        let registry = poll.registry().try_clone()?;
        Ok(Server {
            turns: Turns::new(
                config,
                certificates,
                registry,
                Arc::clone(&table),
                clock.clone(),
                guard,
                view,
            ),
            poll,
            listeners,
            stop,
            log,
            table,
            clock,
            comers: Comers::new(),
            heeded: None,
        })
    }

    /// Whether a server could start so, as far as its files say: nothing is bound or written.
    pub fn check(config: &Config) -> Result<(), ServerError> {
        config.validate()?;
        config.tls.clone().map(Certificates::read).transpose()?;
        config.peer_tls.clone().map(Tls::read).transpose()?;
        config.access.as_deref().map(Access::read).transpose()?;
        match &config.data {
            Some(dir) if dir.exists() && !dir.is_dir() => {
                let error = io::ErrorKind::NotADirectory.into();
                Err(ServerError::Data { dir: dir.clone(), error })
            }
            _ => Ok(()),
        }
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.listeners.addresses
    }

    /// What stops it.
    pub fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// From now on `hear` is called, in the server's own thread, when there is something in `from`; what that is does not
    /// matter. For signals, so that they need no thread.
    pub fn heed(
        &mut self,
        from: std::os::unix::net::UnixStream,
        hear: impl FnMut() + Send + 'static,
    ) -> io::Result<()> {
        from.set_nonblocking(true)?;
        let mut from = UnixStream::from_std(from);
        self.poll.registry().register(&mut from, HEEDED, Interest::READABLE)?;
        self.heeded = Some(Heeded { from, hear: Box::new(hear) });
        Ok(())
    }

    /// The way in for whoever is in this process.
    pub fn door(&self) -> Door {
        Door::new(&self.comers, &self.stop)
    }

    /// Serves until it is stopped.
    pub fn run(self) -> Result<(), ServerError> {
        let Server { poll, listeners, stop, turns, log, table, clock, comers, heeded } = self;
        let mut serving = Serving {
            poll,
            listeners,
            stop,
            turns,
            table,
            clock,
            comers,
            heeded,
            stalled: None,
            in_cluster: matches!(log, Log::Cluster { .. }),
            in_memory: matches!(log, Log::Memory).then(Vec::new),
            left_at_the_door: None,
        };
        // As tasks: to wake the future that is blocked on costs system calls, each time.
        match log {
            Log::Memory => serving.run_in_memory(),
            Log::Durable { runtime, node } => {
                let serves = async move { serving.run_durably(*node).await };
                runtime.block_on(async { ended(tokio::spawn(serves).await) })
            }
            Log::Cluster { runtime, member, life, told } => {
                let serves = async move { serving.run_in_cluster(&member, &told).await };
                runtime.block_on(async move {
                    let life = tokio::spawn(life);
                    let served = ended(tokio::spawn(serves).await);
                    // The member has been dropped, and ends well.
                    ended(life.await);
                    served
                })
            }
        }
    }
}

/// What a task has come to, or its panic.
fn ended<T>(task: Result<T, JoinError>) -> T {
    task.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

impl Listeners {
    fn bind(config: &Config, poll: &Poll) -> Result<Listeners, ServerError> {
        let bind = |address| {
            std::net::TcpListener::bind(address)
                .map_err(|error| ServerError::Listen(address, error))
        };
        let peer = config.peer.map(bind).transpose()?;
        let addresses = Addresses {
            resp: config.resp,
            enqueue: config.enqueue,
            http: config.http,
            peer: peer.as_ref().map(std::net::TcpListener::local_addr).transpose()?,
        };
        let mut listeners = Listeners { resp: None, enqueue: None, http: None, peer, addresses };
        listeners.open(poll)?;
        Ok(listeners)
    }

    /// Clients can come, where they could before.
    fn open(&mut self, poll: &Poll) -> Result<(), ServerError> {
        let Listeners { resp, enqueue, http, addresses, .. } = self;
        for (listener, address, token) in [
            (resp, &mut addresses.resp, RESP),
            (enqueue, &mut addresses.enqueue, ENQUEUE),
            (http, &mut addresses.http, HTTP),
        ] {
            let Some(at) = *address else { continue };
            if listener.is_some() {
                continue;
            }
            let failed = |error| ServerError::Listen(at, error);
            let mut new = TcpListener::bind(at).map_err(failed)?;
            rustix::net::listen(&new, AT_THE_DOOR).map_err(|error| failed(error.into()))?;
            poll.registry().register(&mut new, token, Interest::READABLE)?;
            *address = Some(new.local_addr()?);
            *listener = Some(new);
        }
        Ok(())
    }

    /// No client can come until it is opened again.
    fn close(&mut self) {
        (self.resp, self.enqueue, self.http) = (None, None, None);
    }
}

/// A server that runs.
struct Serving {
    poll: Poll,
    listeners: Listeners,
    stop: Stop,
    turns: Turns,
    table: Arc<Mutex<Table>>,
    clock: Clock,
    /// Who comes from inside of this process.
    comers: Comers,
    heeded: Option<Heeded>,
    /// The log has no room even for what nobody asked for; not before then is it tried again.
    stalled: Option<Instant>,
    in_cluster: bool,
    /// Without a log: room for what came of changes, which are answered as soon as there are [`SHARE`] of them.
    in_memory: Option<Vec<Applied>>,
    /// Some could not be let in: how many connections there were then, and when that was.
    left_at_the_door: Option<(usize, Instant)>,
}

/// Without a log so many changes are answered before more is read: clients go on meanwhile, and what was read is still near.
const SHARE: usize = 128;
/// Events of one look at the sockets.
const EVENTS: usize = 1_024;
/// How often the sockets are looked at before a sync, and how many changes are enough for one: who
/// came first must not wait for everybody.
const GATHERS: usize = 8;
const GATHERED: usize = 2_048;
/// How long those who were just answered are waited for while nothing else goes on in this thread: as short as can be.
const AT_ONCE: Duration = Duration::from_millis(1);

impl Serving {
    fn run_in_memory(&mut self) -> Result<(), ServerError> {
        wake_on_time();
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let stopping = self.is_stopping();
            let timeout = if stopping { Duration::ZERO } else { self.timeout() };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            self.arrive(&events);
            if self.turns.lets_gather() {
                std::thread::sleep(GATHER);
                self.poll.poll(&mut events, Some(Duration::ZERO)).or_else(ignore_interrupts)?;
                self.arrive(&events);
            }
            if stopping {
                self.turns.dismiss_waiters();
            }
            while self.turns.has_batch() {
                self.answer_in_memory();
            }
            self.turns.send();
            if stopping && !self.turns.is_busy() {
                self.stopped();
                return Ok(());
            }
        }
    }

    /// Changes have an outcome at once where there is no log.
    fn answer_in_memory(&mut self) {
        let Some(applied) = &mut self.in_memory else { return };
        let mut batch = self.turns.take_batch();
        let now = self.clock.now();
        let _span = tracing::debug_span!(target: "keylatch::trace", "apply", commands = batch.commands.len()).entered();
        let mut table = self.table.lock();
        table.go_ahead(&batch.commands);
        applied.extend(batch.commands.drain(..).map(|command| table.apply(now, command)));
        drop(table);
        self.turns.finish(batch, applied.drain(..));
        applied.shrink_to(KEEP);
        self.turns.send();
    }

    /// The same, with the log's own tasks beside it on this thread: they run while it waits for the
    /// sockets or for the log.
    async fn run_durably(&mut self, mut node: Node) -> Result<(), ServerError> {
        let sockets = self.sockets()?;
        let mut events = Events::with_capacity(EVENTS);
        // Nobody is connected yet, so whoever waited has to come back.
        let grace_ms = GRACE_AFTER_RESTART_MS;
        self.turns.propose(Command::Detach(Detach { ids: None, grace_ms }));
        let mut answered = false;
        loop {
            let stopping = self.is_stopping();
            self.poll.poll(&mut events, Some(Duration::ZERO)).or_else(ignore_interrupts)?;
            let mut idle = events.is_empty()
                && !self.turns.is_busy()
                && !self.turns.has_batch()
                && !stopping
                && !self.timeout().is_zero();
            if idle && std::mem::take(&mut answered) {
                // Whoever was just answered mostly asks again at once. By way of the runtime that would be heard later, and
                // cost as much as all the rest of a request. What the log has left to do comes first.
                tokio::task::yield_now().await;
                let timeout = Some(self.timeout().min(AT_ONCE));
                self.poll.poll(&mut events, timeout).or_else(ignore_interrupts)?;
                idle = events.is_empty();
            }
            if idle {
                tokio::select! {
                    ready = sockets.readable() => ready?.clear_ready(),
                    () = tokio::time::sleep(self.timeout()) => {}
                }
                self.poll.poll(&mut events, Some(Duration::ZERO)).or_else(ignore_interrupts)?;
            }
            self.arrive(&events);
            // Whatever has come meanwhile goes along, as one sync for all of it.
            for _ in 0..GATHERS {
                if !(1..GATHERED).contains(&self.turns.gathered()) {
                    break;
                }
                self.poll.poll(&mut events, Some(Duration::ZERO)).or_else(ignore_interrupts)?;
                if events.is_empty() {
                    break;
                }
                self.arrive(&events);
            }
            if stopping {
                self.turns.dismiss_waiters();
            }
            while self.turns.has_batch() {
                answered = true;
                let mut batch = self.turns.take_batch();
                let applied = if batch.commands.is_empty() {
                    Some(Vec::new())
                } else {
                    let (began, count) = (Instant::now(), batch.commands.len());
                    let span =
                        tracing::debug_span!(target: "keylatch::trace", "commit", commands = count);
                    let commit = node.commit(self.clock.now(), &mut batch.commands);
                    let applied = tracing::Instrument::instrument(commit, span).await?;
                    self.turns.syncs.add(began.elapsed().as_micros() as u64, count);
                    applied
                };
                if let Some(applied) = applied {
                    self.turns.finish(batch, applied);
                } else {
                    self.stalled = Some(Instant::now() + STALL);
                    self.turns.finish_without_room(batch);
                }
                self.turns.send();
            }
            self.turns.send();
            self.watch_room(&mut node).await?;
            if stopping && !self.turns.is_busy() {
                node.close().await?;
                self.stopped();
                return Ok(());
            }
        }
    }

    /// All sockets as one thing that the runtime can watch.
    fn sockets(&self) -> io::Result<AsyncFd<OwnedFd>> {
        let sockets = rustix::io::dup(self.poll.registry())?;
        // The new way to register is unsafe, for descriptors that others may close. This one is ours.
        #[allow(deprecated)]
        AsyncFd::with_interest(sockets, tokio::io::Interest::READABLE)
    }

    /// Whether there is room on the disk for new locks.
    async fn watch_room(&mut self, node: &mut Node) -> Result<(), ServerError> {
        node.tend();
        let full = node.is_full();
        if full == self.turns.full {
            return Ok(());
        }
        self.turns.full = full;
        if full {
            tracing::error!("the disk of the log is full: no new locks until there is room");
            // A shorter log may be all it takes.
            node.snapshot().await?;
        } else {
            tracing::info!("there is room on the disk of the log again");
        }
        Ok(())
    }

    fn is_stopping(&self) -> bool {
        self.stop.told.load(Ordering::SeqCst)
    }

    fn stopped(&mut self) {
        self.turns.say_goodbye();
        tracing::info!(connections = self.turns.connection_count(), "stopped");
    }

    /// Takes what has arrived, and what is due.
    fn arrive(&mut self, events: &Events) {
        self.turns.resume();
        // Nobody says when there are descriptors again: someone has left, or time has passed.
        let again = self.left_at_the_door.is_some_and(|(connections, since)| {
            self.turns.connection_count() < connections || since.elapsed() >= Duration::from_secs(1)
        });
        let (mut resp, mut enqueue, mut http, mut inside) = (again, again, again, false);
        for event in events {
            match event.token() {
                RESP => resp = true,
                ENQUEUE => enqueue = true,
                HTTP => http = true,
                // The door wakes the loop too.
                STOP => inside = true,
                HEEDED => {
                    if let Some(Heeded { from, hear }) = &mut self.heeded {
                        while matches!(from.read(&mut [0; 64]), Ok(1..)) {}
                        hear();
                    }
                }
                Token(number) => {
                    let ended = event.is_read_closed() || event.is_error();
                    let readable = event.is_readable() || ended;
                    let at = number - FIRST_CONNECTION;
                    self.turns.ready(at, readable, event.is_writable(), ended);
                    if self.in_memory.is_some() && self.turns.gathered() >= SHARE {
                        self.answer_in_memory();
                    }
                }
            }
        }
        // Only now: who is answered above may go, and an event that is still to come must not find somebody else in that place.
        if inside {
            for stream in self.comers.take() {
                self.turns.welcome_inside(UnixStream::from_std(stream));
            }
        }
        if (resp || enqueue || http) && !self.accept(resp, enqueue, http) {
            self.left_at_the_door = Some((self.turns.connection_count(), Instant::now()));
        } else if again {
            self.left_at_the_door = None;
        }
        self.turns.sweep();
        if self.stop.reload.load(Ordering::Relaxed)
            && self.stop.reload.swap(false, Ordering::SeqCst)
        {
            self.turns.reload();
        }
        if self.stalled.is_some_and(|until| Instant::now() < until) {
            return;
        }
        if self.stalled.take().is_some() {
            self.turns.propose_again();
        }
        // In a cluster that is for whoever leads. Any other change lets time pass too.
        if !self.in_cluster && self.turns.gathered() == 0 && self.is_tick_due() {
            self.turns.propose(Command::Tick);
        }
    }

    /// Lets in those who wait. False if some are still there.
    fn accept(&mut self, resp: bool, enqueue: bool, http: bool) -> bool {
        let mut all = true;
        if let Some(listener) = self.listeners.resp.as_ref().filter(|_| resp) {
            all &= self.turns.accept(listener, || Speaks::Resp(resp::Session::default()));
        }
        if let Some(listener) = self.listeners.enqueue.as_ref().filter(|_| enqueue) {
            all &= self.turns.accept(listener, || Speaks::Enqueue(enqueue::Session::new()));
        }
        if let Some(listener) = self.listeners.http.as_ref().filter(|_| http) {
            all &= self.turns.accept(listener, || Speaks::Http(http::Session::default()));
        }
        all
    }

    /// Something ends now; or time must be logged, because a lease or a wait is running and the last
    /// command was a second ago: after a restart table time goes on from there.
    fn is_tick_due(&self) -> bool {
        let table = self.table.lock();
        let now = self.clock.now();
        let stale = now >= table.now() + LOGGED_EVERY_MS;
        table.next_deadline().is_some_and(|at| at <= now || stale)
    }

    /// Until there is something to do: more to take, something that ends, or the next sweep.
    fn timeout(&self) -> Duration {
        if self.turns.is_busy() {
            return Duration::ZERO;
        }
        if let Some(until) = self.stalled {
            return until.saturating_duration_since(Instant::now());
        }
        let second = Duration::from_millis(LOGGED_EVERY_MS);
        let next = self.table.lock().next_deadline();
        next.map_or(second, |at| self.clock.until(at).min(second))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.comers.close();
    }
}

/// A short sleep of this thread is as short as it says; the system would add up to 50 us.
fn wake_on_time() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000)) {
        tracing::debug!(%error, "short sleeps take longer");
    }
}

fn ignore_interrupts(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

/// How long nothing of our own is written after the log had no room for it.
const STALL: Duration = Duration::from_secs(1);
/// How old the last logged time may be while something is running.
const LOGGED_EVERY_MS: u64 = 1_000;
