//! What stands in front of the data: a token that is older than one seen before is refused, so a
//! holder that lost its lock and does not know it yet can do no harm.

use std::sync::atomic::{AtomicU64, Ordering};

/// Remembers the largest token it has seen.
///
/// ```
/// let fence = keylatch::Fence::default();
/// assert!(fence.check(7).is_ok());
/// assert!(fence.check(7).is_ok(), "the same holder again");
/// assert!(fence.check(8).is_ok());
/// assert!(fence.check(7).is_err(), "somebody has held it since");
/// ```
#[derive(Debug, Default)]
pub struct Fence(AtomicU64);

/// A token that is older than another one seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is stale: {newest} has been here")]
pub struct Stale {
    /// The one that was checked.
    pub token: u64,
    /// The newest.
    pub newest: u64,
}

impl Fence {
    /// Begins behind a token, for instance one that was stored with the data.
    pub fn new(newest: u64) -> Fence {
        Fence(AtomicU64::new(newest))
    }

    /// Whether a holder with this token may still act.
    pub fn check(&self, token: u64) -> Result<(), Stale> {
        let newest = self.0.fetch_max(token, Ordering::SeqCst);
        if newest > token { Err(Stale { token, newest }) } else { Ok(()) }
    }
}
