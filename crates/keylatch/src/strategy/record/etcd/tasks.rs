//! Tasks in etcd: a key for each, and keys beside it by which the next one is found. What is claimed or
//! delayed has a key on a lease of etcd: when that is gone, its time has come. Times are only for those who
//! look, and for the order; whose time has come is etcd's to say.
//!
//! | key below `t/` | what | lease |
//! |---|---|---|
//! | `r/POOL/KEY` | the task; its version is its revision | |
//! | `q/POOL/PRIORITY TIME/KEY` | it stands in the line | |
//! | `l/POOL/TIME/KEY` | it will be due; its value is its place in the line | |
//! | `h/POOL/TIME/KEY` | it is claimed and not due yet, as long as this is there | of who claimed it |
//! | `d/POOL/TIME/KEY` | the same of one that is delayed | of who delayed it |
//! | `f/POOL/KEY` | it has failed | |
//! | `o/POOL/KEY` | it is claimed without an end | |
//! | `c/ID` | what a claim took, while the task has that claim | |
//! | `w/POOL` | somebody waits there | of who does |

mod keep;
mod take;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keylatch_table::{PoolCounts, TaskState, Text};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use self::keep::Kept;
pub(super) use self::keep::{hear, news};
use self::take::Window;
use super::super::store::StoreError;
use super::super::tasks::store::{
    Change, Page, Ready, Seen, Stamp, Take, Taken, TaskRecord, TaskStore, Told, Write, Written,
};
use super::keys::Base;
use super::leases::Label;
use super::link::{Failed, refused};
use super::wire::{Compare, KeyValue, Op, RangeRequest, TxnRequest, TxnResponse};
use super::{Shared, TRIES, wall_ms};
use crate::strategy::Pending;
use crate::tasks::GIVEN_BACK_MS;

/// At most so many tasks are read at once.
const PAGE: i64 = 1_000;
/// Of so many claims it is remembered how they were written.
const REMEMBERED: usize = 10_000;

struct Place {
    shared: Arc<Shared>,
    /// Tasks that this process is about to take: it does not get in its own way.
    busy: Mutex<HashSet<Vec<u8>>>,
    /// Among so many of the first ones a take chooses: the more, the more often others were quicker.
    spread: AtomicU32,
    windows: Mutex<HashMap<Text, Window>>,
    /// Tasks that were claimed here, by their keys, without their bytes: whoever writes them need not read them.
    remembered: Mutex<HashMap<Vec<u8>, Kept>>,
    /// In which pools it was noted that somebody waits, and when.
    noted: Mutex<HashMap<Text, Instant>>,
}

pub(super) struct EtcdTasks {
    place: Arc<Place>,
    told: Mutex<Option<UnboundedReceiver<Told>>>,
}

impl EtcdTasks {
    pub(super) fn new(shared: &Arc<Shared>) -> EtcdTasks {
        let (tell, told) = unbounded_channel();
        *shared.task_tell.lock() = Some(tell);
        let shared = Arc::clone(shared);
        let place = Place {
            shared,
            busy: Mutex::default(),
            spread: AtomicU32::new(0),
            windows: Mutex::default(),
            remembered: Mutex::default(),
            noted: Mutex::default(),
        };
        EtcdTasks { place: Arc::new(place), told: Mutex::new(Some(told)) }
    }
}

/// What a write came to.
enum Came {
    Done(Stamp),
    /// Somebody else has written it.
    Other,
}

impl Place {
    async fn read(&self, ranges: Vec<RangeRequest>) -> Result<TxnResponse, Failed> {
        let success = ranges.into_iter().map(Op::range).collect();
        self.shared.link.repeatable(TxnRequest { success, ..TxnRequest::default() }).await
    }

    /// A task as it is kept, by its key.
    async fn kept(&self, key: Vec<u8>) -> Result<Option<Kept>, Failed> {
        let answer = self.read(vec![RangeRequest::one(key)]).await?;
        let found = answer.ranges().flatten().next();
        found.map(|kv| self.parse(&kv)).transpose()
    }

