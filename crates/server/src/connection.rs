//! One connection: what carries it, what it has sent and not been read yet, what it has not been sent
//! yet, and what it waits for.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use keylatch_table::{RequestId, Text};

use crate::listener::resp::Changes;
use crate::listener::{Ask, Speaks};
use crate::outbox::Wanted;
use crate::transport::Transport;
use crate::turn::Login;

/// Names a connection; never the same for two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionId {
    /// Where it is.
    pub(crate) at: usize,
    /// Which of those that were there.
    pub(crate) number: u64,
}

pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) transport: Transport,
    pub(crate) speaks: Speaks,
    /// What came and was not taken yet.
    pub(crate) input: Vec<u8>,
    out: Vec<u8>,
    /// How much of `out` has gone.
    sent: usize,
    /// What is shown as the owner of a request that names none.
    pub(crate) shown: Text,
    /// From where.
    pub(crate) address: IpAddr,
    /// Who it is, once it has said so.
    pub(crate) login: Option<Login>,
    /// Requests of this turn that have no answer yet.
    pub(crate) open: u32,
    /// Whether one of those is a question: a change behind it has to wait for the next turn.
    pub(crate) asked: bool,
    /// Nothing more is taken from the input until the turn is over.
    pub(crate) held_back: bool,
    /// It stands in line to be looked at again.
    pub(crate) queued: bool,
    /// A change that was read behind a question, and is asked for once that is answered.
    pub(crate) behind: Option<(Ask, Changes)>,
    /// A lock or a task that is waited for; nothing more is taken from the input until it is decided.
    pub(crate) blocked: bool,
    /// In a cluster: if what is waited for is not decided by then, nobody leads.
    pub(crate) patience: Option<Instant>,
    /// Requests that wait, whose outcome is told here.
    pub(crate) waiting: Vec<(Wanted, RequestId)>,
    /// Requests that hold, whose loss is told here (RESP3).
    pub(crate) held: HashSet<RequestId>,
    /// Whether it listens to all events.
    pub(crate) subscribed: bool,
    /// There may be something in the socket. It says so only once, so this stays until that is read.
    pub(crate) readable: bool,
    /// The other side is done or gone; its end is behind what has not been read.
    pub(crate) ended: bool,
    /// It is closed once everything has been sent.
    pub(crate) closing: bool,
    /// Whether it waits for room in the socket.
    pub(crate) wants_room: bool,
    /// When it last sent or got something; for the first bytes, when it came.
    pub(crate) active: Instant,
    /// Whether it has sent anything at all.
    pub(crate) greeted: bool,
    /// How many requests it has sent.
    pub(crate) requests: u64,
    /// When it last sent something, for `Pace`.
    pub(crate) window: u32,
    /// Since when, and behind how many requests, it owes the rest of one.
    pub(crate) owes: Option<(Instant, u64)>,
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        transport: Transport,
        speaks: Speaks,
        shown: Text,
        address: IpAddr,
    ) -> Connection {
        Connection {
            id,
            transport,
            speaks,
            input: Vec::new(),
            out: Vec::new(),
            sent: 0,
            shown,
            address,
            login: None,
            open: 0,
            asked: false,
            held_back: false,
            queued: false,
            behind: None,
            blocked: false,
            patience: None,
            waiting: Vec::new(),
            held: HashSet::new(),
            subscribed: false,
            readable: false,
            ended: false,
            closing: false,
            wants_room: false,
            active: Instant::now(),
            greeted: false,
            requests: 0,
            window: 0,
            owes: None,
        }
    }

    /// Its way out, and what it has not been sent yet.
    pub(crate) fn into_parts(self) -> (Transport, Vec<u8>) {
        (self.transport, self.out[self.sent..].to_vec())
    }

    /// Whether it has begun a request and not finished it for longer than `limit`. To be asked now
    /// and then.
    pub(crate) fn is_slow(&mut self, now: Instant, limit: Duration) -> bool {
        let begun = !self.input.is_empty() || self.speaks.has_in_hand();
        let ours = self.open > 0 || self.blocked || self.held_back || self.queued;
        self.owes = match self.owes {
            _ if !begun || ours => None,
            Some((since, behind)) if behind == self.requests => Some((since, behind)),
            _ => Some((now, self.requests)),
        };
        self.owes.is_some_and(|(since, _)| now - since > limit)
    }

    /// Whether there may be something to take without hearing from the socket again.
    pub(crate) fn has_more(&self) -> bool {
        self.readable
            || self.ended
            || self.behind.is_some()
            || !self.input.is_empty()
            || self.speaks.has_in_hand()
    }

    /// Where answers are written.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Whether there is anything to send, of answers or of TLS.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent() > 0 || self.transport.has_unsent()
    }

    /// Sends what there is. False if the connection is gone.
    pub(crate) fn send(&mut self) -> bool {
        while self.unsent() > 0 {
            match self.transport.write(&self.out[self.sent..]) {
                Ok(0) => return false,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.out.clear();
        self.sent = 0;
        // A long list must not stay in memory for as long as the connection does.
        if self.out.capacity() > KEEP {
            self.out = Vec::new();
        }
        self.transport.flush().is_ok()
    }
}

/// A connection keeps this much room for answers.
const KEEP: usize = 16 * 1024;
