//! Places where locks can be, started for a test.
#![allow(dead_code)] // every test file uses some of it

pub(crate) mod authority;
pub(crate) mod cluster;
pub(crate) mod etcd;
pub(crate) mod postgres;
pub(crate) mod redis;

use std::net::SocketAddr;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keylatch::Locks;
use keylatch_server::{Config, Server, Stop};

pub(crate) use self::etcd::Etcd;
pub(crate) use self::postgres::Postgres;
pub(crate) use self::redis::Redis;

/// Longer than anything here takes: a hang is a failure, not a timing.
pub(crate) const HANG: Duration = Duration::from_secs(60);
/// A wait that is not meant to run out.
pub(crate) const SOON: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
pub(crate) enum Place {
    Memory,
    Sqlite,
    Redis,
    Postgres,
    Etcd,
    Server,
    Durable,
    /// Three members in this process; the locks are those of one that does not lead.
    Cluster,
}

/// Runs a test in a place of its own.
pub(crate) fn run<F: Future<Output = ()>>(place: Place, test: impl FnOnce(Locks) -> F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap();
    if let Place::Cluster = place {
        return runtime.block_on(async {
            let cluster = cluster::Three::start().await;
            let locks = cluster.nodes[2].locks();
            tokio::time::timeout(HANG, test(locks)).await.expect("a test that hangs");
            cluster.stop().await;
        });
    }
    with_url(place, |url| {
        runtime.block_on(async {
            let locks = Locks::connect(url).await.unwrap();
            tokio::time::timeout(HANG, test(locks)).await.expect("a test that hangs");
        });
    });
}

/// Starts what is needed, and says where it is.
pub(crate) fn with_url(place: Place, test: impl FnOnce(&str)) {
    let dir = tempfile::tempdir().unwrap();
    match place {
        Place::Memory => test("memory:"),
        Place::Sqlite => test(&format!("sqlite:{}", dir.path().join("locks").display())),
        Place::Redis => test(&Redis::start(dir.path(), &[]).url()),
        Place::Postgres => test(&Postgres::start(dir.path(), &[]).url()),
        Place::Etcd => test(&Etcd::start(dir.path()).url()),
        Place::Server => test(&Running::start(None, None).url()),
        Place::Durable => test(&Running::start(Some(dir.path()), None).url()),
        Place::Cluster => panic!("a member in this process has no URL"),
    }
}

/// A lock server in this process; it stops when it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(data: Option<&Path>, address: Option<SocketAddr>) -> Running {
        Running::with(|config| {
            config.data = data.map(Into::into);
            config.resp = address.or(config.resp);
        })
    }

    /// In memory, and where there is room, unless it is told otherwise.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Running {
        let mut config = Config {
            resp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            enqueue: None,
            http: None,
            ..Config::default()
        };
        change(&mut config);
        // On a thread of its own: a durable one has a runtime of its own.
        let (send, started) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let server = Server::bind(config).unwrap();
            send.send((server.addresses().resp.unwrap(), server.stopper())).unwrap();
            server.run().unwrap();
        });
        let (address, stop) = started.recv().unwrap();
        Running { address, stop, thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("keylatch://{}", self.address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Waits for something that is bound to happen.
pub(crate) async fn eventually(mut happened: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !happened().await {
        assert!(since.elapsed() < HANG, "it does not happen");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
