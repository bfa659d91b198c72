//! When something ends: slots ordered by deadline, in buckets of 16 ms.
//!
//! A tree of single deadlines costs a walk through cold nodes for every lock that is released
//! early, and nearly all are. Buckets make that constant: the tree is small, and a slot knows its
//! place in its bucket. Within a bucket order is made only when it is due.

use std::collections::BTreeMap;

/// "No deadline".
pub(crate) const NEVER: u64 = u64::MAX;

/// Buckets of 16 ms: a 30 s lease spreads over some two thousand of them, few enough to stay in
/// the cache, and one holds few enough slots to sort.
const BUCKET_BITS: u32 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Deadlines {
    buckets: BTreeMap<u64, Vec<u32>>,
    /// No deadline is earlier than this.
    next: u64,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { buckets: BTreeMap::new(), next: NEVER }
    }
}

impl Deadlines {
    /// No deadline is earlier; it may be later.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Adds a slot; returns its place, which the caller keeps for [`Deadlines::remove`].
    pub(crate) fn insert(&mut self, deadline: u64, slot: u32) -> u32 {
        if deadline == NEVER {
            return 0;
        }
        self.next = self.next.min(deadline);
        let bucket = self.buckets.entry(deadline >> BUCKET_BITS).or_default();
        bucket.push(slot);
        bucket.len() as u32 - 1
    }

    /// Removes the slot at `place`; returns the slot that now stands there instead, if one does.
    pub(crate) fn remove(&mut self, deadline: u64, place: u32) -> Option<u32> {
        if deadline == NEVER {
            return None;
        }
        let key = deadline >> BUCKET_BITS;
        let bucket = self.buckets.get_mut(&key).expect("a deadline has a bucket");
        bucket.swap_remove(place as usize);
        let moved = bucket.get(place as usize).copied();
        if bucket.is_empty() {
            self.buckets.remove(&key);
            if self.buckets.is_empty() {
                self.next = NEVER;
            }
        }
        moved
    }

    /// The slots whose deadline has come, in no particular order; they stay until removed.
    pub(crate) fn due(&mut self, now: u64, deadline_of: impl Fn(u32) -> u64) -> Vec<u32> {
        let mut due = Vec::new();
        let mut next = NEVER;
        for (key, bucket) in &self.buckets {
            if *key > now >> BUCKET_BITS {
                next = next.min(key << BUCKET_BITS);
                break;
            }
            for slot in bucket {
                let deadline = deadline_of(*slot);
                if deadline <= now {
                    due.push(*slot);
                } else {
                    next = next.min(deadline);
                }
            }
        }
        self.next = next;
        due
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_found_and_the_rest_stays() {
        let mut deadlines = Deadlines::default();
        let at = [5, 17, 18, 40, NEVER];
        let places: Vec<u32> =
            (0..5).map(|slot| deadlines.insert(at[slot as usize], slot)).collect();
        assert_eq!(deadlines.next(), 5);
        let mut due = deadlines.due(17, |slot| at[slot as usize]);
        due.sort_unstable();
        assert_eq!(due, [0, 1]);
        assert_eq!(deadlines.next(), 18);
        assert_eq!(deadlines.remove(5, places[0]), None);
        assert_eq!(deadlines.remove(17, places[1]), Some(2), "18 took the place of 17");
        assert_eq!(deadlines.due(18, |slot| at[slot as usize]), [2]);
        assert_eq!(deadlines.next(), 32, "the bucket of 40 begins at 32");
        assert_eq!(deadlines.remove(18, places[1]), None);
        assert_eq!(deadlines.remove(NEVER, places[4]), None);
        assert_eq!(deadlines.remove(40, places[3]), None);
        assert!(deadlines.is_empty());
        assert_eq!(deadlines.next(), NEVER);
    }
}
