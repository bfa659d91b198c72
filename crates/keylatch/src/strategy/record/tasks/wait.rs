//! Claims that wait. Those of one process that wait for any task of a pool stand in a line; only the first
//! ones ask the store, and only when it told that something is due, or when it said that something would be.
//! Who waits for one task asks when that one was told of. Between processes there is no order: whoever
//! is first at the store.
//!
//! A claim is *busy* while it asks, and else *idle*. One task for each pool in which somebody waits sees to
//! the idle ones; it ends with them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use keylatch_table::{PoolCounts, RequestId, Settings, TaskAction, TaskCommand, TaskReply, Text};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::driver::{Failure, Shared, Tried};
use super::store::Told;
use crate::error::TaskError;
use crate::strategy::Pending;

/// Messages may be lost: whoever waits asks at least this often. Three times in the time for which a store
/// notes that somebody waits.
const LOOK: Duration = Duration::from_secs(5);
/// It is asked this much after something is due: the store's clock is not ours.
const LATE: Duration = Duration::from_millis(2);
/// After a try that failed.
const RETRY: Duration = Duration::from_millis(100);
/// So much longer than its wait a claim may last if the store does not answer.
const OVERTIME: Duration = Duration::from_secs(6);
/// After so many that got something one after another twice as many ask at once, and so on.
const PLENTY: u32 = 5;
/// But no more than two to this.
const MOST_TOGETHER: u32 = 4;

type Outcome = Result<TaskReply, TaskError>;

/// Everyone of this process who waits.
#[derive(Default)]
pub(super) struct Waits {
    pools: BTreeMap<Text, Pool>,
    /// In the order of arrival.
    seq: u64,
}

struct Pool {
    claims: BTreeMap<u64, Waiting>,
    /// When those ask next who want any.
    look: Instant,
    /// And when they do besides: it was told that something will be due then.
    later: Option<Instant>,
    /// How many of these got something one after another.
    streak: u32,
    /// How often something was told that may be for those.
    heard: u64,
    /// Something has changed for who sees to the idle ones.
    changed: Arc<Notify>,
}

struct Waiting {
    command: Arc<TaskCommand>,
    asked: Instant,
    end: Instant,
    /// Who asked, and everyone who asked again under this id.
    callers: Vec<oneshot::Sender<Outcome>>,
    busy: bool,
    cancelled: bool,
    /// When it asks next, of one that wants a certain task; and how often that one was told of.
    look: Instant,
    heard: u64,
    failed: Option<Failure>,
}

impl Waiting {
    fn key(&self) -> Option<&Text> {
        match &self.command.action {
            TaskAction::Claim(claim) => claim.key.as_ref(),
            _ => None,
        }
    }

    fn tell(self, outcome: &Outcome) {
        for caller in self.callers {
            drop(caller.send(outcome.clone()));
        }
    }

    /// Got nothing in time.
    fn ends(self) {
        let outcome = match self.failed.clone() {
            Some(failure) => Err(failure.into()),
            None => Ok(TaskReply::Nothing),
        };
        self.tell(&outcome);
    }
}

impl Waits {
    fn find(&mut self, id: &RequestId) -> Option<(&Text, &mut Pool, u64)> {
        self.pools.iter_mut().find_map(|(name, pool)| {
            let seq = pool.claims.iter().find(|(_, claim)| claim.command.id == *id)?;
            let seq = *seq.0;
            Some((name, pool, seq))
        })
    }

    pub(super) fn has(&self, id: &RequestId) -> bool {
        self.pools.values().any(|pool| pool.claims.values().any(|claim| claim.command.id == *id))
    }

    /// With those who wait here: nobody else's are known.
    pub(super) fn add_to(
        &self,
        mut counts: Vec<PoolCounts>,
        asked: Option<&str>,
    ) -> Vec<PoolCounts> {
        for (name, pool) in &self.pools {
            if asked.is_some_and(|asked| *asked != **name) {
                continue;
            }
            let waiting = pool.claims.len() as u64;
            if let Some(counts) = counts.iter_mut().find(|counts| counts.pool == *name) {
                counts.waiting = waiting;
            } else {
                let pool = name.clone();
                counts.push(PoolCounts { pool, waiting, ..PoolCounts::default() });
            }
        }
        counts.sort_by(|one, other| one.pool.cmp(&other.pool));
        counts
    }

