//! The loop of a member as `server/in_cluster` has it, with clients that are tasks in place of sockets: one batch
//! under way, what comes meanwhile is the next one; who waited for a leader for too long is told so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{Acquire, Command, Detach, Event, Grant, Reply, RequestId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::super::NodeError;
use super::super::desk::{Desk, Told};
use super::super::types::Stamp;
use super::judge::events;
use super::world::{World, note};

/// What a client is told.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Reply(Reply),
    /// What it has waited for.
    Granted(Grant),
    TimedOut,
    Withdrawn,
    /// Nobody leads, and whether it may have happened.
    NoLeader {
        maybe: bool,
    },
    /// A question, answered.
    Read,
}

/// What a client asks; `None` is a question.
pub(super) struct Ask {
    pub(super) command: Option<Command>,
    pub(super) to: oneshot::Sender<Said>,
    /// What anybody had been answered when it was asked.
    pub(super) seen_index: u64,
}

/// How long requests wait for a leader that do not wait for a lock.
pub(super) const LEADER_WAIT: Duration = Duration::from_secs(3);
/// How long the place of a waiter is kept whose client is gone.
const GRACE_MS: u64 = 2_000;
/// How often those are looked for that are gone.
const LOOK: Duration = Duration::from_millis(100);

struct Work {
    command: Option<Command>,
    to: Option<oneshot::Sender<Said>>,
    until: Option<Instant>,
    seen_index: u64,
    asked: u64,
}

struct Flight {
    number: u64,
    works: Vec<Work>,
}

struct Waiter {
    to: oneshot::Sender<Said>,
    patience: Instant,
}

pub(super) struct Server {
    pub(super) world: Arc<World>,
    pub(super) desk: Arc<Desk>,
    /// As what the judge knows this life, and where it is.
    pub(super) name: String,
    pub(super) address: String,
    pub(super) me: (u64, u64),
    pub(super) asks: mpsc::UnboundedReceiver<Ask>,
    pub(super) wake: Arc<Notify>,
    pending: Vec<Work>,
    flight: Option<Flight>,
    last: u64,
    waiting: BTreeMap<RequestId, Vec<Waiter>>,
}

impl Server {
    pub(super) fn new(
        world: Arc<World>,
        desk: Arc<Desk>,
        (name, address, me): (String, String, (u64, u64)),
        asks: mpsc::UnboundedReceiver<Ask>,
        wake: Arc<Notify>,
    ) -> Server {
        let (pending, flight, last, waiting) = (Vec::new(), None, 0, BTreeMap::new());
        Server { world, desk, name, address, me, asks, wake, pending, flight, last, waiting }
    }

