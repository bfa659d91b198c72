//! One turn: everything that has arrived is read, all changes go through the log together, and
//! everyone gets an answer. It is one thread, so that nothing has to hop to another one.
//!
//! Within a turn a connection's requests keep their order: questions are answered after all changes
//! of the turn, so a change behind a question waits for the next turn (`held_back`), and so does
//! whatever comes behind a lock that may have to wait (`blocked` once it does).

mod answers;
mod context;
mod door;
mod ends;
mod flight;
mod guard;
mod lists;
mod shortcut;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use keylatch_table::{Command, Query, Table};
use mio::{Interest, Registry, Token};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use slab::Slab;

use crate::access::{Principal, Record};
use crate::certificates::Certificates;
use crate::clock::Clock;
use crate::config::Config;
use crate::connection::{Connection, ConnectionId};
use crate::feed::Feed;
use crate::listener::{Answer, Ask, Fresh, Read, Speaks, http, resp};
use crate::log::raft::View;
use crate::metrics::{self, Syncs};
use crate::outbox::Outbox;
use crate::pace::Pace;
use crate::transport::Incoming;
pub(crate) use context::Context;
pub(crate) use flight::Sent;
pub(crate) use guard::{Guard, LOG_IN, Login};
use lists::Lists;
use shortcut::Shortcut;

/// Requests of one connection in one turn; the others have theirs before it goes on.
const PER_TURN: usize = 256;
/// Bytes of requests in one turn, of all connections together: a turn is one write to the log.
const TURN_BYTES: usize = 4 * 1024 * 1024;
/// A turn keeps room for this many requests; most have fewer.
pub(crate) const KEEP: usize = 4_096;
/// Bytes that are read at once.
const READ: usize = 64 * 1024;
/// Handshakes of TLS in one turn that take cryptography, up to a millisecond each with an RSA key;
/// and those that are looked at in a turn at all. The others wait, and so does nobody else.
const HANDSHAKES: usize = 4;
const HANDSHAKE_LOOKS: usize = 64;
/// Connections are numbered behind the listeners and the waker.
pub(crate) const FIRST_CONNECTION: usize = 8;

/// What a turn makes of what has arrived.
#[derive(Default)]
pub(crate) struct Batch {
    /// For the log and the table, in this order.
    pub(crate) commands: Vec<Command>,
    /// Who asked, in the order of asking; changes answer to `commands`.
    works: Vec<(Option<ConnectionId>, Work)>,
    /// In a cluster: until when each of `works` waits for a leader.
    until: Vec<Option<Instant>>,
    /// When the first of them gives up.
    gives_up: Option<Instant>,
    /// How long the requests were.
    bytes: usize,
}

enum Work {
    Change(Option<Answer>),
    /// So many changes, with one answer.
    Changes(usize, Answer),
    /// A change, and what is written down of it.
    Recorded(Answer, Box<Record>),
    /// As whom it is asked, if that matters.
    Question(Vec<Query>, Answer, Option<Arc<Principal>>),
    Say(Vec<u8>),
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// The same room, empty, for another turn; what a burst has taken is given back.
    fn emptied(mut self) -> Batch {
        self.commands.clear();
        self.works.clear();
        self.until.clear();
        self.gives_up = None;
        self.commands.shrink_to(KEEP);
        self.works.shrink_to(KEEP);
        self.until.shrink_to(KEEP);
        Batch { bytes: 0, ..self }
    }
}

