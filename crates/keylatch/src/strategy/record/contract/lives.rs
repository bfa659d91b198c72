//! What ends by itself, and what does not.

use std::time::{Duration, Instant};

use super::super::store::{Expect, Holder, Put, Stand, Store, Told, Write};
use super::{
    Ground, HANG, LONG_MS, and_append, change, done, id, name, one, put, queue, read, seqs, version,
};

/// Appends a waiter that lives so long.
async fn stand(store: &dyn Store, text: &str, who: &str, live_ms: u64) -> Stand {
    let mut ask = and_append(change([(text, one(Expect::There, Write::Keep))]), who, &[text]);
    ask.appends[0].live_ms = live_ms;
    let seq = ask.seq_of(done(store, ask.clone()).await.version, 0);
    Stand { id: id(who), seq }
}

async fn touch(store: &dyn Store, stand: &Stand, names: &[&str], live_ms: u64) -> bool {
    let names = names.iter().map(|text| name(text)).collect();
    store.touch(vec![(stand.clone(), names)], live_ms).await.unwrap()[0]
}

/// Whether a waiter is there and lives.
async fn lives(store: &dyn Store, text: &str, seq: u64) -> bool {
    let view = store.read(vec![name(text)]).await.unwrap();
    let mut queue = view.names[text].queue.iter();
    queue.any(|waiter| waiter.seq == seq && waiter.alive_until > view.now)
}

