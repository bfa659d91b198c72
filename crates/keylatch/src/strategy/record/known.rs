//! What is known of names without asking: as they were when this process last read or wrote them. A
//! decision made on it is checked by the commit that follows; one that writes nothing is not made on it.

use std::collections::{BTreeMap, VecDeque};

use keylatch_table::{Alone, RequestId};

use super::Map;
use super::decide::Scene;
use super::store::{Change, Done, Found, Head, Name, Record, View, Waiter, Write};
use crate::clock::Moment;

/// A waiter may have said that it lives since: near its end what is known of it is not enough.
const NEAR_MS: u64 = 200;

/// So many of our own changes are recognised when the store tells of them: more than are on their way.
const OWN: usize = 1_024;

#[derive(Default)]
pub(super) struct Known {
    names: Map<Name, Entry>,
    /// The versions of our last changes, the newest last.
    own: VecDeque<u64>,
}

struct Entry {
    record: Record,
    /// Nobody is there but this one, on the store's clock.
    alone: Option<Alone>,
    /// The store's clock, and ours when we heard it.
    now: u64,
    at: Moment,
}

impl Entry {
    /// The store's clock, or a little earlier: so nothing ends too early by it.
    fn now(&self) -> u64 {
        self.now + self.at.elapsed().as_millis() as u64
    }

    fn last_seq(&self) -> u64 {
        self.record.queue.last().map_or(0, |waiter| waiter.seq)
    }
}

impl Known {
    /// These names, if all of them are known well enough.
    pub(super) fn scene(&self, names: &[Name]) -> Option<Scene> {
        let entries: Option<Vec<&Entry>> = names.iter().map(|name| self.names.get(name)).collect();
        let entries = entries?;
        let now = entries.iter().map(|entry| entry.now()).max()?;
        let waiters = entries.iter().flat_map(|entry| &entry.record.queue);
        if waiters.map(|waiter| waiter.alive_until).any(|alive| alive <= now + NEAR_MS) {
            return None;
        }
        let records = entries.iter().map(|entry| entry.record.clone());
        let view = View { now, names: names.iter().cloned().zip(records).collect() };
        let scene = Scene::new(view).ok()?;
        // What is on several names must be read in one go.
        (!scene.spans()).then_some(scene)
    }

    pub(super) fn has(&self, name: &Name) -> bool {
        self.names.contains_key(name)
    }

    /// What was read.
    pub(super) fn read(&mut self, view: &View, is_wanted: impl Fn(&Name) -> bool) {
        let at = Moment::now();
        for (name, record) in &view.names {
            if is_wanted(name) && record.head.is_some() {
                let entry = Entry { record: record.clone(), alone: None, now: view.now, at };
                self.names.insert(name.clone(), entry);
            } else {
                self.names.remove(name);
            }
        }
    }

