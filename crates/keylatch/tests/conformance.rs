//! What every strategy must do, once for each of them, with real servers.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{Place, SOON, eventually};
use keylatch::{
    ANY, Cause, Event, Fence, ListError, LockError, Locks, LocksQuery, Lost, Mode, PromoteError,
    Released, RenewError, RequestId, RunError, resource,
};

/// Each function below against each strategy. What a strategy promises
/// ([`keylatch::Locks::capabilities`]) must work, and what it does not must be refused clearly; the
/// functions that depend on it look there.
macro_rules! conformance {
    ([$($module:ident: $place:ident),* $(,)?], $names:tt) => {
        $(conformance!(@ $module $place $names);)*
    };
    (@ $module:ident $place:ident [$($name:ident),* $(,)?]) => {
        mod $module {
            $(#[test] fn $name() { super::common::run(super::Place::$place, super::$name); })*
        }
    };
}

conformance!(
    [
        memory: Memory,
        sqlite: Sqlite,
        redis: Redis,
        postgres: Postgres,
        etcd: Etcd,
        server: Server,
        durable_server: Durable,
        cluster: Cluster,
    ],
    [
        a_lock_is_exclusive_until_it_is_released,
        tokens_grow,
        readers_share_and_a_writer_waits_for_them,
        order_is_that_of_arrival,
        a_wait_ends_in_time_and_names_who_is_in_the_way,
        a_wildcard_overlaps_what_it_covers,
        several_keys_are_all_or_none,
        an_owner_may_cumulate,
        optimistic_locks_are_promoted_and_the_others_told,
        a_lease_is_renewed_as_long_as_the_guard_lives,
        without_renewal_the_lease_ends_and_its_holder_knows,
        the_shortest_lease_ends,
        what_is_leased_for_less_than_the_shortest_is_leased_for_that,
        a_longest_hold_ends_whatever_is_renewed,
        a_revoked_holder_is_told_why,
        a_dropped_request_leaves_nothing_behind,
        a_dropped_guard_releases_before_what_is_asked_later,
        the_same_id_gets_the_same_lock_and_no_other,
        an_ended_id_is_not_granted_again,
        an_id_that_never_was_is_not_said_to_have_lost_anything,
        deadlocks_are_refused_to_those_who_ask,
        events_are_told,
        a_task_runs_under_its_lock_and_errors_release_it,
        a_task_whose_lock_is_lost_is_stopped,
        lists_show_who_holds_and_who_waits,
        whoever_waits_is_shown_with_how_long,
        a_lock_whose_lease_is_over_is_not_listed,
        bad_requests_are_refused_with_a_reason,
        no_update_is_lost,
    ]
);

async fn a_lock_is_exclusive_until_it_is_released(locks: Locks) {
    let first = locks.lock("k").owner("ann").await.unwrap();
    let Err(LockError::Busy(blocker)) = locks.lock("k").try_now().await else { panic!("granted") };
    assert_eq!(
        (&*blocker.owner, blocker.mode, blocker.token),
        ("ann", Mode::Exclusive, first.token())
    );
    assert!(locks.lock("other").try_now().await.is_ok());
    assert_eq!(first.release().await, Released::Released);
    let second = locks.lock("k").try_now().await.unwrap();
    assert_eq!(second.is_lost(), None);
}

async fn tokens_grow(locks: Locks) {
    let mut last = 0;
    for round in 0..20 {
        let guard = locks.lock(format!("k{}", round % 3)).await.unwrap();
        assert!(guard.token() > last);
        last = guard.token();
        guard.release().await;
    }
}

async fn readers_share_and_a_writer_waits_for_them(locks: Locks) {
    let readers =
        [locks.lock("k").shared().await.unwrap(), locks.lock("k").shared().await.unwrap()];
    let writer = tokio::spawn(locks.lock("k").into_future());
    eventually(async || waiters(&locks).await == 1).await;
    let late = locks.lock("k").shared().try_now().await;
    assert!(matches!(late, Err(LockError::Busy(_))), "a writer that waits comes first");
    for reader in readers {
        assert!(!writer.is_finished());
        reader.release().await;
    }
    writer.await.unwrap().unwrap().release().await;
}

async fn order_is_that_of_arrival(locks: Locks) {
    assert!(locks.capabilities().fair, "the order below is then another one");
    let first = locks.lock("k").await.unwrap();
    let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..8 {
        let (ask, seen) = (locks.lock("k"), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = ask.await.unwrap();
            seen.lock().push((number, guard.token()));
            guard.release().await;
        }));
        eventually(async || waiters(&locks).await == number + 1).await;
    }
    first.release().await;
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(order.len(), 8);
}

