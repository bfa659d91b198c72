//! Mistakes that systems like this one made, through the server's own ports. Each has its number in
//! all test files; those about the rules alone are tests of the table, those about the disk and the
//! clock are tests of the binary.

mod common;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::{Client, OK, Peer, Running, lock, lock_for, show, until_waiting};
use keylatch_wire::Value;

const GONE: &str = r#"{"RC":"4","MSG":"The lock does not exist!"}"#;

fn number(value: &Value, field: &str) -> i64 {
    let found = value.field(field).and_then(Value::integer);
    found.unwrap_or_else(|| panic!("no {field} in {value:?}"))
}

/// What is left of a plain lock.
fn left(client: &mut Client, name: &str) -> i64 {
    client.ask(&format!("PTTL {name}")).integer().unwrap()
}

#[test]
fn bug_08_a_holder_is_told_once_and_its_lease_is_not_restarted() {
    let server = Running::start();
    let (mut ann, mut bob) = (server.client(), server.client3());
    ann.say("LOCK k ID a");
    for id in ["b", "c", "d"] {
        bob.send(&format!("LOCK k ID {id} LEASE 600000 WAIT 600000 ASYNC"));
        assert!(bob.next().starts_with("status=waiting"));
    }
    ann.say("UNLOCK a");
    assert_eq!(bob.next(), "push keylatch granted status=granted id=b");
    let before = left(&mut ann, "k");
    std::thread::sleep(Duration::from_millis(20));
    // The head of those who wait goes, then the last: neither is news for the holder.
    assert_eq!(ann.say("CANCEL c"), "1");
    assert_eq!(bob.next(), "push keylatch cancelled status=cancelled id=c");
    assert_eq!(ann.say("UNLOCK d"), "1");
    assert_eq!(bob.next(), "push keylatch cancelled status=cancelled id=d");
    assert!(left(&mut ann, "k") < before, "the lease was restarted");
    assert_eq!(bob.say("PING"), "PONG", "nothing else was said");
    assert_eq!(bob.say("UNLOCK b"), "1");
}

#[test]
fn bug_08_a_holder_is_told_once_on_the_enqueue_port() {
    let server = Running::start();
    let (mut first, mut second, mut third) =
        (Peer::to(&server), Peer::to(&server), Peer::to(&server));
    let mut watch = server.client();
    assert_eq!(first.say(&lock("1", "X", "O_1", 0)), OK);
    second.send(&lock("2", "X", "O_2", 600_000));
    until_waiting(&mut watch, 1);
    third.send(&lock("3", "X", "O_3", 600_000));
    until_waiting(&mut watch, 2);
    assert_eq!(first.unlock("1"), OK);
    assert_eq!(second.next(), OK.as_bytes());
    drop(third);
    until_waiting(&mut watch, 0);
    assert_eq!(second.unlock("2"), OK, "one answer to one request");
    assert_eq!(second.unlock("2"), GONE, "and none left over");
}

#[test]
fn bug_09_the_lease_of_a_released_lock_does_not_hit_its_successor() {
    let server = Running::start();
    let mut client = server.client3();
    let mut peer = Peer::to(&server);
    client.say("LOCK k ID a LEASE 100");
    assert_eq!(client.say("UNLOCK a"), "1");
    client.say("LOCK k ID b LEASE 600000");
    assert_eq!(peer.say(&lock_for("1", "X", "O_1", 0, 100)), OK);
    assert_eq!(peer.unlock("1"), OK);
    assert_eq!(peer.say(&lock_for("1", "X", "O_1", 0, 600_000)), OK);
    // A third one of the same length says when both would have ended.
    client.say("LOCK measure ID m LEASE 110");
    assert_eq!(client.next(), "push keylatch lost id=m cause=expired");
    assert!(left(&mut client, "k") > 300_000);
    assert_eq!(client.say("UNLOCK b"), "1");
    assert_eq!(peer.unlock("1"), OK);
}

