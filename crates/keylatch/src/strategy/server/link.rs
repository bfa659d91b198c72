//! The connection: one task that writes what was submitted, matches answers to it in order, and
//! comes back after the connection is lost.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use keylatch_table::{RequestId, TaskCommand};
use keylatch_wire::{Lock, Value, read_value, write_lock};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::super::{Granted, Loss};
use super::claims::{ClaimSender, ClaimWait, Claims};
use super::read::{self, Outcome};
use super::way::{BACK_OFF, Stream, Way};
use super::{Failure, PATIENCE, encode};
use crate::clock::Moment;
use crate::error::{ConnectError, LockError, TaskError};

type LockSender = oneshot::Sender<Result<Granted, LockError>>;
type ValueSender = oneshot::Sender<Result<Value, Failure>>;

/// What is to be sent.
pub(super) enum Submitted {
    Lock(Box<Lock>, LockSender),
    Release(RequestId, Vec<u8>, ValueSender),
    Promote(RequestId, Vec<u8>, ValueSender),
    Command(Vec<u8>, ValueSender),
    /// A change of tasks, which has its id in it.
    Task(Vec<u8>, ValueSender),
    Claim(Box<TaskCommand>, ClaimSender),
    CancelClaim(RequestId, Vec<u8>, ValueSender),
}

/// A request without an answer.
struct Open {
    bytes: Vec<u8>,
    to: To,
    /// Whether it has ever been sent: then it may have happened.
    sent: bool,
    give_up: Instant,
}

/// Who gets an answer.
enum To {
    Lock(Box<Wait>),
    Value(ValueSender),
    Promote(RequestId, ValueSender),
    Task(ValueSender),
    Claim(Box<ClaimWait>),
    CancelClaim(RequestId, ValueSender),
    /// A lock that is held, attached to a new connection.
    Attach(RequestId),
    /// A request that was given up, or whose outcome nobody needs.
    Nobody,
}

/// A lock that is held, and under which token.
struct Held {
    lock: Lock,
    token: u64,
}

/// A lock that is asked for or waited for.
struct Wait {
    lock: Lock,
    outcome: LockSender,
    /// When it was first asked for: its lease counts from there, and what it waited.
    since: Moment,
    /// When the wait is over.
    end: Instant,
}

impl Wait {
    fn id(&self) -> RequestId {
        self.lock.id.clone().expect("we gave it one")
    }

    /// As it is asked for now: what is left of its wait.
    fn bytes(&mut self) -> Vec<u8> {
        let left = self.end.saturating_duration_since(Instant::now());
        if self.lock.asynchronous {
            self.lock.wait_ms = (left.as_millis() as u64).max(1);
        }
        let mut bytes = Vec::new();
        write_lock(&self.lock, &mut bytes);
        bytes
    }
}

pub(super) struct Link {
    way: Way,
    submitted: mpsc::UnboundedReceiver<Submitted>,
    losses: mpsc::UnboundedSender<Loss>,
    /// In the order of their answers.
    open: VecDeque<Open>,
    waits: HashMap<RequestId, Wait>,
    claims: Claims,
    /// To be attached again after the connection was lost.
    held: HashMap<RequestId, Held>,
    /// Nobody can submit anything any more.
    closed: bool,
    /// The server has forgotten who we are on this connection: nothing more is asked on it.
    logged_out: bool,
}

/// How often those are looked for whose time is over.
const LOOK: Duration = Duration::from_millis(100);
const UNREACHABLE: &str = "the server was not reached in time";

impl Link {
    pub(super) fn new(
        way: Way,
        submitted: mpsc::UnboundedReceiver<Submitted>,
        losses: mpsc::UnboundedSender<Loss>,
    ) -> Link {
        Link {
            way,
            submitted,
            losses,
            open: VecDeque::new(),
            waits: HashMap::new(),
            claims: Claims::default(),
            held: HashMap::new(),
            closed: false,
            logged_out: false,
        }
    }

    pub(super) async fn run(mut self, first: Stream) {
        let mut stream = Some(first);
        let (least, most) = BACK_OFF;
        let mut back_off = least;
        while !self.is_over() {
            let connected = match stream.take() {
                Some(stream) => Ok(stream),
                None => self.way.connect().await,
            };
            match connected {
                Ok(stream) => {
                    let since = Instant::now();
                    self.serve(stream).await;
                    if since.elapsed() > most {
                        back_off = least;
                    }
                }
                Err(ConnectError::Denied(reason)) => {
                    self.denied(&reason);
                    self.until_asked().await;
                }
                Err(error) => tracing::debug!(%error, "trying again"),
            }
            self.pause(back_off).await;
            back_off = (back_off * 2).min(most);
        }
    }

