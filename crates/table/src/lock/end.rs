//! How requests end: released, cancelled, timed out, expired, revoked; and what moves an end:
//! renewal and detaching.

use std::hint::black_box;

use super::acquire::lease_end;
use crate::board::Known;
use crate::board::ahead::TOGETHER;
use crate::board::deadlines::TAKEN;
use crate::board::ended::End;
use crate::board::slab::NONE;
use crate::error::What;
use crate::{
    About, Cause, Detach, Error, Event, Loss, Outcome, Part, Reply, RequestId, Table, Target, Text,
};

use super::admit::{long, long_ms};

impl Table {
    pub(crate) fn release(&mut self, target: &Target, events: &mut Vec<Event>) -> Reply {
        match self.target(target) {
            Some(Known::Live(at)) if self.board.requests[at].waiting() => {
                self.withdraw(at, Some(End::Released), events);
                Reply::Released
            }
            Some(Known::Live(at)) => {
                self.end_holder(at, Cause::Released, None);
                Reply::Released
            }
            Some(Known::Ended(number)) => match self.board.ended.get(number).end {
                End::Grant(Cause::Released, _) | End::Released => Reply::Released,
                _ => Reply::NotHeld,
            },
            None => Reply::NotHeld,
        }
    }

    pub(crate) fn cancel(&mut self, target: &Target, events: &mut Vec<Event>) -> Reply {
        match self.target(target) {
            Some(Known::Live(at)) if self.board.requests[at].waiting() => {
                self.withdraw(at, Some(End::Cancelled), events);
                Reply::Cancelled(true)
            }
            Some(Known::Ended(number)) => {
                Reply::Cancelled(self.board.ended.get(number).end == End::Cancelled)
            }
            _ => Reply::Cancelled(false),
        }
    }

    pub(crate) fn renew(&mut self, target: &Target, lease_ms: Option<u64>) -> Reply {
        let most = self.settings.lease_ms;
        if let Err(error) = long_ms(What::Lease, lease_ms.unwrap_or(0), most) {
            return Reply::Error(error);
        }
        let at = match self.held(target) {
            Ok(at) => at,
            Err(reply) => return reply,
        };
        let request = &mut self.board.requests[at];
        request.detached = false;
        let lease_ms = lease_ms.unwrap_or(u64::from(request.lease_ms));
        let end = lease_end(self.now, lease_ms, request.since, request.max_hold_ms());
        let end = end.max(request.deadline);
        self.board.set_deadline(at, end);
        Reply::Renewed(self.grant_of(at).lease_ms)
    }

    pub(crate) fn revoke(&mut self, token: u64, reason: Text, events: &mut Vec<Event>) -> Reply {
        if let Err(error) = long(What::Reason, reason.len(), self.settings.meta_bytes) {
            return Reply::Error(error);
        }
        // Rare and by hand, so it does not deserve an index.
        let found = self.board.requests.iter().find(|(_, r)| r.token == token && !r.waiting());
        let Some((at, _)) = found else { return Reply::Revoked(false) };
        self.lose(at, Cause::Revoked, Some(reason), events);
        Reply::Revoked(true)
    }

    pub(crate) fn detach(&mut self, detach: &Detach, events: &mut Vec<Event>) -> Result<(), Error> {
        long_ms(What::Lease, detach.grace_ms, self.settings.lease_ms)?;
        let waiters: Vec<u32> = match &detach.ids {
            Some(ids) => {
                let mut found: Vec<u32> = ids.iter().filter_map(|id| self.board.live(id)).collect();
                found.sort_unstable_by_key(|at| self.board.requests[*at].seq);
                found.dedup();
                found
            }
            None => self.waiters(),
        };
        for at in waiters {
            if self.board.requests[at].waiting() {
                self.detach_waiter(at, detach.grace_ms, events);
            }
        }
        Ok(())
    }

    fn detach_waiter(&mut self, at: u32, grace_ms: u64, events: &mut Vec<Event>) {
        if grace_ms == 0 {
            return self.withdraw(at, None, events);
        }
        let wait = self.board.requests[at].wait_mut();
        wait.grace = Some((grace_ms, self.now + grace_ms));
        let deadline = wait.deadline();
        self.board.set_deadline(at, deadline);
    }

