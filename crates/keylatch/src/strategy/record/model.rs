//! A record store as naive as can be, in memory: what the others must do, and the contract's own test.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use keylatch_table::RequestId;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::super::Pending;
use super::store::{
    Change, Committed, Done, Expect, Found, Head, Name, NameChange, Record, Stand, Store,
    StoreError, Told, View, Waiter, Write,
};

/// One connection to a store in memory.
pub(crate) struct Model {
    memory: Arc<Mutex<Memory>>,
    told: Mutex<Option<mpsc::UnboundedReceiver<Told>>>,
    _tell: Arc<mpsc::UnboundedSender<Told>>,
}

#[derive(Default)]
pub(crate) struct Memory {
    since: Option<Instant>,
    counter: u64,
    names: BTreeMap<Name, Kept>,
    listeners: Vec<Weak<mpsc::UnboundedSender<Told>>>,
}

#[derive(Clone, Default)]
struct Kept {
    head: Option<(Head, Option<u64>)>,
    queue: BTreeMap<u64, (RequestId, Waiter)>,
}

impl Model {
    pub(crate) fn open(memory: &Arc<Mutex<Memory>>) -> Model {
        let (tell, told) = mpsc::unbounded_channel();
        let tell = Arc::new(tell);
        memory.lock().listeners.push(Arc::downgrade(&tell));
        Model { memory: Arc::clone(memory), told: Mutex::new(Some(told)), _tell: tell }
    }

    fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Memory) -> T,
    ) -> Pending<Result<T, StoreError>> {
        let mut memory = self.memory.lock();
        memory.sweep();
        Box::pin(std::future::ready(Ok(work(&mut memory))))
    }
}

impl Memory {
    fn now(&mut self) -> u64 {
        1_000 + self.since.get_or_insert_with(Instant::now).elapsed().as_millis() as u64
    }

    /// Rule 7.
    fn sweep(&mut self) {
        let now = self.now();
        self.names.retain(|_, kept| {
            let lives = kept.queue.values().any(|(_, waiter)| waiter.alive_until > now);
            let counts = match &kept.head {
                Some((_, until)) => until.is_none_or(|until| until > now),
                None => false,
            };
            lives || counts
        });
    }

    fn view(&mut self, names: impl IntoIterator<Item = Name>) -> View {
        let mut view = View { now: self.now(), ..View::default() };
        for name in names {
            let kept = self.names.get(&name).cloned().unwrap_or_default();
            let queue = kept.queue.into_values().map(|(_, waiter)| waiter).collect();
            view.names.insert(name, Record { head: kept.head.map(|(head, _)| head), queue });
        }
        view
    }

    fn fits(&self, name: &Name, one: &NameChange, change: &Change) -> bool {
        let nothing = Kept::default();
        let kept = self.names.get(name).unwrap_or(&nothing);
        let version = kept.head.as_ref().map(|(head, _)| head.version);
        let expected = match one.expect {
            Expect::Absent => version.is_none() && kept.queue.is_empty(),
            Expect::There => version.is_some(),
            Expect::Version(expected) => version == Some(expected),
        };
        let unseen = match (one.last_seq, kept.queue.last_key_value()) {
            (Some(seen), Some((last, _))) => *last > seen,
            _ => false,
        };
        let is_there =
            |stand: &Stand| kept.queue.get(&stand.seq).is_some_and(|(id, _)| *id == stand.id);
        let waits_already =
            change.appends.iter().filter(|append| append.to.contains(name)).any(|append| {
                let removed = one.remove.iter().any(|stand| stand.id == append.id);
                !removed && kept.queue.values().any(|(id, _)| *id == append.id)
            });
        expected && !unseen && one.remove.iter().all(is_there) && !waits_already
    }

