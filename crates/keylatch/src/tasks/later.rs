//! Claims that nobody has to look after yet. Most are done long before they are to be renewed, and those do not
//! cost a task each: one for all of a [`crate::Locks`] waits, and starts [`Keep::run`] for a claim whose time has
//! come. It ends when there are none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::keep::{Keep, LOOK};
use crate::clock::Moment;

/// When a claim's time comes, and a number: several may have the same.
pub(super) type Place = (Moment, u64);

#[derive(Default)]
pub(crate) struct Later {
    line: Mutex<Line>,
    /// Something is due earlier than the task looks.
    sooner: Notify,
}

#[derive(Default)]
struct Line {
    claims: BTreeMap<Place, Sleeper>,
    number: u64,
    /// When the task looks next; nothing if there is none.
    looks: Option<Moment>,
}

struct Sleeper {
    keep: Arc<Keep>,
    renews: bool,
    /// Its version by now: if it has another one when its time comes, its worker has renewed it.
    version: u64,
}

impl Later {
    /// Until then nothing is to be done about this claim.
    pub(super) fn add(
        self: &Arc<Self>,
        runtime: &Handle,
        due: Moment,
        keep: &Arc<Keep>,
        renews: bool,
    ) -> Place {
        let mut line = self.line.lock();
        line.number += 1;
        let place = (due, line.number);
        let (keep, version) = (Arc::clone(keep), keep.version());
        line.claims.insert(place, Sleeper { keep, renews, version });
        match line.looks {
            None => {
                line.looks = Some(Moment::now());
                runtime.spawn(look(Arc::clone(self)));
            }
            Some(at) if due < at => self.sooner.notify_one(),
            Some(_) => {}
        }
        place
    }

    /// Nobody is to look after this claim any more.
    pub(super) fn remove(&self, place: Place, keep: &Keep) {
        let there = self.line.lock().claims.remove(&place);
        if there.is_none() {
            keep.stop();
        }
    }

    /// Starts what is due, and says how long there is nothing to do after that; nothing if nobody is left.
    fn start_due(&self) -> Option<Duration> {
        let mut line = self.line.lock();
        while let Some(first) = line.claims.first_entry().filter(|first| first.key().0.has_passed())
        {
            let ((due, _), Sleeper { keep, renews, version }) = first.remove_entry();
            // While the line is locked: whoever does not find a claim in it finds that it runs.
            keep.start(renews, due, version);
        }
        // Sleep does not count suspend.
        let next = line.claims.first_key_value().map(|((due, _), _)| due.left().min(LOOK));
        line.looks = next.map(|next| Moment::now().after(next));
        next
    }
}

async fn look(later: Arc<Later>) {
    while let Some(next) = later.start_due() {
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            () = later.sooner.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{Claim, Locks, Tasks};

    async fn two() -> (Tasks, Claim, Claim) {
        let tasks = Locks::connect("memory:").await.unwrap().tasks("p");
        tasks.create_many(["a", "b"].map(|key| tasks.create(key))).await.unwrap();
        let long = tasks.claim_key("a").try_now().await.unwrap().unwrap();
        // By then it is known that nothing is to be done about it for a while.
        tokio::time::sleep(Duration::from_millis(10)).await;
        let short = tasks.claim_key("b").lease(Duration::from_millis(300)).try_now();
        (tasks.clone(), long, short.await.unwrap().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_lease_is_renewed_in_time_beside_a_long_one() {
        let (_, long, short) = two().await;
        let versions = [long.version(), short.version()];
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert_eq!((long.is_lost(), short.is_lost()), (None, None));
        assert_eq!(long.version(), versions[0]);
        assert!(short.version() > versions[1]);
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert!(long.version() > versions[0]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_dropped_is_looked_after_no_more() {
        let (tasks, long, short) = two().await;
        // One has not been looked after yet, the other one has.
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop((long, short));
        assert!(tasks.locks.claims.line.lock().claims.is_empty());
        let version = tasks.get("b").await.unwrap().unwrap().version;
        tokio::time::sleep(Duration::from_secs(70)).await;
        assert_eq!(tasks.get("b").await.unwrap().unwrap().version, version);
        assert!(tasks.locks.claims.line.lock().looks.is_none());
    }
}
