//! An fsync that fails: the server stops, acknowledges nothing more and does not try again (the
//! kernel may have dropped the pages and would report success). `KEYLATCH_FSYNCS` says how many
//! points of failure are tried (6).

mod common;

use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use common::load::{Acknowledged, check, work};
use common::node::{Node, member};
use common::segments::{Image, batches};
use common::traced::{Call, Traced};
use common::{Client, Ended, Server, Start, token};

/// How many syncs the serving thread needs to start in an empty directory.
fn syncs_of_a_start() -> usize {
    let dir = tempfile::tempdir().unwrap();
    let traced = Traced::new(Start::in_dir(dir.path()), None);
    let mut server = traced.start.start();
    let id = server.id().to_string();
    server.kill();
    traced.calls().iter().filter(|call| call.thread == id && call.is_sync()).count()
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
    let calls = traced.calls();
    let own: Vec<&Call> = calls.iter().filter(|call| call.thread == thread).collect();
    let failed = own.iter().position(|call| call.text.contains("(INJECTED)"));
    let failed = failed.expect("a sync of the serving thread failed");
    let granted = |call: &&Call| call.text.contains("granted") || call.text.contains(":1\\r\\n");
    assert!(own[..failed].iter().any(granted), "the trace shows what is sent");
    for call in &own[failed + 1..] {
        assert!(!call.is_sync(), "it tries again: {call:?}");
        assert!(!granted(call), "it acknowledges what was not synced: {call:?}");
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
        let traced = Traced::new(Start::in_dir(dir.path()), Some(&when));
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
    let traced = Traced::new(Start::in_dir(dir.path()), None);
    let mut server = traced.start.start();
    let mut client = server.client();
    for n in 0..50 {
        client.lock(&format!("key:{n:06} ID id-{n:06}"));
    }
    let id = server.id().to_string();
    server.kill();
    let (mut written, mut unsynced, mut grants) = (0, 0, 0);
    for call in traced.calls().iter().filter(|call| call.thread == id) {
        if call.is_write() {
            (written, unsynced) = (written + 1, unsynced + 1);
        } else if call.is_sync() {
            assert!(call.text.ends_with("= 0"), "{call:?}");
            unsynced = 0;
        } else if call.text.contains("granted") {
            assert_eq!(unsynced, 0, "sent before it was synced: {call:?}");
            assert!(written > 0, "sent without having been written: {call:?}");
            (written, grants) = (0, grants + 1);
        }
    }
    assert_eq!(grants, 50);
}

/// The same of a cluster: before a grant is sent, it was written and then synced on the disks of most members.
fn each_grant_is_on_most_disks_first(members: usize) {
    let dirs: Vec<_> = (0..members).map(|_| tempfile::tempdir().unwrap()).collect();
    let (mut traces, mut nodes) = (Vec::new(), Vec::<Node>::new());
    for dir in &dirs {
        let (peer, join) = (common::free(), nodes.first().map(|first| first.peer));
        let traced = Traced::new(member(dir.path(), peer, join, 10_000), None);
        nodes.push(Node { peer, server: traced.start.start(), tls: None });
        traces.push(traced);
    }
    for node in &nodes {
        node.until_voters(members);
    }
    let ids: Vec<String> = (0..30).map(|n| format!("id-{n:06}")).collect();
    for (n, id) in ids.iter().enumerate() {
        token(&nodes[n % members].insist(&format!("LOCK key-{n} ID {id}")));
    }
    for node in &mut nodes {
        node.server.kill();
    }
    let traces: Vec<Vec<Call>> = traces.iter().map(Traced::calls).collect();
    for id in &ids {
        let grants = |call: &&Call| call.text.contains("granted") && call.text.contains(id);
        let sent = traces.iter().flatten().filter(grants).map(|call| call.began);
        let sent = sent.reduce(f64::min).expect("it was granted");
        let has_it = |calls: &&Vec<Call>| {
            let mut calls = calls.iter();
            let written = calls.find(|call| call.is_write() && call.text.contains(id));
            let synced = written
                .and_then(|write| calls.find(|call| call.thread == write.thread && call.is_sync()));
            synced.is_some_and(|sync| sync.text.ends_with("= 0") && sync.ended <= sent)
        };
        let disks = traces.iter().filter(has_it).count();
        assert!(disks > members / 2, "{id} was sent when it was on {disks} of {members} disks");
    }
}

#[test]
fn bug_22_in_a_cluster_a_grant_is_on_most_disks_before_it_is_acknowledged() {
    each_grant_is_on_most_disks_first(3);
}

#[test]
fn bug_22_a_cluster_of_one_acknowledges_what_is_on_its_disk() {
    each_grant_is_on_most_disks_first(1);
}

#[test]
fn a_server_whose_first_fsyncs_fail_does_not_start() {
    // The tokens of a new table begin at the wall clock, in microseconds.
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let wall = i64::try_from(wall.as_micros()).unwrap();
    for number in 1..=syncs_of_a_start() {
        let dir = tempfile::tempdir().unwrap();
        let traced = Traced::new(Start::in_dir(dir.path()), Some(&number.to_string()));
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
