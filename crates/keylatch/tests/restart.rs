//! A database that is killed (SIGKILL) and started again while locks are taken and released. What it has
//! confirmed is on its disk, so nobody gets what another still holds; calls end, and work goes on.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Etcd, HANG, Postgres, SOON, eventually};
use keylatch::{Guard, Locks};
use parking_lot::Mutex;

/// `KEYLATCH_RESTARTS=100` for the long run.
const RESTARTS: usize = 5;
/// One that is held shortly, and one that somebody holds nearly always.
const KEYS: [&str; 2] = ["short", "long"];
const TASKS: usize = 12;

/// Who holds what, as they see it themselves.
#[derive(Default)]
struct Holders {
    guards: Mutex<HashMap<(&'static str, usize), Guard>>,
    /// How often a lock was taken, by key.
    taken: [AtomicU64; 2],
    doubles: AtomicU64,
    tokens: [AtomicU64; 2],
    stop: AtomicBool,
}

impl Holders {
    fn begin(&self, key: usize, task: usize, guard: Guard) {
        let mut guards = self.guards.lock();
        // What came after its lease is nobody's.
        if guard.is_lost().is_none() {
            let others = guards.iter().filter(|((other, _), _)| *other == KEYS[key]);
            let doubles = others.filter(|(_, other)| other.is_lost().is_none()).count();
            self.doubles.fetch_add(doubles as u64, Ordering::SeqCst);
            let last = self.tokens[key].fetch_max(guard.token(), Ordering::SeqCst);
            assert!(guard.token() > last, "token {} after {last}", guard.token());
            self.taken[key].fetch_add(1, Ordering::SeqCst);
        }
        guards.insert((KEYS[key], task), guard);
    }

    fn end(&self, key: usize, task: usize) -> Guard {
        self.guards.lock().remove(&(KEYS[key], task)).expect("it began")
    }

    fn taken(&self) -> [u64; 2] {
        [0, 1].map(|key| self.taken[key].load(Ordering::SeqCst))
    }
}

/// A hang is a failure; how long exactly a call takes is not judged.
async fn ends<T>(what: &str, most: Duration, call: impl Future<Output = T>) -> T {
    let since = Instant::now();
    let ended = tokio::time::timeout(most + Duration::from_secs(30), call).await;
    ended.unwrap_or_else(|_| panic!("{what} has not ended after {:?}", since.elapsed()))
}

async fn work(locks: Arc<Locks>, holders: Arc<Holders>, task: usize) {
    let key = task % 2;
    while !holders.stop.load(Ordering::SeqCst) {
        let wait = Duration::from_millis([200, 2_000, 8_000][rand::random_range(0..3)]);
        let ask = locks.lock(KEYS[key]).wait(wait).lease(Duration::from_secs(10));
        // Some are renewed while the database is away, and some are not.
        let ask = if rand::random() { ask.no_renew() } else { ask };
        let Ok(guard) = ends("a lock", wait, ask.into_future()).await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        holders.begin(key, task, guard);
        let hold = if key == 0 { 0..20 } else { 500..3_000 };
        tokio::time::sleep(Duration::from_millis(rand::random_range(hold))).await;
        let guard = holders.end(key, task);
        ends("a release", Duration::ZERO, guard.release()).await;
    }
}

/// How often a lock had two holders. `restart` kills the database and starts it again.
async fn doubles(url: &str, mut restart: impl FnMut() + Send + 'static) -> u64 {
    let holders = Arc::new(Holders::default());
    // As two processes.
    let (ann, bob) = (Locks::connect(url).await.unwrap(), Locks::connect(url).await.unwrap());
    let connections = [Arc::new(ann), Arc::new(bob)];
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let locks = Arc::clone(&connections[task / 2 % 2]);
        tasks.spawn(work(locks, Arc::clone(&holders), task));
    }
    let restarts = std::env::var("KEYLATCH_RESTARTS").ok().and_then(|count| count.parse().ok());
    for _ in 0..restarts.unwrap_or(RESTARTS) {
        let before = holders.taken();
        eventually(async || {
            let now = holders.taken();
            now[0] > before[0] + 10 && now[1] > before[1]
        })
        .await;
        // At any moment of what goes on.
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..300))).await;
        restart = tokio::task::spawn_blocking(move || {
            restart();
            restart
        })
        .await
        .unwrap();
    }
    let before = holders.taken();
    eventually(async || holders.taken().iter().zip(before).all(|(now, before)| *now > before))
        .await;
    holders.stop.store(true, Ordering::SeqCst);
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    };
    tokio::time::timeout(HANG, all).await.expect("a task that does not end");
    for key in KEYS {
        let last =
            connections[0].lock(key).wait(SOON).await.expect("everything is free in the end");
        last.release().await;
    }
    println!("taken {:?}, doubles {:?}", holders.taken(), holders.doubles);
    holders.doubles.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_is_killed_keeps_its_locks() {
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(dir.path());
    let url = etcd.url();
    let mut etcd = Some(etcd);
    let restart = move || etcd = etcd.take().map(Etcd::kill_and_restart);
    assert_eq!(doubles(&url, restart).await, 0);
}

/// One member after the other is killed, stays away while locks go from hand to hand, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_of_three_goes_on_without_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let members = Etcd::start_three(dir.path());
    let hosts: Vec<String> =
        members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
    let url = format!("etcd://{}", hosts.join(","));
    let mut members: Vec<Option<Etcd>> = members.into_iter().map(Some).collect();
    let mut away: Option<usize> = None;
    let restart = move || {
        if let Some(back) = away {
            members[back] = members[back].take().map(Etcd::kill_and_restart);
        }
        let next = away.map_or(0, |last| (last + 1) % members.len());
        members[next].as_mut().expect("it came back").kill();
        away = Some(next);
    };
    assert_eq!(doubles(&url, restart).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_killed_keeps_its_locks() {
    let dir = tempfile::tempdir().unwrap();
    let mut postgres = Postgres::start(dir.path(), &[]);
    let url = postgres.url();
    let restart = move || {
        postgres.kill();
        postgres.restart();
    };
    assert_eq!(doubles(&url, restart).await, 0);
}

/// The control: one that forgets everything has two holders, and that is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_is_wiped_is_caught() {
    let dir = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(dir.path());
    let url = etcd.url();
    let mut etcd = Some(etcd);
    let restart = move || etcd = etcd.take().map(Etcd::wipe_and_restart);
    assert!(doubles(&url, restart).await > 0);
}
