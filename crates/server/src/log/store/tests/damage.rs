//! Torn tails are cut, damage is refused: every byte of a small log in turn.

use super::*;

/// A log of several segments and the places of the batches in its last one. The state before the
/// last batch comes with it.
struct Log {
    dir: TempDir,
    /// Start of each batch in the last file; the last one ends at `end`, its payload at `payload`.
    starts: Vec<usize>,
    payload: usize,
    end: usize,
    before: Model,
    after: Model,
}

fn log() -> Log {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.save_meta(b"meta").unwrap();
    for index in 1..=16 {
        store.append(&[(index, &[index as u8; 500])]).unwrap();
    }
    store.purge(9, b"nine").unwrap();
    store.append(&[(17, b"seventeen"), (18, b"eighteen")]).unwrap();
    drop(store);
    let before = Model::from(open(copy(dir.path()).path()).1);
    open(dir.path()).0.append(&[(19, b"nineteen"), (20, &[0; 7]), (21, b"")]).unwrap();
    let after = Model::from(open(copy(dir.path()).path()).1);
    assert!(files(dir.path()).len() >= 2, "segments before the last one");

    let bytes = fs::read(last_file(dir.path())).unwrap();
    let (mut starts, mut at, mut payload) = (Vec::new(), 24, 0);
    while bytes[at..].starts_with(b"KLB1") {
        starts.push(at);
        payload = at + 20 + u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        at = payload.next_multiple_of(8);
    }
    assert!(starts.len() >= 3 && at > payload, "several batches, and padding behind the last");
    Log { dir, starts, payload, end: at, before, after }
}

impl Log {
    fn last_start(&self) -> usize {
        *self.starts.last().unwrap()
    }

    /// A copy whose last file was changed.
    fn changed(&self, change: impl FnOnce(&mut Vec<u8>)) -> TempDir {
        let dir = copy(self.dir.path());
        let path = last_file(dir.path());
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        dir
    }
}

/// After a cut the place is clean, and what is written next is found, without another cut.
fn goes_on(dir: &Path, mut model: Model) {
    let (mut store, found) = open(dir);
    assert_eq!(found.cut, None, "cut twice");
    assert_eq!(Model::from(found), model);
    let op = model::Op::Append(vec![b"next".to_vec()]);
    model.call(&mut store, &op).unwrap();
    model.apply(&op);
    drop(store);
    assert_eq!(Model::from(open(dir).1), model);
}

#[test]
fn a_file_that_ends_within_the_last_batch_loses_only_that() {
    let log = log();
    for length in log.last_start()..log.payload {
        let dir = log.changed(|bytes| bytes.truncate(length));
        let (store, found) = open(dir.path());
        assert_eq!(found.cut.is_some(), length > log.last_start(), "length {length}");
        assert_eq!(Model::from(found), log.before, "length {length}");
        drop(store);
        goes_on(dir.path(), log.before.clone());
    }
    for length in log.payload..=log.end {
        let dir = log.changed(|bytes| bytes.truncate(length));
        let found = open(dir.path()).1;
        assert_eq!(found.cut, None, "only padding is missing at length {length}");
        assert_eq!(Model::from(found), log.after);
        goes_on(dir.path(), log.after.clone());
    }
}

#[test]
fn a_last_batch_of_which_only_a_part_was_written_is_cut() {
    let log = log();
    let start = log.last_start();
    for middle in start..log.payload {
        // Either half may be the one that reached the disk.
        for lost in [start..middle, middle..log.payload] {
            let dir = log.changed(|bytes| bytes[lost.clone()].fill(0));
            let found = open(dir.path()).1;
            let original = fs::read(last_file(log.dir.path())).unwrap();
            let expected = match original[lost.clone()].iter().all(|&byte| byte == 0) {
                true => &log.after,
                false => &log.before,
            };
            assert_eq!(&Model::from(found), expected, "without {lost:?}");
            goes_on(dir.path(), expected.clone());
        }
    }
}

