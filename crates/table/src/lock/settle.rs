//! What follows when something has ended: grants in the order of arrival, and cycles that only
//! came up now.
//!
//! A waiter is *parked* on one of its blockers. When that one ends, is promoted, or can be passed
//! all of a sudden, the waiter is *loose*; settling takes the loose ones in the order of arrival
//! and grants each, or parks it again. Nobody else is looked at. That is enough:
//!
//! - a waiter that nothing happened to is still blocked by what it is parked on;
//! - a grant can only free waiters that come after it (they may pass somebody who is blocked by
//!   the E just granted), so one pass in the order of arrival sees them all.

use super::acquire::lease_end;
use crate::board::parties::OwnerNode;
use crate::board::slab::NONE;
use crate::{Deadlock, Event, Grant, Outcome, Table};

impl Table {
    pub(crate) fn settle(&mut self, events: &mut Vec<Event>) {
        let mut cycles = false;
        loop {
            while let Some((_, at)) = self.board.loose.pop_first() {
                match self.board.parking(at) {
                    Some(blocker) => self.board.park(at, blocker),
                    None => self.grant_waiter(at, events),
                }
            }
            for owner in std::mem::take(&mut self.troubled) {
                cycles = cycles || self.board.owner_on_cycle(owner);
            }
            let found = if cycles { self.board.youngest_on_cycle() } else { None };
            let Some((at, cycle)) = found else { return };
            let deadlock = Deadlock { blocker: self.blocker_of(at), cycle };
            let about = Box::new(self.about(at));
            self.tally.count(about.parts[0].mode, Outcome::Deadlock);
            let id = self.end_waiter(at);
            events.push(Event::Deadlocked { id, deadlock, about });
        }
    }

    fn grant_waiter(&mut self, at: u32, events: &mut Vec<Event>) {
        let token = self.next_token();
        let request = &self.board.requests[at];
        let grace = request.wait().grace;
        let lease_ms = grace.map_or(u64::from(request.lease_ms), |(grace_ms, _)| grace_ms);
        let end = lease_end(self.now, lease_ms, self.now, request.max_hold_ms());
        let waited_ms = self.now - request.wait().asked;
        self.board.hold(at, token, self.now);
        let (mode, describe) = self.board.first_part(at);
        self.tally.count(mode, Outcome::Granted);
        self.tally.waited(waited_ms, describe);
        self.board.requests[at].detached = grace.is_some();
        self.board.set_deadline(at, end);
        events.push(Event::Granted {
            id: self.board.requests[at].id.clone(),
            grant: Grant { waited_ms, ..self.grant_of(at) },
        });
        if self.board.has_e(at) {
            self.loosen_behind_waiters(at);
        }
        if self.board.requests[at].detect {
            self.trouble(self.board.owner_of(at));
        }
    }

    /// Loosens the waiters of the holder's owner that are parked on other waiters: those may be
    /// blocked by its E now, and then its owner may pass them.
    pub(crate) fn loosen_behind_waiters(&mut self, holder: u32) {
        let owner = self.board.owner_of(holder);
        if owner == NONE || self.board.behind_waiters == 0 {
            return;
        }
        let behind: Vec<u32> = self
            .board
            .parties
            .owner(owner)
            .waiting
            .iter()
            .map(|(_, at)| *at)
            .filter(|at| {
                let on = self.board.requests[*at].wait().parked_on;
                on != NONE && self.board.requests[on].waiting()
            })
            .collect();
        for at in behind {
            self.board.loosen(at);
        }
    }

    /// An owner, if it is still there, gained or lost something that matters for cycles.
    pub(crate) fn trouble(&mut self, owner: u32) {
        let waits = |owner: &OwnerNode| !owner.waiting.is_empty();
        if self.board.parties.live_owner(owner).is_some_and(waits) {
            self.troubled.push(owner);
        }
    }
}
