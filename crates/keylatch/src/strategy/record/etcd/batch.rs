//! Changes of different names that are wanted at the same time go to etcd in one transaction, each with its
//! own conditions: one call, one entry in its log and one revision for all of them. A worker has one of these
//! under way at a time, and what comes meanwhile goes together with the next: with more under way fewer go
//! together, and that costs more than it spares. A change that is alone goes at once.
//!
//! A change is settled here, not by whoever asked for it: that one may have gone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::store::{Change, Committed};
use super::change::{Composed, Ground, OPS, compose, is_small, slots};
use super::keys::{Base, NUMBERS};
use super::leases::Class;
use super::link::{CALL, Failed, refused};
use super::wire::{Compare, KeyValue, Op, RangeRequest, TxnRequest, TxnResponse};
use super::{Shared, value, wall_ms};
use crate::carried::{Carried, Push};

/// How many changes go together. etcd takes 128 operations, and what these leave is what each of them has.
const TOGETHER: usize = 32;

/// What came of a change.
pub(super) enum Came {
    Committed(Committed),
    /// Numbers begin with something else than was thought, so nothing was done.
    OtherBase,
}

pub(super) type Answer = Result<Came, Failed>;

/// A change that is to be made.
struct Job {
    change: Change,
    leases: BTreeMap<Class, i64>,
    now: u64,
    since: Instant,
    answer: oneshot::Sender<Answer>,
}

#[derive(Default)]
pub(super) struct Queue(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Job>,
    /// There is a worker, who sees to those who wait.
    busy: bool,
    /// It is the first of them, who only works while it waits.
    carried: Option<Weak<dyn Push>>,
}

impl Queue {
    fn somebody_waits(&self) -> bool {
        !self.0.lock().waiting.is_empty()
    }

    /// The next ones that can go together: no name twice, because all conditions are looked at before
    /// anything is written. If there is none, nothing is under way any more.
    fn next(&self) -> Option<Vec<Job>> {
        let mut inner = self.0.lock();
        // Calls are bounded, so nobody waits for many of them.
        while inner.waiting.front().is_some_and(|job| job.since.elapsed() > CALL)
            && let Some(job) = inner.waiting.pop_front()
        {
            drop(job.answer.send(Err(too_late())));
        }
        let Some(first) = inner.waiting.pop_front() else {
            inner.busy = false;
            return None;
        };
        let mut numbers = slots(&first.change);
        let mut jobs = vec![first];
        if !is_small(&jobs[0].change) {
            return Some(jobs);
        }
        let mut later = VecDeque::new();
        while jobs.len() < TOGETHER
            && let Some(job) = inner.waiting.pop_front()
        {
            let more = slots(&job.change);
            let names =
                |one: &Job| job.change.names.keys().any(|it| one.change.names.contains_key(it));
            // Those on one name keep their order.
            let apart = jobs.iter().chain(&later).any(names);
            if apart || !is_small(&job.change) || numbers + more > NUMBERS {
                later.push_back(job);
            } else {
                numbers += more;
                jobs.push(job);
            }
        }
        later.append(&mut inner.waiting);
        inner.waiting = later;
        Some(jobs)
    }
}

/// Whoever works for all others. If it ends before its work does, they are not left waiting.
struct Worker {
    store: Arc<Shared>,
    done: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // If it is done, somebody else may be at work by now.
        if !self.done {
            let mut inner = self.store.queue.0.lock();
            inner.busy = false;
            inner.waiting.clear();
        }
    }
}

#[cfg(test)]
impl Shared {
    /// Changes wait until [`Shared::go_on`].
    pub(super) fn hold(&self) {
        self.queue.0.lock().busy = true;
    }

    pub(super) fn go_on(self: &Arc<Self>) {
        tokio::spawn(work(Worker { store: Arc::clone(self), done: false }));
    }
}

impl Shared {
    /// Makes a change on these leases.
    pub(super) async fn make(
        self: &Arc<Self>,
        change: Change,
        leases: BTreeMap<Class, i64>,
    ) -> Answer {
        let (now, since) = (wall_ms(), Instant::now());
        let (answer, mut came) = oneshot::channel();
        let (work, before) = {
            let mut inner = self.queue.0.lock();
            inner.waiting.push_back(Job { change, leases, now, since, answer });
            if std::mem::replace(&mut inner.busy, true) {
                (None, inner.carried.take())
            } else {
                let work = work(Worker { store: Arc::clone(self), done: false });
                let work = Carried::new(&Handle::current(), Box::pin(work));
                inner.carried = Some(work.pusher());
                (Some(work), None)
            }
        };
        if let Some(before) = before.and_then(|before| before.upgrade()) {
            before.push();
        }
        let stopped = |_| Err(Failed { unknown: true, ..refused("it was stopped") });
        if let Some(work) = work {
            // Not longer than for its own: others may have come meanwhile.
            tokio::select! {
                biased;
                came = &mut came => return came.unwrap_or_else(stopped),
                _ = work => {}
            }
        }
        came.await.unwrap_or_else(stopped)
    }

