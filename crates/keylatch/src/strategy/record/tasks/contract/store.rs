//! Through the store's own calls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{
    Checked, Claim, ClaimStanding, Command, PoolCounts, TaskAction, TaskStanding, TaskState,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::super::contract::Ground;
use super::super::super::format::FRESH;
use super::super::store::{
    Change, Page, Put, Ready, Seen, Stamp, Take, Taken, TaskRecord, TaskStore, Told, Write, Written,
};
use super::super::{decide, format};
use super::{LONG_MS, POOL, any, command, named, new, open};
use crate::tasks::GIVEN_BACK_MS;

fn put(key: &str, expect: Option<u64>, ready: Ready) -> Change {
    let put = Put {
        state: TaskState::Free,
        priority: 0,
        ready,
        bytes: key.as_bytes().into(),
        claim: Vec::new().into(),
    };
    Change { pool: POOL.into(), key: key.into(), expect, write: Write::Put(put) }
}

/// A task as the strategy would create it.
fn created(key: &str, priority: i32, delay_ms: u64) -> Change {
    let mut create = new(key);
    (create.priority, create.delay_ms) = (priority, delay_ms);
    let seen = Seen { now: 0, record: None };
    let command = command(&format!("create {key}"), TaskAction::Create(create));
    let write = decide::decide(&seen, key, &command).unwrap().write.unwrap();
    Change { pool: POOL.into(), key: key.into(), expect: None, write }
}

fn take(id: &str, claim: &Claim) -> Take {
    let command = command(id, TaskAction::Claim(claim.clone()));
    decide::take(&command, claim, false, 1)
}

async fn done(store: &dyn TaskStore, change: Change) -> Stamp {
    match store.change(change).await.unwrap() {
        Written::Done(stamp) => stamp,
        Written::Other(seen) => panic!("{seen:?}"),
    }
}

async fn read(store: &dyn TaskStore, key: &str) -> Option<TaskRecord> {
    store.task(&POOL.into(), &key.into()).await.unwrap().record
}

async fn taken(store: &dyn TaskStore, id: &str, claim: &Claim) -> Option<TaskRecord> {
    match store.take(take(id, claim)).await.unwrap() {
        Taken::Task { record, .. } => Some(record),
        Taken::Nothing { .. } => None,
    }
}

/// Rule 1.
pub(crate) async fn a_task_is_written_if_it_is_as_expected(ground: &impl Ground) {
    let (ann, bob) = (open(ground).await, open(ground).await);
    assert_eq!(read(&*ann, "a").await, None);
    let first = done(&*ann, put("a", None, Ready::After(0))).await;
    let record = read(&*bob, "a").await.unwrap();
    assert_eq!((record.last, record.written, record.number), (first, first, first.version));
    assert_eq!((&*record.bytes, record.state), (&b"a"[..], TaskState::Free));
    for (expect, is_there) in [(None, true), (Some(first.version + 1), true)] {
        match bob.change(put("a", expect, Ready::Never)).await.unwrap() {
            Written::Other(seen) => assert_eq!(seen.record.is_some(), is_there),
            Written::Done(_) => panic!("{expect:?} was not so"),
        }
    }
    match bob.change(put("b", Some(first.version), Ready::Never)).await.unwrap() {
        Written::Other(seen) => assert_eq!(seen.record, None),
        Written::Done(_) => panic!("there is no b"),
    }
    assert_eq!(read(&*bob, "a").await.unwrap(), record, "nothing has changed");
    assert_eq!(read(&*bob, "b").await, None);
    let second = done(&*bob, put("a", Some(first.version), Ready::Never)).await;
    let after = read(&*ann, "a").await.unwrap();
    assert_eq!((after.last.version, after.number), (second.version, first.version));
    assert_eq!(after.ready, None);
    let gone = Change { write: Write::Delete, ..put("a", Some(second.version), Ready::Never) };
    let old = Change { write: Write::Delete, ..put("a", Some(first.version), Ready::Never) };
    assert!(matches!(ann.change(old).await.unwrap(), Written::Other(_)));
    done(&*ann, gone.clone()).await;
    assert_eq!(read(&*ann, "a").await, None);
    assert!(matches!(ann.change(gone).await.unwrap(), Written::Other(_)));
}