#[test]
fn bug_11_a_waiter_that_disconnected_does_not_keep_the_lock_from_the_others() {
    let server = Running::with(|config| config.grace = Duration::from_millis(100));
    let (mut ann, mut bob, mut eve) = (server.client(), server.client(), server.client());
    ann.say("LOCK k ID a");
    bob.send("LOCK k ID b LEASE 600000 WAIT 600000");
    until_waiting(&mut ann, 1);
    eve.send("LOCK k ID e WAIT 600000");
    until_waiting(&mut ann, 2);
    drop(bob);
    // In its grace or after it: in the end the next one has it.
    ann.say("UNLOCK a");
    assert_eq!(eve.next(), "status=granted id=e");
    // On the enqueue port there is no grace.
    let (mut first, mut second, mut third) =
        (Peer::to(&server), Peer::to(&server), Peer::to(&server));
    assert_eq!(first.say(&lock("1", "X", "O_1", 0)), OK);
    second.send(&lock("2", "X", "O_2", 600_000));
    until_waiting(&mut ann, 1);
    third.send(&lock("3", "X", "O_3", 600_000));
    until_waiting(&mut ann, 2);
    drop(second);
    until_waiting(&mut ann, 1);
    assert_eq!(first.unlock("1"), OK);
    assert_eq!(third.next(), OK.as_bytes());
}

#[test]
fn bug_12_a_wait_that_is_over_is_not_granted() {
    let server = Running::start();
    let (mut ann, mut bob) = (server.client(), server.client());
    ann.say("LOCK k ID a");
    assert!(bob.say("LOCK k ID b WAIT 30").starts_with("status=timeout id=b"));
    assert_eq!(ann.say("UNLOCK a"), "1");
    assert_eq!(ann.say("LOCKS WAITERS"), "[]", "nobody has it now");
    assert_eq!(bob.say("UNLOCK b"), "0");
    let (mut first, mut second) = (Peer::to(&server), Peer::to(&server));
    assert_eq!(first.say(&lock("1", "X", "O_1", 0)), OK);
    let late = second.say(&lock("2", "X", "O_2", 30));
    assert_eq!(late, r#"{"RC":"1","OWNER":"O_1"}"#);
    assert_eq!(first.unlock("1"), OK);
    assert_eq!(ann.say("LOCKS WAITERS"), "[]", "nobody has it now");
    assert_eq!(second.unlock("2"), GONE);
}

/// The lease begins with the grant, so one that is shorter than the wait is still a whole one.
#[test]
fn bug_12_a_lease_shorter_than_the_wait_is_whole_when_it_is_granted() {
    let server = Running::start();
    let (mut ann, mut bob) = (server.client(), server.client3());
    ann.say("LOCK k ID a");
    bob.send("LOCK k ID b LEASE 200 WAIT 600000");
    until_waiting(&mut ann, 1);
    std::thread::sleep(Duration::from_millis(300));
    let since = Instant::now();
    ann.say("UNLOCK a");
    let granted = bob.value();
    assert_eq!(show(&granted), "status=granted id=b");
    assert_eq!(number(&granted, "lease_ms"), 200);
    assert!(number(&granted, "waited_ms") >= 300);
    assert_eq!(bob.next(), "push keylatch lost id=b cause=expired");
    // Table time counts whole milliseconds.
    assert!(since.elapsed() >= Duration::from_millis(199), "{:?}", since.elapsed());
}

#[test]
fn bug_13_nothing_that_can_be_seen_or_guessed_releases_a_lock() {
    let server = Running::start();
    let (mut ann, mut eve) = (server.client(), server.client());
    let granted = ann.ask("LOCK k OWNER ann META note");
    let id = granted.field("id").and_then(Value::text).unwrap().to_string();
    let mut peer = Peer::to(&server);
    assert_eq!(peer.say(&lock("1_1", "X", "O_1", 0)), OK);
    let Value::Array(listed) = eve.ask("LOCKS") else { panic!("a list") };
    for entry in &listed {
        for field in ["seq", "token", "name", "owner", "meta"] {
            let shown = entry.field(field).map(show).unwrap_or_default();
            for word in ["UNLOCK", "PROMOTE", "RENEW", "CANCEL"] {
                let answer = eve.say(&format!("{word} {shown}"));
                let harmless = ["0", "status=lost"].contains(&answer.as_str())
                    || answer.starts_with("-SYNTAX");
                assert!(harmless, "{word} {field} {shown}: {answer}");
            }
        }
    }
    assert_eq!(eve.say("UNLOCK 1_1"), "0", "an alias of the other port is no id");
    assert_eq!(peer.unlock(&id), GONE, "and no id is an alias");
    assert_eq!(eve.say("DEL k"), "0");
    let Value::Array(after) = eve.ask("LOCKS") else { panic!("a list") };
    assert_eq!(after.len(), listed.len(), "all are there");
    assert_eq!(ann.say(&format!("UNLOCK {id}")), "1");
}

#[test]
fn bug_13_ids_made_by_the_server_have_nothing_in_common() {
    let server = Running::start();
    let mut client = server.client();
    let mut ids = BTreeSet::new();
    for n in 0..1_000 {
        let granted = client.ask(&format!("LOCK k{n}"));
        ids.insert(granted.field("id").and_then(Value::text).unwrap().to_string());
    }
    assert_eq!(ids.len(), 1_000);
    // Random UUIDs: all bits but six are chosen anew, so neighbours share no long beginning.
    let ids: Vec<&String> = ids.iter().collect();
    for pair in ids.windows(2) {
        assert_eq!((pair[0].len(), pair[0].as_bytes()[14]), (36, b'4'), "{}", pair[0]);
        let common = std::iter::zip(pair[0].bytes(), pair[1].bytes()).take_while(|(a, b)| a == b);
        assert!(common.count() < 13, "{} and {}", pair[0], pair[1]);
    }
}

#[test]
fn bug_20_a_release_that_is_refused_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    for data in [None, Some(dir.path().to_path_buf())] {
        let server = Running::with(|config| config.data = data);
        let (mut client, mut peer) = (server.client(), Peer::to(&server));
        for _ in 0..3 {
            assert_eq!(client.say("UNLOCK nobody"), "0");
            assert_eq!(client.say("CANCEL nobody"), "0");
            assert_eq!(client.say("RENEW nobody"), "status=lost");
            assert_eq!(client.say("PROMOTE nobody"), "status=lost");
            assert_eq!(client.say("REVOKE 1 REASON x"), "0");
            assert_eq!(client.say("DEL nobody"), "0");
            assert_eq!(client.say("PEXPIRE nobody 5"), "0");
            assert_eq!(peer.unlock("nobody"), GONE);
        }
        // After its end, too, and behind something that is answered otherwise.
        client.say("LOCK k ID a LEASE 1");
        while client.say("EXISTS k") != "0" {}
        assert_eq!(client.say("UNLOCK a"), "0");
        client.send("UNLOCK x\nNONSENSE\nUNLOCK\nUNLOCK y\nPING");
        let got: Vec<String> = (0..5).map(|_| client.next()).collect();
        assert_eq!((&*got[0], &*got[3], &*got[4]), ("0", "0", "PONG"));
        assert!(got[1].starts_with("-UNKNOWN") && got[2].starts_with("-SYNTAX"), "{got:?}");
    }
}

