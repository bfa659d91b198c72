//! Acquire: granted, refused, or queued; and the repeat of a request that is known already.

use crate::board::ended::End;
use crate::board::parties::Who;
use crate::board::resources::Spot;
use crate::board::slab::NONE;
use crate::board::{Known, More, Request, Wait};
use crate::error::{Error, What};
use crate::{Acquire, Blocker, Event, Grant, Mode, Outcome, Part, Reply, Table, rules};

use super::Asker;
use super::admit::long_ms;

impl Table {
    pub(crate) fn acquire(&mut self, ask: Acquire, events: &mut Vec<Event>) -> Reply {
        match self.decide(self.now, &ask) {
            Decision::Repeat(at) => self.repeat(at, &ask, events),
            Decision::Refuse(reply) => {
                self.count_refusal(&ask, &reply);
                reply
            }
            Decision::Grant(place) => {
                self.revive(place.known);
                Reply::Granted(self.grant_new(ask, place))
            }
            Decision::Wait(place, blocker) => {
                self.revive(place.known);
                self.enqueue(ask, place);
                Reply::Waiting(blocker)
            }
        }
    }

    /// The answer to a request if it is a refusal: then [`Table::apply`] at this time would say the
    /// same and change nothing, so a driver can answer without writing to its log. `None` for
    /// everything else, and when something has to end first.
    pub fn refusal(&self, at: u64, ask: &Acquire) -> Option<Reply> {
        let now = self.now.max(at);
        if self.next_deadline().is_some_and(|due| due <= now) {
            return None;
        }
        if ask.wait_ms > 0 && self.may_wait(ask) {
            return None;
        }
        match self.decide(now, ask) {
            // Not an end: it may be time to forget that.
            Decision::Refuse(reply) if !matches!(reply, Reply::Ended(_)) => Some(reply),
            _ => None,
        }
    }

    /// Whether whatever is in the way of a request, it is not refused, as can be told without a look at that.
    fn may_wait(&self, ask: &Acquire) -> bool {
        let owner = self.board.parties.look_up(&ask.party).owner;
        let admitted = self
            .admit_id(&ask.id)
            .and_then(|()| self.admit_content(ask))
            .and_then(|()| self.admit_count(ask, owner, &[]))
            .and_then(|()| self.admit_wait(ask, None));
        !ask.detect && admitted.is_ok()
    }

    /// What becomes of a request, without doing it.
    #[inline(always)]
    #[allow(clippy::inline_always)] // returning a decision copies it
    fn decide(&self, now: u64, ask: &Acquire) -> Decision {
        if let Err(error) = self.admit_id(&ask.id) {
            return Decision::Refuse(Reply::Error(error));
        }
        let hash = self.board.hash_id(&ask.id);
        let known = self.board.known_by(hash, &ask.id);
        match known {
            Some(Known::Live(at)) => return Decision::Repeat(at),
            Some(Known::Ended(number)) => {
                if let End::Grant(cause, _) = self.board.ended.get(number).end {
                    return Decision::Refuse(Reply::Ended(cause));
                }
            }
            None => {}
        }
        let who = self.board.parties.look_up(&ask.party);
        let admitted = self.admit_content(ask).and_then(|()| self.admit_count(ask, who.owner, &[]));
        if let Err(error) = admitted {
            return Decision::Refuse(Reply::Error(error));
        }
        let is_one = ask.also.is_empty();
        let spot = if is_one { self.board.resources.spot(&ask.part.resource) } else { None };
        let place = Place { who, hash, known, spot };
        if let Some(Spot::Vacant(_)) = spot {
            return Decision::Grant(place);
        }
        let asker = Asker::new_at(ask, place.who.owner, spot);
        let Some(blocker) = self.board.first_blocker(asker) else {
            return Decision::Grant(place);
        };
        let blocker = self.board.describe(asker, blocker, now);
        if ask.wait_ms == 0 {
            return Decision::Refuse(Reply::Busy(blocker));
        }
        if let Err(error) = self.admit_wait(ask, spot) {
            return Decision::Refuse(Reply::Error(error));
        }
        if ask.detect
            && let Some(cycle) = self.board.cycle_of_new(ask, place.who.owner)
        {
            return Decision::Refuse(Reply::Deadlock(crate::Deadlock { blocker, cycle }));
        }
        Decision::Wait(place, blocker)
    }

