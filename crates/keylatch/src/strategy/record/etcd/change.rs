//! A change as one transaction of etcd: what must be so, what is written then, and what is read if it is
//! not so. One round trip, whatever comes of it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::store::{
    Change, Done, Expect, Found, Holder, Name, NameChange, Put, Stand, Write,
};
use super::keys::{Base, Keys, NUMBERS, Part, next};
use super::leases::{Class, class};
use super::value::{self, Why};
use super::wire::{
    Compare, KeyValue, Op, RangeRequest, SortOrder, SortTarget, TxnRequest, TxnResponse,
};

/// How many operations etcd takes in a transaction, if nobody has told it otherwise. A transaction in
/// another one counts for itself, with what the outer one has left.
pub(super) const OPS: usize = 128;
/// How many waiters one change may bring: so many are looked at to find the last one of a queue.
pub(super) const APPENDS: i64 = 32;

/// Names, holders and waiters of a small change, together. It needs less than 4 operations for each.
const SMALL: usize = 16;

/// A transaction, and what its answer means.
pub(super) struct Composed {
    pub(super) txn: TxnRequest,
    /// What is read before the change, a name after the other.
    finds: Vec<Find>,
}

struct Find {
    name: Name,
    /// Known without reading.
    version: Option<u64>,
    last_seq: Option<u64>,
}

/// Where everything stands, and which leases there are for what lives so long.
pub(super) struct Ground<'a> {
    pub(super) keys: &'a Keys,
    pub(super) base: Base,
    pub(super) leases: &'a BTreeMap<Class, i64>,
    /// The time that is written.
    pub(super) now: u64,
    /// Which number of its revision is the version: others may be changed at once.
    pub(super) index: u64,
    /// How many operations it may take.
    pub(super) room: usize,
}

#[derive(Default)]
struct Parts {
    compare: Vec<Compare>,
    /// Waiters that leave several queues, in all of these but one. A request leaves all its queues
    /// at once (9), so these say nothing new; they are left out where there is no room.
    again: Vec<Compare>,
    reads: Vec<Op>,
    /// What is told only if somebody waits.
    tells: Vec<Op>,
    writes: Vec<Op>,
    failure: Vec<Op>,
}

/// For which times a change needs leases, and the longest of each.
pub(super) fn needs(change: &Change) -> BTreeMap<Class, u64> {
    let mut needs = BTreeMap::new();
    let mut need = |ms: u64| {
        let longest = needs.entry(class(ms)).or_insert(ms);
        *longest = ms.max(*longest);
    };
    for one in change.names.values() {
        if let Write::Put(put) = &one.head {
            put.holders
                .iter()
                .filter(|holder| holder.leased)
                .filter_map(|holder| holder.left_ms)
                .for_each(&mut need);
            keep_ms(put).into_iter().for_each(&mut need);
        }
    }
    change.appends.iter().for_each(|append| need(append.live_ms));
    needs
}

/// How long a head without holders is not swept. One with holders is not as long as one of them lives.
pub(super) fn keep_ms(put: &Put) -> Option<u64> {
    put.keep_ms.filter(|ms| put.holders.is_empty() && *ms > 0)
}

/// How many numbers a change needs for itself in a revision.
pub(super) fn slots(change: &Change) -> u64 {
    change.all_numbers().max(change.names.len() as u64)
}

/// Whether it is so small that others can be made at once with it.
pub(super) fn is_small(change: &Change) -> bool {
    let holders = |one: &NameChange| match &one.head {
        Write::Put(put) => put.holders.len() + put.bytes.len() / 512,
        Write::Keep | Write::Delete => 0,
    };
    let one = |one: &NameChange| 1 + one.remove.len() + holders(one);
    let names: usize = change.names.values().map(|it| one(it)).sum();
    let bytes: usize = change.appends.iter().map(|append| append.bytes.len()).sum();
    let appends: usize = change.appends.iter().map(|append| append.to.len()).sum();
    names + appends + bytes / 512 <= SMALL
}

