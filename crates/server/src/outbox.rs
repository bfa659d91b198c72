//! Who is told what: which connections wait for the outcome of a request, which are told of its
//! loss, and which listen to everything. The only way out for events.

use std::collections::HashMap;

use keylatch_table::{Event, RequestId};

use crate::connection::ConnectionId;

#[derive(Default)]
pub(crate) struct Outbox {
    /// Who waits for the outcome of a request. Of two connections on one id both are told.
    waiting: HashMap<RequestId, Vec<Waiter>>,
    /// Who is told when a held request is lost.
    held: HashMap<RequestId, ConnectionId>,
    /// Who listens to all events.
    pub(crate) subscribers: Vec<ConnectionId>,
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
    Waiters(Vec<Waiter>),
    /// It held, and does no longer.
    Holder(ConnectionId),
    Nobody,
}

impl Outbox {
    pub(crate) fn wait(&mut self, id: &RequestId, waiter: Waiter) {
        let waiters = self.waiting.entry(id.clone()).or_default();
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
        waiting: Vec<RequestId>,
        held: impl IntoIterator<Item = RequestId>,
    ) -> Vec<RequestId> {
        self.subscribers.retain(|other| *other != connection);
        for id in held {
            if self.held.get(&id) == Some(&connection) {
                self.held.remove(&id);
            }
        }
        let mut alone = Vec::new();
        for id in waiting {
            let Some(waiters) = self.waiting.get_mut(&id) else { continue };
            // The last one to ask counts: its going is what detaches the request.
            let last = waiters.last().is_some_and(|waiter| waiter.connection == connection);
            waiters.retain(|waiter| waiter.connection != connection);
            if waiters.is_empty() {
                self.waiting.remove(&id);
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
        match event {
            Event::Granted { id, .. }
            | Event::TimedOut { id, .. }
            | Event::Deadlocked { id, .. }
            | Event::Withdrawn { id, .. } => {
                self.waiting.remove(id).map_or(Concerned::Nobody, Concerned::Waiters)
            }
            // Mostly nobody is to be told, and then a hash is not worth its time.
            Event::Lost { .. } if self.held.is_empty() => Concerned::Nobody,
            Event::Lost { id, .. } => {
                self.held.remove(id).map_or(Concerned::Nobody, Concerned::Holder)
            }
            Event::Task(_) => Concerned::Nobody,
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
            outbox.wait(&id, Waiter { connection: connection(number), blocks: true });
        }
        assert_eq!(outbox.leave(connection(2), vec![id.clone()], []), []);
        assert_eq!(outbox.leave(connection(1), vec![id.clone()], []), [id]);
        assert!(outbox.waiting.is_empty());
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