async fn a_wait_ends_in_time_and_names_who_is_in_the_way(locks: Locks) {
    let _held = locks.lock("k").owner("ann").await.unwrap();
    let late = locks.lock("k").wait(Duration::from_millis(50)).await;
    let Err(LockError::TimedOut(Some(blocker))) = late else { panic!("{late:?}") };
    assert_eq!(&*blocker.owner, "ann");
    assert_eq!(waiters(&locks).await, 0);
}

async fn a_wildcard_overlaps_what_it_covers(locks: Locks) {
    let product =
        |kind: &'static str, id: &'static str| resource("product", [kind.into(), id.into()]);
    let one = locks.lock(product("Computer", "1")).await.unwrap();
    let all = || locks.lock(resource("product", ["Computer".into(), ANY]));
    assert!(matches!(all().try_now().await, Err(LockError::Busy(_))));
    assert!(locks.lock(product("Phone", "1")).try_now().await.is_ok());
    one.release().await;
    let _all = all().try_now().await.unwrap();
    assert!(matches!(
        locks.lock(product("Computer", "2")).try_now().await,
        Err(LockError::Busy(_))
    ));
}

async fn several_keys_are_all_or_none(locks: Locks) {
    let b = locks.lock("b").await.unwrap();
    let both = || locks.lock("a").also("b").also("c");
    if !locks.capabilities().several_names {
        let refused = both().try_now().await;
        return assert!(matches!(refused, Err(LockError::Invalid(_))), "{refused:?}");
    }
    assert!(matches!(both().try_now().await, Err(LockError::Busy(_))));
    assert!(locks.lock("a").try_now().await.is_ok(), "nothing of it was taken");
    b.release().await;
    let guard = both().await.unwrap();
    for key in ["a", "b", "c"] {
        assert!(matches!(locks.lock(key).try_now().await, Err(LockError::Busy(_))));
    }
    guard.release().await;
    assert!(locks.lock("c").try_now().await.is_ok());
}

async fn an_owner_may_cumulate(locks: Locks) {
    let ask = |owner: &str| locks.lock("k").mode(Mode::Cumulative).owner(owner).try_now();
    let first = ask("ann").await.unwrap();
    let second = ask("ann").await.unwrap();
    assert!(second.token() > first.token());
    assert!(matches!(ask("bob").await, Err(LockError::Busy(_))));
    first.release().await;
    assert!(matches!(ask("bob").await, Err(LockError::Busy(_))), "the other one is still held");
    second.release().await;
    assert!(ask("bob").await.is_ok());
}

async fn optimistic_locks_are_promoted_and_the_others_told(locks: Locks) {
    let ann = locks.lock("k").optimistic().owner("ann").await.unwrap();
    let bob = locks.lock("k").optimistic().owner("bob").await.unwrap();
    let before = ann.token();
    let token = ann.promote().await.unwrap();
    assert!(token > before && ann.token() == token);
    assert!(matches!(bob.lost().await, Lost::Superseded(_)));
    let refused = bob.promote().await;
    assert!(matches!(refused, Err(PromoteError::Lost(_))), "{refused:?}");
    let exclusive = locks.lock("x").await.unwrap();
    let wrong = exclusive.promote().await;
    assert!(matches!(wrong, Err(PromoteError::Invalid(_))), "{wrong:?}");
}

async fn a_lease_is_renewed_as_long_as_the_guard_lives(locks: Locks) {
    let guard = locks.lock("k").lease(Duration::from_millis(1_500)).await.unwrap();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(matches!(locks.lock("k").try_now().await, Err(LockError::Busy(_))));
    }
    assert_eq!(guard.is_lost(), None);
}

async fn without_renewal_the_lease_ends_and_its_holder_knows(locks: Locks) {
    let guard = locks.lock("k").lease(Duration::from_millis(100)).no_renew().await.unwrap();
    let next = locks.lock("k").await.unwrap();
    // Its own view ends first.
    assert_eq!(guard.is_lost(), Some(Lost::Expired));
    assert_eq!(guard.lost().await, Lost::Expired);
    assert!(next.token() > guard.token());
    let fence = Fence::default();
    fence.check(next.token()).unwrap();
    assert!(fence.check(guard.token()).is_err());
    assert_eq!(guard.release().await, Released::NotHeld);
}

async fn the_shortest_lease_ends(locks: Locks) {
    let shortest = locks.capabilities().shortest_lease;
    let guard = locks.lock("k").lease(Duration::from_nanos(1)).no_renew().await.unwrap();
    assert!(guard.ends().is_some_and(|left| left <= shortest), "{:?}", guard.ends());
    assert_eq!(guard.lost().await, Lost::Expired);
    assert!(locks.lock("k").wait(SOON).await.is_ok());
}

