//! Who is in the way of a request: the holders it conflicts with, and the earlier waiters it
//! conflicts with and may not pass.
//!
//! Three questions, because they have different prices. *Is it free, and if not, whom does a
//! refusal name?* wants the lowest seq. *Where does it park?* wants any blocker, best the latest
//! waiter, so that a queue becomes a chain and an end wakes one. *Who are all of them?* is for
//! deadlock detection only.
//!
//! What makes them cheap: all holders of one resource go together (invariant L1), so the first one
//! answers for all; queues are sorted, so the first conflict ends a walk; and the number of waiters
//! a mode shows whether a queue can be skipped whole.

use crate::board::Board;
use crate::board::resources::Spot;
use crate::board::slab::NONE;
use crate::{Acquire, Blocker, Mode, Resource, State, rules};

/// A request as the one who asks: on the board already, or not yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    what: What<'a>,
    /// Waiters with a lower seq came before it.
    seq: u64,
    /// Its explicit owner, or [`NONE`].
    owner: u32,
}

#[derive(Clone, Copy, Debug)]
enum What<'a> {
    /// With the node of its first resource, if that is plain and known, else [`NONE`].
    New(&'a Acquire, u32),
    Live(u32),
}

impl<'a> Asker<'a> {
    /// A request that is not on the board: everyone there came before it.
    pub(crate) fn new(ask: &'a Acquire, owner: u32) -> Asker<'a> {
        Asker { what: What::New(ask, NONE), seq: u64::MAX, owner }
    }

    /// The same, of one plain resource that has been looked for.
    pub(crate) fn new_at(ask: &'a Acquire, owner: u32, spot: Option<Spot>) -> Asker<'a> {
        let at = if let Some(Spot::Taken(at)) = spot { at } else { NONE };
        Asker { what: What::New(ask, at), seq: u64::MAX, owner }
    }

    pub(crate) fn live(board: &Board, at: u32) -> Asker<'a> {
        let owner = board.owner_of(at);
        Asker { what: What::Live(at), seq: board.requests[at].seq, owner }
    }
}

impl Board {
    /// The blocking holder with the lowest seq, else the blocking waiter with the lowest seq.
    pub(crate) fn first_blocker(&self, asker: Asker<'_>) -> Option<u32> {
        let mut holder: Option<(u64, u32)> = None;
        let mut waiter: Option<(u64, u32)> = None;
        let lowest = |best: Option<(u64, u32)>, part: u32| {
            let found = (self.seq_of(part), self.part(part).request);
            Some(best.map_or(found, |best| best.min(found)))
        };
        for (node, resource, mode) in self.asked(asker) {
            self.resources.overlapping_known(node, resource, |at| {
                let node = self.resources.get(at);
                if node.holders != NONE && self.in_the_way(asker, mode, node.holders) {
                    holder = lowest(holder, node.holders);
                }
                if holder.is_none() && !self.crowd_harmless(asker, mode, at) {
                    let found = self.first_in_crowd(asker, mode, node.crowd);
                    waiter = found.map_or(waiter, |part| lowest(waiter, part));
                }
                false
            });
        }
        holder.or(waiter).map(|(_, request)| request)
    }

    /// A blocker for a request on the board to wait for, or `None` if it is free.
    pub(crate) fn parking(&self, at: u32) -> Option<u32> {
        let asker = Asker::live(self, at);
        let mut waiter: Option<(u64, u32)> = None;
        let mut holder = None;
        for (node, resource, mode) in self.asked(asker) {
            self.resources.overlapping_known(node, resource, |other| {
                let node = self.resources.get(other);
                if node.holders != NONE && self.in_the_way(asker, mode, node.holders) {
                    holder = Some(self.part(node.holders).request);
                }
                if !self.crowd_harmless(asker, mode, other)
                    && let Some(found) = self.late_in_crowd(at, mode, other)
                {
                    waiter = waiter.max(Some((self.requests[found].seq, found)));
                }
                false
            });
        }
        waiter.map(|(_, request)| request).or(holder)
    }

