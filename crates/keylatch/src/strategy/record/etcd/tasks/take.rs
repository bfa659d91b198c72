//! How the next task is found and claimed. A look costs the same however many tasks there are: etcd walks
//! along all keys of a range, whatever the limit, so ranges end early.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use keylatch_table::{TaskState, Text};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use super::super::super::tasks::store::{NOTED_MS, Take, Taken, TaskRecord};
use super::super::keys::{Keys, Range};
use super::super::leases::Label;
use super::super::link::Failed;
use super::super::wall_ms;
use super::super::wire::{Compare, KeyValue, Op, RangeRequest, RangeResponse, TxnRequest};
use super::keep::Kept;
use super::{Came, Place};

/// So many of the line are looked at, and more if there are many who take: on a conflict one goes on with
/// another one of them.
const LINE: u32 = 16;
const LONG_LINE: u32 = 64;
/// So many of those that will be due. Behind so many the order is not exact.
const LATER: u32 = 40;
/// If there are more, a range ends behind so many, until few of them are left.
const WINDOW: i64 = if cfg!(test) { 20 } else { 2_000 };
/// Fewer than so many.
const FEW_IN_LINE: usize = 8;
const FEW_LATER: usize = 20;
/// How many of those it found a take tries before it looks again.
const PICKS: usize = 4;
/// How often a take looks, if others are always quicker; then it is answered as if there were nothing.
const TAKES: usize = 100;

/// Where ranges end; if there is no end, there are few.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    line: Option<Vec<u8>>,
    /// What follows the part that later ones and held ones do not have in common.
    later: Option<Vec<u8>>,
}

/// What was found for a take.
enum Found {
    Taken(Taken),
    /// Keys of records in the order of the line.
    Candidates(Vec<Vec<u8>>),
}

fn nothing(record: Option<TaskRecord>) -> Found {
    Found::Taken(Taken::Nothing { now: wall_ms(), record, next_ms: None })
}

/// A range, or only its beginning.
fn until((from, to): Range, end: Option<&Vec<u8>>) -> RangeRequest {
    RangeRequest::all((from, end.cloned().unwrap_or(to)))
}

