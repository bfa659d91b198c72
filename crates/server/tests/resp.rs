//! RESP from outside: every command, waiting, pushes, connections that go away, and nonsense.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Running, until_waiting};
use keylatch_server::{Config, Server};
use keylatch_wire::Value;

#[test]
fn a_lock_is_taken_refused_listed_and_released() {
    let server = Running::start();
    let (mut ann, mut bob) = (server.client(), server.client());
    assert_eq!(ann.say("LOCK user:42 OWNER ann ID a META working"), "status=granted id=a");
    assert_eq!(
        bob.say("LOCK user:42 OWNER bob ID b"),
        "status=busy id=b owner=ann mode=X state=held"
    );
    assert_eq!(bob.say("RENEW a LEASE 60000"), "status=renewed");
    let locks = bob.ask("LOCKS NAME user:42");
    let Value::Array(locks) = locks else { panic!("{locks:?}") };
    assert_eq!(locks.len(), 1);
    assert_eq!(locks[0].field("meta").unwrap().text(), Some("working"));
    assert_eq!(locks[0].field("owner").unwrap().text(), Some("ann"));
    assert!(locks[0].field("lease_ms").unwrap().integer().unwrap() > 30_000);
    assert_eq!(bob.say("UNLOCK nonsense"), "0");
    assert_eq!(ann.say("UNLOCK a"), "1");
    assert_eq!(ann.say("UNLOCK a"), "1", "released already: the same answer");
    assert_eq!(ann.say("LOCK user:42 ID a"), "status=ended id=a cause=released");
    assert_eq!(bob.say("LOCKS"), "[]");
}

#[test]
fn several_resources_wildcards_and_modes() {
    let server = Running::start();
    let mut client = server.client();
    let both = "LOCK t ARG 2 A @ MODE S AND u ARG 1 \\@x ID both";
    assert_eq!(client.say(both), "status=granted id=both");
    let refused = client.say("LOCK t ARG 2 A B");
    assert!(refused.starts_with("status=busy") && refused.contains("mode=S"), "{refused}");
    assert_eq!(client.say("LOCK t ARG 2 A B MODE S ID s"), "status=granted id=s");
    assert!(
        client.say("LOCKS").contains("argument [\\@x]"),
        "fields are shown as they are written"
    );
    assert_eq!(client.say("LOCK o MODE O ID o1"), "status=granted id=o1");
    assert_eq!(client.say("LOCK o MODE O ID o2"), "status=granted id=o2");
    assert_eq!(client.say("PROMOTE o1"), "status=promoted");
    assert_eq!(client.say("PROMOTE o2"), "status=lost cause=superseded");
    let refused = client.say("PROMOTE both");
    assert!(refused.starts_with("status=busy") && refused.contains("mode=S"), "{refused}");
    assert_eq!(client.say("PROMOTE nobody"), "status=lost");
}

#[test]
fn a_waiting_lock_blocks_its_connection_and_is_granted_in_turn() {
    let server = Running::start();
    let (mut ann, mut bob, mut eve) = (server.client(), server.client(), server.client());
    ann.say("LOCK k ID a OWNER ann");
    bob.send("LOCK k ID b OWNER bob WAIT 60000\nPING behind");
    until_waiting(&mut eve, 1);
    assert_eq!(eve.say("LOCK k WAIT 0 ID e"), "status=busy id=e owner=ann mode=X state=held");
    assert_eq!(ann.say("UNLOCK a"), "1");
    assert_eq!(bob.next(), "status=granted id=b");
    assert_eq!(bob.next(), "behind", "answered after the lock it stood behind");
}

#[test]
fn a_wait_ends_with_its_time_and_names_the_blocker() {
    let server = Running::start();
    let (mut ann, mut bob) = (server.client(), server.client());
    ann.say("LOCK k ID a OWNER ann");
    assert_eq!(bob.say("LOCK k ID b WAIT 30"), "status=timeout id=b owner=ann mode=X state=held");
    bob.send("LOCK k ID b WAIT 60000");
    let mut eve = server.client();
    until_waiting(&mut eve, 1);
    assert_eq!(eve.say("CANCEL b"), "1");
    assert_eq!(bob.next(), "status=cancelled id=b");
    assert_eq!(eve.say("CANCEL b"), "1", "the same answer again");
    assert_eq!(eve.say("CANCEL nobody"), "0");
}

