//! Renews what is held: one task for all guards of a [`crate::Locks`].

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use keylatch_table::RequestId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Moment;
use crate::guard::{Hold, Lost};
use crate::strategy::{Renewed, Strategy};

/// Everything that is held.
#[derive(Default)]
pub(crate) struct Keeper {
    held: Mutex<Held>,
    /// Something is due earlier than was known.
    sooner: Notify,
}

#[derive(Default)]
struct Held {
    kept: HashMap<RequestId, Kept, foldhash::fast::RandomState>,
    /// When it is looked at all of them next; nothing before the first time. Most locks are released long before,
    /// and waking the task for each would cost more than the lock.
    looks: Option<Moment>,
}

struct Kept {
    hold: Arc<Hold>,
    /// When it is to be renewed.
    renew: Option<Moment>,
}

/// A lease is renewed when a third of it is over, so that two more tries fit in.
const PART: u32 = 3;
/// A renewal that failed is tried again after a tenth of the lease, between these.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// Without anything to do the task looks this often whether it is still needed.
const IDLE: Duration = Duration::from_secs(1);

impl Keeper {
    pub(crate) fn keep(&self, hold: &Arc<Hold>) {
        let renew = renewal(hold);
        // It is renewed before it ends.
        let first = renew.or_else(|| *hold.ends.lock());
        let mut held = self.held.lock();
        held.kept.insert(hold.id.clone(), Kept { hold: Arc::clone(hold), renew });
        let late = |first: Moment| held.looks.is_none_or(|looks| first < looks);
        if first.is_some_and(late) {
            self.sooner.notify_one();
        }
    }

    pub(crate) fn drop_hold(&self, id: &RequestId) {
        self.held.lock().kept.remove(id);
    }

    /// A holder has been told that it lost its lock.
    pub(crate) fn lose(&self, id: &RequestId, lost: Lost) {
        if let Some(kept) = self.held.lock().kept.remove(id) {
            kept.hold.lose(lost);
        }
    }

    /// Those whose time has come; and how long there is nothing to do after that.
    fn due(&self) -> (Vec<Arc<Hold>>, Duration) {
        let mut due = Vec::new();
        let mut next = IDLE;
        let mut held = self.held.lock();
        held.kept.retain(|_, kept| {
            if kept.hold.lapse() {
                return false;
            }
            if kept.renew.is_some_and(Moment::has_passed) {
                due.push(Arc::clone(&kept.hold));
                kept.hold.unanswered.lock().get_or_insert_with(Moment::now);
                let (least, most) = RETRY;
                let retry = (kept.hold.lease / 10).clamp(least, most);
                kept.renew = Some(Moment::now().after(retry));
            }
            let ends = *kept.hold.ends.lock();
            for at in [ends, kept.renew].into_iter().flatten() {
                next = next.min(at.left());
            }
            true
        });
        held.looks = Some(Moment::now().after(next));
        (due, next)
    }

    fn renewed(&self, hold: &Hold, renewed: Renewed) {
        *hold.unanswered.lock() = None;
        let refused = matches!(renewed, Renewed::Refused(_) | Renewed::Denied(_));
        hold.refused.store(refused, Ordering::SeqCst);
        match renewed {
            Renewed::Until(end) => {
                hold.until(end);
                if let Some(kept) = self.held.lock().kept.get_mut(&hold.id) {
                    kept.renew = renewal(hold);
                }
            }
            Renewed::Lost(lost) => self.lose(&hold.id, lost),
            // It was held, and nobody has ended it that is known of.
            Renewed::NotHeld => self.lose(&hold.id, Lost::Expired),
            // It is tried again until the lease is over.
            Renewed::Refused(reason) | Renewed::Denied(reason) => {
                tracing::warn!(reason, "a renewal was refused");
            }
        }
    }
}

fn renewal(hold: &Hold) -> Option<Moment> {
    let ends = (*hold.ends.lock())?;
    hold.renews.then(|| ends.in_parts(PART))
}

/// Runs as long as somebody uses the locks.
pub(crate) async fn run(keeper: Weak<Keeper>, strategy: Weak<dyn Strategy>) {
    loop {
        let Some((keeper, strategy)) = keeper.upgrade().zip(strategy.upgrade()) else { return };
        let (due, next) = keeper.due();
        for hold in due {
            // All are submitted before any is waited for.
            let renewal = strategy.renew(&hold.id, None);
            let keeper = Arc::clone(&keeper);
            tokio::spawn(async move {
                if let Some(renewed) = renewal.await {
                    keeper.renewed(&hold, renewed);
                }
            });
        }
        drop(strategy);
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            () = keeper.sooner.notified() => {}
        }
    }
}
