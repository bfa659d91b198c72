//! What is done to a request after it was asked: release, renew, promote, cancel, detach, revoke.

use keylatch_table::{
    Cause, Detach, Error, Event, Loss, Mode, Reply, RequestId, Target, Text, What,
};

use super::{
    Bug, Model,
    conflict::{conflicts, overlap},
    due::{lost, withdrawn},
    request::{End, Grace, Request, Stage, end_after},
};

/// What a target stands for.
enum Found {
    /// A live request, at this position.
    Live(usize),
    /// An id that is remembered.
    Ended(End),
    Unknown,
}

/// `request` with each O and S taken as E.
fn as_promoted(request: &Request) -> Request {
    let mut promoted = request.clone();
    for part in &mut promoted.parts {
        if matches!(part.mode, Mode::Optimistic | Mode::Shared) {
            part.mode = Mode::Cumulative;
        }
    }
    promoted
}

fn has_optimistic_over(holder: &Request, promoted: &Request) -> bool {
    holder.parts.iter().any(|held| {
        held.mode == Mode::Optimistic
            && promoted.parts.iter().any(|part| overlap(&part.resource, &held.resource))
    })
}

fn lost_because(end: &Found) -> Reply {
    match end {
        Found::Ended(End::Grant(loss)) => Reply::Lost(Some(loss.clone())),
        _ => Reply::Lost(None),
    }
}

impl Model {
    fn find(&self, target: &Target) -> Found {
        let live = match target {
            Target::Id(id) => self.position(id),
            Target::Alias(alias) => {
                self.requests.iter().position(|request| request.alias() == Some(alias))
            }
        };
        if let Some(at) = live {
            return Found::Live(at);
        }
        let Target::Id(id) = target else { return Found::Unknown };
        match self.ended.iter().find(|ended| ended.id == *id) {
            Some(ended) => Found::Ended(ended.end.clone()),
            None => Found::Unknown,
        }
    }

    pub(crate) fn release(&mut self, target: &Target, events: &mut Vec<Event>) -> Reply {
        match self.find(target) {
            Found::Live(at) if self.requests[at].hold().is_some() => {
                self.end_hold(at, Loss { cause: Cause::Released, by: None });
                Reply::Released
            }
            Found::Live(at) => {
                self.end_wait(at, End::WaiterReleased, events);
                Reply::Released
            }
            Found::Ended(End::WaiterReleased | End::Grant(Loss { cause: Cause::Released, .. })) => {
                Reply::Released
            }
            Found::Ended(_) | Found::Unknown => Reply::NotHeld,
        }
    }

    fn end_wait(&mut self, at: usize, end: End, events: &mut Vec<Event>) {
        let request = self.requests.remove(at);
        self.remember(&request, end);
        events.push(withdrawn(&request));
    }

    pub(crate) fn renew(&mut self, target: &Target, lease_ms: Option<u64>) -> Reply {
        if lease_ms.is_some_and(|lease_ms| lease_ms > self.settings.lease_ms) {
            return Reply::Error(Error::TooLong(What::Lease, self.settings.lease_ms));
        }
        let (now, shortens) = (self.now, self.has_bug(Bug::RenewalShortens));
        let found = self.find(target);
        let Found::Live(at) = found else { return lost_because(&found) };
        let request = &mut self.requests[at];
        let asked = lease_ms.unwrap_or(request.asked.lease_ms);
        let Some(hold) = request.hold_mut() else { return Reply::Lost(None) };
        hold.unconfirmed = false;
        hold.lease = match (hold.lease, end_after(now, asked)) {
            (Some(_), Some(end)) if shortens => Some(end),
            (Some(before), Some(end)) => Some(before.max(end)),
            (None, _) | (_, None) => None,
        };
        Reply::Renewed(request.left(now))
    }

