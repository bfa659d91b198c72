//! What goes on beside the calls: leases are kept alive, what has had its time is ended, and what nobody
//! needs is swept. All of it ends with the store.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::store::Name;
use super::Shared;
use super::change::if_somebody_waits;
use super::keys::Part;
use super::leases::{Kept, Label};
use super::link::Failed;
use super::value::{self, Ending};
use super::wire::{Compare, KeyValue, Op, RangeRequest, TxnRequest};

/// How often it is looked whether something has had its time, while there is anything.
const LOOK: Duration = Duration::from_millis(100);
/// How many are ended at once.
const AT_ONCE: usize = 64;
/// After a failure.
const AGAIN: Duration = Duration::from_millis(500);
/// For so long nobody sweeps after somebody has. It reads everything below the prefix.
const SWEEP_MS: u64 = if cfg!(test) { 1_000 } else { 30_000 };
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
        if !beats.keep.is_empty() {
            match store.link.keep_alive(beats.keep).await {
                Ok(answers) => {
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
        let all = due.iter().map(|(label, kept)| store.end(label, kept));
        for ((label, kept), ended) in due.iter().zip(join_all(all).await) {
            let mut table = store.table.lock();
            match ended {
                Ok(()) => table.ended(label, kept.revision),
                Err(_) => table.put_off(label, kept.revision, Instant::now() + AGAIN),
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

/// Sweeps now, and then from time to time.
pub(super) async fn sweep(store: Arc<Shared>) {
    let mut store = Some(store);
    loop {
        let Some(here) = store.take() else { return };
        if let Err(error) = here.sweep().await {
            tracing::debug!("not swept: {}", error.text);
        }
        let shared = Arc::downgrade(&here);
        drop(here);
        // Not all at the same moment.
        sleep(Duration::from_millis(rand::random_range(SWEEP_MS..SWEEP_MS * 2))).await;
        store = shared.upgrade();
    }
}

impl Shared {
    async fn end(&self, label: &Label, kept: &Kept) -> Result<(), Failed> {
        let keys = &self.keys;
        let written = |key| vec![Compare::written(key, kept.revision)];
        let txn = match label {
            Label::Turn => {
                let success = vec![Op::delete(keys.turn())];
                TxnRequest { compare: written(keys.turn()), success, failure: Vec::new() }
            }
            Label::Hold(name, None) => {
                let success = vec![Op::delete(keys.keep(name))];
                TxnRequest { compare: written(keys.keep(name)), success, failure: Vec::new() }
            }
            Label::Hold(name, Some(id)) => {
                let told = value::told(name, &[], Ending::Lease);
                let tell = if_somebody_waits(keys, name, Op::put(keys.told(0), told, 0));
                let success = vec![tell, Op::delete(keys.hold(name, id))];
                let compare = written(keys.hold(name, id));
                TxnRequest { compare, success, failure: Vec::new() }
            }
            Label::Wait(id, seq) => {
                let index = self.base().revision(*seq).map_or(0, |(_, index)| index);
                let leave = |(number, name): (usize, &Name)| {
                    let key = keys.wait(name, id, index);
                    let told = value::told(name, &[*seq], Ending::Change);
                    let success =
                        vec![Op::delete(key.clone()), Op::put(keys.told(number), told, 0)];
                    Op::txn(TxnRequest { compare: written(key), success, failure: Vec::new() })
                };
                let success = kept.names.iter().enumerate().map(leave).collect();
                TxnRequest { success, ..TxnRequest::default() }
            }
        };
        self.link.repeatable(txn).await.map(drop)
    }

    /// Takes away heads that nobody holds, nobody waits for and nobody wants kept (7). One process at a
    /// time: whose key stands there has its turn.
    async fn sweep(&self) -> Result<(), Failed> {
        let turn = RangeRequest { serializable: true, ..RangeRequest::one(self.keys.turn()) };
        if !self.link.range(turn).await?.kvs.is_empty() {
            return Ok(());
        }
        let lease = self.lease(SWEEP_MS).await?;
        let take = TxnRequest {
            compare: vec![Compare::none_in((self.keys.turn(), Vec::new()))],
            success: vec![Op::put(self.keys.turn(), Vec::new(), lease)],
            failure: Vec::new(),
        };
        let took = self.on(&[lease], take).await?;
        if !took.succeeded {
            return Ok(());
        }
        let now = Instant::now();
        self.table.lock().begin(Label::Turn, took.revision(), lease, SWEEP_MS, now, Vec::new());
        self.begun.notify_one();
        let alone = self.alone().await?;
        for some in alone.chunks(SWEPT_AT_ONCE) {
            let success = some.iter().map(|(name, revision)| {
                let compare = vec![
                    Compare::written(self.keys.head(name), *revision),
                    Compare::none_in(self.keys.beside_head(name)),
                ];
                let success = vec![Op::delete(self.keys.head(name))];
                Op::txn(TxnRequest { compare, success, failure: Vec::new() })
            });
            let txn = TxnRequest { success: success.collect(), ..TxnRequest::default() };
            self.link.repeatable(txn).await?;
        }
        Ok(())
    }

    /// Heads beside which there is nothing, and when they were written.
    async fn alone(&self) -> Result<Vec<(Name, i64)>, Failed> {
        let mut alone = Vec::new();
        // The last head, as long as nothing of the same name follows.
        let mut last: Option<(Name, i64)> = None;
        let (mut from, end) = self.keys.names();
        loop {
            let page = RangeRequest { limit: PAGE, ..RangeRequest::all((from, end.clone())) };
            let page = self.link.range(page).await?;
            for KeyValue { key, mod_revision, value, .. } in &page.kvs {
                let Some((name, part)) = self.keys.parse(key) else { continue };
                let before = last.take().filter(|(before, _)| *before != name);
                alone.extend(before);
                if part == Part::Head && value::may_go(value) {
                    last = Some((name, *mod_revision));
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
