//! One turn: everything that has arrived is read, all changes go through the log together, and
//! everyone gets an answer. It is one thread, so that nothing has to hop to another one.
//!
//! Within a turn a connection's requests keep their order: questions are answered after all changes
//! of the turn, so a change behind a question waits for the next turn (`held_back`), and so does
//! whatever comes behind a lock that may have to wait (`blocked` once it does).

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use keylatch_table::{
    Applied, Command, Detach, Event, Party, Query, Reply, RequestId, Table, Text,
};
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use slab::Slab;

use crate::clock::Clock;
use crate::config::Config;
use crate::connection::{Connection, ConnectionId, Incoming};
use crate::listener::{Answer, Ask, Read, Speaks, enqueue, resp};
use crate::outbox::{Concerned, Outbox, Waiter};

/// Requests of one connection in one turn; the others have theirs before it goes on.
const PER_TURN: usize = 256;
/// Bytes that are read at once.
const READ: usize = 64 * 1024;
/// Connections are numbered behind the listeners and the waker.
pub(crate) const FIRST_CONNECTION: usize = 8;

/// What a turn makes of what has arrived.
#[derive(Default)]
pub(crate) struct Batch {
    /// For the log and the table, in this order.
    pub(crate) commands: Vec<Command>,
    /// Who asked, in the order of asking; changes answer to `commands`.
    works: Vec<(Option<ConnectionId>, Work)>,
}

enum Work {
    Change(Option<Answer>),
    Question(Vec<Query>, Answer),
    Say(Vec<u8>),
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.works.is_empty()
    }
}

/// What a listener may know and use while it reads a request.
pub(crate) struct Context<'a> {
    pub(crate) frame_bytes: usize,
    pub(crate) owner_bytes: u64,
    pub(crate) connection: ConnectionId,
    shown: &'a Text,
    random: &'a mut StdRng,
    table: &'a Mutex<Table>,
    clock: Clock,
}

impl Context<'_> {
    /// An id that cannot be guessed: a random UUID.
    pub(crate) fn new_id(&mut self) -> RequestId {
        let mut bytes = [0; 16];
        self.random.fill_bytes(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        RequestId::from_uuid(bytes)
    }

    /// A request without an owner.
    pub(crate) fn party(&self) -> Party {
        Party { owner: Arc::clone(self.shown), explicit: false, principal: None }
    }

    pub(crate) fn info(&self) -> String {
        let table = self.table.lock();
        let keylatch_table::Answer::Stats(stats) = table.query(self.clock.now(), &Query::Stats)
        else {
            unreachable!("statistics were asked for");
        };
        format!(
            "# Server\r\nkeylatch_version:{}\r\nprocess_id:{}\r\n# Locks\r\nheld:{}\r\nwaiting:{}\r\n\
             resources:{}\r\nowners:{}\r\nended_remembered:{}\r\nlast_token:{}\r\ntable_time_ms:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
            stats.held,
            stats.waiting,
            stats.resources,
            stats.owners,
            stats.ended,
            stats.token,
            stats.now,
        )
    }
}

pub(crate) struct Turns {
    config: Config,
    registry: Registry,
    connections: Slab<Connection>,
    /// The number of the last connection.
    last: u64,
    table: Arc<Mutex<Table>>,
    clock: Clock,
    random: StdRng,
    outbox: Outbox,
    batch: Batch,
    /// Connections with more to read, or to take from what was read.
    again: VecDeque<ConnectionId>,
    /// Connections with something to send.
    dirty: Vec<usize>,
    room: Vec<u8>,
    swept: Instant,
}

impl Turns {
    pub(crate) fn new(
        config: Config,
        registry: Registry,
        table: Arc<Mutex<Table>>,
        clock: Clock,
    ) -> Turns {
        Turns {
            config,
            registry,
            connections: Slab::new(),
            last: 0,
            table,
            clock,
            random: StdRng::from_os_rng(),
            outbox: Outbox::default(),
            batch: Batch::default(),
            again: VecDeque::new(),
            dirty: Vec::new(),
            room: vec![0; READ],
            swept: Instant::now(),
        }
    }

    /// Whether there is something to do without waiting for anyone.
    pub(crate) fn is_busy(&self) -> bool {
        !self.again.is_empty()
    }

