//! What goes on beside the calls: leases are kept alive, what has had its time is ended, and what nobody
//! needs is swept. All of it ends with the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::super::store::Name;
use super::Shared;
use super::change::if_somebody_waits;
use super::keys::Part;
use super::leases::{Kept, Label};
use super::link::Failed;
use super::tasks;
use super::value::{self, Why};
use super::wire::{Compare, KeyValue, Op, RangeRequest, TxnRequest};

/// How often it is looked whether something has had its time, while there is anything.
const LOOK: Duration = Duration::from_millis(100);
/// How many are ended at once, and in one transaction of etcd, which takes 128 operations.
const AT_ONCE: usize = 256;
const ENDED_AT_ONCE: usize = 64;
/// After a failure.
const AGAIN: Duration = Duration::from_millis(500);
/// For so long nobody sweeps after somebody has. It reads everything below the prefix.
const SWEEP_MS: u64 = if cfg!(test) { 1_000 } else { 30_000 };
/// Within so long of its start a process sweeps for the first time. At any moment of it: of many that start together
/// most then find that one has, and of those that live for a moment only, some live long enough.
const FIRST_MS: u64 = 1_000;
/// How many keys are read at once, and how many names one sweep takes away.
const PAGE: i64 = 5_000;
const SWEPT: usize = 1_000;
/// How many of them in one transaction of etcd, which takes 128 operations.
const SWEPT_AT_ONCE: usize = 32;

/// Keeps leases alive.
pub(super) async fn beat(shared: Weak<Shared>) {
    loop {
        let Some(store) = shared.upgrade() else { return };
        #[cfg(test)]
        store.may_go_on().await;
        let beats = store.table.lock().beats(Instant::now());
        for lease in beats.revoke {
            // Whoever watches need not look: nothing is on it any more.
            let idle = Op::put(store.keys.lease(lease), IDLE.into(), lease);
            let idle = TxnRequest { success: vec![idle], ..TxnRequest::default() };
            drop(store.link.repeatable(idle).await);
            drop(store.link.revoke(lease).await);
        }
        let sent = Instant::now();
        let mut next = None;
        let count = beats.keep.len();
        if count > 0 {
            match store.link.keep_alive(beats.keep).await {
                Ok(answers) => {
                    // Some may have been left unanswered, and these are asked again soon.
                    if answers.len() < count {
                        next = Some(Instant::now() + AGAIN);
                    }
                    let mut table = store.table.lock();
                    for answer in answers {
                        match answer.ttl {
                            ..=0 => table.lose(answer.id),
                            ttl => table.lives(answer.id, sent, ttl),
                        }
                    }
                }
                Err(error) => {
                    tracing::debug!("leases were not kept alive: {}", error.text);
                    next = Some(Instant::now() + AGAIN);
                }
            }
        }
        let next = next.or_else(|| store.table.lock().next_beat());
        let granted = Arc::clone(&store.granted);
        drop(store);
        match next {
            Some(next) => {
                tokio::select! { () = sleep_until(next) => {} () = granted.notified() => {} }
            }
            None => granted.notified().await,
        }
    }
}

/// The value of a lease's key when it was given back.
pub(super) const IDLE: &[u8] = b"idle";

/// Ends what has had its time.
pub(super) async fn end(shared: Weak<Shared>) {
    loop {
        let Some(store) = shared.upgrade() else { return };
        #[cfg(test)]
        store.may_go_on().await;
        let due = store.table.lock().take_due(Instant::now(), AT_ONCE);
        if !due.is_empty() {
            let ended = store.end(&due).await;
            let mut table = store.table.lock();
            for (label, kept) in &due {
                match ended {
                    Ok(()) => table.ended(label, kept.revision),
                    Err(_) => table.put_off(label, kept.revision, Instant::now() + AGAIN),
                }
            }
        }
        let next = store.table.lock().next_due();
        let begun = Arc::clone(&store.begun);
        drop(store);
        // What comes later may be due earlier, so it never sleeps long; but it does not wake up for
        // each lock either.
        if let Some(next) = next {
            sleep_until(next.min(Instant::now() + LOOK)).await;
        } else {
            begun.notified().await;
            sleep(LOOK).await;
        }
    }
}

/// Sweeps soon, and then from time to time.
pub(super) async fn sweep(shared: Weak<Shared>) {
    let mut pause = rand::random_range(0..FIRST_MS);
    loop {
        sleep(Duration::from_millis(pause)).await;
        let Some(store) = shared.upgrade() else { return };
        if let Err(error) = store.sweep().await {
            tracing::debug!("not swept: {}", error.text);
        }
        // Not all at the same moment.
        pause = rand::random_range(SWEEP_MS..SWEEP_MS * 2);
    }
}

impl Shared {
    /// Ends these, but for what was written anew since: many at once, because some of them always were.
    async fn end(&self, due: &[(Label, Kept)]) -> Result<(), Failed> {
        let mut ops = Vec::new();
        for (label, kept) in due {
            self.ending(label, kept, &mut ops);
        }
        for some in ops.chunks(ENDED_AT_ONCE) {
            let txn = TxnRequest { success: some.to_vec(), ..TxnRequest::default() };
            self.link.repeatable(txn).await?;
        }
        Ok(())
    }

