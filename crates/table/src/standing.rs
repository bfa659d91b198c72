//! A live request as a value: what a record store keeps of it between two commands.
//!
//! A record-store strategy reads the records of the names concerned, builds a small table from them
//! ([`Table::from_standings`]), applies its command, and writes back what then stands
//! ([`Table::standings`]). The rules are the same code as in a big table; an empty table allocates
//! nothing, so the small one is cheap. A snapshot is read back in the same way.

use crate::board::deadlines::NEVER;
use crate::board::slab::NONE;
use crate::board::{More, Request, Wait};
use crate::lock::lease_end;
use crate::snapshot::LATEST;
use crate::{CodecError, Extras, Mode, Party, RequestId, Resource, Settings, Table, rules};

/// A live request in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its id.
    pub id: RequestId,
    /// Its arrival number.
    pub seq: u64,
    /// Its token; 0 while it waits.
    pub token: u64,
    /// When it was granted; while it waits, when it arrived.
    pub since: u64,
    /// When its lease ends, or its wait or grace; `None` is no lease.
    pub deadline: Option<u64>,
    /// How long it waited before it was granted.
    pub waited_ms: u64,
    /// The lease first asked for; 0 is none.
    pub lease_ms: u64,
    /// Who asked.
    pub party: Party,
    /// Whether it takes part in deadlock detection.
    pub detect: bool,
    /// A grant to a waiter whose connection was gone, not confirmed yet.
    pub detached: bool,
    /// Its resources, in the order asked.
    pub parts: Vec<StandingPart>,
    /// What few requests have.
    pub extra: Extras,
    /// The wait asked for, while it waits or if it has an alias; else 0.
    pub wait_ms: u64,
    /// Present exactly while it waits.
    pub wait: Option<StandingWait>,
}

/// One resource of a [`Standing`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingPart {
    /// What.
    pub resource: Resource,
    /// How it is held, or asked for.
    pub mode: Mode,
    /// The mode first asked for.
    pub asked: Mode,
}

/// What a waiting [`Standing`] has besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingWait {
    /// When it was last asked for.
    pub asked: u64,
    /// When the wait ends.
    pub end: u64,
    /// While its connection is gone: the grace and when it ends.
    pub grace: Option<(u64, u64)>,
}

impl Standing {
    /// Whether both want the same alone, for as long, and nothing besides: then one can take the place of the other,
    /// and nobody else is let in or kept out by it.
    pub fn is_alike(&self, other: &Standing) -> bool {
        let plain = |standing: &Standing| {
            standing.extra.is_none()
                && !standing.detect
                && matches!(&standing.parts[..], [part] if part.mode == Mode::Exclusive)
        };
        plain(self)
            && plain(other)
            && self.parts[0].resource == other.parts[0].resource
            && self.lease_ms == other.lease_ms
    }
}

/// The counters that a table goes on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Table time.
    pub now: u64,
    /// The last token given out.
    pub token: u64,
    /// The last arrival number given out.
    pub seq: u64,
}

impl Table {
    /// A table with these requests, given in the order of their seq. What should have ended before
    /// `now`, and waiters that nothing blocks any more, are dealt with by the first command.
    ///
    /// # Panics
    /// If the settings do not pass [`Settings::validate`].
    pub fn from_standings(
        settings: Settings,
        counters: Counters,
        hash_seed: u64,
        standings: impl IntoIterator<Item = Standing>,
    ) -> Result<Table, CodecError> {
        if counters.now > LATEST || counters.token > LATEST || counters.seq > LATEST {
            return Err(CodecError::Bad("counter"));
        }
        let mut table = Table::new(settings, counters.token, hash_seed);
        (table.now, table.token, table.seq) = (counters.now, counters.token, counters.seq);
        for standing in standings {
            if !table.seat(standing) {
                return Err(CodecError::Bad("request"));
            }
        }
        for at in table.waiters() {
            match table.board.parking(at) {
                Some(blocker) => table.board.park(at, blocker),
                None => table.board.loose.insert((table.board.requests[at].seq, at)),
            }
        }
        table.fault_in_holders().map_or(Ok(table), |fault| Err(CodecError::Bad(fault)))
    }

    /// All live requests, in the order of arrival.
    pub fn standings(&self) -> impl Iterator<Item = Standing> {
        self.board.after(0).map(|at| self.standing(at))
    }