#[test]
fn bug_30_a_retry_after_a_lost_reply_neither_takes_the_lock_twice_nor_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for data in [None, Some(dir.path().to_path_buf())] {
        let server = Running::with(|config| config.data = data);
        let mut watch = server.client();
        for mode in ["X", "E", "S", "O"] {
            let line = format!("LOCK k{mode} MODE {mode} OWNER ann ID {mode} LEASE 600000");
            let mut lost = server.client();
            lost.send(&line);
            while watch.say(&format!("EXISTS k{mode}")) != "1" {}
            drop(lost);
            let again = watch.ask(&line);
            assert_eq!(show(&again), format!("status=granted id={mode}"));
            let third = watch.ask(&line);
            assert_eq!(number(&again, "token"), number(&third, "token"), "one grant");
            let Value::Array(held) = watch.ask(&format!("LOCKS NAME k{mode}")) else {
                panic!("a list")
            };
            assert_eq!(held.len(), 1, "{mode}");
            // A release whose answer was lost is repeated as well.
            let mut lost = server.client();
            lost.send(&format!("UNLOCK {mode}"));
            while watch.say(&format!("EXISTS k{mode}")) != "0" {}
            drop(lost);
            assert_eq!(watch.say(&format!("UNLOCK {mode}")), "1");
            let late = watch.say(&line);
            assert_eq!(late, format!("status=ended id={mode} cause=released"), "not taken again");
        }
    }
}

/// The first try waits, its connection breaks, and the retry must not stand behind it.
#[test]
fn bug_30_a_retry_of_a_waiting_request_is_not_refused_by_its_first_try() {
    let server = Running::with(|config| config.grace = Duration::from_secs(60));
    let (mut ann, mut bob) = (server.client(), server.client());
    ann.say("LOCK k ID a");
    bob.send("LOCK k ID b WAIT 600000");
    until_waiting(&mut ann, 1);
    drop(bob);
    let mut bob = server.client();
    bob.send("LOCK k ID b WAIT 600000");
    until_waiting(&mut ann, 1);
    ann.say("UNLOCK a");
    assert_eq!(bob.next(), "status=granted id=b");
    assert_eq!(bob.say("UNLOCK b"), "1");
    assert_eq!(ann.say("LOCKS WAITERS"), "[]");
}
