//! On an etcd of one node: beside its own lock API.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, LockOptions};

use super::measure::{Load, Pair, Subject, compare, keylatch};
use super::servers::Etcd;

/// etcd's own locks, each client with a lease that it has already.
async fn own(address: &str) -> Subject {
    let mut client = Client::connect([address], None).await.expect("the etcd just started");
    let lease = client.lease_grant(600, None).await.expect("a lease").id();
    let mut leases = Vec::new();
    // Two locks of one lease are one lock: each task needs its own.
    for _ in 0..64 {
        leases.push(client.lease_grant(600, None).await.expect("a lease").id());
    }
    leases.push(lease);
    let pair = move |task: usize| -> Pair {
        let (client, lease) = (client.clone(), leases[task]);
        Arc::new(move |key| {
            let mut client = client.clone();
            Box::pin(async move {
                let options = LockOptions::new().with_lease(lease);
                let lock = client.lock(&*key, Some(options)).await.expect("a lock");
                client.unlock(lock.key()).await.expect("a release");
            })
        })
    };
    Subject { name: "etcd's lock API", pair: Box::new(pair) }
}

/// All of them.
pub async fn run(rounds: usize, time: Duration) {
    let etcd = Etcd::start();
    println!("\n== etcd, one node, with fsync");
    let subjects = [keylatch(&etcd.url()).await, own(&etcd.address()).await];
    let loads = [
        Load { name: "one at a time", tasks: 1, keys: 1 },
        Load { name: "own keys", tasks: 64, keys: 64 },
        Load { name: "contended", tasks: 64, keys: 8 },
    ];
    for load in loads {
        compare(&subjects, load, rounds, time).await;
    }
}
