//! The proof of tasks: workers in processes of their own, killed at any moment; each task is done
//! exactly once, and none is lost. `KEYLATCH_TASKS` and `KEYLATCH_WORKERS` for more of both.
//!
//! What lives in one process has its workers in threads, which stop in the middle of what they do.
//!
//! The effect of a task is written to a database that stands behind a fence: a write whose token is not
//! larger than what was there is refused. A task whose effect is there once, and that says `done` once, is
//! done. What the control does is what people do without versions and fences: they write, and mark the
//! task done however it stands.

mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::cluster::{small, until_voters};
use common::{Etcd, Postgres, Redis, Running};
use keylatch::{ChangeError, Claim, Locks, Tasks};
use rusqlite::Connection;

/// What a process of ours is told.
const URL: &str = "KEYLATCH_TEST_URL";
const DIR: &str = "KEYLATCH_TEST_DIR";
const CARELESS: &str = "KEYLATCH_TEST_CARELESS";

/// Where the tasks are.
const POOL: &str = "proof";

/// A worker that was killed is missed after this.
const LEASE: Duration = Duration::from_secs(2);
/// Between two kills: of processes, and of threads, which have nothing to start and are soon done. Not much
/// less: who has waited longest gets the next task, and is also who is killed next.
const KILL_EVERY: [Duration; 2] = [Duration::from_millis(250), Duration::from_millis(100)];

/// A long run says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(20);

fn setting(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Longer than anything here takes: a hang is a failure, not a timing.
fn hang(tasks: usize) -> Duration {
    Duration::from_secs(120 + tasks as u64 / 20)
}

/// What the tasks have an effect on: one row a task, behind a fence.
fn database(dir: &Path) -> Connection {
    let database = Connection::open(dir.join("effects")).unwrap();
    database.busy_timeout(Duration::from_secs(60)).unwrap();
    database.pragma_update(None, "journal_mode", "WAL").unwrap();
    // What is proved is not that this disk is safe.
    database.pragma_update(None, "synchronous", "OFF").unwrap();
    let schema = "CREATE TABLE IF NOT EXISTS effects (
        key TEXT PRIMARY KEY, token INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0,
        writes INTEGER NOT NULL DEFAULT 0)";
    database.execute_batch(schema).unwrap();
    database
}

/// The effect, if the fence lets it through: once for each token, and never an older one.
fn write_fenced(database: &Connection, key: &str, token: u64) -> bool {
    let sql = "INSERT INTO effects (key, token, writes) VALUES (?1, ?2, 1)
        ON CONFLICT (key) DO UPDATE SET token = ?2, writes = writes + 1 WHERE token < ?2";
    database.execute(sql, (key, token.cast_signed())).unwrap() == 1
}

/// The worker says that the task is done, after it was told so.
fn count_done(database: &Connection, key: &str) {
    database.execute("UPDATE effects SET done = done + 1 WHERE key = ?1", [key]).unwrap();
}

/// Not a test: what the processes do.
#[test]
fn child() {
    let (Ok(url), Ok(dir)) = (std::env::var(URL), std::env::var(DIR)) else { return };
    let careless = std::env::var_os(CARELESS).is_some();
    let (url, database) = (begin_elsewhere(&url), database(Path::new(&dir)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = Locks::connect(&url).await.unwrap().tasks(POOL);
        work_all(&database, &tasks, careless).await;
    });
}

/// Of several addresses each process begins with another one.
fn begin_elsewhere(url: &str) -> String {
    let Some((scheme, list)) = url.split_once("://") else { return url.into() };
    let mut addresses: Vec<&str> = list.split(',').collect();
    let count = addresses.len();
    addresses.rotate_left(std::process::id() as usize % count);
    format!("{scheme}://{}", addresses.join(","))
}

/// Until nothing is left to do.
async fn work_all(database: &Connection, tasks: &Tasks, careless: bool) {
    let owner = format!("worker {}", std::process::id());
    loop {
        let ask = tasks.claim().owner(owner.clone()).lease(LEASE);
        match ask.wait(Duration::from_secs(1)).await.unwrap() {
            Some(claim) if careless => work_carelessly(database, tasks, claim).await,
            Some(claim) => work(database, claim).await,
            None if tasks.counts().await.unwrap().ready == 0 => {
                let counts = tasks.counts().await.unwrap();
                if counts.ready + counts.claimed + counts.delayed == 0 {
                    return;
                }
            }
            None => {}
        }
    }
}

