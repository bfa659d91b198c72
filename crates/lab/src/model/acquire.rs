//! Acquire: repeats first, then checks, then grant, queue or refusal.

use keylatch_table::{Acquire, Deadlock, Error, Event, Reply, What};

use super::{
    Bug, Model,
    conflict::conflicts,
    due::withdrawn,
    request::{End, Request, Stage, Wait, end_after},
};

/// Whether `again` is a repeat of `first`: all but the wait, the principal, and what is shown for a
/// caller without an explicit owner.
fn same_content(first: &Acquire, again: &Acquire) -> bool {
    let owner = |asked: &Acquire| asked.party.explicit.then(|| asked.party.owner.clone());
    first.part == again.part
        && first.also == again.also
        && owner(first) == owner(again)
        && first.lease_ms == again.lease_ms
        && first.detect == again.detect
        && first.extra == again.extra
}

impl Model {
    pub(crate) fn acquire(&mut self, asked: &Acquire, events: &mut Vec<Event>) -> Reply {
        if let Err(error) = self.check_id(&asked.id) {
            return Reply::Error(error);
        }
        if let Some(at) = self.position(&asked.id) {
            return self.repeat(at, asked, events);
        }
        if let Some(reply) = self.ended_reply(asked) {
            return reply;
        }
        let checked = self.check_lengths(asked).and_then(|()| self.check_content(asked, &[]));
        if let Err(error) = checked {
            return Reply::Error(error);
        }
        let draft = Request::draft(asked, self.now);
        let Some(blocker) = self.blocker(&draft) else {
            return Reply::Granted(self.grant_now(draft));
        };
        if asked.wait_ms == 0 {
            return Reply::Busy(blocker);
        }
        if let Err(error) = self.check_queue(&draft) {
            return Reply::Error(error);
        }
        if let Some(cycle) = self.cycle(&draft) {
            return Reply::Deadlock(Deadlock { blocker, cycle });
        }
        self.queue(draft);
        Reply::Waiting(blocker)
    }

    fn ended_reply(&self, asked: &Acquire) -> Option<Reply> {
        let ended = self.ended.iter().find(|ended| ended.id == asked.id)?;
        match &ended.end {
            End::Grant(loss) => Some(Reply::Ended(loss.cause)),
            End::WaiterReleased | End::WaiterCancelled => None,
        }
    }

    fn repeat(&mut self, at: usize, asked: &Acquire, events: &mut Vec<Event>) -> Reply {
        let now = self.now;
        if !same_content(&self.requests[at].asked, asked) {
            return Reply::Error(Error::IdReused);
        }
        let request = &mut self.requests[at];
        let lease_ms = request.asked.lease_ms;
        if let Some(hold) = request.hold_mut() {
            if hold.unconfirmed {
                hold.unconfirmed = false;
                hold.lease = end_after(now, lease_ms);
            }
            return Reply::Granted(request.grant(now));
        }
        if asked.wait_ms > self.settings.wait_ms {
            return Reply::Error(Error::TooLong(What::Wait, self.settings.wait_ms));
        }
        let blocker = self.blocker(&self.requests[at]).expect("a free waiter was not granted");
        if asked.wait_ms == 0 {
            let request = self.requests.remove(at);
            events.push(withdrawn(&request));
            return Reply::Busy(blocker);
        }
        let request = &mut self.requests[at];
        request.asked.wait_ms = asked.wait_ms;
        request.asked_at = now;
        request.stage =
            Stage::Waiting(Wait { until: now.saturating_add(asked.wait_ms), grace: None });
        if self.has_bug(Bug::RepeatLosesItsPlace) {
            let mut request = self.requests.remove(at);
            request.seq = self.next_seq();
            self.requests.push(request);
        }
        Reply::Waiting(blocker)
    }

    /// Several separate requests: all are granted now, or none is.
    pub(crate) fn acquire_each(&mut self, all: &[Acquire]) -> Reply {
        let mut drafts: Vec<Request> = Vec::new();
        let mut refusals = Vec::new();
        for asked in all {
            refusals.extend(self.refusals_of_one(asked, &drafts));
            drafts.push(Request::draft(asked, self.now));
        }
        let conflicting = drafts
            .iter()
            .enumerate()
            .any(|(at, draft)| drafts[..at].iter().any(|earlier| conflicts(earlier, draft)));
        if conflicting {
            refusals.push(Reply::Error(Error::PartsOverlap));
        }
        self.as_right = refusals
            .iter()
            .filter_map(
                |refusal| if let Reply::Error(error) = refusal { Some(*error) } else { None },
            )
            .collect();
        if !refusals.is_empty() {
            return refusals.swap_remove(0);
        }
        if let Some(blocker) = drafts.iter().find_map(|draft| self.blocker(draft)) {
            return Reply::Busy(blocker);
        }
        Reply::GrantedEach(drafts.into_iter().map(|draft| self.grant_now(draft)).collect())
    }

    /// All that is wrong with one of several requests, what is named first first.
    fn refusals_of_one(&mut self, asked: &Acquire, before: &[Request]) -> Vec<Reply> {
        let mut errors = Vec::new();
        errors.extend(self.check_id(&asked.id).err());
        let taken = before.iter().any(|earlier| earlier.asked.id == asked.id);
        if taken || self.position(&asked.id).is_some() {
            errors.push(Error::IdReused);
        }
        let ended = self.ended_reply(asked).filter(|_| errors.is_empty());
        if asked.wait_ms > 0 {
            errors.push(Error::EachCannotWait);
        }
        if self.check_lengths(asked).is_err() {
            errors.append(&mut self.as_right);
        }
        errors.extend(self.check_content(asked, before).err());
        ended.into_iter().chain(errors.into_iter().map(Reply::Error)).collect()
    }
}
