//! The loop of a member of a cluster: a task beside those of Raft, on one thread. It hands over a batch, goes on
//! reading, and is woken when something has been applied. What was read meanwhile is the next batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylatch_table::{Applied, Command};
use mio::Events;
use tokio::sync::Notify;
use tokio::sync::oneshot::error::TryRecvError;

use super::{EVENTS, LOGGED_EVERY_MS, STALL, ServerError, Serving, ignore_interrupts};
use crate::log::raft::{Desk, Member, Told};
use crate::turn::{Batch, Sent};

/// A batch that is on its way through the log, or a question on its way to the leader.
struct Flight {
    number: u64,
    batch: Batch,
    began: Instant,
    /// When the first of its requests gives up.
    gives_up: Option<Instant>,
}

/// Whoever has been answered mostly asks again at once, and a batch that leaves before costs a round of the cluster for a
/// few. So the next one waits for those who are about to ask, as long as they keep coming.
#[derive(Default)]
struct Gathering {
    /// As many as that make a batch: those who were answered, and those who had asked meanwhile.
    enough: usize,
    /// Until then, whoever comes.
    until: Option<Instant>,
    /// How many there were when somebody came last, and when that was.
    last: (usize, Option<Instant>),
}

/// The longest that a batch waits for others: about what a round takes, which each of them would wait for otherwise.
const GATHER: Duration = Duration::from_millis(1);
/// Nobody else is about to come if nobody has come for so long: a core that sleeps needs about that to wake up.
const COMING: Duration = Duration::from_micros(70);

impl Gathering {
    /// So many have been answered.
    fn begin(&mut self, answered: usize) {
        *self = Gathering { enough: answered, until: None, last: (0, None) };
    }

    /// Whether so many wait for more.
    fn waits(&mut self, count: usize) -> bool {
        if count >= self.enough {
            return false;
        }
        let now = Instant::now();
        let until = *self.until.get_or_insert(now + GATHER);
        if count > self.last.0 {
            self.last = (count, Some(now));
        }
        let waits = now < until && self.last.1.is_some_and(|at| now < at + COMING);
        if !waits {
            self.enough = 0;
        }
        waits
    }
}

/// How often a server that is about to end looks whether it can.
const ENDING: Duration = Duration::from_millis(20);

impl Serving {
    pub(super) async fn run_in_cluster(
        &mut self,
        member: &Member,
        is_told: &Notify,
    ) -> Result<(), ServerError> {
        let sockets = self.sockets()?;
        let desk = Arc::clone(&member.desk);
        let mut events = Events::with_capacity(EVENTS);
        let (mut told, mut flight, mut last) = (VecDeque::new(), None, 0);
        // So that the cluster knows of this life, and that the connections of the last one are gone.
        self.turns.propose(Command::Tick);
        let mut handing_over = None;
        let mut ends_by = None;
        let mut gathering = Gathering::default();
        let mut room_asked = Instant::now();
        loop {
            // Whoever leads hands over first, and serves until that is done.
            if self.is_stopping() && handing_over.is_none() {
                handing_over = Some(member.hand_over());
            }
            let handed_over = handing_over
                .as_mut()
                .is_some_and(|wait| wait.try_recv() != Err(TryRecvError::Empty));
            let is_gathering = flight.is_none() && self.turns.has_batch();
            match self.timeout_in_cluster(flight.as_ref()) {
                // Raft has its turn all the same.
                timeout if is_gathering || timeout.is_zero() => tokio::task::yield_now().await,
                timeout => tokio::select! {
                    biased;
                    () = is_told.notified() => {}
                    ready = sockets.readable() => ready?.clear_ready(),
                    () = tokio::time::sleep(timeout) => {}
                },
            }
            self.poll.poll(&mut events, Some(Duration::ZERO)).or_else(ignore_interrupts)?;
            desk.take(&mut told);
            for told in told.drain(..) {
                self.hear(told, &mut flight, &mut gathering)?;
            }
            self.arrive(&events);
            self.heed_room(&desk, &mut room_asked);
            if handed_over {
                self.turns.dismiss_waiters();
            }
            self.give_up(&desk, &mut flight);
            while flight.is_none() && self.turns.has_batch() {
                if gathering.waits(self.turns.gathered()) {
                    break;
                }
                flight = self.depart(&desk, &mut last);
            }
            self.turns.send();
            if handed_over {
                let end = *ends_by.get_or_insert_with(|| Instant::now() + self.turns.leader_wait());
                if (flight.is_none() && !self.turns.is_busy()) || Instant::now() >= end {
                    self.stopped();
                    return Ok(());
                }
            }
        }
    }

