//! The enqueue protocol from outside, byte by byte.

mod common;

use std::io::Write;
use std::net::Shutdown;

use common::{OK, Peer, Running, lock};

#[test]
fn locks_are_taken_refused_and_given_up() {
    let server = Running::start();
    let mut peer = Peer::to(&server);
    assert_eq!(peer.say(&lock("1_1", "E", "O_1", 0)), OK);
    assert_eq!(Peer::to(&server).say(&lock("2_1", "E", "O_2", 0)), r#"{"RC":"1","OWNER":"O_1"}"#);
    let taken = peer.say(&lock("1_1", "E", "O_1", 0));
    assert_eq!(taken, r#"{"RC":"4","MSG":"Lock already exists!"}"#);
    assert_eq!(peer.say(&lock("1_2", "E", "O_1", 0)), OK, "the same owner cumulates");
    assert_eq!(peer.say(r#"{"OP":"2","lockUUID":"1_1"}"#), OK);
    let gone = r#"{"RC":"4","MSG":"The lock does not exist!"}"#;
    assert_eq!(peer.say(r#"{"OP":"2","lockUUID":"1_1"}"#), gone);
    assert_eq!(peer.say(r#"{"OP":"2","lockUUID":"1_2"}"#), OK);
    assert_eq!(peer.say(&lock("1_1", "X", "O_1", 0)), OK, "an alias is free again after its lock");
}

#[test]
fn optimistic_locks_are_promoted() {
    let server = Running::start();
    let mut peer = Peer::to(&server);
    for uuid in ["1", "2"] {
        assert_eq!(peer.say(&lock(uuid, "O", "O_1", 0)), OK);
    }
    assert_eq!(peer.say(r#"{"OP":"3","lockUUID":"1"}"#), OK);
    let lost = peer.say(r#"{"OP":"3","lockUUID":"2"}"#);
    assert_eq!(lost, r#"{"RC":"2"}"#, "the other one was promoted");
    assert_eq!(peer.say(r#"{"OP":"3","lockUUID":"nobody"}"#), r#"{"RC":"2"}"#);
    peer.say(r#"{"OP":"2","lockUUID":"1"}"#);
    for (uuid, owner) in [("3", "O_1"), ("4", "O_2")] {
        assert_eq!(peer.say(&lock(uuid, "S", owner, 0)), OK);
    }
    let refused = peer.say(r#"{"OP":"3","lockUUID":"3"}"#);
    assert_eq!(refused, r#"{"RC":"2","OWNER":"O_2","MSG":"O_2"}"#);
}

#[test]
fn a_waiting_lock_keeps_its_connection_and_a_gone_one_its_place_to_nobody() {
    let server = Running::start();
    let mut peer = Peer::to(&server);
    assert_eq!(peer.say(&lock("1", "E", "O_1", 0)), OK);
    let (mut second, mut third) = (Peer::to(&server), Peer::to(&server));
    second.send(&lock("2", "E", "O_2", 60_000));
    let mut watch = server.client();
    let wait_for = |watch: &mut common::Client, count: usize| {
        while watch.say("LOCKS WAITERS").matches("state waiting").count() != count {}
    };
    wait_for(&mut watch, 1);
    third.send(&lock("3", "E", "O_3", 60_000));
    wait_for(&mut watch, 2);
    drop(second);
    wait_for(&mut watch, 1);
    assert_eq!(peer.say(r#"{"OP":"2","lockUUID":"1"}"#), OK);
    assert_eq!(third.next(), OK.as_bytes());
    let late = Peer::to(&server).say(&lock("4", "E", "O_4", 20));
    assert_eq!(late, r#"{"RC":"1","OWNER":"O_3"}"#, "its time is over");
    drop(third);
    let held = Peer::to(&server).say(&lock("5", "E", "O_5", 0));
    assert_eq!(held, r#"{"RC":"1","OWNER":"O_3"}"#, "a holder that disconnects keeps its lock");
}

#[test]
fn a_list_has_its_length_in_front() {
    let server = Running::start();
    let mut peer = Peer::to(&server);
    let list = r#"{"OP":"4","lockName":null,"lockOwner":null}"#;
    peer.send(list);
    assert_eq!(peer.next(), [2, 0, 0, 0, b'[', b']']);
    peer.say(&lock("1", "E", "O_1", 0));
    peer.send(list);
    let bytes = peer.next();
    let (length, json) = bytes.split_at(4);
    assert_eq!(u32::from_le_bytes(length.try_into().unwrap()) as usize, json.len());
    let json = String::from_utf8(json.into()).unwrap();
    let begin = r#"[{"uuid":"1","name":"tab1","argument":"A,@","mode":"E","owner":"O_1","waitTime":0,"timeout":900000,"timestamp":""#;
    assert!(json.starts_with(begin), "{json}");
}

#[test]
fn a_lock_is_the_same_lock_on_both_ports() {
    let server = Running::start();
    let (mut peer, mut client) = (Peer::to(&server), server.client());
    assert_eq!(peer.say(&lock("1", "E", "O_1", 0)), OK);
    let refused = client.say("LOCK tab1 ARG 2 A B ID c");
    assert_eq!(refused, "status=busy id=c owner=O_1 mode=E state=held");
    assert_eq!(client.say("LOCK tab1 ARG 2 C D OWNER ann ID d"), "status=granted id=d");
    assert_eq!(peer.say(r#"{"OP":"2","lockUUID":"1"}"#), OK);
    assert_eq!(client.say("LOCK tab1 ARG 2 A B OWNER ann ID e"), "status=granted id=e");
    assert_eq!(peer.say(&lock("2", "E", "O_1", 0)), r#"{"RC":"1","OWNER":"ann"}"#);
}

#[test]
fn requests_may_be_together_or_in_pieces_and_nonsense_is_answered() {
    let server = Running::start();
    let mut peer = Peer::to(&server);
    let both = format!("{}  {}", lock("1", "E", "O_1", 0), r#"{"OP":"2","lockUUID":"1"}"#);
    for byte in both.as_bytes() {
        peer.stream.write_all(&[*byte]).unwrap();
    }
    let mut got = Vec::new();
    while got.len() < 2 * OK.len() {
        got.extend(peer.next());
    }
    assert_eq!(got, format!("{OK}{OK}").as_bytes());
    for (text, code) in [
        ("null", "4"),
        (r#"{"OP":"9"}"#, "4"),
        (r#"{"OP":"1","eleLock":{"name":"x","argument":"A"}}"#, "4"),
        (r#"{"OP":"2"}"#, "4"),
    ] {
        let answer = peer.say(text);
        assert!(answer.starts_with(&format!(r#"{{"RC":"{code}","MSG":""#)), "{text}: {answer}");
    }
    assert!(peer.say("}nonsense").starts_with(r#"{"RC":"4""#));
    peer.send(&lock("2", "E", "O_1", 0));
    let mut other = Peer::to(&server);
    assert_eq!(other.say(&lock("3", "E", "O_3", 0)), OK, "the rest of the other was discarded");
    let mut cut = Peer::to(&server);
    cut.send(r#"{"OP":"1","#);
    cut.stream.shutdown(Shutdown::Write).unwrap();
    assert!(cut.next().starts_with(br#"{"RC":"4""#), "it may still be listening");
}

#[test]
fn only_a_named_owner_is_shown() {
    let server = Running::start();
    let mut peer = Peer::to(&server);
    let unnamed = r#"{"OP":"1","eleLock":{"name":"tab1","argument":["A"],"mode":"X","uuid":"1"}}"#;
    assert_eq!(peer.say(unnamed), OK);
    let second = unnamed.replace(r#""uuid":"1""#, r#""uuid":"2","waitTime":0"#);
    assert_eq!(peer.say(&second), r#"{"RC":"1"}"#);
    peer.send(r#"{"OP":"4","lockName":null,"lockOwner":null}"#);
    let list = String::from_utf8_lossy(&peer.next()).into_owned();
    assert!(list.contains(r#""owner":null"#), "{list}");
    let shown = server.client().say("LOCKS");
    assert!(shown.contains("owner 127.0.0.1:"), "other clients see where it comes from: {shown}");
}

#[test]
fn too_many_connections_are_told_so_in_this_protocol_too() {
    let server = Running::with(|config| config.connections = 1);
    let mut first = Peer::to(&server);
    assert_eq!(first.say(&lock("1", "E", "O_1", 0)), OK);
    let told = String::from_utf8(Peer::to(&server).next()).unwrap();
    assert!(told.starts_with(r#"{"RC":"4","MSG":"too many connections"#), "{told}");
}

/// Their client never notices that a connection has ended.
#[test]
fn who_waits_is_told_that_the_server_stops_and_waits_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Running::with(|config| config.data = Some(dir.path().into()));
    let server = start();
    let (mut first, mut second) = (Peer::to(&server), Peer::to(&server));
    assert_eq!(first.say(&lock("1", "E", "O_1", 0)), OK);
    second.send(&lock("2", "E", "O_2", 60_000));
    let mut watch = server.client();
    while !watch.say("LOCKS WAITERS").contains("state waiting") {}
    server.stop();
    let told = String::from_utf8(second.next()).unwrap();
    assert_eq!(told, r#"{"RC":"4","MSG":"the server is stopping"}"#);
    let server = start();
    let listed = server.client().say("LOCKS WAITERS");
    assert!(listed.contains("owner O_1") && !listed.contains("O_2"), "{listed}");
}