    fn is_over(&self) -> bool {
        self.closed && self.open.is_empty()
    }

    /// We are not let in. Nothing is tried again before somebody asks for something; what is held
    /// stays held until its lease ends.
    fn denied(&mut self, reason: &str) {
        tracing::warn!(reason, "the lock server does not let us in");
        let unknown = format!("the connection was lost, and then: {reason}");
        for open in self.open.drain(..) {
            match open.to {
                To::Lock(wait) => drop(wait.outcome.send(Err(match open.sent {
                    true => LockError::Unknown(unknown.clone()),
                    false => LockError::Denied(reason.into()),
                }))),
                To::Claim(wait) => wait.done(Err(match open.sent {
                    true => TaskError::Unknown(unknown.clone()),
                    false => TaskError::Denied(reason.into()),
                })),
                To::Promote(_, sender) | To::Task(sender) if open.sent => {
                    drop(sender.send(Err(Failure::Unknown(unknown.clone()))));
                }
                To::Value(sender)
                | To::Promote(_, sender)
                | To::Task(sender)
                | To::CancelClaim(_, sender) => {
                    drop(sender.send(Err(Failure::Denied(reason.into()))));
                }
                To::Attach(_) | To::Nobody => {}
            }
        }
        // They may have been granted meanwhile; if not, their places are not kept.
        for (_, wait) in self.waits.drain() {
            drop(wait.outcome.send(Err(LockError::Unknown(unknown.clone()))));
        }
        self.claims.give_up(|_| true, &unknown);
    }

    async fn until_asked(&mut self) {
        while self.open.is_empty() && !self.closed {
            let submitted = self.submitted.recv().await;
            self.take(submitted);
        }
    }

    /// Takes what is submitted while there is no connection.
    async fn pause(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.is_over() {
            tokio::select! {
                submitted = self.submitted.recv(), if !self.closed => self.take(submitted),
                () = tokio::time::sleep(LOOK.min(time)) => {}
            }
            self.give_up();
        }
    }

    /// Until the connection is lost, or not needed any more.
    async fn serve(&mut self, mut stream: Stream) {
        let mut out = self.again();
        self.logged_out = false;
        let mut input = Vec::new();
        let mut looked = Instant::now();
        // One timer for all rounds: there are several for each request.
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (holds_back, mut unflushed) = (stream.holds_back(), false);
        let (mut reader, mut writer) = stream.split();
        while !self.is_over() {
            let before = self.open.len();
            tokio::select! {
                read = reader.read_buf(&mut input) => match read {
                    Ok(count) if count > 0 => {
                        if !self.receive(&mut input) {
                            return;
                        }
                    }
                    _ => return,
                },
                submitted = self.submitted.recv(), if !self.closed => {
                    self.take(submitted);
                    while let Ok(more) = self.submitted.try_recv() {
                        self.take(Some(more));
                    }
                }
                written = send(&mut writer, &out), if !out.is_empty() || unflushed => match written {
                    Ok(count) => {
                        out.drain(..count);
                        unflushed = holds_back && count > 0;
                    }
                    Err(_) => return,
                },
                _ = look.tick() => {}
            }
            if self.logged_out {
                // What was sent is answered before a new connection says who we are.
                if self.open.front().is_none_or(|open| !open.sent) {
                    return;
                }
                self.give_up();
                continue;
            }
            // What was added stands at the end; answers take from the front.
            let new = self.open.iter_mut().rev().take_while(|open| !open.sent).count();
            let from = self.open.len() - new;
            for open in self.open.range_mut(from..) {
                out.extend_from_slice(&open.bytes);
                open.sent = true;
            }
            if looked.elapsed() > LOOK || before == 0 {
                looked = Instant::now();
                self.give_up();
            }
        }
    }

