//! A full disk: no new locks, but everything else goes on, and nothing that was acknowledged is lost.
//! The disk is a small tmpfs in a mount namespace of its own.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Client, HANG, Start, number, text, token};
use keylatch_wire::Value;

const DISK: &str = "768k";
const CONFIG: &str = "[log]\nsegment_bytes = 65536\nreserve_bytes = 65536\nsnapshot_bytes = 131072";

/// What the disk belongs to.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Alone,
    /// The only one of its cluster: its loop hears of its disk as it would hear of another leader's.
    Member,
}

/// A disk that is there as long as this is.
struct Disk {
    /// Keeps the namespace.
    process: Child,
    /// What enters it.
    enter: Vec<String>,
    dir: tempfile::TempDir,
}

impl Disk {
    fn new() -> Disk {
        let dir = tempfile::tempdir().unwrap();
        // A user without rights may do this in a user namespace of its own; root may do without.
        let ways: [(&[&str], &[&str]); 2] = [
            (&["-U", "-r", "-m"], &["--user", "--preserve-credentials", "--mount"]),
            (&["-m"], &["--mount"]),
        ];
        for (unshare, nsenter) in ways {
            let script = format!(
                "mount -t tmpfs -o size={DISK} tmpfs {} && echo ready && exec sleep 1000",
                dir.path().display()
            );
            let mut process = Command::new("unshare")
                .args(unshare)
                .args(["sh", "-c", &script])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
            if line == "ready\n" {
                let target = process.id().to_string();
                let mut enter = vec!["nsenter".to_string(), "--target".into(), target];
                enter.extend(nsenter.iter().map(ToString::to_string));
                return Disk { process, enter, dir };
            }
            process.wait().unwrap();
        }
        panic!("a small disk cannot be mounted here: run as root, or allow user namespaces");
    }

    fn start(&self, kind: Kind) -> Start {
        let enter: Vec<&str> = self.enter.iter().map(String::as_str).collect();
        let start = Start::in_dir(self.dir.path()).under(&enter);
        match kind {
            Kind::Alone => start.config(CONFIG),
            Kind::Member => start.config(&format!("peer = \"127.0.0.1:0\"\n{CONFIG}")),
        }
    }

