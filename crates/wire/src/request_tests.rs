//! Each command as people write it, and what is said to those who write it wrong.

use keylatch_table::{ANY, Field, Mode, Part, Resource};

use super::*;
use crate::{Limits, read_arguments, write_lock};

fn read(line: &str) -> Result<Request, WordError> {
    let line = format!("{line}\r\n");
    let mut arguments = Arguments::default();
    let taken = read_arguments(line.as_bytes(), Limits::default(), &mut arguments);
    assert_eq!(taken, Ok(Some(line.len())));
    Request::read(line.as_bytes(), &arguments)
}

fn error(line: &str) -> String {
    read(line).unwrap_err().to_string()
}

fn lock(line: &str) -> Lock {
    match read(line) {
        Ok(Request::Lock(lock)) => *lock,
        other => panic!("{other:?}"),
    }
}

fn plain(name: &str) -> Resource {
    Resource::plain(name).unwrap()
}

#[test]
fn a_lock_has_defaults_and_all_its_options() {
    assert_eq!(lock("lock user:42"), Lock::new(plain("user:42")));
    let all = lock(
        "LOCK t ARG 2 A @ MODE s AND u ARG 1 \\@x AND v MODE O OWNER ann LEASE 0 WAIT 5 ID i META m \
         MAXHOLD 9 DETECT ASYNC",
    );
    let t = Resource::new("t", &[Field::Text("A"), ANY]).unwrap();
    let u = Resource::new("u", &[Field::Text("@x")]).unwrap();
    let wanted = Lock {
        part: Part::new(t, Mode::Shared),
        also: vec![Part::new(u, Mode::Exclusive), Part::new(plain("v"), Mode::Optimistic)],
        owner: Some("ann".into()),
        lease_ms: 0,
        wait_ms: 5,
        id: Some("i".into()),
        meta: Some("m".into()),
        max_hold_ms: 9,
        detect: true,
        asynchronous: true,
    };
    assert_eq!(all, wanted);
}

#[test]
fn what_a_client_writes_is_what_the_server_reads() {
    for line in [
        "LOCK a",
        "LOCK a ARG 3 @ \\@ \\\\ MODE E AND b ARG 0 OWNER o LEASE 1 WAIT 2 ID x META m MAXHOLD 3 DETECT",
        "LOCK a LEASE 0 ASYNC",
    ] {
        let lock = lock(line);
        let mut bytes = Vec::new();
        write_lock(&lock, &mut bytes);
        let mut arguments = Arguments::default();
        let taken = read_arguments(&bytes, Limits::default(), &mut arguments);
        assert_eq!(taken, Ok(Some(bytes.len())));
        assert_eq!(Request::read(&bytes, &arguments), Ok(Request::Lock(Box::new(lock))));
    }
}

#[test]
fn errors_of_a_lock_teach_the_syntax() {
    for (line, text) in [
        ("LOCK", "SYNTAX the name is missing; usage: LOCK name"),
        ("LOCK a WAIT", "SYNTAX what follows WAIT is missing"),
        ("LOCK a WAIT soon", "BADARG WAIT must be a whole number, 0 or more"),
        ("LOCK a WAIT -5", "BADARG WAIT must be a whole number, 0 or more"),
        ("LOCK a WAIT 5 MODE S", "SYNTAX ARG and MODE stand right behind the name"),
        ("SET a v NX EX 1 PX 5", "SYNTAX SET takes PX or EX, once"),
        ("LOCK a MODE Z", "SYNTAX 'Z' is not a mode"),
        ("LOCK a NOW", "SYNTAX 'NOW' is not understood here"),
        ("LOCK a ARG 2 x", "SYNTAX ARG 2 needs 2 fields"),
        ("LOCK a ARG 1 @x", "BADARG a field that begins with @ is written \\@x"),
        ("LOCK a ARG 1 \\x", "BADARG a field that begins with \\ is written \\\\x"),
        ("LOCK a ARG 1 \\", "BADARG a field that begins with \\ is written \\\\;"),
        ("LOCK a WAIT 5 wait 6", "SYNTAX wait is given twice; usage: LOCK name"),
        ("LOCK a ARG 1 x ARG 1 y", "SYNTAX ARG is given twice"),
        ("LOCK a MODE S AND b MODE S MODE X", "SYNTAX MODE is given twice"),
        ("LOCKS LIMIT 1 LIMIT 2", "SYNTAX LIMIT is given twice"),
        ("TASK CLAIM p LEASE 1 LEASE 2", "SYNTAX LEASE is given twice"),
        (
            "LOCK a ARG 17 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17",
            "BADARG a resource has at most 16",
        ),
        ("LOCK a LEASE 99999999999999999999", "BADARG LEASE must be a whole number"),
    ] {
        assert!(error(line).starts_with(text), "{}", error(line));
    }
}

