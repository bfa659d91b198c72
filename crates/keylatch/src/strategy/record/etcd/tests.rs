//! Against a real etcd: what every store must do, and what is special here.

mod ends;
mod limits;
#[path = "../../../../tests/common/etcd.rs"]
mod server;
mod sweeps;
mod together;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::super::contract::{Ground, contract};
use super::super::store::Store;
use super::Etcd;

/// One etcd for all tests of the contract that run at the same time, each below a prefix of its own.
struct Below {
    running: Arc<Running>,
    prefix: u64,
}

struct Running {
    /// Ends before its directory.
    etcd: server::Etcd,
    dir: tempfile::TempDir,
}

impl Running {
    fn start() -> Running {
        let dir = tempfile::tempdir().unwrap();
        Running { etcd: server::Etcd::start(dir.path()), dir }
    }
}

fn below() -> Below {
    // Not for ever: what is static is never dropped, and it would go on after the tests.
    static RUNNING: Mutex<Weak<Running>> = Mutex::new(Weak::new());
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut known = RUNNING.lock();
    let running = known.upgrade().unwrap_or_else(|| Arc::new(Running::start()));
    *known = Arc::downgrade(&running);
    Below { running, prefix: NEXT.fetch_add(1, Ordering::Relaxed) }
}

impl Ground for Below {
    async fn open(&self) -> Arc<dyn Store> {
        let url = format!("{}?prefix=test{}", self.running.etcd.url(), self.prefix);
        Arc::new(Etcd::connect(&url).await.unwrap())
    }

    fn has_own_leases(&self) -> bool {
        true
    }
}

contract!(below());

mod tasks {
    use super::super::super::tasks::contract::task_contract;
    use super::below;
    task_contract!(below());
}
