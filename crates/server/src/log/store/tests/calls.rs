//! What each call promises when nothing fails.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

use super::super::disk::{Disk, Os};
use super::*;

fn grow(store: &mut Store, from: u64, count: u64) {
    for index in from..from + count {
        store.append(&[(index, &[index as u8; 200])]).unwrap();
    }
}

#[test]
fn a_new_directory_is_an_empty_log() {
    let dir = tempfile::tempdir().unwrap();
    let (store, found) = open(&dir.path().join("data/log"));
    assert_eq!(store.bytes(), 0);
    assert_eq!(Model::from(found), Model::default());
}

#[test]
fn a_second_opening_is_refused_until_the_first_ends() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let error = Store::open(dir.path(), SMALL).map(|(_, found)| found).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }));
    assert!(error.to_string().contains("in use by another process"), "{error}");
    drop(first);
    open(dir.path());
}

#[test]
#[should_panic(expected = "without a gap")]
fn append_with_a_gap_before_it_panics() {
    let dir = tempfile::tempdir().unwrap();
    let _ = open(dir.path()).0.append(&[(2, b"two")]);
}

#[test]
#[should_panic(expected = "without a gap")]
fn append_with_a_gap_within_panics() {
    let dir = tempfile::tempdir().unwrap();
    let _ = open(dir.path()).0.append(&[(1, b"one"), (3, b"three")]);
}

#[test]
#[should_panic(expected = "cannot be truncated")]
fn truncating_purged_entries_panics() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path()).0;
    store.purge(5, b"").unwrap();
    let _ = store.truncate_after(4);
}

#[test]
fn purging_deletes_the_files_that_hold_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    grow(&mut store, 1, 100);
    let (before, bytes) = (files(dir.path()), store.bytes());
    assert!(before.len() > 4);
    store.purge(50, b"fifty").unwrap();
    let after = files(dir.path());
    assert!(after.len() <= before.len() / 2 + 1 && before.ends_with(&after), "{after:?}");
    assert!(store.bytes() < bytes * 2 / 3);
    store.purge(100, b"hundred").unwrap();
    assert_eq!(files(dir.path()).len(), 1);
    assert!(store.bytes() <= 4096);
    grow(&mut store, 101, 1);
    drop(store);
    let found = open(dir.path()).1;
    assert_eq!((found.purged, found.purged_meta), (100, b"hundred".to_vec()));
    assert_eq!(found.entries, [(101, vec![101; 200])]);
}

#[test]
fn a_purge_short_of_one_entry_keeps_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    grow(&mut store, 1, 40);
    let second = fs::read(&files(dir.path())[1]).unwrap();
    // The start record of the second file says where the first ended.
    let end = u64::from_le_bytes(second[24 + 20 + 1..][..8].try_into().unwrap());
    let count = files(dir.path()).len();
    store.purge(end - 1, b"").unwrap();
    assert_eq!(files(dir.path()).len(), count);
    store.purge(end, b"").unwrap();
    assert_eq!(files(dir.path()).len(), count - 1);
}

#[test]
fn meta_survives_purges_and_new_segments() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.save_meta(b"term 3, voted for 2").unwrap();
    for round in 0..5 {
        grow(&mut store, round * 40 + 1, 40);
        store.purge(round * 40 + 40, b"x").unwrap();
    }
    assert_eq!(files(dir.path()).len(), 1);
    drop(store);
    assert_eq!(open(dir.path()).1.meta, b"term 3, voted for 2");
}

#[test]
fn entries_overwritten_over_several_segments_survive_the_purge_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    grow(&mut store, 1, 40);
    store.truncate_after(5).unwrap();
    store.append(&[(6, b"six again"), (7, b"seven again")]).unwrap();
    store.purge(5, b"").unwrap();
    assert_eq!(files(dir.path()).len(), 1, "what was truncated keeps no file");
    drop(store);
    let found = open(dir.path()).1;
    assert_eq!(found.entries, [(6, b"six again".to_vec()), (7, b"seven again".to_vec())]);
}

#[test]
fn a_segment_that_dies_while_it_is_the_last_goes_with_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    grow(&mut store, 1, 3);
    store.purge(3, b"").unwrap();
    assert_eq!(files(dir.path()).len(), 1);
    store.append(&[(4, &[4; 4000])]).unwrap();
    assert_eq!(files(dir.path()).len(), 1);
    store.append(&[(5, &[5; 4000])]).unwrap();
    assert_eq!(files(dir.path()).len(), 2);
    store.truncate_after(3).unwrap();
    assert_eq!(files(dir.path()).len(), 1, "a truncation can be the end of a segment too");
    drop(store);
    let found = open(dir.path()).1;
    assert_eq!((found.purged, found.entries), (3, vec![]));
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.prepare_next().unwrap();
    store.append(&[(1, &vec![1; 20_000])]).unwrap();
    store.append(&[(2, b"two")]).unwrap();
    drop(store);
    let found = open(dir.path()).1;
    assert_eq!(found.entries, [(1, vec![1; 20_000]), (2, b"two".to_vec())]);
}

