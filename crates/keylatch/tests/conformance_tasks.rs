//! What every strategy that has tasks must do with them: SPEC section 5 sentence by sentence, once for
//! each place, with real servers. A strategy that has none must say so.

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Place, SOON, eventually};
use keylatch::{
    ChangeError, Claim, ClaimError, ClaimEvent, Event, ListError, Locks, LostClaim, PoolCounts,
    TaskError, TaskState, Tasks, Watch,
};

macro_rules! conformance {
    ([$($module:ident: $place:ident),* $(,)?], $names:tt) => {
        $(conformance!(@ $module $place $names);)*
    };
    (@ $module:ident $place:ident [$($name:ident),* $(,)?]) => {
        mod $module {
            $(#[test] fn $name() {
                super::common::run(super::Place::$place, async |locks| {
                    match locks.capabilities().tasks {
                        true => super::$name(locks).await,
                        false => super::all_is_refused(locks).await,
                    }
                });
            })*
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
        a_task_is_created_once,
        many_tasks_are_created_together,
        a_version_changes_with_every_write_and_never_repeats,
        a_worker_gets_what_the_creator_wrote,
        the_highest_priority_comes_first_and_then_who_has_waited_longest,
        a_task_is_not_claimed_before_its_time,
        a_claim_waits_for_a_time_to_come,
        asking_for_one_key_never_gives_another,
        a_named_claim_waits_for_a_key_that_does_not_exist_yet,
        a_named_claim_waits_until_its_task_is_free,
        a_named_claim_and_an_any_claim_race_for_one_task_and_one_wins,
        a_wait_with_nothing_free_ends_on_time,
        a_wait_with_nothing_free_uses_no_processor_time,
        waiting_claims_are_served_in_the_order_of_their_arrival,
        a_claim_is_renewed_as_long_as_it_lives,
        a_claim_never_races_itself,
        a_lapsed_task_is_free_at_the_same_version,
        after_the_lease_an_update_succeeds_if_nobody_claimed_since,
        after_the_lease_an_update_fails_if_somebody_claimed_since,
        after_the_lease_done_and_put_back_succeed_if_nobody_claimed_since,
        a_stale_version_changes_nothing_and_says_so,
        a_body_is_replaced_for_the_next_worker,
        a_done_task_never_comes_back,
        who_goes_on_is_done_and_has_the_next_task,
        the_next_task_comes_also_if_the_one_before_was_lost,
        who_goes_on_after_its_lease_does_not_get_the_same_task_again,
        dropping_the_next_claim_frees_its_task_at_once,
        whoever_waits_for_a_task_that_gets_done_is_told,
        a_task_is_put_back_now_or_later_and_the_attempt_counts,
        after_the_last_attempt_a_task_is_failed_with_its_last_error,
        failed_tasks_are_free_again_when_told,
        a_deleted_task_is_gone_and_its_worker_finds_out,
        dropping_a_claim_stops_its_renewal,
        dropping_a_waiting_claim_leaves_nothing_behind,
        a_claim_that_is_withdrawn_on_its_way_keeps_no_task,
        tokens_grow_with_every_claim,
        lists_show_tasks_and_counts_their_states,
        pools_are_apart,
        bad_commands_are_refused_with_a_reason,
        what_happens_to_claims_is_told,
        every_task_is_done_once_by_many_workers,
    ]
);

