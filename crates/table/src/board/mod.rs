//! The board: who holds and who waits, with the indexes that make it quick to ask. It keeps no
//! rules; `lock/` decides and calls it.
//!
//! A *request* has one or more *parts*, the first of which is kept in it. A part hangs on its *resource*, either in the list of
//! holders or in the queue (*crowd*); both are circular lists in the order of seq, so that the
//! first is the lowest and the one before the first is the highest. All requests also form one
//! list in the order of arrival.

pub(crate) mod ahead;
pub(crate) mod arrivals;
pub(crate) mod deadlines;
pub(crate) mod ended;
mod few;
pub(crate) mod hash;
mod ids;
pub(crate) mod index;
mod lists;
mod parking;
pub(crate) mod parties;
pub(crate) mod resources;
pub(crate) mod slab;

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use crate::{Extras, Mode, RequestId, Text};
use deadlines::Deadlines;
use ended::{EndedId, Memory};
use few::Few;
use hash::KeyHash;
use index::Index;
use parties::Parties;
use resources::Resources;
use slab::{NONE, Slab};

/// A live request: it holds all of its parts, or waits for all of them.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    /// The arrival number; no two live requests have the same.
    pub(crate) seq: u64,
    /// 0 exactly while it waits.
    pub(crate) token: u64,
    /// When it was granted; while it waits, when it arrived.
    pub(crate) since: u64,
    /// When its lease ends; while it waits, its wait or its grace. `NEVER` for no lease.
    pub(crate) deadline: u64,
    /// As it came with the request.
    pub(crate) extra: Extras,
    /// Present exactly while there is something in it.
    pub(crate) more: Option<Box<More>>,
    /// How long it waited before it was granted.
    pub(crate) waited_ms: u32,
    /// The lease first asked for; 0 is none.
    pub(crate) lease_ms: u32,
    pub(crate) party: u32,
    /// Its first part, under the request's own number; `more.also` has the others.
    pub(crate) first: PartNode,
    /// Neighbours in the order of arrival; the board keeps them.
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Its place among the deadlines; the board keeps it.
    pub(crate) place: u32,
    pub(crate) detect: bool,
    /// A grant to a waiter whose connection was gone, which nobody has confirmed yet.
    pub(crate) detached: bool,
    /// Whether an entry of `arrivals.anchors` names it.
    pub(crate) anchor: bool,
    /// Whether others are parked on it.
    pub(crate) has_parked: bool,
}

/// What only some requests have.
#[derive(Clone, Debug, Default)]
pub(crate) struct More {
    /// The parts after the first, by slots behind [`ALSO`].
    pub(crate) also: Vec<u32>,
    /// The wait asked for; kept after the grant for requests with an alias.
    pub(crate) wait_ms: u64,
    /// Present exactly while the request waits.
    pub(crate) wait: Option<Wait>,
}

/// The state of a waiter.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    /// When the request was last asked for: a repeat counts its wait from there.
    pub(crate) asked: u64,
    /// When the wait ends.
    pub(crate) end: u64,
    /// While its connection is gone: the grace and when it ends.
    pub(crate) grace: Option<(u64, u64)>,
    /// The request this one is parked on: one of its blockers. [`NONE`] only within a step.
    pub(crate) parked_on: u32,
}

impl Wait {
    /// When the waiter leaves: its wait ends, or its grace.
    pub(crate) fn deadline(&self) -> u64 {
        self.grace.map_or(self.end, |(_, end)| end.min(self.end))
    }
}

impl Request {
    /// A request that is about to enter: its place in the lists comes with that.
    pub(crate) fn new(id: RequestId, seq: u64, token: u64, since: u64) -> Request {
        Request {
            id,
            seq,
            token,
            since,
            deadline: deadlines::NEVER,
            extra: Extras::default(),
            more: None,
            waited_ms: 0,
            lease_ms: 0,
            party: NONE,
            first: PartNode::default(),
            prev: NONE,
            next: NONE,
            place: 0,
            detect: false,
            detached: false,
            anchor: false,
            has_parked: false,
        }
    }

    pub(crate) fn waiting(&self) -> bool {
        self.token == 0
    }

    pub(crate) fn wait(&self) -> &Wait {
        self.more.as_ref().and_then(|more| more.wait.as_ref()).expect("a waiter has a wait")
    }

    pub(crate) fn wait_mut(&mut self) -> &mut Wait {
        self.more.as_mut().and_then(|more| more.wait.as_mut()).expect("a waiter has a wait")
    }

    pub(crate) fn max_hold_ms(&self) -> u64 {
        self.extra.max_hold_ms()
    }
}

/// Parts from here on are not the first one of their request.
const ALSO: u32 = 1 << 31;

/// Where a part that is not the first one is kept.
pub(crate) fn also_slot(part: u32) -> u32 {
    part - ALSO
}

/// One resource of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartNode {
    pub(crate) request: u32,
    pub(crate) resource: u32,
    /// Neighbours among the holders, or in the queue, of the resource.
    prev: u32,
    next: u32,
    pub(crate) mode: Mode,
    /// The mode first asked for; differs from `mode` after a promotion.
    pub(crate) asked: Mode,
}