async fn what_is_leased_for_less_than_the_shortest_is_leased_for_that(locks: Locks) {
    let shortest = locks.capabilities().shortest_lease;
    if shortest < Duration::from_secs(1) {
        // It would be over before it is looked at.
        return;
    }
    let is_whole = |left: Duration| left > shortest / 5 && left <= shortest;
    let held = locks.lock("k").lease(shortest / 5).no_renew().await.unwrap();
    assert!(held.ends().is_some_and(is_whole), "{:?}", held.ends());
    let renewed = locks.renew(held.id(), Some(shortest / 5)).await.unwrap();
    assert!(renewed.is_some_and(is_whole), "{renewed:?}");
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let claim = tasks.claim().lease(shortest / 5).no_renew().try_now().await.unwrap().unwrap();
    let leased = tasks.get("a").await.unwrap().unwrap().lease;
    assert!(leased.is_some_and(is_whole), "{leased:?}");
    let updated = tasks.update("a", claim.version()).lease(shortest / 5).await.unwrap();
    assert!(updated.lease.is_some_and(is_whole), "{updated:?}");
}

async fn a_longest_hold_ends_whatever_is_renewed(locks: Locks) {
    let ask = locks.lock("k").lease(Duration::from_millis(700));
    let guard = ask.max_hold(Duration::from_millis(1_500)).await.unwrap();
    assert_eq!(guard.lost().await, Lost::Expired);
    assert!(locks.lock("k").await.is_ok());
}

async fn a_revoked_holder_is_told_why(locks: Locks) {
    let guard = locks.lock("k").await.unwrap();
    assert_eq!(locks.revoke(guard.token(), "maintenance").await, Ok(true));
    assert_eq!(guard.lost().await, Lost::Revoked(Some("maintenance".into())));
    assert_eq!(locks.revoke(guard.token(), "again").await, Ok(false));
}

async fn a_dropped_request_leaves_nothing_behind(locks: Locks) {
    let held = locks.lock("k").await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").into_future());
    eventually(async || waiters(&locks).await == 1).await;
    waiting.abort();
    eventually(async || waiters(&locks).await == 0).await;
    held.release().await;
    assert!(locks.lock("k").try_now().await.is_ok());
}

async fn a_dropped_guard_releases_before_what_is_asked_later(locks: Locks) {
    for _ in 0..50 {
        let guard = locks.lock("k").try_now().await.unwrap();
        drop(guard);
    }
    locks.close().await;
    assert_eq!(locks.list(LocksQuery::default()).await.unwrap(), []);
}

async fn the_same_id_gets_the_same_lock_and_no_other(locks: Locks) {
    let id = RequestId::new("an id that cannot be guessed");
    let first = locks.lock("k").id(id.clone()).await.unwrap();
    let again = locks.lock("k").id(id.clone()).await.unwrap();
    assert_eq!(again.token(), first.token());
    let other = locks.lock("other").id(id).await;
    assert!(matches!(other, Err(LockError::Invalid(_))), "{other:?}");
}

async fn an_ended_id_is_not_granted_again(locks: Locks) {
    let id = RequestId::new("an id that cannot be guessed either");
    locks.lock("k").id(id.clone()).await.unwrap().release().await;
    let again = locks.lock("k").id(id).await;
    if locks.capabilities().ended_ids.is_none() {
        return assert!(again.is_ok(), "{again:?}");
    }
    assert!(matches!(again, Err(LockError::Ended(Cause::Released))), "{again:?}");
}

async fn an_id_that_never_was_is_not_said_to_have_lost_anything(locks: Locks) {
    let id = RequestId::new("nobody's");
    assert_eq!(locks.renew(&id, None).await, Err(RenewError::NotHeld));
    assert_eq!(locks.promote(&id).await, Err(PromoteError::NotHeld));
    let text = RenewError::NotHeld.to_string();
    assert_eq!(text, "nothing is held under this id: it has ended, or never was");
}

async fn deadlocks_are_refused_to_those_who_ask(locks: Locks) {
    let ask = |key: &str, owner: &str| locks.lock(key).owner(owner).detect();
    if !locks.capabilities().detect {
        let refused = ask("a", "ann").await;
        let Err(LockError::Invalid(text)) = refused else { panic!("{refused:?}") };
        return assert!(text.contains("cannot detect deadlocks"), "{text}");
    }
    let _a = ask("a", "ann").await.unwrap();
    let _b = ask("b", "bob").await.unwrap();
    let waiting = tokio::spawn(ask("b", "ann").into_future());
    eventually(async || waiters(&locks).await == 1).await;
    let Err(LockError::Deadlock(deadlock)) = ask("a", "bob").await else { panic!("no deadlock") };
    let mut cycle: Vec<&str> = deadlock.cycle.iter().map(|owner| &**owner).collect();
    cycle.sort_unstable();
    assert_eq!(cycle, ["ann", "bob"]);
    waiting.abort();
}

