//! Granting: one pass over the queue in arrival order, then breaking cycles that came up.

use keylatch_table::{Event, Grant};

use super::{
    Bug, Model,
    request::{Hold, Request, Stage, end_after},
};

impl Model {
    /// Grants every free waiter; then refuses the youngest on a cycle and looks again.
    pub(crate) fn settle(&mut self, events: &mut Vec<Event>) {
        self.grant_free_waiters(events);
        if self.has_bug(Bug::LateCyclesStay) {
            return;
        }
        while self.refuse_youngest_on_cycle(events) {
            self.grant_free_waiters(events);
        }
    }

    fn grant_free_waiters(&mut self, events: &mut Vec<Event>) {
        let seqs = self.waiters().map(|waiter| waiter.seq).collect::<Vec<_>>();
        for seq in seqs {
            let at = self.at(seq);
            if !self.blockers(&self.requests[at]).is_empty() {
                continue;
            }
            let request = self.requests[at].clone();
            self.requests[at] = self.held(request);
            let mut grant = self.requests[at].grant(self.now);
            grant.waited_ms = self.now - self.requests[at].asked_at;
            events.push(Event::Granted { id: self.requests[at].asked.id.clone(), grant });
            if self.has_bug(Bug::WakesOneOnly) {
                return;
            }
        }
    }

    /// `request` as a holder from now on, under the next token.
    fn held(&mut self, mut request: Request) -> Request {
        let grace = request.wait().and_then(|wait| wait.grace);
        let grace = grace.filter(|_| !self.has_bug(Bug::DetachedGetsWholeLease));
        let lease = match grace {
            Some(grace) => Some(self.now.saturating_add(grace.length_ms)),
            None => end_after(self.now, request.asked.lease_ms),
        };
        request.stage = Stage::Held(Hold {
            token: self.next_token(),
            since: self.now,
            lease,
            unconfirmed: grace.is_some(),
            promoted: false,
        });
        request
    }

    /// Grants a new request at once.
    pub(crate) fn grant_now(&mut self, mut request: Request) -> Grant {
        self.revive(&request);
        request.seq = self.next_seq();
        let request = self.held(request);
        let grant = request.grant(self.now);
        self.requests.push(request);
        grant
    }

    /// Puts a new request at the tail of the queue.
    pub(crate) fn queue(&mut self, mut request: Request) {
        self.revive(&request);
        request.seq = self.next_seq();
        self.requests.push(request);
    }

    /// An id that lives again is not remembered as one that ended.
    fn revive(&mut self, request: &Request) {
        self.ended.retain(|ended| ended.id != request.asked.id);
    }
}