    fn parse(&self, kv: &KeyValue) -> Result<Kept, Failed> {
        let (pool, key) = self.shared.keys.task_of(&kv.key).ok_or_else(strange)?;
        Kept::parse(self.shared.base(), pool, key, kv).ok_or_else(strange)
    }

    /// Whose time has not come: whose key on a lease is there.
    async fn alive(&self, tasks: Vec<Kept>) -> Result<Vec<TaskRecord>, Failed> {
        let mut records = Vec::with_capacity(tasks.len());
        for some in tasks.chunks(100) {
            let held = |kept: &Kept| RangeRequest {
                keys_only: true,
                ..RangeRequest::one(self.held(kept))
            };
            let answer = self.read(some.iter().map(held).collect()).await?;
            for (kept, held) in some.iter().zip(answer.ranges()) {
                let alive = Some(!held.is_empty());
                records.push(TaskRecord { alive, ..kept.record.clone() });
            }
        }
        Ok(records)
    }

    fn held(&self, kept: &Kept) -> Vec<u8> {
        let TaskRecord { pool, key, ready, state, .. } = &kept.record;
        let claimed = *state == TaskState::Claimed;
        self.shared.keys.task_held(pool, ready.unwrap_or(0), key, claimed)
    }

    /// Where it stands if it stands nowhere else and is not done.
    fn apart(&self, kept: &Kept) -> Option<Vec<u8>> {
        let TaskRecord { pool, key, ready, state, .. } = &kept.record;
        let failed = *state == TaskState::Failed;
        let is_apart = failed || (*state == TaskState::Claimed && ready.is_none());
        is_apart.then(|| self.shared.keys.task_apart(pool, key, failed))
    }

    /// A lease for so long; none is 0.
    async fn lease(&self, ms: Option<u64>) -> Result<i64, Failed> {
        match ms {
            Some(ms) => self.shared.lease(ms).await,
            None => Ok(0),
        }
    }

    /// Writes a task in the place of `before`, with the keys beside it. `held_ms`: it is due so much later;
    /// `moves`: it stands elsewhere now; `due`: only if its time has come.
    async fn write(
        &self,
        before: Option<&Kept>,
        after: &Kept,
        held_ms: Option<u64>,
        moves: bool,
        due: bool,
    ) -> Result<Came, Failed> {
        let keys = &self.shared.keys;
        let TaskRecord { pool, key, ready, state, .. } = &after.record;
        let due_ms = ready.map(|_| held_ms.unwrap_or(0));
        let task = keys.task(pool, key);
        for _ in 0..TRIES {
            let base = self.shared.base();
            let lease = self.lease(held_ms.filter(|_| moves)).await?;
            let mut ops = vec![Op::put(task.clone(), after.value(), 0)];
            let (mut gone, mut come) = (BTreeSet::new(), Vec::new());
            if moves {
                gone = before.map(|before| self.beside(before)).unwrap_or_default();
                let rank = keys.task_line(pool, after.record.priority, ready.unwrap_or(0), key);
                match (ready, held_ms) {
                    (Some(ready), Some(_)) => {
                        come.push((keys.task_later(pool, *ready, key), rank, 0));
                        come.push((self.held(after), Vec::new(), lease));
                    }
                    (Some(_), None) if *state == TaskState::Free => {
                        come.push((rank, Vec::new(), 0));
                    }
                    (Some(ready), None) if *state == TaskState::Claimed => {
                        come.push((keys.task_later(pool, *ready, key), rank, 0));
                    }
                    _ => {}
                }
            }
            let (was, is) = (before.and_then(|before| self.apart(before)), self.apart(after));
            if was != is {
                gone.extend(was);
                come.extend(is.map(|is| (is, Vec::new(), 0)));
            }
            if after.claim_id != before.map_or("", |before| &*before.claim_id) {
                if let Some(before) = before.filter(|before| !before.claim_id.is_empty()) {
                    gone.insert(keys.task_claim(&before.claim_id));
                }
                come.push((keys.task_claim(&after.claim_id), task.clone(), 0));
            }
            ops.extend(
                gone.into_iter()
                    .filter(|gone| come.iter().all(|(key, ..)| key != gone))
                    .map(Op::delete),
            );
            ops.extend(come.into_iter().map(|(key, value, lease)| Op::put(key, value, lease)));
            ops.push(self.tell(pool, key, due_ms));
            let expect = before.map_or(0, |before| before.revision);
            let mut compare = vec![Compare::written(task.clone(), expect)];
            if let Some(before) = before.filter(|_| due) {
                compare.push(Compare::none_in((self.held(before), Vec::new())));
            }
            let answer = match self.commit(base, compare, ops, lease).await {
                Err(failed) if failed.no_lease => {
                    self.shared.lose_ended(&[lease]).await?;
                    continue;
                }
                answer => answer?,
            };
            let Some(revision) = answer else { return Ok(Came::Other) };
            if let Some(ms) = held_ms.filter(|_| moves) {
                let label = Label::Task(self.held(after), pool.clone(), key.clone());
                self.begin(label, revision, lease, ms);
            }
            let stamp = Stamp { version: base.number(revision), time: after.record.last.time };
            return Ok(Came::Done(stamp));
        }
        Err(refused("leases end as soon as they are made"))
    }