    /// A file of the disk, as seen from outside.
    fn path(&self, name: &str) -> PathBuf {
        let inside = self.dir.path().strip_prefix("/").unwrap().join(name);
        Path::new("/proc").join(self.process.id().to_string()).join("root").join(inside)
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let mut filler = File::options();
        let mut filler = filler.create(true).append(true).open(self.path("filler")).unwrap();
        let mut piece = vec![0; 65_536];
        while !piece.is_empty() {
            match filler.write(&piece) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    piece.truncate(piece.len() / 2);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.path("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn is_full(value: &Value) -> bool {
    matches!(value, Value::Error(text) if text.starts_with("FULL"))
}

/// Takes and releases locks until there is no room for that; how often.
fn use_up(client: &mut Client) -> u64 {
    for count in 0..10_000 {
        let value = client.say(&format!("LOCK use-up ID use-up-{count}"));
        if is_full(&value) {
            return count;
        }
        token(&value);
        let value = client.say(&format!("UNLOCK use-up-{count}"));
        assert_eq!(value, Value::Integer(1), "releasing needs room less than taking");
    }
    panic!("a full disk takes everything");
}

/// Until a lock is granted again.
fn until_room(client: &mut Client) {
    let since = Instant::now();
    for count in 0.. {
        let value = client.say(&format!("LOCK room ID room-{count} LEASE 1000"));
        if !is_full(&value) {
            token(&value);
            assert_eq!(client.say(&format!("UNLOCK room-{count}")), Value::Integer(1));
            return;
        }
        assert!(since.elapsed() < HANG, "there is room, and no locks");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn no_new_locks_but_everything_else_and_nothing_is_lost() {
    no_new_locks(Kind::Alone);
}

#[test]
fn no_new_locks_but_everything_else_and_nothing_is_lost_in_a_cluster() {
    no_new_locks(Kind::Member);
}

fn no_new_locks(kind: Kind) {
    let disk = Disk::new();
    let mut server = disk.start(kind).start();
    let (mut client, mut waiter) = (server.client(), server.client());
    let mut tokens = Vec::new();
    for at in 0..40 {
        tokens.push(client.lock(&format!("k:{at} ID h-{at} OWNER ann LEASE 600000")));
    }
    client.lock("short ID short LEASE 1500");
    let task = |client: &mut Client, line: &str| number(&client.say(line), "version");
    let [one, two, three] = ["one", "two", "three"].map(|key| {
        task(&mut client, &format!("TASK CREATE p {key}"));
        task(&mut client, &format!("TASK CLAIM p KEY {key} ID c-{key} LEASE 0"))
    });
    task(&mut client, "TASK CREATE p four ID t-4");
    waiter.send("LOCK k:1 ID w OWNER bob WAIT 600000").unwrap();
    disk.fill();
    let count = use_up(&mut client);
    println!("{count} locks were taken and released on the full disk");

    // Refusals, releases, renewals, repeats, grants to those who wait, and expiry go on.
    // (In a cluster only the log knows who is to be refused, and this might as well be granted.)
    let busy = client.say("LOCK k:0 ID other");
    match kind {
        Kind::Alone => {
            assert_eq!((text(&busy, "status"), text(&busy, "owner")), ("busy", "ann"));
        }
        Kind::Member => assert!(is_full(&busy), "{busy:?}"),
    }
    assert_eq!(text(&client.say("RENEW h-0 LEASE 900000"), "status"), "renewed");
    let again = client.lock("k:0 ID h-0 OWNER ann LEASE 600000");
    assert_eq!(again, tokens[0], "a lock that is held is not a new one");
    assert_eq!(client.say("UNLOCK h-1"), Value::Integer(1));
    let granted = waiter.next().unwrap();
    assert!(token(&granted) > tokens[39], "{granted:?}");
    assert!(is_full(&client.say("LOCK new ID new")));
    assert!(is_full(&client.say("SET new v NX PX 1000")));
    let mut enqueue = TcpStream::connect(server.enqueue).unwrap();
    enqueue
        .write_all(br#"{"OP":"1","eleLock":{"name":"n","argument":["A"],"uuid":"1","mode":"X"}}"#)
        .unwrap();
    let mut room = [0; 1_000];
    let length = enqueue.read(&mut room).unwrap();
    let told = String::from_utf8_lossy(&room[..length]).into_owned();
    assert!(told.starts_with(r#"{"RC":"4","MSG":"the disk of the log is full"#), "{told}");
    // Tasks: nothing new, and no claims; what is claimed is updated, finished, put back and deleted.
    assert!(is_full(&client.say("TASK CREATE p five")));
    assert!(is_full(&client.say("TASK CLAIM p")));
    let none = client.say("TASK CLAIM p KEY none");
    match kind {
        Kind::Alone => assert_eq!(text(&none, "status"), "nothing"),
        Kind::Member => assert!(is_full(&none), "{none:?}"),
    }
    assert_eq!(task(&mut client, "TASK CLAIM p KEY one ID c-one LEASE 0"), one, "not a new claim");
    assert!(task(&mut client, "TASK CREATE p four ID t-4") > 0, "not a new task");
    let one = task(&mut client, &format!("TASK UPDATE p one VERSION {one}"));
    assert_eq!(text(&client.say(&format!("TASK DONE p one VERSION {one}")), "status"), "done");
    assert_eq!(text(&client.say(&format!("TASK BACK p two VERSION {two}")), "status"), "back");
    let delete = format!("TASK DELETE p three VERSION {three}");
    assert_eq!(text(&client.say(&delete), "status"), "deleted");
    let since = Instant::now();
    while client.list("").iter().any(|lock| text(lock, "name") == "short") {
        assert!(since.elapsed() < HANG, "a lease does not end on a full disk");
        std::thread::sleep(Duration::from_millis(20));
    }

    // A crash loses nothing, and a start on a full disk works.
    server.kill();
    let mut server = disk.start(kind).start();
    let mut client = server.client();
    let held: Vec<i64> =
        client.list("OWNER ann").iter().map(|lock| number(lock, "token")).collect();
    tokens.remove(1);
    assert_eq!(held, tokens);
    for (key, state) in [("one", "done"), ("two", "free"), ("four", "free")] {
        assert_eq!(text(&client.say(&format!("TASK GET p {key}")), "state"), state);
    }
    assert_eq!(client.say("TASK GET p three"), Value::Null);

    disk.make_room();
    until_room(&mut client);
    for at in 0..40 {
        assert_eq!(client.say(&format!("UNLOCK h-{at}")), Value::Integer(1), "{at}");
    }
    let said = server.kill().said;
    assert!(said.contains("the disk of the log is full") || !said.contains("ERROR"), "{said}");
}

/// Also the reserve can be used up. Then nothing changes any more, and nothing breaks.
#[test]
fn without_any_room_questions_are_answered_and_it_goes_on_later() {
    without_any_room(Kind::Alone);
}

#[test]
fn without_any_room_questions_are_answered_and_it_goes_on_later_in_a_cluster() {
    without_any_room(Kind::Member);
}

fn without_any_room(kind: Kind) {
    let disk = Disk::new();
    let mut server = disk.start(kind).start();
    let (mut client, mut waiter) = (server.client(), server.client());
    let held = client.lock("k ID h OWNER ann LEASE 600000");
    waiter.send("LOCK k ID w OWNER bob WAIT 600000").unwrap();
    disk.fill();
    use_up(&mut client);
    let renewals = (0..100_000).find(|_| {
        disk.fill();
        is_full(&client.say("RENEW h LEASE 600000"))
    });
    println!("then {} renewals", renewals.expect("a full disk takes everything"));
    assert_eq!(client.say("PING"), Value::Simple("PONG".into()));
    let listed = client.list("WAITERS");
    assert_eq!((listed.len(), number(&listed[0], "token")), (2, held));
    // Somebody leaves now: that must not be forgotten when there is room again.
    drop(waiter);
    std::thread::sleep(Duration::from_millis(100));
    disk.make_room();
    until_room(&mut client);
    let since = Instant::now();
    while client.list("WAITERS").len() > 1 {
        assert!(since.elapsed() < HANG, "who left still waits");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.say("UNLOCK h"), Value::Integer(1));
    let said = server.kill().said;
    assert!(said.contains("there is room on the disk of the log again"), "{said}");
}
