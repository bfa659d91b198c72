//! What goes by itself, what a Redis without memory does, and one that goes away.

use super::*;

fn ttl(server: &Server, key: &str) -> i64 {
    server.say(&["PTTL", key])
}

const HEAD: &str = "keylatch:lock:k";
const QUEUE: &str = "keylatch:wait:k";

#[tokio::test]
async fn every_key_has_an_end() {
    let server = Server::start(&[]);
    let store = server.connect().await;
    let made = done(&store, put("k", Expect::Absent, Some(100_000))).await.version;
    assert!((1..=100_000).contains(&ttl(&server, HEAD)));
    // A waiter that lives longer keeps both; one that does not changes nothing.
    done(&store, and_append(change("k", Expect::There, Write::Keep), "ann", 10_000)).await;
    assert!((20_000..=100_000).contains(&ttl(&server, HEAD)));
    assert!((1..=11_000).contains(&ttl(&server, QUEUE)));
    let wait = and_append(change("k", Expect::There, Write::Keep), "bob", 500_000);
    let bob = wait.seq_of(done(&store, wait.clone()).await.version, 0);
    assert!(ttl(&server, HEAD) > ttl(&server, QUEUE) && ttl(&server, QUEUE) > 100_000);
    // A head that is written anew is kept for those who wait.
    let mut shorter = put("k", Expect::Version(made), Some(1_000));
    shorter.names.values_mut().for_each(|one| one.last_seq = None);
    done(&store, shorter.clone()).await;
    assert!(ttl(&server, HEAD) > ttl(&server, QUEUE) && ttl(&server, QUEUE) > 100_000);
    // For ever is for ever, whoever waits and lives; but not its queue.
    let mut forever = put("k", Expect::There, None);
    forever.names.values_mut().for_each(|one| one.last_seq = None);
    done(&store, forever).await;
    let stand = Stand { id: "bob".into(), seq: bob };
    assert_eq!(store.touch(vec![(stand, vec!["k".into()])], 900_000).await.unwrap(), [true]);
    done(&store, and_append(change("k", Expect::There, Write::Keep), "cid", 950_000)).await;
    assert_eq!(ttl(&server, HEAD), -1);
    assert!((800_000..=951_000).contains(&ttl(&server, QUEUE)));
    // And then it has an end again.
    let again = Change { names: shorter.names, ..Change::default() };
    let again = {
        let mut again = again;
        again.names.values_mut().for_each(|one| one.expect = Expect::There);
        again
    };
    done(&store, again).await;
    assert!(ttl(&server, HEAD) > ttl(&server, QUEUE));
}

#[tokio::test]
async fn nothing_is_left_but_the_counter() {
    let server = Server::start(&[]);
    let store = server.connect().await;
    for round in 0..3 {
        let made = put("k", Expect::Absent, (round > 0).then_some(1_000_000));
        let wait = and_append(made, "ann", 1_000_000);
        let made = done(&store, wait.clone()).await.version;
        let mut gone = change("k", Expect::Version(made), Write::Delete);
        let seq = wait.seq_of(made, 0);
        let one = gone.names.get_mut("k").unwrap();
        (one.last_seq, one.remove) = (None, vec![Stand { id: "ann".into(), seq }]);
        done(&store, gone).await;
        let made = done(&store, put("k", Expect::Absent, None)).await.version;
        done(&store, change("k", Expect::Version(made), Write::Delete)).await;
    }
    let keys: Vec<String> = server.say(&["KEYS", "*"]);
    assert_eq!(keys, ["keylatch:counter"]);
}