impl Place {
    pub(super) async fn take(&self, take: Take) -> Result<Taken, Failed> {
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
            for _ in 0..PICKS.min(free.len()) {
                // The first, unless others are mostly quicker: then any of the first ones.
                let spread = self.spread.load(Ordering::Relaxed);
                let first = rand::random_range(0..=spread) as usize;
                let key = free.remove(first.min(free.len() - 1));
                let Some(_mine) = Mine::take(&self.busy, key.clone()) else { continue };
                let taken = match self.kept(key).await? {
                    Some(before) => self.claim(&take, before).await?,
                    None => None,
                };
                let wide = self.spread.load(Ordering::Relaxed);
                if let Some(taken) = taken {
                    self.spread.store(wide.saturating_sub(1), Ordering::Relaxed);
                    return Ok(taken);
                }
                self.spread.store((wide * 2 + 1).min(LONG_LINE - 1), Ordering::Relaxed);
            }
        }
        Ok(Taken::Nothing { now: wall_ms(), record: None, next_ms: Some(10) })
    }

    /// What there is to take, or what was taken before, or nothing.
    async fn look(&self, take: &Take) -> Result<Found, Failed> {
        let keys = &self.shared.keys;
        let claim = RangeRequest::one(keys.task_claim(&take.id.to_string()));
        if let Some(key) = &take.key {
            let one = RangeRequest::one(keys.task(&take.pool, key));
            let mut found = self.read(vec![claim, one]).await?.ranges();
            if let Some(before) = self.taken_before(take, found.next()).await? {
                return Ok(before);
            }
            let Some(kv) = found.next().and_then(|kvs| kvs.into_iter().next()) else {
                return Ok(nothing(None));
            };
            let kept = self.parse(&kv)?;
            let open = matches!(kept.record.state, TaskState::Free | TaskState::Claimed);
            let can_be = open && kept.record.ready.is_some();
            let record = self.alive(vec![kept]).await?.pop();
            if can_be && record.as_ref().is_some_and(|record| record.alive == Some(false)) {
                return Ok(Found::Candidates(vec![kv.key]));
            }
            return Ok(nothing(record));
        }
        let pool = &*take.pool;
        let mut window = self.windows.lock().get(&take.pool).cloned().unwrap_or_default();
        let (mut line, due) = loop {
            let line = until(keys.tasks_line(pool), window.line.as_ref());
            let spread = self.spread.load(Ordering::Relaxed);
            let limit = (spread * 2).clamp(LINE, LONG_LINE);
            let later = |range: Range, keys_only: bool| {
                let end = window.later.as_ref().map(|end| [&*range.0, end].concat());
                let range = until(range, end.as_ref());
                RangeRequest { limit: LATER.into(), keys_only, ..range }
            };
            let asks = vec![
                claim.clone(),
                RangeRequest { limit: limit.into(), ..line },
                later(keys.tasks_later(pool), false),
                later(keys.tasks_held(pool, true), true),
                later(keys.tasks_held(pool, false), true),
            ];
            let mut found = self.read(asks).await?.counted_ranges();
            let before = found.next().map(|range| range.kvs);
            if let Some(before) = self.taken_before(take, before).await? {
                return Ok(before);
            }
            let mut next = || found.next().unwrap_or_default();
            let (line, later, claimed, delayed) = (next(), next(), next(), next());
            let few = (window.line.is_some() && line.kvs.len() < FEW_IN_LINE)
                || (window.later.is_some() && later.kvs.len() < FEW_LATER);
            self.fit(&take.pool, &mut window, &line, &later).await?;
            if !few {
                let held = [(claimed.kvs, true), (delayed.kvs, false)];
                break (line.kvs, self.due(pool, later.kvs, held));
            }
        };
        if !due.is_empty() {
            line.extend(self.put_in_line(due).await?);
        }
        if line.is_empty() {
            return Ok(nothing(None));
        }
        // By priority and time, and then by who came first.
        line.sort_by_key(|kv| (Keys::rank_of(&kv.key), kv.create_revision));
        let tasks = line.iter().filter_map(|kv| keys.task_in_line(pool, &kv.key));
        Ok(Found::Candidates(tasks.collect()))
    }

    /// What this claim took before, if it did.
    async fn taken_before(
        &self,
        take: &Take,
        found: Option<Vec<KeyValue>>,
    ) -> Result<Option<Found>, Failed> {
        if let Some(before) = found.and_then(|kvs| kvs.into_iter().next())
            && let Some(kept) = self.kept(before.value).await?
            && kept.claim_id == take.id.to_string()
            && kept.record.pool == take.pool
        {
            let now = wall_ms();
            let record = self.alive(vec![kept]).await?.pop();
            let taken = record.map(|record| Found::Taken(Taken::Task { now, record }));
            return Ok(Some(taken.unwrap_or_else(|| nothing(None))));
        }
        Ok(None)
    }

    /// Where ranges end from now on: an end that has little before it is forgotten, and one is found where
    /// there is none and there are many.
    async fn fit(
        &self,
        pool: &Text,
        window: &mut Window,
        line: &RangeResponse,
        later: &RangeResponse,
    ) -> Result<(), Failed> {
        let keys = &self.shared.keys;
        let mut changed = false;
        let start = keys.tasks_later(pool).0.len();
        for (end, found, least, skip, all) in [
            (&mut window.line, line, FEW_IN_LINE, 0, keys.tasks_line(pool)),
            // Only what follows that part: it is the same for those that are held.
            (&mut window.later, later, FEW_LATER, start, keys.tasks_later(pool)),
        ] {
            if end.is_some() {
                if found.kvs.len() < least {
                    (*end, changed) = (None, true);
                }
            } else if found.count > WINDOW {
                let first =
                    RangeRequest { limit: WINDOW, keys_only: true, ..RangeRequest::all(all) };
                let last = self.shared.link.range(first).await?.kvs.pop();
                (*end, changed) = (last.map(|last| last.key[skip..].to_vec()), true);
            }
        }
        if changed {
            self.windows.lock().insert(pool.clone(), window.clone());
        }
        Ok(())
    }

    /// Of those that will be due, those that are: nothing on a lease stands beside them.
    fn due(
        &self,
        pool: &str,
        later: Vec<KeyValue>,
        held: [(Vec<KeyValue>, bool); 2],
    ) -> Vec<KeyValue> {
        let keys = &self.shared.keys;
        let place = |kv: &KeyValue, range: Range| kv.key[range.0.len()..].to_vec();
        let (mut all, mut seen) = (BTreeSet::new(), None::<Vec<u8>>);
        for (some, claimed) in held {
            let places = some.iter().map(|kv| place(kv, keys.tasks_held(pool, claimed)));
            let places: Vec<Vec<u8>> = places.collect();
            // All are in the same order, so all of the first ones are seen.
            if places.len() >= LATER as usize {
                seen = places.last().cloned().into_iter().chain(seen).min();
            }
            all.extend(places);
        }
        let is_due = |kv: &KeyValue| {
            let place = place(kv, keys.tasks_later(pool));
            !all.contains(&place) && seen.as_ref().is_none_or(|last| place < *last)
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
                self.remember(&after, stamp);
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