#[test]
fn a_flipped_byte_in_the_last_batch_cuts_it() {
    let log = log();
    for at in log.last_start()..log.payload {
        let dir = log.changed(|bytes| bytes[at] ^= 0x41);
        let (store, found) = open(dir.path());
        let cut = found.cut.clone().unwrap();
        assert_eq!((cut.offset, &cut.file), (log.last_start() as u64, &last_file(dir.path())));
        assert_eq!(Model::from(found), log.before, "byte {at}");
        drop(store);
        let bytes = fs::read(&cut.file).unwrap();
        assert!(bytes[log.last_start()..].iter().all(|&byte| byte == 0), "zeros behind the end");
        goes_on(dir.path(), log.before.clone());
    }
}

#[test]
fn a_flipped_byte_in_an_earlier_batch_is_refused() {
    let log = log();
    let original = fs::read(last_file(log.dir.path())).unwrap();
    for pair in log.starts.windows(2) {
        let length = u32::from_le_bytes(original[pair[0] + 4..pair[0] + 8].try_into().unwrap());
        for at in pair[0]..pair[1] {
            let dir = log.changed(|bytes| bytes[at] ^= 0x41);
            if at >= pair[0] + 20 + length as usize {
                assert_eq!(Model::from(open(dir.path()).1), log.after, "padding byte {at}");
            } else {
                let error = refused(dir.path());
                let place = format!("at byte {}: ", pair[0]);
                assert!(error.contains(&place) && error.contains(".log"), "{at}: {error}");
                assert!(error.contains("join again from a snapshot"), "{error}");
            }
        }
    }
}

#[test]
fn a_flipped_byte_in_the_header_of_a_segment_is_refused() {
    let log = log();
    for at in 0..24 {
        refused(log.changed(|bytes| bytes[at] ^= 0x41).path());
    }
}

#[test]
fn a_flipped_byte_in_an_earlier_segment_is_refused() {
    let log = log();
    let first = files(log.dir.path()).remove(0);
    let bytes = fs::read(&first).unwrap();
    // The end of the file too: a batch could have been there, and later segments exist.
    for at in (0..bytes.len()).step_by(37) {
        let dir = copy(log.dir.path());
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x41;
        fs::write(dir.path().join(first.file_name().unwrap()), flipped).unwrap();
        match Store::open(dir.path(), SMALL) {
            Ok((_, found)) => assert_eq!(Model::from(found), log.after, "padding byte {at}"),
            Err(error) => assert!(matches!(error, StoreError::Damaged { .. }), "{at}: {error}"),
        }
    }
    let dir = copy(log.dir.path());
    let mut flipped = bytes;
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(dir.path().join(first.file_name().unwrap()), flipped).unwrap();
    refused(dir.path());
}

#[test]
fn garbage_behind_the_last_batch_is_cleared() {
    let log = log();
    for at in [log.end, log.end + 1, log.end + 8, 4095] {
        let dir = log.changed(|bytes| bytes[at] = 0x4b);
        let found = open(dir.path()).1;
        assert_eq!(found.cut.clone().unwrap().bytes, (at + 1 - log.end) as u64);
        assert_eq!(Model::from(found), log.after);
        goes_on(dir.path(), log.after.clone());
    }
}

#[test]
fn a_torn_batch_that_contains_an_old_batch_is_still_torn() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.append(&[(1, b"one")]).unwrap();
    // Entry bytes that are a whole batch: aligned, good checksum, but an old or a wild number.
    for (index, sequence) in [(2, 1), (3, 1 << 40)] {
        let mut inner = Vec::new();
        super::super::batch::write(&mut inner, sequence, [].iter());
        store.append(&[(index, &[vec![7; 7], inner].concat())]).unwrap();
    }
    drop(store);
    let mut bytes = fs::read(last_file(dir.path())).unwrap();
    let places: Vec<usize> =
        (24..bytes.len() - 4).filter(|&at| bytes[at..].starts_with(b"KLB1")).collect();
    assert_eq!(places.len(), 5);
    assert_eq!(places[4] % 8, 0, "the search must come across it");
    bytes[places[3] + 16] ^= 1;
    fs::write(last_file(dir.path()), bytes).unwrap();
    let found = open(dir.path()).1;
    assert_eq!((found.entries.len(), found.cut.unwrap().offset), (2, places[3] as u64));
}

