//! The wall clock jumps by hours, as it does when somebody corrects it. Leases neither end early nor
//! late, waits go on, tokens grow. libfaketime stands between the server and the clock; the monotonic
//! clock is left alone, as a real jump leaves it alone.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Client, HANG, Server, Start, number, token};
use keylatch_wire::Value;

/// The wall clock of a server.
struct Wall(tempfile::NamedTempFile);

impl Wall {
    fn new() -> Wall {
        let wall = Wall(tempfile::NamedTempFile::new().unwrap());
        wall.is_off_by(0);
        wall
    }

    /// Jumps, now, to so many hours after the real time.
    fn is_off_by(&self, hours: i64) {
        std::fs::write(self.0.path(), format!("{:+}\n", hours * 3_600)).unwrap();
    }

    fn start(&self, dir: Option<&Path>) -> Server {
        let start = dir.map_or_else(Start::ephemeral, Start::in_dir);
        start
            .environment("LD_PRELOAD", library().to_str().unwrap())
            .environment("FAKETIME_TIMESTAMP_FILE", self.0.path().to_str().unwrap())
            .environment("FAKETIME_NO_CACHE", "1")
            .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .environment("DONT_FAKE_MONOTONIC", "1")
            .start()
    }
}

fn library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().map(|entry| entry.unwrap().path());
    let library = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    let mut library = library.filter(|path| path.exists());
    library.next().expect("libfaketime is missing; scripts/setup installs it")
}

/// The hour that the server would show for something that happens now.
fn shown_hour(server: &Server) -> String {
    let mut peer = TcpStream::connect(server.enqueue).unwrap();
    peer.set_read_timeout(Some(HANG)).unwrap();
    let uuid = "shown";
    let lock = format!(
        r#"{{"OP":"1","eleLock":{{"name":"shown","argument":[],"mode":"X","uuid":"{uuid}"}}}}"#
    );
    let mut say = |text: &str| {
        peer.write_all(text.as_bytes()).unwrap();
        let mut room = [0; 8_192];
        let count = peer.read(&mut room).unwrap();
        String::from_utf8_lossy(&room[..count]).into_owned()
    };
    assert_eq!(say(&lock), r#"{"RC":"0"}"#);
    let list = say(r#"{"OP":"4","lockName":"shown"}"#);
    assert_eq!(say(&format!(r#"{{"OP":"2","lockUUID":"{uuid}"}}"#)), r#"{"RC":"0"}"#);
    let (_, time) = list.split_once(r#""timestamp":""#).unwrap_or_else(|| panic!("{list}"));
    // `11/15/2026, 6:08:46 PM` without minutes and seconds.
    let (date, rest) = time.split_once(':').unwrap();
    format!("{date} {}", &rest[6..8])
}

/// A lease, and when it was seen last.
struct Seen {
    left: i64,
    at: Instant,
}

fn left(client: &mut Client) -> Seen {
    let at = Instant::now();
    let left = client.say("PTTL long").integer().unwrap();
    Seen { left, at }
}

/// It went on as the monotonic clock did.
fn assert_steady(before: &Seen, client: &mut Client) {
    let now = left(client);
    let gone = i64::try_from(before.at.elapsed().as_millis()).unwrap() + 1;
    assert!(now.left <= before.left, "{} ms left, {} before", now.left, before.left);
    assert!(now.left >= before.left - gone, "{} of {} after {gone} ms", now.left, before.left);
}

fn jumps_change_nothing(dir: Option<&Path>) {
    let wall = Wall::new();
    let server = wall.start(dir);
    let mut ann = server.client();
    assert!(ann.say("SET long v NX PX 3000000").is("OK"));
    let mut last = ann.lock("contended ID first OWNER ann");
    let mut holder = "first".to_string();
    let mut hours = vec![shown_hour(&server)];
    for (round, jump) in [1, -1, 30, -48, 0].into_iter().enumerate() {
        let before = left(&mut ann);
        let (mut waiter, id) = (server.client(), format!("waiter-{round}"));
        waiter.send(&format!("LOCK contended ID {id} WAIT 1000000")).unwrap();
        while ann.list("WAITERS NAME contended").len() < 2 {}
        wall.is_off_by(jump);
        hours.push(shown_hour(&server));
        assert_steady(&before, &mut ann);
        // The tick that is due within a second comes, with whatever it would end.
        std::thread::sleep(Duration::from_millis(1_100));
        assert_steady(&before, &mut ann);
        assert_eq!(ann.list("WAITERS NAME contended").len(), 2, "holder and waiter are there");
        // A short one ends, and not before its time, which is counted in whole milliseconds.
        let since = Instant::now();
        ann.lock(&format!("short ID short-{round} LEASE 300"));
        wall.is_off_by(jump - 1);
        let granted = server.client().say(&format!("LOCK short ID next-{round} WAIT 1000000"));
        assert!(token(&granted) > last);
        assert!(since.elapsed() > Duration::from_millis(299), "it ended early");
        assert!(number(&granted, "waited_ms") <= 1_000_000);
        ann.say(&format!("UNLOCK next-{round}"));
        // The one who waited through it all is next.
        assert_eq!(ann.say(&format!("UNLOCK {holder}")), Value::Integer(1));
        let next = token(&waiter.next().unwrap());
        assert!(next > last, "token {next} after {last}");
        (last, holder) = (next, id);
    }
    hours.dedup();
    assert!(hours.len() >= 5, "the server's wall clock did jump: {hours:?}");
}

#[test]
fn bug_21_a_jump_of_the_wall_clock_changes_no_lease_no_wait_and_no_order_in_memory() {
    jumps_change_nothing(None);
}

#[test]
fn bug_21_a_jump_of_the_wall_clock_changes_no_lease_no_wait_and_no_order_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    jumps_change_nothing(Some(dir.path()));
}

#[test]
fn a_restart_in_the_past_or_future_shortens_no_lease_and_tokens_grow() {
    let dir = tempfile::tempdir().unwrap();
    let wall = Wall::new();
    let mut server = wall.start(Some(dir.path()));
    let since = Instant::now();
    let mut last = server.client().lock("long ID long LEASE 3000000");
    for (round, hours) in [-1, -2_000, 1, 0].into_iter().enumerate() {
        server.kill();
        wall.is_off_by(hours);
        server = wall.start(Some(dir.path()));
        let mut client = server.client();
        let again = client.say("LOCK long ID long LEASE 3000000");
        let gone = i64::try_from(since.elapsed().as_millis()).unwrap();
        assert_eq!(number(&again, "waited_ms"), 0);
        let left = number(&again, "lease_ms");
        assert!(left >= 3_000_000 - gone, "{left} ms left after {gone} ms");
        assert!(left <= 3_000_000, "{left} ms left");
        let next = client.lock(&format!("other ID {round}"));
        assert!(next > last, "token {next} after {last}");
        last = next;
        client.say(&format!("UNLOCK {round}"));
    }
}