    /// What ends at its time.
    fn begin(&self, label: Label, revision: i64, lease: i64, ms: u64) {
        let mut table = self.shared.table.lock();
        table.begin(label, revision, lease, ms, Instant::now(), Vec::new());
        self.shared.begun.notify_one();
    }

    /// Everything that may stand beside a task for its place.
    fn beside(&self, kept: &Kept) -> BTreeSet<Vec<u8>> {
        let keys = &self.shared.keys;
        let TaskRecord { pool, key, ready, priority, .. } = &kept.record;
        let Some(ready) = *ready else { return BTreeSet::new() };
        let line = keys.task_line(pool, *priority, ready, key);
        [line, keys.task_later(pool, ready, key), self.held(kept)].into()
    }

    /// Tells it, if somebody waits there.
    fn tell(&self, pool: &Text, key: &Text, due_ms: Option<u64>) -> Op {
        let keys = &self.shared.keys;
        let told = Op::put(keys.task_told(0), news(pool, key, due_ms), 0);
        let compare = vec![Compare::some_in((keys.task_noted(pool), Vec::new()))];
        Op::txn(TxnRequest { compare, success: vec![told], failure: Vec::new() })
    }

    /// One transaction, if this is so: the revision that it made.
    async fn commit(
        &self,
        base: Base,
        mut compare: Vec<Compare>,
        success: Vec<Op>,
        lease: i64,
    ) -> Result<Option<i64>, Failed> {
        let keys = &self.shared.keys;
        compare.push(Compare::value(keys.base(), base.value()));
        let txn = TxnRequest {
            compare,
            success,
            failure: vec![Op::range(RangeRequest::one(keys.base()))],
        };
        let answer = match lease {
            0 => self.shared.link.txn(txn).await?,
            lease => self.shared.on(&[lease], txn).await?,
        };
        let revision = answer.revision();
        if answer.succeeded {
            self.shared.highest.fetch_max(base.number(revision), Ordering::Relaxed);
            return Ok(Some(revision));
        }
        let found = answer.ranges().flatten().next();
        if found.is_none_or(|found| found.value != base.value()) {
            self.shared.lost_everything(base).await?;
        }
        Ok(None)
    }

