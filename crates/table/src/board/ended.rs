//! A memory of what has ended, bounded in time and in number, so that a repeated command gets the
//! same answer; and what it keeps of a lock request.
//!
//! Entries leave in the order in which they came, so they live in a ring, and an index points at
//! them by number. For lock requests that is the id index that every command looks at anyway.

use std::collections::VecDeque;

use crate::{Cause, RequestId, Text};

/// Numbers have 31 bits; the id index uses the last one to tell them from slots.
pub(crate) const NUMBERS: u32 = 1 << 31;

#[derive(Clone, Debug)]
pub(crate) struct Memory<T> {
    /// When each ended, and what it was; nothing where it was taken out. The front never is.
    ring: VecDeque<(u64, Option<T>)>,
    /// The number of the ring's first entry. Numbers wrap; there are never that many at once.
    first: u32,
    /// How many were taken out and are still in the ring.
    taken: usize,
}

impl<T> Default for Memory<T> {
    fn default() -> Memory<T> {
        Memory { ring: VecDeque::new(), first: 0, taken: 0 }
    }
}

impl<T> Memory<T> {
    pub(crate) fn len(&self) -> usize {
        self.ring.len() - self.taken
    }

    /// Adds an entry that ended at `at`; returns its number.
    pub(crate) fn push(&mut self, at: u64, entry: T) -> u32 {
        self.ring.push_back((at, Some(entry)));
        self.first.wrapping_add(self.ring.len() as u32 - 1) % NUMBERS
    }

    /// The oldest and its number, if it is older than `keep_ms` or one of too many.
    pub(crate) fn stale(&self, now: u64, keep_ms: u64, most: u64) -> Option<(u32, &T)> {
        let (at, oldest) = self.ring.front()?;
        if at.saturating_add(keep_ms) > now && self.len() as u64 <= most {
            return None;
        }
        Some((self.first, oldest.as_ref().expect("the front is never empty")))
    }

    /// Drops the oldest, and what was taken out behind it.
    pub(crate) fn pop(&mut self) {
        self.ring.pop_front();
        self.first = self.first.wrapping_add(1) % NUMBERS;
        if self.taken > 0 {
            self.drop_taken();
        }
    }

    /// Takes an entry out, wherever it is.
    pub(crate) fn take(&mut self, number: u32) {
        let place = self.place(number);
        self.ring[place].1 = None;
        self.taken += 1;
        self.drop_taken();
    }

    fn drop_taken(&mut self) {
        while self.ring.front().is_some_and(|(_, entry)| entry.is_none()) {
            self.ring.pop_front();
            self.first = self.first.wrapping_add(1) % NUMBERS;
            self.taken -= 1;
        }
    }

    pub(crate) fn get(&self, number: u32) -> &T {
        self.ring[self.place(number)].1.as_ref().expect("an entry that was not taken out")
    }

    /// When each ended, and what it was; oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.ring.iter().filter_map(|(at, entry)| Some((*at, entry.as_ref()?)))
    }

    fn place(&self, number: u32) -> usize {
        (number.wrapping_sub(self.first) % NUMBERS) as usize
    }
}

/// An id that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedId {
    pub(crate) id: RequestId,
    pub(crate) end: End,
}

/// What an ended id was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was granted, and ended so; superseded by that owner.
    Grant(Cause, Option<Box<Text>>),
    /// It was waiting and was told to stop by `release`.
    Released,
    /// It was waiting and was told to stop by `cancel`.
    Cancelled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_their_entries_also_across_the_wrap() {
        let mut memory = Memory { ring: VecDeque::new(), first: NUMBERS - 2, taken: 0 };
        let numbers: Vec<u32> = (0..4).map(|at| memory.push(at, at * 10)).collect();
        assert_eq!(numbers, [NUMBERS - 2, NUMBERS - 1, 0, 1]);
        for (at, number) in numbers.iter().enumerate() {
            assert_eq!(*memory.get(*number), at as u64 * 10);
        }
        assert_eq!(memory.stale(9, 10, 4), None);
        assert_eq!(memory.stale(10, 10, 4), Some((NUMBERS - 2, &0)));
        assert_eq!(memory.stale(9, 10, 3), Some((NUMBERS - 2, &0)));
        memory.take(NUMBERS - 1);
        assert_eq!(memory.len(), 3, "one taken from the middle");
        assert_eq!(memory.stale(0, 10, 3), None);
        memory.pop();
        assert_eq!(memory.iter().collect::<Vec<_>>(), [(2, &20), (3, &30)]);
        assert_eq!(memory.stale(12, 10, 4), Some((0, &20)));
        memory.pop();
        assert_eq!((memory.len(), memory.get(1)), (1, &30));
    }
}
