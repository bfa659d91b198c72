//! Locks that no guard of this process holds, and what happens to them.

mod common;

use std::time::Duration;

use common::{Place, SOON, eventually};
use keylatch::{Event, LockError, Locks, LocksQuery, Lost, Released, RenewError, RequestId};

macro_rules! each {
    ($($name:ident),* $(,)?) => {
        mod memory { $(#[test] fn $name() { super::common::run(super::Place::Memory, super::$name); })* }
        mod server { $(#[test] fn $name() { super::common::run(super::Place::Server, super::$name); })* }
    };
}

each![
    a_lock_is_kept_beyond_its_guard,
    a_lease_is_renewed_by_id_and_ends,
    a_lock_is_promoted_by_id,
    a_guard_knows_when_its_lease_ends,
    watchers_are_told,
];

async fn a_lock_is_kept_beyond_its_guard(locks: Locks) {
    let id = locks.lock("k").await.unwrap().keep();
    assert!(matches!(locks.lock("k").try_now().await, Err(LockError::Busy(_))));
    assert_eq!(locks.release(&id).await, Released::Released);
    assert!(locks.lock("k").try_now().await.is_ok());
    assert_eq!(locks.release(&RequestId::new("nobody's")).await, Released::NotHeld);
}

async fn a_lease_is_renewed_by_id_and_ends(locks: Locks) {
    let id = locks.lock("k").lease(Duration::from_millis(200)).await.unwrap().keep();
    let left = locks.renew(&id, Some(Duration::from_secs(600))).await.unwrap().unwrap();
    assert!(left > Duration::from_secs(500), "{left:?}");
    locks.release(&id).await;
    let lost = locks.renew(&id, None).await;
    assert_eq!(lost, Err(RenewError::Lost(Lost::Released)));
    let id = locks.lock("k").await.unwrap().keep();
    let refused = locks.renew(&id, Some(Duration::from_secs(u64::MAX / 2_000))).await;
    assert!(matches!(refused, Err(RenewError::Invalid(_))), "{refused:?}");
    locks.release(&id).await;
    // Nobody renews what is kept.
    let _kept = locks.lock("k").lease(Duration::from_millis(100)).await.unwrap().keep();
    assert!(locks.lock("k").wait(SOON).await.is_ok());
}

async fn a_lock_is_promoted_by_id(locks: Locks) {
    let guard = locks.lock("k").optimistic().await.unwrap();
    let token = guard.token();
    let id = guard.keep();
    assert!(locks.promote(&id).await.unwrap() > token);
    assert!(matches!(locks.lock("k").optimistic().try_now().await, Err(LockError::Busy(_))));
}

async fn a_guard_knows_when_its_lease_ends(locks: Locks) {
    let guard = locks.lock("k").lease(Duration::from_secs(60)).await.unwrap();
    let ends = guard.ends().unwrap();
    assert!(ends > Duration::ZERO && ends <= Duration::from_secs(60), "{ends:?}");
    assert_eq!(locks.lock("other").lease(Duration::ZERO).await.unwrap().ends(), None);
}

async fn watchers_are_told(locks: Locks) {
    let mut watch = locks.watch().await.unwrap();
    let held = locks.lock("k").owner("ann").await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").owner("bob").into_future());
    let query = LocksQuery { waiters: true, ..LocksQuery::default() };
    eventually(async || locks.list(query.clone()).await.is_ok_and(|all| all.len() == 2)).await;
    assert!(matches!(
        locks.lock("k").owner("eve").wait(Duration::from_millis(20)).await,
        Err(LockError::TimedOut(_))
    ));
    let Some(Event::TimedOut(_, subject)) = watch.next().await else { panic!("something else") };
    assert_eq!((&*subject.owner, &*subject.resources[0].0), ("eve", "k"));
    let token = held.token();
    locks.revoke(token, "enough").await.unwrap();
    let Some(Event::Lost { token: told, lost, subject, .. }) = watch.next().await else {
        panic!("something else")
    };
    assert_eq!((told, lost), (token, Lost::Revoked(Some("enough".into()))));
    assert_eq!(&*subject.owner, "ann");
    let next = waiting.await.unwrap().unwrap();
    let Some(Event::Granted { id, token, .. }) = watch.next().await else {
        panic!("something else")
    };
    assert_eq!((&id, token), (next.id(), next.token()));
}

/// Events come again after the server was away, and the gap shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_the_server() {
    let server = common::Running::start(None, None);
    let address = server.address;
    let locks = Locks::connect(&server.url()).await.unwrap();
    let mut watch = locks.watch().await.unwrap();
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    let _server = common::Running::start(None, Some(address));
    let told = tokio::time::timeout(common::HANG, watch.next()).await.expect("told");
    assert_eq!(told, Some(Event::Missed));
    let held = locks.lock("k").await.unwrap();
    locks.revoke(held.token(), "test").await.unwrap();
    let told = tokio::time::timeout(common::HANG, watch.next()).await.expect("told");
    assert!(matches!(told, Some(Event::Lost { .. })), "{told:?}");
}
