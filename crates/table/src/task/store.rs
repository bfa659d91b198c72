//! Where tasks and waiting claims are kept, and the indexes that find the next one in constant
//! time, however large the pool. It keeps no rules.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::board::deadlines::NEVER;
use crate::board::ended::Memory;
use crate::board::index::Index;
use crate::board::slab::Slab;
use crate::task::{Body, TaskReply, TaskState};
use crate::{Party, RequestId, Text};

/// What a task costs beside its texts; part of the bound on all tasks together.
const TASK_BYTES: u64 = 200;

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) pool: Text,
    pub(crate) key: Text,
    /// In the order of creation.
    pub(crate) number: u64,
    pub(crate) body: Option<Body>,
    pub(crate) state: TaskState,
    pub(crate) version: u64,
    pub(crate) priority: i32,
    pub(crate) attempts: u32,
    /// The attempts after which it is failed, if it has a number of its own.
    pub(crate) attempts_most: Option<u32>,
    pub(crate) created: u64,
    /// When it became, or becomes, ready.
    pub(crate) ready: u64,
    pub(crate) error: Option<Text>,
    /// The claim it has, or had last.
    pub(crate) claim: Option<TaskClaim>,
    /// Free because the lease of `claim` ran out: its holder may still take it up again.
    pub(crate) lapsed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct TaskClaim {
    pub(crate) id: RequestId,
    pub(crate) token: u64,
    pub(crate) owner: Text,
    pub(crate) at: u64,
    pub(crate) lease_ms: u64,
    /// When the lease ends; meaningful while the task is claimed.
    pub(crate) end: u64,
    /// Granted to a claim whose connection was gone, and not confirmed since.
    pub(crate) detached: bool,
}

impl Task {
    pub(crate) fn bytes(&self) -> u64 {
        let body = self.body.as_ref().map_or(0, |body| body.bytes.len());
        let error = self.error.as_ref().map_or(0, |error| error.len());
        TASK_BYTES + (self.pool.len() + self.key.len() + body + error) as u64
    }

    /// When time alone changes its state; [`NEVER`] if it does not.
    fn deadline(&self, now: u64) -> u64 {
        match (&self.claim, self.state) {
            (Some(claim), TaskState::Claimed) => claim.end,
            (_, TaskState::Free) if self.ready > now => self.ready,
            _ => NEVER,
        }
    }

    /// The order in which ready tasks are claimed.
    fn rank(&self) -> Rank {
        (Reverse(self.priority), self.ready, self.number)
    }
}

type Rank = (Reverse<i32>, u64, u64);

/// A claim that waits.
#[derive(Clone, Debug)]
pub(crate) struct ClaimNode {
    pub(crate) id: RequestId,
    pub(crate) seq: u64,
    pub(crate) pool: Text,
    /// The task it wants, or any.
    pub(crate) key: Option<Text>,
    pub(crate) party: Party,
    pub(crate) lease_ms: u64,
    /// When it was last asked for.
    pub(crate) asked: u64,
    pub(crate) end: u64,
    /// While its connection is gone: the grace and when it ends.
    pub(crate) grace: Option<(u64, u64)>,
    /// Stands for what was asked.
    pub(crate) print: u64,
}

impl ClaimNode {
    pub(crate) fn deadline(&self) -> u64 {
        self.grace.map_or(self.end, |(_, end)| end.min(self.end))
    }
}

/// A remembered answer.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) id: RequestId,
    /// Stands for what was asked.
    pub(crate) print: u64,
    /// Of a claim: without the body, which the task still has if the claim is still good.
    pub(crate) reply: TaskReply,
    pub(crate) pool: Text,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    pub(crate) tasks: BTreeMap<u64, u32>,
    pub(crate) ready: BTreeMap<Rank, u32>,
    pub(crate) failed: BTreeSet<u64>,
    pub(crate) claimed: u64,
    pub(crate) done: u64,
    /// Waiting any-claims by seq.
    pub(crate) any: BTreeMap<u64, u32>,
    /// Waiting claims of one task, by key and seq.
    pub(crate) named: BTreeMap<Text, BTreeMap<u64, u32>>,
    pub(crate) waiting: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Tasks {
    hash: FixedState,
    pub(crate) tasks: Slab<Task>,
    index: Index,
    pub(crate) pools: BTreeMap<Text, Pool>,
    /// Tasks that time will change: (when, number, slot).
    deadlines: BTreeSet<(u64, u64, u32)>,
    claims: Slab<ClaimNode>,
    claim_ids: HashMap<RequestId, u32, FixedState>,
    /// Waiting claims by (deadline, seq, slot).
    claim_deadlines: BTreeSet<(u64, u64, u32)>,
    pub(crate) answers: Memory<Answered>,
    answer_ids: HashMap<RequestId, u32, FixedState>,
    /// The bytes of all tasks together.
    bytes: u64,
    /// The number of the newest task.
    pub(crate) number: u64,
    /// Nothing here ends earlier than this; it may be later.
    pub(crate) next: u64,
    /// Tasks that became ready in this step while somebody waited in their pool.
    pub(crate) fresh: BTreeSet<u32>,
}