    fn hear(&mut self, told: &Told) {
        let now = Instant::now();
        match told {
            Told::Changed { pool, key, due_ms } => {
                let Some(pool) = self.pools.get_mut(pool) else { return };
                let due = due_ms.map(|ms| now + Duration::from_millis(ms) + late(ms));
                match (due, due_ms) {
                    (Some(due), Some(0)) => {
                        pool.heard += 1;
                        pool.look = pool.look.min(due);
                    }
                    // No reason to look now: mostly somebody has claimed something.
                    (Some(due), _) => {
                        pool.later = Some(pool.later.map_or(due, |later| later.min(due)));
                    }
                    (None, _) => {}
                }
                for claim in pool.claims.values_mut().filter(|claim| claim.key() == Some(key)) {
                    claim.heard += 1;
                    claim.look = claim.look.min(due.unwrap_or(now));
                }
                pool.changed.notify_one();
            }
            Told::Anything => {
                for pool in self.pools.values_mut() {
                    pool.heard += 1;
                    pool.look = now;
                    pool.later = None;
                    for claim in pool.claims.values_mut() {
                        claim.heard += 1;
                        claim.look = now;
                    }
                    pool.changed.notify_one();
                }
            }
        }
    }
}

/// What is due now is due now.
fn late(due_ms: u64) -> Duration {
    if due_ms == 0 { Duration::ZERO } else { LATE }
}

impl Pool {
    fn new() -> Pool {
        Pool {
            claims: BTreeMap::new(),
            look: Instant::now() + LOOK,
            later: None,
            streak: 0,
            heard: 0,
            changed: Arc::default(),
        }
    }

    /// How many of those who want any ask at once besides those that do.
    fn room(&self) -> usize {
        let any = self.claims.values().filter(|claim| claim.key().is_none());
        // One by one, so that they keep their order; more and more, once there seems to be plenty.
        let together = 1 << (self.streak / PLENTY).min(MOST_TOGETHER);
        usize::saturating_sub(together, any.filter(|claim| claim.busy).count())
    }

    fn somebody_is_idle(&self) -> bool {
        self.claims.values().any(|claim| !claim.busy && claim.key().is_none())
    }

    /// Ends waits that are over; says who asks now, or until when there is nothing to do.
    fn plan(&mut self) -> Result<Vec<u64>, Instant> {
        let now = Instant::now();
        let over = |claim: &Waiting| {
            let end = if claim.failed.is_some() { claim.end + OVERTIME } else { claim.end };
            !claim.busy && end <= now
        };
        let ended: Vec<u64> =
            self.claims.iter().filter(|(_, claim)| over(claim)).map(|(seq, _)| *seq).collect();
        for seq in ended {
            if let Some(claim) = self.claims.remove(&seq) {
                claim.ends();
            }
        }
        let mut next = now + LOOK;
        let mut asks = Vec::new();
        let any = |claim: &Waiting| !claim.busy && claim.key().is_none();
        if let Some(later) = self.later {
            if later <= now {
                (self.look, self.later) = (now, None);
            } else {
                next = next.min(later);
            }
        }
        let due = self.look <= now;
        let most = if due { self.room() } else { 0 };
        let first = self.claims.iter().filter(|(_, claim)| any(claim)).take(most);
        asks.extend(first.map(|(seq, _)| *seq));
        for (seq, claim) in self.claims.iter().filter(|(_, claim)| !claim.busy) {
            next = next.min(claim.end);
            match claim.key() {
                Some(_) if claim.look <= now => asks.push(*seq),
                Some(_) => next = next.min(claim.look),
                None if !due => next = next.min(self.look),
                None => {}
            }
        }
        if asks.is_empty() {
            return Err(next);
        }
        for seq in &asks {
            if let Some(claim) = self.claims.get_mut(seq) {
                claim.busy = true;
            }
        }
        Ok(asks)
    }
}