    /// How a claim was written. Only where it stands is needed.
    fn remember(&self, kept: &Kept, stamp: Stamp) {
        let Some((revision, _)) = self.shared.base().revision(stamp.version) else { return };
        let nothing: Arc<[u8]> = Arc::default();
        let (bytes, claim) = (Arc::clone(&nothing), nothing);
        let record = TaskRecord { last: stamp, bytes, claim, ..kept.record.clone() };
        let kept = Kept { record, revision, claim_id: kept.claim_id.clone() };
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        let TaskRecord { pool, key, .. } = &kept.record;
        remembered.insert(self.shared.keys.task(pool, key), kept);
    }

    async fn change(&self, change: Change) -> Result<Written, Failed> {
        let task = self.shared.keys.task(&change.pool, &change.key);
        // What is as it was, or is new, is written at once; if it is not so, that is seen.
        let remembered = self.remembered.lock().remove(&task);
        let mut known = match change.expect {
            None => Some(None),
            expect => Some(remembered)
                .filter(|kept| kept.as_ref().map(|kept| kept.record.last.version) == expect),
        };
        loop {
            let before = if let Some(before) = known.take() {
                before
            } else {
                let before = self.kept(task.clone()).await?;
                let present = before.as_ref().map(|before| before.record.last.version);
                if present != change.expect {
                    let record = self.alive(before.into_iter().collect()).await?.pop();
                    return Ok(Written::Other(Seen { now: wall_ms(), record }));
                }
                before
            };
            let came = match &change.write {
                Write::Delete => self.delete(&task, before).await?,
                Write::Put(put) => {
                    let now = wall_ms();
                    let ready = match put.ready {
                        Ready::After(ms) => Some(now + ms),
                        // As it was: its place too.
                        Ready::At(time) => {
                            before.as_ref().map_or(Some(time), |before| before.record.ready)
                        }
                        Ready::Never => None,
                    };
                    let held_ms = match put.ready {
                        // It is given back: a lease of etcd's would last for seconds if this process ends now.
                        Ready::After(GIVEN_BACK_MS) if put.state == TaskState::Claimed => None,
                        Ready::After(ms) if ms > 0 => Some(ms),
                        _ => None,
                    };
                    let moves = !matches!(put.ready, Ready::At(_));
                    let after = Kept::new(&change, put, before.as_ref(), now, ready);
                    let came = self.write(before.as_ref(), &after, held_ms, moves, false).await?;
                    if let (Came::Done(stamp), TaskState::Claimed) = (&came, put.state) {
                        self.remember(&after, *stamp);
                    }
                    came
                }
            };
            if let Came::Done(stamp) = came {
                return Ok(Written::Done(stamp));
            }
        }
    }

    async fn delete(&self, task: &[u8], before: Option<Kept>) -> Result<Came, Failed> {
        let Some(before) = before else { return Ok(Came::Other) };
        let base = self.shared.base();
        let mut gone = self.beside(&before);
        gone.extend(self.apart(&before));
        gone.insert(task.to_vec());
        if !before.claim_id.is_empty() {
            gone.insert(self.shared.keys.task_claim(&before.claim_id));
        }
        let ops = gone.into_iter().map(Op::delete).collect();
        let compare = vec![Compare::written(task.to_vec(), before.revision)];
        let revision = self.commit(base, compare, ops, 0).await?;
        Ok(revision.map_or(Came::Other, |revision| {
            Came::Done(Stamp { version: base.number(revision), time: wall_ms() })
        }))
    }

    async fn task(&self, pool: Text, key: Text) -> Result<Seen, Failed> {
        let kept = self.kept(self.shared.keys.task(&pool, &key)).await?;
        let records = self.alive(kept.into_iter().collect()).await?;
        Ok(Seen { now: wall_ms(), record: records.into_iter().next() })
    }