impl Tasks {
    pub(crate) fn new(hash_seed: u64) -> Tasks {
        let hash = FixedState::with_seed(hash_seed);
        Tasks {
            hash: hash.clone(),
            tasks: Slab::default(),
            index: Index::default(),
            pools: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            claims: Slab::default(),
            claim_ids: HashMap::with_hasher(hash.clone()),
            claim_deadlines: BTreeSet::new(),
            answers: Memory::default(),
            answer_ids: HashMap::with_hasher(hash),
            bytes: 0,
            number: 0,
            next: NEVER,
            fresh: BTreeSet::new(),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.tasks.len() as u64
    }

    /// Keeps all tasks as they are now, for a snapshot.
    pub(crate) fn keep_past(&mut self) {
        self.tasks.keep_past();
    }

    pub(crate) fn drop_past(&mut self) {
        self.tasks.drop_past();
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.claims.len() as u64
    }

    /// Works out `next` anew, once everything due has been dealt with.
    pub(crate) fn find_next(&mut self) {
        let first = |set: &BTreeSet<(u64, u64, u32)>| set.first().map_or(NEVER, |(at, ..)| *at);
        self.next = first(&self.deadlines).min(first(&self.claim_deadlines));
    }

    // ---- tasks -----------------------------------------------------------------------------

    pub(crate) fn find(&self, pool: &str, key: &str) -> Option<u32> {
        let hash = self.hash.hash_one((pool, key));
        let same = |at| *self.tasks[at].pool == *pool && *self.tasks[at].key == *key;
        self.index.find(hash, same)
    }

    pub(crate) fn task(&self, at: u32) -> &Task {
        &self.tasks[at]
    }

    pub(crate) fn insert(&mut self, task: Task, now: u64) -> u32 {
        let hash = self.hash.hash_one((&*task.pool, &*task.key));
        self.bytes += task.bytes();
        let (pool, number) = (task.pool.clone(), task.number);
        let at = self.tasks.insert(task);
        let (tasks, hasher) = (&self.tasks, &self.hash);
        self.index.insert(hash, at, |at| hasher.hash_one((&*tasks[at].pool, &*tasks[at].key)));
        self.pools.entry(pool).or_default().tasks.insert(number, at);
        self.place(at, now);
        at
    }

    pub(crate) fn remove(&mut self, at: u32, now: u64) {
        self.displace(at, now);
        let task = self.tasks.remove(at);
        self.bytes -= task.bytes();
        let hash = self.hash.hash_one((&*task.pool, &*task.key));
        self.index.remove(hash, at);
        let pool = self.pools.get_mut(&task.pool).expect("a task has a pool");
        pool.tasks.remove(&task.number);
        self.prune(&task.pool);
    }

    /// Changes a task, whatever of it the indexes know. `now` must be the time of the last change,
    /// or time must not have passed its deadline since.
    pub(crate) fn change(&mut self, at: u32, now: u64, change: impl FnOnce(&mut Task)) {
        self.displace(at, now);
        self.bytes -= self.tasks[at].bytes();
        change(&mut self.tasks[at]);
        self.bytes += self.tasks[at].bytes();
        self.place(at, now);
    }

    /// The first task whose time has come.
    pub(crate) fn due(&self, now: u64) -> Option<u32> {
        self.deadlines.first().filter(|(at, ..)| *at <= now).map(|(.., at)| *at)
    }

    /// A delayed task has become ready by the passing of time.
    pub(crate) fn wake(&mut self, at: u32, now: u64) {
        let task = &self.tasks[at];
        self.deadlines.remove(&(task.ready, task.number, at));
        self.place(at, now);
    }

    fn place(&mut self, at: u32, now: u64) {
        let task = &self.tasks[at];
        let deadline = task.deadline(now);
        if deadline != NEVER {
            self.deadlines.insert((deadline, task.number, at));
            self.next = self.next.min(deadline);
        }
        let pool = self.pools.get_mut(&task.pool).expect("a task has a pool");
        match task.state {
            TaskState::Free if deadline == NEVER => {
                pool.ready.insert(task.rank(), at);
                if pool.waiting > 0 {
                    self.fresh.insert(at);
                }
            }
            TaskState::Free => {}
            TaskState::Claimed => pool.claimed += 1,
            TaskState::Done => pool.done += 1,
            TaskState::Failed => drop(pool.failed.insert(task.number)),
        }
    }

    fn displace(&mut self, at: u32, now: u64) {
        let task = &self.tasks[at];
        self.deadlines.remove(&(task.deadline(now), task.number, at));
        self.fresh.remove(&at);
        let pool = self.pools.get_mut(&task.pool).expect("a task has a pool");
        match task.state {
            TaskState::Free => drop(pool.ready.remove(&task.rank())),
            TaskState::Claimed => pool.claimed -= 1,
            TaskState::Done => pool.done -= 1,
            TaskState::Failed => drop(pool.failed.remove(&task.number)),
        }
    }

    fn prune(&mut self, name: &Text) {
        let pool = &self.pools[name];
        if pool.tasks.is_empty() && pool.waiting == 0 {
            self.pools.remove(name);
        }
    }

    pub(crate) fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.get(name)
    }

