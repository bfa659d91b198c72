//! Locks in threads without a runtime, and in places where they are not meant to be.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{HANG, Place, SOON};
use keylatch::blocking::{Locks, Watch};
use keylatch::{
    Event, LockError, LocksQuery, Lost, Mode, PromoteError, Released, RequestId, RunError,
};

macro_rules! each {
    ($($name:ident),* $(,)?) => {
        mod memory { $(#[test] fn $name() { super::run(super::Place::Memory, super::$name); })* }
        mod sqlite { $(#[test] fn $name() { super::run(super::Place::Sqlite, super::$name); })* }
        mod server { $(#[test] fn $name() { super::run(super::Place::Server, super::$name); })* }
    };
}

each![
    a_lock_is_exclusive_until_it_is_released,
    a_dropped_guard_releases_before_what_is_asked_later,
    no_update_is_lost,
    a_loss_is_waited_for,
    a_function_runs_under_its_lock,
    a_lock_is_promoted,
    a_lock_is_kept_and_ended_by_its_id,
    inside_of_a_runtime_it_works_too,
    tasks_are_claimed_and_done,
];

fn run(place: Place, test: impl FnOnce(&Locks) + Send + 'static) {
    common::with_url(place, |url| {
        let locks = Locks::connect(url).unwrap();
        // A hang is a failure, also here where nothing can be cancelled.
        let thread = std::thread::spawn(move || test(&locks));
        let since = Instant::now();
        while !thread.is_finished() {
            assert!(since.elapsed() < HANG, "a test that hangs");
            std::thread::sleep(Duration::from_millis(2));
        }
        thread.join().unwrap();
    });
}

fn waiters(locks: &Locks) -> usize {
    let all = locks.list(LocksQuery { waiters: true, ..LocksQuery::default() }).unwrap();
    all.iter().filter(|entry| entry.token == 0).count()
}

fn tasks_are_claimed_and_done(locks: &Locks) {
    if !locks.capabilities().tasks {
        return assert!(locks.tasks("pool").create("a").send().is_err());
    }
    let tasks = locks.tasks("pool");
    let new = (0..20).map(|number| tasks.create(number.to_string()).body(number.to_string()));
    assert_eq!(tasks.create_many(new).unwrap().len(), 20);
    assert_eq!(tasks.create("7").send().unwrap(), None);
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let tasks = tasks.clone();
            std::thread::spawn(move || {
                let mut done = 0;
                while let Some(claim) = tasks.claim().try_now().take().unwrap() {
                    assert_eq!(claim.text(), Some(claim.key()));
                    if claim.key() == "3" && claim.attempts() == 0 {
                        claim.renew().unwrap();
                        claim.put_back().error("once more").send().unwrap();
                        continue;
                    }
                    claim.done().unwrap();
                    done += 1;
                }
                done
            })
        })
        .collect();
    let done: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert_eq!((done, tasks.counts().unwrap().done), (20, 20));
    assert_eq!(tasks.get("3").unwrap().unwrap().error.as_deref(), Some("once more"));
    assert_eq!(tasks.list().prefix("1").fetch().unwrap().len(), 11);
    assert!(tasks.delete("3").unwrap() && !tasks.delete("3").unwrap());
    let nothing = tasks.claim().wait(Duration::from_millis(20)).take().unwrap();
    assert!(nothing.is_none());
    assert_eq!(locks.pools().unwrap().len(), 1);
}

fn a_lock_is_exclusive_until_it_is_released(locks: &Locks) {
    let held = locks.lock("k").owner("ann").acquire().unwrap();
    let busy = locks.lock("k").try_now().acquire();
    assert!(matches!(busy, Err(LockError::Busy(_))), "{busy:?}");
    let late = locks.lock("k").shared().wait(Duration::from_millis(30)).acquire();
    assert!(matches!(late, Err(LockError::TimedOut(_))), "{late:?}");
    let ask = locks.lock("k");
    let next = std::thread::spawn(move || ask.acquire().unwrap().token());
    while waiters(locks) == 0 {
        std::thread::yield_now();
    }
    let token = held.token();
    assert_eq!(held.release(), Released::Released);
    assert!(next.join().unwrap() > token);
}

fn a_dropped_guard_releases_before_what_is_asked_later(locks: &Locks) {
    for _ in 0..50 {
        drop(locks.lock("k").try_now().acquire().unwrap());
    }
    locks.close();
    assert_eq!(locks.list(LocksQuery::default()).unwrap(), []);
}

fn no_update_is_lost(locks: &Locks) {
    let counter = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (locks, counter) = (locks.clone(), Arc::clone(&counter));
            std::thread::spawn(move || {
                for _ in 0..10 {
                    let guard = locks.lock("counter").acquire().unwrap();
                    let seen = counter.load(Ordering::SeqCst);
                    std::thread::yield_now();
                    counter.store(seen + 1, Ordering::SeqCst);
                    guard.release();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), 80);
}

fn a_loss_is_waited_for(locks: &Locks) {
    let guard = locks.lock("k").acquire().unwrap();
    assert_eq!(guard.lost_within(Duration::from_millis(20)), None);
    assert_eq!(guard.is_lost(), None);
    assert_eq!(locks.revoke(guard.token(), "enough"), Ok(true));
    assert_eq!(guard.lost(), Lost::Revoked(Some("enough".into())));
    assert!(guard.is_lost().is_some());
    let short = locks.lock("k").lease(Duration::from_millis(100)).no_renew().acquire().unwrap();
    assert_eq!(short.lost_within(SOON), Some(Lost::Expired));
}

fn a_function_runs_under_its_lock(locks: &Locks) {
    let busy = locks.run("k", |_| locks.lock("k").try_now().acquire().is_err());
    assert_eq!(busy, Ok(true));
    let failed: Result<Result<(), &str>, _> = locks.run("k", |_| Err("no"));
    assert_eq!(failed, Ok(Err("no")));
    let other = locks.clone();
    let panicked = std::thread::spawn(move || other.run("k", |_| panic!("on purpose")));
    assert!(panicked.join().is_err());
    let lost = locks.lock("k").wait(SOON).run(|guard| {
        locks.revoke(guard.token(), "enough").unwrap();
        guard.lost();
    });
    assert!(matches!(lost, Err(RunError::Lost(Lost::Revoked(_)))), "{lost:?}");
}

fn a_lock_is_promoted(locks: &Locks) {
    let guard = locks.lock("k").optimistic().acquire().unwrap();
    let before = guard.token();
    assert!(guard.promote().unwrap() > before && guard.token() > before);
    let held = locks.lock("x").acquire().unwrap();
    assert!(matches!(held.promote(), Err(PromoteError::Invalid(_))));
}

fn a_lock_is_kept_and_ended_by_its_id(locks: &Locks) {
    let ask = locks.lock("k").mode(Mode::Exclusive).id(RequestId::new("not to be guessed"));
    let id = ask.also("other").acquire().unwrap().keep();
    assert!(locks.renew(&id, Some(Duration::from_secs(600))).unwrap().is_some());
    assert_eq!(locks.release(&id), Released::Released);
    assert_eq!(locks.release(&RequestId::new("nobody's")), Released::NotHeld);
}

/// It blocks a thread of that runtime, and nothing else.
fn inside_of_a_runtime_it_works_too(locks: &Locks) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(async {
        // More often than a task may poll before it has to yield.
        for _ in 0..300 {
            let guard = locks.lock("k").try_now().acquire().unwrap();
            assert_eq!(guard.lost_within(Duration::ZERO), None);
            drop(guard);
        }
        let inner = locks.clone();
        tokio::task::spawn_blocking(move || inner.lock("k").acquire().unwrap().release())
            .await
            .unwrap();
        let another = Locks::connect("memory:").unwrap();
        another.lock("k").acquire().unwrap().release();
    });
}

#[test]
fn what_happens_is_watched() {
    run(Place::Memory, |locks| {
        let mut watch: Watch = locks.watch().unwrap();
        assert_eq!(watch.next_within(Duration::from_millis(10)), None);
        let held = locks.lock("k").acquire().unwrap();
        locks.revoke(held.token(), "enough").unwrap();
        assert!(matches!(watch.next(), Some(Event::Lost { .. })));
    });
}

/// Guards of tasks may end where no runtime is, or where theirs has ended.
#[test]
fn a_guard_of_a_task_may_be_dropped_anywhere() {
    for place in [Place::Memory, Place::Sqlite, Place::Server] {
        common::with_url(place, |url| {
            let runtime = || {
                let mut runtime = tokio::runtime::Builder::new_multi_thread();
                runtime.worker_threads(1).enable_all().build().unwrap()
            };
            let first = runtime();
            let locks = first.block_on(keylatch::Locks::connect(url)).unwrap();
            let guard = first.block_on(locks.lock("k").into_future()).unwrap();
            drop(guard);
            let guard = first.block_on(locks.lock("k").wait(SOON).into_future()).unwrap();
            drop(first);
            drop(guard);
            // Nothing is left to wait for, though nobody has answered.
            runtime().block_on(locks.close());
        });
    }
}
