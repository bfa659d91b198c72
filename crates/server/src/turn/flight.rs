//! Batches of a cluster, which may have to wait for a leader: until when each request does, and what those
//! are told that waited in vain.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use keylatch_table::{Command, TaskAction};

use super::{Batch, TURN_BYTES, Turns, Work};
use crate::connection::{Connection, ConnectionId};
use crate::listener::{Answer, http};

/// A connection that is not there: whoever asked has been answered.
const NOBODY: ConnectionId = ConnectionId { at: usize::MAX, number: 0 };

/// What became of a batch whose requests waited for a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// No leader has it: what is given up has not happened.
    No,
    /// One may have it: what is given up may have happened.
    Maybe,
}

/// How long a command would wait for what it asks for.
pub(super) fn wait_ms(command: &Command) -> u64 {
    match command {
        Command::Acquire(ask) => ask.wait_ms,
        Command::Task(task) => match &task.action {
            TaskAction::Claim(claim) => claim.wait_ms,
            _ => 0,
        },
        _ => 0,
    }
}

impl Turns {
    /// The next of `works` waits for a leader as long as it would wait for a lock; at least for a while.
    pub(super) fn wait_for_leader(&mut self, wait_ms: u64, at: usize) {
        if !self.config.is_member() {
            return;
        }
        let wait = Duration::from_millis(wait_ms);
        self.batch.waits_until(Some(self.began + wait.max(self.config.leader_wait)));
        let patience = (wait_ms > 0).then(|| self.began + wait + 2 * self.config.leader_wait);
        self.connections[at].patience = patience.max(self.connections[at].patience);
    }

    /// The next of `works` does not wait for a leader, or can wait.
    pub(super) fn wait_for_ever(&mut self) {
        if self.config.is_member() {
            self.batch.waits_until(None);
        }
    }

    /// Whether nothing more is taken before the batch has gone.
    pub(crate) fn is_batch_full(&self) -> bool {
        self.batch.bytes >= TURN_BYTES
    }

    /// When the first one gives up, of those that are gathered.
    pub(crate) fn next_to_give_up(&self) -> Option<Instant> {
        self.batch.next_to_give_up()
    }

    /// Those of a batch under way, and of the one that is gathered behind it, that have waited for a leader
    /// for too long are told so. True if there were any.
    pub(crate) fn give_up(&mut self, under_way: Option<&mut Batch>, sent: Sent) -> bool {
        let now = Instant::now();
        // Answers of one connection keep their order: who waits on holds up those behind it.
        let mut held_up = HashSet::new();
        let mut any = false;
        if let Some(batch) = under_way {
            any |= self.give_up_of(batch, sent, now, &mut held_up);
        }
        if self.batch.next_to_give_up().is_some_and(|at| at <= now) {
            let mut batch = std::mem::take(&mut self.batch);
            self.give_up_of(&mut batch, Sent::No, now, &mut held_up);
            // Somebody may have left because of the answer.
            let behind = std::mem::replace(&mut self.batch, batch);
            self.batch.append(behind);
        }
        any
    }

    fn give_up_of(
        &mut self,
        batch: &mut Batch,
        sent: Sent,
        now: Instant,
        held_up: &mut HashSet<u64>,
    ) -> bool {
        let mut any = false;
        let (mut commands, mut kept) =
            (std::mem::take(&mut batch.commands).into_iter(), Batch::default());
        let until = std::mem::take(&mut batch.until);
        for ((id, work), until) in std::mem::take(&mut batch.works).into_iter().zip(until) {
            let count = match &work {
                Work::Change(_) | Work::Recorded(..) => 1,
                Work::Changes(count, _) => *count,
                Work::Question(..) | Work::Say(_) => 0,
            };
            let of_work: Vec<Command> = commands.by_ref().take(count).collect();
            let over = until.is_some_and(|until| until <= now);
            let free = id.is_some_and(|id| !held_up.contains(&id.number));
            if !over || !free {
                held_up.extend(id.map(|id| id.number));
                kept.push(id, work, until, of_work);
                continue;
            }
            any = true;
            let id = id.expect("only who is somebody waits");
            let answer = match &work {
                Work::Change(answer) => answer.clone(),
                Work::Recorded(answer, _)
                | Work::Changes(_, answer)
                | Work::Question(_, answer, _) => Some(answer.clone()),
                Work::Say(_) => None,
            };
            if let Some(answer) = answer.filter(|_| self.is_there(id)) {
                self.say_no_leader(id, &answer, if count > 0 { sent } else { Sent::No });
            }
            if sent == Sent::Maybe && count > 0 {
                // It keeps its place, so that the outcomes fit; if it is sent again, it asks for nothing.
                kept.push(Some(NOBODY), work, None, vec![Command::Tick; count]);
            }
        }
        kept.bytes = batch.bytes;
        *batch = kept;
        any
    }