    fn commit(&mut self, change: &Change) -> Committed {
        if !change.names.iter().all(|(name, one)| self.fits(name, one, change)) {
            return Committed::Mismatch(self.view(change.names.keys().cloned()));
        }
        let now = self.now();
        let start = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
        let version = if self.counter == 0 { start } else { self.counter + 1 };
        self.counter = version + change.all_numbers() - 1;
        let mut done = Done { version, now, names: BTreeMap::new() };
        for (name, one) in &change.names {
            let kept = self.names.entry(name.clone()).or_default();
            let found = Found {
                version: kept.head.as_ref().map_or(0, |(head, _)| head.version),
                last_seq: kept.queue.last_key_value().map_or(0, |(seq, _)| *seq),
            };
            match &one.head {
                Write::Keep => {}
                Write::Delete => kept.head = None,
                Write::Put(put) => {
                    let bytes = put.bytes.clone();
                    let until = put.keep_ms.map(|keep| now + keep);
                    kept.head = Some((Head { version, time: now, bytes, alive: None }, until));
                }
            }
            for stand in &one.remove {
                kept.queue.remove(&stand.seq);
            }
            let alone = matches!(one.head, Write::Keep) && one.remove.is_empty();
            let others_wait = found.last_seq > one.own_up_to.unwrap_or(0);
            if one.tell || (others_wait && !alone) {
                let removed = one.remove.iter().map(|stand| stand.seq).collect();
                let told = Told::Changed { name: name.clone(), version, removed };
                for listener in self.listeners.iter().filter_map(Weak::upgrade) {
                    drop(listener.send(told.clone()));
                }
            }
            done.names.insert(name.clone(), found);
        }
        for (number, append) in change.appends.iter().enumerate() {
            let seq = change.seq_of(version, number);
            let (alive_until, bytes) = (now + append.live_ms, append.bytes.clone());
            let waiter = Waiter { seq, time: now, alive_until, came: None, bytes };
            for name in &append.to {
                let kept = self.names.entry(name.clone()).or_default();
                kept.queue.insert(seq, (append.id.clone(), waiter.clone()));
            }
        }
        self.names.retain(|_, kept| kept.head.is_some() || !kept.queue.is_empty());
        Committed::Done(done)
    }

    fn touch(&mut self, stand: &Stand, names: &[Name], live_ms: u64) -> bool {
        let now = self.now();
        let lives = |name: &Name| {
            let waiter = self.names.get(name).and_then(|kept| kept.queue.get(&stand.seq));
            waiter.is_some_and(|(id, waiter)| *id == stand.id && waiter.alive_until > now)
        };
        if !names.iter().all(lives) {
            return false;
        }
        for name in names {
            let waiter = self.names.get_mut(name).and_then(|kept| kept.queue.get_mut(&stand.seq));
            waiter.unwrap().1.alive_until = now + live_ms;
        }
        true
    }
}

impl Store for Model {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>> {
        self.with(|memory| memory.view(names))
    }

    fn read_all(&self) -> Pending<Result<View, StoreError>> {
        self.with(|memory| memory.view(memory.names.keys().cloned().collect::<Vec<_>>()))
    }

    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>> {
        self.with(|memory| memory.commit(&change))
    }

    fn touch(
        &self,
        waiters: Vec<(Stand, Vec<Name>)>,
        live_ms: u64,
    ) -> Pending<Result<Vec<bool>, StoreError>> {
        self.with(|memory| {
            let touch = |(stand, names): &(Stand, Vec<Name>)| memory.touch(stand, names, live_ms);
            waiters.iter().map(touch).collect()
        })
    }

    fn told(&self) -> mpsc::UnboundedReceiver<Told> {
        self.told.lock().take().expect("called once")
    }
}

mod tests {
    use super::*;
    use crate::strategy::record::contract::{Ground, contract};

    impl Ground for Arc<Mutex<Memory>> {
        async fn open(&self) -> Arc<dyn Store> {
            Arc::new(Model::open(self))
        }
    }

    contract!(Arc::<Mutex<Memory>>::default());
}
