//! Who is told what: which connections wait for the outcome of a request, which are told of its
//! loss, and which listen to everything. The only way out for events.

use std::collections::HashMap as Map;

use foldhash::fast::FixedState;
use keylatch_table::{Event, RequestId, TaskEvent};
use rand::RngCore;
use smallvec::SmallVec;

use crate::connection::ConnectionId;

/// With the hash of the table, which is quick; clients choose ids, so nobody must know its seed.
type HashMap<K, V> = Map<K, V, FixedState>;

/// Nearly always one.
pub(crate) type Waiters = SmallVec<[Waiter; 1]>;

pub(crate) struct Outbox {
    /// Who waits for the outcome of a request. Of two connections on one id both are told.
    waiting: HashMap<RequestId, Waiters>,
    /// The same, of claims, whose ids are of their own kind.
    claiming: HashMap<RequestId, Waiters>,
    /// Who is told when a held request is lost.
    held: HashMap<RequestId, ConnectionId>,
    /// Who listens to all events.
    pub(crate) subscribers: Vec<ConnectionId>,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Locks,
    Task,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) connection: ConnectionId,
    /// Whether its connection does nothing else meanwhile.
    pub(crate) blocks: bool,
}

/// Those an event concerns.
pub(crate) enum Concerned {
    /// They waited, and this is the outcome.
    Waiters(Waiters),
    /// It held, and does no longer.
    Holder(ConnectionId),
    Nobody,
}

/// The request that an event is the outcome of, if it is one of those that waited.
pub(crate) fn outcome_of(event: &Event) -> Option<(Wanted, &RequestId)> {
    match event {
        Event::Granted { id, .. }
        | Event::TimedOut { id, .. }
        | Event::Deadlocked { id, .. }
        | Event::Withdrawn { id, .. } => Some((Wanted::Locks, id)),
        Event::Task(
            TaskEvent::Claimed(id, ..)
            | TaskEvent::TimedOut(id, _)
            | TaskEvent::Refused(id, ..)
            | TaskEvent::Withdrawn(id, _),
        ) => Some((Wanted::Task, id)),
        Event::Lost { .. } | Event::Task(TaskEvent::Lapsed { .. }) => None,
    }
}

impl Default for Outbox {
    fn default() -> Outbox {
        let hash = FixedState::with_seed(rand::rng().next_u64());
        Outbox {
            waiting: Map::with_hasher(hash.clone()),
            claiming: Map::with_hasher(hash.clone()),
            held: Map::with_hasher(hash),
            subscribers: Vec::new(),
        }
    }
}

impl Outbox {
    fn of(&mut self, wanted: Wanted) -> &mut HashMap<RequestId, Waiters> {
        match wanted {
            Wanted::Locks => &mut self.waiting,
            Wanted::Task => &mut self.claiming,
        }
    }

    /// Whether anybody waits for the outcome of anything.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || !self.claiming.is_empty()
    }

    pub(crate) fn wait(&mut self, wanted: Wanted, id: &RequestId, waiter: Waiter) {
        let waiters = self.of(wanted).entry(id.clone()).or_default();
        waiters.retain(|other| other.connection != waiter.connection);
        waiters.push(waiter);
    }

    pub(crate) fn hold(&mut self, id: &RequestId, connection: ConnectionId) {
        self.held.insert(id.clone(), connection);
    }

    pub(crate) fn forget_held(&mut self, id: &RequestId) {
        self.held.remove(id);
    }

    /// A connection is gone. Those of its requests that nobody else waits for are detached.
    pub(crate) fn leave(
        &mut self,
        connection: ConnectionId,
        waiting: Vec<(Wanted, RequestId)>,
        held: impl IntoIterator<Item = RequestId>,
    ) -> Vec<RequestId> {
        self.subscribers.retain(|other| *other != connection);
        for id in held {
            if self.held.get(&id) == Some(&connection) {
                self.held.remove(&id);
            }
        }
        let mut alone = Vec::new();
        for (wanted, id) in waiting {
            let of = self.of(wanted);
            let Some(waiters) = of.get_mut(&id) else { continue };
            // The last one to ask counts: its going is what detaches the request.
            let last = waiters.last().is_some_and(|waiter| waiter.connection == connection);
            waiters.retain(|waiter| waiter.connection != connection);
            if waiters.is_empty() {
                of.remove(&id);
            }
            if last {
                alone.push(id);
            }
        }
        alone
    }

    /// Whether anyone is told when something that is held is lost.
    pub(crate) fn wants_losses(&self) -> bool {
        !self.held.is_empty() || !self.subscribers.is_empty()
    }

    /// Who is to be told of an event; they are not waiting, or holding, any more.
    pub(crate) fn concerned(&mut self, event: &Event) -> Concerned {
        if let Some((wanted, id)) = outcome_of(event) {
            return self.of(wanted).remove(id).map_or(Concerned::Nobody, Concerned::Waiters);
        }
        match event {
            // Mostly nobody is to be told, and then a hash is not worth its time.
            Event::Lost { .. } if self.held.is_empty() => Concerned::Nobody,
            Event::Lost { id, .. } => {
                self.held.remove(id).map_or(Concerned::Nobody, Concerned::Holder)
            }
            _ => Concerned::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(number: u64) -> ConnectionId {
        ConnectionId { at: 0, number }
    }

    #[test]
    fn the_last_connection_that_asked_is_the_one_whose_going_detaches() {
        let mut outbox = Outbox::default();
        let id = RequestId::new("r");
        for number in [1, 2, 1] {
            outbox.wait(
                Wanted::Locks,
                &id,
                Waiter { connection: connection(number), blocks: true },
            );
        }
        let waits = || vec![(Wanted::Locks, id.clone())];
        assert_eq!(outbox.leave(connection(2), waits(), []), []);
        assert_eq!(outbox.leave(connection(1), waits(), []).len(), 1);
        assert!(outbox.waiting.is_empty());
    }

    #[test]
    fn a_lock_and_a_claim_of_one_id_are_two() {
        let mut outbox = Outbox::default();
        let id = RequestId::new("r");
        let waiter = |number| Waiter { connection: connection(number), blocks: true };
        outbox.wait(Wanted::Locks, &id, waiter(1));
        outbox.wait(Wanted::Task, &id, waiter(2));
        let event = Event::Task(TaskEvent::TimedOut(id.clone(), "pool".into()));
        let Concerned::Waiters(told) = outbox.concerned(&event) else { panic!("somebody waits") };
        assert_eq!(told.as_slice(), [waiter(2)]);
        assert!(matches!(outbox.concerned(&event), Concerned::Nobody));
        assert_eq!(outbox.leave(connection(1), vec![(Wanted::Locks, id.clone())], []), [id]);
    }

    #[test]
    fn a_holder_is_told_of_its_loss_until_its_connection_is_gone() {
        let mut outbox = Outbox::default();
        let id = RequestId::new("r");
        outbox.hold(&id, connection(1));
        outbox.leave(connection(2), vec![], [id.clone()]);
        assert_eq!(outbox.held.len(), 1, "another's");
        outbox.leave(connection(1), vec![], [id]);
        assert!(outbox.held.is_empty());
    }
}