    fn say_no_leader(&mut self, id: ConnectionId, answer: &Answer, sent: Sent) {
        let connection = &mut self.connections[id.at];
        let text = no_leader(connection, answer, sent);
        connection.closing |= answer.closes();
        connection.out().extend_from_slice(&text);
        self.answered(id);
    }

    /// A batch that no leader has goes in front of what was gathered meanwhile.
    pub(crate) fn put_back(&mut self, batch: Batch) {
        let behind = std::mem::replace(&mut self.batch, batch);
        self.batch.append(behind);
    }

    /// Those whose wait should have been decided long ago: nobody leads, or this node is cut off.
    pub(super) fn lose_patience(&mut self, now: Instant) {
        if !self.config.is_member() {
            return;
        }
        let lost = |connection: &Connection| {
            connection.blocked && connection.patience.is_some_and(|until| until <= now)
        };
        let all = self.connections.iter();
        let lost: Vec<usize> = all.filter(|(_, one)| lost(one)).map(|(at, _)| at).collect();
        for at in lost {
            let connection = &mut self.connections[at];
            connection.patience = None;
            connection.blocked = false;
            let text = connection.speaks.error("NOLEADER", MAYBE);
            connection.out().extend_from_slice(&text);
            let (id, waiting) = (connection.id, std::mem::take(&mut connection.waiting));
            // The cluster will have noticed by itself that this node is gone.
            self.outbox.leave(id, waiting, []);
            self.dirty.push(at);
            self.again(id);
        }
    }

    /// Ends connections of which it is not known what has happened to what they asked for: they come again,
    /// here or elsewhere, and are told. Nothing is said of those who wait there; the log knows already.
    pub(crate) fn cut(&mut self, only_waiting: bool) {
        let all = self.connections.iter();
        let ids = all.filter(|(_, one)| !only_waiting || !one.waiting.is_empty());
        for at in ids.map(|(at, _)| at).collect::<Vec<_>>() {
            let connection = &mut self.connections[at];
            let (id, waiting) = (connection.id, std::mem::take(&mut connection.waiting));
            self.outbox.leave(id, waiting, []);
            self.close(at);
        }
    }
}

impl Batch {
    fn push(
        &mut self,
        id: Option<ConnectionId>,
        work: Work,
        until: Option<Instant>,
        commands: Vec<Command>,
    ) {
        self.works.push((id, work));
        self.waits_until(until);
        self.commands.extend(commands);
    }

    fn waits_until(&mut self, until: Option<Instant>) {
        self.until.push(until);
        self.gives_up = [self.gives_up, until].into_iter().flatten().min();
    }

    fn append(&mut self, mut behind: Batch) {
        self.works.append(&mut behind.works);
        self.until.append(&mut behind.until);
        self.gives_up = [self.gives_up, behind.gives_up].into_iter().flatten().min();
        self.commands.append(&mut behind.commands);
        self.bytes += behind.bytes;
    }

    /// When the first one gives up.
    pub(crate) fn next_to_give_up(&self) -> Option<Instant> {
        self.gives_up
    }

    /// Whether it asks the table something.
    pub(crate) fn has_questions(&self) -> bool {
        self.works.iter().any(|(_, work)| matches!(work, Work::Question(..)))
    }
}

const MAYBE: &str =
    "no leader has answered in time: this may have happened or not. Ask again with the same id";

/// The answer to a request that met no leader.
fn no_leader(connection: &Connection, answer: &Answer, sent: Sent) -> Vec<u8> {
    let text = match sent {
        Sent::No => "no leader can be reached, so nothing was done: try again, or another member",
        Sent::Maybe => MAYBE,
    };
    match answer {
        Answer::Http(answer) => http::unavailable("no_leader", text, answer.meta),
        Answer::Resp(_) | Answer::Enqueue(_) => connection.speaks.error("NOLEADER", text),
    }
}