/// The queue of a resource. It exists while somebody waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowd {
    /// The part with the lowest seq.
    pub(crate) head: u32,
    pub(crate) len: u32,
    /// How many of them ask for each mode.
    pub(crate) modes: [u32; 4],
}

/// What the id index knows of an id.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Known {
    Live(u32),
    Ended(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Board {
    hash: KeyHash,
    pub(crate) requests: Slab<Request>,
    /// The parts after the first one of their request.
    pub(crate) also: Slab<PartNode>,
    pub(crate) resources: Resources,
    pub(crate) crowds: Slab<Crowd>,
    pub(crate) parties: Parties,
    pub(crate) deadlines: Deadlines,
    pub(crate) ended: Memory<EndedId>,
    /// Live requests by slot, ended ids by `NUMBERS` + number.
    ids: Index,
    pub(crate) aliases: HashMap<Box<str>, u32, FixedState>,
    /// Who is parked on a request, by seq.
    parked: HashMap<u32, Few, FixedState>,
    /// Waiters whose blocker has gone: to be looked at before the step ends.
    pub(crate) loose: Few,
    arrivals: arrivals::Arrivals,
    /// How many requests wait.
    pub(crate) waiting: u32,
    /// How many of them are parked on another waiter.
    pub(crate) behind_waiters: u32,
}

impl Board {
    pub(crate) fn new(hash_seed: u64) -> Board {
        let hash = KeyHash::new(hash_seed);
        Board {
            hash: hash.clone(),
            requests: Slab::default(),
            also: Slab::default(),
            resources: Resources::new(hash.clone()),
            crowds: Slab::default(),
            parties: Parties::new(hash.clone()),
            deadlines: Deadlines::default(),
            ended: Memory::default(),
            ids: Index::default(),
            aliases: HashMap::with_hasher(hash.state()),
            parked: HashMap::with_hasher(hash.state()),
            loose: Few::default(),
            arrivals: arrivals::Arrivals { first: NONE, last: NONE, anchors: BTreeMap::new() },
            waiting: 0,
            behind_waiters: 0,
        }
    }

    /// Puts a request on the board, as a holder or at its place in the queues by its token. Its
    /// parts are resources with the mode they have and the mode first asked for; `hash` is that of
    /// its id.
    pub(crate) fn enter(
        &mut self,
        request: Request,
        hash: u64,
        parts: &[(u32, Mode, Mode)],
    ) -> u32 {
        let (seq, waiting, deadline) = (request.seq, request.waiting(), request.deadline);
        let alias = request.extra.alias().map(Box::from);
        let at = self.requests.insert(request);
        self.index_id(hash, at);
        self.requests[at].place = self.deadlines.insert(deadline, at);
        self.arrive(at, seq);
        for (position, (resource, mode, asked)) in parts.iter().enumerate() {
            let (resource, mode, asked) = (*resource, *mode, *asked);
            let node = PartNode { request: at, resource, prev: NONE, next: NONE, mode, asked };
            let part = if position == 0 { at } else { ALSO | self.also.insert(node) };
            let request = &mut self.requests[at];
            if position == 0 {
                request.first = node;
            } else {
                request.more.get_or_insert_default().also.push(part);
            }
            self.link(part, seq, waiting);
        }
        self.count_in(at);
        if let Some(alias) = alias {
            self.aliases.insert(alias, at);
        }
        at
    }

    /// Takes a request off the board and returns its id, which stays indexed until [`Board::end_id`];
    /// whoever was parked on it is loose now.
    pub(crate) fn leave(&mut self, at: u32) -> RequestId {
        let waiting = self.requests[at].waiting();
        if waiting {
            self.unpark(at);
        }
        self.loosen_parked(at);
        self.count_out(at);
        self.drop_deadline(at);
        for position in 0.. {
            let Some(part) = self.part_at(at, position) else { break };
            let resource = self.part(part).resource;
            if self.unlink(part, waiting) {
                self.resources.remove(resource);
            }
        }
        self.depart(at);
        // What is left of it is dropped where it is: moving all of it out costs more than what is wanted of it.
        let request = &mut self.requests[at];
        let id = std::mem::replace(&mut request.id, RequestId::from_uuid([0; 16]));
        for part in request.more.iter().flat_map(|more| &more.also) {
            self.also.free(also_slot(*part));
        }
        if let Some(alias) = request.extra.alias() {
            self.aliases.remove(alias);
        }
        self.parties.leave(request.party);
        self.requests.free(at);
        id
    }

    /// Turns a waiter into a holder under `token`, in all its parts.
    pub(crate) fn hold(&mut self, at: u32, token: u64, since: u64) {
        self.count_out(at);
        for position in 0.. {
            let Some(part) = self.part_at(at, position) else { break };
            self.unlink(part, true);
        }
        if self.requests[at].has_parked {
            self.behind_waiters -= self.parked[&at].len() as u32;
        }
        let request = &mut self.requests[at];
        let seq = request.seq;
        request.waited_ms = u32::try_from(since - request.since).unwrap_or(u32::MAX);
        (request.token, request.since) = (token, since);
        let more = request.more.as_mut().expect("a waiter has more");
        more.wait = None;
        if request.extra.alias().is_none() {
            more.wait_ms = 0;
        }
        if more.wait_ms == 0 && more.also.is_empty() {
            request.more = None;
        }
        for position in 0.. {
            let Some(part) = self.part_at(at, position) else { break };
            self.link(part, seq, false);
        }
        self.count_in(at);
    }

    /// Changes the mode of a held part.
    pub(crate) fn set_mode(&mut self, at: u32, part: u32, mode: Mode) {
        self.count_out(at);
        self.part_mut(part).mode = mode;
        self.count_in(at);
    }

    fn drop_deadline(&mut self, at: u32) {
        let Request { deadline, place, .. } = self.requests[at];
        if let Some(moved) = self.deadlines.remove(deadline, place) {
            self.requests[moved].place = place;
        }
    }

    /// Keeps everything that a snapshot walks as it is now.
    pub(crate) fn keep_past(&mut self) {
        self.requests.keep_past();
        self.also.keep_past();
        self.resources.nodes.keep_past();
        self.parties.parties.keep_past();
    }

    pub(crate) fn drop_past(&mut self) {
        self.requests.drop_past();
        self.also.drop_past();
        self.resources.nodes.drop_past();
        self.parties.parties.drop_past();
    }

    pub(crate) fn has_past(&self) -> bool {
        self.requests.has_past()
    }

    pub(crate) fn set_deadline(&mut self, at: u32, deadline: u64) {
        self.drop_deadline(at);
        let place = self.deadlines.insert(deadline, at);
        let request = &mut self.requests[at];
        (request.deadline, request.place) = (deadline, place);
    }

    /// The part of a request at `position`, the first being 0.
    pub(crate) fn part_at(&self, at: u32, position: usize) -> Option<u32> {
        match position {
            0 => Some(at),
            _ => self.requests[at].more.as_ref()?.also.get(position - 1).copied(),
        }
    }

    #[inline]
    pub(crate) fn part(&self, part: u32) -> &PartNode {
        if part < ALSO { &self.requests[part].first } else { &self.also[also_slot(part)] }
    }

    #[inline]
    pub(crate) fn part_mut(&mut self, part: u32) -> &mut PartNode {
        if part < ALSO { &mut self.requests[part].first } else { &mut self.also[also_slot(part)] }
    }

    /// The mode of a request's first resource, and what describes the request in a few words.
    pub(crate) fn first_part(&self, at: u32) -> (Mode, impl FnOnce() -> (Text, Text)) {
        let request = &self.requests[at];
        let part = &request.first;
        let describe = || {
            let name = self.resources.get(part.resource).key.name().into();
            (name, self.parties.party(request.party).owner.clone())
        };
        (part.mode, describe)
    }

    pub(crate) fn parts_of(&self, at: u32) -> impl Iterator<Item = u32> {
        (0..).map_while(move |position| self.part_at(at, position))
    }

    /// Whether a request has a resource in mode E.
    pub(crate) fn has_e(&self, at: u32) -> bool {
        let is_e = |part: u32| self.part(part).mode == Mode::Cumulative;
        let request = &self.requests[at];
        match request.more {
            None => request.first.mode == Mode::Cumulative,
            Some(_) => self.parts_of(at).any(is_e),
        }
    }

    /// The explicit owner of a request, or [`NONE`].
    pub(crate) fn owner_of(&self, at: u32) -> u32 {
        self.parties.owner_of(self.requests[at].party)
    }

    /// What the owner's totals have of this request (all but the number of requests).
    fn count_in(&mut self, at: u32) {
        self.count(at, 1);
    }

    fn count_out(&mut self, at: u32) {
        self.count(at, u32::MAX);
    }

    /// `by` is 1 or, to count backwards, `u32::MAX`.
    fn count(&mut self, at: u32, by: u32) {
        let request = &self.requests[at];
        let (waiting, detect) = (request.waiting(), u32::from(request.detect));
        let held_e = match &request.more {
            _ if waiting => 0,
            None => u32::from(request.first.mode == Mode::Cumulative),
            Some(_) => {
                let modes = self.parts_of(at).map(|part| self.part(part).mode);
                modes.filter(|mode| *mode == Mode::Cumulative).count() as u32
            }
        };
        if waiting {
            self.waiting = self.waiting.wrapping_add(by);
        } else if held_e + detect == 0 {
            return; // nothing that the owner's totals have
        }
        let owner = self.owner_of(at);
        if owner == NONE {
            return;
        }
        let node = self.parties.owner_mut(owner);
        node.held_e = node.held_e.wrapping_add(held_e.wrapping_mul(by));
        node.detecting = node.detecting.wrapping_add(detect.wrapping_mul(by));
        let place = (request.seq, at);
        if waiting && by == 1 {
            node.waiting.insert(place);
        } else if waiting {
            node.waiting.remove(place);
        }
    }
}
