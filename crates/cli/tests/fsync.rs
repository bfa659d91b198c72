//! An fsync that fails: the server stops, acknowledges nothing more and does not try again (the
//! kernel may have dropped the pages and would report success). `KEYLATCH_FSYNCS` says how many
//! points of failure are tried (6).

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use common::load::{Acknowledged, check, work};
use common::segments::{Image, batches};
use common::{Client, Ended, Server, Start};

/// A server whose syncs fail, and what strace writes about it.
struct Traced {
    trace: tempfile::NamedTempFile,
    start: Start,
}

impl Traced {
    /// `when` is strace's word for which calls of a thread fail.
    fn new(dir: &Path, when: Option<&str>) -> Traced {
        let trace = tempfile::NamedTempFile::new().unwrap();
        let path = trace.path().to_str().unwrap().to_string();
        // -D: the server is our child, and strace is beside it.
        let mut words = vec!["strace", "-D", "-f", "-q", "-s", "200", "-o", &path];
        words.extend(["-e", "trace=fdatasync,fsync,pwrite64,sendto,write"]);
        let inject = when.map(|when| format!("inject=fdatasync,fsync:error=EIO:when={when}"));
        if let Some(inject) = &inject {
            words.extend(["-e", inject]);
        }
        let start = Start::in_dir(dir).under(&words);
        Traced { trace, start }
    }

    /// Lines of the trace: thread and call, in the order in which the calls ended.
    fn lines(&self) -> Vec<(String, String)> {
        let text = std::fs::read(self.trace.path()).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        // A call during which other threads did something is shown in two parts.
        let mut begun = BTreeMap::new();
        let mut lines = Vec::new();
        for (thread, call) in text.lines().filter_map(|line| line.split_once(' ')) {
            let (thread, call) = (thread.to_string(), call.trim());
            if let Some(front) = call.strip_suffix("<unfinished ...>") {
                begun.insert(thread, front.to_string());
            } else if let Some((_, back)) = call.split_once(" resumed>") {
                let front = begun.remove(&thread).unwrap_or_default();
                lines.push((thread, front + back));
            } else {
                lines.push((thread, call.to_string()));
            }
        }
        lines
    }
}

fn is_sync(call: &str) -> bool {
    call.starts_with("fdatasync(") || call.starts_with("fsync(")
}

/// How many syncs the serving thread needs to start in an empty directory.
fn syncs_of_a_start() -> usize {
    let dir = tempfile::tempdir().unwrap();
    let traced = Traced::new(dir.path(), None);
    let mut server = traced.start.start();
    let id = server.id().to_string();
    server.kill();
    traced.lines().iter().filter(|(thread, call)| *thread == id && is_sync(call)).count()
}

/// Loads a server until its sync fails.
fn load(server: Server, round: u64, known: &Mutex<Acknowledged>) -> (String, Ended) {
    let (id, address) = (server.id().to_string(), server.resp);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let name = format!("{round}-{worker}");
            // Enough for every case; one that does not stop is noticed.
            scope.spawn(move || work(address, &name, 5_000, known));
        }
    });
    (id, server.ended())
}

/// Nothing was granted and nothing synced after the failure.
fn assert_silent_after_the_failure(traced: &Traced, thread: &str) {
    let lines = traced.lines();
    let own = lines.iter().filter(|(other, _)| other == thread);
    let own: Vec<&str> = own.map(|(_, call)| call.as_str()).collect();
    let failed = own.iter().position(|call| call.contains("(INJECTED)"));
    let failed = failed.expect("a sync of the serving thread failed");
    let granted = |call: &&&str| call.contains("granted") || call.contains(":1\\r\\n");
    assert!(own[..failed].iter().any(|call| granted(&call)), "the trace shows what is sent");
    for call in &own[failed + 1..] {
        assert!(!is_sync(call), "it tries again: {call}");
        assert!(!granted(&call), "it acknowledges what was not synced: {call}");
    }
}

