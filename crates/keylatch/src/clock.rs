//! Time that counts while the machine sleeps: a lease does not stop meanwhile.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on the clock that counts suspend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        Moment(Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32))
    }

    pub(crate) fn after(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration))
    }

    /// How long until then; zero if it has passed.
    pub(crate) fn left(self) -> Duration {
        self.0.saturating_sub(Moment::now().0)
    }

    pub(crate) fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}