pub(super) fn compose(ground: &Ground<'_>, change: &Change) -> Result<Composed, String> {
    if change.all_numbers() > NUMBERS || change.appends.len() > APPENDS.unsigned_abs() as usize {
        return Err(format!(
            "a change of {} numbers and {} waiters: at most {NUMBERS} and {APPENDS}",
            change.numbers,
            change.appends.len()
        ));
    }
    let keys = ground.keys;
    let mut parts = Parts::default();
    let mut finds = Vec::with_capacity(change.names.len());
    let mut seen = BTreeSet::new();
    for (number, (name, one)) in change.names.iter().enumerate() {
        expect(&mut parts, ground, name, one);
        finds.push(find(&mut parts, ground, name, one));
        tell(&mut parts, ground, number, name, one);
        write(&mut parts, ground, name, one);
        for stand in &one.remove {
            let Some((key, revision)) = remove_key(ground, name, stand) else {
                parts.compare.push(Compare::written(keys.keep(name), NEVER));
                continue;
            };
            let compare = Compare::written(key.clone(), revision);
            match seen.insert((&stand.id, stand.seq)) {
                true => parts.compare.push(compare),
                false => parts.again.push(compare),
            }
            if !is_written_again(ground, change, name, &key) {
                parts.writes.push(Op::delete(key));
            }
        }
        parts.failure.push(Op::range(RangeRequest::all(keys.all(name))));
    }
    append(&mut parts, ground, change);
    if parts.writes.is_empty() {
        parts.writes.push(Op::put(keys.count(ground.index), Vec::new(), 0));
    }
    Ok(Composed { txn: parts.fold(ground.room)?, finds })
}

/// Nothing was written in it.
const NEVER: i64 = -1;

fn expect(parts: &mut Parts, ground: &Ground<'_>, name: &str, one: &NameChange) {
    let Ground { keys, base, .. } = *ground;
    parts.compare.push(match one.expect {
        Expect::Absent => Compare::none_in(keys.all(name)),
        Expect::There => Compare::some_in(keys.heads(name)),
        Expect::Version(version) => {
            let (revision, index) = base.revision(version).unwrap_or((NEVER, 0));
            Compare::written(keys.head(name, index), revision)
        }
    });
    // Whoever has seen one waiter of a revision has seen all of it, because one revision has at
    // most one change of a name: it is enough to compare these. The first number of a revision is
    // never a waiter's.
    let Some(last_seq) = one.last_seq.filter(|_| one.expect != Expect::Absent) else { return };
    parts.compare.push(match base.revision(last_seq) {
        None => Compare::none_in(keys.waits(name)),
        Some((revision, 0)) => Compare::all_before(keys.waits(name), revision),
        Some((revision, _)) => Compare::all_before(keys.waits(name), revision + 1),
    });
}

/// Whether it is certain that nobody waits if all is as expected.
fn nobody_waits(base: Base, one: &NameChange) -> bool {
    one.expect == Expect::Absent || one.last_seq.is_some_and(|seq| base.revision(seq).is_none())
}

fn find(parts: &mut Parts, ground: &Ground<'_>, name: &Name, one: &NameChange) -> Find {
    let Ground { keys, base, .. } = *ground;
    let version = match one.expect {
        Expect::Absent => Some(0),
        Expect::Version(version) => Some(version),
        Expect::There => {
            let head = RangeRequest { keys_only: true, ..RangeRequest::all(keys.heads(name)) };
            parts.reads.push(Op::range(head));
            None
        }
    };
    let last_seq = nobody_waits(base, one).then_some(0);
    if last_seq.is_none() {
        parts.reads.push(Op::range(RangeRequest {
            keys_only: true,
            sort_order: SortOrder::Descending as i32,
            sort_target: SortTarget::Mod as i32,
            // All of the last revision are among them.
            limit: APPENDS,
            ..RangeRequest::all(keys.waits(name))
        }));
    }
    Find { name: name.clone(), version, last_seq }
}

