//! Going ahead to what is about to be needed. Of hundreds of thousands of locks most lie in memory
//! that is slow to reach. One lock after the other, each place is waited for; asked for together, a
//! dozen of them come at a time. Nothing here changes anything or is needed for an answer.

use std::hint::black_box;

use super::Board;
use crate::{Acquire, RequestId};

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
    pub(crate) fn go_ahead_to_ends(&self, ends: impl Iterator<Item = u32> + Clone) {
        if !self.is_large() {
            return;
        }
        // Each walk needs what the one before it has fetched.
        let mut seen = 0usize;
        for at in ends.clone() {
            let request = &self.requests[at];
            seen ^= self.parts[request.part].resource as usize;
            seen ^=
                request.extra().map_or(0, |extra| extra.value.as_deref().map_or(0, <[u8]>::len));
        }
        for at in ends {
            let request = &self.requests[at];
            seen ^= self.go_ahead_to_id(&request.id);
            let resource = self.parts[request.part].resource;
            seen ^= self.resources.go_ahead(&self.resources.get(resource).key);
        }
        black_box(seen);
    }

    /// These requests are about to be decided.
    pub(crate) fn go_ahead_to_asks<'a>(&self, asks: impl Iterator<Item = &'a Acquire>) {
        let mut seen = 0;
        for ask in asks {
            seen ^= self.go_ahead_to_id(&ask.id);
            seen ^= self.resources.go_ahead(&ask.part.resource);
        }
        black_box(seen);
    }

    fn go_ahead_to_id(&self, id: &RequestId) -> usize {
        // No entry is it, so only the index itself is looked at.
        self.ids.find(self.hash_id(id), |_| false).is_some().into()
    }
}
