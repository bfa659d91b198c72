//! Backups of a cluster of real processes, and new clusters that are made of them, all through the commands.

mod common;

use std::path::Path;

use common::node::{Node, eventually, member};
use common::{Server, text, token};
use keylatch_wire::Value;
use serde_json::Value as Json;
use tempfile::TempDir;

/// What a command says that succeeds, as JSON.
fn said(words: &[&str]) -> Json {
    common::node::said(words, None)
}

/// What one says that fails.
fn refused(words: &[&str]) -> String {
    common::node::refused(words, None)
}

fn path(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().into()
}

/// A lock with a lease, one without, somebody who waits, and a task.
fn fill(node: &Node) -> (i64, i64, common::Client) {
    let leased = token(&node.insist("LOCK leased ID leased OWNER ann LEASE 600000"));
    let kept = token(&node.insist("LOCK kept ID kept OWNER ann LEASE 0"));
    assert!(!matches!(node.insist("TASK CREATE pool key BODY b"), Value::Error(_)));
    let mut waiter = node.server.client();
    waiter.send("LOCK kept ID waiter WAIT 600000").unwrap();
    eventually("it waits", || (node.count("WAITERS") == 3).then_some(()));
    (leased, kept, waiter)
}

#[test]
fn a_backup_of_a_running_cluster_is_restored_as_another_one_whose_tokens_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let one = Node::start(&dir.path().join("one"), None);
    let two = Node::start(&dir.path().join("two"), Some(one.peer));
    for node in [&one, &two] {
        node.until_voters(2);
    }
    let (leased, kept, _waiter) = fill(&one);
    // By the one that does not lead: it has what the other one has acknowledged.
    let backup = path(&dir, "backup");
    let made = said(&["snapshot", &backup, "--peer", &two.peer.to_string()]);
    let old = one.status().unwrap().cluster;
    assert_eq!(made["cluster"], format!("{old:032x}"), "{made}");
    assert_eq!(
        (&made["held"], &made["waiting"], &made["tasks"]),
        (&2.into(), &1.into(), &1.into())
    );
    // What comes behind it is not in it, and its tokens are not given again.
    let later = token(&two.insist("LOCK later ID later"));
    let released = token(&two.insist("LOCK released ID released"));
    let mode = std::fs::metadata(&backup).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o777, 0o600, "ids are in it");

    let new = path(&dir, "new");
    let made = said(&["restore", &backup, "--data", &new]);
    assert_eq!(made["backup"]["held"], 2, "{made}");
    let three = Node::start(Path::new(&new), None);
    let status = eventually("a leader", || three.status().filter(|it| it.leader.is_some()));
    assert_eq!(made["cluster"], format!("{:032x}", status.cluster));
    assert_ne!(status.cluster, old, "another cluster");
    assert!(one.status().unwrap().members.iter().all(|member| member.node != status.node));
    assert_eq!(token(&three.insist("LOCK leased ID leased OWNER ann LEASE 600000")), leased);
    assert_eq!(token(&three.insist("LOCK kept ID kept OWNER ann LEASE 0")), kept);
    let left =
        common::number(&three.insist("LOCK leased ID leased OWNER ann LEASE 600000"), "lease_ms");
    assert!((1..=600_000).contains(&left), "{left}");
    let after = token(&three.insist("LOCK released ID again"));
    assert!(after > released && after > later, "{after} comes after {released}");
    let Value::Array(tasks) = three.insist("TASK LIST pool") else { panic!("a list") };
    assert_eq!(tasks.len(), 1);
    // Whoever waited comes back under its id, before another one gets it.
    let mut waiter = three.server.client();
    waiter.send("LOCK kept ID waiter WAIT 600000").unwrap();
    eventually("it waits", || (three.count("WAITERS") == 4).then_some(()));
    assert_eq!(three.insist("UNLOCK kept"), Value::Integer(1));
    assert!(token(&waiter.next().unwrap()) > after);

    // Others join it; those of the old cluster do not.
    let four = Node::start(&dir.path().join("four"), Some(three.peer));
    three.until_voters(2);
    assert_eq!(text(&four.insist("LOCK leased"), "status"), "busy");
    drop((one, two));
    let at = common::free();
    let Err(ended) = member(&dir.path().join("two"), at, Some(three.peer), 500).try_start() else {
        panic!("a member of the old cluster is let into the new one")
    };
    assert!(ended.said.contains("another cluster"), "{}", ended.said);
    assert_eq!(three.status().unwrap().members.len(), 2);
}