    fn standing(&self, at: u32) -> Standing {
        let request = &self.board.requests[at];
        let parts = self.board.parts_of(at).map(|part| self.board.part(part));
        let more = request.more.as_deref();
        let wait = more.and_then(|more| more.wait.as_ref());
        Standing {
            id: request.id.clone(),
            seq: request.seq,
            token: request.token,
            since: request.since,
            deadline: (request.deadline != NEVER).then_some(request.deadline),
            waited_ms: u64::from(request.waited_ms),
            lease_ms: u64::from(request.lease_ms),
            party: self.board.parties.party(request.party).clone(),
            detect: request.detect,
            detached: request.detached,
            parts: parts
                .map(|part| StandingPart {
                    resource: self.board.resources.get(part.resource).key.clone(),
                    mode: part.mode,
                    asked: part.asked,
                })
                .collect(),
            extra: request.extra.clone(),
            wait_ms: more.map_or(0, |more| more.wait_ms),
            wait: wait.map(|wait| StandingWait {
                asked: wait.asked,
                end: wait.end,
                grace: wait.grace,
            }),
        }
    }

    /// The requests that wait, in the order of arrival.
    pub(crate) fn waiters(&self) -> Vec<u32> {
        self.board.after(0).filter(|at| self.board.requests[*at].waiting()).collect()
    }

    /// Puts a request on the board, parked nowhere; false if there can be no such request here.
    pub(crate) fn seat(&mut self, standing: Standing) -> bool {
        if !self.possible(&standing) {
            return false;
        }
        let Standing { id, seq, token, since, parts, extra, wait_ms, wait, .. } = standing;
        let wait = wait.map(|wait| Wait {
            asked: wait.asked,
            end: wait.end,
            grace: wait.grace,
            parked_on: NONE,
        });
        let needed = wait.is_some() || wait_ms > 0;
        let who = self.board.parties.look_up(&standing.party);
        let request = Request {
            deadline: standing.deadline.unwrap_or(NEVER),
            extra,
            more: needed.then(|| Box::new(More { also: Vec::new(), wait_ms, wait })),
            waited_ms: standing.waited_ms as u32,
            lease_ms: standing.lease_ms as u32,
            party: self.board.parties.enter(standing.party, who),
            detect: standing.detect,
            detached: standing.detached,
            ..Request::new(id, seq, token, since)
        };
        let parts: Vec<(u32, Mode, Mode)> = parts
            .into_iter()
            .map(|part| (self.board.resources.enter(part.resource), part.mode, part.asked))
            .collect();
        let hash = self.board.hash_id(&request.id);
        self.board.enter(request, hash, &parts);
        true
    }

    fn possible(&self, standing: &Standing) -> bool {
        let short = |ms: u64| ms < u64::from(u32::MAX);
        let Standing { token, since, deadline, extra, .. } = standing;
        let longest = || lease_end(*since, 0, *since, extra.max_hold_ms());
        self.board.known(&standing.id).is_none()
            && standing.seq > self.board.last_seq()
            && standing.seq <= self.seq
            && *token <= self.token
            && *since <= self.now
            && standing.waited_ms <= *since
            && u32::try_from(standing.waited_ms).is_ok()
            && short(standing.lease_ms)
            && short(standing.wait_ms)
            && short(extra.max_hold_ms())
            && deadline.is_none_or(|deadline| deadline < LATEST)
            && (*token == 0 || deadline.unwrap_or(NEVER) <= longest())
            && (!standing.detect || standing.party.explicit)
            && (*token == 0) == standing.wait.is_some()
            && self.possible_wait(standing)
            && possible_parts(&standing.parts, *token == 0)
    }

    /// Whether a waiter's deadline is the one that its wait and grace give.
    fn possible_wait(&self, standing: &Standing) -> bool {
        let Some(wait) = &standing.wait else {
            return standing.wait_ms == 0 || standing.extra.alias().is_some();
        };
        let grace = wait.grace.map_or(NEVER, |(_, end)| end);
        standing.deadline == Some(wait.end.min(grace))
            && !standing.detached
            && wait.asked <= self.now
            && wait.end < LATEST
            && wait.grace.is_none_or(|(ms, end)| ms > 0 && ms < LATEST && end < LATEST)
    }
}

/// Whether a request can have such parts: some, none twice, and modes that promotion can explain.
fn possible_parts(parts: &[StandingPart], waiting: bool) -> bool {
    let promoted = parts.iter().any(|part| part.mode != part.asked);
    let optimistic = parts.iter().filter(|part| part.asked == Mode::Optimistic).count();
    let explained = |part: &StandingPart| match part.asked {
        Mode::Shared | Mode::Optimistic if promoted => part.mode == Mode::Cumulative,
        asked => part.mode == asked,
    };
    let apart = |at: usize| {
        let resource = &parts[at].resource;
        parts[..at].iter().all(|other| !rules::overlap(&other.resource, resource))
    };
    !parts.is_empty()
        && parts.len() <= 255
        && (optimistic == 0 || optimistic == parts.len())
        && !(promoted && waiting)
        && parts.iter().all(explained)
        && (0..parts.len()).all(apart)
}