    /// What a new connection is told once it knows who is here: what is held, what is waited for,
    /// and what has no answer yet.
    fn again(&mut self) -> Vec<u8> {
        let mut again = VecDeque::new();
        let give_up = Instant::now() + PATIENCE;
        for (id, held) in &self.held {
            let mut bytes = Vec::new();
            write_lock(&held.lock, &mut bytes);
            again.push_back(Open { bytes, to: To::Attach(id.clone()), sent: true, give_up });
        }
        for (_, mut wait) in self.waits.drain() {
            let (bytes, give_up) = (wait.bytes(), wait.end + PATIENCE);
            again.push_back(Open { bytes, to: To::Lock(Box::new(wait)), sent: true, give_up });
        }
        for mut wait in self.claims.drain() {
            let (bytes, give_up) = (wait.bytes(), wait.end + PATIENCE);
            again.push_back(Open { bytes, to: To::Claim(Box::new(wait)), sent: true, give_up });
        }
        for mut open in self.open.drain(..) {
            match &mut open.to {
                To::Nobody | To::Attach(_) => continue,
                To::Lock(wait) => open.bytes = wait.bytes(),
                To::Claim(wait) => open.bytes = wait.bytes(),
                To::Value(_) | To::Promote(..) | To::Task(_) | To::CancelClaim(..) => {}
            }
            open.sent = true;
            again.push_back(open);
        }
        self.open = again;
        self.open.iter().flat_map(|open| open.bytes.iter().copied()).collect()
    }

    fn take(&mut self, submitted: Option<Submitted>) {
        let patience = Instant::now() + PATIENCE;
        let (bytes, to, give_up) = match submitted {
            None => {
                self.closed = true;
                return;
            }
            Some(Submitted::Lock(lock, outcome)) => {
                let wait = Duration::from_millis(lock.wait_ms);
                let (since, end) = (Moment::now(), Instant::now() + wait);
                let mut wait = Wait { lock: *lock, outcome, since, end };
                (wait.bytes(), To::Lock(Box::new(wait)), end + PATIENCE)
            }
            Some(Submitted::Release(id, bytes, answer)) => {
                self.held.remove(&id);
                self.waits.remove(&id);
                (bytes, To::Value(answer), patience)
            }
            Some(Submitted::Promote(id, bytes, answer)) => {
                (bytes, To::Promote(id, answer), patience)
            }
            Some(Submitted::Command(bytes, answer)) => (bytes, To::Value(answer), patience),
            Some(Submitted::Task(bytes, answer)) => (bytes, To::Task(answer), patience),
            Some(Submitted::Claim(command, outcome)) => {
                let mut wait = ClaimWait::new(*command, outcome);
                let give_up = wait.end + PATIENCE;
                (wait.bytes(), To::Claim(Box::new(wait)), give_up)
            }
            Some(Submitted::CancelClaim(id, bytes, answer)) => {
                (bytes, To::CancelClaim(id, answer), patience)
            }
        };
        self.open.push_back(Open { bytes, to, sent: false, give_up });
    }