    // ---- waiting claims --------------------------------------------------------------------

    pub(crate) fn claim_of(&self, id: &RequestId) -> Option<u32> {
        self.claim_ids.get(id).copied()
    }

    pub(crate) fn claim(&self, at: u32) -> &ClaimNode {
        &self.claims[at]
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = (u32, &ClaimNode)> {
        self.claims.iter()
    }

    pub(crate) fn enqueue(&mut self, claim: ClaimNode) {
        let pool = self.pools.entry(claim.pool.clone()).or_default();
        let (id, seq, deadline) = (claim.id.clone(), claim.seq, claim.deadline());
        let key = claim.key.clone();
        let at = self.claims.insert(claim);
        match key {
            None => pool.any.insert(seq, at),
            Some(key) => pool.named.entry(key).or_default().insert(seq, at),
        };
        pool.waiting += 1;
        self.claim_ids.insert(id, at);
        self.claim_deadlines.insert((deadline, seq, at));
        self.next = self.next.min(deadline);
    }

    pub(crate) fn dequeue(&mut self, at: u32) -> ClaimNode {
        let claim = self.claims.remove(at);
        self.claim_deadlines.remove(&(claim.deadline(), claim.seq, at));
        self.claim_ids.remove(&claim.id);
        let pool = self.pools.get_mut(&claim.pool).expect("a waiting claim has a pool");
        pool.waiting -= 1;
        match &claim.key {
            None => drop(pool.any.remove(&claim.seq)),
            Some(key) => {
                let named = pool.named.get_mut(key).expect("waits for this key");
                named.remove(&claim.seq);
                if named.is_empty() {
                    pool.named.remove(key);
                }
            }
        }
        self.prune(&claim.pool);
        claim
    }

    /// A waiting claim is asked for again: its connection is back.
    pub(crate) fn ask_again(&mut self, at: u32, now: u64, end: u64) {
        self.set_wait(at, end, None);
        self.claims[at].asked = now;
    }

    /// Sets when a waiting claim ends.
    pub(crate) fn set_wait(&mut self, at: u32, end: u64, grace: Option<(u64, u64)>) {
        let claim = &mut self.claims[at];
        self.claim_deadlines.remove(&(claim.deadline(), claim.seq, at));
        (claim.end, claim.grace) = (end, grace);
        self.claim_deadlines.insert((claim.deadline(), claim.seq, at));
        self.next = self.next.min(claim.deadline());
    }

    /// The first waiting claim whose time has come.
    pub(crate) fn due_claim(&self, now: u64) -> Option<u32> {
        self.claim_deadlines.first().filter(|(at, ..)| *at <= now).map(|(.., at)| *at)
    }

    // ---- remembered answers ----------------------------------------------------------------

    pub(crate) fn answered(&self, id: &RequestId) -> Option<&Answered> {
        self.answer_ids.get(id).map(|number| self.answers.get(*number))
    }

    pub(crate) fn remember(&mut self, at: u64, answered: Answered) {
        let id = answered.id.clone();
        let number = self.answers.push(at, answered);
        self.answer_ids.insert(id, number);
    }

    pub(crate) fn forget(&mut self, now: u64, keep_ms: u64, most: u64) {
        while let Some((number, answered)) = self.answers.stale(now, keep_ms, most) {
            self.answer_ids.remove(&answered.id);
            self.answers.take(number);
        }
    }
}