    fn ending(&self, label: &Label, kept: &Kept, ops: &mut Vec<Op>) {
        let keys = &self.keys;
        // No key may be put twice in a transaction.
        let told = |ops: &[Op]| keys.told((ops.len() % ENDED_AT_ONCE) as u64);
        let if_as_written = |key: Vec<u8>, tell: Option<Op>| {
            let mut success = vec![Op::delete(key.clone())];
            success.extend(tell);
            let compare = vec![Compare::written(key, kept.revision)];
            Op::txn(TxnRequest { compare, success, failure: Vec::new() })
        };
        match label {
            Label::Swept => ops.push(if_as_written(keys.swept(), None)),
            Label::Noted(key) => ops.push(if_as_written(key.clone(), None)),
            Label::Task(held, pool, key) => {
                let at = (ops.len() % ENDED_AT_ONCE) as u64;
                let tell = Op::put(keys.task_told(at), tasks::news(pool, key, Some(0)), 0);
                let compare = vec![Compare::some_in((keys.task_noted(pool), Vec::new()))];
                let tell = TxnRequest { compare, success: vec![tell], failure: Vec::new() };
                ops.push(if_as_written(held.clone(), Some(Op::txn(tell))));
            }
            Label::Hold(name, None) => ops.push(if_as_written(keys.keep(name), None)),
            Label::Hold(name, Some(id)) => {
                // It stands under one of these: no other of the name was written with it.
                for key in [keys.hold_alone(name), keys.hold(name, id)] {
                    let tell = Op::put(told(ops), value::told(name, &[], Why::Lease), 0);
                    let tell = if_somebody_waits(keys, name, tell);
                    ops.push(if_as_written(key, Some(tell)));
                }
            }
            Label::Wait(seq, id) => {
                let index = self.base().revision(*seq).map_or(0, |(_, index)| index);
                for name in &kept.names {
                    let tell = value::told(name, &[*seq], Why::Change { index: 0 });
                    let tell = Op::put(told(ops), tell, 0);
                    ops.push(if_as_written(keys.wait(name, id, index), Some(tell)));
                }
            }
        }
    }

    /// Takes away heads that nobody holds, nobody waits for and nobody wants kept (7), unless somebody has
    /// just done so. That is noted when it is done: a process that ends before keeps nobody from it. Two that sweep at
    /// the same time are not in each other's way.
    async fn sweep(&self) -> Result<(), Failed> {
        let swept = RangeRequest { serializable: true, ..RangeRequest::one(self.keys.swept()) };
        if !self.link.range(swept).await?.kvs.is_empty() {
            return Ok(());
        }
        self.take_away(&self.alone().await?).await?;
        let lease = self.lease(SWEEP_MS).await?;
        let note = TxnRequest {
            compare: vec![Compare::none_in((self.keys.swept(), Vec::new()))],
            success: vec![Op::put(self.keys.swept(), Vec::new(), lease)],
            failure: Vec::new(),
        };
        let noted = self.on(&[lease], note).await?;
        if noted.succeeded {
            let now = Instant::now();
            let mut table = self.table.lock();
            table.begin(Label::Swept, noted.revision(), lease, SWEEP_MS, now, Vec::new());
            self.begun.notify_one();
        }
        Ok(())
    }

    /// If they are still alone.
    async fn take_away(&self, alone: &[(Name, u64, i64)]) -> Result<(), Failed> {
        for some in alone.chunks(SWEPT_AT_ONCE) {
            let success = some.iter().map(|(name, index, revision)| {
                let head = self.keys.head(name, *index);
                let compare = vec![
                    Compare::written(head.clone(), *revision),
                    Compare::none_in(self.keys.beside_head(name)),
                ];
                let success = vec![Op::delete(head)];
                Op::txn(TxnRequest { compare, success, failure: Vec::new() })
            });
            let txn = TxnRequest { success: success.collect(), ..TxnRequest::default() };
            self.link.repeatable(txn).await?;
        }
        Ok(())
    }

    /// Heads beside which there is nothing: their names, and which number of which revision they are.
    async fn alone(&self) -> Result<Vec<(Name, u64, i64)>, Failed> {
        let mut alone = Vec::new();
        // The last head, as long as nothing of the same name follows.
        let mut last: Option<(Name, u64, i64)> = None;
        let (mut from, end) = self.keys.names();
        loop {
            let page = RangeRequest { limit: PAGE, ..RangeRequest::all((from, end.clone())) };
            let page = self.link.range(page).await?;
            for KeyValue { key, mod_revision, value, .. } in &page.kvs {
                let Some((name, part)) = self.keys.parse(key) else { continue };
                let before = last.take().filter(|(before, ..)| *before != name);
                alone.extend(before);
                if let Part::Head { index } = part
                    && value::may_go(value)
                {
                    last = Some((name, index, *mod_revision));
                }
            }
            match page.kvs.into_iter().next_back() {
                Some(kv) if page.more && alone.len() < SWEPT => from = super::keys::next(kv.key),
                _ => break,
            }
        }
        alone.extend(last);
        alone.truncate(SWEPT);
        Ok(alone)
    }
}
