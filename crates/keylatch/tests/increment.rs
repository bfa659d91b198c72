//! The problem that locks are for: many processes read a number and write it back one larger, in a
//! store that can only get and set. Without a lock updates are lost; with any strategy none is, also
//! if processes are killed at any moment.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Etcd, HANG, Postgres, Redis, Running};
use keylatch::Locks;

const PROCESSES: usize = 6;
const TIMES: u64 = 25;

/// What a process of ours is told.
const URL: &str = "KEYLATCH_TEST_URL";
const DIR: &str = "KEYLATCH_TEST_DIR";

fn number(file: &Path) -> u64 {
    std::fs::read_to_string(file).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whole or not at all, as a database would.
fn set(file: &Path, value: u64) {
    let new = file.with_extension(std::process::id().to_string());
    std::fs::write(&new, value.to_string()).unwrap();
    std::fs::rename(new, file).unwrap();
}

/// What a process did while it had the lock, for whoever has to find out why a number is wrong: a line
/// in its journal, with the token, what it read and whether it then wrote one more, and what it thought of
/// its lock before and after that. Times are microseconds of the one clock of this machine.
struct Held<'a> {
    dir: &'a Path,
    token: u64,
    granted: u128,
}

fn now() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros()
}

impl Held<'_> {
    fn note(&self, what: &str) {
        use std::io::Write;
        let (pid, Held { token, granted, .. }) = (std::process::id(), self);
        let journal = self.dir.join(format!("{pid}.journal"));
        let mut journal = std::fs::OpenOptions::new().create(true).append(true).open(journal);
        let line = format!("{} {token} process {pid}, granted at {granted}: {what}\n", now());
        journal.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// All journals as one, in the order in which it happened.
fn journal(dir: &Path) -> String {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "journal"));
    let all: String = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let mut lines: Vec<&str> = all.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// What of a journal cannot be if one holds the lock at a time: a token that writes after a larger one
/// has read. Whether its holder knew that it had lost the lock is in the same line.
fn out_of_turn(journal: &str) -> Vec<&str> {
    let mut most = 0;
    let mut found = Vec::new();
    for line in journal.lines() {
        let token: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
        if token < most && line.contains("writes") {
            found.push(line);
        }
        most = most.max(token);
    }
    found
}

/// Not a test: what the processes do.
#[test]
fn child() {
    let (Ok(url), Ok(dir)) = (std::env::var(URL), std::env::var(DIR)) else { return };
    let dir = PathBuf::from(dir);
    let (counter, mine) = (dir.join("counter"), dir.join(std::process::id().to_string()));
    let read = || {
        let seen = number(&counter);
        std::thread::sleep(Duration::from_millis(1));
        seen
    };
    if url == "none" {
        for done in 1..=TIMES {
            set(&counter, read() + 1);
            set(&mine, done);
        }
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::connect(&url).await.unwrap();
        let mut done = 0;
        while done < TIMES {
            // Longer than a busy machine keeps a process waiting; those who are killed cost as much.
            let ask = locks.lock("counter").lease(Duration::from_secs(3));
            let guard = ask.await.unwrap();
            let held = Held { dir: &dir, token: guard.token(), granted: now() };
            held.note("reads");
            let seen = read();
            // Who was kept off the processor past the lease must not write: there is no fence here.
            if guard.is_lost().is_none() {
                held.note(&format!("writes {}", seen + 1));
                set(&counter, seen + 1);
                done += 1;
                set(&mine, done);
            }
            held.note(&format!("has {done}, lost: {:?}", guard.is_lost()));
            guard.release().await;
        }
    });
}

fn start(url: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(URL, url)
        .env(DIR, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// What is in the counter, what was acknowledged, and how many were killed.
fn run(url: &str, dir: &Path, kill: bool) -> (u64, u64, u64) {
    let mut processes: Vec<Child> = (0..PROCESSES).map(|_| start(url, dir)).collect();
    let mut killed = 0;
    if kill {
        // Whoever is at it at that moment; two in a row, so that leases have to end.
        for (at, process) in processes.iter_mut().enumerate().take(PROCESSES / 2) {
            let since = std::time::Instant::now();
            while number(&dir.join("counter")) < 10 * (at as u64 + 1) {
                assert!(since.elapsed() < HANG, "no progress");
                std::thread::sleep(Duration::from_millis(1));
            }
            process.kill().unwrap();
            killed += 1;
        }
    }
    for (at, process) in processes.iter_mut().enumerate() {
        let status = process.wait().unwrap();
        assert!(status.success() || (kill && at < PROCESSES / 2), "process {at}: {status}");
    }
    let ours = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let ours = ours.filter(|path| path.extension().is_none() && !path.ends_with("counter"));
    (number(&dir.join("counter")), ours.map(|path| number(&path)).sum(), killed)
}

fn none_is_lost(url: &str) {
    for kill in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (counter, acknowledged, killed) = run(url, dir.path(), kill);
        let journal = journal(dir.path());
        let out_of_turn = out_of_turn(&journal);
        // Whoever was killed may have written and not said so.
        assert!(
            (acknowledged..=acknowledged + killed).contains(&counter) && out_of_turn.is_empty(),
            "{counter} written, {acknowledged} acknowledged, {killed} killed\n{journal}\n\n\
             Out of turn: {out_of_turn:#?}"
        );
        assert!(kill || counter == PROCESSES as u64 * TIMES, "{counter} of all");
    }
}

#[test]
fn without_a_lock_updates_are_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (counter, acknowledged, _) = run("none", dir.path(), false);
    assert_eq!(acknowledged, PROCESSES as u64 * TIMES);
    assert!(counter < acknowledged, "the control has lost nothing: {counter}");
}

#[test]
fn who_writes_after_a_larger_token_has_read_is_found() {
    let journal = "1 7 process 1, granted at 1: reads\n2 8 process 2, granted at 2: reads\n\
        3 8 process 2, granted at 2: writes 1\n4 7 process 1, granted at 1: writes 1\n\
        5 7 process 1, granted at 1: has 1, lost: None";
    assert_eq!(out_of_turn(journal), ["4 7 process 1, granted at 1: writes 1"]);
}

#[test]
fn with_sqlite_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    none_is_lost(&format!("sqlite:{}", dir.path().join("locks").display()));
}

#[test]
fn with_redis_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    none_is_lost(&Redis::start(dir.path(), &[]).url());
}

#[test]
fn with_postgres_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    none_is_lost(&Postgres::start(dir.path(), &[]).url());
}

#[test]
fn with_etcd_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    none_is_lost(&Etcd::start(dir.path()).url());
}

#[test]
fn with_a_server_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Some(dir.path()), None);
    none_is_lost(&server.url());
}
