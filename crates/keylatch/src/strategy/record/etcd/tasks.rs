//! Tasks in etcd: a key for each, and keys beside it by which the next one is found. What is claimed or
//! delayed has a key on a lease of etcd: when that is gone, its time has come. Times are only for those who
//! look, and for the order; whose time has come is etcd's to say.
//!
//! | key below `t/` | what | lease |
//! |---|---|---|
//! | `r/POOL/KEY` | the task; its version is its revision | |
//! | `q/POOL/PRIORITY TIME/KEY` | it stands in the line | |
//! | `l/POOL/TIME/KEY` | it will be due; its value is its place in the line | |
//! | `h/POOL/TIME/KEY` | it is not due yet, as long as this is there | of who claimed or delayed it |
//! | `c/ID` | what a claim took, while the task has that claim | |
//! | `w/POOL` | somebody waits there | of who does |

mod keep;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use keylatch_table::{PoolCounts, TaskState, Text};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Duration, Instant};

use self::keep::Kept;
pub(super) use self::keep::{hear, news};
use super::super::store::StoreError;
use super::super::tasks::store::{
    Change, NOTED_MS, Page, Ready, Seen, Stamp, Take, Taken, TaskRecord, TaskStore, Told, Write,
    Written,
};
use super::keys::{Base, Keys, next};
use super::leases::Label;
use super::link::{Failed, refused};
use super::wire::{Compare, KeyValue, Op, RangeRequest, TxnRequest, TxnResponse};
use super::{Shared, TRIES, wall_ms};
use crate::strategy::Pending;

/// So many of the line are looked at by a take: on a conflict it goes on with another one of them.
const LINE: i64 = 16;
/// So many of those that will be due. Behind so many the order is not exact.
const LATER: i64 = 40;
/// How often a take tries, if others are always quicker; then it is answered as if there were nothing.
const TAKES: usize = 100;
/// At most so many tasks are read at once.
const PAGE: i64 = 100;

struct Place {
    shared: Arc<Shared>,
    /// Tasks that this process is about to take: it does not get in its own way.
    busy: Mutex<HashSet<Vec<u8>>>,
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
        let place = Place { shared, busy: Mutex::default(), noted: Mutex::default() };
        EtcdTasks { place: Arc::new(place), told: Mutex::new(Some(told)) }
    }
}

/// What a write came to.
enum Came {
    Done(Stamp),
    /// Somebody else has written it.
    Other,
}

