//! The audit log: what is in its lines, and that nobody waits for them.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use parking_lot::Mutex;
use serde_json::Value;

use super::{ask, lock, principal, table};
use crate::access::audit::Sink;
use crate::access::{AuditLog, Denied, NewToken, Outcome, Record, Right, admit};
use keylatch_table::{Command, Mode, Target};

fn revoked(name: &str) -> Record {
    Record {
        principal: Some("root".into()),
        address: Some([192, 0, 2, 7].into()),
        listener: "resp",
        what: "REVOKE",
        name: Some(name.into()),
        token: Some(7),
        outcome: Outcome::Done,
    }
}

fn refused(name: &str) -> Record {
    let denied = Denied::Missing { right: Right::Exclusive, name: name.into() };
    Record { what: "LOCK", token: None, outcome: Outcome::refused(&denied), ..revoked(name) }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lines_of(path: &Path) -> Vec<Value> {
    lines(&std::fs::read_to_string(path).unwrap())
}

#[test]
fn a_line_says_who_did_what_and_what_came_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let log = AuditLog::open(Some(&path)).unwrap();
    log.record(revoked("billing:1"));
    log.record(refused("pay\"roll\n:7"));
    log.record(Record { name: None, token: Some(9), outcome: Outcome::Nothing, ..revoked("") });
    drop(log);
    let lines = lines_of(&path);
    assert_eq!(lines.len(), 3);
    let done = &lines[0];
    assert_eq!((&done["principal"], &done["address"]), (&"root".into(), &"192.0.2.7".into()));
    assert_eq!((&done["what"], &done["name"]), (&"REVOKE".into(), &"billing:1".into()));
    assert_eq!((&done["outcome"], &done["token"]), (&"done".into(), &7.into()));
    assert_eq!(done["listener"], "resp");
    assert!(done["time"].as_str().unwrap().ends_with('Z') && done["reason"].is_null());
    assert_eq!(
        (&lines[1]["outcome"], &lines[1]["name"]),
        (&"refused".into(), &"pay\"roll\n:7".into())
    );
    assert!(lines[1]["reason"].as_str().unwrap().contains("`exclusive`"));
    assert_eq!((&lines[2]["outcome"], &lines[2]["name"]), (&"nothing".into(), &Value::Null));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // It is appended to.
    let log = AuditLog::open(Some(&path)).unwrap();
    log.record(revoked("billing:2"));
    drop(log);
    assert_eq!(lines_of(&path).len(), 4);
}

#[test]
fn a_line_is_bounded_whatever_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let log = AuditLog::open(Some(&path)).unwrap();
    log.record(refused(&"é\u{1}".repeat(40_000)));
    log.record(revoked(&format!("x{}", "é".repeat(300))));
    drop(log);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().all(|line| line.len() < 8_192));
    assert!(lines(&text)[1]["name"].as_str().unwrap().ends_with("é.."), "between two characters");
}

#[test]
fn neither_ids_nor_secrets_come_into_it() {
    let (mut table, token) = (table(), NewToken::generate().unwrap().reveal());
    lock(&mut table, Some("them"), "an-id-of-theirs", &[("p:1", Mode::Shared)]);
    let who = principal("me", "p: shared");
    let id = || Target::Id("an-id-of-theirs".into());
    let repeat = ask(Some("me"), "an-id-of-theirs", &[("p:1", Mode::Shared)]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let log = AuditLog::open(Some(&path)).unwrap();
    for command in [Command::Release(id()), Command::Promote(id()), Command::Acquire(repeat)] {
        let denied = admit(&who, &command, &table).unwrap_err();
        log.record(Record { outcome: Outcome::refused(&denied), ..refused("p:1") });
    }
    drop(log);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(lines(&text).len(), 2 + 1, "release and promote are the same line: {text}");
    assert!(!text.contains("an-id-of-theirs") && !text.contains(&token[..8]), "{text}");
}

#[test]
fn a_file_that_was_moved_away_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("audit.log"), dir.path().join("audit.log.1"));
    let log = AuditLog::open(Some(&path)).unwrap();
    log.record(revoked("a"));
    eventually(|| std::fs::metadata(&path).unwrap().len() > 0);
    std::fs::rename(&path, &old).unwrap();
    log.record(revoked("b"));
    drop(log);
    assert_eq!(
        (lines_of(&old)[0]["name"].as_str(), lines_of(&path)[0]["name"].as_str()),
        (Some("a"), Some("b"))
    );
}

fn eventually(mut happened: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if happened() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("never");
}

/// A disk that takes a write only when it is told to, and fails if told so.
struct Slow {
    begun: Sender<()>,
    go: Receiver<bool>,
    written: Arc<Mutex<String>>,
}

impl Sink for Slow {
    fn write(&mut self, lines: &str, _: bool) -> io::Result<()> {
        self.begun.send(()).ok();
        if !self.go.recv().unwrap_or(true) {
            return Err(io::Error::other("no space left"));
        }
        self.written.lock().push_str(lines);
        Ok(())
    }
}

fn slow() -> (AuditLog, Receiver<()>, Sender<bool>, Arc<Mutex<String>>) {
    let ((begun, has_begun), (go, told)) = (channel(), channel());
    let written = Arc::new(Mutex::new(String::new()));
    let sink = Slow { begun, go: told, written: Arc::clone(&written) };
    (AuditLog::start(Box::new(sink)).unwrap(), has_begun, go, written)
}

#[test]
fn nobody_waits_for_a_slow_disk_and_what_was_dropped_is_said() {
    let (log, begun, go, written) = slow();
    log.record(revoked("first"));
    begun.recv().unwrap();
    // The disk stands still. This returns all the same.
    for number in 0..1_500 {
        log.record(refused(&number.to_string()));
    }
    for number in 0..2_000 {
        log.record(revoked(&number.to_string()));
    }
    drop(go);
    drop(log);
    let lines = lines(&written.lock());
    assert_eq!(lines[0]["name"], "first");
    assert_eq!(lines[1]["dropped"], 1_500 - 1_024);
    let revocations = lines.iter().filter(|line| line["what"] == "REVOKE").count();
    assert_eq!(revocations, 2_001, "refusals do not crowd out revocations");
    let more = lines.iter().find(|line| line["repeated"] == 1_024 - 60);
    assert!(more.is_some(), "what one caller had too many is counted");
}

#[test]
fn what_could_not_be_written_is_counted() {
    let (log, begun, go, written) = slow();
    for (name, works) in [("a", false), ("b", false), ("c", true)] {
        log.record(revoked(name));
        begun.recv().unwrap();
        go.send(works).unwrap();
        // So that each is a write of its own.
        if works {
            eventually(|| !written.lock().is_empty());
        }
    }
    drop(go);
    drop(log);
    let lines = lines(&written.lock());
    assert_eq!((lines.len(), &lines[0]["name"], &lines[0]["dropped"]), (1, &"c".into(), &2.into()));
}

#[test]
fn without_a_file_it_goes_through_tracing() {
    let log = AuditLog::open(None).unwrap();
    log.record(revoked("a"));
    drop(log);
    assert!(AuditLog::open(Some(Path::new("/nowhere/audit.log"))).is_err());
}