    /// Takes all whole values; false if they make no sense.
    fn receive(&mut self, input: &mut Vec<u8>) -> bool {
        let mut taken = 0;
        let sense = loop {
            match read_value(&input[taken..]) {
                Ok(None) => break true,
                Ok(Some((value, count))) => {
                    taken += count;
                    if let Value::Push(words) = value {
                        self.pushed(&words);
                    } else if let Some(open) = self.open.pop_front() {
                        self.logged_out |= read::is_logged_out(&value);
                        self.answered(open.to, value);
                    } else {
                        break false;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the server says something that is not RESP");
                    break false;
                }
            }
        };
        input.drain(..taken);
        sense
    }

    fn answered(&mut self, to: To, value: Value) {
        match to {
            To::Nobody => {}
            To::Value(sender) | To::Task(sender) => drop(sender.send(Ok(value))),
            To::Claim(wait) => self.claims.answered(*wait, &value),
            To::CancelClaim(id, sender) => {
                if value == Value::Integer(1) {
                    self.claims.cancelled(&id);
                }
                drop(sender.send(Ok(value)));
            }
            To::Lock(wait) => match read::outcome(&value) {
                Outcome::Waiting => drop(self.waits.insert(wait.id(), *wait)),
                Outcome::Done(outcome) => self.done(*wait, outcome),
            },
            To::Promote(id, sender) => {
                let promoted = read::promoted(&value, Moment::now());
                if let (Ok(granted), Some(held)) = (promoted, self.held.get_mut(&id)) {
                    held.token = granted.grant.token;
                }
                drop(sender.send(Ok(value)));
            }
            To::Attach(id) => self.attached(&id, &value),
        }
    }

    /// If it is not held any more, its holder has to know.
    fn attached(&mut self, id: &RequestId, value: &Value) {
        match read::outcome(value) {
            Outcome::Done(Ok(grant)) => {
                let is_same = self.held.get(id).is_none_or(|held| held.token == grant.token);
                let promoting =
                    |open: &Open| matches!(&open.to, To::Promote(other, _) if other == id);
                if is_same || self.open.iter().any(promoting) {
                    return;
                }
                // The server has forgotten it, and this is a new grant, which nobody asked for.
                self.lost(id, crate::Lost::Expired);
                let bytes = encode(&["UNLOCK", &id.to_string()]);
                let give_up = Instant::now() + PATIENCE;
                self.open.push_back(Open { bytes, to: To::Nobody, sent: false, give_up });
            }
            Outcome::Done(Err(LockError::Ended(cause))) => {
                self.lost(id, crate::Lost::from_cause(cause, None));
            }
            // It is held all the same, until its lease ends; nor is it lost because nobody leads just now.
            Outcome::Done(Err(LockError::Denied(_) | LockError::Unknown(_))) => {}
            _ => self.lost(id, crate::Lost::Expired),
        }
    }

    fn done(&mut self, wait: Wait, outcome: Result<keylatch_table::Grant, LockError>) {
        let id = wait.id();
        let granted = outcome.map(|grant| Granted { grant, since: wait.since });
        if let Ok(Granted { grant, .. }) = &granted {
            let mut lock = wait.lock;
            (lock.wait_ms, lock.asynchronous) = (0, false);
            self.held.insert(id.clone(), Held { lock, token: grant.token });
        }
        if wait.outcome.send(granted).is_err() {
            // Nobody waits for it any more; whoever stopped waiting has released it.
            self.held.remove(&id);
        }
    }

    fn lost(&mut self, id: &RequestId, lost: crate::Lost) {
        if self.held.remove(id).is_some() {
            drop(self.losses.send((id.clone(), lost)));
        }
    }

    /// `keylatch granted|timeout|deadlock|cancelled|lost {map}`, and of claims `claimed|refused`.
    fn pushed(&mut self, words: &[Value]) {
        let [first, kind, about] = words else { return };
        let Some(id) = read::text(about, "id").map(RequestId::new) else { return };
        if !first.is("keylatch") {
            return;
        }
        if self.claims.pushed(&id, about) {
            return;
        }
        if kind.is("lost") {
            return self.lost(&id, read::lost(about));
        }
        let Some(wait) = self.waits.remove(&id) else { return };
        match read::outcome(about) {
            Outcome::Waiting => drop(self.waits.insert(id, wait)),
            Outcome::Done(outcome) => self.done(wait, outcome),
        }
    }

    /// Those whose time is over are told so. Requests that were sent keep their place: an answer may
    /// still come.
    fn give_up(&mut self) {
        let now = Instant::now();
        for open in self.open.iter_mut().filter(|open| open.give_up <= now) {
            let sent = open.sent;
            match std::mem::replace(&mut open.to, To::Nobody) {
                To::Lock(wait) => drop(wait.outcome.send(Err(match sent {
                    true => LockError::Unknown(UNREACHABLE.into()),
                    false => LockError::Unreachable(UNREACHABLE.into()),
                }))),
                To::Claim(wait) => wait.done(Err(match sent {
                    true => TaskError::Unknown(UNREACHABLE.into()),
                    false => TaskError::Unreachable(UNREACHABLE.into()),
                })),
                To::Value(sender)
                | To::Promote(_, sender)
                | To::Task(sender)
                | To::CancelClaim(_, sender) => drop(sender.send(Err(match sent {
                    true => Failure::Unknown(UNREACHABLE.into()),
                    false => Failure::NotSent(UNREACHABLE.into()),
                }))),
                To::Attach(_) | To::Nobody => {}
            }
        }
        // Those that were never sent have no answer that could come.
        self.open.retain(|open| open.sent || open.give_up > now);
        let over: Vec<RequestId> = self
            .waits
            .iter()
            .filter(|(_, wait)| wait.end + PATIENCE <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in over {
            if let Some(wait) = self.waits.remove(&id) {
                drop(wait.outcome.send(Err(LockError::Unknown(UNREACHABLE.into()))));
            }
        }
        self.claims.give_up(|end| end + PATIENCE <= now, UNREACHABLE);
    }
}

/// Some of it; if there is nothing, sees to it that all of it is on its way. Cancel safe.
async fn send(writer: &mut (impl AsyncWrite + Unpin), out: &[u8]) -> io::Result<usize> {
    match out.is_empty() {
        true => writer.flush().await.map(|()| 0),
        false => writer.write(out).await,
    }
}
