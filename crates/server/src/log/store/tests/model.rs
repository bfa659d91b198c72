//! The store against the simplest thing that behaves alike: a list, two blobs, and a number.

use std::io;

use super::*;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Model {
    entries: Vec<(u64, Vec<u8>)>,
    purged: u64,
    purged_meta: Vec<u8>,
    meta: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Append(Vec<Vec<u8>>),
    Meta(Vec<u8>),
    Truncate(u64),
    Purge(u64, Vec<u8>),
}

impl Model {
    pub(super) fn last(&self) -> u64 {
        self.entries.last().map_or(self.purged, |(index, _)| *index)
    }

    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Append(new) => {
                for bytes in new {
                    self.entries.push((self.last() + 1, bytes.clone()));
                }
            }
            Op::Meta(meta) => self.meta.clone_from(meta),
            Op::Truncate(last) => self.entries.retain(|(index, _)| index <= last),
            Op::Purge(upto, meta) if *upto > self.purged => {
                self.entries.retain(|(index, _)| index > upto);
                (self.purged, self.purged_meta) = (*upto, meta.clone());
            }
            Op::Purge(..) => {}
        }
    }

    pub(super) fn call(&self, store: &mut Store, op: &Op) -> io::Result<()> {
        match op {
            Op::Append(new) => {
                let new = new.iter().map(Vec::as_slice);
                store.append(&(self.last() + 1..).zip(new).collect::<Vec<_>>())
            }
            Op::Meta(meta) => store.save_meta(meta),
            Op::Truncate(last) => store.truncate_after(*last),
            Op::Purge(upto, meta) => store.purge(*upto, meta),
        }
    }

    pub(super) fn random(&self, random: &mut Random) -> Op {
        let live = self.entries.len() as u64;
        match random.below(40) {
            0..26 => Op::Append((0..=random.below(5)).map(|_| random.bytes(300)).collect()),
            26..32 => Op::Meta(random.bytes(40)),
            32..37 => Op::Truncate(self.last() - random.below(live.min(8) + 1)),
            37..39 => Op::Purge(self.purged + random.below(live / 2 + 1), random.bytes(30)),
            // As after a snapshot from another member; rarely one behind the end of the log.
            _ => Op::Purge(self.last() + random.below(3), random.bytes(30)),
        }
    }
}

impl From<Recovered> for Model {
    fn from(found: Recovered) -> Model {
        let Recovered { entries, purged, purged_meta, meta, cut: _ } = found;
        Model { entries, purged, purged_meta, meta }
    }
}

#[test]
fn random_calls_are_found_again_after_every_reopening() {
    for seed in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random::new(seed);
        let mut model = Model::default();
        let (mut store, _) = open(dir.path());
        let mut most_files = 0;
        for step in 0..300 {
            match random.below(12) {
                0 => {
                    let bytes = store.bytes();
                    drop(store);
                    let (again, found) = open(dir.path());
                    assert_eq!(found.cut, None, "seed {seed} step {step}");
                    assert_eq!(Model::from(found), model, "seed {seed} step {step}");
                    assert_eq!(again.bytes(), bytes, "seed {seed} step {step}");
                    store = again;
                }
                1 => store.prepare_next().unwrap(),
                _ => {
                    let op = model.random(&mut random);
                    model.call(&mut store, &op).unwrap();
                    model.apply(&op);
                }
            }
            most_files = most_files.max(files(dir.path()).len());
        }
        drop(store);
        assert_eq!(Model::from(open(dir.path()).1), model, "seed {seed}");
        assert!(most_files > 3, "seed {seed}: {most_files} files are too few to test anything");
    }
}
