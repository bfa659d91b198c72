//! Members of a cluster inside of a program.

mod common;

use std::net::TcpListener;
use std::time::Duration;

use common::cluster::{Three, small, until_voters};
use common::redis::Redis;
use common::{Running, SOON, eventually};
use keylatch::cluster::{Node, StartError};
use keylatch::{LockError, Locks};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_one_member_is_a_lock_of_all_and_outlives_the_one_that_led() {
    let mut three = Three::start().await;
    let guard = three.nodes[2].locks().lock("k").owner("ann").await.unwrap();
    for node in &three.nodes {
        let busy = node.locks().lock("k").try_now().await;
        assert!(matches!(busy, Err(LockError::Busy(by)) if &*by.owner == "ann"));
    }
    let first = three.nodes.remove(0);
    let own = first.status().await.unwrap();
    let waits = tokio::spawn(three.nodes[0].locks().lock("k").wait(SOON).into_future());
    first.stop().await.unwrap();
    eventually(async || {
        let Ok(status) = three.nodes[0].status().await else { return false };
        status.leader.is_some_and(|leader| leader != own.node)
    })
    .await;
    assert_eq!(guard.is_lost(), None);
    let token = guard.token();
    guard.release().await;
    let next = waits.await.unwrap().unwrap();
    assert!(next.token() > token);
    next.release().await;
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_comes_back_to_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let node = small(dir.path()).start().await.unwrap();
    let locks = node.locks();
    let guard = locks.lock("k").owner("ann").lease(Duration::from_secs(600)).await.unwrap();
    let (first, token) = (node.status().await.unwrap(), guard.token());
    std::mem::forget(guard);
    node.stop().await.unwrap();
    let late = locks.lock("other").try_now().await;
    assert!(matches!(late, Err(LockError::Unreachable(_) | LockError::Unknown(_))), "{late:?}");
    let node = small(dir.path()).start().await.unwrap();
    let busy = node.locks().lock("k").try_now().await;
    assert!(matches!(busy, Err(LockError::Busy(by)) if by.token == token && &*by.owner == "ann"));
    let again = node.status().await.unwrap();
    assert_eq!((first.node, first.cluster), (again.node, again.cluster));
    node.stop().await.unwrap();
}

/// A server and a member in a program are members alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_joins_a_server() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let peer = common::redis::free_port();
    let server = Running::with(|config| {
        config.data = Some(dirs[0].path().into());
        config.peer = Some(([127, 0, 0, 1], peer).into());
    });
    let join = [format!("127.0.0.1:{peer}")];
    let node = small(dirs[1].path()).join(join).start().await.unwrap();
    until_voters(&node, 2).await;
    let guard = node.locks().lock("k").owner("ann").await.unwrap();
    let outside = Locks::connect(&server.url()).await.unwrap();
    let busy = outside.lock("k").try_now().await;
    assert!(matches!(busy, Err(LockError::Busy(by)) if by.token == guard.token()));
    guard.release().await;
    node.stop().await.unwrap();
}

/// Members of programs that cannot reach each other, by way of a Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_meet_at_a_redis_are_one_cluster() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let place = tempfile::tempdir().unwrap();
    let redis = Redis::start(place.path(), &[]);
    let url = |node: &str| format!("{}/0?channel=locks&node={node}", redis.url());
    let one = small(dirs[0].path()).listen(url("one")).start().await.unwrap();
    assert_eq!(one.peer_address(), "one");
    let join = [one.peer_address()];
    let two = small(dirs[1].path()).listen(url("two")).join(join).start().await.unwrap();
    until_voters(&two, 2).await;
    let guard = one.locks().lock("k").owner("ann").await.unwrap();
    let busy = two.locks().lock("k").try_now().await;
    assert!(matches!(busy, Err(LockError::Busy(by)) if by.token == guard.token()));
    guard.release().await;
    two.locks().lock("k").await.unwrap().release().await;
    two.stop().await.unwrap();
    one.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_start_says_why() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = small(dir.path()).start().await.unwrap();
    let error = |builder: keylatch::cluster::Builder| async move {
        match builder.start().await {
            Ok(_) => panic!("it has started"),
            Err(error) => error,
        }
    };
    let file = other.path().join("file");
    std::fs::write(&file, "").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listener = TcpListener::bind(taken).unwrap();
    for (builder, says) in [
        (small(dir.path()), "is in use by another process"),
        (small(other.path()).listen(taken.to_string()), "does another member run there?"),
        (small(other.path()).listen("nonsense"), "'nonsense' is not HOST:PORT"),
        (small(other.path()).listen("redis://127.0.0.1/?channel=c"), "add &node=NAME"),
        (small(other.path()).listen("redis://127.0.0.1/?node=n"), "add ?channel=NAME"),
        (small(other.path()).listen("redis://far/?channel=c&node=n"), "use rediss://"),
        (small(other.path()).listen("0.0.0.0:0"), "say which one (`advertise`)"),
        (small(other.path()).listen("0.0.0.0:0").advertise("here:1"), "(`tls`)"),
        (small(&file.join("data")), "cannot make the data directory"),
    ] {
        let text = error(builder).await.to_string();
        assert!(text.contains(says), "{text}");
    }
    drop(listener);
    // It has locks of its own.
    let alone = small(other.path()).start().await.unwrap();
    alone.locks().lock("k").await.unwrap().release().await;
    alone.stop().await.unwrap();
    // A member ignores whom it should join; so the folder of a server that was alone.
    let third = tempfile::tempdir().unwrap();
    drop(Running::start(Some(third.path()), None));
    let text = error(small(third.path()).join([node.peer_address()])).await;
    assert!(matches!(text, StartError::Server(_)), "{text}");
    assert!(text.to_string().contains("has locks of its own"), "{text}");
    node.stop().await.unwrap();
}

/// Two of three are gone: what is asked is answered within the time that it waits for a leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_majority_grants_nothing_and_says_so() {
    let mut three = Three::start().await;
    let last: Node = three.nodes.remove(2);
    let locks = last.locks();
    three.stop().await;
    let refused = locks.lock("k").try_now().await;
    let Err(error) = refused else { panic!("granted by a minority") };
    assert!(!matches!(error, LockError::Busy(_) | LockError::TimedOut(_)), "{error}");
    last.stop().await.unwrap();
}