async fn until_dead(store: &dyn Store, text: &str, seq: u64) {
    let since = Instant::now();
    while lives(store, text, seq).await {
        assert!(since.elapsed() < HANG, "it does not die");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Rule 5.
pub(crate) async fn a_touched_waiter_lives(ground: &impl Ground) {
    let store = &*ground.open().await;
    let life = Duration::from_millis(ground.life_ms());
    done(store, change([("k", one(Expect::Absent, put("1")))])).await;
    'again: for attempt in 0.. {
        let mut last = Instant::now();
        let stand = stand(store, "k", &attempt.to_string(), ground.life_ms()).await;
        let since = Instant::now();
        while since.elapsed() < life * 3 {
            tokio::time::sleep(life / 10).await;
            let before = Instant::now();
            let alive = touch(store, &stand, &["k"], ground.life_ms()).await;
            // Only if this machine was quick enough does its answer mean something.
            if last.elapsed() >= life {
                continue 'again;
            }
            assert!(alive, "it was touched {:?} ago", last.elapsed());
            last = before;
        }
        // The last touch counts like the first.
        until_dead(store, "k", stand.seq).await;
        return;
    }
}

pub(crate) async fn a_lapsed_waiter_is_not_revived(ground: &impl Ground) {
    let store = &*ground.open().await;
    done(store, change([("k", one(Expect::Absent, put("1")))])).await;
    let ann = stand(store, "k", "ann", ground.life_ms()).await;
    let bob = stand(store, "k", "bob", LONG_MS).await;
    assert!(touch(store, &bob, &["k"], LONG_MS).await);
    until_dead(store, "k", ann.seq).await;
    let waiters = vec![(ann.clone(), vec![name("k")]), (bob.clone(), vec![name("k")])];
    assert_eq!(store.touch(waiters, LONG_MS).await.unwrap(), [false, true]);
    assert!(!lives(store, "k", ann.seq).await, "a dead one was revived");
    assert!(lives(store, "k", bob.seq).await);
}

pub(crate) async fn touching_what_is_not_there(ground: &impl Ground) {
    let store = &*ground.open().await;
    let nobody = Stand { id: id("nobody"), seq: 1 };
    assert!(!touch(store, &nobody, &["k"], LONG_MS).await);
    assert_eq!(version(store, "k").await, None);
    let names = ["a", "b"].map(|text| (text, one(Expect::Absent, put("1"))));
    let ask = and_append(change(names), "ann", &["a", "b"]);
    let seq = ask.seq_of(done(store, ask.clone()).await.version, 0);
    let ann = Stand { id: id("ann"), seq };
    assert!(touch(store, &ann, &["a", "b"], LONG_MS).await);
    assert!(!touch(store, &Stand { seq: seq + 1, ..ann.clone() }, &["a"], LONG_MS).await);
    assert!(!touch(store, &nobody, &["a"], LONG_MS).await);
    let gone = super::removing(Expect::There, Write::Keep, [("ann", seq)]);
    done(store, change([("a", gone)])).await;
    // It stands where it stood only if it stands everywhere.
    assert!(!touch(store, &ann, &["a", "b"], LONG_MS).await);
    assert!(touch(store, &ann, &["b"], LONG_MS).await);
    assert!(store.touch(Vec::new(), LONG_MS).await.unwrap().is_empty());
}

fn kept(keep_ms: Option<u64>) -> Write {
    Write::Put(Put { bytes: "1".into(), keep_ms, holders: Vec::new() })
}

/// Rule 7. A store that sweeps does so when it is opened, at least.
pub(crate) async fn what_nobody_needs_goes(ground: &impl Ground) {
    let store = &*ground.open().await;
    let short = || one(Expect::Absent, kept(Some(ground.life_ms())));
    let mut ask = and_append(change([("alone", short()), ("waited", short())]), "ann", &["waited"]);
    ask.appends[0].live_ms = 2 * ground.life_ms();
    done(store, ask).await;
    let since = Instant::now();
    while !store.read_all().await.unwrap().names.is_empty() {
        assert!(since.elapsed() < HANG, "{:?} is left", store.read_all().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
        ground.open().await;
    }
    // As if it had never been there.
    done(store, change([("alone", one(Expect::Absent, put("2")))])).await;
}

pub(crate) async fn what_is_for_ever_stays(ground: &impl Ground) {
    let store = &*ground.open().await;
    let life = Duration::from_millis(ground.life_ms());
    // Not so short that a slow machine finds it gone while it still writes.
    let short = || kept(Some(3 * ground.life_ms()));
    let absent = |text, head| change([(text, one(Expect::Absent, head))]);
    done(store, absent("for ever", kept(None))).await;
    done(store, absent("long", kept(Some(LONG_MS)))).await;
    // It was short, and the last word counts.
    done(store, absent("prolonged", short())).await;
    done(store, change([("prolonged", one(Expect::There, kept(None)))])).await;
    // Somebody who waits keeps it.
    done(store, and_append(absent("first", short()), "ann", &["first"])).await;
    done(store, absent("later", short())).await;
    stand(store, "later", "ann", LONG_MS).await;
    done(store, absent("touched", short())).await;
    let ann = stand(store, "touched", "ann", ground.life_ms()).await;
    let touched = touch(store, &ann, &["touched"], LONG_MS).await;
    // And somebody who died does not take with it what is for ever.
    stand(store, "for ever", "ann", ground.life_ms()).await;
    let since = Instant::now();
    while since.elapsed() < life * 5 {
        tokio::time::sleep(life).await;
        ground.open().await;
    }
    for text in ["for ever", "long", "prolonged", "first", "later"] {
        assert!(version(store, text).await.is_some(), "{text}");
    }
    assert_eq!(queue(store, "first").await.len(), 1);
    assert_eq!(queue(store, "later").await.len(), 1);
    if touched {
        assert_eq!(seqs(store, "touched").await, [ann.seq]);
        assert!(version(store, "touched").await.is_some());
    }
}

/// Only of stores with leases of their own: heads say who lives, and it is told when that changes.
pub(crate) async fn leases_end_by_themselves(ground: &impl Ground) {
    let store = &*ground.open().await;
    let holder = |who, left_ms, leased| Holder { id: id(who), left_ms, leased };
    let head = |holders| Write::Put(Put { bytes: "1".into(), keep_ms: None, holders });
    let first = vec![
        holder("ann", Some(ground.life_ms()), true),
        holder("bob", Some(LONG_MS), true),
        holder("cid", None, true),
    ];
    let made = done(store, change([("k", one(Expect::Absent, head(first)))])).await;
    if !ground.has_own_leases() {
        assert!(read(store, "k").await.head.unwrap().alive.is_none(), "the clock decides");
        return;
    }
    let mut told = store.told();
    store.somebody_waits(true);
    stand(store, "k", "dan", LONG_MS).await;
    let alive = async || read(store, "k").await.head.unwrap().alive.unwrap();
    let since = Instant::now();
    while alive().await.contains(&id("ann")) {
        assert!(since.elapsed() < HANG, "the lease does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(alive().await, [id("bob"), id("cid")].into());
    while let Some(told) = told.recv().await {
        match told {
            Told::Anything => break,
            Told::Changed { name, version: 0, .. } if &*name == "k" => break,
            Told::Changed { .. } => {}
        }
    }
    // Bob's runs as it did; Cid has one now.
    let next = vec![
        holder("bob", Some(ground.life_ms()), false),
        holder("cid", Some(ground.life_ms()), true),
    ];
    done(store, change([("k", one(Expect::Version(made.version), head(next)))])).await;
    while alive().await.contains(&id("cid")) {
        assert!(since.elapsed() < HANG, "the lease does not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(alive().await, [id("bob")].into());
}
