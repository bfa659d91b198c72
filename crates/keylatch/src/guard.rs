//! What is held.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use keylatch_table::{Cause, Loss as TableLoss, RequestId, Text};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Moment;
use crate::error::PromoteError;
use crate::locks::Inner;
use crate::strategy::Granted;

/// Why something is not held any more, though its holder did not release it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Its lease or its longest hold ran out.
    Expired,
    /// An overlapping optimistic lock was promoted, by this owner if that is known.
    Superseded(Option<Text>),
    /// An administrator ended it, for this reason if that is known.
    Revoked(Option<Text>),
    /// It could not be renewed in time, because nobody was reached.
    Unreachable,
    /// Somebody released it by its id.
    Released,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, detail) = match self {
            Lost::Expired => ("the lock was lost: its lease ran out", None),
            Lost::Superseded(by) => ("the lock was lost: another one was promoted", by.as_ref()),
            Lost::Revoked(reason) => ("the lock was lost: it was revoked", reason.as_ref()),
            Lost::Unreachable => ("the lock was lost: it could not be renewed in time", None),
            Lost::Released => ("the lock was lost: somebody released it", None),
        };
        f.write_str(text)?;
        detail.map_or(Ok(()), |detail| write!(f, " ({detail})"))
    }
}

impl Lost {
    pub(crate) fn from_cause(cause: Cause, detail: Option<Text>) -> Lost {
        match cause {
            Cause::Expired => Lost::Expired,
            Cause::Superseded => Lost::Superseded(detail),
            Cause::Revoked => Lost::Revoked(detail),
            Cause::Released => Lost::Released,
        }
    }

    pub(crate) fn from_loss(loss: TableLoss) -> Lost {
        Lost::from_cause(loss.cause, loss.by)
    }
}

/// What came of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was held, or waited for, and is not any more.
    Released,
    /// It was not held.
    NotHeld,
    /// No answer came in time. What was held lapses with its lease.
    Unknown,
}

/// What the keeper knows of a held lock.
pub(crate) struct Hold {
    pub(crate) id: RequestId,
    token: AtomicU64,
    /// The lease asked for; zero is none.
    pub(crate) lease: Duration,
    pub(crate) renews: bool,
    /// When the lease ends as its holder sees it, which is a little earlier than it does.
    pub(crate) ends: Mutex<Option<Moment>>,
    /// When it ends however often it is renewed, as its holder sees it.
    longest: Option<Moment>,
    /// Since when a renewal has had no answer.
    pub(crate) unanswered: Mutex<Option<Moment>>,
    /// The last answer to a renewal was a refusal: somebody was reached.
    pub(crate) refused: AtomicBool,
    lost: Mutex<Option<Lost>>,
    /// Told when it is. Most locks are never lost, and few of them are watched: this costs next to nothing then.
    losing: Notify,
}

impl Hold {
    pub(crate) fn new(id: RequestId, granted: &Granted, lease: Duration, renews: bool) -> Hold {
        let hold = Hold {
            id,
            token: AtomicU64::new(granted.grant.token),
            lease,
            renews,
            ends: Mutex::new(None),
            longest: None,
            unanswered: Mutex::new(None),
            refused: AtomicBool::new(false),
            lost: Mutex::new(None),
            losing: Notify::new(),
        };
        hold.granted(granted);
        hold
    }

    /// It ends after so long at the latest.
    pub(crate) fn at_most(mut self, granted: &Granted, max_hold: Duration) -> Hold {
        let waited = Duration::from_millis(granted.grant.waited_ms);
        let end = granted.since.after(waited + max_hold.mul_f64(0.98));
        self.longest = (!max_hold.is_zero()).then_some(end);
        self
    }

    fn granted(&self, Granted { grant, since }: &Granted) {
        self.token.store(grant.token, Ordering::SeqCst);
        let left = grant.lease_ms.map(|left| Duration::from_millis(grant.waited_ms + left));
        self.until(left.map(|left| since.after(left)));
    }