#[test]
fn a_batch_above_the_limit_is_refused_and_the_store_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    let half = vec![0; 1 << 29];
    let error = store.append(&[(1, &half), (2, &half)]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    store.append(&[(1, b"one")]).unwrap();
}

#[test]
fn calls_without_effect_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    grow(&mut store, 1, 3);
    store.purge(2, b"two").unwrap();
    let bytes = store.bytes();
    store.append(&[]).unwrap();
    store.truncate_after(3).unwrap();
    store.truncate_after(9).unwrap();
    store.purge(2, b"other").unwrap();
    store.purge(1, b"other").unwrap();
    assert_eq!(store.bytes(), bytes);
    drop(store);
    assert_eq!(open(dir.path()).1.purged_meta, b"two");
}

#[test]
fn a_segment_prepared_elsewhere_is_used_and_a_surplus_one_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    let (one, two) = (store.preparation().unwrap(), store.preparation().unwrap());
    let one = std::thread::spawn(|| one.run().unwrap()).join().unwrap();
    let two = two.run().unwrap();
    let (first, second) = (one.path.clone(), two.path.clone());
    store.adopt(one);
    assert!(store.preparation().is_none());
    store.adopt(two);
    assert!(!first.exists() && second.exists());
    grow(&mut store, 1, 1);
    assert!(!second.exists(), "it has a name of its own now");
    let left = store.preparation().unwrap().run().unwrap();
    drop(store);
    assert_eq!(open(dir.path()).1.entries.len(), 1);
    assert!(!left.path.exists(), "opening removes what nobody adopted");
}

#[test]
fn a_preparation_under_way_keeps_the_directory_locked() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    let preparation = store.preparation().unwrap();
    drop(store);
    assert!(matches!(Store::open(dir.path(), SMALL), Err(StoreError::Locked { .. })));
    drop(preparation);
    open(dir.path());
}

#[test]
fn the_reserve_is_kept_given_and_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("reserve");
    let options = Options { reserve_bytes: 10_000, ..SMALL };
    let (mut store, _) = Store::open(dir.path(), options).unwrap();
    assert!(store.has_reserve());
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
    store.release_reserve().unwrap();
    store.release_reserve().unwrap();
    assert!(!store.has_reserve() && !path.exists());
    store.restore_reserve().unwrap();
    assert!(store.has_reserve() && path.exists());
    drop(store);
    fs::write(&path, "half").unwrap();
    Store::open(dir.path(), options).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 10_000);
}

/// Writes down what the store asks of the disk.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<&'static str>>);

impl Recorder {
    fn note<T>(&self, what: &'static str, result: io::Result<T>) -> io::Result<T> {
        self.0.lock().unwrap().push(what);
        result
    }

    fn taken(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Disk for Recorder {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.note("write", Os.write_at(file, bytes, offset))
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.note("sync", Os.sync_data(file))
    }

    fn sync_dir(&self, dir: &File) -> io::Result<()> {
        self.note("sync dir", Os.sync_dir(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.note("rename", Os.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.note("remove", Os.remove(path))
    }
}

#[test]
fn a_call_is_one_write_and_one_sync() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(Recorder::default());
    let (mut store, _) = Store::open_on(disk.clone(), dir.path(), SMALL).unwrap();
    store.prepare_next().unwrap();
    assert_eq!(disk.taken(), ["write", "sync"]);
    store.append(&[(1, b"one"), (2, b"two")]).unwrap();
    assert_eq!(disk.taken(), ["write", "sync", "rename", "sync dir"], "the first of a segment");
    store.append(&[(3, b"three"), (4, b"four"), (5, &[5; 3000])]).unwrap();
    store.save_meta(b"meta").unwrap();
    store.truncate_after(5).unwrap();
    store.truncate_after(4).unwrap();
    assert_eq!(disk.taken(), ["write", "sync"].repeat(3));
    store.prepare_next().unwrap();
    store.append(&[(5, &[5; 2000])]).unwrap();
    disk.taken();
    store.purge(4, b"").unwrap();
    assert_eq!(disk.taken(), ["write", "sync", "remove", "sync dir"], "deleted when durable");
}
