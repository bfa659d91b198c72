//! One end that frees more waiters than a store can hand over to in one change: all of them are granted,
//! in the order of arrival, and nobody who came behind them is.

mod common;

use std::time::Duration;

use common::{Place, SOON, eventually};
use keylatch::{Guard, Locks, LocksQuery};
use tokio::task::JoinHandle;

/// More than etcd takes in one transaction, twice.
const READERS: usize = 200;

macro_rules! places {
    ($($name:ident: $place:ident),* $(,)?) => {
        $(mod $name {
            #[test]
            fn a_release_frees_any_number_of_readers() {
                super::run(super::Place::$place, false);
            }

            #[test]
            fn the_end_of_a_lease_frees_any_number_of_readers() {
                super::run(super::Place::$place, true);
            }
        })*
    };
}

places![sqlite: Sqlite, redis: Redis, postgres: Postgres, etcd: Etcd, server: Server];

fn run(place: Place, expires: bool) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    common::with_url(place, |url| {
        let all = async {
            tokio::time::timeout(common::HANG, readers(url, expires))
                .await
                .expect("a test that hangs");
        };
        runtime.unwrap().block_on(all);
    });
}

async fn waiters(locks: &Locks) -> usize {
    let query = LocksQuery { waiters: true, ..LocksQuery::default() };
    let all = locks.list(query).await.unwrap();
    all.iter().filter(|entry| entry.token == 0).count()
}

async fn readers(url: &str, expires: bool) {
    // As two processes: a waiter is told by its own, or by a message.
    let (ann, bob) = (Locks::connect(url).await.unwrap(), Locks::connect(url).await.unwrap());
    // So long that all have come when it ends.
    let held = ann.lock("k").lease(Duration::from_secs(10));
    let held = if expires { held.no_renew().await } else { held.await }.unwrap();
    let reader = |at: usize| {
        let locks = if at.is_multiple_of(2) { &ann } else { &bob };
        tokio::spawn(locks.lock("k").shared().wait(SOON).into_future())
    };
    let readers: Vec<JoinHandle<_>> = (0..READERS).map(reader).collect();
    eventually(async || waiters(&ann).await == READERS).await;
    let writer = tokio::spawn(bob.lock("k").wait(SOON).into_future());
    eventually(async || waiters(&ann).await == READERS + 1).await;
    assert_eq!(held.is_lost(), None, "it ended before all had come");
    if !expires {
        held.release().await;
    }
    let mut guards: Vec<Guard> = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap().expect("every reader is granted"));
    }
    assert!(!writer.is_finished(), "the writer came last");
    let newest = guards.iter().map(Guard::token).max();
    for guard in guards {
        assert_eq!(guard.is_lost(), None, "all read at the same time");
        drop(guard);
    }
    assert!(Some(writer.await.unwrap().unwrap().token()) > newest);
}