async fn all_is_refused(locks: Locks) {
    let tasks = locks.tasks("pool");
    let refused = tasks.create("a").await;
    let Err(TaskError::Invalid(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("does not have tasks"), "{text}");
    assert!(matches!(tasks.claim().try_now().await, Err(ClaimError::Task(TaskError::Invalid(_)))));
    assert!(matches!(tasks.done("a", 1).await, Err(ChangeError::Task(TaskError::Invalid(_)))));
    assert!(matches!(tasks.list().await, Err(ListError::Refused(_))));
    assert!(matches!(tasks.counts().await, Err(ListError::Refused(_))));
}

/// A claim that must be there by now.
async fn now(tasks: &Tasks) -> Claim {
    tasks.claim().try_now().await.unwrap().expect("a task is free")
}

async fn nothing(tasks: &Tasks) -> bool {
    tasks.claim().try_now().await.unwrap().is_none()
}

/// A claim whose lease has run out; the strategy has seen it.
async fn lapsed(locks: &Locks, tasks: &Tasks, key: &str) -> Claim {
    let lease = locks.capabilities().shortest_lease.max(Duration::from_millis(50));
    let claim = tasks.claim_key(key).lease(lease).no_renew().try_now().await.unwrap().unwrap();
    assert_eq!(claim.lost().await, LostClaim::Expired);
    eventually(async || state(tasks, key).await == TaskState::Free).await;
    claim
}

async fn state(tasks: &Tasks, key: &str) -> TaskState {
    tasks.get(key).await.unwrap().expect("it exists").state
}

async fn a_task_is_created_once(locks: Locks) {
    let tasks = locks.tasks("pool");
    let version = tasks.create("a").body("first").await.unwrap().expect("it is new");
    assert_eq!(tasks.create("a").body("second").await.unwrap(), None);
    let task = tasks.get("a").await.unwrap().unwrap();
    assert_eq!((task.version, &*task.body.unwrap().bytes), (version, &b"first"[..]));
    assert_eq!(tasks.get("b").await.unwrap(), None);
}

async fn many_tasks_are_created_together(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("7").await.unwrap();
    let new = (0..600).map(|number| tasks.create(number.to_string()).body(number.to_string()));
    let made = tasks.create_many(new).await.unwrap();
    assert_eq!(made.len(), 600);
    let there: Vec<usize> = (0..600).filter(|at| made[*at].is_none()).collect();
    assert_eq!(there, [7], "one existed, and all have their place in the answer");
    assert_eq!(tasks.counts().await.unwrap().ready, 600);
    let listed = tasks.list().await.unwrap();
    let mut listed: Vec<u32> = listed.iter().map(|task| task.key.parse().unwrap()).collect();
    // What is under way at once has no order in a record store.
    if !locks.capabilities().watch {
        listed[1..].sort_unstable();
    }
    let order: Vec<u32> = [7].into_iter().chain((0..600).filter(|number| *number != 7)).collect();
    assert_eq!(listed, order, "in the order in which they were given");
    let one = tasks.get("412").await.unwrap().unwrap();
    assert_eq!((one.version, &*one.body.unwrap().bytes), (made[412].unwrap(), &b"412"[..]));
}

async fn a_version_changes_with_every_write_and_never_repeats(locks: Locks) {
    let tasks = locks.tasks("pool");
    let mut versions = HashSet::new();
    let mut new = |version: u64| assert!(versions.insert(version), "{version} was there before");
    for _ in 0..3 {
        new(tasks.create("a").await.unwrap().unwrap());
        let claim = now(&tasks).await;
        new(claim.version());
        new(claim.renew().await.unwrap().version);
        new(claim.update("b").await.unwrap().version);
        new(claim.put_back().await.unwrap().version);
        let claim = now(&tasks).await;
        new(claim.version());
        let done = claim.done().await.unwrap();
        new(done);
        assert_eq!(tasks.get("a").await.unwrap().unwrap().version, done);
        assert!(tasks.delete("a").await.unwrap());
    }
}

async fn a_worker_gets_what_the_creator_wrote(locks: Locks) {
    let tasks = locks.tasks("pool");
    let bytes: Vec<u8> = (0..65_536_u32).map(|number| number as u8).collect();
    tasks.create("bytes").body(bytes.clone()).priority(3).await.unwrap();
    tasks.create("json").json(r#"{"to":"ann"}"#).priority(2).await.unwrap();
    tasks.create("none").priority(1).await.unwrap();
    tasks.create("empty").body("").await.unwrap();
    let claim = now(&tasks).await;
    assert_eq!((&**claim.key(), claim.bytes()), ("bytes", &bytes[..]));
    assert!(!claim.body().unwrap().json);
    let claim = now(&tasks).await;
    assert_eq!((&**claim.key(), claim.text()), ("json", Some(r#"{"to":"ann"}"#)));
    assert!(claim.body().unwrap().json);
    let claim = now(&tasks).await;
    assert_eq!((&**claim.key(), claim.body(), claim.attempts()), ("none", None, 0));
    let claim = now(&tasks).await;
    assert_eq!((claim.body().is_some(), claim.bytes()), (true, &b""[..]));
}

async fn the_highest_priority_comes_first_and_then_who_has_waited_longest(locks: Locks) {
    let tasks = locks.tasks("pool");
    for (key, priority) in [("a", 0), ("b", 0), ("low", -5), ("high", 7), ("c", 0)] {
        tasks.create(key).priority(priority).await.unwrap();
    }
    let claim = now(&tasks).await;
    assert_eq!(&**claim.key(), "high");
    let first = now(&tasks).await;
    assert_eq!(&**first.key(), "a");
    // It is free since now, and the others have been for longer: by at least a tick of the clock.
    tokio::time::sleep(Duration::from_millis(20)).await;
    first.put_back().await.unwrap();
    for key in ["b", "c", "a", "low"] {
        let claim = now(&tasks).await;
        assert_eq!(&**claim.key(), key);
        claim.done().await.unwrap();
    }
    assert!(nothing(&tasks).await);
}

async fn a_task_is_not_claimed_before_its_time(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("later").delay(Duration::from_secs(3_600)).priority(9).await.unwrap();
    assert!(nothing(&tasks).await);
    assert!(tasks.claim_key("later").try_now().await.unwrap().is_none());
    tasks.create("now").await.unwrap();
    assert_eq!(&**now(&tasks).await.key(), "now");
    let counts = tasks.counts().await.unwrap();
    assert_eq!((counts.ready, counts.delayed, counts.claimed), (0, 1, 1));
    let due = tasks.get("later").await.unwrap().unwrap().due;
    assert!(due > Duration::from_secs(3_000) && due <= Duration::from_secs(3_600), "{due:?}");
}

async fn a_claim_waits_for_a_time_to_come(locks: Locks) {
    let tasks = locks.tasks("pool");
    let (since, delay) = (Instant::now(), Duration::from_millis(150));
    tasks.create("soon").delay(delay).await.unwrap();
    let claim = tasks.claim().wait(SOON).await.unwrap().unwrap();
    assert_eq!(&**claim.key(), "soon");
    assert!(since.elapsed() >= delay.mul_f64(0.9), "before its time: {:?}", since.elapsed());
}

async fn asking_for_one_key_never_gives_another(locks: Locks) {
    let tasks = locks.tasks("pool");
    for key in ["a", "b", "c"] {
        tasks.create(key).await.unwrap();
    }
    let b = tasks.claim_key("b").try_now().await.unwrap().unwrap();
    assert_eq!(&**b.key(), "b");
    assert!(tasks.claim_key("b").try_now().await.unwrap().is_none());
    assert!(tasks.claim_key("d").try_now().await.unwrap().is_none());
    let short = Duration::from_millis(50);
    assert!(tasks.claim_key("b").wait(short).await.unwrap().is_none());
    assert_eq!(tasks.counts().await.unwrap().ready, 2);
}

async fn a_named_claim_waits_for_a_key_that_does_not_exist_yet(locks: Locks) {
    let tasks = locks.tasks("pool");
    let waiting = tokio::spawn(tasks.claim_key("wanted").wait(SOON).into_future());
    eventually(async || tasks.counts().await.unwrap().waiting == 1).await;
    tasks.create("other").await.unwrap();
    assert_eq!(tasks.counts().await.unwrap().waiting, 1, "not this one");
    tasks.create("wanted").body("x").await.unwrap();
    let claim = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!((&**claim.key(), claim.text()), ("wanted", Some("x")));
    assert_eq!(tasks.counts().await.unwrap().ready, 1);
}

async fn a_named_claim_waits_until_its_task_is_free(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let first = now(&tasks).await;
    let waiting = tokio::spawn(tasks.claim_key("a").wait(SOON).into_future());
    eventually(async || tasks.counts().await.unwrap().waiting == 1).await;
    let token = first.token();
    first.put_back().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().unwrap().token() > token);
}

async fn a_named_claim_and_an_any_claim_race_for_one_task_and_one_wins(locks: Locks) {
    let tasks = locks.tasks("pool");
    for round in 0..20 {
        let key = format!("k{round}");
        let named = tokio::spawn(tasks.claim_key(key.clone()).wait(SOON).into_future());
        let any = tokio::spawn(tasks.claim().wait(SOON).into_future());
        if round % 2 == 0 {
            eventually(async || tasks.counts().await.unwrap().waiting == 2).await;
        }
        tasks.create(key.clone()).await.unwrap();
        eventually(async || named.is_finished() || any.is_finished()).await;
        assert_eq!(state(&tasks, &key).await, TaskState::Claimed);
        assert!(!(named.is_finished() && any.is_finished()), "both have it");
        let (won, lost) = if named.is_finished() { (named, any) } else { (any, named) };
        let won = won.await.unwrap().unwrap().unwrap();
        assert_eq!(**won.key(), *key);
        won.done().await.unwrap();
        // The other one is an any-claim that goes on waiting, or is told that its task is done.
        lost.abort();
        eventually(async || tasks.counts().await.unwrap().waiting == 0).await;
        assert!(nothing(&tasks).await);
    }
}

async fn a_wait_with_nothing_free_ends_on_time(locks: Locks) {
    let tasks = locks.tasks("pool");
    let (since, wait) = (Instant::now(), Duration::from_millis(100));
    assert!(tasks.claim().wait(wait).await.unwrap().is_none());
    assert!(since.elapsed() >= wait.mul_f64(0.9), "too early: {:?}", since.elapsed());
    assert_eq!(tasks.counts().await.unwrap().waiting, 0);
    tasks.create("a").await.unwrap();
    assert_eq!(state(&tasks, "a").await, TaskState::Free, "nobody waits for it any more");
}

async fn a_wait_with_nothing_free_uses_no_processor_time(locks: Locks) {
    let tasks = locks.tasks("pool");
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    };
    let wait = Duration::from_secs(2);
    // What is used anyway: members of a cluster in this process never stop talking.
    let before = used();
    tokio::time::sleep(wait).await;
    let (idle, before) = (used().saturating_sub(before), used());
    let claims: Vec<_> =
        (0..10).map(|_| tokio::spawn(tasks.claim().wait(wait).into_future())).collect();
    for claim in claims {
        assert!(claim.await.unwrap().unwrap().is_none());
    }
    // A tenth of what one that looks again and again would use; all of it is in this process.
    let used = used().saturating_sub(before).saturating_sub(idle);
    assert!(used < wait / 10, "{used:?} of {wait:?}, beside {idle:?}");
}

async fn waiting_claims_are_served_in_the_order_of_their_arrival(locks: Locks) {
    let tasks = locks.tasks("pool");
    let mut waiting = Vec::new();
    for number in 0..4 {
        let ask = tasks.claim().owner(format!("worker {number}")).wait(SOON);
        waiting.push(tokio::spawn(ask.into_future()));
        eventually(async || tasks.counts().await.unwrap().waiting == number + 1).await;
    }
    for (number, waiting) in waiting.into_iter().enumerate() {
        let key = format!("k{number}");
        tasks.create(key.clone()).await.unwrap();
        let claim = waiting.await.unwrap().unwrap().unwrap();
        assert_eq!(**claim.key(), *key);
        let owner = tasks.get(&key).await.unwrap().unwrap().owner.unwrap();
        assert_eq!(*owner, *format!("worker {number}"));
    }
}

async fn a_claim_is_renewed_as_long_as_it_lives(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let lease = Duration::from_millis(1_500);
    let claim = tasks.claim().lease(lease).try_now().await.unwrap().unwrap();
    let before = claim.version();
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(nothing(&tasks).await);
    }
    assert_eq!(claim.is_lost(), None);
    assert_ne!(claim.version(), before, "renewals are writes");
    claim.done().await.unwrap();
}

async fn a_claim_never_races_itself(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").body("0").await.unwrap();
    // A lease so short that it is renewed all the time.
    let lease = locks.capabilities().shortest_lease.max(Duration::from_millis(300));
    let claim = Arc::new(tasks.claim().lease(lease).try_now().await.unwrap().unwrap());
    let updates: Vec<_> = (1..=40)
        .map(|number: u32| {
            let claim = Arc::clone(&claim);
            tokio::spawn(async move { claim.update(number.to_string()).await })
        })
        .collect();
    for (at, update) in updates.into_iter().enumerate() {
        match at % 4 {
            // Dropped half-way: it goes on, and the next ones know its version.
            0 => {
                update.abort();
                // Until it is gone, and its claim with it.
                drop(update.await);
            }
            _ => drop(update.await.unwrap().unwrap()),
        }
    }
    claim.renew().await.unwrap();
    assert_eq!(tasks.get("a").await.unwrap().unwrap().version, claim.version());
    Arc::into_inner(claim).unwrap().done().await.unwrap();
}

async fn a_lapsed_task_is_free_at_the_same_version(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let claim = lapsed(&locks, &tasks, "a").await;
    let task = tasks.get("a").await.unwrap().unwrap();
    assert_eq!((task.version, task.attempts), (claim.version(), 0), "that is not a write");
    assert_eq!(tasks.counts().await.unwrap().ready, 1);
    let next = now(&tasks).await;
    assert!(next.token() > claim.token());
}

async fn after_the_lease_an_update_succeeds_if_nobody_claimed_since(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let claim = lapsed(&locks, &tasks, "a").await;
    claim.update("more").await.unwrap();
    assert_eq!(claim.is_lost(), None, "it is good again");
    assert_eq!(state(&tasks, "a").await, TaskState::Claimed);
    assert!(nothing(&tasks).await);
}

async fn after_the_lease_an_update_fails_if_somebody_claimed_since(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").body("as it was").await.unwrap();
    let claim = lapsed(&locks, &tasks, "a").await;
    let next = now(&tasks).await;
    assert_eq!(claim.update("mine").await, Err(ChangeError::Stale(next.version())));
    assert_eq!(claim.lost().await, LostClaim::Taken);
    assert_eq!(claim.done().await, Err(ChangeError::Stale(next.version())));
    assert_eq!(tasks.get("a").await.unwrap().unwrap().version, next.version());
    // Also if whoever claimed it since is not at it any more.
    let version = next.put_back().await.unwrap().version;
    let claim = lapsed(&locks, &tasks, "a").await;
    assert_eq!(claim.attempts(), 1);
    assert!(claim.version() > version);
    now(&tasks).await.put_back().await.unwrap();
    assert!(matches!(claim.put_back().await, Err(ChangeError::Stale(_))));
    assert_eq!(tasks.get("a").await.unwrap().unwrap().attempts, 2);
}

async fn after_the_lease_done_and_put_back_succeed_if_nobody_claimed_since(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    tasks.create("b").await.unwrap();
    lapsed(&locks, &tasks, "a").await.done().await.unwrap();
    assert_eq!(state(&tasks, "a").await, TaskState::Done);
    let back = lapsed(&locks, &tasks, "b").await.put_back().error("late").await.unwrap();
    assert_eq!((back.state, back.attempts), (TaskState::Free, 1));
}

async fn a_stale_version_changes_nothing_and_says_so(locks: Locks) {
    let tasks = locks.tasks("pool");
    let created = tasks.create("a").body("as it was").await.unwrap().unwrap();
    let claim = now(&tasks).await;
    let before = tasks.get("a").await.unwrap().unwrap();
    let stale = ChangeError::Stale(claim.version());
    assert_eq!(tasks.update("a", created).body("x").await, Err(stale.clone()));
    assert_eq!(tasks.put_back("a", created).error("x").await, Err(stale.clone()));
    assert_eq!(tasks.done("a", created).await, Err(stale.clone()));
    assert_eq!(tasks.delete_version("a", created).await, Err(stale));
    let after = tasks.get("a").await.unwrap().unwrap();
    assert_eq!(
        (after.version, after.state, after.attempts, after.error, after.body),
        (before.version, before.state, before.attempts, before.error, before.body)
    );
    assert_eq!(tasks.update("no such", created).await, Err(ChangeError::NotFound));
    assert_eq!(tasks.done("no such", created).await, Err(ChangeError::NotFound));
    // By whoever knows the version, this process or another.
    let updated = tasks.update("a", claim.version()).lease(SOON).await.unwrap();
    assert!(updated.lease.is_some_and(|lease| lease <= SOON));
    tasks.done("a", updated.version).await.unwrap();
}

async fn a_body_is_replaced_for_the_next_worker(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").json("[]").await.unwrap();
    let claim = now(&tasks).await;
    claim.update("[0]").await.unwrap();
    claim.update_json("[1]").await.unwrap();
    claim.put_back().await.unwrap();
    let claim = now(&tasks).await;
    assert_eq!((claim.text(), claim.body().unwrap().json), (Some("[1]"), true));
    claim.renew().await.unwrap();
    claim.put_back().await.unwrap();
    assert_eq!(now(&tasks).await.text(), Some("[1]"), "a renewal leaves it");
}

async fn a_done_task_never_comes_back(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").body("kept").await.unwrap();
    let version = now(&tasks).await.done().await.unwrap();
    assert!(nothing(&tasks).await);
    let named = tasks.claim_key("a").wait(SOON).await;
    assert!(matches!(named, Err(ClaimError::Refused(TaskState::Done))), "{named:?}");
    assert_eq!(tasks.create("a").await.unwrap(), None, "kept until deleted");
    assert_eq!(tasks.retry_all().await, Ok(0));
    let back = tasks.put_back("a", version).await;
    assert_eq!(back, Err(ChangeError::Refused(TaskState::Done)));
    assert!(nothing(&tasks).await);
    let task = tasks.get("a").await.unwrap().unwrap();
    assert_eq!((task.state, &*task.body.unwrap().bytes), (TaskState::Done, &b"kept"[..]));
}

async fn who_goes_on_is_done_and_has_the_next_task(locks: Locks) {
    let tasks = locks.tasks("pool");
    for key in ["a", "b", "c"] {
        tasks.create(key).body(key).await.unwrap();
    }
    let (mut claimed, mut keys) = (tasks.claim().try_now().await.unwrap(), Vec::new());
    while let Some(claim) = claimed {
        keys.push(claim.key().to_string());
        let (before, version) = (claim.key().clone(), claim.version());
        let (done, next) = claim.done_and(tasks.claim().try_now().owner("goes on")).await;
        assert_ne!(done.unwrap(), version);
        assert_eq!(state(&tasks, &before).await, TaskState::Done);
        claimed = next.await.unwrap();
    }
    assert_eq!(keys, ["a", "b", "c"]);
    assert_eq!(tasks.counts().await.unwrap().done, 3);
    // One that waits is not waited for by who is done.
    tasks.create("d").await.unwrap();
    let (done, next) = now(&tasks).await.done_and(tasks.claim().wait(SOON)).await;
    done.unwrap();
    tasks.create("e").await.unwrap();
    assert_eq!(&**next.await.unwrap().expect("it waited for it").key(), "e");
}

async fn the_next_task_comes_also_if_the_one_before_was_lost(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let lost = lapsed(&locks, &tasks, "a").await;
    let other = now(&tasks).await;
    tasks.create("b").await.unwrap();
    let (done, next) = lost.done_and(tasks.claim().try_now()).await;
    assert!(matches!(done, Err(ChangeError::Stale(_))), "{done:?}");
    assert_eq!(&**next.await.unwrap().expect("a task is free").key(), "b");
    other.done().await.unwrap();
}

async fn who_goes_on_after_its_lease_does_not_get_the_same_task_again(locks: Locks) {
    let tasks = locks.tasks("pool");
    for key in ["a", "b", "c"] {
        tasks.create(key).await.unwrap();
        // Of those that are due it is the first, in whatever way a store keeps them.
        let lapsed = lapsed(&locks, &tasks, key).await;
        assert_eq!(tasks.counts().await.unwrap().ready, 1);
        let (done, next) = lapsed.done_and(tasks.claim().try_now()).await;
        done.expect("nobody has claimed it since");
        assert!(next.await.unwrap().is_none(), "it is done");
    }
    assert_eq!(tasks.counts().await.unwrap().done, 3);
}

async fn dropping_the_next_claim_frees_its_task_at_once(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    tasks.create("b").await.unwrap();
    let (done, next) = now(&tasks).await.done_and(tasks.claim().try_now()).await;
    done.unwrap();
    // Whether it has its answer by now or not.
    drop(next);
    let claim = tasks.claim().wait(SOON).await.unwrap().expect("it is free again");
    assert_eq!((&**claim.key(), claim.attempts()), ("b", 0));
}

async fn whoever_waits_for_a_task_that_gets_done_is_told(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let claim = now(&tasks).await;
    let waiting = tokio::spawn(tasks.claim_key("a").wait(SOON).into_future());
    eventually(async || tasks.counts().await.unwrap().waiting == 1).await;
    claim.done().await.unwrap();
    let told = waiting.await.unwrap();
    assert!(matches!(told, Err(ClaimError::Refused(TaskState::Done))), "{told:?}");
}

async fn a_task_is_put_back_now_or_later_and_the_attempt_counts(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    now(&tasks).await.put_back().error("first").await.unwrap();
    let claim = now(&tasks).await;
    assert_eq!(claim.attempts(), 1);
    let back = claim.put_back().delay(Duration::from_secs(3_600)).await.unwrap();
    assert_eq!((back.state, back.attempts), (TaskState::Free, 2));
    assert!(nothing(&tasks).await);
    let task = tasks.get("a").await.unwrap().unwrap();
    assert_eq!((task.attempts, task.error.as_deref()), (2, Some("first")));
    assert_eq!(tasks.counts().await.unwrap().delayed, 1);
}

async fn after_the_last_attempt_a_task_is_failed_with_its_last_error(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").attempts(2).await.unwrap();
    assert_eq!(now(&tasks).await.put_back().error("one").await.unwrap().state, TaskState::Free);
    let waiting_claim = now(&tasks).await;
    let waiting = tokio::spawn(tasks.claim_key("a").wait(SOON).into_future());
    eventually(async || tasks.counts().await.unwrap().waiting == 1).await;
    let back = waiting_claim.put_back().error("two").await.unwrap();
    assert_eq!((back.state, back.attempts), (TaskState::Failed, 2));
    let told = waiting.await.unwrap();
    assert!(matches!(told, Err(ClaimError::Refused(TaskState::Failed))), "{told:?}");
    assert!(nothing(&tasks).await);
    let task = tasks.get("a").await.unwrap().unwrap();
    assert_eq!((task.state, task.error.as_deref()), (TaskState::Failed, Some("two")));
    assert_eq!(tasks.counts().await.unwrap().failed, 1);
}

async fn failed_tasks_are_free_again_when_told(locks: Locks) {
    let tasks = locks.tasks("pool");
    for key in ["a", "b", "c"] {
        tasks.create(key).attempts(1).await.unwrap();
        now(&tasks).await.put_back().await.unwrap();
    }
    assert!(tasks.retry("b").await.unwrap());
    assert!(!tasks.retry("b").await.unwrap(), "it is not failed any more");
    let claim = now(&tasks).await;
    assert_eq!((&**claim.key(), claim.attempts()), ("b", 0));
    let waiting = tokio::spawn(tasks.claim().wait(SOON).into_future());
    eventually(async || tasks.counts().await.unwrap().waiting == 1).await;
    assert_eq!(tasks.retry_all().await, Ok(2));
    assert!(waiting.await.unwrap().unwrap().is_some(), "whoever waits gets one");
}

async fn a_deleted_task_is_gone_and_its_worker_finds_out(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let claim = now(&tasks).await;
    assert!(tasks.delete("a").await.unwrap());
    assert!(!tasks.delete("a").await.unwrap());
    assert_eq!(claim.renew().await, Err(ChangeError::NotFound));
    assert_eq!(claim.lost().await, LostClaim::Deleted);
    assert_eq!(claim.done().await, Err(ChangeError::NotFound));
    // Another one with this key is none of its business.
    tasks.create("b").await.unwrap();
    let claim = now(&tasks).await;
    tasks.delete_version("b", claim.version()).await.unwrap();
    tasks.create("b").await.unwrap();
    assert!(matches!(claim.done().await, Err(ChangeError::Stale(_))));
    assert_eq!(state(&tasks, "b").await, TaskState::Free);
}

async fn dropping_a_claim_stops_its_renewal(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let lease = Duration::from_millis(1_200);
    let claim = tasks.claim().lease(lease).try_now().await.unwrap().unwrap();
    drop(claim);
    assert!(nothing(&tasks).await, "free when the lease ends, and not before");
    let next = tasks.claim().wait(SOON).await.unwrap().unwrap();
    assert_eq!(next.attempts(), 0);
}

async fn dropping_a_waiting_claim_leaves_nothing_behind(locks: Locks) {
    let tasks = locks.tasks("pool");
    for round in 0..20 {
        let waiting = tokio::spawn(tasks.claim().wait(SOON).into_future());
        if round < 10 {
            eventually(async || tasks.counts().await.unwrap().waiting == 1).await;
        }
        let create = tasks.create(format!("k{round}"));
        // Before, while and after it gets the task.
        let ((), created) = tokio::join!(async { waiting.abort() }, create.into_future());
        created.unwrap();
        let withdrawn = waiting.await.is_err();
        eventually(async || tasks.counts().await.unwrap().waiting == 0).await;
        locks.close().await;
        if withdrawn {
            // It never got the task, or has given it back at once, and that counts as no attempt.
            eventually(async || tasks.counts().await.unwrap().ready == 1).await;
            let task = tasks.get(&format!("k{round}")).await.unwrap().unwrap();
            assert_eq!(task.attempts, 0);
        }
        tasks.delete(&format!("k{round}")).await.unwrap();
    }
}

/// Whoever ends calls `close` and nothing more: then all of it must have happened.
async fn a_claim_that_is_withdrawn_on_its_way_keeps_no_task(locks: Locks) {
    let tasks = locks.tasks("pool");
    let before = tasks.create("a").await.unwrap().unwrap();
    for micros in (0..6_000).step_by(200) {
        let ask = tasks.claim().lease(Duration::ZERO).into_future();
        let asked = tokio::time::timeout(Duration::from_micros(micros), ask).await;
        if let Ok(claimed) = asked {
            claimed.unwrap().expect("it is free").release().await.unwrap();
        }
        locks.close().await;
        let task = tasks.get("a").await.unwrap().unwrap();
        assert!(task.lease.is_some() || task.state == TaskState::Free, "{micros} us: {task:?}");
        // Where leases are long it takes a moment.
        eventually(async || state(&tasks, "a").await == TaskState::Free).await;
    }
    let after = tasks.get("a").await.unwrap().unwrap();
    assert!(after.version > before && after.attempts == 0, "some of them had got it");
}

async fn tokens_grow_with_every_claim(locks: Locks) {
    let tasks = locks.tasks("pool");
    tasks.create("a").attempts(0).await.unwrap();
    let mut last = 0;
    for round in 0..30 {
        let claim = now(&tasks).await;
        assert!(claim.token() > last);
        last = claim.token();
        claim.renew().await.unwrap();
        assert_eq!(claim.token(), last, "one claim, one token");
        let version = claim.put_back().await.unwrap().version;
        if round % 10 == 9 {
            tasks.delete_version("a", version).await.unwrap();
            tasks.create("a").attempts(0).await.unwrap();
        }
    }
}

async fn lists_show_tasks_and_counts_their_states(locks: Locks) {
    let tasks = locks.tasks("pool");
    for key in ["a1", "a2", "b1", "b2", "b3"] {
        tasks.create(key).priority(4).await.unwrap();
    }
    tasks.create("later").delay(SOON).await.unwrap();
    let claim = tasks.claim_key("b1").owner("ann").try_now().await.unwrap().unwrap();
    now(&tasks).await.done().await.unwrap();
    let keys = |list: Vec<keylatch::Task>| -> Vec<String> {
        list.iter().map(|task| task.key.to_string()).collect()
    };
    assert_eq!(
        keys(tasks.list().await.unwrap()),
        ["a1", "a2", "b1", "b2", "b3", "later"],
        "in the order of creation"
    );
    assert_eq!(keys(tasks.list().prefix("b").await.unwrap()), ["b1", "b2", "b3"]);
    let free = tasks.list().state(TaskState::Free).limit(2).await.unwrap();
    let after = free[1].number;
    assert_eq!(keys(free), ["a2", "b2"]);
    let rest = tasks.list().state(TaskState::Free).after(after).await.unwrap();
    assert_eq!(keys(rest), ["b3", "later"]);
    let shown = &tasks.list().state(TaskState::Claimed).await.unwrap()[0];
    assert_eq!(
        (&*shown.key, shown.owner.as_deref(), shown.token, shown.priority, shown.version),
        ("b1", Some("ann"), claim.token(), 4, claim.version())
    );
    assert!(shown.lease.is_some() && shown.claimed.is_some());
    let counts = tasks.counts().await.unwrap();
    let expected = PoolCounts {
        pool: "pool".into(),
        ready: 3,
        delayed: 1,
        claimed: 1,
        done: 1,
        failed: 0,
        waiting: 0,
    };
    assert_eq!(counts, expected);
    assert_eq!(locks.pools().await.unwrap(), [expected]);
}

async fn pools_are_apart(locks: Locks) {
    let (one, two) = (locks.tasks("one"), locks.tasks("two"));
    one.create("a").body("1").await.unwrap();
    two.create("a").body("2").await.unwrap();
    assert_eq!(now(&two).await.text(), Some("2"));
    assert!(nothing(&two).await);
    assert_eq!(one.counts().await.unwrap().ready, 1);
    assert_eq!(locks.tasks("none").counts().await.unwrap().ready, 0);
    assert_eq!(locks.tasks("none").list().await.unwrap(), []);
    // Locks of the same name have nothing to do with it.
    assert!(locks.lock("one").try_now().await.is_ok());
}

async fn bad_commands_are_refused_with_a_reason(locks: Locks) {
    let tasks = locks.tasks("pool");
    let long = "x".repeat(2_000);
    for create in [
        tasks.create(""),
        tasks.create(long.clone()),
        locks.tasks("").create("a"),
        locks.tasks(long.clone()).create("a"),
        tasks.create("a").body(vec![0; 70_000]),
        tasks.create("a").delay(Duration::from_secs(1 << 40)),
    ] {
        let refused = create.await;
        let Err(TaskError::Invalid(reason)) = refused else { panic!("{refused:?}") };
        assert!(!reason.is_empty());
    }
    for claim in [
        tasks.claim_key(""),
        tasks.claim().owner(long.clone()),
        tasks.claim().lease(Duration::from_secs(1 << 40)),
        tasks.claim().wait(Duration::from_secs(1 << 40)),
    ] {
        let refused = claim.await;
        assert!(matches!(refused, Err(ClaimError::Task(TaskError::Invalid(_)))), "{refused:?}");
    }
    tasks.create("a").await.unwrap();
    let claim = now(&tasks).await;
    let refused = claim.put_back().error(long).await;
    assert!(matches!(refused, Err(ChangeError::Task(TaskError::Invalid(_)))), "{refused:?}");
    assert_eq!(state(&tasks, "a").await, TaskState::Claimed);
}

async fn what_happens_to_claims_is_told(locks: Locks) {
    let tasks = locks.tasks("pool");
    let watch = tasks.watch().await;
    if !locks.capabilities().watch {
        let Err(ListError::Refused(text)) = watch else { panic!("it watches") };
        return assert!(text.contains("does not tell what happens"), "{text}");
    }
    let mut watch = watch.unwrap();
    assert!(locks.tasks("other").claim().wait(Duration::from_millis(1)).await.unwrap().is_none());
    assert!(tasks.claim().wait(Duration::from_millis(20)).await.unwrap().is_none());
    let next = async |watch: &mut Watch| match watch.next().await {
        Some(Event::Task(event)) => event.what,
        other => panic!("{other:?}"),
    };
    assert_eq!(next(&mut watch).await, ClaimEvent::TimedOut, "nothing of other pools");
    let waiting = tokio::spawn(tasks.claim().wait(SOON).into_future());
    eventually(async || tasks.counts().await.unwrap().waiting == 1).await;
    tasks.create("a").await.unwrap();
    let claim = waiting.await.unwrap().unwrap().unwrap();
    let told = next(&mut watch).await;
    assert!(
        matches!(told, ClaimEvent::Claimed { token, .. } if token == claim.token()),
        "{told:?}"
    );
    let (key, token) = (claim.key().clone(), claim.token());
    tasks.update("a", claim.version()).lease(Duration::from_millis(1)).await.unwrap();
    assert_eq!(next(&mut watch).await, ClaimEvent::Lapsed { key, token });
}

async fn every_task_is_done_once_by_many_workers(locks: Locks) {
    let tasks = locks.tasks("pool");
    let done = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let (tasks, done) = (tasks.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let claim = || tasks.claim().owner(format!("worker {number}")).wait(SOON);
                while let Some(claim) = claim().await.unwrap() {
                    if &**claim.key() == "end" {
                        // Another one ends by it too.
                        claim.put_back().await.unwrap();
                        return;
                    }
                    let key: u64 = claim.key().parse().unwrap();
                    if key.is_multiple_of(7) && claim.attempts() == 0 {
                        claim.put_back().error("once more").await.unwrap();
                        continue;
                    }
                    claim.done().await.unwrap();
                    done.lock().push(key);
                }
            })
        })
        .collect();
    tasks.create_many((0..200).map(|key| tasks.create(key.to_string()))).await.unwrap();
    eventually(async || tasks.counts().await.unwrap().done == 200).await;
    tasks.create("end").attempts(0).await.unwrap();
    for worker in workers {
        worker.await.unwrap();
    }
    let mut done = done.lock().clone();
    done.sort_unstable();
    assert_eq!(done, (0..200).collect::<Vec<u64>>());
}