async fn events_are_told(locks: Locks) {
    let watch = locks.watch().await;
    if !locks.capabilities().watch {
        let Err(ListError::Refused(text)) = watch else { panic!("it watches") };
        return assert!(text.contains("does not tell what happens"), "{text}");
    }
    let held = locks.lock("k").await.unwrap();
    locks.revoke(held.token(), "enough").await.unwrap();
    assert!(matches!(watch.unwrap().next().await, Some(Event::Lost { .. })));
}

async fn a_task_runs_under_its_lock_and_errors_release_it(locks: Locks) {
    let inside = locks.run("k", async || locks.lock("k").try_now().await.is_err()).await.unwrap();
    assert!(inside, "held while it runs");
    let failed: Result<Result<(), &str>, _> = locks.run("k", async || Err("no")).await;
    assert_eq!(failed, Ok(Err("no")));
    let other = locks.clone();
    let panicked = tokio::spawn(async move { other.run("k", async || panic!("on purpose")).await });
    assert!(panicked.await.is_err());
    assert!(locks.lock("k").wait(SOON).await.is_ok(), "a panic releases too");
}

async fn a_task_whose_lock_is_lost_is_stopped(locks: Locks) {
    let stopped = locks
        .lock("k")
        .run(async || {
            let held = locks.list(LocksQuery::default()).await.unwrap();
            locks.revoke(held[0].token, "enough").await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
    assert_eq!(stopped, Err(RunError::Lost(Lost::Revoked(Some("enough".into())))));
}

async fn lists_show_who_holds_and_who_waits(locks: Locks) {
    let guard = locks
        .lock(resource("product", ["Computer".into(), ANY]))
        .owner("ann")
        .meta("stocktaking")
        .await
        .unwrap();
    let waiting = tokio::spawn(
        locks.lock(resource("product", ["Computer".into(), "7".into()])).owner("bob").into_future(),
    );
    eventually(async || waiters(&locks).await == 1).await;
    let all = locks.list(LocksQuery { waiters: true, ..LocksQuery::default() }).await.unwrap();
    let shown: Vec<_> = all
        .iter()
        .map(|entry| {
            (entry.resource.to_string(), &*entry.owner, entry.token, entry.meta.as_deref())
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("product(Computer,@)".into(), "ann", guard.token(), Some("stocktaking")),
            ("product(Computer,7)".into(), "bob", 0, None),
        ]
    );
    let query = LocksQuery { owner: Some("bob".into()), ..LocksQuery::default() };
    assert_eq!(locks.list(query).await.unwrap(), [], "bob holds nothing");
    waiting.abort();
}

async fn whoever_waits_is_shown_with_how_long(locks: Locks) {
    let _held = locks.lock("k").await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").into_future());
    eventually(async || waiters(&locks).await == 1).await;
    let waits = Duration::from_millis(300);
    tokio::time::sleep(waits).await;
    let all = locks.list(LocksQuery { waiters: true, ..LocksQuery::default() }).await.unwrap();
    let waited = Duration::from_millis(all[1].held_ms);
    // On etcd by clocks that may be set meanwhile, so not to the millisecond.
    assert!(waited >= waits / 2 && waited < common::HANG, "{waited:?}");
    waiting.abort();
}

async fn a_lock_whose_lease_is_over_is_not_listed(locks: Locks) {
    locks.lock("k").lease(Duration::from_secs(1)).await.unwrap().keep();
    assert_eq!(locks.list(LocksQuery::default()).await.unwrap().len(), 1);
    // Sooner than anybody sweeps, and although nobody wants it.
    let gone = eventually(async || locks.list(LocksQuery::default()).await.unwrap().is_empty());
    let gone = tokio::time::timeout(Duration::from_secs(15), gone).await;
    gone.expect("it is listed though it is free");
}

async fn bad_requests_are_refused_with_a_reason(locks: Locks) {
    for ask in [
        locks.lock(""),
        locks.lock("x".repeat(2_000)),
        locks.lock("k").also("k"),
        locks.lock("k").detect(),
        locks.lock("k").lease(Duration::from_secs(1 << 40)),
    ] {
        let refused = ask.try_now().await;
        let Err(LockError::Invalid(reason)) = refused else { panic!("{refused:?}") };
        assert!(!reason.is_empty());
    }
    assert!(locks.lock("k").try_now().await.is_ok());
}

/// A counter that is read, and later written: without the lock updates would be lost.
async fn no_update_is_lost(locks: Locks) {
    let counter = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (locks, counter) = (locks.clone(), Arc::clone(&counter));
            tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = locks.lock("counter").await.unwrap();
                    let seen = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counter.store(seen + 1, Ordering::SeqCst);
                    guard.release().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), 160);
}

/// How many wait.
async fn waiters(locks: &Locks) -> usize {
    let query = LocksQuery { waiters: true, ..LocksQuery::default() };
    let all = locks.list(query).await.unwrap();
    all.iter().filter(|entry| entry.token == 0).count()
}