/// A cluster that lost its majority for good: the log of the one that is left becomes a new cluster.
#[test]
fn what_one_member_has_on_its_disk_is_a_new_cluster_when_the_majority_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let one = Node::start(&dir.path().join("one"), None);
    let mut two = Node::start(&dir.path().join("two"), Some(one.peer));
    let three = Node::start(&dir.path().join("three"), Some(one.peer));
    for node in [&one, &two, &three] {
        node.until_voters(3);
    }
    let (leased, _, _waiter) = fill(&one);
    let all: Vec<i64> =
        (0..50).map(|at| token(&three.insist(&format!("LOCK k{at} ID k{at} LEASE 0")))).collect();
    // All three have it, or the one that is left could lack what was acknowledged.
    eventually("it has all", || (two.count("") == 52).then_some(()));
    drop((one, three));
    let (backup, two_dir) = (path(&dir, "backup"), path(&dir, "two"));
    // Of a member without a majority there is no backup that has everything.
    let why = refused(&["snapshot", &backup, "--peer", &two.peer.to_string()]);
    assert!(why.contains("no member leads") && why.contains("--from-data"), "{why}");
    // Nor of a directory that is in use.
    let why = refused(&["snapshot", &backup, "--from-data", &two_dir]);
    assert!(why.contains("in use") || why.contains("another process"), "{why}");
    assert!(!Path::new(&backup).exists());
    two.server.kill();
    let made = said(&["snapshot", &backup, "--from-data", &two_dir]);
    assert_eq!((&made["held"], &made["waiting"]), (&52.into(), &1.into()), "{made}");
    let new = path(&dir, "new");
    said(&["restore", &backup, "--data", &new]);
    let four = Node::start(Path::new(&new), None);
    assert_eq!(token(&four.insist("LOCK leased ID leased OWNER ann LEASE 600000")), leased);
    for (at, first) in all.iter().enumerate() {
        assert_eq!(token(&four.insist(&format!("LOCK k{at} ID k{at} LEASE 0"))), *first);
    }
    assert!(token(&four.insist("LOCK new")) > *all.last().unwrap());
}

#[test]
fn a_damaged_backup_or_a_directory_that_is_not_empty_is_refused_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let one = Node::start(&dir.path().join("one"), None);
    fill(&one);
    let backup = path(&dir, "backup");
    said(&["snapshot", &backup, "--peer", &one.peer.to_string()]);
    let good = std::fs::read(&backup).unwrap();
    let (bad, new) = (path(&dir, "bad"), path(&dir, "new"));
    // Each part of it, and each end of it.
    let flips = [0, 9, 20, 44, 60, 64, 70, good.len() / 2, good.len() - 1];
    let mut tried = 0;
    for at in flips {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        std::fs::write(&bad, &bytes).unwrap();
        let why = refused(&["restore", &bad, "--data", &new]);
        assert!(why.contains("damaged") || why.contains("is no backup"), "{at}: {why}");
        tried += 1;
    }
    for bytes in [&good[..good.len() - 1], &good[..30], &[good.as_slice(), b"x"].concat()] {
        std::fs::write(&bad, bytes).unwrap();
        let why = refused(&["restore", &bad, "--data", &new]);
        assert!(why.contains("damaged"), "{why}");
        tried += 1;
    }
    assert_eq!(tried, 12);
    assert!(!Path::new(&new).exists(), "nothing was made of them");
    let why = refused(&["restore", "/nowhere", "--data", &new]);
    assert!(why.contains("/nowhere"), "{why}");
    // Somebody's locks are there.
    let before = std::fs::read(dir.path().join("one/member")).unwrap();
    for words in [vec!["restore", &backup, "--data"], vec!["init", "--data"]] {
        let why = refused(&[words, vec![&path(&dir, "one")]].concat());
        assert!(why.contains("not empty"), "{why}");
    }
    assert_eq!(std::fs::read(dir.path().join("one/member")).unwrap(), before);
    // The good one is good, also the second time.
    let first = said(&["restore", &backup, "--data", &new]);
    let second = said(&["restore", &backup, "--data", &path(&dir, "second")]);
    assert_ne!(first["cluster"], second["cluster"], "no two are the same cluster");
    // What was broken off is not started with, and can be tried again.
    std::fs::write(dir.path().join("new/unfinished"), "").unwrap();
    let why = member(Path::new(&new), common::free(), None, 500)
        .try_start()
        .err()
        .expect("it is not whole")
        .said;
    assert!(why.contains("not whole") && why.contains("again"), "{why}");
    said(&["restore", &backup, "--data", &new]);
    let two = Node::start(Path::new(&new), None);
    assert_eq!(text(&two.insist("LOCK kept"), "status"), "busy");
    let nothing = refused(&["snapshot", &backup, "--from-data", &path(&dir, "nothing")]);
    assert!(nothing.contains("not the data directory"), "{nothing}");
    assert!(!dir.path().join("nothing").exists());
    assert_eq!(std::fs::read(&backup).unwrap(), good, "what failed has replaced nothing");
}