    /// All blockers: holders by seq, then waiters by seq.
    pub(crate) fn blockers(&self, asker: Asker<'_>) -> Vec<u32> {
        let mut found: Vec<(bool, u64, u32)> = Vec::new();
        for (node, resource, mode) in self.asked(asker) {
            self.resources.overlapping_known(node, resource, |at| {
                let node = self.resources.get(at);
                let crowd = if node.crowd == NONE { NONE } else { self.crowds[node.crowd].head };
                let waiters = self.list(crowd).take_while(|part| self.seq_of(*part) < asker.seq);
                for part in self.list(node.holders).chain(waiters) {
                    let request = self.part(part).request;
                    if self.in_the_way(asker, mode, part) && !self.may_pass(asker.owner, request) {
                        let request_node = &self.requests[request];
                        found.push((request_node.waiting(), request_node.seq, request));
                    }
                }
                false
            });
        }
        found.sort_unstable();
        found.dedup();
        found.into_iter().map(|(_, _, request)| request).collect()
    }

    /// Whether `request`, another one, blocks the asker.
    pub(crate) fn blocks(&self, asker: Asker<'_>, request: u32) -> bool {
        let node = &self.requests[request];
        self.conflicting_mode(asker, request).is_some()
            && (!node.waiting() || (node.seq < asker.seq && !self.may_pass(asker.owner, request)))
    }

    /// What a refusal says of a blocker.
    pub(crate) fn describe(&self, asker: Asker<'_>, blocker: u32, now: u64) -> Blocker {
        let request = &self.requests[blocker];
        let party = self.parties.party(request.party);
        let mode = match self.part_at(blocker, 1) {
            None => Some(request.first.mode),
            Some(_) => self.conflicting_mode(asker, blocker),
        };
        Blocker {
            owner: party.owner.clone(),
            explicit: party.explicit,
            mode: mode.expect("a blocker conflicts"),
            state: if request.waiting() { State::Waiting } else { State::Held },
            token: request.token,
            held_ms: now - request.since,
            lease_ms: left(request.deadline, now),
        }
    }

    /// Whether an owner may pass a waiter: it conflicts directly with an E that the owner holds.
    pub(crate) fn may_pass(&self, owner: u32, waiter: u32) -> bool {
        if owner == NONE
            || !self.requests[waiter].waiting()
            || self.parties.owner(owner).held_e == 0
        {
            return false;
        }
        let same_owner = self.owner_of(waiter) == owner;
        self.parts_of(waiter).any(|part| {
            let part = self.part(part);
            let mut held = false;
            self.resources.overlapping(&self.resources.get(part.resource).key, |at| {
                let head = self.resources.get(at).holders;
                held = head != NONE
                    && self.part(head).mode == Mode::Cumulative
                    && self.owner_of(self.part(head).request) == owner
                    && !rules::together(Mode::Cumulative, part.mode, same_owner);
                held
            });
            held
        })
    }

    /// What the asker asks for, in its order; and the node of each resource, or [`NONE`].
    fn asked<'a>(&'a self, asker: Asker<'a>) -> impl Iterator<Item = (u32, &'a Resource, Mode)> {
        let mut position = 0;
        std::iter::from_fn(move || {
            position += 1;
            match asker.what {
                What::Live(at) => self.part_at(at, position - 1).map(|part| {
                    let part = self.part(part);
                    (part.resource, &self.resources.get(part.resource).key, part.mode)
                }),
                What::New(ask, at) => match position {
                    1 => Some((at, &ask.part.resource, ask.part.mode)),
                    _ => ask.also.get(position - 2).map(|part| (NONE, &part.resource, part.mode)),
                },
            }
        })
    }

