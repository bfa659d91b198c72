//! Time that counts while the machine sleeps: a lease does not stop meanwhile.

use std::time::Duration;

#[cfg(not(test))]
use rustix::time::{ClockId, clock_gettime};

/// A moment on the clock that counts suspend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    #[cfg(not(test))]
    pub(crate) fn now() -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        Moment(Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32))
    }

    /// The clock of the simulation, which may stand still.
    #[cfg(test)]
    pub(crate) fn now() -> Moment {
        static FIRST: std::sync::LazyLock<tokio::time::Instant> =
            std::sync::LazyLock::new(tokio::time::Instant::now);
        Moment(Duration::from_hours(1) + tokio::time::Instant::now().duration_since(*FIRST))
    }

    pub(crate) fn after(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration))
    }

    /// A lease that ends then, as its holder sees it: a hundredth earlier, because clocks may differ a little, and a
    /// millisecond, because whoever keeps it may count in whole ones.
    pub(crate) fn with_care(self) -> Moment {
        let now = Moment::now();
        let left = self.0.saturating_sub(now.0);
        now.after(left.saturating_sub(left / 100 + Duration::from_millis(1)))
    }

    /// When the first of so many equal parts of the time until then is over.
    pub(crate) fn in_parts(self, parts: u32) -> Moment {
        let now = Moment::now();
        now.after(self.0.saturating_sub(now.0) / parts)
    }

    /// How long until then; zero if it has passed.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_sub(Moment::now().0)
    }

    /// How long after that it is; zero if it is not.
    #[cfg(feature = "server")]
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    #[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn elapsed(self) -> Duration {
        Moment::now().0.saturating_sub(self.0)
    }

    pub(crate) fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}