#[test]
fn a_lease_ends_by_itself_and_its_holder_is_told() {
    let server = Running::start();
    let mut ann = server.client3();
    assert_eq!(ann.say("LOCK k ID a LEASE 20"), "status=granted id=a");
    assert_eq!(ann.next(), "push keylatch lost id=a cause=expired");
    assert_eq!(ann.say("LOCK k ID b LEASE 0"), "status=granted id=b");
    let entry = ann.ask("LOCKS");
    let Value::Array(entries) = entry else { panic!("a list") };
    assert_eq!(entries[0].field("lease_ms").unwrap().integer(), Some(-1));
    let token = entries[0].field("token").unwrap().integer().unwrap();
    let mut admin = server.client();
    assert_eq!(admin.say(&format!("REVOKE {token} REASON maintenance")), "1");
    assert_eq!(ann.next(), "push keylatch lost id=b cause=revoked reason=maintenance");
    assert_eq!(admin.say("REVOKE 1 REASON none"), "0");
}

#[test]
fn asynchronous_requests_are_answered_by_pushes() {
    let server = Running::start();
    let (mut ann, mut bob) = (server.client(), server.client3());
    ann.say("LOCK k ID a OWNER ann");
    assert_eq!(
        bob.say("LOCK k ID b WAIT 60000 ASYNC"),
        "status=waiting id=b owner=ann mode=X state=held"
    );
    assert_eq!(
        bob.say("LOCK k ID c WAIT 20 ASYNC"),
        "status=waiting id=c owner=ann mode=X state=held"
    );
    assert_eq!(bob.next(), "push keylatch timeout status=timeout id=c owner=ann mode=X state=held");
    ann.say("UNLOCK a");
    assert_eq!(bob.next(), "push keylatch granted status=granted id=b");
    assert_eq!(bob.say("LOCK other ID d ASYNC"), "status=granted id=d", "at once says so at once");
}