fn tell(parts: &mut Parts, ground: &Ground<'_>, number: usize, name: &Name, one: &NameChange) {
    let Ground { keys, base, .. } = *ground;
    if matches!(one.head, Write::Keep) && one.remove.is_empty() && !one.tell {
        return;
    }
    let removed: Vec<u64> = one.remove.iter().map(|stand| stand.seq).collect();
    let told = value::told(name, &removed, Why::Change { index: ground.index });
    let told = Op::put(keys.told(ground.slot(number)), told, 0);
    if let (false, Some(seq)) = (one.tell, one.own_up_to) {
        parts.tells.push(if_somebody_is_behind(ground, name, seq, told));
    } else if one.tell || !one.remove.is_empty() {
        parts.writes.push(told);
    } else if !nobody_waits(base, one) {
        parts.tells.push(if_somebody_waits(keys, name, told));
    }
}

/// Done only if somebody stands in this queue.
pub(super) fn if_somebody_waits(keys: &Keys, name: &str, op: Op) -> Op {
    let compare = vec![Compare::some_in(keys.waits(name))];
    Op::txn(TxnRequest { compare, success: vec![op], failure: Vec::new() })
}

/// Done only if somebody stands in this queue behind the one with this seq.
fn if_somebody_is_behind(ground: &Ground<'_>, name: &str, seq: u64, op: Op) -> Op {
    let (revision, _) = ground.base.revision(seq).unwrap_or_default();
    let compare = vec![Compare::all_before(ground.keys.waits(name), revision + 1)];
    Op::txn(TxnRequest { compare, success: Vec::new(), failure: vec![op] })
}

fn write(parts: &mut Parts, ground: &Ground<'_>, name: &str, one: &NameChange) {
    let keys = ground.keys;
    let put = match &one.head {
        Write::Keep => return,
        Write::Delete => {
            return parts.writes.push(Op::delete_range(keys.head_to_keep(name)));
        }
        Write::Put(put) => put,
    };
    let key = keys.head(name, ground.index);
    let keep = keep_ms(put);
    if one.expect != Expect::Absent {
        clear(parts, keys, name, put, &key);
    }
    parts.writes.push(Op::put(key, value::head(put, ground.now), 0));
    for holder in put.holders.iter().filter(|holder| holder.leased) {
        let lease = holder.left_ms.map_or(0, |ms| ground.lease(ms));
        parts.writes.push(match put.holders.len() {
            1 => Op::put(keys.hold_alone(name), value::hold(&holder.id), lease),
            _ => Op::put(keys.hold(name, &holder.id), Vec::new(), lease),
        });
    }
    if let Some(ms) = keep {
        parts.writes.push(Op::put(keys.keep(name), Vec::new(), ground.lease(ms)));
    }
}

/// Removes the old head and what stands beside it for those who do not hold any more: all between what
/// stays, because etcd does not let a key be deleted and put at once. Who held before may stand under either of
/// its keys; if the one for whoever is alone is that of somebody who has left, it stands for nobody.
fn clear(parts: &mut Parts, keys: &Keys, name: &str, put: &Put, head: &[u8]) {
    let mut stay = vec![head.to_vec()];
    if put.holders.len() == 1 || put.holders.iter().any(|holder| !holder.leased) {
        stay.push(keys.hold_alone(name));
    }
    let many = |holder: &&Holder| put.holders.len() > 1 || !holder.leased;
    stay.extend(put.holders.iter().filter(many).map(|holder| keys.hold(name, &holder.id)));
    stay.sort_unstable();
    let (mut from, end) = keys.head_to_keep(name);
    for key in stay {
        if from < key {
            parts.writes.push(Op::delete_range((from, key.clone())));
        }
        from = next(key);
    }
    let end = if keep_ms(put).is_some() { keys.keep(name) } else { end };
    parts.writes.push(Op::delete_range((from, end)));
}

fn append(parts: &mut Parts, ground: &Ground<'_>, change: &Change) {
    let keys = ground.keys;
    for (number, append) in change.appends.iter().enumerate() {
        for name in &append.to {
            let one = change.names.get(name);
            let absent = one.is_some_and(|one| one.expect == Expect::Absent);
            let leaves = one.is_some_and(|one| one.remove.iter().any(|it| it.id == append.id));
            if !absent && !leaves {
                parts.compare.push(Compare::none_in(keys.waits_of(name, &append.id)));
            }
            let key = keys.wait(name, &append.id, change.seq_of(ground.index, number));
            let value = value::wait(append, ground.now);
            parts.writes.push(Op::put(key, value, ground.lease(append.live_ms)));
        }
    }
}