    pub(super) async fn run(mut self) {
        let mut told = VecDeque::new();
        // So that the cluster knows of this life.
        self.propose(Command::Tick);
        loop {
            self.desk.take(&mut told);
            for told in told.drain(..) {
                self.hear(told);
            }
            while let Ok(ask) = self.asks.try_recv() {
                self.take(ask);
            }
            self.look();
            self.give_up();
            if self.flight.is_none() && !self.pending.is_empty() {
                self.depart();
            }
            let due = self.works().filter_map(|work| work.until).min();
            let look = (!self.waiting.is_empty()).then(|| Instant::now() + LOOK);
            let until = due.into_iter().chain(look).min();
            let until = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(1));
            tokio::select! {
                biased;
                () = self.wake.notified() => {}
                ask = self.asks.recv() => match ask {
                    Some(ask) => self.take(ask),
                    None => return,
                },
                () = sleep_until(until) => {}
            }
        }
    }

    fn works(&self) -> impl Iterator<Item = &Work> {
        self.flight.iter().flat_map(|flight| &flight.works).chain(&self.pending)
    }

    fn propose(&mut self, command: Command) {
        let (command, to, until) = (Some(command), None, None);
        self.pending.push(Work { command, to, until, seen_index: 0, asked: self.world.now() });
    }

    fn take(&mut self, ask: Ask) {
        let Ask { command, to, seen_index } = ask;
        let wait = wait_of(command.as_ref());
        let until = Some(Instant::now() + wait.max(LEADER_WAIT));
        let asked = self.world.now();
        self.pending.push(Work { command, to: Some(to), until, seen_index, asked });
    }

    /// Those who wait and are gone, or have lost patience.
    fn look(&mut self) {
        let (now, mut gone) = (Instant::now(), Vec::new());
        for (id, waiters) in &mut self.waiting {
            let before = waiters.len();
            waiters.retain(|waiter| !waiter.to.is_closed());
            if waiters.is_empty() && before > 0 {
                gone.push(id.clone());
            }
            for late in waiters.extract_if(.., |waiter| waiter.patience <= now) {
                let _ = late.to.send(Said::NoLeader { maybe: true });
            }
        }
        self.waiting.retain(|_, waiters| !waiters.is_empty());
        if !gone.is_empty() {
            self.propose(Command::Detach(Detach { ids: Some(gone), grace_ms: GRACE_MS }));
        }
    }

    fn depart(&mut self) {
        self.last += 1;
        let flight = Flight { number: self.last, works: std::mem::take(&mut self.pending) };
        let commands = commands(&flight.works);
        match commands.is_empty() {
            true => self.desk.read(flight.number),
            false => self.desk.submit(flight.number, &commands),
        }
        self.flight = Some(flight);
    }

    fn hear(&mut self, told: Told) {
        let mut landed = |number: u64| self.flight.take_if(|flight| flight.number == number);
        match told {
            Told::Done { number, applied } => {
                let Some(flight) = landed(number) else {
                    let text = format!("{} hears twice of {number}", self.name);
                    return self.world.judge.lock().find(text);
                };
                self.check_alone(&flight);
                let (node, incarnation) = self.me;
                self.world.judge.lock().told_of(Stamp { node, incarnation, number });
                let mut applied = applied.into_iter();
                for work in flight.works {
                    let Some(command) = work.command else {
                        if let Some(to) = work.to {
                            self.answer_read(to, work.seen_index);
                        }
                        continue;
                    };
                    let applied = applied.next().expect("as many outcomes as commands");
                    if let Some(to) = work.to {
                        self.answer(command, applied.reply, to);
                    }
                    applied.events.iter().for_each(|event| self.tell(event));
                }
            }
            Told::Read { number } => {
                let Some(flight) = landed(number) else { return };
                self.check_alone(&flight);
                for work in flight.works {
                    if let Some(to) = work.to {
                        self.answer_read(to, work.seen_index);
                    }
                }
            }
            Told::Events(applied) => events(&applied).for_each(|event| self.tell(event)),
            Told::NoRoom { number } => drop(landed(number)),
            Told::Detached => {
                note!(self.world, "{} was taken for gone", self.name);
                self.waiting.clear();
            }
            Told::Installed { number } => {
                note!(self.world, "{} was far behind", self.name);
                self.flight.take_if(|flight| flight.number <= number);
                for work in self.flight.iter_mut().flat_map(|flight| &mut flight.works) {
                    work.to = None;
                }
                for work in &mut self.pending {
                    work.to = None;
                }
                self.waiting.clear();
            }
            Told::Failed(error) => {
                note!(self.world, "{} ends: {error}", self.name);
                let mut judge = self.world.judge.lock();
                // Whom the log has taken out may be told so, and nobody else.
                let is_out = !judge.members.contains(&self.me.0);
                if !(is_out && matches!(error, NodeError::Removed)) {
                    judge.find(format!("{} has failed: {error}", self.name));
                }
            }
        }
    }

    /// C8.
    fn check_alone(&self, flight: &Flight) {
        let asked = flight.works.iter().filter(|work| work.to.is_some()).map(|work| work.asked);
        let alone = self.world.net.lock().alone_since.get(&self.address).copied();
        if let (Some(since), Some(asked)) = (alone, asked.min())
            && asked > since
        {
            let name = &self.name;
            let text = format!("C8: {name} answers what was asked at {asked}, alone since {since}");
            self.world.judge.lock().find(text);
        }
    }

    fn answer_read(&self, to: oneshot::Sender<Said>, seen_index: u64) {
        self.world.judge.lock().told_read(&self.name, seen_index);
        let _ = to.send(Said::Read);
    }

    fn answer(&mut self, command: Command, reply: Reply, to: oneshot::Sender<Said>) {
        match (&reply, command) {
            (Reply::Waiting(_), Command::Acquire(Acquire { id, wait_ms, .. })) => {
                let patience = Instant::now() + Duration::from_millis(wait_ms) + 2 * LEADER_WAIT;
                self.waiting.entry(id).or_default().push(Waiter { to, patience });
            }
            _ => drop(to.send(Said::Reply(reply))),
        }
    }

    fn tell(&mut self, event: &Event) {
        let (id, said) = match event {
            Event::Granted { id, grant } => (id, Said::Granted(grant.clone())),
            Event::TimedOut { id, .. } | Event::Deadlocked { id, .. } => (id, Said::TimedOut),
            Event::Withdrawn { id, .. } => (id, Said::Withdrawn),
            Event::Lost { .. } | Event::Task(_) => return,
        };
        for waiter in self.waiting.remove(id).into_iter().flatten() {
            let _ = waiter.to.send(said.clone());
        }
    }

    /// As `server/in_cluster` does it.
    fn give_up(&mut self) {
        let now = Instant::now();
        let over = |work: &Work| work.until.is_some_and(|until| until <= now);
        if let Some(mut flight) = self.flight.take_if(|flight| flight.works.iter().any(over)) {
            if self.desk.recall() || commands(&flight.works).is_empty() {
                self.desk.forget(flight.number);
                flight.works.append(&mut self.pending);
                self.pending = flight.works;
            } else {
                for work in flight.works.iter_mut().filter(|work| over(work)) {
                    let maybe = work.command.is_some();
                    work.until = None;
                    work.command = work.command.as_ref().map(|_| Command::Tick);
                    if let Some(to) = work.to.take() {
                        let _ = to.send(Said::NoLeader { maybe });
                    }
                }
                self.desk.replace(flight.number, &commands(&flight.works));
                self.flight = Some(flight);
            }
        }
        for late in self.pending.extract_if(.., |work| over(work)) {
            if let Some(to) = late.to {
                let _ = to.send(Said::NoLeader { maybe: false });
            }
        }
    }
}

fn commands(works: &[Work]) -> Vec<Command> {
    works.iter().filter_map(|work| work.command.clone()).collect()
}

fn wait_of(command: Option<&Command>) -> Duration {
    match command {
        Some(Command::Acquire(ask)) => Duration::from_millis(ask.wait_ms),
        _ => Duration::ZERO,
    }
}
