//! Changes of different names in one transaction: what is wrong with one of them is nothing to the others.
//! Nothing goes before all have come.

use std::time::Duration;

use futures_util::future::join_all;
use keylatch_table::RequestId;

use super::*;
use crate::strategy::record::store::{
    Append, Change, Committed, Expect, Holder, Name, NameChange, Put, StoreError, Write,
};

fn names() -> Vec<Name> {
    (0..20).map(|number| format!("k{number}").into()).collect()
}

fn change(name: &Name, expect: Expect, lease_ms: u64) -> Change {
    let holder = Holder { id: RequestId::new("ann"), left_ms: Some(lease_ms), leased: true };
    let head = Write::Put(Put { bytes: "1".into(), keep_ms: None, holders: vec![holder] });
    let one = NameChange {
        expect,
        last_seq: None,
        head,
        remove: Vec::new(),
        tell: false,
        own_up_to: None,
    };
    Change::of(name.clone(), one)
}

fn version(committed: &Committed) -> u64 {
    match committed {
        Committed::Done(done) => done.version,
        Committed::Mismatch(view) => panic!("{view:?}"),
    }
}

async fn connect(running: &Running) -> Etcd {
    let store = Etcd::connect(&running.etcd.url()).await.unwrap();
    // So that there is a lease, and what follows is one transaction.
    version(&store.commit(change(&"first".into(), Expect::Absent, 60_000)).await.unwrap());
    store
}

/// What comes of changes that go together.
async fn together(store: &Etcd, all: impl Iterator<Item = Change>) -> Vec<Outcome> {
    store.shared.hold();
    let all = join_all(all.map(|change| store.commit(change)));
    // They are queued by then.
    tokio::join!(all, async { store.shared.go_on() }).0
}

type Outcome = Result<Committed, StoreError>;

#[tokio::test]
async fn one_that_does_not_fit_changes_nothing_and_the_others_all() {
    let running = Running::start();
    let store = connect(&running).await;
    let names = names();
    let expect = |at: usize| if at % 3 == 1 { Expect::Version(7) } else { Expect::Absent };
    let all = names.iter().enumerate().map(|(at, name)| change(name, expect(at), 60_000));
    let all = together(&store, all).await;
    let mut versions = Vec::new();
    for (at, committed) in all.into_iter().enumerate() {
        match committed.unwrap() {
            Committed::Done(done) if at % 3 != 1 => versions.push((done.version, at)),
            Committed::Mismatch(view) if at % 3 == 1 => {
                assert_eq!(view.names.len(), 1);
                assert!(view.names[&names[at]].head.is_none());
            }
            other => panic!("{at}: {other:?}"),
        }
    }
    let view = store.read(names.clone()).await.unwrap();
    for (version, at) in &versions {
        assert_eq!(view.names[&names[*at]].head.as_ref().unwrap().version, *version);
    }
    // In one revision, each with a number of its own.
    let base = store.shared.base();
    let revision = |version: &(u64, usize)| base.revision(version.0).unwrap().0;
    assert!(versions.iter().all(|one| revision(one) == revision(&versions[0])), "{versions:?}");
    versions.sort_unstable();
    versions.dedup_by_key(|(version, _)| *version);
    assert_eq!(versions.len(), 13);
}

#[tokio::test]
async fn a_lease_that_one_of_them_has_lost_is_nothing_to_the_others() {
    let running = Running::start();
    let store = connect(&running).await;
    let base = store.shared.base();
    // Each of these has a lease of its own, and etcd has forgotten all of them.
    let lengths: Vec<u64> = (1..=10).map(|seconds| seconds * 1_000).collect();
    for length in &lengths {
        let lease = store.shared.lease(*length).await.unwrap();
        store.shared.link.revoke(lease).await.unwrap();
    }
    let names = names();
    let all = names.iter().enumerate().map(|(at, name)| {
        let length = lengths.get(at).copied().unwrap_or(60_000);
        change(name, Expect::Absent, length)
    });
    for committed in together(&store, all).await {
        version(&committed.unwrap());
    }
    assert_eq!(store.shared.base(), base);
}

#[tokio::test]
async fn one_that_is_refused_is_nothing_to_the_others() {
    let running = Running::start();
    let store = connect(&running).await;
    let names = names();
    let all = names.iter().enumerate().map(|(at, name)| {
        let mut change = change(name, Expect::Absent, 60_000);
        if at == 5 {
            // etcd does not put a key twice in one transaction.
            let append = Append {
                id: RequestId::new("bob"),
                to: vec![name.clone(), name.clone()],
                bytes: Vec::new(),
                live_ms: 60_000,
            };
            change.appends.push(append);
        }
        change
    });
    for (at, committed) in together(&store, all).await.into_iter().enumerate() {
        match committed {
            Ok(committed) => assert!(version(&committed) > 0 && at != 5),
            Err(failed) => assert!(!failed.unknown && at == 5, "{at}: {}", failed.text),
        }
    }
}

#[tokio::test]
async fn without_an_answer_each_of_them_is_unknown() {
    let mut running = Running::start();
    let store = connect(&running).await;
    running.etcd.pause(true);
    let names = names();
    let all = names.iter().map(|name| change(name, Expect::Absent, 60_000));
    let killed = async {
        // It is on its way by then.
        tokio::time::sleep(Duration::from_millis(500)).await;
        running.etcd.kill();
    };
    let (all, ()) = tokio::join!(together(&store, all), killed);
    for committed in all {
        assert!(committed.is_err_and(|failed| failed.unknown));
    }
}
