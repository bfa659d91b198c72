//! What is held, for a thread.

use std::fmt;
use std::time::Duration;

use super::background::wait;
use crate::error::PromoteError;
use crate::guard::{Lost, Released};
use crate::{Guard as AsyncGuard, RequestId};

/// A lock that is held. It is renewed in the background until it is released or dropped; whoever does
/// something long under it asks [`Guard::is_lost`] now and then, or has a thread for [`Guard::lost`].
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard(AsyncGuard);

impl Guard {
    pub(super) fn new(guard: AsyncGuard) -> Guard {
        Guard(guard)
    }

    /// The fencing token: larger than that of every earlier grant. Give it to whatever you write to.
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// The request id. Whoever knows it can release the lock.
    pub fn id(&self) -> &RequestId {
        self.0.id()
    }

    /// Whether the lock has been lost, and why.
    pub fn is_lost(&self) -> Option<Lost> {
        self.0.is_lost()
    }

    /// Waits until the lock is lost, which may be for ever.
    pub fn lost(&self) -> Lost {
        wait(self.0.lost())
    }

    /// Waits until the lock is lost, but not longer than that.
    pub fn lost_within(&self, time: Duration) -> Option<Lost> {
        wait(async { tokio::time::timeout(time, self.0.lost()).await.ok() })
    }

    /// Turns an optimistic lock, or a shared one that nobody shares, into a cumulative one, under a
    /// new token.
    pub fn promote(&self) -> Result<u64, PromoteError> {
        wait(self.0.promote())
    }

    /// How long the lease has left as its holder sees it; see [`crate::Guard::ends`].
    pub fn ends(&self) -> Option<Duration> {
        self.0.ends()
    }

    /// Keeps the lock beyond the guard; see [`crate::Guard::keep`].
    pub fn keep(self) -> RequestId {
        self.0.keep()
    }

    /// Gives the lock up and says what came of it.
    pub fn release(self) -> Released {
        wait(self.0.release())
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
