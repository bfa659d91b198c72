//! A failing disk ends the store, a full one does not.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};

use super::super::disk::{Disk, Os};
use super::*;

/// A disk that can be full (files cannot grow) or break (a call and all after it fail).
#[derive(Debug)]
struct Faulty {
    full: AtomicBool,
    /// No write at all finds room: a file system that writes elsewhere instead of over the old.
    refuse: AtomicBool,
    /// Bytes that still fit when it is full; what is removed is added.
    room: AtomicU64,
    /// Calls that still succeed; negative for all.
    good: AtomicI64,
    kind: ErrorKind,
}

impl Faulty {
    fn new(kind: ErrorKind) -> Arc<Faulty> {
        let (full, refuse, room, good) = (false.into(), false.into(), 0.into(), (-1).into());
        Arc::new(Faulty { full, refuse, room, good, kind })
    }

    fn check(&self) -> io::Result<()> {
        match self.good.load(SeqCst) {
            0 => Err(self.kind.into()),
            good => {
                self.good.store(good - good.signum().max(0), SeqCst);
                Ok(())
            }
        }
    }
}

impl Disk for Faulty {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if let Err(error) = self.check() {
            // Half of it reaches the file, as far as a call has halves.
            let half = bytes.len() / 2;
            return if half > 0 { Os.write_at(file, &bytes[..half], offset) } else { Err(error) };
        }
        if self.refuse.load(SeqCst) {
            return Err(ErrorKind::StorageFull.into());
        }
        let grown = (offset + bytes.len() as u64).saturating_sub(file.metadata()?.len());
        let mut length = bytes.len();
        if self.full.load(SeqCst) && grown > 0 {
            let room = self.room.load(SeqCst).min(grown);
            if room == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room.fetch_sub(room, SeqCst);
            length -= (grown - room) as usize;
        }
        Os.write_at(file, &bytes[..length], offset)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.check().and_then(|()| Os.sync_data(file))
    }

    fn sync_dir(&self, dir: &File) -> io::Result<()> {
        self.check().and_then(|()| Os.sync_dir(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check().and_then(|()| Os.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check()?;
        let freed = path.metadata().map_or(0, |metadata| metadata.len());
        Os.remove(path)?;
        self.room.fetch_add(freed, SeqCst);
        Ok(())
    }
}

fn open_on(disk: &Arc<Faulty>, dir: &Path, options: Options) -> Store {
    Store::open_on(disk.clone(), dir, options).unwrap().0
}

fn assert_poisoned(store: &mut Store) {
    let results = [
        store.append(&[]),
        store.append(&[(store.state.last + 1, b"x")]),
        store.save_meta(b"x"),
        store.truncate_after(store.state.last),
        store.purge(store.state.last + 1, b"x"),
        store.purge(0, b"x"),
        store.prepare_next(),
    ];
    for (at, result) in results.into_iter().enumerate() {
        let error = result.expect_err("poisoned");
        assert_eq!(error.kind(), ErrorKind::Other);
        assert!(error.to_string().contains("restart"), "{at}: {error}");
    }
    assert!(store.preparation().is_none());
}

/// Every call to the disk in turn fails, for every call of the store.
#[test]
fn a_failing_disk_poisons_the_store() {
    // A full disk too, once it is too late for it to be harmless.
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        for good in 0..8 {
            let dir = tempfile::tempdir().unwrap();
            let disk = Faulty::new(kind);
            let mut store = open_on(&disk, dir.path(), SMALL);
            store.append(&[(1, &[1; 4000])]).unwrap();
            store.prepare_next().unwrap();
            disk.good.store(good, SeqCst);
            let result = store.append(&[(2, &[2; 2000])]).and_then(|()| store.purge(2, b""));
            let error = result.expect_err("eight calls are needed");
            assert_eq!(error.kind(), ErrorKind::Other, "{good}: {error}");
            assert!(error.to_string().contains("restart"), "{error}");
            disk.good.store(-1, SeqCst);
            assert_poisoned(&mut store);
            drop(store);
            let found = open(dir.path()).1;
            assert_eq!(found.purged + found.entries.len() as u64, if good < 3 { 1 } else { 2 });
        }
    }
}

#[test]
fn a_failing_disk_while_a_segment_is_prepared_poisons_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Faulty::new(ErrorKind::Other);
    let mut store = open_on(&disk, dir.path(), SMALL);
    disk.good.store(1, SeqCst);
    store.append(&[(1, b"one")]).unwrap_err();
    disk.good.store(-1, SeqCst);
    assert_poisoned(&mut store);
}