impl Shared {
    /// A claim that waits, or asks again while it does.
    pub(super) fn wait(self: &Arc<Self>, command: TaskCommand) -> Pending<Outcome> {
        let TaskAction::Claim(claim) = &command.action else { unreachable!("it is a claim") };
        let (wait, name) = (Duration::from_millis(claim.wait_ms), command.pool.clone());
        let (caller, called) = oneshot::channel();
        let now = Instant::now();
        let mut waits = self.waits.lock();
        if let Some((_, pool, seq)) = waits.find(&command.id) {
            let known = pool.claims.get_mut(&seq).expect("just found");
            if known.command.fingerprint() != command.fingerprint() {
                let reused = super::driver::invalid(keylatch_table::Error::IdReused);
                return Box::pin(std::future::ready(Err(reused)));
            }
            // It keeps its place, and its wait begins anew.
            known.callers.push(caller);
            (known.asked, known.end) = (now, now + wait);
            pool.changed.notify_one();
        } else {
            let most = Settings::default().claims;
            let any = claim.key.is_none();
            waits.seq += 1;
            let seq = waits.seq;
            let is_new = !waits.pools.contains_key(&name);
            let pool = waits.pools.entry(name.clone()).or_insert_with(Pool::new);
            if pool.claims.len() as u64 >= most {
                let what = keylatch_table::What::Claims;
                let full = super::driver::invalid(keylatch_table::Error::TooMany(what, most));
                return Box::pin(std::future::ready(Err(full)));
            }
            // Nobody who comes later asks before those who stand in the line.
            let busy = !any || (pool.room() > 0 && !pool.somebody_is_idle());
            let waiting = Waiting {
                command: Arc::new(command),
                asked: now,
                end: now + wait,
                callers: vec![caller],
                busy,
                cancelled: false,
                look: now,
                heard: 0,
                failed: None,
            };
            pool.claims.insert(seq, waiting);
            if busy {
                let (shared, name) = (Arc::clone(self), name.clone());
                self.runtime.spawn(async move { shared.attempt(&name, seq).await });
            }
            if is_new {
                self.store.somebody_waits(true);
                let changed = Arc::clone(&pool.changed);
                self.runtime.spawn(attend(Arc::downgrade(self), name, changed));
            }
        }
        drop(waits);
        Box::pin(async move {
            called.await.unwrap_or_else(|_| Err(TaskError::Unknown("the runtime has ended".into())))
        })
    }

    /// One that waits asks the store, and what came of it is told.
    async fn attempt(self: &Arc<Self>, name: &Text, seq: u64) {
        let Some((command, asked, heard)) = self.begin(name, seq) else { return };
        let sent = Instant::now();
        let tried = match self.try_claim(&command, true).await {
            Ok(Tried::Answer(Ok(TaskReply::Claimed(mut claimed)))) => {
                claimed.waited_ms = (sent - asked).as_millis() as u64;
                Ok(Tried::Answer(Ok(TaskReply::Claimed(claimed))))
            }
            tried => tried,
        };
        if let Some((given_up, key, version)) = self.settle(name, seq, tried, heard) {
            self.undo(&command, key, version).await;
            // Not before: whoever gave it up may end its process as soon as it is told.
            given_up.tell(&Ok(TaskReply::Cancelled(true)));
        }
    }