async fn work(database: &Connection, claim: Claim) {
    let (key, token) = (claim.key().to_string(), claim.token());
    let number: u64 = key.parse().unwrap();
    assert_eq!(claim.text(), Some(&*format!("body of {number}")));
    if number.is_multiple_of(50) && claim.attempts() == 0 {
        // Some fail the first time.
        match claim.put_back().error("on purpose").await {
            Ok(_) | Err(ChangeError::Stale(_)) => return,
            Err(error) => panic!("{error}"),
        }
    }
    if !write_fenced(database, &key, token) {
        // Somebody has claimed it since: it is theirs.
        return;
    }
    if number.is_multiple_of(97) {
        // Long enough to be killed at it.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    match claim.done().await {
        Ok(_) => count_done(database, &key),
        Err(ChangeError::Stale(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Without a fence, and without regard to the version that it claimed: after its lease has run out it
/// marks the task done as it finds it.
async fn work_carelessly(database: &Connection, tasks: &Tasks, claim: Claim) {
    let key = claim.key().to_string();
    // It does not renew, and takes longer than its lease: as a process that was stopped for a while.
    drop(claim);
    if key.parse::<u64>().unwrap().is_multiple_of(3) {
        tokio::time::sleep(LEASE + LEASE / 2).await;
    }
    let sql = "INSERT INTO effects (key, token, done, writes) VALUES (?1, 0, 1, 1)
        ON CONFLICT (key) DO UPDATE SET done = done + 1, writes = writes + 1";
    database.execute(sql, [&key]).unwrap();
    let version = tasks.get(&key).await.unwrap().unwrap().version;
    drop(tasks.done(&key, version).await);
}

/// One of those who work.
enum Worker {
    Process(Child),
    /// Where there is only one process.
    Thread(JoinHandle<()>, tokio::sync::oneshot::Sender<()>),
}

impl Worker {
    fn process(url: &str, dir: &Path, careless: bool) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["child", "--exact", "--nocapture"]).env(URL, url).env(DIR, dir);
        if careless {
            command.env(CARELESS, "1");
        }
        Worker::Process(command.stdout(Stdio::null()).spawn().unwrap())
    }

    fn thread(tasks: Tasks, dir: &Path) -> Worker {
        let (database, (stop, stopped)) = (database(dir), tokio::sync::oneshot::channel());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = work_all(&database, &tasks, false) => {}
                    _ = stopped => {}
                }
            });
        });
        Worker::Thread(thread, stop)
    }

    /// In the middle of whatever it does.
    fn kill(self) {
        match self {
            Worker::Process(mut child) => {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            Worker::Thread(thread, stop) => {
                let _ = stop.send(());
                thread.join().unwrap();
            }
        }
    }

    fn end(self) {
        match self {
            Worker::Process(mut child) => {
                let status = child.wait().unwrap();
                assert!(status.success(), "{status}");
            }
            // Its sender is kept until then.
            Worker::Thread(thread, _stop) => thread.join().unwrap(),
        }
    }
}

/// How many tasks were said to be done more than once, and how many workers were killed. None is lost.
fn prove(url: &str, tasks: usize, careless: bool) -> (u64, usize) {
    let dir = tempfile::tempdir().unwrap();
    let effects = database(dir.path());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let pool = runtime.block_on(async {
        let pool = Locks::connect(url).await.unwrap().tasks(POOL);
        let new = (0..tasks)
            .map(|number| pool.create(number.to_string()).body(format!("body of {number}")));
        let made = pool.create_many(new).await.unwrap();
        assert!(made.iter().all(Option::is_some));
        pool
    });
    let count = setting("KEYLATCH_WORKERS", 8);
    let start = || match url {
        "memory:" => Worker::thread(pool.clone(), dir.path()),
        _ => Worker::process(url, dir.path(), careless),
    };
    let kill_every = KILL_EVERY[usize::from(url == "memory:")];
    let mut workers: Vec<Worker> = (0..count).map(|_| start()).collect();
    let (since, mut killed, mut last_kill) = (Instant::now(), 0, Instant::now());
    let (mut last_count, mut last_said) = (since, since);
    loop {
        assert!(since.elapsed() < hang(tasks), "it does not come to an end");
        std::thread::sleep(Duration::from_millis(20));
        // Some strategies count one by one.
        if last_count.elapsed() > Duration::from_micros(10 * tasks as u64) {
            let counts = runtime.block_on(pool.counts()).unwrap();
            assert_eq!(counts.failed, 0);
            let all = counts.ready + counts.delayed + counts.claimed + counts.done;
            assert_eq!(all, tasks as u64, "one is lost");
            if counts.done == tasks as u64 {
                break;
            }
            last_count = Instant::now();
            if last_said.elapsed() > SAY_EVERY {
                let (scheme, _) = url.split_once(':').unwrap();
                let line = format!("{scheme}: {} of {tasks} done, {killed} killed", counts.done);
                // Not by a macro: the tests' runner would keep that to itself until the end.
                let mut out = std::io::stderr();
                writeln!(out, "{line}, {} s", since.elapsed().as_secs()).unwrap();
                last_said = Instant::now();
            }
        }
        if !careless && last_kill.elapsed() > kill_every {
            // Another one takes its place.
            let at = killed * 5 % workers.len();
            std::mem::replace(&mut workers[at], start()).kill();
            (killed, last_kill) = (killed + 1, Instant::now());
        }
    }
    for worker in workers {
        worker.end();
    }
    let one = |sql: &str| -> u64 {
        effects.query_row(sql, [], |row| row.get(0)).map(i64::cast_unsigned).unwrap()
    };
    assert_eq!(one("SELECT count(*) FROM effects"), tasks as u64, "every task had its effect");
    if !careless {
        // The effect that is there is that of the claim that finished the task.
        for task in runtime.block_on(pool.list().into_future()).unwrap() {
            let sql = "SELECT token FROM effects WHERE key = ?1";
            let token: i64 = effects.query_row(sql, [&*task.key], |row| row.get(0)).unwrap();
            assert_eq!(token.cast_unsigned(), task.token, "task {}", task.key);
        }
    }
    (one("SELECT count(*) FROM effects WHERE done > 1"), killed)
}

