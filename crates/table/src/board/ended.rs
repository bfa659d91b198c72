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
    ring: VecDeque<(u64, T)>,
    /// The number of the ring's first entry. Numbers wrap; there are never that many at once.
    first: u32,
}

impl<T> Default for Memory<T> {
    fn default() -> Memory<T> {
        Memory { ring: VecDeque::new(), first: 0 }
    }
}

impl<T> Memory<T> {
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Adds an entry that ended at `at`; returns its number.
    pub(crate) fn push(&mut self, at: u64, entry: T) -> u32 {
        self.ring.push_back((at, entry));
        self.first.wrapping_add(self.ring.len() as u32 - 1) % NUMBERS
    }

    /// The oldest and its number, if it is older than `keep_ms` or one of too many.
    pub(crate) fn stale(&self, now: u64, keep_ms: u64, most: u64) -> Option<(u32, &T)> {
        let (at, oldest) = self.ring.front()?;
        let stale = at.saturating_add(keep_ms) <= now || self.ring.len() as u64 > most;
        stale.then_some((self.first, oldest))
    }

    /// Drops the oldest.
    pub(crate) fn pop(&mut self) {
        self.ring.pop_front();
        self.first = self.first.wrapping_add(1) % NUMBERS;
    }

    pub(crate) fn get(&self, number: u32) -> &T {
        &self.ring[(number.wrapping_sub(self.first) % NUMBERS) as usize].1
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        &mut self.ring[(number.wrapping_sub(self.first) % NUMBERS) as usize].1
    }

    /// When each ended, and what it was; oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u64, T)> {
        self.ring.iter()
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
    /// It waited, was told to stop, and has asked again since: nothing is left to remember.
    Reused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_find_their_entries_also_across_the_wrap() {
        let mut memory = Memory { ring: VecDeque::new(), first: NUMBERS - 2 };
        let numbers: Vec<u32> = (0..4).map(|at| memory.push(at, at * 10)).collect();
        assert_eq!(numbers, [NUMBERS - 2, NUMBERS - 1, 0, 1]);
        for (at, number) in numbers.iter().enumerate() {
            assert_eq!(*memory.get(*number), at as u64 * 10);
        }
        assert_eq!(memory.stale(9, 10, 4), None);
        assert_eq!(memory.stale(10, 10, 4), Some((NUMBERS - 2, &0)));
        assert_eq!(memory.stale(9, 10, 3), Some((NUMBERS - 2, &0)));
        memory.pop();
        assert_eq!(memory.stale(11, 10, 4), Some((NUMBERS - 1, &10)));
        memory.pop();
        *memory.get_mut(1) += 1;
        assert_eq!(memory.iter().collect::<Vec<_>>(), [&(2, 20), &(3, 31)]);
        assert_eq!(memory.len(), 2);
    }
}