/// Whoever holds can go on and leave; nobody comes in.
#[tokio::test]
async fn a_redis_without_memory_lets_everybody_leave() {
    let server = Server::start(&[]);
    let store = server.connect().await;
    let alone = done(&store, put("alone", Expect::Absent, Some(100_000))).await.version;
    let wait = and_append(put("waited", Expect::Absent, Some(100_000)), "ann", 100_000);
    let waited = done(&store, wait.clone()).await.version;
    let () = server.say(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = try_done(&store, put("new", Expect::Absent, Some(100_000))).await.unwrap_err();
    assert!(!refused.unknown && refused.text.contains("OOM"), "{refused:?}");
    let wait_too = and_append(change("waited", Expect::There, Write::Keep), "bob", 100_000);
    assert!(!try_done(&store, wait_too).await.unwrap_err().unknown);
    let renewed = done(&store, put("alone", Expect::Version(alone), Some(200_000))).await.version;
    done(&store, change("alone", Expect::Version(renewed), Write::Delete)).await;
    let mut handed = put("waited", Expect::Version(waited), Some(100_000));
    let seq = wait.seq_of(waited, 0);
    let one = handed.names.get_mut("waited").unwrap();
    (one.last_seq, one.remove) = (None, vec![Stand { id: "ann".into(), seq }]);
    let handed = done(&store, handed).await.version;
    done(&store, change("waited", Expect::Version(handed), Write::Delete)).await;
    assert_eq!(server.say::<i64>(&["DBSIZE"]), 1);
}

/// Also those who leave together with somebody who wants to come in.
#[tokio::test]
async fn a_redis_without_memory_lets_go_those_who_are_among_others() {
    let server = Server::start(&[]);
    let store = server.connect().await;
    let mut held = Vec::new();
    for at in 0..20 {
        let name = format!("held {at}");
        let version = done(&store, put(&name, Expect::Absent, Some(100_000))).await.version;
        held.push((name, version));
    }
    let () = server.say(&["CONFIG", "SET", "maxmemory", "1"]);
    let both = held.iter().enumerate().flat_map(|(at, (name, version))| {
        let (keep_ms, holders) = (Some(100_000), Vec::new());
        let come = Plain::Take(Put { bytes: b"new".into(), keep_ms, holders });
        [(true, format!("new {at}"), come), (false, name.clone(), Plain::Leave(*version))]
    });
    // All of them are submitted before any is answered.
    let under_way: Vec<_> =
        both.map(|(comes, name, plain)| (comes, land(&store, &name, plain))).collect();
    for (comes, came) in under_way {
        match (comes, came.await) {
            (true, Err(error)) => {
                assert!(!error.unknown && error.text.contains("OOM"), "{error:?}");
            }
            (false, Ok(Landed::Left { .. })) => {}
            (comes, came) => panic!("comes: {comes}, {came:?}"),
        }
    }
    let keys: Vec<String> = server.say(&["KEYS", "*"]);
    assert_eq!(keys, ["keylatch:counter"]);
}

/// It knows neither the scripts nor the counter.
#[tokio::test]
async fn a_redis_that_comes_back_empty_goes_on() {
    let mut server = Server::start(&[]);
    let store = server.connect().await;
    let mut told = store.told();
    let before = done(&store, put("k", Expect::Absent, None)).await.version;
    server.stop();
    let failed = try_done(&store, put("other", Expect::Absent, None)).await.unwrap_err();
    assert!(failed.text.contains("Redis"), "{failed:?}");
    while told.try_recv().is_ok() {}
    server.restart(&[]);
    let mut after = None;
    eventually(async || {
        after = try_done(&store, put("k", Expect::Absent, None)).await.ok();
        after.is_some()
    })
    .await;
    let after = after.unwrap().version;
    assert!(after > before, "{after} after {before}");
    assert_eq!(told.recv().await.unwrap(), Told::Anything);
    // It is heard again.
    let tells = |told: &Told| matches!(told, Told::Changed { name, .. } if &**name == "told");
    let mut heard = false;
    for number in 0.. {
        let name = if number == 0 { Expect::Absent } else { Expect::There };
        let mut tell = put("told", name, None);
        tell.names.values_mut().for_each(|one| one.tell = true);
        done(&store, tell).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        while let Ok(one) = told.try_recv() {
            heard |= tells(&one);
        }
        if heard {
            break;
        }
        assert!(number < 1_000, "nothing is heard");
    }
}

pub(super) fn forever() -> Plain {
    Plain::Take(Put { bytes: b"x".into(), keep_ms: None, holders: Vec::new() })
}

/// The version of what must have happened.
pub(super) async fn taken(landed: impl Future<Output = Result<Landed, StoreError>>) -> u64 {
    match landed.await.unwrap() {
        Landed::Took { version, .. } => version,
        other => panic!("{other:?}"),
    }
}

/// Also without a new connection: a counter that is gone while all go on.
#[tokio::test]
async fn a_redis_that_was_emptied_does_not_repeat_numbers() {
    let server = Server::start(&[]);
    let store = server.connect().await;
    let mut last = 0;
    for round in 0..3 {
        // One of them alone, and then two together.
        let first = taken(land(&store, "k", forever())).await;
        assert!(first > last, "{first} after {last}");
        last = first;
        let () = server.say(&["DEL", "keylatch:counter"]);
        let both = ["m", "n"].map(|name| land(&store, name, forever()));
        for other in both {
            let other = taken(other).await;
            assert!(other > last, "{other} after {last}");
            last = other;
        }
        if round == 1 {
            let () = server.say(&["DEL", "keylatch:counter"]);
        }
        let written = done(&store, put("k", Expect::Version(first), None)).await.version;
        assert!(written > last, "{written} after {last}");
        last = written;
        let () = server.say(&["FLUSHALL"]);
    }
    let () = server.say(&["SCRIPT", "FLUSH"]);
    let wait = and_append(put("k", Expect::Absent, None), "ann", 1_000);
    assert!(done(&store, wait).await.version > last);
}