pub(crate) struct Turns {
    config: Config,
    certificates: Option<Certificates>,
    registry: Registry,
    connections: Slab<Connection>,
    /// The number of the last connection.
    last: u64,
    table: Arc<Mutex<Table>>,
    clock: Clock,
    random: StdRng,
    outbox: Outbox,
    /// Those who listen to events over HTTP.
    feed: Feed,
    /// How long the log takes.
    pub(crate) syncs: Syncs,
    started: Instant,
    batch: Batch,
    /// The room of the last turn, for the next one.
    spare: Batch,
    /// Connections with more to read, or to take from what was read.
    again: VecDeque<ConnectionId>,
    /// The same, of those that have not agreed on TLS yet.
    shaking: VecDeque<ConnectionId>,
    /// Connections with something to send.
    dirty: Vec<usize>,
    /// Those of them that waited and are told what came of it. They go first: others wait for a lock until its new
    /// holder has heard of it, and nobody waits for whoever gave it back.
    awaited: Vec<usize>,
    /// Long lists that somebody is owed.
    lists: Lists,
    room: Vec<u8>,
    /// How fast requests come.
    pace: Pace,
    /// When this turn began: near enough for everything that is measured in seconds.
    began: Instant,
    swept: Instant,
    /// Who may do what.
    guard: Option<Guard>,
    /// The log's disk is full: no new acquisitions.
    pub(crate) full: bool,
    /// When it was last said that the table is full.
    reported: Option<Instant>,
    /// Changes of our own that found no room in the log.
    later: Vec<Command>,
    /// Of a member of a cluster: how that looks from here.
    view: Option<View>,
    /// Of a member: it has applied everything up to what it has asked for itself since it was started.
    pub(crate) caught_up: bool,
}

impl Turns {
    pub(crate) fn new(
        config: Config,
        certificates: Option<Certificates>,
        registry: Registry,
        table: Arc<Mutex<Table>>,
        clock: Clock,
        guard: Option<Guard>,
        view: Option<View>,
    ) -> Turns {
        Turns {
            config,
            certificates,
            registry,
            connections: Slab::new(),
            last: 0,
            table,
            clock,
            random: StdRng::from_os_rng(),
            outbox: Outbox::default(),
            feed: Feed::default(),
            syncs: Syncs::default(),
            started: Instant::now(),
            batch: Batch::default(),
            spare: Batch::default(),
            again: VecDeque::new(),
            shaking: VecDeque::new(),
            dirty: Vec::new(),
            awaited: Vec::new(),
            lists: Lists::default(),
            room: vec![0; READ],
            pace: Pace::new(Instant::now()),
            began: Instant::now(),
            swept: Instant::now(),
            guard,
            full: false,
            reported: None,
            later: Vec::new(),
            view,
            caught_up: false,
        }
    }

    /// Whether there is something to do without waiting for anyone.
    pub(crate) fn is_busy(&self) -> bool {
        !self.again.is_empty() || !self.shaking.is_empty() || self.next_list().is_some()
    }

