//! Records that this process has claimed: whoever finishes, renews or puts back need not read them first.
//! If one is not as it was, the store says so. Bounded: what does not fit is read.

use std::collections::{BTreeMap, HashMap};

use keylatch_table::Text;

use super::store::{Seen, TaskRecord};

/// So many bytes of records are kept.
const MOST_BYTES: usize = 16 << 20;
/// What a record costs beside its bytes.
const EACH: usize = 300;

#[derive(Debug, Default)]
pub(super) struct Known {
    records: HashMap<(Text, Text), (u64, Seen)>,
    /// The oldest first.
    ages: BTreeMap<u64, (Text, Text)>,
    bytes: usize,
    age: u64,
}

fn size(record: &TaskRecord) -> usize {
    EACH + record.bytes.len() + record.claim.len()
}

impl Known {
    pub(super) fn keep(&mut self, now: u64, record: TaskRecord) {
        let name = (record.pool.clone(), record.key.clone());
        self.forget(&name.0, &name.1);
        self.bytes += size(&record);
        self.age += 1;
        self.ages.insert(self.age, name.clone());
        self.records.insert(name, (self.age, Seen { now, record: Some(record) }));
        while self.bytes > MOST_BYTES
            && let Some((_, (pool, key))) = self.ages.first_key_value()
        {
            let (pool, key) = (pool.clone(), key.clone());
            self.forget(&pool, &key);
        }
    }

    /// The record at this version.
    pub(super) fn at(&self, pool: &Text, key: &Text, version: u64) -> Option<Seen> {
        let (_, seen) = self.records.get(&(pool.clone(), key.clone()))?;
        let fits = seen.record.as_ref().is_some_and(|record| record.last.version == version);
        fits.then(|| seen.clone())
    }

    pub(super) fn forget(&mut self, pool: &Text, key: &Text) {
        if let Some((age, seen)) = self.records.remove(&(pool.clone(), key.clone())) {
            self.ages.remove(&age);
            self.bytes -= seen.record.as_ref().map_or(0, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use keylatch_table::TaskState;

    use super::super::store::Stamp;
    use super::*;

    fn record(key: &str, version: u64, length: usize) -> TaskRecord {
        TaskRecord {
            pool: "p".into(),
            key: key.into(),
            last: Stamp { version, time: 1 },
            written: Stamp { version, time: 1 },
            number: 1,
            state: TaskState::Claimed,
            priority: 0,
            ready: None,
            alive: None,
            bytes: vec![0; length].into(),
            claim: Vec::new().into(),
        }
    }

    #[test]
    fn only_the_version_that_is_meant_is_known_and_the_oldest_goes_first() {
        let mut known = Known::default();
        let p: Text = "p".into();
        known.keep(1, record("a", 5, 10));
        assert!(known.at(&p, &"a".into(), 5).is_some());
        assert!(known.at(&p, &"a".into(), 4).is_none());
        known.keep(1, record("a", 6, 10));
        assert!(known.at(&p, &"a".into(), 5).is_none());
        for number in 0..300 {
            known.keep(1, record(&number.to_string(), 7, 65_536));
        }
        assert!(known.bytes <= MOST_BYTES);
        assert!(known.at(&p, &"a".into(), 6).is_none());
        assert!(known.at(&p, &"299".into(), 7).is_some());
        known.forget(&p, &"299".into());
        assert_eq!(known.records.len(), known.ages.len());
        let all: usize =
            known.records.values().map(|(_, seen)| size(seen.record.as_ref().unwrap())).sum();
        assert_eq!(all, known.bytes);
    }
}
