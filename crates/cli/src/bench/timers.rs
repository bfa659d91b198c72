//! What a connection does later: try again, or release.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Connections by the time at which they go on. Each has at most one entry.
#[derive(Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Instant, usize)>>);

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, connection: usize) {
        self.0.push(Reverse((at, connection)));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// One that is due.
    pub(crate) fn take(&mut self, now: Instant) -> Option<usize> {
        if self.next()? > now {
            return None;
        }
        self.0.pop().map(|Reverse((_, connection))| connection)
    }
}