    async fn page(&self, page: Page) -> Result<(u64, Vec<TaskRecord>), Failed> {
        let base = self.shared.base();
        let mut after = base.revision(page.after).map_or(0, |(revision, _)| revision);
        let mut kept = Vec::new();
        loop {
            let all = RangeRequest::all(self.shared.keys.tasks(Some(&page.pool)));
            let limit = i64::try_from(page.limit).unwrap_or(PAGE).clamp(1, PAGE);
            let some = RangeRequest { limit, ..all.created_after(after) };
            let some = self.shared.link.range(some).await?;
            for kv in &some.kvs {
                after = kv.create_revision;
                let one = self.parse(kv)?;
                if page.state.is_none_or(|state| state == one.record.state) {
                    kept.push(one);
                }
            }
            if !some.more || kept.len() >= page.limit {
                kept.truncate(page.limit);
                return Ok((wall_ms(), self.alive(kept).await?));
            }
        }
    }

    /// By counting keys. A pool is there as long as it has tasks.
    async fn counts(&self, pool: Option<Text>) -> Result<Vec<PoolCounts>, Failed> {
        let keys = &self.shared.keys;
        let (mut from, end) = keys.tasks(pool.as_deref());
        let mut counts: Vec<PoolCounts> = Vec::new();
        loop {
            let first = RangeRequest::all((from, end.clone()));
            let first = RangeRequest { limit: 1, keys_only: true, ..first };
            let Some(first) = self.shared.link.range(first).await?.kvs.pop() else { break };
            let (pool, _) = keys.task_of(&first.key).ok_or_else(strange)?;
            let all = keys.tasks(Some(&pool));
            from = all.1.clone();
            let ranges = [
                all,
                keys.tasks_line(&pool),
                keys.tasks_later(&pool),
                keys.tasks_held(&pool, true),
                keys.tasks_held(&pool, false),
                keys.tasks_apart(&pool, true),
                keys.tasks_apart(&pool, false),
            ];
            let count = |range| RangeRequest { count_only: true, ..RangeRequest::all(range) };
            let answer = self.read(ranges.map(count).into()).await?;
            let mut found = answer.counted_ranges().map(|range| range.count.cast_unsigned());
            let mut next = || found.next().unwrap_or_default();
            let (all, line, later) = (next(), next(), next());
            let (held, delayed, failed, claimed) = (next(), next(), next(), next());
            counts.push(PoolCounts {
                pool,
                ready: line + later.saturating_sub(held + delayed),
                delayed,
                claimed: held + claimed,
                done: all.saturating_sub(line + later + failed + claimed),
                failed,
                waiting: 0,
            });
        }
        counts.sort_by(|one, other| one.pool.cmp(&other.pool));
        Ok(counts)
    }
}

fn strange() -> Failed {
    refused("something else stands where tasks are")
}

impl TaskStore for EtcdTasks {
    fn take(&self, take: Take) -> Pending<Result<Taken, StoreError>> {
        let place = Arc::clone(&self.place);
        Box::pin(async move { Ok(place.take(take).await?) })
    }

    fn change(&self, change: Change) -> Pending<Result<Written, StoreError>> {
        let place = Arc::clone(&self.place);
        Box::pin(async move { Ok(place.change(change).await?) })
    }

    fn task(&self, pool: &Text, key: &Text) -> Pending<Result<Seen, StoreError>> {
        let (place, pool, key) = (Arc::clone(&self.place), pool.clone(), key.clone());
        Box::pin(async move { Ok(place.task(pool, key).await?) })
    }

    fn page(&self, page: Page) -> Pending<Result<(u64, Vec<TaskRecord>), StoreError>> {
        let place = Arc::clone(&self.place);
        Box::pin(async move { Ok(place.page(page).await?) })
    }

    fn counts(&self, pool: Option<Text>) -> Pending<Result<Vec<PoolCounts>, StoreError>> {
        let place = Arc::clone(&self.place);
        Box::pin(async move { Ok(place.counts(pool).await?) })
    }

    fn told(&self) -> UnboundedReceiver<Told> {
        self.told.lock().take().unwrap_or_else(|| unbounded_channel().1)
    }

    fn lease_unit_ms(&self) -> u64 {
        1_000
    }
}