/// Rule 2.
pub(crate) async fn versions_never_repeat(ground: &impl Ground) {
    let (ann, bob) = (open(ground).await, open(ground).await);
    let (mut last, mut time) = (0, 0);
    for round in 0..10 {
        let side = if round % 2 == 0 { &ann } else { &bob };
        let made = done(&**side, put("a", None, Ready::After(0))).await;
        let claimed = taken(&**side, &format!("claim {round}"), &any()).await.unwrap();
        assert!(made.version > last && claimed.last.version > made.version, "they grow");
        assert!(ground.has_own_leases() || made.time >= time, "time runs forward");
        assert_eq!(claimed.written.version, made.version, "a take does not count as such");
        let expect = Some(claimed.last.version);
        let gone = Change { write: Write::Delete, ..put("a", expect, Ready::Never) };
        done(&*ann, gone).await;
        (last, time) = (claimed.last.version, made.time);
    }
}

/// Rule 3: over and over, what the store gives is what the rules give, and what then stands is the same.
pub(crate) async fn what_is_taken_is_what_the_table_would_give(ground: &impl Ground) {
    let store = open(ground).await;
    let tasks = [
        ("late", 9, LONG_MS),
        ("low", -5, 0),
        ("old", 0, 0),
        ("new", 0, 0),
        ("high", 7, 0),
        ("higher", i32::MAX, 0),
        ("lowest", i32::MIN, 0),
        ("later", 0, LONG_MS),
    ];
    for (key, priority, delay_ms) in tasks {
        done(&*store, created(key, priority, delay_ms)).await;
    }
    for (round, claim) in
        [any(), any(), named("new"), any(), named("late"), any(), any(), any()].iter().enumerate()
    {
        let all = Page { pool: POOL.into(), state: None, after: 0, limit: 100 };
        let (now, before) = store.page(all).await.unwrap();
        assert_eq!(before.len(), tasks.len());
        let id = format!("claim {round}");
        let record = taken(&*store, &id, claim).await;
        let mut table = decide::table(now, &before).unwrap();
        table.apply(now, Command::Task(command(&id, TaskAction::Claim(claim.clone()))));
        let stands = before.iter().filter_map(|record| table.task_standing(POOL, &record.key));
        let by_rules = stands.into_iter().find(|standing| standing.version > FRESH);
        let plain = |standing: TaskStanding| TaskStanding {
            version: 0,
            answers: Vec::new(),
            claim: standing.claim.map(|claim| ClaimStanding {
                token: 0,
                at: 0,
                end: None,
                ..claim
            }),
            // Of one that is claimed it says nothing.
            ready: 0,
            ..standing
        };
        let by_store = record.map(|record| {
            let standing = format::decode(&record, record.last.time).unwrap();
            let claim = standing.claim.as_ref().unwrap();
            assert_eq!((claim.token, claim.at), (record.last.version, record.last.time));
            assert_eq!(claim.end, Some(record.last.time + LONG_MS));
            plain(standing)
        });
        assert_eq!(by_store, by_rules.map(plain), "in round {round}");
    }
}

/// Rule 5.
pub(crate) async fn a_repeated_take_takes_nothing_more(ground: &impl Ground) {
    let (ann, bob) = (open(ground).await, open(ground).await);
    for key in ["a", "b", "c"] {
        done(&*ann, created(key, 0, 0)).await;
    }
    let first = taken(&*ann, "one", &any()).await.unwrap();
    assert_eq!(taken(&*ann, "one", &any()).await.unwrap(), first);
    assert_eq!(taken(&*bob, "one", &any()).await.unwrap(), first);
    let second = taken(&*bob, "two", &named("b")).await.unwrap();
    assert_eq!(taken(&*ann, "two", &named("b")).await.unwrap(), second);
    let third = taken(&*bob, "three", &any()).await.unwrap();
    assert_eq!([&*first.key, &*second.key, &*third.key], ["a", "b", "c"]);
    assert_eq!(taken(&*bob, "four", &any()).await, None);
}