#[test]
fn a_missing_segment_in_the_middle_is_refused() {
    let log = log();
    let dir = copy(log.dir.path());
    let (mut store, _) = open(dir.path());
    store.append(&[(22, &[1; 3000])]).unwrap();
    drop(store);
    let all = files(dir.path());
    assert!(all.len() >= 3);
    fs::remove_file(&all[1]).unwrap();
    assert!(refused(dir.path()).contains("should follow here"));
}

#[test]
fn a_missing_oldest_segment_is_refused_if_it_held_live_entries() {
    let log = log();
    let dir = copy(log.dir.path());
    fs::remove_file(&files(dir.path())[0]).unwrap();
    assert!(refused(dir.path()).contains("are missing"));
}

#[test]
fn a_sequence_number_left_out_is_refused() {
    let log = log();
    // Without the batch before the last, and the last moved to its place: both are intact.
    let [.., before, last] = log.starts[..] else { unreachable!() };
    let dir = log.changed(|bytes| {
        bytes.copy_within(last..log.end, before);
        bytes[before + log.end - last..].fill(0);
    });
    assert!(refused(dir.path()).contains("stands where"));
}

#[test]
fn a_last_segment_without_content_is_removed() {
    let log = log();
    let next = {
        // Where a new segment would begin: one more than the batches so far.
        let dir = copy(log.dir.path());
        open(dir.path()).0.append(&[(22, &[1; 4000])]).unwrap();
        fs::read(last_file(dir.path())).map(|bytes| (last_file(dir.path()), bytes)).unwrap()
    };
    let name = next.0.file_name().unwrap();
    let headed = next.1[..24].to_vec();
    let mut torn = next.1.clone();
    torn[100] ^= 1;
    for content in [vec![], vec![0; 4096], vec![0x4b; 300], headed, next.1[..60].to_vec(), torn] {
        let dir = copy(log.dir.path());
        fs::write(dir.path().join(name), content).unwrap();
        let found = open(dir.path()).1;
        assert_eq!(found.cut.as_ref().map(|cut| cut.offset), Some(0));
        assert_eq!(Model::from(found), log.after);
        assert!(!dir.path().join(name).exists());
        goes_on(dir.path(), log.after.clone());
    }
    // With a good batch in it a bad header is damage.
    let dir = copy(log.dir.path());
    fs::write(dir.path().join(name), [&[0; 24], &next.1[24..]].concat()).unwrap();
    refused(dir.path());
    // And a number that does not come next means that more is missing.
    let dir = copy(log.dir.path());
    fs::write(segment::path(dir.path(), 1000), [0; 4096]).unwrap();
    refused(dir.path());
}

#[test]
fn a_sole_segment_that_lost_its_state_is_refused_unless_it_is_the_first_ever() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(dir.path());
    store.append(&[(1, b"one")]).unwrap();
    fs::write(last_file(dir.path()), [0; 4096]).unwrap();
    drop(store);
    assert_eq!(Model::from(open(dir.path()).1), Model::default());

    let log = log();
    let dir = copy(log.dir.path());
    open(dir.path()).0.purge(21, b"all").unwrap();
    assert_eq!(files(dir.path()).len(), 1);
    fs::write(last_file(dir.path()), [0; 4096]).unwrap();
    refused(dir.path());
}

#[test]
fn a_newer_format_is_refused_and_named() {
    let log = log();
    let dir = log.changed(|bytes| {
        bytes[16] = 9;
        let sum = crc32fast::hash(&bytes[..20]);
        bytes[20..24].copy_from_slice(&sum.to_le_bytes());
    });
    let error = Store::open(dir.path(), SMALL).map(|(_, found)| found).unwrap_err();
    assert!(matches!(error, StoreError::Version { version: 9, .. }), "{error}");
}

#[test]
fn a_segment_under_a_wrong_name_is_refused() {
    let log = log();
    let dir = copy(log.dir.path());
    fs::rename(last_file(dir.path()), segment::path(dir.path(), 999)).unwrap();
    refused(dir.path());
}
