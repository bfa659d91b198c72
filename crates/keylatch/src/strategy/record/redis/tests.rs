//! With real servers; what only this store does.

mod ends;
mod places;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::contract::{Ground, HANG, contract, land};
use super::super::store::{
    Append, Change, Committed, Done, Expect, Landed, NameChange, Plain, Put, Stand, Store,
    StoreError, Told, Write,
};
use super::Redis;
use crate::error::ConnectError;

/// It is killed when it is dropped.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server of our own.
struct Server {
    process: Process,
    port: u16,
    dir: tempfile::TempDir,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        // Somebody may take the port in between; then another one is tried.
        for _ in 0..10 {
            let port = free_port();
            let dir = tempfile::tempdir().unwrap();
            if let Some(process) = start_at(port, dir.path(), options) {
                return Server { process, port, dir };
            }
        }
        panic!("redis-server does not start")
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn connect(&self) -> Redis {
        Redis::connect(&self.url()).await.unwrap()
    }

    /// One command, of which the answer is text or a number.
    fn say<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        say(self.port, words)
    }

    fn stop(&mut self) {
        self.process.kill();
    }

    /// Empty, at the same port.
    fn restart(&mut self, options: &[&str]) {
        self.stop();
        self.process = start_at(self.port, self.dir.path(), options).expect("the same port");
    }
}

fn say<T: redis::FromRedisValue>(port: u16, words: &[&str]) -> T {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
    redis::cmd(words[0]).arg(&words[1..]).query(&mut client.get_connection().unwrap()).unwrap()
}

/// Until it is so.
async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !is_so().await {
        assert!(since.elapsed() < HANG, "it does not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn put(name: &str, expect: Expect, keep_ms: Option<u64>) -> Change {
    let put = Put { bytes: name.into(), keep_ms, holders: Vec::new() };
    change(name, expect, Write::Put(put))
}

fn change(name: &str, expect: Expect, head: Write) -> Change {
    let one = NameChange {
        expect,
        last_seq: Some(0),
        head,
        remove: Vec::new(),
        tell: false,
        own_up_to: None,
    };
    Change::of(name, one)
}

fn and_append(mut change: Change, who: &str, live_ms: u64) -> Change {
    let to = change.names.keys().cloned().collect();
    change.names.values_mut().for_each(|one| one.last_seq = None);
    change.appends.push(Append { id: who.into(), to, bytes: who.into(), live_ms });
    change
}

async fn try_done(store: &Redis, change: Change) -> Result<Done, StoreError> {
    match store.commit(change).await? {
        Committed::Done(done) => Ok(done),
        Committed::Mismatch(view) => panic!("{view:?}"),
    }
}

async fn done(store: &Redis, change: Change) -> Done {
    try_done(store, change).await.unwrap()
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start_at(port: u16, dir: &Path, options: &[&str]) -> Option<Process> {
    let process = Command::new("redis-server")
        .args(options)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(dir)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is missing: scripts/setup installs it");
    let mut process = Process(process);
    let since = Instant::now();
    while since.elapsed() < HANG {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(process);
        }
        if process.0.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

impl Ground for Server {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Redis::connect(&self.url()).await.unwrap())
    }
}

contract!(Server::start(&[]));

mod tasks {
    use super::super::super::tasks::contract::task_contract;
    use super::Server;
    task_contract!(Server::start(&[]));
}

/// A message costs Redis and everyone who listens as much as the change itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_only_the_writers_own_stand_nothing_is_published() {
    let server = Server::start(&[]);
    let store = server.connect().await;
    let published = || {
        let stats: String = server.say(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_publish:"))?.to_owned();
        line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok()
    };
    let asks = and_append(put("k", Expect::Absent, Some(60_000)), "ann", 60_000);
    let seq = asks.seq_of(done(&store, asks.clone()).await.version, 0);
    let mut write = put("k", Expect::There, Some(60_000));
    for (own_up_to, published_then) in
        [(Some(seq), None), (Some(seq - 1), Some(1)), (None, Some(2))]
    {
        for one in write.names.values_mut() {
            (one.last_seq, one.own_up_to) = (None, own_up_to);
        }
        done(&store, write.clone()).await;
        assert_eq!(published(), published_then, "{own_up_to:?}");
    }
}

/// Commands of Redis, not time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_costs_does_not_grow_with_the_pool() {
    use super::super::tasks::store::{Change, Put, Ready, Take, Write};
    use keylatch_table::{RequestId, TaskState};
    let server = Server::start(&[]);
    let store = server.connect().await;
    let tasks = store.tasks().unwrap();
    let mut raw = ::redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut calls = || {
        let stats: String = ::redis::cmd("INFO").arg("commandstats").query(&mut raw).unwrap();
        let one = |line: &str| line.split("calls=").nth(1)?.split(',').next()?.parse::<u64>().ok();
        stats.lines().filter(|line| !line.contains("_info:")).filter_map(one).sum::<u64>()
    };
    let (mut costs, mut there) = (Vec::new(), 0);
    for size in [100, 20_000] {
        let mut all = tokio::task::JoinSet::new();
        for number in there..size {
            let put = Put {
                state: TaskState::Free,
                priority: number % 7,
                ready: Ready::After(if number % 2 == 0 { 0 } else { 600_000 }),
                bytes: Vec::new().into(),
                claim: Vec::new().into(),
            };
            let (pool, key) = ("p".into(), number.to_string().into());
            all.spawn(tasks.change(Change { pool, key, expect: None, write: Write::Put(put) }));
        }
        all.join_all().await;
        there = size;
        let before = calls();
        let take = Take {
            pool: "p".into(),
            key: None,
            id: RequestId::new(&format!("claim {size}")),
            claim: Vec::new().into(),
            lease_ms: 60_000,
            waits: true,
        };
        tasks.take(take).await.unwrap();
        costs.push(calls() - before);
    }
    assert_eq!(costs[0], costs[1]);
    assert!(costs[0] > 5, "commands of scripts are counted: {costs:?}");
}
