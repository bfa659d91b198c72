//! When something ends: slots ordered by deadline, in buckets of 16 ms.
//!
//! A tree of single deadlines costs a walk through cold nodes for every lock that is released
//! early, and nearly all are. Buckets make that constant: the tree is small, and a slot knows its
//! place in its bucket. Within a bucket order is made only when it is due.
//!
//! A bucket says itself when each of its slots is due, so that looking for them does not touch the
//! others; and those that are due leave holes, so that the others keep their places: where hundreds
//! of thousands a second expire, going to each of them just once is most of the time.

use std::collections::BTreeMap;

use super::slab::NONE;

/// "No deadline".
pub(crate) const NEVER: u64 = u64::MAX;

/// The place of a slot that was due and is not among the deadlines any more.
pub(crate) const TAKEN: u32 = u32::MAX;

/// Buckets of 16 ms: a 30 s lease spreads over some two thousand of them, few enough to stay in
/// the cache, and one holds few enough slots to sort.
const BUCKET_BITS: u32 = 4;

/// Buckets that are over keep their room for the next ones, if it is no more than this many entries,
/// of as many buckets as this: growing anew would cost more than filling.
const KEPT_ENTRIES: usize = 16 * 1_024;
const KEPT_BUCKETS: usize = 128;

#[derive(Clone, Debug, Default)]
pub(crate) struct Deadlines {
    /// Where the bucket of a time is, by its first millisecond without [`BUCKET_BITS`].
    order: BTreeMap<u64, u32>,
    buckets: Vec<Bucket>,
    /// Buckets that are in nobody's use.
    free: Vec<u32>,
    /// The bucket that was used last, which is mostly the next one too: leases are alike.
    last: Option<(u64, u32)>,
    /// No deadline is earlier than this; of no interest without buckets.
    next: u64,
}

/// Never without a slot while it is in `order`.
#[derive(Clone, Debug, Default)]
struct Bucket {
    entries: Vec<Entry>,
    /// How many entries are none: their slots were due.
    holes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// [`NONE`] for a hole.
    slot: u32,
    /// The bits of the deadline that the bucket's key does not have.
    ms: u32,
}

impl Deadlines {
    /// No deadline is earlier; it may be later.
    pub(crate) fn next(&self) -> u64 {
        if self.order.is_empty() { NEVER } else { self.next }
    }

    /// Adds a slot; returns its place, which the caller keeps for [`Deadlines::remove`].
    pub(crate) fn insert(&mut self, deadline: u64, slot: u32) -> u32 {
        if deadline == NEVER {
            return 0;
        }
        self.next = self.next().min(deadline);
        let key = deadline >> BUCKET_BITS;
        let at = match self.last {
            Some((last, at)) if last == key => at,
            _ => self.enter(key),
        };
        let entries = &mut self.buckets[at as usize].entries;
        entries.push(Entry { slot, ms: deadline as u32 % (1 << BUCKET_BITS) });
        entries.len() as u32 - 1
    }