/// The table is large enough for several pieces, and goes on changing.
#[test]
fn a_backup_under_load_is_the_state_of_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let peer = common::free();
    // A load may take its time.
    let server = member(&dir.path().join("one"), peer, None, 50_000).start();
    let one = Node { peer, server, tls: None };
    one.insist("LOCK first ID first LEASE 0");
    let meta = "m".repeat(900);
    let mut client = one.server.client();
    for at in 0..4_000 {
        client.send(&format!("LOCK k{at} ID k{at} LEASE 0 META {meta}")).unwrap();
    }
    for _ in 0..4_000 {
        token(&client.next().unwrap());
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    let backup = path(&dir, "backup");
    std::thread::scope(|scope| {
        // At any moment one of the two is held, and a backup has exactly one of them.
        let switching = scope.spawn(|| {
            let mut client = one.server.client();
            let mut rounds = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                token(&client.say(&format!("LOCK pair ID a{rounds} WAIT 60000")));
                assert_eq!(client.say(&format!("UNLOCK a{rounds}")), Value::Integer(1));
                rounds += 1;
            }
            rounds
        });
        for _ in 0..3 {
            let made = said(&["snapshot", &backup, "--peer", &one.peer.to_string()]);
            let held = made["held"].as_u64().unwrap();
            assert!((4_001..=4_002).contains(&held), "{made}");
            assert!(made["bytes"].as_u64().unwrap() > 3 << 20, "several pieces: {made}");
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(switching.join().unwrap() > 0);
    });
    let new = path(&dir, "new");
    said(&["restore", &backup, "--data", &new]);
    let two = Node::start(Path::new(&new), None);
    eventually("a leader", || two.status()?.leader);
    let list = two.server.client().list("");
    assert!((4_001..=4_002).contains(&list.len()), "{}", list.len());
}

/// A server that was alone grows out of its data too.
#[test]
fn a_new_cluster_begins_empty_or_with_the_locks_of_a_server_that_was_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut alone = Server::start(&dir.path().join("alone"));
    let first = alone.client().lock("k ID a LEASE 0");
    alone.kill();
    let (backup, new) = (path(&dir, "backup"), path(&dir, "new"));
    let made = said(&["snapshot", &backup, "--from-data", &path(&dir, "alone")]);
    assert_eq!((&made["held"], &made["cluster"]), (&1.into(), &"0".repeat(32).into()));
    said(&["restore", &backup, "--data", &new]);
    // Also as a server that is alone again.
    let mut server = Server::start(Path::new(&new));
    assert_eq!(token(&server.client().say("LOCK k ID a LEASE 0")), first);
    assert!(server.client().lock("other") > first);
    server.kill();
    let empty = path(&dir, "empty");
    let made = said(&["init", "--data", &empty]);
    let one = Node::start(Path::new(&empty), None);
    let granted = token(&one.insist("LOCK k"));
    assert!(granted > made["token"].as_i64().unwrap());
    assert_eq!(made["cluster"], format!("{:032x}", one.status().unwrap().cluster));
    let two = Node::start(&dir.path().join("two"), Some(one.peer));
    two.until_voters(2);
}
