//! A Redis that is not fit for locks, that goes away, and that other programs look at.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{HANG, Redis, SOON, eventually};
use keylatch::{ConnectError, LockError, Locks, Lost, Released};

async fn refused(options: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path(), options);
    match Locks::connect(&redis.url()).await {
        Err(ConnectError::Refused(text)) => text,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("connected"),
    }
}

#[tokio::test]
async fn a_redis_that_may_forget_locks_is_refused() {
    let evicts = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    assert!(refused(&evicts).await.contains("may evict locks"));
    let cluster = ["--cluster-enabled", "yes"];
    assert!(refused(&cluster).await.contains("is a cluster"));
}

/// One command, spoken plainly.
fn say(redis: &Redis, line: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port)).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut room = [0; 4_096];
    let count = stream.read(&mut room).unwrap();
    String::from_utf8_lossy(&room[..count]).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_behind() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path(), &[]);
    let locks = Locks::connect(&redis.url()).await.unwrap();
    for number in 0..20 {
        let (held, waits) = (locks.lock(format!("k{number}")), locks.lock(format!("k{number}")));
        let held = held.await.unwrap();
        let waits = tokio::spawn(waits.into_future());
        held.release().await;
        waits.await.unwrap().unwrap().release().await;
    }
    assert_eq!(say(&redis, "KEYS *"), "*1\r\n$16\r\nkeylatch:counter\r\n");
    // Whoever is killed leaves a lock that goes by itself, with everything about it.
    let killed = locks.lock("killed").lease(Duration::from_secs(5)).await.unwrap();
    std::mem::forget(killed);
    let left = say(&redis, "PTTL keylatch:lock:killed");
    let left: i64 = left.trim_start_matches(':').trim().parse().unwrap();
    assert!((1..=70_000).contains(&left), "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_comes_back_empty_has_lost_the_locks_and_tokens_still_grow() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path(), &[]);
    let (port, url) = (redis.port, redis.url());
    let locks = Locks::connect(&url).await.unwrap();
    let held = locks.lock("k").lease(Duration::from_millis(1_500)).await.unwrap();
    let token = held.token();
    drop(redis);
    let redis = Redis::start_at(port, dir.path(), &[]).expect("the same port");
    assert!(matches!(held.lost().await, Lost::Expired | Lost::Unreachable));
    let next = locks.lock("k").wait(SOON).await.unwrap();
    assert!(next.token() > token, "{} after {token}", next.token());
    drop(redis);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_calls_end_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path(), &[]);
    let locks = Locks::connect(&redis.url()).await.unwrap();
    let held = locks.lock("k").await.unwrap();
    drop(redis);
    let (released, asked) =
        tokio::join!(held.release(), locks.lock("other").try_now().into_future());
    assert_eq!(released, Released::Unknown);
    assert!(matches!(asked, Err(LockError::Unreachable(_) | LockError::Unknown(_))), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_woken_across_connections() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Redis::start(dir.path(), &[]);
    let (ann, bob) =
        (Locks::connect(&redis.url()).await.unwrap(), Locks::connect(&redis.url()).await.unwrap());
    let held = ann.lock("k").await.unwrap();
    let waiting = tokio::spawn(bob.lock("k").into_future());
    let query = || keylatch::LocksQuery { waiters: true, ..keylatch::LocksQuery::default() };
    eventually(async || ann.list(query()).await.unwrap().len() == 2).await;
    let token = held.token();
    drop(held);
    assert!(waiting.await.unwrap().unwrap().token() > token);
}