    /// What was written, on top of what was known. Whether somebody has come to wait that was not
    /// known of, or somebody else has written, and on which names.
    pub(super) fn wrote(
        &mut self,
        before: &View,
        change: &Change,
        done: &Done,
        is_wanted: impl Fn(&Name) -> bool,
    ) -> Vec<Name> {
        let at = Moment::now();
        self.is_ours(done.version);
        let mut unseen = Vec::new();
        for (name, one) in &change.names {
            let Some(&Found { version, last_seq }) = done.names.get(name) else {
                self.names.remove(name);
                continue;
            };
            let record = before.names[name].clone();
            let mut entry = Entry { record, alone: None, now: done.now, at };
            let known_version = entry.record.head.as_ref().map_or(0, |head| head.version);
            let complete = entry.last_seq() == last_seq;
            if version != known_version || (!complete && !matches!(one.head, Write::Keep)) {
                unseen.push(name.clone());
            }
            match &one.head {
                Write::Keep => {}
                Write::Delete => entry.record.head = None,
                Write::Put(put) => {
                    // A store with leases of its own says who lives when it is asked.
                    let alive = (entry.record.head.as_ref())
                        .and_then(|head| head.alive.as_ref())
                        .map(|_| put.holders.iter().map(|holder| holder.id.clone()).collect());
                    let (time, bytes) = (done.now, put.bytes.clone());
                    entry.record.head = Some(Head { version: done.version, time, bytes, alive });
                }
            }
            let is_gone = |seq: u64| one.remove.iter().any(|stand| stand.seq == seq);
            entry.record.queue.retain(|waiter| !is_gone(waiter.seq));
            let mut appended = false;
            for (at, append) in change.appends.iter().enumerate() {
                if append.to.contains(name) {
                    appended = true;
                    entry.record.queue.push(Waiter {
                        seq: change.seq_of(done.version, at),
                        time: done.now,
                        alive_until: done.now + append.live_ms,
                        came: None,
                        bytes: append.bytes.clone(),
                    });
                }
            }
            // Whoever was appended stands behind some that are not known: nothing may be decided
            // without them.
            let is_good = (!matches!(one.head, Write::Keep) || version == known_version)
                && (complete || !appended)
                && entry.record.head.is_some()
                && is_wanted(name);
            match is_good {
                true => drop(self.names.insert(name.clone(), entry)),
                false => drop(self.names.remove(name)),
            }
        }
        unseen
    }

    /// This process made that change.
    fn is_ours(&mut self, version: u64) {
        if self.own.len() == OWN {
            self.own.pop_front();
        }
        self.own.push_back(version);
    }

    /// The version of the head, if nobody is there but this one, and a release by it would be the end of that.
    pub(super) fn alone(&self, name: &Name, id: &RequestId) -> Option<u64> {
        let entry = self.names.get(name)?;
        let ends = entry.alone.as_ref()?.is_released_by(id, entry.now());
        entry.record.head.as_ref().filter(|_| ends).map(|head| head.version)
    }

    /// By a change of ours nobody is there any more, or nobody who is wanted.
    pub(super) fn left(&mut self, name: &Name, version: u64) {
        self.is_ours(version);
        self.names.remove(name);
    }

    /// Where nobody else was, this one holds by a change of ours, for so long and with this head.
    pub(super) fn took(
        &mut self,
        name: &Name,
        (id, lease_ms, bytes): (RequestId, Option<u64>, Vec<u8>),
        version: u64,
        now: u64,
    ) {
        self.is_ours(version);
        let alone = Alone { id, deadline: lease_ms.map(|lease_ms| now + lease_ms) };
        let head = Head { version, time: now, bytes, alive: None };
        let record = Record { head: Some(head), queue: Vec::new() };
        let entry = Entry { record, alone: Some(alone), now, at: Moment::now() };
        self.names.insert(name.clone(), entry);
    }

    /// These waiters have said that they live.
    pub(super) fn touched(&mut self, seqs: &BTreeMap<u64, Vec<Name>>, live_ms: u64) {
        for (seq, names) in seqs {
            for name in names {
                let Some(entry) = self.names.get_mut(name) else { continue };
                let until = entry.now() + live_ms;
                for waiter in entry.record.queue.iter_mut().filter(|waiter| waiter.seq == *seq) {
                    waiter.alive_until = waiter.alive_until.max(until);
                }
            }
        }
    }

    pub(super) fn forget(&mut self, names: &[Name]) {
        for name in names {
            self.names.remove(name);
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.names.clear();
    }

    /// Whether this process made that change: then everyone here whom it concerns was told.
    pub(super) fn is_own(&self, version: u64) -> bool {
        self.own.iter().rev().any(|own| *own == version)
    }

    /// Somebody has written it since.
    pub(super) fn outdated(&mut self, name: &str, version: u64) {
        let older =
            |entry: &Entry| entry.record.head.as_ref().is_none_or(|head| head.version < version);
        if version == 0 || self.names.get(name).is_some_and(older) {
            self.names.remove(name);
        }
    }
}