    /// Tells what came of a try, or when to try again. Says who was given a task and does not want it any more: which one,
    /// and at which version.
    fn settle(
        &self,
        name: &Text,
        seq: u64,
        tried: Result<Tried, Failure>,
        heard: u64,
    ) -> Option<(Waiting, Text, u64)> {
        let mut waits = self.waits.lock();
        let pool = waits.pools.get_mut(name)?;
        pool.changed.notify_one();
        let claim = pool.claims.get_mut(&seq)?;
        claim.busy = false;
        let heard_now = if claim.key().is_some() { claim.heard } else { pool.heard };
        let given_up = claim.cancelled || claim.callers.iter().all(oneshot::Sender::is_closed);
        let next = match tried {
            Ok(Tried::Nothing(_)) | Err(Failure::Store(_)) if given_up => {
                pool.look = Instant::now();
                pool.claims.remove(&seq)?.tell(&Ok(TaskReply::Cancelled(true)));
                return None;
            }
            Ok(Tried::Answer(Ok(TaskReply::Claimed(claimed)))) if given_up => {
                return Some((pool.claims.remove(&seq)?, claimed.key, claimed.version));
            }
            Ok(Tried::Answer(outcome)) => {
                if claim.key().is_none() {
                    // There may be more.
                    (pool.look, pool.streak) = (Instant::now(), pool.streak.saturating_add(1));
                }
                pool.claims.remove(&seq)?.tell(&outcome);
                return None;
            }
            Err(Failure::Nonsense(text)) => {
                pool.claims.remove(&seq)?.tell(&Err(TaskError::Invalid(text)));
                return None;
            }
            Ok(Tried::Nothing(next_ms)) => {
                claim.failed = None;
                let due = next_ms.map(|ms| Duration::from_millis(ms) + LATE);
                match heard_now == heard {
                    true => due.map_or(LOOK, |due| due.min(LOOK)),
                    // It may have happened after it was looked at.
                    false => Duration::ZERO,
                }
            }
            Err(Failure::Store(error)) => {
                tracing::debug!(error.text, "the store is asked again");
                claim.failed = Some(Failure::Store(error));
                RETRY
            }
        };
        if claim.key().is_some() {
            claim.look = Instant::now() + next;
        } else {
            (pool.look, pool.streak) = (Instant::now() + next, 0);
        }
        None
    }

    fn begin(&self, name: &Text, seq: u64) -> Option<(Arc<TaskCommand>, Instant, u64)> {
        let waits = self.waits.lock();
        let pool = waits.pools.get(name)?;
        let claim = pool.claims.get(&seq)?;
        let heard = if claim.key().is_some() { claim.heard } else { pool.heard };
        Some((Arc::clone(&claim.command), claim.asked, heard))
    }

    /// Whether this one waited.
    pub(super) fn cancel(&self, id: &RequestId) -> bool {
        let mut waits = self.waits.lock();
        let Some((_, pool, seq)) = waits.find(id) else { return false };
        pool.changed.notify_one();
        match pool.claims.get_mut(&seq) {
            // Told once it is known what came of it.
            Some(claim) if claim.busy => claim.cancelled = true,
            _ => {
                if let Some(claim) = pool.claims.remove(&seq) {
                    claim.tell(&Ok(TaskReply::Cancelled(true)));
                }
            }
        }
        true
    }
}

/// Sees to those who wait in a pool, until there is nobody.
async fn attend(shared: Weak<Shared>, name: Text, changed: Arc<Notify>) {
    loop {
        let Some(here) = shared.upgrade() else { return };
        let plan = {
            let mut waits = here.waits.lock();
            let Some(pool) = waits.pools.get_mut(&name) else { return };
            let plan = pool.plan();
            if pool.claims.is_empty() {
                waits.pools.remove(&name);
                if waits.pools.is_empty() {
                    here.store.somebody_waits(false);
                }
                return;
            }
            plan
        };
        match plan {
            Ok(asks) => {
                for seq in asks {
                    let (shared, name) = (Arc::clone(&here), name.clone());
                    tokio::spawn(async move { shared.attempt(&name, seq).await });
                }
            }
            Err(next) => {
                drop(here);
                tokio::select! {
                    () = changed.notified() => {}
                    () = tokio::time::sleep_until(next) => {}
                }
            }
        }
    }
}

/// What the store tells reaches those who wait.
pub(super) async fn hear(shared: Weak<Shared>, mut told: mpsc::UnboundedReceiver<Told>) {
    while let Some(told) = told.recv().await {
        let Some(here) = shared.upgrade() else { return };
        here.waits.lock().hear(&told);
    }
}
