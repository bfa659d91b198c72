//! What happened while a world was explored, counted, so that a promise cannot be kept merely
//! because nothing ever put it to the test.

use std::sync::atomic::{AtomicU64, Ordering};

/// Something worth having seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Mark {
    /// A new request was granted at once.
    Granted,
    /// A waiter was granted.
    Woken,
    /// One step granted several waiters.
    WokenTogether,
    /// A request was refused or queued because of a waiter, not a holder.
    BehindWaiter,
    /// A request was granted past an earlier waiter that it conflicts with.
    Passed,
    /// A lock was promoted.
    Promoted,
    /// A promotion dropped an O.
    Superseded,
    /// A promotion was refused.
    PromotionRefused,
    /// A lease ran out.
    Expired,
    /// A wait ran out.
    TimedOut,
    /// A grace ran out.
    GraceOver,
    /// A detached waiter was granted.
    WokenDetached,
    /// The grant of a detached waiter was confirmed.
    Confirmed,
    /// A request for two resources was woken.
    PairWoken,
    /// Several requests were granted at once.
    GrantedEach,
    /// Several requests were refused at once.
    RefusedEach,
    /// An ended id was remembered.
    Remembered,
    /// A grant was revoked.
    Revoked,
    /// A request that would close a cycle was refused.
    CycleRefused,
    /// A waiter was refused because a cycle came up around it.
    CycleBroken,
}

/// How many marks there are.
pub const MARKS: usize = Mark::CycleBroken as usize + 1;

/// The counts.
#[derive(Debug, Default)]
pub struct Coverage([AtomicU64; MARKS]);

impl Coverage {
    /// Counts one.
    pub fn mark(&self, mark: Mark) {
        self.0[mark as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one if `seen`.
    pub fn mark_if(&self, seen: bool, mark: Mark) {
        if seen {
            self.mark(mark);
        }
    }

    /// How many there were.
    pub fn count(&self, mark: Mark) -> u64 {
        self.0[mark as usize].load(Ordering::Relaxed)
    }
}
