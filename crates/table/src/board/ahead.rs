//! Going ahead to what is about to be needed. Of hundreds of thousands of locks most lie in memory
//! that is slow to reach. One lock after the other, each place is waited for; asked for together, a
//! dozen of them come at a time. Nothing here changes anything or is needed for an answer.

use std::hint::black_box;

use hashbrown::HashTable;

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
    pub(crate) fn go_ahead_to_ends(&self, ends: impl Iterator<Item = u32> + Clone) {
        if !self.is_large() {
            return;
        }
        // Each walk needs what the one before it has fetched.
        let mut seen = 0usize;
        for at in ends.clone() {
            let request = &self.requests[at];
            seen ^= self.resources.get(request.first.resource).holders as usize;
        }
        let mut ending = 0;
        for at in ends {
            ending += 1;
            let request = &self.requests[at];
            seen ^= entries(&self.ids, self.hash_id(&request.id));
            let key = &self.resources.get(request.first.resource).key;
            seen ^= entries(self.resources.index(), self.resources.hash(key));
        }
        // As many ids may be forgotten, to make room for these.
        for (_, ended) in self.ended.iter().take(ending) {
            seen ^= entries(&self.ids, self.hash_id(&ended.id));
        }
        black_box(seen);
    }

    /// These requests are about to be decided.
    pub(crate) fn go_ahead_to_asks<'a>(&self, asks: impl Iterator<Item = &'a Acquire>) {
        let mut seen = 0;
        for ask in asks {
            seen ^= room(&self.ids, self.hash_id(&ask.id));
            let key = &ask.part.resource;
            seen ^= room(self.resources.index(), self.resources.hash(key));
        }
        black_box(seen);
    }
}

/// Fetches what the index will search for `hash`: the place it searches in and the entries that it
/// finds there, which lie elsewhere.
fn entries(index: &HashTable<u32>, hash: u64) -> usize {
    let mut seen = 0;
    let found = index.find(hash, |entry| {
        seen ^= *entry as usize;
        false
    });
    seen ^ usize::from(found.is_some())
}

/// The same, and where a new entry would go: to the first vacant place from where the search begins.
fn room(index: &HashTable<u32>, hash: u64) -> usize {
    let places = index.num_buckets();
    let first = hash as usize & (places - 1);
    // A vacant place cannot be looked at, but comes with its neighbours.
    let near = (first..places).take(4).find_map(|place| index.get_bucket(place));
    entries(index, hash) ^ near.map_or(0, |entry| *entry as usize)
}
