//! `etcd://`: an etcd you already run. A change is one transaction; holders and waiters are keys of their own
//! beside the head, on leases of etcd, so that it is etcd who says whether somebody lives. Clocks of
//! clients are compared with nobody's; the times that are written are for those who look.
//!
//! - `url`: what is behind `etcd://`. `wire`: etcd's messages. `link`: calls, and what their failures mean; `line`: the short way for them.
//! - `keys`: where what stands, and numbers. `value`: what stands there.
//! - `change`: a change as a transaction. `batch`: several of them in one.
//! - `leases`: which leases there are and what is on them. `keeper`: keeps them, ends things, sweeps.
//! - `watch`: what others have done.
//! - `tasks`: tasks, on the same leases.

mod batch;
mod change;
mod keeper;
mod keys;
mod leases;
mod line;
mod link;
mod tasks;
#[cfg(test)]
mod tests;
mod url;
mod value;
mod watch;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use self::batch::{Came, Queue};
use self::change::needs;
use self::keys::{Base, Keys, NUMBERS};
use self::leases::{Class, Label, Table, class, ttl};
use self::link::{Failed, Link, refused};
use self::url::Url;
use self::wire::{Compare, KeyValue, Op, RangeRequest, TxnRequest, TxnResponse};
use super::super::Pending;
use super::store::{Change, Committed, Name, Stand, Store, StoreError, Told, View};
use super::tasks::store::{TaskStore, Told as TaskTold};
use crate::error::ConnectError;

/// How often a change is tried anew because a lease had ended or etcd had lost everything.
const TRIES: usize = 4;
/// How many ranges are read at once; etcd takes 128 operations.
const READS: usize = 100;
/// How many keys are read at once.
const PAGE: i64 = 5_000;

pub(crate) struct Etcd {
    shared: Arc<Shared>,
    /// What is told, until somebody wants to hear it.
    told: Mutex<Option<mpsc::UnboundedReceiver<Told>>>,
}

/// What calls and the tasks beside them have in common.
struct Shared {
    link: Link,
    keys: Keys,
    base: RwLock<Base>,
    /// The largest version that was seen: numbers grow also if etcd begins anew.
    highest: AtomicU64,
    table: Mutex<Table>,
    queue: Queue,
    /// Only one lease is made at a time: who waits for that finds it.
    granting: tokio::sync::Mutex<()>,
    /// There is a new lease.
    granted: Arc<Notify>,
    /// There is something whose time will be over.
    begun: Arc<Notify>,
    tell: mpsc::UnboundedSender<Told>,
    /// Who hears of tasks, once somebody does.
    task_tell: Mutex<Option<mpsc::UnboundedSender<TaskTold>>>,
    /// Nothing goes on beside the calls, as if this process were stopped.
    #[cfg(test)]
    stopped: tokio::sync::watch::Sender<bool>,
}

impl Etcd {
    pub(crate) async fn connect(url: &str) -> Result<Etcd, ConnectError> {
        let url = Url::parse(url).map_err(ConnectError::Url)?;
        let failed = |failed: Failed| match failed.unreachable {
            true => ConnectError::Unreachable(failed.text),
            false => ConnectError::Refused(failed.text),
        };
        let link = Link::open(&url).await.map_err(failed)?;
        let keys = Keys::new(&url.prefix);
        let base = base(&link, &keys, 0).await.map_err(failed)?;
        // From here on nothing is missed, also before somebody listens.
        let events = link.watch(keys.watched()).await.map_err(failed)?;
        let (tell, told) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            link,
            keys,
            base: RwLock::new(base),
            highest: AtomicU64::new(0),
            table: Mutex::default(),
            queue: Queue::default(),
            granting: tokio::sync::Mutex::default(),
            granted: Arc::default(),
            begun: Arc::default(),
            tell: tell.clone(),
            task_tell: Mutex::default(),
            #[cfg(test)]
            stopped: tokio::sync::watch::Sender::new(false),
        });
        tokio::spawn(watch::watch(events, Arc::downgrade(&shared), tell));
        tokio::spawn(keeper::beat(Arc::downgrade(&shared)));
        tokio::spawn(keeper::end(Arc::downgrade(&shared)));
        tokio::spawn(keeper::sweep(Arc::downgrade(&shared)));
        Ok(Etcd { shared, told: Mutex::new(Some(told)) })
    }
}