/// Rule 4.
pub(crate) async fn a_lease_that_ran_out_is_no_write(ground: &impl Ground) {
    let store = open(ground).await;
    done(&*store, created("a", 0, 0)).await;
    let short = Claim { lease_ms: ground.life_ms(), ..any() };
    let first = taken(&*store, "one", &short).await.unwrap();
    let mut id = 0;
    let second = loop {
        let read = read(&*store, "a").await.unwrap();
        assert_eq!(read.last, first.last);
        id += 1;
        if let Some(record) = taken(&*store, &format!("next {id}"), &any()).await {
            break record;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(second.last.version > first.last.version);
    if !ground.has_own_leases() {
        assert!(second.last.time >= first.last.time + ground.life_ms(), "not too early");
    }
    assert_eq!((second.number, &second.bytes), (first.number, &first.bytes));
}

/// Rule 1, for a process that gives a task back and ends.
pub(crate) async fn what_is_given_back_is_free_though_its_writer_has_gone(ground: &impl Ground) {
    let (ends, other) = (open(ground).await, open(ground).await);
    done(&*ends, created("a", 0, 0)).await;
    let first = taken(&*ends, "one", &any()).await.unwrap();
    let checked = Checked { key: "a".into(), version: first.last.version };
    let back = command("back", TaskAction::Update(checked, None, Some(GIVEN_BACK_MS)));
    let seen = Seen { now: first.last.time, record: Some(first.clone()) };
    let write = decide::decide(&seen, "a", &back).unwrap().write.unwrap();
    let expect = Some(first.last.version);
    done(&*ends, Change { pool: POOL.into(), key: "a".into(), expect, write }).await;
    drop(ends);
    // Longer than it is still leased for.
    tokio::time::sleep(Duration::from_millis(20 * GIVEN_BACK_MS)).await;
    let second = taken(&*other, "two", &any()).await.expect("it is free");
    assert_eq!(second.number, first.number);
}

/// Rule 3: however many want it.
pub(crate) async fn one_task_is_taken_by_one(ground: &impl Ground) {
    let sides = [open(ground).await, open(ground).await, open(ground).await];
    for round in 0..4 {
        for number in 0..5 {
            done(&*sides[0], created(&format!("{round} {number}"), 0, 0)).await;
        }
        let mut all = tokio::task::JoinSet::new();
        for number in 0..24 {
            let store = Arc::clone(&sides[number % 3]);
            // Some want one of them by name.
            let claim = match number % 4 {
                0 => named(&format!("{round} {}", number % 5)),
                _ => any(),
            };
            all.spawn(async move { taken(&*store, &format!("{round}:{number}"), &claim).await });
        }
        let all = all.join_all().await;
        let keys: Vec<String> = all.into_iter().flatten().map(|one| one.key.to_string()).collect();
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{keys:?}");
        // Those who wanted another one by name may have come too late.
        assert_eq!(keys.len(), 5, "{keys:?}");
    }
}

pub(crate) async fn a_pool_is_read_in_pages_and_counted(ground: &impl Ground) {
    let store = open(ground).await;
    assert_eq!(store.counts(None).await.unwrap(), []);
    for number in 0..25 {
        let delay_ms = if number < 20 { 0 } else { LONG_MS };
        done(&*store, created(&format!("t{number:02}"), 0, delay_ms)).await;
    }
    let other = Change { pool: "other".into(), ..created("x", 0, 0) };
    done(&*store, other).await;
    for number in 0..6 {
        let record = taken(&*store, &format!("claim {number}"), &any()).await.unwrap();
        if number < 4 {
            let state = if number < 1 { TaskState::Done } else { TaskState::Failed };
            let ended = put(&record.key, Some(record.last.version), Ready::Never);
            let Write::Put(put) = ended.write else { unreachable!() };
            let (bytes, claim) = (record.bytes, record.claim);
            let write = Write::Put(Put { state, bytes, claim, ..put });
            done(&*store, Change { write, ..ended }).await;
        }
    }
    let page = |state, after, limit| Page { pool: POOL.into(), state, after, limit };
    let keys = |records: &[TaskRecord]| {
        records.iter().map(|record| record.key.to_string()).collect::<Vec<_>>()
    };
    let (_, first) = store.page(page(None, 0, 10)).await.unwrap();
    assert_eq!(keys(&first), (0..10).map(|number| format!("t{number:02}")).collect::<Vec<_>>());
    let (_, next) = store.page(page(None, first[9].number, 100)).await.unwrap();
    assert_eq!(keys(&next), (10..25).map(|number| format!("t{number:02}")).collect::<Vec<_>>());
    let (_, failed) = store.page(page(Some(TaskState::Failed), 0, 2)).await.unwrap();
    assert_eq!(keys(&failed), ["t01", "t02"]);
    let after = failed[1].number;
    let (_, failed) = store.page(page(Some(TaskState::Failed), after, 2)).await.unwrap();
    assert_eq!(keys(&failed), ["t03"]);
    let (_, held) = store.page(page(Some(TaskState::Claimed), 0, 9)).await.unwrap();
    assert_eq!(keys(&held), ["t04", "t05"]);
    let counts = store.counts(Some(POOL.into())).await.unwrap();
    let [counts] = &counts[..] else { panic!("{counts:?}") };
    assert_eq!((counts.ready, counts.delayed, counts.claimed), (14, 5, 2));
    assert_eq!((counts.done, counts.failed), (1, 3));
    let all = store.counts(None).await.unwrap();
    assert_eq!(all.iter().map(|one| &*one.pool).collect::<Vec<_>>(), [POOL, "other"]);
    assert_eq!(all[1].ready, 1);
    assert_eq!(store.counts(Some("none".into())).await.unwrap(), []);
}

/// Also if a store looks only at the beginning of it.
pub(crate) async fn a_long_line_keeps_its_order_and_is_counted(ground: &impl Ground) {
    let store = open(ground).await;
    let key = |number: i32| format!("{number:03}");
    for number in 0..60 {
        done(&*store, created(&key(number), number % 3, 0)).await;
    }
    for number in 60..100 {
        done(&*store, created(&key(number), 9, LONG_MS)).await;
    }
    let line = (0..3).rev().flat_map(|priority| (0..60).filter(move |it| it % 3 == priority));
    for (round, number) in line.enumerate() {
        if round % 10 == 5 {
            let urgent = format!("urgent {round}");
            done(&*store, created(&urgent, 5, 0)).await;
            let record = taken(&*store, &urgent, &any()).await.unwrap();
            assert_eq!(*record.key, *urgent, "it goes before all of them");
        }
        let record = taken(&*store, &format!("claim {round}"), &any()).await.unwrap();
        assert_eq!(*record.key, *key(number), "in round {round}");
        let state = [TaskState::Claimed, TaskState::Done, TaskState::Failed][round % 3];
        if state != TaskState::Claimed {
            let mut change = put(&record.key, Some(record.last.version), Ready::Never);
            if let Write::Put(put) = &mut change.write {
                (put.state, put.priority) = (state, record.priority);
            }
            done(&*store, change).await;
        }
    }
    assert!(taken(&*store, "one more", &any()).await.is_none());
    let counts = store.counts(Some(POOL.into())).await.unwrap();
    let [counts] = &counts[..] else { panic!("{counts:?}") };
    let PoolCounts { ready, delayed, claimed, done, failed, .. } = *counts;
    assert_eq!((ready, delayed, claimed, done, failed), (0, 40, 26, 20, 20));
}

pub(crate) async fn pools_keys_and_bodies_may_be_anything(ground: &impl Ground) {
    let store = open(ground).await;
    let odd = ["a\u{0}b 'ü' \r\n", "a", "a:b", "a\u{0}", " ", "%{x}", &"k".repeat(512)];
    let bytes: Arc<[u8]> = (0..=255u8).cycle().take(65_536).collect();
    for pool in odd {
        for key in odd {
            let change = put(key, None, Ready::After(0));
            let Write::Put(put) = change.write else { unreachable!() };
            let write = Write::Put(Put { bytes: Arc::clone(&bytes), ..put });
            done(&*store, Change { pool: pool.into(), write, ..change }).await;
        }
    }
    for pool in odd {
        let page = Page { pool: pool.into(), state: None, after: 0, limit: 100 };
        let (_, records) = store.page(page).await.unwrap();
        assert_eq!(records.iter().map(|record| &*record.key).collect::<Vec<_>>(), odd);
        assert!(records.iter().all(|record| record.bytes == bytes && *record.pool == *pool));
        for key in odd {
            let take =
                Take { pool: pool.into(), ..take(&format!("{}{}", pool.len(), key.len()), &any()) };
            // Ids of requests are not to be mixed up with each other.
            let take = Take { id: format!("{pool:.9}/{key:.9}").as_str().into(), ..take };
            let taken = store.take(take).await.unwrap();
            assert!(matches!(taken, Taken::Task { record, .. } if *record.key == *key));
        }
    }
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.len(), odd.len());
    assert!(counts.iter().all(|counts| counts.claimed == odd.len() as u64));
}

async fn heard(told: &mut UnboundedReceiver<Told>) -> (String, Option<u64>) {
    loop {
        match told.recv().await.expect("the store tells as long as it is there") {
            Told::Changed { pool, key, due_ms } => {
                assert_eq!(&*pool, POOL, "this is not for anyone to know");
                return (key.to_string(), due_ms);
            }
            Told::Anything => {}
        }
    }
}

/// Rule 7. A store that cannot tell exactly is looked at by the tests of those who wait.
pub(crate) async fn only_those_who_wait_are_told(ground: &impl Ground) {
    if !ground.tells_exactly() {
        return;
    }
    let (ann, bob) = (open(ground).await, open(ground).await);
    let mut told = bob.told();
    // Nobody waits.
    let quiet = done(&*ann, put("quiet", None, Ready::After(LONG_MS))).await;
    let waits = Take { waits: true, ..take("w", &any()) };
    let nothing = bob.take(waits).await.unwrap();
    match nothing {
        Taken::Nothing { next_ms: Some(ms), .. } => assert!(ms <= LONG_MS && ms > LONG_MS / 2),
        Taken::Nothing { next_ms: None, .. } if ground.has_own_leases() => {}
        other => panic!("{other:?}"),
    }
    let other = put("not here", None, Ready::After(0));
    done(&*ann, Change { pool: "other".into(), ..other }).await;
    let later = done(&*ann, put("later", None, Ready::After(LONG_MS))).await;
    done(&*ann, put("now", None, Ready::After(0))).await;
    done(&*ann, put("later", Some(later.version), Ready::Never)).await;
    done(&*ann, put("quiet", Some(quiet.version), Ready::Never)).await;
    assert_eq!(heard(&mut told).await, ("later".into(), Some(LONG_MS)));
    assert_eq!(heard(&mut told).await, ("now".into(), Some(0)));
    assert_eq!(heard(&mut told).await, ("later".into(), None));
    assert_eq!(heard(&mut told).await, ("quiet".into(), None));
    assert!(taken(&*ann, "claim", &any()).await.is_some());
    assert_eq!(heard(&mut told).await, ("now".into(), Some(LONG_MS)));
}