    /// An id that waited, was told to stop, and asks again is not remembered any more.
    fn revive(&mut self, known: Option<Known>) {
        if let Some(Known::Ended(number)) = known {
            self.board.revive(number);
        }
    }

    /// Several separate requests: all are granted now, or none is.
    pub(crate) fn acquire_each(&mut self, asks: Vec<Acquire>) -> Reply {
        for (position, ask) in asks.iter().enumerate() {
            if let Err(reply) = self.admit_each(ask, &asks[..position]) {
                return reply;
            }
        }
        for ask in &asks {
            let asker = Asker::new(ask, self.board.parties.look_up(&ask.party).owner);
            if let Some(blocker) = self.board.first_blocker(asker) {
                return Reply::Busy(self.board.describe(asker, blocker, self.now));
            }
        }
        let grants = asks.into_iter().map(|ask| {
            let known = self.board.known(&ask.id);
            self.revive(known);
            let who = self.board.parties.look_up(&ask.party);
            let hash = self.board.hash_id(&ask.id);
            self.grant_new(ask, Place { who, hash, known, spot: None })
        });
        Reply::GrantedEach(grants.collect())
    }

    fn admit_each(&self, ask: &Acquire, before: &[Acquire]) -> Result<(), Reply> {
        self.admit_id(&ask.id).map_err(Reply::Error)?;
        match self.board.known(&ask.id) {
            Some(Known::Live(_)) => return Err(Reply::Error(Error::IdReused)),
            Some(Known::Ended(number)) => {
                if let End::Grant(cause, _) = self.board.ended.get(number).end {
                    return Err(Reply::Ended(cause));
                }
            }
            None => {}
        }
        let owner = self.board.parties.look_up(&ask.party).owner;
        let admitted = self.admit_content(ask).and_then(|()| self.admit_count(ask, owner, before));
        admitted.map_err(Reply::Error)?;
        if ask.wait_ms > 0 {
            return Err(Reply::Error(Error::EachCannotWait));
        }
        for other in before {
            if other.id == ask.id {
                return Err(Reply::Error(Error::IdReused));
            }
            let same_owner = ask.same_owner(other);
            if ask.parts().any(|a| other.parts().any(|b| rules::conflict(a, b, same_owner))) {
                return Err(Reply::Error(Error::PartsOverlap));
            }
        }
        Ok(())
    }

    /// Puts a free request on the board as a holder.
    #[inline(always)]
    #[allow(clippy::inline_always)] // passing a request by value copies it
    fn grant_new(&mut self, ask: Acquire, place: Place) -> Grant {
        let token = self.next_token();
        self.tally.count(ask.part.mode, Outcome::Granted);
        self.tally.waited(0, || unreachable!("nothing is not long"));
        let deadline = lease_end(self.now, ask.lease_ms, self.now, ask.extra.max_hold_ms());
        let at = self.enter(ask, Entrance { place, token, deadline, wait: None });
        if self.board.requests[at].detect {
            self.trouble(self.board.owner_of(at));
        }
        Grant { token, lease_ms: super::blockers::left(deadline, self.now), waited_ms: 0 }
    }

