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

/// Not a test: what the processes do.
#[test]
fn child() {
    let (Ok(url), Ok(dir)) = (std::env::var(URL), std::env::var(DIR)) else { return };
    let (counter, mine) = (
        PathBuf::from(&dir).join("counter"),
        PathBuf::from(&dir).join(std::process::id().to_string()),
    );
    // False if it was not written, because the lock was lost meanwhile.
    let increment = |done: u64, held: &dyn Fn() -> bool| {
        let seen = number(&counter);
        std::thread::sleep(Duration::from_millis(1));
        let ours = held();
        if ours {
            set(&counter, seen + 1);
            set(&mine, done);
        }
        ours
    };
    if url == "none" {
        return (1..=TIMES).for_each(|done| assert!(increment(done, &|| true)));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::connect(&url).await.unwrap();
        let mut done = 0;
        while done < TIMES {
            // Longer than a busy machine keeps a process waiting; those who are killed cost as much.
            let ask = locks.lock("counter").lease(Duration::from_secs(3));
            let guard = ask.await.unwrap();
            done += u64::from(increment(done + 1, &|| guard.is_lost().is_none()));
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
fn run(url: &str, kill: bool) -> (u64, u64, u64) {
    let dir = tempfile::tempdir().unwrap();
    let mut processes: Vec<Child> = (0..PROCESSES).map(|_| start(url, dir.path())).collect();
    let mut killed = 0;
    if kill {
        // Whoever is at it at that moment; two in a row, so that leases have to end.
        for (at, process) in processes.iter_mut().enumerate().take(PROCESSES / 2) {
            let since = std::time::Instant::now();
            while number(&dir.path().join("counter")) < 10 * (at as u64 + 1) {
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
    let ours = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let ours = ours.filter(|path| path.extension().is_none() && !path.ends_with("counter"));
    (number(&dir.path().join("counter")), ours.map(|path| number(&path)).sum(), killed)
}

fn none_is_lost(url: &str) {
    let (counter, acknowledged, _) = run(url, false);
    assert_eq!((counter, acknowledged), (PROCESSES as u64 * TIMES, PROCESSES as u64 * TIMES));
    let (counter, acknowledged, killed) = run(url, true);
    // Whoever was killed may have written and not said so.
    assert!(
        (acknowledged..=acknowledged + killed).contains(&counter),
        "{counter} written, {acknowledged} acknowledged, {killed} killed"
    );
}

#[test]
fn without_a_lock_updates_are_lost() {
    let (counter, acknowledged, _) = run("none", false);
    assert_eq!(acknowledged, PROCESSES as u64 * TIMES);
    assert!(counter < acknowledged, "the control has lost nothing: {counter}");
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
