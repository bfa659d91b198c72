//! Going ahead to what is about to be needed. Of hundreds of thousands of locks most lie in memory
//! that is slow to reach. One lock after the other, each place is waited for; asked for together, a
//! dozen of them come at a time. Nothing here changes anything or is needed for an answer.

use std::hint::black_box;

use super::Board;
use crate::Acquire;

/// With fewer requests everything is near anyway.
const FEW: usize = 8 * 1_024;
/// So many at a time: what was fetched must still be near when its turn comes.
pub(crate) const TOGETHER: usize = 256;

impl Board {
    /// Whether going ahead is worth it.
    pub(crate) fn is_large(&self) -> bool {
        self.requests.len() >= FEW
    }

    /// These requests, at most [`TOGETHER`], are about to end.
    pub(crate) fn go_ahead_to_ends(&self, ends: &(impl Iterator<Item = u32> + Clone)) {
        if !self.is_large() {
            return;
        }
        // Each walk needs what the one before it has fetched.
        let mut seen = 0;
        for at in ends.clone() {
            let request = &self.requests[at];
            seen ^= self.resources.get(request.first.resource).holders;
        }
        let ids = ends.clone().map(|at| self.hash_id(&self.requests[at].id));
        let keys = ends.clone().map(|at| {
            let key = &self.resources.get(self.requests[at].first.resource).key;
            self.resources.hash(key)
        });
        // As many ids may be forgotten, to make room for these.
        let forgotten = self.ended.iter().take(ends.clone().count());
        let forgotten = forgotten.map(|(_, ended)| self.hash_id(&ended.id));
        seen ^= self.ids.fetch(ids.chain(forgotten)) ^ self.resources.index().fetch(keys);
        black_box(seen);
    }

    /// These requests are about to be decided.
    pub(crate) fn go_ahead_to_asks<'a>(&self, asks: impl Iterator<Item = &'a Acquire> + Clone) {
        let ids = asks.clone().map(|ask| self.hash_id(&ask.id));
        let keys = asks.map(|ask| self.resources.hash(&ask.part.resource));
        black_box(self.ids.fetch(ids) ^ self.resources.index().fetch(keys));
    }
}