/// What was found for a take.
enum Found {
    Taken(Taken),
    /// Keys of records in the order of the line.
    Candidates(Vec<Vec<u8>>),
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
        let TaskRecord { pool, key, ready, .. } = &kept.record;
        self.shared.keys.task_held(pool, ready.unwrap_or(0), key)
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
                        come.push((keys.task_held(pool, *ready, key), Vec::new(), lease));
                    }
                    (Some(_), None) if *state == TaskState::Free => {
                        come.push((rank, Vec::new(), 0));
                    }
                    _ => {}
                }
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
                let held = keys.task_held(pool, ready.unwrap_or(0), key);
                let label = Label::Task(held, pool.clone(), key.clone());
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
        [line, keys.task_later(pool, ready, key), keys.task_held(pool, ready, key)].into()
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

    async fn take(&self, take: Take) -> Result<Taken, Failed> {
        for attempt in 0..TAKES {
            let candidates = match self.look(&take).await? {
                Found::Taken(taken @ Taken::Nothing { .. }) => {
                    if !take.waits || !self.note(&take.pool).await? {
                        return Ok(taken);
                    }
                    // From here on it is told; what was written until here is looked at again.
                    continue;
                }
                Found::Taken(taken) => return Ok(taken),
                Found::Candidates(candidates) => candidates,
            };
            let mut free: Vec<Vec<u8>> = {
                let busy = self.busy.lock();
                candidates.into_iter().filter(|one| !busy.contains(one)).collect()
            };
            if free.is_empty() {
                tokio::time::sleep(Duration::from_millis(1 + attempt.min(20) as u64)).await;
                continue;
            }
            // Who was too slow for the first goes on with any of the others.
            let at = if attempt == 0 { 0 } else { rand::random_range(0..free.len()) };
            let key = free.swap_remove(at);
            let Some(_mine) = Mine::take(&self.busy, key.clone()) else { continue };
            let Some(before) = self.kept(key).await? else { continue };
            if let Some(taken) = self.claim(&take, before).await? {
                return Ok(taken);
            }
        }
        Ok(Taken::Nothing { now: wall_ms(), record: None, next_ms: Some(10) })
    }

    /// What there is to take, or what was taken before, or nothing.
    async fn look(&self, take: &Take) -> Result<Found, Failed> {
        let keys = &self.shared.keys;
        let claim = RangeRequest::one(keys.task_claim(&take.id.to_string()));
        let mut asks = vec![claim];
        if let Some(key) = &take.key {
            asks.push(RangeRequest::one(keys.task(&take.pool, key)));
        } else {
            let line = RangeRequest::all(keys.tasks_line(&take.pool));
            asks.push(RangeRequest { limit: LINE, ..line });
            let later = RangeRequest::all(keys.tasks_later(&take.pool));
            asks.push(RangeRequest { limit: LATER, ..later });
            let held = RangeRequest::all(keys.tasks_held(&take.pool));
            asks.push(RangeRequest { limit: LATER, keys_only: true, ..held });
        }
        let answer = self.read(asks).await?;
        let mut found = answer.ranges();
        if let Some(before) = found.next().and_then(|kvs| kvs.into_iter().next())
            && let Some(kept) = self.kept(before.value).await?
            && kept.claim_id == take.id.to_string()
            && kept.record.pool == take.pool
        {
            let records = self.alive(vec![kept]).await?;
            let now = wall_ms();
            return Ok(records.into_iter().next().map_or(
                Found::Taken(Taken::Nothing { now, record: None, next_ms: None }),
                |record| Found::Taken(Taken::Task { now, record }),
            ));
        }
        if take.key.is_some() {
            let Some(kv) = found.next().and_then(|kvs| kvs.into_iter().next()) else {
                let now = wall_ms();
                return Ok(Found::Taken(Taken::Nothing { now, record: None, next_ms: None }));
            };
            let kept = self.parse(&kv)?;
            let open = matches!(kept.record.state, TaskState::Free | TaskState::Claimed);
            let can_be = open && kept.record.ready.is_some();
            let record = self.alive(vec![kept]).await?.pop();
            if can_be && record.as_ref().is_some_and(|record| record.alive == Some(false)) {
                return Ok(Found::Candidates(vec![kv.key]));
            }
            let now = wall_ms();
            return Ok(Found::Taken(Taken::Nothing { now, record, next_ms: None }));
        }
        let (line, later, held) = (found.next(), found.next(), found.next());
        let mut line = line.unwrap_or_default();
        let due = self.due(&take.pool, later.unwrap_or_default(), &held.unwrap_or_default());
        if !due.is_empty() {
            line.extend(self.put_in_line(due).await?);
        }
        if line.is_empty() {
            let now = wall_ms();
            return Ok(Found::Taken(Taken::Nothing { now, record: None, next_ms: None }));
        }
        // By priority and time, and then by who came first.
        line.sort_by_key(|kv| (Keys::rank_of(&kv.key), kv.create_revision));
        let tasks = line.iter().filter_map(|kv| keys.task_in_line(&take.pool, &kv.key));
        Ok(Found::Candidates(tasks.collect()))
    }

    /// Of those that will be due, those that are: nothing on a lease stands beside them.
    fn due(&self, pool: &str, later: Vec<KeyValue>, held: &[KeyValue]) -> Vec<KeyValue> {
        let keys = &self.shared.keys;
        let place = |kv: &KeyValue, range: (Vec<u8>, Vec<u8>)| kv.key[range.0.len()..].to_vec();
        let held: BTreeSet<Vec<u8>> =
            held.iter().map(|kv| place(kv, keys.tasks_held(pool))).collect();
        // Both are in the same order, so all of the first ones are seen.
        let seen = if held.len() < LATER as usize { None } else { held.last().cloned() };
        let is_due = |kv: &KeyValue| {
            let place = place(kv, keys.tasks_later(pool));
            !held.contains(&place) && seen.as_ref().is_none_or(|last| place < *last)
        };
        later.into_iter().filter(is_due).collect()
    }

    /// They stand in the line from now on, as far as nobody was quicker.
    async fn put_in_line(&self, due: Vec<KeyValue>) -> Result<Vec<KeyValue>, Failed> {
        let one = |kv: &KeyValue| {
            let success =
                vec![Op::delete(kv.key.clone()), Op::put(kv.value.clone(), Vec::new(), 0)];
            let compare = vec![Compare::written(kv.key.clone(), kv.mod_revision)];
            Op::txn(TxnRequest { compare, success, failure: Vec::new() })
        };
        let success = due.iter().map(one).collect();
        let txn = TxnRequest { success, ..TxnRequest::default() };
        let answer = self.shared.link.repeatable(txn).await?;
        let came = due.into_iter().zip(answer.inner()).filter(|(_, inner)| inner.succeeded);
        Ok(came.map(|(kv, _)| KeyValue { key: kv.value.clone(), ..kv }).collect())
    }

    /// Nothing, if somebody was quicker. It may have been claimed, or finished, since it was seen in the line.
    async fn claim(&self, take: &Take, before: Kept) -> Result<Option<Taken>, Failed> {
        if before.record.ready.is_none() {
            return Ok(None);
        }
        let (now, held_ms) = (wall_ms(), (take.lease_ms > 0).then_some(take.lease_ms));
        let mut after = before.clone();
        after.claim_id = take.id.to_string();
        after.record.state = TaskState::Claimed;
        after.record.last.time = now;
        after.record.ready = held_ms.map(|ms| now + ms);
        after.record.claim = Arc::clone(&take.claim);
        match self.write(Some(&before), &after, held_ms, true, true).await? {
            Came::Other => Ok(None),
            Came::Done(stamp) => {
                let alive = Some(held_ms.is_some());
                let record = TaskRecord { last: stamp, alive, ..after.record };
                Ok(Some(Taken::Task { now: wall_ms(), record }))
            }
        }
    }

    /// It is known from now on that somebody waits there. False, if it was.
    async fn note(&self, pool: &Text) -> Result<bool, Failed> {
        let known = self.noted.lock().get(pool).copied();
        let fresh = |since: Instant| since.elapsed() < Duration::from_millis(NOTED_MS / 3);
        if known.is_some_and(fresh) {
            return Ok(false);
        }
        let lease = self.shared.lease(NOTED_MS).await?;
        let key = self.shared.keys.task_noted(pool);
        let success = vec![Op::put(key.clone(), Vec::new(), lease)];
        let txn = TxnRequest { success, ..TxnRequest::default() };
        let revision = self.shared.on(&[lease], txn).await?.revision();
        self.begin(Label::Noted(key), revision, lease, NOTED_MS);
        self.noted.lock().insert(pool.clone(), Instant::now());
        Ok(true)
    }

    async fn change(&self, change: Change) -> Result<Written, Failed> {
        let task = self.shared.keys.task(&change.pool, &change.key);
        loop {
            let before = self.kept(task.clone()).await?;
            let present = before.as_ref().map(|before| before.record.last.version);
            if present != change.expect {
                let records = self.alive(before.into_iter().collect()).await?;
                let record = records.into_iter().next();
                return Ok(Written::Other(Seen { now: wall_ms(), record }));
            }
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
                        Ready::After(ms) if ms > 0 => Some(ms),
                        _ => None,
                    };
                    let moves = !matches!(put.ready, Ready::At(_));
                    let after = Kept::new(&change, put, before.as_ref(), now, ready);
                    self.write(before.as_ref(), &after, held_ms, moves, false).await?
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
            let some = RangeRequest { limit: PAGE, ..all.created_after(after) };
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

    /// By reading all of them.
    async fn counts(&self, pool: Option<Text>) -> Result<Vec<PoolCounts>, Failed> {
        let (mut from, end) = self.shared.keys.tasks(pool.as_deref());
        let mut counts: Vec<PoolCounts> = Vec::new();
        loop {
            let some = RangeRequest::all((from, end.clone()));
            let some = self.shared.link.range(RangeRequest { limit: PAGE, ..some }).await?;
            let kept = some.kvs.iter().map(|kv| self.parse(kv)).collect::<Result<Vec<_>, _>>()?;
            for record in self.alive(kept).await? {
                if counts.last().is_none_or(|last| last.pool != record.pool) {
                    let pool = record.pool.clone();
                    counts.push(PoolCounts { pool, ..PoolCounts::default() });
                }
                let Some(last) = counts.last_mut() else { continue };
                let due = record.ready.is_some() && record.alive == Some(false);
                match record.state {
                    TaskState::Free | TaskState::Claimed if due => last.ready += 1,
                    TaskState::Free => last.delayed += 1,
                    TaskState::Claimed => last.claimed += 1,
                    TaskState::Done => last.done += 1,
                    TaskState::Failed => last.failed += 1,
                }
            }
            match some.kvs.into_iter().next_back() {
                Some(kv) if some.more => from = next(kv.key),
                _ => break,
            }
        }
        counts.sort_by(|one, other| one.pool.cmp(&other.pool));
        Ok(counts)
    }
}

fn strange() -> Failed {
    refused("something else stands where tasks are")
}

/// A task that this process is about to take.
struct Mine<'a> {
    busy: &'a Mutex<HashSet<Vec<u8>>>,
    key: Vec<u8>,
}

impl<'a> Mine<'a> {
    fn take(busy: &'a Mutex<HashSet<Vec<u8>>>, key: Vec<u8>) -> Option<Mine<'a>> {
        let is_new = busy.lock().insert(key.clone());
        // Made only then: one that is dropped says that nobody is about to take it any more.
        is_new.then(|| Mine { busy, key })
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        self.busy.lock().remove(&self.key);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_second_leaves_a_task_to_the_first() {
        let busy = Mutex::default();
        let first = Mine::take(&busy, b"a".to_vec()).unwrap();
        assert!(Mine::take(&busy, b"a".to_vec()).is_none());
        assert!(Mine::take(&busy, b"a".to_vec()).is_none(), "the first is still about to take it");
        drop(first);
        assert!(Mine::take(&busy, b"a".to_vec()).is_some());
    }
}