    /// The bucket of `key`, new or not.
    fn enter(&mut self, key: u64) -> u32 {
        let at = *self.order.entry(key).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.buckets.push(Bucket::default());
                self.buckets.len() as u32 - 1
            })
        });
        self.last = Some((key, at));
        at
    }

    /// Removes the slot at `place`; returns the slot that now stands there instead, if one does.
    pub(crate) fn remove(&mut self, deadline: u64, place: u32) -> Option<u32> {
        if deadline == NEVER || place == TAKEN {
            return None;
        }
        let key = deadline >> BUCKET_BITS;
        let at = match self.last {
            Some((last, at)) if last == key => at,
            _ => self.order[&key],
        };
        let Bucket { entries, holes } = &mut self.buckets[at as usize];
        entries.swap_remove(place as usize);
        let moved = entries.get(place as usize).map(|entry| entry.slot);
        if entries.len() == *holes {
            self.order.remove(&key);
            self.put_away(at);
        }
        moved.filter(|slot| *slot != NONE)
    }

    /// A bucket that is not in `order` any more.
    fn put_away(&mut self, at: u32) {
        let bucket = &mut self.buckets[at as usize];
        bucket.entries.clear();
        bucket.holes = 0;
        if bucket.entries.capacity() > KEPT_ENTRIES || self.free.len() >= KEPT_BUCKETS {
            bucket.entries = Vec::new();
        }
        self.free.push(at);
        self.last = None;
    }

    /// Takes out the slots whose deadline has come, with that, in no particular order. Their place is
    /// [`TAKEN`] from now on.
    pub(crate) fn take_due(&mut self, now: u64) -> Vec<(u64, u32)> {
        let mut due = Vec::new();
        let mut next = NEVER;
        let mut empty = None;
        for (key, at) in &self.order {
            let start = key << BUCKET_BITS;
            if start > now {
                next = next.min(start);
                break;
            }
            let bucket = &mut self.buckets[*at as usize];
            for entry in bucket.entries.iter_mut().filter(|entry| entry.slot != NONE) {
                let deadline = start + u64::from(entry.ms);
                if deadline <= now {
                    due.push((deadline, std::mem::replace(&mut entry.slot, NONE)));
                    bucket.holes += 1;
                } else {
                    next = next.min(deadline);
                }
            }
            if bucket.holes == bucket.entries.len() {
                empty = Some(*key);
            }
        }
        // All buckets before an empty one are empty too: their time is over.
        if let Some(last) = empty {
            let left = self.order.split_off(&(last + 1));
            for at in std::mem::replace(&mut self.order, left).into_values() {
                self.put_away(at);
            }
        }
        self.next = next;
        due
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.order.is_empty() && self.buckets.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_taken_and_the_rest_stays() {
        let mut deadlines = Deadlines::default();
        let at = [5, 17, 18, 40, NEVER, 17, 31];
        let places: Vec<u32> =
            (0..7).map(|slot| deadlines.insert(at[slot as usize], slot)).collect();
        assert_eq!(deadlines.next(), 5);
        assert_eq!(deadlines.take_due(17), [(5, 0), (17, 1), (17, 5)]);
        assert_eq!(deadlines.next(), 18);
        assert_eq!(deadlines.remove(17, TAKEN), None, "it is gone already");
        assert_eq!(deadlines.remove(18, places[2]), Some(6), "31 took the place of 18");
        assert_eq!(deadlines.take_due(18), [], "18 may be too early, but not too late");
        assert_eq!(deadlines.next(), 31);
        assert_eq!(deadlines.remove(31, places[2]), None, "a hole took its place");
        assert_eq!(deadlines.take_due(31), []);
        assert_eq!(deadlines.next(), 32, "the bucket of 40 begins at 32");
        assert_eq!(deadlines.remove(NEVER, places[4]), None);
        assert_eq!(deadlines.remove(40, places[3]), None);
        assert!(deadlines.is_empty());
        assert_eq!(deadlines.next(), NEVER);
    }

    #[test]
    fn a_bucket_is_used_again_and_nothing_of_its_last_time_is_left_in_it() {
        let mut deadlines = Deadlines::default();
        let place = deadlines.insert(5, 1);
        assert_eq!(deadlines.remove(5, place), None, "nobody else was there");
        assert!(deadlines.is_empty());
        deadlines.insert(100, 2);
        deadlines.insert(5, 3);
        assert_eq!(deadlines.take_due(8), [(5, 3)]);
        let place = deadlines.insert(9, 4);
        assert_eq!((place, deadlines.buckets.len()), (0, 2), "in the room of the one that is over");
        assert_eq!(deadlines.take_due(200), [(9, 4), (100, 2)]);
        assert!(deadlines.is_empty());
    }

    #[test]
    fn buckets_whose_time_is_over_go_together() {
        let mut deadlines = Deadlines::default();
        for deadline in [100, 3, 60, 40, 70] {
            deadlines.insert(deadline, deadline as u32);
        }
        assert_eq!(deadlines.take_due(64), [(3, 3), (40, 40), (60, 60)]);
        assert_eq!((deadlines.order.len(), deadlines.next()), (2, 70));
        deadlines.insert(65, 65);
        assert_eq!(deadlines.take_due(1_000), [(70, 70), (65, 65), (100, 100)]);
        assert!(deadlines.is_empty());
        assert_eq!(deadlines.next(), NEVER);
    }
}