/// The key of a waiter, and when it was written. Nothing, if no waiter has such a seq.
fn remove_key(ground: &Ground<'_>, name: &str, stand: &Stand) -> Option<(Vec<u8>, i64)> {
    let (revision, index) = ground.base.revision(stand.seq)?;
    Some((ground.keys.wait(name, &stand.id, index), revision))
}

/// Who leaves and comes again in one change may come under the same key, which is then only put.
fn is_written_again(ground: &Ground<'_>, change: &Change, name: &Name, key: &[u8]) -> bool {
    change.appends.iter().enumerate().any(|(number, append)| {
        append.to.contains(name)
            && ground.keys.wait(name, &append.id, change.seq_of(ground.index, number)) == key
    })
}

impl Ground<'_> {
    /// A key for what is told of a name of this change. Each change has numbers of its own, of which it
    /// has more than enough: see [`slots`].
    fn slot(&self, number: usize) -> u64 {
        self.index + number as u64
    }

    fn lease(&self, ms: u64) -> i64 {
        self.leases.get(&class(ms)).copied().unwrap_or_default()
    }
}

impl Parts {
    fn fold(mut self, room: usize) -> Result<TxnRequest, String> {
        let mut compare = std::mem::take(&mut self.compare);
        let few = compare.len();
        compare.append(&mut self.again);
        for compares in [compare.len(), few] {
            if let Some(groups) = self.groups(compares, room) {
                compare.truncate(compares);
                return Ok(self.grouped(compare, groups));
            }
        }
        Err(format!(
            "a change of {} conditions and {} writes is more than etcd takes at once: fewer names, waiters or holders",
            compare.len(),
            self.writes.len()
        ))
    }

    /// In how many transactions of their own the writes must be; 0 if they need none.
    fn groups(&self, compares: usize, ops: usize) -> Option<usize> {
        let first = self.reads.len() + self.tells.len();
        let outer = |more: usize| compares.max(self.failure.len()).max(first + more);
        if outer(self.writes.len()) + usize::from(!self.tells.is_empty()) <= ops {
            return Some(0);
        }
        let fits = |groups: &usize| {
            ops.checked_sub(outer(*groups)).is_some_and(|room| groups * room >= self.writes.len())
        };
        (1..ops).find(fits)
    }

    fn grouped(self, compare: Vec<Compare>, groups: usize) -> TxnRequest {
        let mut success = self.reads;
        success.extend(self.tells);
        if groups == 0 {
            success.extend(self.writes);
        } else {
            let size = self.writes.len().div_ceil(groups);
            let group =
                |ops: &[Op]| Op::txn(TxnRequest { success: ops.to_vec(), ..TxnRequest::default() });
            success.extend(self.writes.chunks(size).map(group));
        }
        TxnRequest { compare, success, failure: self.failure }
    }
}

impl Composed {
    /// What the answer to a transaction that happened says.
    pub(super) fn done(self, ground: &Ground<'_>, revision: i64, answer: TxnResponse) -> Done {
        let Ground { keys, base, now, .. } = *ground;
        let version = base.number(revision) + ground.index;
        let mut read = answer.ranges();
        let mut names = BTreeMap::new();
        for find in self.finds {
            let newest = |kvs: Vec<KeyValue>| {
                kvs.iter().map(|kv| base.number(kv.mod_revision) + index(keys, kv)).max()
            };
            let mut largest = || read.next().and_then(newest).unwrap_or(0);
            let version = find.version.unwrap_or_else(&mut largest);
            let last_seq = find.last_seq.unwrap_or_else(&mut largest);
            names.insert(find.name, Found { version, last_seq });
        }
        Done { version, now, names }
    }
}

/// Which number of its revision a key has.
fn index(keys: &Keys, kv: &KeyValue) -> u64 {
    match keys.parse(&kv.key) {
        Some((_, Part::Wait { index } | Part::Head { index })) => index,
        _ => 0,
    }
}