    /// Whether the leader has room on its disk for new locks. While it has none it is asked for a little thing every
    /// second, to find out.
    fn heed_room(&mut self, desk: &Desk, asked: &mut Instant) {
        let full = desk.is_full();
        if full != self.turns.full {
            self.turns.full = full;
            if full {
                tracing::error!(
                    "the disk of the log is full at the leader: no new locks until there is room"
                );
            } else {
                tracing::info!("there is room on the disk of the log again");
            }
        }
        if full && asked.elapsed() >= STALL && !self.turns.has_batch() {
            *asked = Instant::now();
            self.turns.propose(Command::Tick);
        }
    }

    fn timeout_in_cluster(&self, flight: Option<&Flight>) -> Duration {
        // What is gathered cannot go before the batch under way has come back.
        let stuck = flight.is_some() && self.turns.is_batch_full();
        if self.turns.is_busy() && !stuck {
            return Duration::ZERO;
        }
        if self.is_stopping() {
            return ENDING;
        }
        let second = Duration::from_millis(LOGGED_EVERY_MS);
        let first = [flight.and_then(|flight| flight.gives_up), self.turns.next_to_give_up()];
        let next = [first[0], first[1], self.stalled].into_iter().flatten().min();
        next.map_or(second, |at| at.saturating_duration_since(Instant::now()).min(second))
    }

    /// Something has happened in the log.
    fn hear(
        &mut self,
        told: Told,
        flight: &mut Option<Flight>,
        gathering: &mut Gathering,
    ) -> Result<(), ServerError> {
        let mut landed = |number: u64| flight.take_if(|flight| flight.number == number);
        match told {
            Told::Done { number, applied } => {
                let landed = landed(number);
                debug_assert!(landed.is_some(), "nothing is forgotten that is under way");
                self.turns.caught_up = true;
                if let Some(Flight { batch, began, .. }) = landed {
                    let took = began.elapsed().as_micros() as u64;
                    self.turns.syncs.add(took, batch.commands.len());
                    gathering.begin(batch.commands.len() + self.turns.gathered());
                    self.turns.finish(batch, applied);
                }
            }
            Told::Events(applied) => {
                for event in applied.iter().flat_map(|Applied { events, .. }| events) {
                    self.turns.tell(event);
                }
            }
            Told::Read { number } => {
                if let Some(flight) = landed(number) {
                    self.turns.finish(flight.batch, []);
                }
            }
            Told::NoRoom { number } => {
                if let Some(flight) = landed(number) {
                    self.stalled = Some(Instant::now() + STALL);
                    self.turns.finish_without_room(flight.batch);
                }
            }
            Told::Detached => {
                tracing::warn!(
                    "the cluster took this node for gone: those who wait here have to come again"
                );
                self.turns.cut(true);
            }
            Told::Installed { number } => {
                tracing::warn!(
                    "this node was far behind: its connections are ended, and come again"
                );
                flight.take_if(|flight| flight.number <= number);
                self.turns.caught_up |= number > 0;
                self.turns.cut(false);
            }
            Told::Failed(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Puts what has been gathered on its way, unless it needs none.
    fn depart(&mut self, desk: &Desk, last: &mut u64) -> Option<Flight> {
        let batch = self.turns.take_batch();
        if batch.commands.is_empty() && !batch.has_questions() {
            self.turns.finish(batch, []);
            self.turns.send();
            return None;
        }
        *last += 1;
        match batch.commands.is_empty() {
            true => desk.read(*last),
            false => desk.submit(*last, &batch.commands),
        }
        let gives_up = batch.next_to_give_up();
        Some(Flight { number: *last, batch, began: Instant::now(), gives_up })
    }

    /// Tells those who have waited for a leader for too long.
    fn give_up(&mut self, desk: &Desk, flight: &mut Option<Flight>) {
        let now = Instant::now();
        let over = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let under_way = flight.as_ref().and_then(|flight| flight.gives_up);
        if !over(under_way) && !over(self.turns.next_to_give_up()) {
            return;
        }
        let Some(mut of) = flight.take() else {
            self.turns.give_up(None, Sent::No);
            return;
        };
        // A question changes nothing, whoever has it.
        if over(under_way) && (desk.recall() || of.batch.commands.is_empty()) {
            desk.forget(of.number);
            self.turns.give_up(Some(&mut of.batch), Sent::No);
            return self.turns.put_back(of.batch);
        }
        if self.turns.give_up(Some(&mut of.batch), Sent::Maybe) {
            desk.replace(of.number, &of.batch.commands);
        }
        of.gives_up = of.batch.next_to_give_up();
        *flight = Some(of);
    }
}