    pub(crate) fn promote(&mut self, target: &Target, events: &mut Vec<Event>) -> Reply {
        let found = self.find(target);
        let Found::Live(at) = found else { return lost_because(&found) };
        let request = self.requests[at].clone();
        let Some(hold) = request.hold() else { return Reply::Lost(None) };
        if !request.promotable() {
            return Reply::Error(Error::NeverPromotable);
        }
        if hold.promoted {
            return Reply::Promoted(request.grant(self.now));
        }
        let mut promoted = as_promoted(&request);
        let in_the_way = self.holders().find(|holder| {
            holder.seq != request.seq
                && holder.parts.iter().all(|part| part.mode != Mode::Optimistic)
                && conflicts(holder, &promoted)
        });
        if let Some(holder) = in_the_way {
            return Reply::Busy(self.describe(holder, &promoted));
        }
        let hold = promoted.hold_mut().expect("still held");
        hold.promoted = true;
        hold.token = self.next_token();
        let grant = promoted.grant(self.now);
        self.requests[at] = promoted.clone();
        self.supersede(&promoted, events);
        Reply::Promoted(grant)
    }

    fn supersede(&mut self, promoted: &Request, events: &mut Vec<Event>) {
        if self.has_bug(Bug::SupersedesNobody) {
            return;
        }
        let by = promoted.asked.party.owner.clone();
        let dropped = self
            .holders()
            .filter(|holder| holder.seq != promoted.seq && has_optimistic_over(holder, promoted))
            .map(|holder| holder.seq)
            .collect::<Vec<_>>();
        for seq in dropped {
            let at = self.at(seq);
            let loss = Loss { cause: Cause::Superseded, by: Some(by.clone()) };
            let request = self.end_hold(at, loss);
            events.push(lost(&request, Cause::Superseded, Some(by.clone())));
        }
    }

    pub(crate) fn cancel(&mut self, target: &Target, events: &mut Vec<Event>) -> Reply {
        match self.find(target) {
            Found::Live(at) if self.requests[at].wait().is_some() => {
                self.end_wait(at, End::WaiterCancelled, events);
                Reply::Cancelled(true)
            }
            Found::Ended(End::WaiterCancelled) => Reply::Cancelled(true),
            _ => Reply::Cancelled(false),
        }
    }

    pub(crate) fn revoke(&mut self, token: u64, reason: &Text, events: &mut Vec<Event>) -> Reply {
        if reason.len() as u64 > self.settings.meta_bytes {
            return Reply::Error(Error::TooLong(What::Reason, self.settings.meta_bytes));
        }
        let holder = self.holders().find(|holder| holder.token() == token);
        let Some(seq) = holder.map(|holder| holder.seq) else { return Reply::Revoked(false) };
        let at = self.at(seq);
        let request = self.end_hold(at, Loss { cause: Cause::Revoked, by: None });
        events.push(lost(&request, Cause::Revoked, Some(reason.clone())));
        Reply::Revoked(true)
    }

    /// Marks waiters and waiting claims whose connection is gone; with no grace they leave at once.
    pub(crate) fn detach(&mut self, detach: &Detach, events: &mut Vec<Event>) -> Reply {
        if detach.grace_ms > self.settings.lease_ms {
            return Reply::Error(Error::TooLong(What::Lease, self.settings.lease_ms));
        }
        let meant =
            |id: &RequestId| detach.ids.as_ref().is_none_or(|ids| ids.iter().any(|one| one == id));
        let length_ms = detach.grace_ms;
        let grace = Grace { length_ms, until: self.now.saturating_add(length_ms) };
        for request in &mut self.requests {
            if let Stage::Waiting(wait) = &mut request.stage
                && meant(&request.asked.id)
            {
                wait.grace = Some(grace);
            }
        }
        for claim in &mut self.tasks.claims {
            if meant(&claim.id) {
                claim.wait.grace = Some(grace);
            }
        }
        if length_ms == 0 {
            let gone = self.waiters().filter(|waiter| meant(&waiter.asked.id));
            for seq in gone.map(|waiter| waiter.seq).collect::<Vec<_>>() {
                let request = self.take(seq);
                events.push(withdrawn(&request));
            }
            self.withdraw_claims(meant, events);
        }
        Reply::Done
    }
}