impl Drop for Etcd {
    /// The tasks that sleep find out when they wake up, and then end.
    fn drop(&mut self) {
        self.shared.granted.notify_one();
        self.shared.begun.notify_one();
    }
}

/// What numbers begin with; now, if nobody has begun, and beyond what was seen before.
async fn base(link: &Link, keys: &Keys, seen: u64) -> Result<Base, Failed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let first = Base::new((now.as_micros() as u64).max(seen));
    let txn = TxnRequest {
        compare: vec![Compare::none_in((keys.base(), Vec::new()))],
        success: vec![Op::put(keys.base(), first.value(), 0)],
        failure: vec![Op::range(RangeRequest::one(keys.base()))],
    };
    let answer = link.repeatable(txn).await?;
    if answer.succeeded {
        return Ok(first);
    }
    let found = answer.ranges().flatten().next();
    let found = found.and_then(|kv| Base::parse(&kv.value));
    found.ok_or_else(|| refused("something else stands where numbers begin"))
}

/// What is under way on leases, until it is known what came of it. If it is never known, nothing more is
/// put on these.
struct OnLeases<'a> {
    shared: &'a Shared,
    leases: &'a [i64],
}

impl Drop for OnLeases<'_> {
    fn drop(&mut self) {
        let mut table = self.shared.table.lock();
        self.leases.iter().for_each(|lease| table.retire(*lease));
    }
}

impl Shared {
    fn base(&self) -> Base {
        *self.base.read()
    }

    #[cfg(test)]
    async fn may_go_on(&self) {
        let goes_on = self.stopped.subscribe().wait_for(|stopped| !*stopped).await.map(drop);
        goes_on.expect("it is a part of this");
    }

    /// A transaction that puts something on leases.
    async fn on(&self, leases: &[i64], txn: TxnRequest) -> Result<TxnResponse, Failed> {
        let under_way = OnLeases { shared: self, leases };
        let answer = self.link.txn(txn).await;
        if !matches!(&answer, Err(failed) if failed.unknown) {
            std::mem::forget(under_way);
        }
        answer
    }

    /// A lease on which something can live for so long. Made, if there is none.
    async fn lease(&self, ms: u64) -> Result<i64, Failed> {
        let class = class(ms);
        if let Some(lease) = self.table.lock().lease(class, ms, Instant::now()) {
            return Ok(lease);
        }
        let _one = self.granting.lock().await;
        if let Some(lease) = self.table.lock().lease(class, ms, Instant::now()) {
            return Ok(lease);
        }
        let sent = Instant::now();
        let granted = self.link.grant(ttl(class)).await?;
        // So that its end is told.
        let key = Op::put(self.keys.lease(granted.id), Vec::new(), granted.id);
        let key = TxnRequest { success: vec![key], ..TxnRequest::default() };
        self.link.repeatable(key).await?;
        let mut table = self.table.lock();
        table.add(granted.id, class, sent, granted.ttl);
        self.granted.notify_one();
        let lease = table.lease(class, ms, Instant::now());
        lease.ok_or_else(|| refused("it takes longer to make a lease than it would last"))
    }

    async fn leases(&self, change: &Change) -> Result<BTreeMap<Class, i64>, Failed> {
        let mut leases = BTreeMap::new();
        for (class, longest) in needs(change) {
            leases.insert(class, self.lease(longest).await?);
        }
        Ok(leases)
    }