#[test]
fn a_full_disk_leaves_the_store_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Faulty::new(ErrorKind::Other);
    let mut store = open_on(&disk, dir.path(), SMALL);
    store.append(&[(1, &[1; 2000])]).unwrap();
    disk.full.store(true, SeqCst);
    for _ in 0..3 {
        // Half of the new segment fits, which must be given back.
        disk.room.store(2000, SeqCst);
        let error = store.append(&[(2, &[2; 3000])]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().contains("free space"), "{error}");
        assert_eq!(store.prepare_next().unwrap_err().kind(), ErrorKind::StorageFull);
    }
    assert!(
        fs::read_dir(dir.path()).unwrap().all(|file| !segment::is_spare(&file.unwrap().path()))
    );
    store.append(&[(2, b"a small one fits")]).unwrap();
    store.save_meta(b"and this").unwrap();
    disk.full.store(false, SeqCst);
    store.append(&[(3, &[3; 3000])]).unwrap();
    drop(store);
    let found = open(dir.path()).1;
    assert_eq!((found.entries.len(), found.meta, found.cut), (3, b"and this".to_vec(), None));
}

#[test]
fn a_prepared_segment_is_used_although_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Faulty::new(ErrorKind::Other);
    let mut store = open_on(&disk, dir.path(), SMALL);
    store.append(&[(1, &[1; 2000])]).unwrap();
    store.prepare_next().unwrap();
    disk.full.store(true, SeqCst);
    store.append(&[(2, &[2; 3000])]).unwrap();
    assert_eq!(store.append(&[(3, &[3; 3000])]).unwrap_err().kind(), ErrorKind::StorageFull);
}

#[test]
fn a_disk_too_full_to_overwrite_is_harmless_before_the_first_byte() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Faulty::new(ErrorKind::Other);
    let mut store = open_on(&disk, dir.path(), SMALL);
    store.append(&[(1, b"one")]).unwrap();
    store.prepare_next().unwrap();
    for entry in [&b"two"[..], &[2; 4000]] {
        disk.refuse.store(true, SeqCst);
        let error = store.append(&[(2, entry)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(store.preparation().is_none(), "the spare is still there");
        disk.refuse.store(false, SeqCst);
        store.append(&[(2, entry)]).unwrap();
        store.truncate_after(1).unwrap();
    }
    drop(store);
    let found = open(dir.path()).1;
    assert_eq!((found.entries, found.cut), (vec![(1, b"one".to_vec())], None));
}

#[test]
fn a_disk_that_fails_while_opening_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Faulty::new(ErrorKind::Other);
    disk.good.store(0, SeqCst);
    let options = Options { reserve_bytes: 4096, ..SMALL };
    let result = Store::open_on(disk, dir.path(), options);
    assert!(matches!(result, Err(StoreError::Io { .. })));
}

#[test]
fn the_reserve_is_given_up_and_is_enough_to_purge() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Faulty::new(ErrorKind::Other);
    let options = Options { segment_bytes: 1 << 20, reserve_bytes: 16 << 10 };
    let mut store = open_on(&disk, dir.path(), options);
    store.append(&[(1, &vec![1; (1 << 20) - 200])]).unwrap();
    disk.full.store(true, SeqCst);
    let vote = [7; 100];
    store.save_meta(&vote).unwrap();
    assert!(!store.has_reserve());
    store.purge(1, b"one").unwrap();
    assert_eq!(files(dir.path()).len(), 1);
    store.restore_reserve().expect("the deleted segment made room");
    drop(store);
    let found = open(dir.path()).1;
    assert_eq!((found.purged, found.meta), (1, vote.to_vec()));
}

#[test]
fn room_that_was_made_is_enough_and_room_that_is_not_there_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Faulty::new(ErrorKind::Other);
    let options = Options { segment_bytes: 64 << 10, reserve_bytes: 64 << 10 };
    let mut store = open_on(&disk, dir.path(), options);
    store.append(&[(1, b"one")]).unwrap();
    assert!(!store.is_short());
    disk.full.store(true, SeqCst);
    let mut last = 1;
    // All that is left of the segment, then what the reserve gives; then nothing more.
    let entry = [7; 1000];
    while store.make_room(1_000).is_ok() {
        last += 1;
        store.append(&[(last, &entry)]).unwrap();
        store.save_meta(&[last as u8; 50]).expect("room for its own notes was made too");
        assert!(last < 1_000, "a full disk takes everything");
    }
    assert!(last > 80, "the segment and the reserve hold more than {last}");
    assert!(store.is_short() && !store.has_reserve());
    assert_eq!(store.make_room(1_000).unwrap_err().kind(), ErrorKind::StorageFull);
    disk.full.store(false, SeqCst);
    store.make_room(1_000).unwrap();
    assert!(!store.is_short());
    drop(store);
    assert_eq!(open(dir.path()).1.entries.len() as u64, last);
}

#[test]
fn a_full_disk_is_no_reason_not_to_start() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Faulty::new(ErrorKind::Other);
    disk.full.store(true, SeqCst);
    let options = Options { reserve_bytes: 4096, ..SMALL };
    let mut store = open_on(&disk, dir.path(), options);
    assert!(!store.has_reserve());
    assert_eq!(store.restore_reserve().unwrap_err().kind(), ErrorKind::StorageFull);
    disk.full.store(false, SeqCst);
    store.restore_reserve().unwrap();
    assert!(store.has_reserve());
}