    pub(crate) fn accept(&mut self, listener: &TcpListener, speaks: fn() -> Speaks) {
        loop {
            match listener.accept() {
                Ok((stream, address)) => self.welcome(stream, address, speaks()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of descriptors, most likely; others may be closed by and by.
                    tracing::warn!(%error, "a connection could not be accepted");
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, mut stream: TcpStream, address: SocketAddr, speaks: Speaks) {
        if self.connections.len() >= self.config.connections {
            let text = b"-LIMIT too many connections; close some or raise `connections`\r\n";
            drop(io::Write::write(&mut stream, text));
            return;
        }
        drop(stream.set_nodelay(true));
        let entry = self.connections.vacant_entry();
        let token = Token(entry.key() + FIRST_CONNECTION);
        if let Err(error) = self.registry.register(&mut stream, token, Interest::READABLE) {
            tracing::warn!(%error, "a connection could not be registered");
            return;
        }
        self.last += 1;
        let id = ConnectionId { at: entry.key(), number: self.last };
        entry.insert(Connection::new(id, stream, speaks, address.to_string().into()));
    }

    /// The socket of a connection can be read or written. If the other side is done, its end is
    /// behind what can be read, and there will be no other event for it.
    pub(crate) fn ready(&mut self, at: usize, readable: bool, writable: bool, ended: bool) {
        let Some(connection) = self.connections.get(at) else { return };
        let id = connection.id;
        if writable {
            self.dirty.push(at);
        }
        if readable {
            self.receive(at);
        }
        if ended && self.is_there(id) {
            self.again.push_back(id);
        }
    }

    /// Those that had more than their share in the last turn, or were held back.
    pub(crate) fn resume(&mut self) {
        for _ in 0..self.again.len() {
            let Some(id) = self.again.pop_front() else { return };
            if self.connections.get(id.at).is_some_and(|connection| connection.id == id) {
                self.receive(id.at);
            }
        }
    }

    fn receive(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        if !connection.held_back
            && let Some((ask, changes)) = connection.behind.take()
        {
            self.change_connection(at, changes);
            self.submit(at, ask);
        }
        // A listener may have more in hand than its input shows.
        self.take(at, &[]);
        let Some(connection) = self.connections.get_mut(at) else { return };
        // What is there already comes first, and nothing is read that cannot be taken: one frame
        // of it is enough to keep.
        if !connection.input.is_empty() {
            let input = std::mem::take(&mut connection.input);
            let taken = self.take(at, &input);
            let Some(connection) = self.connections.get_mut(at) else { return };
            let mut input = input;
            input.drain(..taken);
            connection.input = input;
            if connection.closing {
                return;
            }
            if connection.input.len() >= self.config.frame_bytes {
                return;
            }
        }
        let Some(connection) = self.connections.get_mut(at) else { return };
        if connection.closing {
            return;
        }
        let mut room = std::mem::take(&mut self.room);
        match connection.read(&mut room) {
            Incoming::Nothing => {}
            Incoming::End => self.end(at),
            Incoming::Bytes(count) => {
                connection.active = Instant::now();
                connection.greeted = true;
                if count == room.len() {
                    self.again.push_back(connection.id);
                }
                self.received(at, &room[..count]);
            }
        }
        self.room = room;
    }

    fn received(&mut self, at: usize, bytes: &[u8]) {
        let connection = &mut self.connections[at];
        if connection.input.is_empty() {
            let taken = self.take(at, bytes);
            if let Some(connection) = self.connections.get_mut(at) {
                connection.input.extend_from_slice(&bytes[taken..]);
            }
            return;
        }
        connection.input.extend_from_slice(bytes);
        let mut input = std::mem::take(&mut connection.input);
        let taken = self.take(at, &input);
        if let Some(connection) = self.connections.get_mut(at) {
            input.drain(..taken);
            connection.input = input;
        }
    }

    /// Takes requests from the front of `input`; returns how many bytes were taken.
    fn take(&mut self, at: usize, input: &[u8]) -> usize {
        let mut taken = 0;
        for count in 0.. {
            let Some(connection) = self.connections.get_mut(at) else { return taken };
            if connection.blocked || connection.held_back || connection.closing {
                return taken;
            }
            if count == PER_TURN {
                self.again.push_back(connection.id);
                return taken;
            }
            let mut context = Context {
                frame_bytes: self.config.frame_bytes,
                owner_bytes: self.config.settings.owner_bytes,
                connection: connection.id,
                shown: &connection.shown,
                random: &mut self.random,
                table: &self.table,
                clock: self.clock,
            };
            let mut changes = resp::Changes::default();
            let rest = &input[taken..];
            let read = match &mut connection.speaks {
                Speaks::Resp(session) => session.read(rest, &mut context, &mut changes),
                Speaks::Enqueue(session) => {
                    session.read(rest, &mut context, &mut changes.may_block)
                }
            };
            match read {
                Read::Incomplete => return taken,
                Read::Nothing(bytes) => taken += bytes,
                Read::Broken(last_words) => {
                    connection.closing = true;
                    self.say(at, last_words);
                    return input.len();
                }
                Read::Ask(bytes, ask) => {
                    taken += bytes;
                    if matches!(ask, Ask::Change(..)) && connection.asked {
                        // Behind a question: it waits until that is answered.
                        connection.held_back = true;
                        connection.behind = Some((ask, changes));
                        return taken;
                    }
                    self.change_connection(at, changes);
                    self.submit(at, ask);
                }
            }
        }
        taken
    }

    fn change_connection(&mut self, at: usize, changes: resp::Changes) {
        let connection = &mut self.connections[at];
        if let Some(shown) = changes.shown {
            connection.shown = shown.into();
        }
        connection.closing |= changes.close;
        connection.held_back |= changes.may_block;
        if let Some(on) = changes.subscribed {
            let id = connection.id;
            connection.subscribed = on;
            self.outbox.subscribers.retain(|other| *other != id);
            if on {
                self.outbox.subscribers.push(id);
            }
        }
    }

    fn submit(&mut self, at: usize, ask: Ask) {
        let connection = &mut self.connections[at];
        let id = Some(connection.id);
        match ask {
            Ask::Say(bytes) => return self.say(at, bytes),
            Ask::Change(command, answer) => {
                self.batch.commands.push(command);
                self.batch.works.push((id, Work::Change(Some(answer))));
            }
            Ask::Question(queries, answer) => {
                connection.asked = true;
                self.batch.works.push((id, Work::Question(queries, answer)));
            }
        }
        self.connections[at].open += 1;
    }

    /// Answers at once, or behind what is still open.
    fn say(&mut self, at: usize, bytes: Vec<u8>) {
        let connection = &mut self.connections[at];
        if connection.open > 0 {
            connection.open += 1;
            self.batch.works.push((Some(connection.id), Work::Say(bytes)));
            return;
        }
        connection.out().extend_from_slice(&bytes);
        self.dirty.push(at);
    }

    /// A change that no connection asked for.
    pub(crate) fn propose(&mut self, command: Command) {
        self.batch.commands.push(command);
        self.batch.works.push((None, Work::Change(None)));
    }

    pub(crate) fn has_batch(&self) -> bool {
        !self.batch.is_empty()
    }

    /// What has been asked for in this turn.
    pub(crate) fn take_batch(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    /// Everyone gets an answer. The changes have been applied, with these outcomes.
    pub(crate) fn finish(&mut self, batch: Batch, applied: Vec<Applied>) {
        let mut applied = applied.into_iter();
        for (id, work) in batch.works {
            match work {
                Work::Change(answer) => {
                    let Applied { reply, events } = applied.next().expect("one for each command");
                    if let (Some(id), Some(answer)) = (id, answer) {
                        self.answer(id, &answer, &reply);
                    }
                    for event in events {
                        self.tell(&event);
                    }
                }
                Work::Question(queries, answer) => {
                    let Some(id) = id.filter(|id| self.is_there(*id)) else { continue };
                    let now = self.clock.now();
                    let table = self.table.lock();
                    let found: Vec<_> =
                        queries.iter().map(|query| table.query(now, query)).collect();
                    drop(table);
                    let connection = &mut self.connections[id.at];
                    match answer {
                        Answer::Resp(answer) => {
                            write(connection, |writer| resp::write_found(&answer, &found, writer));
                        }
                        Answer::Enqueue(_) => {
                            enqueue::write_found(&found, self.clock, connection.out());
                        }
                    }
                    self.answered(id);
                }
                Work::Say(bytes) => {
                    if let Some(id) = id.filter(|id| self.is_there(*id)) {
                        self.connections[id.at].out().extend_from_slice(&bytes);
                        self.answered(id);
                    }
                }
            }
        }
    }

    fn is_there(&self, id: ConnectionId) -> bool {
        self.connections.get(id.at).is_some_and(|connection| connection.id == id)
    }

    /// One request less is open; with the last one the connection goes on.
    fn answered(&mut self, id: ConnectionId) {
        self.dirty.push(id.at);
        let connection = &mut self.connections[id.at];
        connection.open -= 1;
        if connection.open == 0 {
            connection.asked = false;
            if connection.held_back {
                connection.held_back = false;
                self.again.push_back(id);
            }
        }
    }

    fn answer(&mut self, id: ConnectionId, answer: &Answer, reply: &Reply) {
        // A lock request, and whether its connection goes on while it waits.
        let lock = match answer {
            Answer::Resp(resp::Answer::Lock { id, asynchronous }) => Some((id, *asynchronous)),
            Answer::Enqueue(enqueue::Answer::Lock(id)) => Some((id, false)),
            _ => None,
        };
        if !self.is_there(id) {
            return self.nobody_there(answer, lock.map(|(request, _)| request), reply);
        }
        if let Some((request, asynchronous)) = lock {
            self.follow(id, request, asynchronous, reply);
            if matches!(reply, Reply::Waiting(_)) && !asynchronous {
                return self.answered(id);
            }
        }
        let connection = &mut self.connections[id.at];
        if let (Answer::Resp(resp::Answer::Unlock(request)), Reply::Released) = (answer, reply)
            && connection.held.remove(request)
        {
            self.outbox.forget_held(request);
        }
        let connection = &mut self.connections[id.at];
        match answer {
            Answer::Resp(answer) => {
                write(connection, |writer| resp::write_answer(answer, reply, writer));
            }
            Answer::Enqueue(answer) => enqueue::write_answer(answer, reply, connection.out()),
        }
        self.answered(id);
    }

    /// Keeps in mind who is to be told what becomes of a lock request.
    fn follow(&mut self, id: ConnectionId, request: &RequestId, asynchronous: bool, reply: &Reply) {
        let connection = &mut self.connections[id.at];
        match reply {
            Reply::Waiting(_) => {
                connection.waiting.push(request.clone());
                connection.blocked = !asynchronous;
                self.outbox.wait(request, Waiter { connection: id, blocks: !asynchronous });
            }
            Reply::Granted(_) if connection.wants_pushes() => {
                connection.held.insert(request.clone());
                self.outbox.hold(request, id);
            }
            _ => {}
        }
    }

    /// A request whose connection went away before it was answered.
    fn nobody_there(&mut self, answer: &Answer, lock: Option<&RequestId>, reply: &Reply) {
        if let (Some(id), Reply::Waiting(_)) = (lock, reply) {
            let grace_ms = match answer {
                Answer::Resp(_) => self.config.grace.as_millis() as u64,
                Answer::Enqueue(_) => 0,
            };
            self.propose(Command::Detach(Detach { ids: Some(vec![id.clone()]), grace_ms }));
        }
    }

    /// Tells everyone whom an event concerns.
    fn tell(&mut self, event: &Event) {
        match self.outbox.concerned(event) {
            Concerned::Waiters(waiters) => {
                for waiter in waiters {
                    self.tell_waiter(waiter, event);
                }
            }
            Concerned::Holder(id) if self.is_there(id) => {
                let connection = &mut self.connections[id.at];
                if let Event::Lost { id, .. } = event {
                    connection.held.remove(id);
                }
                write(connection, |writer| resp::write_push(event, writer));
                self.dirty.push(id.at);
            }
            Concerned::Holder(_) | Concerned::Nobody => {}
        }
        if !self.outbox.subscribers.is_empty() {
            self.tell_subscribers(event);
        }
    }

    fn tell_waiter(&mut self, waiter: Waiter, event: &Event) {
        let Waiter { connection: id, blocks } = waiter;
        if !self.is_there(id) {
            return;
        }
        let connection = &mut self.connections[id.at];
        let request = match event {
            Event::Granted { id, .. }
            | Event::TimedOut { id, .. }
            | Event::Deadlocked { id, .. }
            | Event::Withdrawn { id, .. } => id,
            Event::Lost { .. } | Event::Task(_) => unreachable!("not the outcome of a wait"),
        };
        connection.waiting.retain(|other| other != request);
        let pushes = connection.wants_pushes();
        if blocks {
            connection.blocked = false;
            match connection.speaks {
                Speaks::Resp(_) => {
                    write(connection, |writer| resp::write_outcome_of(event, writer));
                }
                Speaks::Enqueue(_) => enqueue::write_outcome_of(event, connection.out()),
            }
            self.again.push_back(id);
        } else if pushes {
            write(connection, |writer| resp::write_push(event, writer));
        }
        if pushes && matches!(event, Event::Granted { .. }) {
            connection.held.insert(request.clone());
            self.outbox.hold(request, id);
        }
        self.dirty.push(id.at);
    }

    fn tell_subscribers(&mut self, event: &Event) {
        let Some(text) = resp::event_as_json(event) else { return };
        for id in self.outbox.subscribers.clone() {
            if self.is_there(id) {
                write(&mut self.connections[id.at], |writer| {
                    writer.push(3);
                    writer.bulk(b"message");
                    writer.bulk(resp::EVENTS.as_bytes());
                    writer.bulk(text.as_bytes());
                });
                self.dirty.push(id.at);
            }
        }
    }

    /// Sends what there is to send.
    pub(crate) fn send(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for at in dirty.drain(..) {
            let Some(connection) = self.connections.get_mut(at) else { continue };
            if connection.unsent() == 0 && !connection.closing {
                continue;
            }
            if !connection.send() || connection.unsent() > self.config.unread_bytes {
                self.close(at);
                continue;
            }
            connection.active = Instant::now();
            let unsent = connection.unsent() > 0;
            if connection.closing && !unsent && connection.open == 0 {
                self.close(at);
                continue;
            }
            if unsent != connection.wants_room {
                connection.wants_room = unsent;
                let interest = match unsent {
                    true => Interest::READABLE | Interest::WRITABLE,
                    false => Interest::READABLE,
                };
                let token = Token(at + FIRST_CONNECTION);
                if self.registry.reregister(connection.stream(), token, interest).is_err() {
                    self.close(at);
                }
            }
        }
        // The list keeps its room.
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
    }

    /// The other side has nothing more to say. What it is still owed is sent.
    fn end(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        let last_words = match &connection.speaks {
            Speaks::Enqueue(session) => session.last_words(),
            Speaks::Resp(_) => None,
        };
        if let Some(words) = last_words {
            self.say(at, words);
        }
        let connection = &mut self.connections[at];
        if connection.blocked || (connection.open == 0 && connection.unsent() == 0) {
            return self.close(at);
        }
        connection.closing = true;
        self.dirty.push(at);
    }

    fn close(&mut self, at: usize) {
        let mut connection = self.connections.remove(at);
        drop(self.registry.deregister(connection.stream()));
        let (waiting, held) = (connection.waiting, connection.held);
        let alone = self.outbox.leave(connection.id, waiting, held);
        if !alone.is_empty() {
            let grace_ms = match connection.speaks {
                Speaks::Resp(_) => self.config.grace.as_millis() as u64,
                Speaks::Enqueue(_) => 0,
            };
            self.propose(Command::Detach(Detach { ids: Some(alone), grace_ms }));
        }
    }

    /// Cuts off those who have been silent for too long. Once a second is often enough.
    pub(crate) fn sweep(&mut self) {
        let now = Instant::now();
        if now - self.swept < std::time::Duration::from_secs(1) {
            return;
        }
        self.swept = now;
        let (handshake, idle) = (self.config.handshake, self.config.idle);
        let silent = |connection: &Connection| {
            let since = now - connection.active;
            let busy = connection.open > 0
                || !connection.waiting.is_empty()
                || !connection.held.is_empty()
                || connection.subscribed;
            (!connection.greeted && since > handshake) || (!idle.is_zero() && !busy && since > idle)
        };
        let cut: Vec<usize> =
            self.connections.iter().filter(|(_, c)| silent(c)).map(|(at, _)| at).collect();
        for at in cut {
            self.close(at);
        }
    }

    /// How many connections there are.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.len()
    }
}

impl Connection {
    fn wants_pushes(&self) -> bool {
        match &self.speaks {
            Speaks::Resp(session) => session.protocol == keylatch_wire::Protocol::Resp3,
            Speaks::Enqueue(_) => false,
        }
    }
}

fn write(connection: &mut Connection, write: impl FnOnce(&mut keylatch_wire::Writer<'_>)) {
    let Speaks::Resp(session) = &connection.speaks else {
        unreachable!("only RESP is written so");
    };
    let protocol = session.protocol;
    write(&mut keylatch_wire::Writer { out: connection.out(), protocol });
}