fn each_is_done_once(url: &str) {
    let tasks = setting("KEYLATCH_TASKS", 2_000);
    let (doubles, killed) = prove(url, tasks, false);
    assert_eq!(doubles, 0, "done twice");
    assert!(killed > 0, "nobody was killed: more tasks are needed");
}

/// What a pool without versions and fences is like: the check above must be able to fail.
#[test]
fn without_versions_and_fences_tasks_are_done_twice() {
    let server = Running::start(None, None);
    let (doubles, _) = prove(&server.url(), 60, true);
    assert!(doubles > 0, "the control has done nothing twice");
}

#[test]
fn with_a_server_each_is_done_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Some(dir.path()), None);
    each_is_done_once(&server.url());
}

#[test]
fn with_memory_each_is_done_once() {
    each_is_done_once("memory:");
}

/// Each worker is a client of all three, and talks to one of them.
#[test]
fn with_a_cluster_each_is_done_once() {
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let ports: Vec<u16> = (0..3).map(|_| common::redis::free_port()).collect();
    let nodes = runtime.block_on(async {
        let mut nodes: Vec<keylatch::cluster::Node> = Vec::new();
        for (dir, port) in dirs.iter().zip(&ports) {
            let join: Vec<String> = nodes.iter().map(|node| node.peer_address().into()).collect();
            let node = small(dir.path()).resp(([127, 0, 0, 1], *port).into()).join(join);
            nodes.push(node.start().await.unwrap());
        }
        for node in &nodes {
            until_voters(node, 3).await;
        }
        nodes
    });
    let address = |port: &u16| format!("127.0.0.1:{port}");
    let addresses: Vec<String> = ports.iter().map(address).collect();
    each_is_done_once(&format!("keylatch://{}", addresses.join(",")));
    runtime.block_on(async {
        for node in nodes {
            node.stop().await.unwrap();
        }
    });
}

#[test]
fn with_sqlite_each_is_done_once() {
    let dir = tempfile::tempdir().unwrap();
    each_is_done_once_if_it_has_tasks(&format!("sqlite:{}", dir.path().join("tasks").display()));
}

#[test]
fn with_redis_each_is_done_once() {
    let dir = tempfile::tempdir().unwrap();
    each_is_done_once_if_it_has_tasks(&Redis::start(dir.path(), &[]).url());
}

#[test]
fn with_postgres_each_is_done_once() {
    let dir = tempfile::tempdir().unwrap();
    // Each worker has a few connections.
    let postgres = Postgres::start(dir.path(), &["max_connections=500"]);
    each_is_done_once_if_it_has_tasks(&postgres.url());
}

#[test]
fn with_etcd_each_is_done_once() {
    let dir = tempfile::tempdir().unwrap();
    each_is_done_once_if_it_has_tasks(&Etcd::start(dir.path()).url());
}

/// A strategy without tasks has nothing to prove.
fn each_is_done_once_if_it_has_tasks(url: &str) {
    if keylatch::Capabilities::of(url).is_some_and(|it| it.tasks) {
        each_is_done_once(url);
    }
}