#[test]
fn subscribers_hear_of_everything() {
    let server = Running::start();
    let (mut listener, mut ann, mut bob) = (server.client(), server.client(), server.client());
    assert_eq!(listener.say("SUBSCRIBE keylatch:events"), "[subscribe keylatch:events 1]");
    assert_eq!(listener.say("PING"), "[pong ]");
    assert!(listener.say("SUBSCRIBE other").starts_with("-BADARG there is no channel 'other'"));
    ann.say("LOCK k ID a");
    bob.send("LOCK k ID b WAIT 60000");
    until_waiting(&mut ann, 1);
    ann.say("UNLOCK a");
    assert_eq!(bob.next(), "status=granted id=b");
    let message = listener.next();
    assert!(message.contains(r#""event":"granted","id":"b""#), "{message}");
    assert_eq!(listener.say("UNSUBSCRIBE"), "[unsubscribe keylatch:events 0]");
    assert_eq!(listener.say("PING"), "PONG");
}

#[test]
fn deadlocks_are_named() {
    let server = Running::start();
    let (mut ann, mut bob) = (server.client(), server.client());
    ann.say("LOCK a OWNER ann DETECT ID a1");
    bob.say("LOCK b OWNER bob DETECT ID b1");
    ann.send("LOCK b OWNER ann DETECT ID a2 WAIT 60000");
    until_waiting(&mut bob, 1);
    let refused = bob.say("LOCK a OWNER bob DETECT ID b2 WAIT 60000");
    assert_eq!(refused, "status=deadlock id=b2 owner=ann mode=X state=held cycle=[bob ann]");
}

#[test]
fn a_waiter_whose_connection_is_gone_leaves_after_its_grace() {
    let server = Running::with(|config| config.grace = Duration::from_millis(30));
    let (mut ann, mut bob, mut eve) = (server.client(), server.client(), server.client());
    ann.say("LOCK k ID a");
    bob.send("LOCK k ID b WAIT 60000");
    until_waiting(&mut eve, 1);
    drop(bob);
    until_waiting(&mut eve, 0);
    assert_eq!(ann.say("UNLOCK a"), "1");
    assert_eq!(eve.say("LOCK k ID e"), "status=granted id=e");
}

/// More is sent behind the lock than is read while it waits, so the end of it all cannot be read.
#[test]
fn a_waiter_that_left_much_unread_is_noticed_as_gone() {
    let server = Running::with(|config| config.grace = Duration::from_millis(30));
    let (mut ann, mut bob) = (server.client(), server.client());
    ann.say("LOCK k ID a LEASE 0");
    bob.send("LOCK k ID b WAIT 3600000");
    until_waiting(&mut ann, 1);
    // More than a frame, and little enough that the system takes it all.
    bob.send(&"PING\n".repeat(24_000));
    drop(bob);
    until_waiting(&mut ann, 0);
}

#[test]
fn a_waiter_that_comes_back_keeps_its_place() {
    let server = Running::with(|config| config.grace = Duration::from_secs(60));
    let (mut ann, mut bob, mut eve) = (server.client(), server.client(), server.client());
    ann.say("LOCK k ID a");
    bob.send("LOCK k ID b WAIT 60000");
    until_waiting(&mut ann, 1);
    eve.send("LOCK k ID e WAIT 60000");
    until_waiting(&mut ann, 2);
    drop(bob);
    let mut again = server.client();
    again.send("LOCK k ID b WAIT 60000");
    // The repeat is in once the list shows its new wait; releasing then grants it first.
    std::thread::sleep(Duration::from_millis(50));
    ann.say("UNLOCK a");
    assert_eq!(again.next(), "status=granted id=b");
    again.say("UNLOCK b");
    assert_eq!(eve.next(), "status=granted id=e");
}

#[test]
fn the_redis_subset() {
    let server = Running::start();
    let mut client = server.client();
    assert_eq!(client.say("SET k v NX PX 60000"), "OK");
    assert_eq!(client.say("SET k w NX PX 60000"), "nil");
    assert_eq!(client.say("GET k"), "v");
    assert_eq!(client.say("GET none"), "nil");
    let left = client.ask("PTTL k").integer().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
    assert_eq!(client.say("PEXPIRE k 1000"), "1");
    assert!(client.ask("PTTL k").integer().unwrap() <= 1_000);
    assert_eq!(client.say("PTTL none"), "-2");
    assert_eq!(client.say("SET forever v NX"), "OK");
    assert_eq!(client.say("PTTL forever"), "-1");
    // A lock is a lock: seen, refused and untouched through the other words.
    assert_eq!(client.say("LOCK native ID n"), "status=granted id=n");
    assert_eq!(client.say("SET native v NX"), "nil");
    let Value::Bulk(shown) = client.ask("GET native") else { panic!("a value") };
    assert!(shown.starts_with(b"keylatch:"));
    assert_eq!(client.say("DEL native"), "0");
    assert_eq!(client.say("EXISTS k forever native none"), "3");
    let busy = client.say("LOCK k");
    assert!(busy.starts_with("status=busy"), "{busy}");
    assert_eq!(client.say("DEL k forever none"), "2");
    assert!(client.say("SET k v").starts_with("-SYNTAX SET takes a lock here, so it needs NX"));
}

#[test]
fn pipelined_requests_keep_their_order_whatever_they_are() {
    let server = Running::start();
    let mut client = server.client();
    client.send("SET k v NX\nGET k\nDEL k\nGET k\nPING\nSET k w NX\nGET k\nNONSENSE\nDEL k");
    let got: Vec<String> = (0..9).map(|_| client.next()).collect();
    assert_eq!(got[..7], ["OK", "v", "1", "nil", "PONG", "OK", "w"]);
    assert!(got[7].starts_with("-UNKNOWN"));
    assert_eq!(got[8], "1");
    // More than one turn takes of one connection.
    let many: Vec<String> = (0..2_000).map(|n| format!("SET p{n} v NX\nGET p{n}\n")).collect();
    client.send(&many.concat());
    for _ in 0..2_000 {
        assert_eq!((client.next(), client.next()), ("OK".into(), "v".into()));
    }
}

#[test]
fn what_clients_say_on_connecting() {
    let server = Running::start();
    let mut client = server.client();
    let hello = client.say("HELLO 3 SETNAME worker-7");
    assert!(hello.contains("server=keylatch") && hello.contains("proto=3"), "{hello}");
    assert_eq!(client.say("CLIENT GETNAME"), "worker-7");
    client.say("LOCK k ID a");
    assert!(client.say("LOCKS").contains("owner=worker-7"), "shown, though not an owner");
    assert_eq!(client.say("CLIENT SETINFO LIB-NAME x"), "OK");
    assert_eq!(client.say("COMMAND DOCS"), "[]");
    assert_eq!(client.say("SELECT 0"), "OK");
    assert!(client.say("SELECT 1").starts_with("-BADARG"));
    assert!(client.say("HELLO 4").starts_with("-NOPROTO"));
    assert!(client.say("AUTH secret").starts_with("-NOAUTH"));
    assert!(client.say("INFO").contains("held:1"));
    assert_eq!(client.say("ECHO hi"), "hi");
    assert!(client.say("HELLO 2").contains("proto"));
    assert_eq!(client.say("CLIENT SETNAME other"), "OK");
    let long = "n".repeat(257);
    for says in ["CLIENT SETNAME", "HELLO 3 SETNAME"] {
        assert!(client.say(&format!("{says} {long}")).starts_with("-LIMIT the name is longer"));
    }
    client.send_bytes(b"*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$0\r\n\r\n");
    assert_eq!(client.next(), "-BADARG the name is empty");
    assert_eq!(client.say("CLIENT GETNAME"), "other");
    assert!(client.ask("CLIENT ID").integer().unwrap() > 0);
    assert_eq!(client.say("QUIT"), "OK");
    assert!(client.is_closed());
}

#[test]
fn nonsense_is_answered_and_cut_off_and_nobody_else_notices() {
    let server = Running::start();
    let mut good = server.client();
    good.say("LOCK k ID a");
    for bad in [
        &b"*1\r\n$x\r\n"[..],
        b"*99999\r\n",
        b"*1\r\n$999999\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\n",
        b"\x00\xff\r\n",
    ] {
        let mut client = server.client();
        client.send_bytes(bad);
        assert!(client.next().starts_with("-PROTOCOL"), "{bad:?}");
        assert!(client.is_closed());
    }
    assert_eq!(good.say("UNLOCK a"), "1");
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let server = Running::start();
    let mut client = server.client();
    for byte in b"*2\r\n$4\r\nPING\r\n$2\r\nab\r\n" {
        client.send_bytes(&[*byte]);
        std::thread::yield_now();
    }
    assert_eq!(client.next(), "ab");
}

#[test]
fn too_many_connections_are_told_so() {
    let server = Running::with(|config| config.connections = 2);
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!((a.say("PING"), b.say("PING")), ("PONG".into(), "PONG".into()));
    let mut c = server.client();
    assert!(c.next().starts_with("-LIMIT too many connections"));
    assert!(c.is_closed());
    drop(b);
    // Room again, once the server has noticed.
    loop {
        let mut d = server.client();
        d.send("PING");
        if d.next() == "PONG" {
            return;
        }
    }
}

#[test]
fn who_says_nothing_is_cut_off() {
    let server = Running::with(|config| config.handshake = Duration::from_millis(1));
    assert!(server.client().is_closed());
}

#[test]
fn who_does_not_finish_a_request_is_cut_off_and_who_waits_is_not() {
    let server = Running::with(|config| config.incomplete = Duration::from_millis(1));
    let (mut slow, mut waiter, mut idle) = (server.client(), server.client(), server.client());
    assert_eq!(idle.say("LOCK k ID a LEASE 0"), "status=granted id=a");
    // What stands behind a lock that waits is not owed: it cannot be taken yet.
    waiter.send("LOCK k ID b WAIT 60000");
    until_waiting(&mut idle, 1);
    waiter.send_bytes(b"*2\r\n$4\r\nEC");
    slow.say("PING");
    slow.send_bytes(b"*2\r\n$4\r\nEC");
    assert!(slow.is_closed());
    let mut enqueue = TcpStream::connect(server.addresses.enqueue.unwrap()).unwrap();
    enqueue.write_all(br#"{"OP":"4","lockName":"#).unwrap();
    assert_eq!(enqueue.read(&mut [0; 100]).unwrap(), 0, "closed");
    assert_eq!(idle.say("UNLOCK a"), "1", "who owes nothing stays");
    assert_eq!(waiter.next(), "status=granted id=b");
    waiter.send_bytes(b"HO\r\n$2\r\nhi\r\n");
    assert_eq!(waiter.next(), "hi");
}

#[test]
fn bounds_are_errors_that_say_so() {
    let server = Running::with(|config| {
        config.settings.set("waiters", 1);
        config.settings.set("name_bytes", 8);
    });
    let (mut a, mut b, mut c) = (server.client(), server.client(), server.client());
    a.say("LOCK k ID a");
    b.send("LOCK k WAIT 60000 ID b");
    until_waiting(&mut a, 1);
    assert!(c.say("LOCK k WAIT 60000").starts_with("-LIMIT"));
    assert!(c.say("LOCK long-name").starts_with("-LIMIT"));
    assert_eq!(c.say("LOCK k2 ID c"), "status=granted id=c");
    assert!(c.say("LOCK other ID c").starts_with("-IDREUSED"));
}

#[test]
fn stopping_answers_what_was_asked() {
    let server = Running::start();
    let mut client = server.client();
    client.say("LOCK k ID a");
    let resp = server.addresses.resp.unwrap();
    server.stop();
    assert!(client.is_closed());
    assert!(std::net::TcpStream::connect(resp).is_err());
}

/// A turn has a bound of 4 MiB. What needs no log is no turn's, and was once counted until the bound was reached for ever.
#[test]
fn questions_that_need_no_log_are_answered_however_many_there_are() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let kinds: [&dyn Fn(&mut Config); 3] =
        [&|_| {}, &|config| config.data = Some(dirs[0].path().into()), &|config| {
            config.data = Some(dirs[1].path().into());
            config.peer = Some("127.0.0.1:0".parse().unwrap());
        }];
    for kind in kinds {
        let server = Running::with(kind);
        let mut client = server.client();
        let text = "x".repeat(4_000);
        for _ in 0..1_100 {
            assert_eq!(client.say(&format!("ECHO {text}")), text);
        }
        assert_eq!(client.say("LOCK k ID k"), "status=granted id=k");
    }
}

/// Nobody is served before the server runs, so all of them wait.
#[test]
fn hundreds_may_wait_at_the_door() {
    let resp = Some("127.0.0.1:0".parse().unwrap());
    let config = Config { resp, enqueue: None, http: None, ..Config::default() };
    let server = Server::bind(config).unwrap();
    let at = server.addresses().resp.unwrap();
    let wait = Duration::from_secs(10);
    let all: Vec<TcpStream> =
        (0..400).map(|_| TcpStream::connect_timeout(&at, wait).expect("there is room")).collect();
    assert_eq!(all.len(), 400);
}

/// As many as nobody would wait for in a socket.
fn with_many_locks(unread_bytes: usize) -> (Running, common::Client) {
    let server = Running::with(|config| config.unread_bytes = unread_bytes);
    let mut client = server.client();
    for n in 0..400 {
        let granted = client.say(&format!("LOCK {n}{}", "x".repeat(500)));
        assert!(granted.contains("granted"), "{granted}");
    }
    (server, client)
}

#[test]
fn a_list_that_is_too_long_is_refused_and_the_connection_goes_on() {
    let (server, mut client) = with_many_locks(65_536);
    for list in ["LOCKS", "LOCKS LIMIT 300", "LOCKS NAME none\r\nLOCKS"] {
        client.send(list);
        if list.contains("NAME") {
            assert_eq!(client.value(), Value::Array(Vec::new()));
        }
        let refused = client.next();
        assert!(refused.starts_with("-LIMIT") && refused.contains("CURSOR"), "{refused}");
    }
    let Value::Array(page) = client.ask("LOCKS LIMIT 50") else { panic!("it fits") };
    assert_eq!(page.len(), 50);
    let mut peer = common::Peer::to(&server);
    let refused = peer.say(r#"{"OP":"4","lockName":null,"lockOwner":null}"#);
    assert!(refused.contains(r#""RC":"4""#) && refused.contains("pages"), "{refused}");
    assert_eq!(client.say("PING"), "PONG");
}

/// The bound is for those who do not read. Each list waits until the one before it is sent, so all of them come, in the order in which
/// they were asked for, with what was asked for between them.
#[test]
fn many_long_lists_at_once_are_sent_one_after_the_other() {
    let (server, _client) = with_many_locks(400_000);
    let mut all: Vec<common::Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut all {
        client.send(&"LOCKS\r\nECHO between\r\nLOCKS OWNER nobody\r\n".repeat(25));
    }
    for client in &mut all {
        for _ in 0..25 {
            let Value::Array(list) = client.value() else { panic!("it is not too long") };
            assert_eq!(list.len(), 400);
            assert_eq!(client.next(), "between");
            assert_eq!(client.value(), Value::Array(Vec::new()));
        }
        assert_eq!(client.say("PING"), "PONG");
    }
}

#[test]
fn who_sends_everything_and_then_says_so_gets_every_answer() {
    let server = Running::start();
    let mut client = server.client();
    client.send("SET k v NX\nGET k\nDEL k\nGET k\nDEL k");
    client.done();
    let got: Vec<String> = (0..5).map(|_| client.next()).collect();
    assert_eq!(got, ["OK", "v", "1", "nil", "0"]);
    assert!(client.is_closed());
    // Also when it is more than one turn takes.
    let mut client = server.client();
    client.send(&"PING\n".repeat(20_000));
    client.done();
    for _ in 0..20_000 {
        assert_eq!(client.next(), "PONG");
    }
    assert!(client.is_closed());
}