    /// The socket of a connection can be read or written. If the other side is done, its end is
    /// behind what can be read, and there will be no other event for it.
    pub(crate) fn ready(&mut self, at: usize, readable: bool, writable: bool, ended: bool) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        let id = connection.id;
        connection.readable |= readable;
        connection.ended |= ended;
        if writable {
            self.dirty.push(at);
        }
        if readable {
            self.receive(at);
        }
        if ended && self.is_there(id) {
            self.again(id);
        }
    }

    /// A turn begins, with those that had more than their share in the last one, or were held back.
    pub(crate) fn resume(&mut self) {
        self.began = Instant::now();
        // What was answered without the log is no part of a batch, and nobody takes a batch of nothing.
        if self.batch.is_empty() {
            self.batch.bytes = 0;
        }
        self.pace.begin(self.began);
        self.answer_a_list();
        for _ in 0..self.again.len() {
            let Some(id) = self.again.pop_front() else { return };
            if self.is_there(id) {
                self.connections[id.at].queued = false;
                self.receive(id.at);
            }
        }
        let mut worked = 0;
        for _ in 0..self.shaking.len().min(HANDSHAKE_LOOKS) {
            if worked == HANDSHAKES {
                return;
            }
            let Some(id) = self.shaking.pop_front() else { return };
            if self.is_there(id) {
                worked += usize::from(self.shake(id));
            }
        }
    }

    /// Looks at a connection again before anyone is waited for. It stands in line at most once.
    fn again(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id.at];
        if !std::mem::replace(&mut connection.queued, true) {
            match connection.transport.is_handshaking() {
                true => self.shaking.push_back(id),
                false => self.again.push_back(id),
            }
        }
    }

    /// A connection that was held back, or blocked, is not any more. Mostly it has sent nothing meanwhile, and a look at
    /// it would be a turn for nothing.
    fn go_on(&mut self, at: usize) {
        let connection = &self.connections[at];
        if connection.has_more() {
            self.again(connection.id);
        }
    }

    fn receive(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        if connection.transport.is_handshaking() {
            let id = connection.id;
            return self.again(id);
        }
        if !connection.held_back
            && let Some((ask, changes)) = connection.behind.take()
        {
            self.put(at, ask, changes);
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
            if connection.input.len() >= connection.speaks.most_bytes(self.config.frame_bytes) {
                // Its end cannot be read, but who waits for a lock and is gone must not get it.
                if connection.blocked && connection.ended {
                    self.close(at);
                }
                return;
            }
        }
        let Some(connection) = self.connections.get_mut(at) else { return };
        if connection.closing || connection.queued || !connection.readable {
            // Done, or it has had its share of this turn, or there is nothing to read.
            return;
        }
        let mut room = std::mem::take(&mut self.room);
        let read = connection.transport.read(&mut room);
        if connection.transport.has_unsent() {
            self.dirty.push(at);
        }
        match read {
            Incoming::Nothing => connection.readable = false,
            Incoming::Again => {
                let id = connection.id;
                self.again(id);
            }
            Incoming::End => self.end(at),
            Incoming::Bytes(count, more) => {
                connection.active = self.began;
                self.pace.read(&mut connection.window);
                connection.greeted = true;
                // There is no further event for its end, so it is read until then.
                let (id, more) = (connection.id, connection.ended || more);
                connection.readable = more;
                self.received(at, &room[..count]);
                if more && self.is_there(id) {
                    self.again(id);
                }
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
            let count_of_connections = self.connections.len();
            let Some(connection) = self.connections.get_mut(at) else { return taken };
            if connection.blocked || connection.held_back || connection.closing {
                return taken;
            }
            // What is made below for each request costs something.
            if taken == input.len() && !connection.speaks.has_in_hand() {
                return taken;
            }
            if count == PER_TURN || self.batch.bytes >= TURN_BYTES {
                let id = connection.id;
                self.again(id);
                return taken;
            }
            let mut context = Context {
                frame_bytes: self.config.frame_bytes,
                owner_bytes: self.config.settings.owner_bytes,
                key_bytes: self.config.settings.task_key_bytes,
                connection: connection.id,
                hosts: &self.config.http_hosts,
                about: metrics::About {
                    connections: count_of_connections,
                    full: self.full,
                    durable: self.config.data.is_some(),
                    syncs: &self.syncs,
                    started: self.started,
                },
                shown: &connection.shown,
                login: connection.login.take(),
                refused: None,
                guard: self.guard.as_ref(),
                view: self.view.as_ref(),
                caught_up: self.caught_up,
                certificate: connection.transport.peer(),
                random: &mut self.random,
                table: &self.table,
                clock: &self.clock,
            };
            let mut changes = resp::Changes::default();
            if context.login.is_none() && context.guard.is_some() {
                match &connection.speaks {
                    Speaks::Enqueue(_) => context.login = context.guard.and_then(Guard::of_enqueue),
                    Speaks::Resp(_) | Speaks::Http(_) => context.log_in_silently(),
                }
            }
            let rest = &input[taken..];
            let read = match &mut connection.speaks {
                Speaks::Resp(session) => session.read(rest, &mut context, &mut changes),
                Speaks::Enqueue(session) => {
                    session.read(rest, &mut context, &mut changes.may_block)
                }
                Speaks::Http(session) => session.read(rest, &mut context, &mut changes),
            };
            let (login, refused) = (context.login.take(), context.refused);
            connection.login = login;
            if let Some((what, why)) = refused {
                self.record_refusal(at, what, why);
            }
            let connection = &mut self.connections[at];
            if let Read::Ask(bytes, _) = &read {
                taken += bytes;
                connection.requests += 1;
                self.batch.bytes += bytes;
            }
            match read {
                Read::Incomplete => return taken,
                // Nearly all are so, and passing an ask on copies it.
                Read::Ask(_, Ask::Change(command, answer))
                    if !connection.asked && self.guard.is_none() =>
                {
                    self.batch.commands.push(command);
                    self.change_connection(at, changes);
                    self.submit_change(at, answer);
                }
                Read::Nothing(bytes) => taken += bytes,
                Read::Broken(last_words) => {
                    connection.closing = true;
                    self.say(at, last_words);
                    return input.len();
                }
                Read::Ask(_, ask) => {
                    let behind = match &ask {
                        Ask::Change(..) | Ask::Changes(..) => connection.asked,
                        Ask::Events(_) | Ask::Question(_, _, Fresh::Stale) => connection.open > 0,
                        Ask::Question(..) | Ask::Say(_) => false,
                    };
                    if behind {
                        // Behind a question: it waits until that is answered.
                        connection.held_back = true;
                        connection.behind = Some((ask, changes));
                        return taken;
                    }
                    self.put(at, ask, changes);
                }
            }
        }
        taken
    }

    /// An ask that is next: it is judged, and goes its way.
    #[inline(always)]
    #[allow(clippy::inline_always)] // passing an ask by value copies it
    fn put(&mut self, at: usize, ask: Ask, changes: resp::Changes) {
        self.change_connection(at, changes);
        match self.guard {
            None => self.submit(at, ask),
            Some(_) => self.judge(at, ask),
        }
    }

    fn judge(&mut self, at: usize, ask: Ask) {
        let closes = match &ask {
            Ask::Change(_, answer) | Ask::Changes(_, answer) | Ask::Question(_, answer, _) => {
                answer.closes()
            }
            Ask::Say(_) | Ask::Events(_) => false,
        };
        let ask = self.admit(at, ask);
        if let Ask::Say(_) = ask {
            self.connections[at].closing |= closes;
        }
        self.submit(at, ask);
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

    #[inline(always)]
    #[allow(clippy::inline_always)] // passing an ask by value copies it
    fn submit(&mut self, at: usize, ask: Ask) {
        let connection = &mut self.connections[at];
        let id = connection.id;
        match ask {
            Ask::Say(bytes) => return self.say(at, bytes),
            Ask::Events(http::EventsFrom(last)) => return self.hand_over(at, last),
            Ask::Change(command, answer) => {
                self.batch.commands.push(command);
                return self.submit_change(at, answer);
            }
            Ask::Changes(commands, answer) => {
                if let Some(Shortcut::NoRoom) = self.shortcut(false, &commands) {
                    return self.say_no_room(at, &answer);
                }
                self.wait_for_leader(0, at);
                self.batch.works.push((Some(id), Work::Changes(commands.len(), answer)));
                self.batch.commands.extend(commands);
            }
            Ask::Question(mut queries, answer, fresh) => {
                self.bound_lists(at, &mut queries, &answer);
                let work = Work::Question(queries, answer, self.asker(at));
                if fresh == Fresh::Stale {
                    self.connections[at].open += 1;
                    return self.finish_unchanged(Some(id), work);
                }
                self.connections[at].asked = true;
                self.wait_for_leader(0, at);
                self.batch.works.push((Some(id), work));
            }
        }
        self.connections[at].open += 1;
    }

    /// The last command of the batch is this change. It is looked at where it lies: moving it costs more than looking.
    fn submit_change(&mut self, at: usize, answer: Answer) {
        let connection = &self.connections[at];
        let (id, first) = (connection.id, connection.open == 0);
        let command = self.batch.commands.last();
        if let Some(shortcut) = self.shortcut(first, command.map_or(&[], std::slice::from_ref)) {
            self.batch.commands.pop();
            match shortcut {
                Shortcut::Refused(reply) => {
                    self.connections[at].open += 1;
                    self.answer(id, &answer, &reply);
                }
                Shortcut::NoRoom => self.say_no_room(at, &answer),
            }
            return;
        }
        let work = match self.revocation(at, &answer) {
            Some(record) => Work::Recorded(answer, record),
            None => Work::Change(Some(answer)),
        };
        let wait_ms = self.batch.commands.last().map_or(0, flight::wait_ms);
        self.wait_for_leader(wait_ms, at);
        self.batch.works.push((Some(id), work));
        self.connections[at].open += 1;
    }

    /// A connection that only listens from now on is not this thread's any more.
    fn hand_over(&mut self, at: usize, last: Option<String>) {
        let mut connection = self.connections.remove(at);
        drop(self.registry.deregister(connection.transport.source()));
        connection.out().extend_from_slice(http::EVENTS_HEAD);
        let (transport, unsent) = connection.into_parts();
        self.feed.listen(transport, &unsent, last);
    }

    /// Answers at once, or behind what is still open.
    fn say(&mut self, at: usize, bytes: Vec<u8>) {
        let connection = &mut self.connections[at];
        if connection.open > 0 {
            connection.open += 1;
            self.batch.works.push((Some(connection.id), Work::Say(bytes)));
            self.wait_for_ever();
            return;
        }
        connection.out().extend_from_slice(&bytes);
        self.dirty.push(at);
        // A lock that might have waited was refused instead: there is nothing to hold back for.
        if std::mem::take(&mut connection.held_back) {
            self.go_on(at);
        }
    }

    /// A change that no connection asked for.
    pub(crate) fn propose(&mut self, command: Command) {
        self.batch.commands.push(command);
        self.batch.works.push((None, Work::Change(None)));
        self.wait_for_ever();
    }

    /// Asks once more for what found no room before.
    pub(crate) fn propose_again(&mut self) {
        for command in std::mem::take(&mut self.later) {
            self.propose(command);
        }
    }

    pub(crate) fn has_batch(&self) -> bool {
        !self.batch.is_empty()
    }

    /// How many changes have been asked for in this turn so far.
    pub(crate) fn gathered(&self) -> usize {
        self.batch.commands.len()
    }

    /// Whether it is worth waiting for more to arrive before this turn goes on.
    pub(crate) fn lets_gather(&self) -> bool {
        self.pace.lets_gather() && !self.is_busy() && !self.outbox.is_waited_for()
    }

    /// What has been asked for in this turn. Whoever holds something that ends in it has been
    /// answered in an earlier one, so who is to be told is known now.
    pub(crate) fn take_batch(&mut self) -> Batch {
        // In a cluster the table is ahead of who is known to hold what.
        let wanted =
            self.config.is_member() || self.outbox.wants_losses() || self.feed.is_listened_to();
        self.table.lock().tell_expired(wanted);
        std::mem::replace(&mut self.batch, std::mem::take(&mut self.spare))
    }

    fn is_there(&self, id: ConnectionId) -> bool {
        self.connections.get(id.at).is_some_and(|connection| connection.id == id)
    }

    /// Sends what there is to send.
    pub(crate) fn send(&mut self) {
        if self.dirty.is_empty() && self.awaited.is_empty() {
            return;
        }
        // The log may have taken its time since the turn began.
        let now = Instant::now();
        let mut awaited = std::mem::take(&mut self.awaited);
        let mut dirty = std::mem::take(&mut self.dirty);
        for at in awaited.drain(..).chain(dirty.drain(..)) {
            let Some(connection) = self.connections.get_mut(at) else { continue };
            if !connection.has_unsent() && !connection.closing {
                continue;
            }
            if !connection.send() || connection.unsent() > self.config.unread_bytes {
                self.close(at);
                continue;
            }
            // Nobody is there yet who has only been told of TLS.
            if connection.greeted {
                connection.active = now;
            }
            let unsent = connection.has_unsent();
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
                if self.registry.reregister(connection.transport.source(), token, interest).is_err()
                {
                    self.close(at);
                }
            }
        }
        // The lists keep their room.
        self.awaited = awaited;
        if self.dirty.is_empty() {
            self.dirty = dirty;
        }
    }

    /// Reads the certificates and the access file again, changed or not.
    pub(crate) fn reload(&mut self) {
        if let Some(certificates) = &mut self.certificates {
            certificates.read_again();
        }
        self.read_access_again();
    }

    /// How long a request waits for a leader, if it does not say.
    pub(crate) fn leader_wait(&self) -> std::time::Duration {
        self.config.leader_wait
    }

    /// How many connections there are.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.len()
    }
}
