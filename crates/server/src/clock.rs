//! Table time: milliseconds on a monotonic clock, so that a jump of the wall clock changes nothing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Counts on from where the table's time was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// Table time at `start`.
    base: u64,
}

impl Clock {
    pub(crate) fn new(base: u64) -> Clock {
        Clock { start: Instant::now(), base }
    }

    pub(crate) fn now(&self) -> u64 {
        self.base + self.start.elapsed().as_millis() as u64
    }

    /// How long until table time is `at`.
    pub(crate) fn until(&self, at: u64) -> Duration {
        let offset = Duration::from_millis(at.saturating_sub(self.base));
        offset.saturating_sub(self.start.elapsed())
    }

    /// The wall clock's time at a table time, in Unix milliseconds: for showing only.
    pub(crate) fn wall_ms(&self, at: u64) -> u64 {
        (wall().as_millis() as u64).saturating_sub(self.now().saturating_sub(at))
    }
}

/// The wall clock.
pub(crate) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
