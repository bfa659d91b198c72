//! Processes that die or are stopped, an etcd that goes away, comes back, and has lost everything.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::strategy::record::etcd::wire::RangeRequest;
use crate::strategy::record::store::{
    Append, Change, Committed, Expect, Holder, NameChange, Put, Record, Stand, Told, Write,
};
use keylatch_table::RequestId;

/// Longer than anything here takes.
const HANG: Duration = Duration::from_secs(60);
const LONG_MS: u64 = 600_000;

fn put(holders: &[(&str, Option<u64>)]) -> Write {
    let holder = |(who, left_ms): &(&str, Option<u64>)| Holder {
        id: RequestId::new(who),
        left_ms: *left_ms,
        leased: true,
    };
    let holders = holders.iter().map(holder).collect();
    // For ever, so that nothing is swept in between.
    Write::Put(Put { bytes: "1".into(), keep_ms: None, holders })
}

fn change(expect: Expect, head: Write) -> Change {
    let one = NameChange {
        expect,
        last_seq: None,
        head,
        remove: Vec::new(),
        tell: false,
        own_up_to: None,
    };
    Change::of("k", one)
}

fn stand(who: &str, live_ms: u64) -> Change {
    let append =
        Append { id: RequestId::new(who), to: vec!["k".into()], bytes: who.into(), live_ms };
    Change { appends: vec![append], ..change(Expect::There, Write::Keep) }
}

/// The version.
async fn done(store: &Etcd, change: Change) -> u64 {
    match store.commit(change).await.unwrap() {
        Committed::Done(done) => done.version,
        Committed::Mismatch(view) => panic!("{view:?}"),
    }
}

async fn record(store: &Etcd) -> Record {
    let mut view = store.read(vec!["k".into()]).await.unwrap();
    view.names.remove("k").unwrap()
}

async fn lives(store: &Etcd, who: &str) -> bool {
    let head = record(store).await.head;
    head.is_some_and(|head| head.alive.unwrap().contains(&RequestId::new(who)))
}