    /// Whether a part, on a resource that overlaps, does not go together with the asked mode.
    fn in_the_way(&self, asker: Asker<'_>, mode: Mode, part: u32) -> bool {
        let part = self.part(part);
        let is_self = matches!(asker.what, What::Live(at) if at == part.request);
        !is_self && !rules::together(part.mode, mode, self.same_owner(asker, part.request))
    }

    fn same_owner(&self, asker: Asker<'_>, request: u32) -> bool {
        asker.owner != NONE && self.owner_of(request) == asker.owner
    }

    /// The mode of the first part of `request` that conflicts with anything asked.
    fn conflicting_mode(&self, asker: Asker<'_>, request: u32) -> Option<Mode> {
        self.parts_of(request).map(|part| self.part(part)).find_map(|held| {
            let key = &self.resources.get(held.resource).key;
            let same_owner = self.same_owner(asker, request);
            self.asked(asker)
                .any(|(_, resource, mode)| {
                    !rules::together(held.mode, mode, same_owner) && rules::overlap(key, resource)
                })
                .then_some(held.mode)
        })
    }

    /// Whether nobody in the queue of a resource can block a request for it in `mode`: all who
    /// wait go together with it, or all wait behind an E of the asker's owner and it asks for E.
    fn crowd_harmless(&self, asker: Asker<'_>, mode: Mode, resource: u32) -> bool {
        let node = self.resources.get(resource);
        if node.crowd == NONE {
            return true;
        }
        let crowd = &self.crowds[node.crowd];
        match mode {
            Mode::Shared | Mode::Optimistic => crowd.modes[usize::from(mode.code())] == crowd.len,
            Mode::Exclusive => false,
            Mode::Cumulative => {
                node.holders != NONE
                    && self.part(node.holders).mode == Mode::Cumulative
                    && self.same_owner(asker, self.part(node.holders).request)
            }
        }
    }

    fn first_in_crowd(&self, asker: Asker<'_>, mode: Mode, crowd: u32) -> Option<u32> {
        self.list(self.crowds[crowd].head)
            .take_while(|part| self.seq_of(*part) < asker.seq)
            .find(|part| self.part_blocks(asker, mode, *part))
    }

    /// A request in the queue that blocks the asker: the last before it, or what that one waits
    /// for, or failing both the latest that does.
    fn late_in_crowd(&self, at: u32, mode: Mode, resource: u32) -> Option<u32> {
        let head = self.crowds[self.resources.get(resource).crowd].head;
        if self.part(head).request == at {
            return None; // nobody there came before it
        }
        let asker = Asker::live(self, at);
        let own = self.parts_of(at).find(|part| self.part(*part).resource == resource);
        let last = self.list_back(head, NONE).next().expect("a queue is not empty");
        if own.is_none() && self.seq_of(last) > asker.seq {
            // Somewhere in the middle of a queue that is not its own: from the front it is near.
            let found = self.first_in_crowd(asker, mode, self.resources.get(resource).crowd);
            return found.map(|part| self.part(part).request);
        }
        let mut before = self.list_back(head, own.unwrap_or(NONE));
        let nearest = before.next()?;
        let request = self.part(nearest).request;
        if self.part_blocks(asker, mode, nearest) {
            return Some(request);
        }
        // A long run of readers waits for one writer: what the last reader waits for is the answer.
        let shared = self.requests[request].wait().parked_on;
        if shared != NONE && self.blocks(asker, shared) {
            return Some(shared);
        }
        before.find(|part| self.part_blocks(asker, mode, *part)).map(|p| self.part(p).request)
    }

    fn part_blocks(&self, asker: Asker<'_>, mode: Mode, part: u32) -> bool {
        self.in_the_way(asker, mode, part) && !self.may_pass(asker.owner, self.part(part).request)
    }
}

/// What is left until a deadline; `None` if there is none.
pub(crate) fn left(deadline: u64, now: u64) -> Option<u64> {
    (deadline != crate::board::deadlines::NEVER).then(|| deadline.saturating_sub(now))
}