    /// Puts a blocked request in its queues.
    fn enqueue(&mut self, ask: Acquire, place: Place) {
        let end = self.now + ask.wait_ms;
        let wait = Wait { asked: self.now, end, grace: None, parked_on: NONE };
        let at = self.enter(ask, Entrance { place, token: 0, deadline: end, wait: Some(wait) });
        let blocker = self.board.parking(at);
        self.board.park(at, blocker.expect("L4: only a blocked request queues"));
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // passing a request by value copies it
    fn enter(&mut self, ask: Acquire, entrance: Entrance) -> u32 {
        let Entrance { place: Place { who, hash, spot, .. }, token, deadline, wait } = entrance;
        let seq = self.next_seq();
        let party = self.board.parties.enter(ask.party, who);
        let keeps_wait = wait.is_some() || ask.extra.alias().is_some();
        let wait_ms = if keeps_wait { ask.wait_ms } else { 0 };
        let more = (wait_ms > 0).then(|| Box::new(More { also: Vec::new(), wait_ms, wait }));
        let request = Request {
            deadline,
            party,
            lease_ms: ask.lease_ms as u32,
            detect: ask.detect,
            extra: ask.extra,
            more,
            ..Request::new(ask.id, seq, token, self.now)
        };
        let resources = &mut self.board.resources;
        let Part { resource, mode } = ask.part;
        let first = match spot {
            None => resources.enter(resource),
            Some(Spot::Vacant(hash)) => resources.insert(resource, hash),
            Some(Spot::Taken(at)) => at,
        };
        if ask.also.is_empty() {
            return self.board.enter(request, hash, &[(first, mode, mode)]);
        }
        let also = ask.also.into_iter();
        let also = also.map(|part| (resources.enter(part.resource), part.mode, part.mode));
        let parts: Vec<(u32, Mode, Mode)> =
            std::iter::once((first, mode, mode)).chain(also).collect();
        self.board.enter(request, hash, &parts)
    }

    fn repeat(&mut self, at: u32, ask: &Acquire, events: &mut Vec<Event>) -> Reply {
        if !self.same_content(at, ask) {
            return Reply::Error(Error::IdReused);
        }
        let request = &self.board.requests[at];
        if !request.waiting() {
            if request.detached {
                let lease_ms = u64::from(request.lease_ms);
                let end = lease_end(self.now, lease_ms, request.since, request.max_hold_ms());
                self.board.requests[at].detached = false;
                self.board.set_deadline(at, end);
            }
            return Reply::Granted(self.grant_of(at));
        }
        if let Err(error) = long_ms(What::Wait, ask.wait_ms, self.settings.wait_ms) {
            return Reply::Error(error);
        }
        let blocker = self.blocker_of(at);
        if ask.wait_ms == 0 {
            self.withdraw(at, None, events);
            return Reply::Busy(blocker);
        }
        let end = self.now + ask.wait_ms;
        let request = &mut self.board.requests[at];
        let wait = request.wait_mut();
        (wait.asked, wait.end, wait.grace) = (self.now, end, None);
        request.more.as_mut().expect("a waiter has more").wait_ms = ask.wait_ms;
        self.board.set_deadline(at, end);
        Reply::Waiting(blocker)
    }

    /// Who is named as the blocker of a request that waits.
    pub(crate) fn blocker_of(&self, at: u32) -> Blocker {
        let asker = Asker::live(&self.board, at);
        let blocker = self.board.first_blocker(asker).expect("L4: a waiter is blocked");
        self.board.describe(asker, blocker, self.now)
    }

    /// A grant as its holder sees it now, without having waited for this answer.
    pub(crate) fn grant_of(&self, at: u32) -> Grant {
        let request = &self.board.requests[at];
        Grant {
            token: request.token,
            lease_ms: super::blockers::left(request.deadline, self.now),
            waited_ms: 0,
        }
    }

    /// Whether a request says what the live one of the same id said at first.
    fn same_content(&self, at: u32, ask: &Acquire) -> bool {
        let request = &self.board.requests[at];
        let party = self.board.parties.party(request.party);
        let same_party = party.explicit == ask.party.explicit
            && (!party.explicit || party.owner == ask.party.owner);
        let parts = self.board.parts_of(at).map(|part| self.board.part(part));
        same_party
            && u64::from(request.lease_ms) == ask.lease_ms
            && request.detect == ask.detect
            && request.extra == ask.extra
            && parts
                .map(|part| (&self.board.resources.get(part.resource).key, part.asked))
                .eq(ask.parts().map(|part| (&part.resource, part.mode)))
    }
}

/// What becomes of a request.
enum Decision {
    /// It is known already, and is here.
    Repeat(u32),
    Refuse(Reply),
    Grant(Place),
    Wait(Place, Blocker),
}

/// What was looked up on the way to a decision.
struct Place {
    who: Who,
    /// Of its id.
    hash: u64,
    known: Option<Known>,
    /// Where its resource is, if that is a plain one and the only one.
    spot: Option<Spot>,
}

/// How a request enters: as a holder, or as a waiter with token 0.
struct Entrance {
    place: Place,
    token: u64,
    deadline: u64,
    wait: Option<Wait>,
}

/// When a lease that starts `now` ends, for a grant made at `since`.
pub(crate) fn lease_end(now: u64, lease_ms: u64, since: u64, max_hold_ms: u64) -> u64 {
    let never = crate::board::deadlines::NEVER;
    let lease = if lease_ms == 0 { never } else { now + lease_ms };
    let hold = if max_hold_ms == 0 { never } else { since + max_hold_ms };
    lease.min(hold)
}