async fn until_dead(store: &Etcd, who: &str) -> Duration {
    let since = Instant::now();
    while lives(store, who).await {
        assert!(since.elapsed() < HANG, "{who} does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    since.elapsed()
}

async fn until_anything(told: &mut UnboundedReceiver<Told>) {
    let heard = async { while told.recv().await.unwrap() != Told::Anything {} };
    tokio::time::timeout(HANG, heard).await.expect("nothing is told");
}

async fn connect(running: &Running) -> Etcd {
    Etcd::connect(&running.etcd.url()).await.unwrap()
}

/// What stands in etcd of the name.
async fn keys(store: &Etcd) -> BTreeSet<Vec<u8>> {
    let all = RangeRequest::all(store.shared.keys.all("k"));
    let found = store.shared.link.range(all).await.unwrap();
    found.kvs.into_iter().map(|kv| kv.key).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_holds_alone_stands_under_the_same_keys() {
    let running = Running::start();
    let store = connect(&running).await;
    let mut seen = BTreeSet::new();
    for who in ["ann", "bob", "cid"] {
        let version = done(&store, change(Expect::Absent, put(&[(who, Some(LONG_MS))]))).await;
        assert!(lives(&store, who).await);
        seen.append(&mut keys(&store).await);
        done(&store, change(Expect::Version(version), Write::Delete)).await;
        assert!(keys(&store).await.is_empty(), "{who} has left nothing");
    }
    assert_eq!(seen.len(), 2, "etcd steps over all that ever stood there: {seen:?}");
}

/// As a write puts those of whom it changes nothing.
fn beside(still: &str, others: &[(&str, Option<u64>)]) -> Write {
    let Write::Put(mut put) = put(others) else { unreachable!("it was put") };
    put.holders.push(Holder { id: RequestId::new(still), left_ms: Some(LONG_MS), leased: false });
    Write::Put(put)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_alone_and_who_came_to_it_live_and_end_each_for_itself() {
    let running = Running::start();
    let store = connect(&running).await;
    done(&store, change(Expect::Absent, put(&[("ann", Some(LONG_MS))]))).await;
    done(&store, change(Expect::There, beside("ann", &[("bob", Some(300))]))).await;
    assert!(lives(&store, "ann").await && lives(&store, "bob").await);
    until_dead(&store, "bob").await;
    assert!(lives(&store, "ann").await);
    // Ann leaves, who came first, and later the one who is left is put alone.
    done(&store, change(Expect::There, beside("ann", &[("cid", Some(LONG_MS))]))).await;
    done(&store, change(Expect::There, beside("cid", &[]))).await;
    assert!(lives(&store, "cid").await);
    done(&store, change(Expect::There, put(&[("cid", Some(300))]))).await;
    assert!(lives(&store, "cid").await && !lives(&store, "ann").await);
    until_dead(&store, "cid").await;
}

fn stop(store: &Etcd, stopped: bool) {
    store.shared.stopped.send_replace(stopped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_had_ends_with_it_and_not_before_its_time() {
    let running = Running::start();
    let (dies, other) = (connect(&running).await, connect(&running).await);
    let mut told = other.told();
    let since = Instant::now();
    done(&dies, change(Expect::Absent, put(&[("ann", Some(3_000)), ("bob", None)]))).await;
    done(&dies, stand("cid", 3_000)).await;
    drop(dies);
    until_dead(&other, "ann").await;
    assert!(since.elapsed() >= Duration::from_secs(3), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    // Who holds for ever still does, and somebody who waits knows that it must look.
    until_anything(&mut told).await;
    assert!(lives(&other, "bob").await);
    assert!(record(&other).await.queue.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_stopped_for_too_long_has_lost_all_and_goes_on_with_a_new_lease() {
    let running = Running::start();
    let (stops, other) = (connect(&running).await, connect(&running).await);
    let first = done(&stops, change(Expect::Absent, put(&[("ann", Some(1_000))]))).await;
    let seq = stand("bob", 1_000);
    let seq = seq.seq_of(done(&stops, seq.clone()).await, 0);
    stop(&stops, true);
    until_dead(&other, "ann").await;
    assert!(record(&other).await.queue.is_empty());
    stop(&stops, false);
    let bob = Stand { id: RequestId::new("bob"), seq };
    let touched = stops.touch(vec![(bob, vec!["k".into()])], 1_000).await.unwrap();
    assert_eq!(touched, [false]);
    assert!(!lives(&stops, "ann").await);
    // At once, on leases that are there.
    done(&stops, change(Expect::Version(first), put(&[("ann", Some(1_000))]))).await;
    done(&stops, stand("bob", 1_000)).await;
    assert!(lives(&other, "ann").await);
    until_dead(&other, "ann").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_renews_lives_and_who_does_not_ends_although_its_process_lives() {
    let running = Running::start();
    let store = connect(&running).await;
    let mut version = done(&store, change(Expect::Absent, put(&[("ann", Some(1_000))]))).await;
    let begun = Instant::now();
    let mut renewed = begun;
    while begun.elapsed() < Duration::from_secs(3) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = Instant::now();
        let again = change(Expect::Version(version), put(&[("ann", Some(1_000))]));
        version = done(&store, again).await;
        if renewed.elapsed() < Duration::from_secs(1) {
            assert!(lives(&store, "ann").await || now.elapsed() > Duration::from_secs(1));
        }
        renewed = now;
    }
    until_dead(&store, "ann").await;
    assert!(renewed.elapsed() >= Duration::from_secs(1));
    assert!(renewed.elapsed() < Duration::from_secs(10), "{:?}", renewed.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_was_killed_comes_back_with_everything() {
    let Running { etcd, dir } = Running::start();
    let store = Etcd::connect(&etcd.url()).await.unwrap();
    let mut told = store.told();
    let first = done(&store, change(Expect::Absent, put(&[("ann", Some(LONG_MS))]))).await;
    done(&store, stand("bob", LONG_MS)).await;
    let etcd = etcd.kill_and_restart();
    until_anything(&mut told).await;
    assert!(lives(&store, "ann").await);
    let record = record(&store).await;
    assert_eq!((record.head.unwrap().version, record.queue.len()), (first, 1));
    let second = done(&store, change(Expect::Version(first), put(&[]))).await;
    assert!(second > first);
    assert_eq!(
        told.recv().await,
        Some(Told::Changed { name: "k".into(), version: second, removed: Vec::new() })
    );
    drop((etcd, dir));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_lost_everything_begins_anew_with_larger_numbers() {
    let Running { etcd, dir } = Running::start();
    let store = Etcd::connect(&etcd.url()).await.unwrap();
    let mut told = store.told();
    let first = done(&store, change(Expect::Absent, put(&[("ann", Some(LONG_MS))]))).await;
    let etcd = etcd.wipe_and_restart();
    until_anything(&mut told).await;
    // Another one comes first, and all is as it was, but for the numbers.
    let other = Etcd::connect(&etcd.url()).await.unwrap();
    let made = done(&other, change(Expect::Absent, put(&[("eve", Some(LONG_MS))]))).await;
    assert!(made > first, "{made} after {first}");
    let old = store.commit(change(Expect::Version(first), Write::Delete)).await.unwrap();
    let Committed::Mismatch(view) = old else { panic!("a head of another life was deleted") };
    assert_eq!(view.names["k"].head.as_ref().unwrap().version, made);
    done(&store, change(Expect::Version(made), put(&[("ann", Some(LONG_MS))]))).await;
    assert!(lives(&other, "ann").await && !lives(&other, "eve").await);
    // And nobody but us.
    let etcd = etcd.wipe_and_restart();
    let last = done(&store, change(Expect::Absent, put(&[("ann", Some(1_000))]))).await;
    assert!(last > made, "{last} after {made}");
    until_dead(&store, "ann").await;
    drop((etcd, dir));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_end_and_what_may_have_happened_ends_by_itself() {
    let running = Running::start();
    let store = connect(&running).await;
    // There is a lease, so only the change itself is under way.
    done(&store, change(Expect::Absent, put(&[("eve", Some(2_000))]))).await;
    running.etcd.pause(true);
    let since = Instant::now();
    let unknown = store.commit(change(Expect::There, put(&[("ann", Some(2_000))]))).await;
    assert!(unknown.unwrap_err().unknown);
    assert!(store.read(vec!["k".into()]).await.is_err());
    assert!(since.elapsed() < Duration::from_secs(25), "{:?}", since.elapsed());
    running.etcd.pause(false);
    // Whatever came of it: she does not hold for ever, although nobody knows that she does.
    until_dead(&store, "ann").await;
    done(&store, change(Expect::There, put(&[("ann", Some(LONG_MS))]))).await;
    assert!(lives(&store, "ann").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_etcd_nothing_is_unknown() {
    let Running { mut etcd, dir } = Running::start();
    let store = Etcd::connect(&etcd.url()).await.unwrap();
    etcd.kill();
    // The connection may still be found broken by the first call.
    drop(store.read(vec!["k".into()]).await);
    let refused = store.commit(change(Expect::Absent, put(&[]))).await.unwrap_err();
    assert!(!refused.unknown, "{}", refused.text);
    assert!(Etcd::connect(&etcd.url()).await.is_err());
    drop(dir);
}