    async fn commit(self: &Arc<Self>, change: Change) -> Result<Committed, Failed> {
        for _ in 0..TRIES {
            let base = self.base();
            let leases = self.leases(&change).await?;
            let ids: Vec<i64> = leases.values().copied().collect();
            match self.make(change.clone(), leases).await {
                Ok(Came::Committed(committed)) => return Ok(committed),
                Ok(Came::OtherBase) => self.lost_everything(base).await?,
                Err(failed) if failed.no_lease => self.lose_ended(&ids).await?,
                Err(failed) => return Err(failed),
            }
        }
        Err(refused("leases end as soon as they are made"))
    }

    fn happened(
        &self,
        change: &Change,
        version: u64,
        revision: i64,
        leases: &BTreeMap<Class, i64>,
    ) {
        self.highest.fetch_max(version, Ordering::Relaxed);
        let now = Instant::now();
        let mut table = self.table.lock();
        let idle = table.next_due().is_none();
        table.wrote(change, revision, leases, now);
        table.appended(change, version, revision, leases, now);
        if idle && table.next_due().is_some() {
            self.begun.notify_one();
        }
    }

    /// Finds out which of these etcd does not know any more.
    async fn lose_ended(&self, leases: &[i64]) -> Result<(), Failed> {
        let sent = Instant::now();
        let answers = self.link.keep_alive(leases.to_vec()).await?;
        let mut table = self.table.lock();
        for answer in answers {
            match answer.ttl {
                ..=0 => table.lose(answer.id),
                ttl => table.lives(answer.id, sent, ttl),
            }
        }
        Ok(())
    }

    /// etcd is empty, or has begun anew: nothing of what we know is so any more.
    async fn lost_everything(&self, known: Base) -> Result<(), Failed> {
        let _one = self.granting.lock().await;
        if self.base() != known {
            return Ok(());
        }
        tracing::warn!("etcd has lost what was below the prefix, or it was deleted");
        let beyond = self.highest.load(Ordering::Relaxed) + NUMBERS;
        *self.base.write() = base(&self.link, &self.keys, beyond).await?;
        self.table.lock().clear();
        drop(self.tell.send(Told::Anything));
        self.tell_tasks(TaskTold::Anything);
        Ok(())
    }

    fn tell_tasks(&self, told: TaskTold) {
        if let Some(tell) = &*self.task_tell.lock() {
            drop(tell.send(told));
        }
    }

    async fn read(&self, names: &[Name]) -> Result<View, Failed> {
        let parts: Vec<&[Name]> = match names.is_empty() {
            true => vec![names],
            false => names.chunks(READS).collect(),
        };
        for _ in 0..TRIES {
            let base = self.base();
            let (mut kvs, mut revision) = (Vec::new(), 0);
            for some in &parts {
                let range = |name: &Name| {
                    let all = RangeRequest::all(self.keys.all(name));
                    // All at the moment of the first.
                    Op::range(RangeRequest { revision, ..all })
                };
                let mut success: Vec<Op> = some.iter().map(range).collect();
                success.push(Op::range(RangeRequest::one(self.keys.base())));
                let txn = TxnRequest { success, ..TxnRequest::default() };
                let answer = self.link.repeatable(txn).await?;
                revision = answer.revision();
                kvs.extend(answer.ranges().flatten());
            }
            let base_key = self.keys.base();
            let is_base = |kv: &&KeyValue| kv.key == base_key && kv.value == base.value();
            if kvs.iter().filter(is_base).count() == parts.len() {
                return Ok(value::view(&self.keys, base, wall_ms(), names, kvs));
            }
            self.lost_everything(base).await?;
        }
        Err(refused("what numbers begin with changes all the time"))
    }

