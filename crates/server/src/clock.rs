//! Table time: milliseconds on a monotonic clock, so that a jump of the wall clock changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Counts on from where the table's time was. Clones are the same clock.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    start: Instant,
    /// Table time at `start`; below 0 if that was before table time began.
    base: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn new(base: u64) -> Clock {
        Clock { start: Instant::now(), base: Arc::new(AtomicI64::new(base.cast_signed())) }
    }

    pub(crate) fn now(&self) -> u64 {
        let base = self.base.load(Ordering::Relaxed);
        base.saturating_add(self.elapsed()).max(0).cast_unsigned()
    }

    fn elapsed(&self) -> i64 {
        self.start.elapsed().as_millis() as i64
    }

    /// It is `at` now: in a cluster the log says what time it is, and a new leader counts on from there.
    pub(crate) fn set(&self, at: u64) {
        let base = at.cast_signed() - self.elapsed();
        self.base.store(base, Ordering::Relaxed);
    }

    /// How long until table time is `at`.
    pub(crate) fn until(&self, at: u64) -> Duration {
        let base = self.base.load(Ordering::Relaxed);
        let offset =
            Duration::from_millis(at.cast_signed().saturating_sub(base).max(0).cast_unsigned());
        offset.saturating_sub(self.start.elapsed())
    }

    /// The wall clock's time at a table time, in Unix milliseconds: for showing only.
    pub(crate) fn wall_ms(&self, at: u64) -> u64 {
        (wall().as_millis() as u64).saturating_sub(self.now().saturating_sub(at))
    }
}

/// The wall clock.
pub(crate) fn wall() -> Duration {
    #[cfg(test)]
    if let Some(at) = crate::log::raft::sim::wall() {
        return at;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar. Years are
/// counted from 1 March, so that the day that some years lack is their last one.
pub(crate) fn date(day: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // Days from 0000-03-01, where a cycle of 400 years begins, to 1970-01-01.
    let day = day + 719_468;
    let of_cycle = day % DAYS_OF_400_YEARS;
    // Takes the leap days before it out: one in 4 years, none in 100, one in 400.
    let year_of_cycle = (of_cycle - of_cycle / 1_460 + of_cycle / 36_524
        - of_cycle / (DAYS_OF_400_YEARS - 1))
        / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    // From March, five months have 153 days, again and again.
    let from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let (month, next_year) =
        if from_march < 10 { (from_march + 3, 0) } else { (from_march - 9, 1) };
    (day / DAYS_OF_400_YEARS * 400 + year_of_cycle + next_year, month, day_of_month)
}