    /// The lease ends then, or a little earlier.
    pub(crate) fn until(&self, end: Option<Moment>) {
        *self.ends.lock() = end.map(Moment::with_care);
    }

    /// The lease is over as its holder sees it. Whether that is so.
    pub(crate) fn lapse(&self) -> bool {
        let over = self.ends.lock().is_some_and(Moment::has_passed);
        if over {
            // A renewal that is on its way says nothing if the longest hold is over.
            let unanswered = self.unanswered.lock().is_some()
                && !self.refused.load(Ordering::SeqCst)
                && !self.longest.is_some_and(Moment::has_passed);
            self.lose(if unanswered { Lost::Unreachable } else { Lost::Expired });
        }
        over
    }

    pub(crate) fn lose(&self, lost: Lost) {
        self.lost.lock().get_or_insert(lost);
        self.losing.notify_waiters();
    }

    pub(crate) fn is_lost(&self) -> Option<Lost> {
        self.lost.lock().clone()
    }

    async fn lost(&self) -> Lost {
        loop {
            // Before it is looked: what is told from here on is heard.
            let losing = self.losing.notified();
            if let Some(lost) = self.is_lost() {
                return lost;
            }
            losing.await;
        }
    }
}

/// A lock that is held. It is renewed in the background until it is released or dropped; if it is
/// lost all the same, [`Guard::lost`] tells.
#[must_use = "a lock is released when its guard is dropped"]
pub struct Guard {
    locks: Arc<Inner>,
    hold: Arc<Hold>,
    /// Released, so dropping has nothing to do.
    over: bool,
}

impl Guard {
    pub(crate) fn new(locks: Arc<Inner>, hold: Arc<Hold>) -> Guard {
        Guard { locks, hold, over: false }
    }

    /// The fencing token: larger than that of every earlier grant. Give it to whatever you write to.
    pub fn token(&self) -> u64 {
        self.hold.token.load(Ordering::SeqCst)
    }

    /// The request id. Whoever knows it can release the lock.
    pub fn id(&self) -> &RequestId {
        &self.hold.id
    }

    /// Whether the lock has been lost, and why.
    pub fn is_lost(&self) -> Option<Lost> {
        self.hold.lapse();
        self.hold.is_lost()
    }

    /// Resolves when the lock is lost. Cancel safe.
    pub async fn lost(&self) -> Lost {
        self.hold.lost().await
    }

    /// Turns an optimistic lock, or a shared one that nobody shares, into a cumulative one, under a
    /// new token.
    pub async fn promote(&self) -> Result<u64, PromoteError> {
        let granted = self.locks.submit(|strategy| strategy.promote(&self.hold.id)).await;
        let granted = granted.map_err(|error| match error {
            // It was ours.
            PromoteError::NotHeld => PromoteError::Lost(self.is_lost().unwrap_or(Lost::Expired)),
            error => error,
        })?;
        self.hold.granted(&granted);
        Ok(self.token())
    }

    /// How long the lease has left as its holder sees it, which is a little less than it has; it
    /// grows when it is renewed. `None` is no lease.
    pub fn ends(&self) -> Option<Duration> {
        self.hold.ends.lock().map(Moment::left)
    }

    /// Keeps the lock beyond the guard: it is not renewed any more and ends with its lease, or when
    /// [`crate::Locks::release`] is given its id.
    pub fn keep(mut self) -> RequestId {
        self.over = true;
        self.locks.keeper.drop_hold(&self.hold.id);
        self.hold.id.clone()
    }

    /// Gives the lock up and says what came of it.
    pub async fn release(mut self) -> Released {
        self.over = true;
        self.locks.release(&self.hold).await
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not its id: that is a secret.
        let lost = self.hold.is_lost();
        let mut shown = f.debug_struct("Guard");
        shown.field("token", &self.token()).field("lost", &lost).finish_non_exhaustive()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.over {
            // It is submitted here, ahead of whatever is asked for later.
            drop(self.locks.release(&self.hold));
        }
    }
}
