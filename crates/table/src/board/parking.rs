//! Who waits for whom: each waiter is parked on one of its blockers, or loose within a step.

use super::Board;
use super::slab::NONE;

impl Board {
    pub(crate) fn park(&mut self, at: u32, on: u32) {
        let seq = self.requests[at].seq;
        self.parked.entry(on).or_default().insert((seq, at));
        self.requests[on].has_parked = true;
        self.behind_waiters += u32::from(self.requests[on].waiting());
        self.requests[at].wait_mut().parked_on = on;
    }

    /// Makes a waiter loose: it will be looked at before the step ends.
    pub(crate) fn loosen(&mut self, at: u32) {
        self.unpark(at);
        self.loose.insert((self.requests[at].seq, at));
    }

    /// Makes everyone loose who is parked on `at`.
    pub(crate) fn loosen_parked(&mut self, at: u32) {
        if !std::mem::take(&mut self.requests[at].has_parked) {
            return;
        }
        let parked = self.parked.remove(&at).expect("flagged as parked on");
        if self.requests[at].waiting() {
            self.behind_waiters -= parked.len() as u32;
        }
        for place in parked.iter() {
            self.requests[place.1].wait_mut().parked_on = NONE;
            self.loose.insert(*place);
        }
    }

    pub(super) fn unpark(&mut self, at: u32) {
        let seq = self.requests[at].seq;
        let on = std::mem::replace(&mut self.requests[at].wait_mut().parked_on, NONE);
        if on == NONE {
            self.loose.remove((seq, at));
            return;
        }
        self.behind_waiters -= u32::from(self.requests[on].waiting());
        let parked = self.parked.get_mut(&on).expect("parked on it");
        parked.remove((seq, at));
        if parked.is_empty() {
            self.parked.remove(&on);
            self.requests[on].has_parked = false;
        }
    }
}