    async fn read_all(&self) -> Result<View, Failed> {
        // So that what is below is of this base.
        self.read(&[]).await?;
        let base = self.base();
        let (mut from, end) = self.keys.names();
        let (mut kvs, mut revision) = (Vec::new(), 0);
        loop {
            let page =
                RangeRequest { limit: PAGE, revision, ..RangeRequest::all((from, end.clone())) };
            let page = self.link.range(page).await?;
            if revision == 0 {
                revision = page.header.map_or(0, |header| header.revision);
            }
            let last = page.kvs.last().map(|kv| kv.key.clone());
            kvs.extend(page.kvs);
            match last {
                Some(last) if page.more => from = keys::next(last),
                _ => break,
            }
        }
        Ok(value::view(&self.keys, base, wall_ms(), [], kvs))
    }

    /// Whether a waiter lives is known here, if it is ours; whether it still stands where it stood is not.
    async fn touch(
        &self,
        waiters: &[(Stand, Vec<Name>)],
        live_ms: u64,
    ) -> Result<Vec<bool>, Failed> {
        let base = self.base();
        let mut alive: Vec<bool> = Vec::with_capacity(waiters.len());
        let mut asked = Vec::new();
        for (at, (stand, names)) in waiters.iter().enumerate() {
            let label = Label::Wait(stand.seq, stand.id.clone());
            let known = self.table.lock().prolong(&label, live_ms, Instant::now());
            let revision = base.revision(stand.seq);
            alive.push(known != Some(false) && revision.is_some());
            if let (true, Some((revision, index))) = (alive[at], revision) {
                let keys = names.iter().map(|name| self.keys.wait(name, &stand.id, index));
                asked.extend(keys.map(|key| (at, key, revision)));
            }
        }
        for some in asked.chunks(READS) {
            let range = |key: &Vec<u8>| {
                Op::range(RangeRequest { keys_only: true, ..RangeRequest::one(key.clone()) })
            };
            let success = some.iter().map(|(_, key, _)| range(key)).collect();
            let txn = TxnRequest { success, ..TxnRequest::default() };
            let answer = self.link.repeatable(txn).await?;
            for ((at, _, revision), found) in some.iter().zip(answer.ranges()) {
                let there = found.first().filter(|kv| kv.mod_revision == *revision);
                alive[*at] &= there.is_some();
                if let Some(kv) = there {
                    self.adopt(&waiters[*at], kv, live_ms);
                }
            }
        }
        Ok(alive)
    }

    /// A waiter of ours of which we do not know: nobody had said that it was appended.
    fn adopt(&self, (stand, names): &(Stand, Vec<Name>), kv: &KeyValue, live_ms: u64) {
        let label = Label::Wait(stand.seq, stand.id.clone());
        let now = Instant::now();
        let mut table = self.table.lock();
        if table.is_ours(kv.lease) && table.prolong(&label, live_ms, now).is_none() {
            table.begin(label, kv.mod_revision, kv.lease, live_ms, now, names.clone());
            self.begun.notify_one();
        }
    }
}

/// For those who look, and nothing else.
fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

impl Store for Etcd {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { Ok(shared.read(&names).await?) })
    }

    fn read_all(&self) -> Pending<Result<View, StoreError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { Ok(shared.read_all().await?) })
    }

    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { Ok(shared.commit(change).await?) })
    }

    fn touch(
        &self,
        waiters: Vec<(Stand, Vec<Name>)>,
        live_ms: u64,
    ) -> Pending<Result<Vec<bool>, StoreError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { Ok(shared.touch(&waiters, live_ms).await?) })
    }

    fn most_removed(&self) -> usize {
        // A transaction has 128 operations, and each that leaves is one or two of them.
        64
    }

    fn told(&self) -> mpsc::UnboundedReceiver<Told> {
        // A second one hears nothing.
        self.told.lock().take().unwrap_or_else(|| mpsc::unbounded_channel().1)
    }

    fn tasks(&self) -> Option<Arc<dyn TaskStore>> {
        Some(Arc::new(tasks::EtcdTasks::new(&self.shared)))
    }
}