/// Takes away what was not synced: the last batch, as a power failure after the error would.
fn lose_the_last_batch(dir: &Path) {
    let image = Image::take(dir);
    let path = image.last_segment();
    let last = *batches(&image.0[&path]).last().expect("a batch");
    let mut bytes = std::fs::read(dir.join(&path)).unwrap();
    bytes[last.offset..last.offset + last.length].fill(0);
    std::fs::write(dir.join(&path), bytes).unwrap();
}

#[test]
fn bug_24_after_a_failed_fsync_the_server_stops_and_nothing_acknowledged_is_lost() {
    let cases = common::how_many("KEYLATCH_FSYNCS", 6);
    let start = syncs_of_a_start();
    for case in 0..cases {
        let dir = tempfile::tempdir().unwrap();
        let number = start as u64 + 1 + case * case * 7;
        // Once, so that a second try would succeed; or from then on.
        let when = format!("{number}{}", if case % 2 == 0 { "" } else { "+" });
        let known = Mutex::new(Acknowledged::default());
        let traced = Traced::new(dir.path(), Some(&when));
        let (thread, ended) = load(traced.start.start(), case, &known);
        assert_eq!(ended.status.code(), Some(1), "sync {when}: {}", ended.said);
        for word in ["keylatch: the log has failed", "Input/output error", "check the disk"] {
            assert!(ended.said.contains(word), "sync {when}: no '{word}' in {}", ended.said);
        }
        assert_silent_after_the_failure(&traced, &thread);
        lose_the_last_batch(dir.path());
        let mut server = Server::start(dir.path());
        check(server.resp, &mut known.lock().unwrap());
        server.kill();
    }
}

/// The other half of it: without any failure, each grant is sent after a sync that came after the
/// write with that grant.
#[test]
fn bug_22_a_grant_is_on_disk_before_it_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let traced = Traced::new(dir.path(), None);
    let mut server = traced.start.start();
    let mut client = server.client();
    for n in 0..50 {
        client.lock(&format!("key:{n:06} ID id-{n:06}"));
    }
    let id = server.id().to_string();
    server.kill();
    let (mut written, mut unsynced, mut grants) = (0, 0, 0);
    for (_, call) in traced.lines().iter().filter(|(thread, _)| *thread == id) {
        if call.starts_with("pwrite64(") {
            (written, unsynced) = (written + 1, unsynced + 1);
        } else if is_sync(call) {
            assert!(call.ends_with("= 0"), "{call}");
            unsynced = 0;
        } else if call.contains("granted") {
            assert_eq!(unsynced, 0, "sent before it was synced: {call}");
            assert!(written > 0, "sent without having been written: {call}");
            (written, grants) = (0, grants + 1);
        }
    }
    assert_eq!(grants, 50);
}

#[test]
fn a_server_whose_first_fsyncs_fail_does_not_start() {
    // The tokens of a new table begin at the wall clock, in microseconds.
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let wall = i64::try_from(wall.as_micros()).unwrap();
    for number in 1..=syncs_of_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let traced = Traced::new(dir.path(), Some(&number.to_string()));
        let ended = traced.start.try_start().map_or_else(
            |ended| ended,
            // The last ones come after it has said that it is ready.
            |server| {
                drop(Client::try_to(server.resp).map(|mut client| client.ask("LOCK k")));
                server.ended()
            },
        );
        assert_eq!(ended.status.code(), Some(1), "sync {number}: {}", ended.said);
        let last = ended.said.lines().last().unwrap_or_default();
        assert!(last.starts_with("keylatch: "), "sync {number}: {}", ended.said);
        assert!(last.contains("Input/output error"), "sync {number}: {}", ended.said);
        // What is left behind is no obstacle.
        let token = Server::start(dir.path()).client().lock("other");
        assert!(token > wall, "sync {number}: token {token}, the wall clock was at {wall}");
    }
}
