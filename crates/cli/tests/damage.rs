//! Bytes on disk that are torn or wrong. A torn end is what a power failure leaves: it is cut, and
//! only what was in it is gone. Everything else is damage: the server refuses to start, says which
//! file and what to do, and changes nothing. It never starts with fewer locks than it acknowledged.
//! `KEYLATCH_DAMAGES` says how many cases of each kind are tried (12).

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use common::load::{Acknowledged, work};
use common::segments::{Batch, Image, batches, is_segment};
use common::{Ended, Random, Server, Start, text};

/// What a killed server left behind, and what it had acknowledged.
struct Left {
    image: Image,
    known: Acknowledged,
}

impl Left {
    /// Some load, then `kill -9`.
    fn behind(config: &str, locks: u64) -> Left {
        let dir = tempfile::tempdir().unwrap();
        let known = Mutex::new(Acknowledged::default());
        // Small files, so that there are several.
        let start = Start::in_dir(dir.path()).config("[log]").config("segment_bytes = 65536");
        let mut server = start.config(config).start();
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (address, known) = (server.resp, &known);
                scope.spawn(move || work(address, &format!("w{worker}"), locks, known));
            }
        });
        // A last batch of some length, to be torn: whoever pipelines commits together.
        let mut client = server.client();
        let lines: Vec<String> =
            (0..20).map(|n| format!("LOCK last:{n:06} ID last-{n:06} LEASE 3600000")).collect();
        client.send(&lines.join("\r\n")).unwrap();
        for n in 0..20 {
            let token = common::token(&client.next().unwrap());
            let now = std::time::Instant::now();
            known.lock().unwrap().held.insert(format!("last-{n:06}"), (token, now));
        }
        server.kill();
        Left { image: Image::take(dir.path()), known: known.into_inner().unwrap() }
    }

    fn segment(&self) -> (PathBuf, &[u8], Vec<Batch>) {
        let path = self.image.last_segment();
        let bytes = &self.image.0[&path];
        let batches = batches(bytes);
        (path, bytes, batches)
    }

    /// The acknowledged locks whose grant stands before `offset` of the last segment, or in the
    /// snapshot.
    fn held_before(&self, offset: usize) -> BTreeSet<String> {
        let (_, bytes, _) = self.segment();
        let last = &bytes[offset..];
        let is_in = |bytes: &[u8], id: &str| {
            contains(bytes, format!("key:{id}").as_bytes())
                || contains(bytes, format!("last:{}", id.trim_start_matches("last-")).as_bytes())
        };
        let lost = |id: &String| is_in(last, id) && !is_in(&bytes[..offset], id);
        self.known.held.keys().filter(|id| !lost(id)).cloned().collect()
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

/// The ids of all locks.
fn held(server: &Server) -> BTreeSet<String> {
    server.client().list("").iter().map(|lock| text(lock, "id").to_string()).collect()
}

/// Writes an image into a fresh directory and tries to start a server there.
fn start(image: &Image) -> (tempfile::TempDir, Result<Server, Ended>) {
    let dir = tempfile::tempdir().unwrap();
    image.put(dir.path());
    let server = Start::in_dir(dir.path()).config("[log]").config("segment_bytes = 65536");
    let server = server.try_start();
    (dir, server)
}

/// It did not start, named the file, said what to do, and changed nothing.
fn assert_refused(image: &Image, dir: &Path, ended: &Ended, file: &Path, case: &str) {
    assert_eq!(ended.status.code(), Some(1), "{case}: {}", ended.said);
    let path = dir.join(file);
    for word in [path.to_str().unwrap(), "damaged", "backup"] {
        assert!(ended.said.contains(word), "{case}: no '{word}' in {}", ended.said);
    }
    assert!(image.is_in(dir), "{case}: something was changed");
}

#[test]
fn a_torn_last_batch_is_cut_and_everything_before_it_is_there() {
    let left = Left::behind("", 100);
    let (path, bytes, batches) = left.segment();
    let last = *batches.last().unwrap();
    let expected = left.held_before(last.offset);
    assert!(expected.len() > 20, "there was a load");
    for case in 0..common::how_many("KEYLATCH_DAMAGES", 12) {
        let mut random = Random(case);
        let at = last.offset + random.below(last.length);
        let mut image = left.image.clone();
        let torn = image.0.get_mut(&path).unwrap();
        let what = match case % 3 {
            0 => {
                torn.truncate(at);
                "the file ends"
            }
            1 => {
                torn[at..].fill(0);
                "zeros"
            }
            // Pages reach the disk in any order: a hole in the middle.
            _ => {
                let end = at + 1 + random.below(last.offset + last.length - at);
                torn[at..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
                "a hole"
            }
        };
        let case = format!("case {case}: {what} at {at}, batch at {}", last.offset);
        let (_dir, server) = start(&image);
        let server = server.unwrap_or_else(|ended| panic!("{case}: {}", ended.said));
        let found = held(&server);
        assert!(expected.is_subset(&found), "{case}: {:?}", expected.difference(&found));
        // Zeros in place of zeros tear nothing.
        if torn_for_good(&image.0[&path], bytes) {
            assert!(!found.contains("last-000000"), "{case}: half a batch was applied");
        }
        let all: BTreeSet<i64> =
            server.client().list("").iter().map(|lock| common::number(lock, "token")).collect();
        let next = server.client().lock("after");
        assert!(all.last().is_some_and(|last| next > *last), "{case}: a token falls back");
    }
}

fn torn_for_good(torn: &[u8], bytes: &[u8]) -> bool {
    !bytes.iter().enumerate().all(|(at, byte)| torn.get(at).copied().unwrap_or(0) == *byte)
}

#[test]
fn a_flipped_bit_before_the_last_batch_is_refused() {
    let left = Left::behind("", 300);
    let all: BTreeSet<String> = left.known.held.keys().cloned().collect();
    let newest = left.image.last_segment();
    let paths: Vec<PathBuf> =
        left.image.0.keys().filter(|path| is_segment(path)).cloned().collect();
    assert!(paths.len() > 1, "there are several segments");
    for case in 0..common::how_many("KEYLATCH_DAMAGES", 12) {
        let mut random = Random(case);
        let path = paths[case as usize % paths.len()].clone();
        let batches = batches(&left.image.0[&path]);
        let last = *batches.last().unwrap();
        // The last batch of all may be torn; no other.
        let end = if path == newest { last.offset } else { last.offset + last.length };
        let at = random.below(end);
        let mut image = left.image.clone();
        image.0.get_mut(&path).unwrap()[at] ^= 1 << random.below(8);
        let in_batch = |batch: &Batch| (batch.offset..batch.offset + batch.length).contains(&at);
        let matters = at < batches[0].offset || batches.iter().any(in_batch);
        let case = format!("case {case}: bit of byte {at} of {}", path.display());
        let (dir, server) = start(&image);
        match server {
            Err(ended) => {
                assert!(matters, "{case}: padding has no meaning: {}", ended.said);
                assert_refused(&image, dir.path(), &ended, &path, &case);
            }
            Ok(server) => {
                assert!(!matters, "{case}: it starts");
                assert_eq!(held(&server), all, "{case}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_the_snapshot_is_refused() {
    let left = with_snapshot();
    let path = PathBuf::from("snapshot");
    let length = left.image.0[&path].len();
    for case in 0..common::how_many("KEYLATCH_DAMAGES", 12) {
        let mut random = Random(case);
        // The first bytes are a form of their own: some of each.
        let at = if case % 2 == 0 { random.below(64) } else { random.below(length) };
        let mut image = left.image.clone();
        let snapshot = image.0.get_mut(&path).unwrap();
        let what = if case % 4 == 3 {
            snapshot.truncate(at);
            "cut"
        } else {
            snapshot[at] ^= 1 << random.below(8);
            "flipped"
        };
        let case = format!("case {case}: {what} at {at} of {length}");
        let (dir, server) = start(&image);
        let Err(ended) = server else { panic!("{case}: it starts") };
        assert_refused(&image, dir.path(), &ended, &path, &case);
    }
}

/// Behind a snapshot the log begins in the middle: neither is anything without the other.
#[test]
fn a_missing_snapshot_or_log_is_refused() {
    let left = with_snapshot();
    let all: BTreeSet<String> = left.known.held.keys().cloned().collect();
    let (_dir, server) = start(&left.image);
    let server = server.unwrap_or_else(|ended| panic!("whole: {}", ended.said));
    assert_eq!(held(&server), all, "the whole directory has everything");
    drop(server);
    for gone in ["snapshot", "log"] {
        let mut image = left.image.clone();
        image.0.retain(|path, _| !path.starts_with(gone));
        let (dir, server) = start(&image);
        let Err(ended) = server else { panic!("it starts without the {gone}") };
        assert_eq!(ended.status.code(), Some(1), "without the {gone}: {}", ended.said);
        let path = dir.path().join(gone);
        let last = ended.said.lines().last().unwrap_or_default();
        for word in [path.to_str().unwrap(), "backup"] {
            assert!(last.contains(word), "without the {gone}: {}", ended.said);
        }
        let snapshot = std::fs::read(dir.path().join("snapshot")).ok();
        assert_eq!(snapshot.as_ref(), image.0.get(Path::new("snapshot")), "it was changed");
    }
}

fn with_snapshot() -> Left {
    let left = Left::behind("snapshot_bytes = 65536", 300);
    assert!(left.image.0.contains_key(Path::new("snapshot")), "there is a snapshot");
    left
}
