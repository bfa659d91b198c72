//! The lock server goes away, comes back, or was never there.

mod common;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{HANG, Running, eventually};
use keylatch::{ConnectError, LockError, Locks, LocksQuery, Lost, Released};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_and_waits_survive_a_restart_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Some(dir.path()), None);
    let address = server.address;
    let locks = Locks::connect(&server.url()).await.unwrap();
    let held = locks.lock("k").lease(Duration::from_secs(20)).await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").into_future());
    eventually(async || list(&locks).await == 2).await;
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    // Asked for while nobody is there: answered when somebody is.
    let asked = tokio::spawn(locks.lock("meanwhile").into_future());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let server = Running::start(Some(dir.path()), Some(address));
    let meanwhile = asked.await.unwrap().unwrap();
    assert_eq!(held.is_lost(), None);
    eventually(async || list(&locks).await == 3).await;
    assert!(!waiting.is_finished());
    let token = held.token();
    assert_eq!(held.release().await, Released::Released);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > token);
    // Losses reach it over the new connection too.
    locks.revoke(meanwhile.token(), "test").await.unwrap();
    assert_eq!(meanwhile.lost().await, Lost::Revoked(Some("test".into())));
    drop(server);
}

/// Of several resources each, so that pages end where requests do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_any_length_is_whole() {
    let server = Running::start(None, None);
    let locks = Locks::connect(&server.url()).await.unwrap();
    let mut held = Vec::new();
    for n in 0..2_300 {
        held.push(locks.lock(format!("a:{n}")).also(format!("b:{n}")).await.unwrap());
    }
    for (limit, most) in
        [(0, 2_300), (1_000, 1_000), (2_000, 2_000), (2_001, 2_001), (9_999, 2_300)]
    {
        let query = LocksQuery { limit, ..LocksQuery::default() };
        let entries = locks.list(query).await.unwrap();
        assert_eq!(entries.len(), 2 * most, "limit {limit}");
        assert!(entries.is_sorted_by_key(|entry| entry.seq));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_ephemeral_server_forgot_is_lost() {
    let server = Running::start(None, None);
    let address = server.address;
    let locks = Locks::connect(&server.url()).await.unwrap();
    let held = locks.lock("k").await.unwrap();
    let token = held.token();
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    let _server = Running::start(None, Some(address));
    // It is attached again, under another token: whoever has the old one must know.
    let lost = tokio::time::timeout(HANG, held.lost()).await.expect("told");
    assert_eq!(lost, Lost::Expired);
    let next = locks.lock("k").wait(HANG).await.unwrap();
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_away_costs_the_lease_and_no_call_hangs() {
    let server = Running::start(None, None);
    let locks = Locks::connect(&server.url()).await.unwrap();
    let held = locks.lock("k").lease(Duration::from_millis(300)).await.unwrap();
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    assert_eq!(held.lost().await, Lost::Unreachable);
    let (asked, released, listed) = tokio::join!(
        locks.lock("k").wait(Duration::from_millis(50)).into_future(),
        held.release(),
        locks.list(LocksQuery::default()),
    );
    assert!(matches!(asked, Err(LockError::Unreachable(_))), "{asked:?}");
    assert_eq!(released, Released::Unknown);
    assert!(listed.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_address_is_tried() {
    let server = Running::start(None, None);
    let nobody = free_address();
    let locks = Locks::connect(&format!("keylatch://{nobody},{}", server.address)).await.unwrap();
    assert!(locks.lock("k").await.is_ok());
}

#[tokio::test]
async fn mistakes_are_named() {
    for (url, reason) in [
        ("nonsense", "names no strategy"),
        ("ftp://x", "names no strategy"),
        ("sqlite:", "names no file"),
        ("sqlite::memory:", "names no file"),
        ("keylatch://host:port", "is not HOST:PORT"),
    ] {
        let Err(ConnectError::Url(text)) = Locks::connect(url).await else { panic!("{url}") };
        assert!(text.contains(reason), "{text}");
    }
    let since = Instant::now();
    let nobody = Locks::connect(&format!("keylatch://{}", free_address())).await;
    let Err(ConnectError::Unreachable(text)) = nobody else { panic!("connected") };
    assert!(text.contains("no lock server was reached") && since.elapsed() < HANG, "{text}");
}

/// Somebody else's lock on the same key is not touched by ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_programs_exclude_each_other() {
    let server = Running::start(None, None);
    let (ann, bob) = (
        Locks::connect(&server.url()).await.unwrap(),
        Locks::connect(&server.url()).await.unwrap(),
    );
    let held = ann.lock("k").await.unwrap();
    assert!(matches!(bob.lock("k").try_now().await, Err(LockError::Busy(_))));
    let waiting = tokio::spawn(bob.lock("k").into_future());
    eventually(async || list(&ann).await == 2).await;
    drop(held);
    waiting.await.unwrap().unwrap().release().await;
    drop(ann);
    assert!(bob.lock("k").try_now().await.is_ok());
}

async fn list(locks: &Locks) -> usize {
    let query = LocksQuery { waiters: true, ..LocksQuery::default() };
    locks.list(query).await.map_or(0, |all| all.len())
}

fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