    async fn one(&self, base: Base, job: Job) {
        // One operation is the look at the base.
        let ground = self.ground(base, &job, 0, OPS - 1);
        let composed = compose(&ground, &job.change);
        let mut composed = match composed {
            Ok(composed) => composed,
            Err(text) => return drop(job.answer.send(Err(refused(text)))),
        };
        let mut txn = std::mem::take(&mut composed.txn);
        txn.compare.insert(0, self.is_base(base));
        txn.failure.push(Op::range(RangeRequest::one(self.keys.base())));
        let leases: Vec<i64> = job.leases.values().copied().collect();
        let answer = match self.on(&leases, txn).await {
            Ok(answer) => answer,
            Err(failed) => return drop(job.answer.send(Err(failed))),
        };
        let revision = answer.revision();
        let came = self.settle(&ground, &job, composed, revision, answer, true);
        drop(job.answer.send(Ok(came)));
    }

    async fn together(&self, base: Base, jobs: Vec<Job>) {
        let room = OPS - jobs.len();
        let (mut index, mut all, mut success) = (0, Vec::with_capacity(jobs.len()), Vec::new());
        let mut apart = Vec::new();
        for job in jobs {
            match compose(&self.ground(base, &job, index, room), &job.change) {
                Ok(mut composed) => {
                    success.push(Op::txn(std::mem::take(&mut composed.txn)));
                    let numbers = slots(&job.change);
                    all.push((index, job, composed));
                    index += numbers;
                }
                // Alone it has more room.
                Err(_) => apart.push(job),
            }
        }
        let failure = vec![Op::range(RangeRequest::one(self.keys.base()))];
        let txn = TxnRequest { compare: vec![self.is_base(base)], success, failure };
        let mut leases: Vec<i64> =
            all.iter().flat_map(|(_, job, _)| job.leases.values().copied()).collect();
        leases.sort_unstable();
        leases.dedup();
        let answer = match self.on(&leases, txn).await {
            Ok(answer) => answer,
            // Nothing of it was done, and only one of them may be to blame.
            Err(failed) if !failed.unknown && !failed.unreachable => {
                apart.extend(all.into_iter().map(|(_, job, _)| job));
                return self.one_by_one(base, apart).await;
            }
            Err(failed) => {
                for (_, job, _) in all {
                    drop(job.answer.send(Err(failed.clone())));
                }
                return self.one_by_one(base, apart).await;
            }
        };
        let (revision, is_base) = (answer.revision(), answer.succeeded);
        let mut answers = answer.inner();
        for (index, job, composed) in all {
            let came = match answers.next() {
                Some(answer) if is_base => {
                    let ground = self.ground(base, &job, index, room);
                    self.settle(&ground, &job, composed, revision, answer, false)
                }
                _ => Came::OtherBase,
            };
            drop(job.answer.send(Ok(came)));
        }
        self.one_by_one(base, apart).await;
    }

    /// Those who would wait for too many others are refused.
    async fn one_by_one(&self, base: Base, jobs: Vec<Job>) {
        for job in jobs {
            match job.since.elapsed() > CALL {
                true => drop(job.answer.send(Err(too_late()))),
                false => self.one(base, job).await,
            }
        }
    }

    fn is_base(&self, base: Base) -> Compare {
        Compare::value(self.keys.base(), base.value())
    }

    fn ground<'a>(&'a self, base: Base, job: &'a Job, index: u64, room: usize) -> Ground<'a> {
        Ground { keys: &self.keys, base, leases: &job.leases, now: job.now, index, room }
    }

    /// What an answer means. If it was about this change alone, it ends with what numbers begin with.
    fn settle(
        &self,
        ground: &Ground<'_>,
        job: &Job,
        composed: Composed,
        revision: i64,
        answer: TxnResponse,
        alone: bool,
    ) -> Came {
        if answer.succeeded {
            let done = composed.done(ground, revision, answer);
            self.happened(&job.change, done.version, revision, &job.leases);
            return Came::Committed(Committed::Done(done));
        }
        let mut read = answer.ranges().flatten().collect::<Vec<KeyValue>>();
        if alone {
            let found = read.pop_if(|last| last.key == self.keys.base());
            if found.is_none_or(|found| found.value != ground.base.value()) {
                return Came::OtherBase;
            }
        }
        let names = job.change.names.keys();
        let view = value::view(&self.keys, ground.base, wall_ms(), names, read);
        Came::Committed(Committed::Mismatch(view))
    }
}

/// It was not sent.
fn too_late() -> Failed {
    refused("others before this one had no answer")
}

/// Until nobody waits any more.
async fn work(mut worker: Worker) {
    let store = Arc::clone(&worker.store);
    while let Some(jobs) = store.queue.next() {
        match <[Job; 1]>::try_from(jobs) {
            Ok([job]) => store.one(store.base(), job).await,
            Err(jobs) => store.together(store.base(), jobs).await,
        }
        // Those who have their answers now may want the next thing at once, and go with those who
        // wait already.
        if store.queue.somebody_waits() {
            tokio::task::yield_now().await;
        }
    }
    worker.done = true;
}