    /// Ends everything whose time has come: waiters first, so that a wait that is over is never
    /// granted, then holders.
    pub(crate) fn expire(&mut self, events: &mut Vec<Event>) {
        let due = self.board.deadlines.take_due(self.now);
        // Waiters first; each is gone to once, before they are put in order.
        let mut near = 0;
        let mut due: Vec<(bool, u64, u64, u32)> = due
            .into_iter()
            .map(|(deadline, at)| {
                let request = &mut self.board.requests[at];
                request.place = TAKEN;
                // Of a holder all will be looked at. It lies in three lines of the cache, which come at the same time.
                near ^= request.first.resource ^ request.party;
                (!request.waiting(), deadline, request.seq, at)
            })
            .collect();
        black_box(near);
        due.sort_unstable();
        // Who was in the way is judged before anything has ended.
        let (waiters, holders) = due.split_at(due.partition_point(|(holds, ..)| !holds));
        let blockers: Vec<_> = waiters.iter().map(|(.., at)| self.blocker_of(*at)).collect();
        for ((.., at), blocker) in waiters.iter().zip(blockers) {
            let request = &self.board.requests[*at];
            if request.deadline < request.wait().end {
                self.withdraw(*at, None, events);
                continue;
            }
            let about = Box::new(self.about(*at));
            self.tally.count(about.parts[0].mode, Outcome::TimedOut);
            let id = self.end_waiter(*at);
            events.push(Event::TimedOut { id, blocker, about });
        }
        for some in holders.chunks(TOGETHER) {
            self.board.go_ahead_to_ends(&some.iter().map(|(.., at)| *at));
            for (.., at) in some {
                if self.quiet {
                    self.end_holder(*at, Cause::Expired, None);
                } else {
                    self.lose(*at, Cause::Expired, None, events);
                }
            }
        }
    }

    /// A holder is told that it has lost what it held.
    pub(crate) fn lose(
        &mut self,
        at: u32,
        cause: Cause,
        reason: Option<Text>,
        events: &mut Vec<Event>,
    ) {
        let about = Box::new(self.about(at));
        let token = self.board.requests[at].token;
        let by = reason.clone().filter(|_| cause == Cause::Superseded);
        let id = self.end_holder(at, cause, by);
        events.push(Event::Lost { id, token, cause, reason, about });
    }

    /// A waiter leaves, and whoever listens for it is told.
    pub(crate) fn withdraw(&mut self, at: u32, end: Option<End>, events: &mut Vec<Event>) {
        let about = Box::new(self.about(at));
        self.tally.count(about.parts[0].mode, Outcome::Cancelled);
        let id = self.end_request(at, end);
        events.push(Event::Withdrawn { id, about });
    }

    pub(crate) fn end_waiter(&mut self, at: u32) -> RequestId {
        self.end_request(at, None)
    }

    fn end_holder(&mut self, at: u32, cause: Cause, by: Option<Text>) -> RequestId {
        let held_ms = self.now - self.board.requests[at].since;
        let (_, describe) = self.board.first_part(at);
        self.tally.held(held_ms, cause, describe);
        self.end_request(at, Some(End::Grant(cause, by.map(Box::new))))
    }

    fn end_request(&mut self, at: u32, end: Option<End>) -> RequestId {
        // Without its E the owner may have to wait for those it could pass.
        let owner = if self.board.has_e(at) { self.board.owner_of(at) } else { NONE };
        let id = self.board.leave(at);
        self.trouble(owner);
        self.board.end_id(at, &id, end, self.now);
        if self.board.ended.len() as u64 > self.settings.ended {
            self.board.forget(self.now, self.settings.ended_ms, self.settings.ended);
        }
        id
    }

    /// What is known of a request, for those who watch.
    pub(crate) fn about(&self, at: u32) -> About {
        let request = &self.board.requests[at];
        let party = self.board.parties.party(request.party);
        let parts = self.board.parts_of(at).map(|part| self.board.part(part));
        About {
            seq: request.seq,
            parts: parts
                .map(|p| Part::new(self.board.resources.get(p.resource).key.clone(), p.mode))
                .collect(),
            owner: party.owner.clone(),
            principal: party.principal.clone(),
        }
    }

    /// The request that a command names.
    fn target(&self, target: &Target) -> Option<Known> {
        match target {
            Target::Id(id) => self.board.known(id),
            Target::Alias(alias) => self.board.aliases.get(alias).map(|at| Known::Live(*at)),
        }
    }

    /// The holder that a command names, or what to answer instead.
    pub(crate) fn held(&self, target: &Target) -> Result<u32, Reply> {
        match self.target(target) {
            Some(Known::Live(at)) if !self.board.requests[at].waiting() => Ok(at),
            Some(Known::Ended(number)) => match &self.board.ended.get(number).end {
                End::Grant(cause, by) => {
                    let by = by.as_deref().cloned();
                    Err(Reply::Lost(Some(Loss { cause: *cause, by })))
                }
                _ => Err(Reply::Lost(None)),
            },
            _ => Err(Reply::Lost(None)),
        }
    }
}