#[test]
fn the_other_lock_commands() {
    assert_eq!(read("unlock i"), Ok(Request::Unlock("i".into())));
    assert_eq!(read("CANCEL i"), Ok(Request::Cancel("i".into())));
    assert_eq!(read("PROMOTE i"), Ok(Request::Promote("i".into())));
    assert_eq!(read("RENEW i"), Ok(Request::Renew("i".into(), None)));
    assert_eq!(read("RENEW i LEASE 7"), Ok(Request::Renew("i".into(), Some(7))));
    assert_eq!(read("REVOKE 5 REASON why"), Ok(Request::Revoke(5, "why".into())));
    let query = LocksQuery {
        name: Some("n".into()),
        owner: Some("o".into()),
        waiters: true,
        limit: 3,
        cursor: 4,
    };
    let line = "LOCKS NAME n OWNER o WAITERS LIMIT 3 CURSOR 4";
    assert_eq!(read(line), Ok(Request::Locks { query: query.clone(), stale: false }));
    let line = format!("{line} stale");
    assert_eq!(read(&line), Ok(Request::Locks { query, stale: true }));
    for line in
        ["UNLOCK", "UNLOCK a b", "RENEW i FOR 7", "REVOKE 5", "REVOKE x REASON y", "LOCKS ALL"]
    {
        let text = error(line);
        assert!(text.starts_with("SYNTAX") || text.starts_with("BADARG"), "{text}");
    }
}

#[test]
fn the_redis_subset() {
    let set =
        |lease_ms| Request::Set(SetRequest { key: plain("k"), value: b"v"[..].into(), lease_ms });
    assert_eq!(read("SET k v NX PX 1000"), Ok(set(1_000)));
    assert_eq!(read("set k v ex 2 nx"), Ok(set(2_000)));
    assert_eq!(read("SET k v NX"), Ok(set(0)));
    assert!(error("SET k v PX 5").contains("needs NX"));
    assert!(error("SET k v NX PX 0").contains("more than 0"));
    assert!(error("SET k v NX XX").contains("'XX' is not understood"));
    let key = |request| Ok(Request::Key(request));
    assert_eq!(read("GET k"), key(KeyRequest::Get(plain("k"))));
    assert_eq!(read("PTTL k"), key(KeyRequest::Pttl(plain("k"))));
    assert_eq!(read("DEL k j"), key(KeyRequest::Del(vec![plain("k"), plain("j")])));
    assert_eq!(read("EXISTS k"), key(KeyRequest::Exists(vec![plain("k")])));
    assert_eq!(read("PEXPIRE k 5"), key(KeyRequest::Pexpire(plain("k"), 5)));
    for line in ["GET", "GET a b", "DEL", "PEXPIRE k", "PEXPIRE k -1"] {
        assert!(read(line).is_err(), "{line}");
    }
}

#[test]
fn what_clients_send_on_connecting() {
    assert_eq!(read("PING"), Ok(Request::Ping(None)));
    assert_eq!(read("PING x"), Ok(Request::Ping(Some(b"x"[..].into()))));
    assert_eq!(read("ECHO x"), Ok(Request::Echo(b"x"[..].into())));
    let hello = Hello { version: Some(3), auth: Some("p".into()), name: Some("me".into()) };
    assert_eq!(read("HELLO 3 AUTH u p SETNAME me"), Ok(Request::Hello(hello)));
    assert_eq!(read("HELLO"), Ok(Request::Hello(Hello::default())));
    assert_eq!(read("CLIENT SETNAME me"), Ok(Request::Client(ClientRequest::SetName("me".into()))));
    assert_eq!(read("CLIENT SETINFO LIB-NAME x"), Ok(Request::Client(ClientRequest::Ignored)));
    assert_eq!(read("CLIENT ID"), Ok(Request::Client(ClientRequest::Id)));
    assert_eq!(read("CLIENT GETNAME"), Ok(Request::Client(ClientRequest::GetName)));
    assert_eq!(read("COMMAND DOCS"), Ok(Request::Command));
    assert_eq!(read("SELECT 0"), Ok(Request::Select(0)));
    assert_eq!(read("SUBSCRIBE a b"), Ok(Request::Subscribe(vec!["a".into(), "b".into()])));
    assert_eq!(read("UNSUBSCRIBE"), Ok(Request::Unsubscribe(vec![])));
    assert_eq!(read("AUTH p"), Ok(Request::Auth("p".into())));
    assert_eq!(read("AUTH u p"), Ok(Request::Auth("p".into())));
    assert_eq!(read("INFO"), Ok(Request::Info));
    assert_eq!(read("QUIT"), Ok(Request::Quit));
    for line in
        ["PING a b", "ECHO", "HELLO x", "HELLO 3 WHAT", "CLIENT", "CLIENT KILL", "SUBSCRIBE"]
    {
        assert!(read(line).is_err(), "{line}");
    }
    assert!(error("FLUSHALL").starts_with("UNKNOWN unknown command 'FLUSHALL'; try LOCK"));
    assert!(error("ALONGWORDTHATBEGINSWITHLOCK").starts_with("UNKNOWN"));
}

#[test]
fn text_must_be_utf_8() {
    let bytes = b"*2\r\n$4\r\nLOCK\r\n$1\r\n\xff\r\n";
    let mut arguments = Arguments::default();
    read_arguments(bytes, Limits::default(), &mut arguments).unwrap();
    let error = Request::read(bytes, &arguments).unwrap_err();
    assert_eq!(error.to_string(), "BADARG the name must be valid UTF-8");
}
