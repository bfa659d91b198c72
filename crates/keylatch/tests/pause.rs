//! A holder that is paused (SIGSTOP) until its lease is over, in a process of its own. Somebody else
//! gets the lock meanwhile; when it goes on it is told, and what it still writes is refused by the
//! fence, which stands in this process as it would in a database.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{HANG, Place, SOON};
use keylatch::Fence;
use keylatch::blocking::Locks;
use rustix::process::{Pid, Signal, kill_process};

/// Where the paused process is told to go.
const URL: &str = "KEYLATCH_TEST_PAUSE_URL";
/// Long enough that a busy machine renews it, short enough to wait for.
const LEASE: Duration = Duration::from_secs(2);

macro_rules! places {
    ($($name:ident: $place:ident),* $(,)?) => {
        $(#[test] fn $name() { common::with_url(Place::$place, a_paused_holder_is_told_and_fenced); })*
    };
}

places![sqlite: Sqlite, redis: Redis, postgres: Postgres, etcd: Etcd, server: Server, durable_server: Durable];

/// Not a test: what the paused process does. It writes and writes, and looks only now and then.
#[test]
fn child() {
    let Ok(url) = std::env::var(URL) else { return };
    let locks = Locks::connect(&url).unwrap();
    let guard = locks.lock("k").lease(LEASE).acquire().unwrap();
    println!("@granted {}", guard.token());
    let lost = loop {
        for _ in 0..10 {
            println!("@write {}", guard.token());
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Some(lost) = guard.is_lost() {
            break lost;
        }
    };
    // It is not only found when one looks: whoever waits for it is woken.
    assert_eq!(guard.lost_within(SOON), Some(lost.clone()));
    println!("@lost {lost:?}");
    // As a program would that has not looked.
    println!("@write {}", guard.token());
    println!("@released {:?}", guard.release());
}

struct Paused {
    process: Child,
    /// What it says: a word and what follows it.
    says: Receiver<(String, String)>,
}

impl Paused {
    fn start(url: &str) -> Paused {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(URL, url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let (send, says) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // The test harness says something too, also on the same line.
                let Some((_, ours)) = line.split_once('@') else { continue };
                let (word, rest) = ours.split_once(' ').unwrap();
                drop(send.send((word.into(), rest.into())));
            }
        });
        Paused { process, says }
    }

    fn next(&self) -> (String, String) {
        self.says.recv_timeout(HANG).expect("it says something")
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn pause(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.process.id());
        let since = Instant::now();
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(since.elapsed() < HANG, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn a_paused_holder_is_told_and_fenced(url: &str) {
    let fence = Fence::default();
    let mut first = Paused::start(url);
    let (word, token) = first.next();
    assert_eq!(word, "granted");
    let stale: u64 = token.parse().unwrap();
    assert_eq!(first.next().0, "write");
    fence.check(stale).expect("it holds the lock");

    let locks = Locks::connect(url).unwrap();
    first.pause();
    let second = locks.lock("k").wait(SOON).acquire().expect("its lease is over");
    assert!(second.token() > stale);
    fence.check(second.token()).expect("the newest");
    // What it had written before it was paused is not what this is about.
    while first.says.try_recv().is_ok() {}
    first.signal(Signal::CONT);

    let (mut refused, mut lost) = (0, None);
    let released = loop {
        match first.next() {
            (word, token) if word == "write" => {
                fence.check(token.parse().unwrap()).expect_err("it does not hold it any more");
                refused += 1;
            }
            (word, cause) if word == "lost" => lost = Some(cause),
            (word, released) if word == "released" => break released,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused > 0);
    // A renewal may have been on its way when it was paused.
    assert!(matches!(lost.as_deref(), Some("Expired" | "Unreachable")), "{lost:?}");
    assert_eq!(released, "NotHeld");
    assert_eq!(second.is_lost(), None, "and the other one is not disturbed");
    assert!(first.process.wait().unwrap().success());
}
