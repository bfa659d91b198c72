//! What stands in etcd's values, and what was read becomes.

use std::collections::{BTreeMap, BTreeSet};

use keylatch_table::RequestId;

use super::super::store::{Append, Head, Name, Put, Record, Told, View, Waiter};
use super::keys::{Base, Keys, Part};
use super::wire::KeyValue;

/// The first byte of a head: whether it may be swept once nothing stands beside it.
const STAYS: u8 = 0;
const MAY_GO: u8 = 1;
/// The flag and the time.
const HEAD: usize = 9;
/// The life, and the time.
const WAIT: usize = 16;

/// Why something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// A change was made, whose version is this number of its revision.
    Change { index: u64 },
    /// A lease ended.
    Lease,
}

pub(super) fn head(put: &Put, now: u64) -> Vec<u8> {
    let flag = if put.keep_ms.is_some() { MAY_GO } else { STAYS };
    let mut value = Vec::with_capacity(HEAD + put.bytes.len());
    value.push(flag);
    value.extend(now.to_le_bytes());
    value.extend(&put.bytes);
    value
}

pub(super) fn may_go(head: &[u8]) -> bool {
    head.first() == Some(&MAY_GO)
}

/// Who holds, where the key does not say it.
pub(super) fn hold(id: &RequestId) -> Vec<u8> {
    id.to_string().into_bytes()
}

fn held_by(value: &[u8]) -> Option<RequestId> {
    std::str::from_utf8(value).ok().map(RequestId::new)
}

pub(super) fn wait(append: &Append, now: u64) -> Vec<u8> {
    let mut value = append.live_ms.to_le_bytes().to_vec();
    value.extend(now.to_le_bytes());
    value.extend(&append.bytes);
    value
}

/// As text, so that whoever looks into etcd can read it.
pub(super) fn told(name: &str, removed: &[u64], why: Why) -> Vec<u8> {
    let removed: Vec<String> = removed.iter().map(u64::to_string).collect();
    let why = match why {
        Why::Change { index } => index.to_string(),
        Why::Lease => ENDED.into(),
    };
    format!("{why} {} {name}", removed.join(",")).into_bytes()
}

const ENDED: &str = "ended";

/// What somebody told, in this revision. Nothing, if it makes no sense.
pub(super) fn hear(value: &[u8], base: Base, revision: i64) -> Option<Told> {
    let (why, rest) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    let (removed, name) = rest.split_once(' ')?;
    let removed = removed.split(',').filter(|seq| !seq.is_empty());
    let removed = removed.map(|seq| seq.parse().ok()).collect::<Option<Vec<u64>>>()?;
    let version = match why {
        ENDED => 0,
        index => base.number(revision) + index.parse::<u64>().ok()?,
    };
    Some(Told::Changed { name: name.into(), version, removed })
}

/// What was read, as it is seen at this time. A waiter that is there lives, whatever clocks say: etcd takes
/// it away when it does not.
pub(super) fn view<'a>(
    keys: &Keys,
    base: Base,
    now: u64,
    names: impl IntoIterator<Item = &'a Name>,
    kvs: impl IntoIterator<Item = KeyValue>,
) -> View {
    let mut records: BTreeMap<Name, Record> =
        names.into_iter().map(|name| (name.clone(), Record::default())).collect();
    // Sorted by key, a head comes before its holders.
    for mut kv in kvs {
        let Some((name, part)) = keys.parse(&kv.key) else { continue };
        let record = records.entry(name).or_default();
        match part {
            Part::Head { index } if kv.value.len() >= HEAD => {
                let time = number(&kv.value[1..HEAD]);
                let bytes = kv.value.split_off(HEAD);
                let version = base.number(kv.mod_revision) + index;
                record.head = Some(Head { version, time, bytes, alive: Some(BTreeSet::new()) });
            }
            Part::Hold(id) => {
                let alive = record.head.as_mut().and_then(|head| head.alive.as_mut());
                if let (Some(alive), Some(id)) = (alive, id.or_else(|| held_by(&kv.value))) {
                    alive.insert(id);
                }
            }
            Part::Wait { index } if kv.value.len() >= WAIT => {
                let live_ms = number(&kv.value[..8]);
                let came = Some(number(&kv.value[8..WAIT]));
                let seq = base.number(kv.mod_revision) + index;
                let bytes = kv.value.split_off(WAIT);
                let alive_until = now.saturating_add(live_ms);
                record.queue.push(Waiter { seq, time: now, alive_until, came, bytes });
            }
            Part::Head { .. } | Part::Keep | Part::Wait { .. } => {}
        }
    }
    for record in records.values_mut() {
        record.queue.sort_unstable_by_key(|waiter| waiter.seq);
    }
    View { now, names: records }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        let base = Base::new(5);
        let odd = " a b\n,";
        let heard = hear(&told(odd, &[7, 9], Why::Change { index: 2 }), base, 3);
        let expected =
            Told::Changed { name: odd.into(), version: base.number(3) + 2, removed: vec![7, 9] };
        assert_eq!(heard, Some(expected));
        let heard = hear(&told("", &[], Why::Lease), base, 3);
        assert_eq!(heard, Some(Told::Changed { name: "".into(), version: 0, removed: vec![] }));
        assert_eq!(hear(b"x", base, 3), None);
    }
}
