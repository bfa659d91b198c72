//! Every way to lock, from threads and from tasks.

mod common;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{ready, waits};
use futures_lite::future::block_on;
use keylatch_local::{KeyedMutex, TimedOut};

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(600);

#[test]
fn keys_are_named_by_value_by_reference_or_borrowed() {
    let locks = KeyedMutex::<String>::new();
    let held = locks.lock_blocking("a key");
    assert!(locks.try_lock(String::from("a key")).is_none());
    let name = String::from("a key");
    assert!(locks.try_lock(&name).is_none());
    let other = String::from("another key");
    assert!(locks.try_lock(&other).is_some());
    assert!(locks.try_lock(std::borrow::Cow::Borrowed("a key")).is_none());
    let names = ["another key", "a key"];
    assert!(locks.try_lock_many(names.iter()).is_none());
    drop((name, other));
    assert_eq!(held.key(), "a key");
    let bytes = KeyedMutex::<Vec<u8>>::new();
    let held = bytes.lock_blocking(&[1, 2, 3][..]);
    assert!(bytes.try_lock(vec![1, 2, 3]).is_none());
    assert!(bytes.try_lock(&[1, 2, 3]).is_none());
    assert!(bytes.try_lock(b"abc").is_some());
    drop(held);
    let paths = KeyedMutex::<std::path::PathBuf>::new();
    let held = paths.lock_blocking(std::path::Path::new("/tmp"));
    assert!(paths.try_lock(std::path::PathBuf::from("/tmp")).is_none());
    drop(held);
    let shared = KeyedMutex::<Arc<str>>::new();
    let held = shared.lock_blocking("a");
    assert!(shared.try_lock(Arc::<str>::from("a")).is_none());
    drop(held);
}

#[test]
fn a_key_need_not_be_cloneable() {
    #[derive(PartialEq, Eq, Hash)]
    struct Once(u8);
    let locks = KeyedMutex::<Once>::new();
    let held = locks.lock_blocking(Once(1));
    assert!(locks.try_lock(Once(1)).is_none());
    drop(held);
    assert!(locks.is_empty());
}

#[test]
fn a_thread_waits_for_its_turn() {
    let locks = Arc::new(KeyedMutex::<u8>::new());
    let held = locks.lock_blocking(1);
    let (tell, told) = mpsc::channel();
    let threads: Vec<_> = [true, false]
        .into_iter()
        .map(|shared| {
            let (locks, tell) = (Arc::clone(&locks), tell.clone());
            thread::spawn(move || {
                if shared {
                    drop(locks.lock_shared_blocking(1));
                } else {
                    drop(locks.lock_blocking(1));
                }
                tell.send(shared).unwrap();
            })
        })
        .collect();
    while locks.waiters(1) < 2 {
        thread::yield_now();
    }
    assert!(told.try_recv().is_err(), "nobody passes the holder");
    drop(held);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(told.iter().take(2).count(), 2);
    assert!(locks.is_empty());
}

#[test]
fn a_thread_gives_up_when_its_time_is_over() {
    let locks = Arc::new(KeyedMutex::<u8>::new());
    let held = locks.lock_blocking(1);
    let start = Instant::now();
    assert_eq!(locks.lock_blocking_timeout(1, SHORT).err(), Some(TimedOut));
    assert_eq!(locks.lock_shared_blocking_timeout(1, SHORT).err(), Some(TimedOut));
    assert_eq!(locks.lock_blocking_deadline(1, start).err(), Some(TimedOut));
    assert_eq!(locks.lock_shared_blocking_deadline(1, start).err(), Some(TimedOut));
    assert_eq!(locks.lock_owned_blocking_timeout(1, SHORT).err(), Some(TimedOut));
    assert_eq!(locks.lock_shared_owned_blocking_timeout(1, SHORT).err(), Some(TimedOut));
    assert_eq!(locks.lock_owned_blocking_deadline(1, start).err(), Some(TimedOut));
    assert_eq!(locks.lock_shared_owned_blocking_deadline(1, start).err(), Some(TimedOut));
    assert_eq!(locks.lock_many_blocking_timeout([1, 2], SHORT).err(), Some(TimedOut));
    assert_eq!(locks.lock_many_owned_blocking_timeout([1, 2], SHORT).err(), Some(TimedOut));
    assert_eq!(locks.lock_many_blocking_deadline([1, 2], start).err(), Some(TimedOut));
    assert_eq!(locks.lock_many_owned_blocking_deadline([1, 2], start).err(), Some(TimedOut));
    assert_eq!(TimedOut.to_string(), "the lock was not free in time");
    assert_eq!((locks.waiters(1), locks.len()), (0, 1), "nothing is left of them");
    drop(held);
    // What is free is granted also when the time is over, and when it is too far away to say.
    assert!(locks.lock_blocking_deadline(1, start).is_ok());
    assert!(locks.lock_blocking_timeout(1, Duration::MAX).is_ok());
    assert!(locks.lock_many_blocking_timeout([1, 2], SHORT).is_ok());
}

#[test]
fn a_task_gives_up_when_its_time_is_over() {
    let locks = Arc::new(KeyedMutex::<u8>::new());
    let held = locks.lock_blocking(1);
    let past = Instant::now();
    block_on(async {
        assert_eq!(locks.lock_timeout(1, SHORT).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_shared_timeout(1, SHORT).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_deadline(1, past).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_shared_deadline(1, past).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_owned_timeout(1, SHORT).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_owned_deadline(1, past).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_shared_owned_timeout(1, SHORT).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_shared_owned_deadline(1, past).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_many_timeout([1, 2], SHORT).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_many_deadline([1, 2], past).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_many_owned_timeout([1, 2], SHORT).await.err(), Some(TimedOut));
        assert_eq!(locks.lock_many_owned_deadline([1, 2], past).await.err(), Some(TimedOut));
    });
    assert_eq!((locks.waiters(1), locks.len()), (0, 1), "nothing is left of them");
    drop(held);
    assert!(ready(locks.lock_deadline(1, past)).is_ok(), "free: granted though it is late");
}

#[test]
fn a_task_with_a_time_out_gets_what_becomes_free_in_time() {
    let locks = Arc::new(KeyedMutex::<u8>::new());
    let held = locks.lock_owned_blocking(1);
    let waiting = waits(locks.lock_timeout(1, LONG));
    let thread = thread::spawn(move || {
        thread::sleep(SHORT);
        drop(held);
    });
    assert!(block_on(waiting).is_ok());
    thread.join().unwrap();
    let far = ready(locks.lock_timeout(1, Duration::MAX));
    assert!(far.is_ok(), "too far away to matter");
    let never = waits(locks.lock_timeout(1, Duration::MAX));
    assert!(format!("{never:?}").contains("deadline: None"));
}

#[test]
fn one_granted_at_the_last_moment_is_not_lost() {
    let locks = KeyedMutex::<u8>::new();
    let held = locks.lock_blocking(1);
    let mut late = waits(locks.lock_timeout(1, SHORT));
    drop(held);
    thread::sleep(SHORT * 2);
    assert!(ready(&mut late).is_ok(), "it was granted before its time was over");
}

#[test]
fn owned_guards_outlive_the_scope_they_were_made_in() {
    let (exclusive, shared, many, reserved) = {
        let locks = Arc::new(KeyedMutex::<u8>::new());
        let exclusive = ready(locks.lock_owned(1));
        assert!(locks.try_lock_owned(1).is_none());
        let shared = locks.try_lock_shared_owned(2).unwrap();
        let more = ready(locks.lock_shared_owned(2));
        drop(more);
        let many = ready(locks.lock_many_owned([3, 4]));
        assert!(locks.try_lock_many_owned([4, 5]).is_none());
        drop(locks.lock_many_owned_blocking([5, 6]));
        drop((locks.lock_owned_blocking(5), locks.lock_shared_owned_blocking(6)));
        (exclusive, shared, many, (locks.reserve_owned(7), locks.reserve_shared_owned(8)))
    };
    let shared = shared.try_upgrade().expect("alone").downgrade();
    let thread = thread::spawn(move || drop((exclusive, shared, many, reserved)));
    thread.join().unwrap();
}

#[test]
fn a_task_runs_under_the_lock_and_its_result_comes_back() {
    let locks = KeyedMutex::<u8>::new();
    block_on(async {
        let seen = locks.run(1, || async { (locks.holders(1), locks.try_lock(1).is_none()) }).await;
        assert_eq!(seen, (1, true));
        let failed: Result<(), &str> = locks.run(1, || async { Err("as it is") }).await;
        assert_eq!(failed, Err("as it is"));
        let both = locks.run_shared(1, || locks.run_shared(1, || async { locks.holders(1) })).await;
        assert_eq!(both, 2);
        let refused = locks.run(1, || locks.try_run(1, || async { panic!("not called") })).await;
        assert_eq!(refused, None::<()>);
        let refused = locks.run(1, || locks.try_run_shared(1, || async { panic!("never") })).await;
        assert_eq!(refused, None::<()>);
        assert_eq!(locks.try_run(1, || async { 7 }).await, Some(7));
        assert_eq!(locks.try_run_shared(1, || async { 7 }).await, Some(7));
    });
    assert_eq!(locks.run_blocking(1, || locks.holders(1)), 1);
    assert_eq!(locks.run_shared_blocking(1, || locks.try_run_blocking(1, || ())), None);
    assert_eq!(locks.run_shared_blocking(1, || locks.try_run_shared_blocking(1, || 2)), Some(2));
    assert_eq!(locks.try_run_blocking(1, || 2), Some(2));
    assert!(locks.is_empty());
}

#[test]
fn a_task_that_panics_or_is_dropped_releases() {
    let locks = KeyedMutex::<u8>::new();
    let panics = || locks.run_blocking(1, || panic!("on purpose"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    let panics = || block_on(locks.run(1, || async { panic!("on purpose") }));
    let caught: Result<(), _> = std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics));
    assert!(caught.is_err());
    let unfinished = Box::pin(locks.run(1, std::future::pending::<()>));
    let unfinished = waits(unfinished);
    assert_eq!(locks.holders(1), 1);
    drop(unfinished);
    assert!(locks.is_empty());
}

/// Every key has the same hash, so only comparing tells them apart.
#[derive(Clone, Default)]
struct Alike;

impl std::hash::BuildHasher for Alike {
    type Hasher = Self;
    fn build_hasher(&self) -> Alike {
        Alike
    }
}

impl std::hash::Hasher for Alike {
    fn finish(&self) -> u64 {
        7
    }
    fn write(&mut self, _: &[u8]) {}
}

#[test]
fn keys_with_the_same_hash_are_told_apart_however_they_are_named() {
    let locks: KeyedMutex<String, Alike> = keylatch_local::Options::new().hasher(Alike).build();
    let (a, b) = (String::from("a"), String::from("b"));
    let held = locks.lock_blocking(&a);
    assert!(locks.try_lock("b").is_some() && locks.try_lock(&b).is_some());
    let free = |name: &&str| locks.try_lock(name).is_some();
    assert!(free(&"b") && !free(&"a"));
    let cow = |text| std::borrow::Cow::<str>::Owned(String::from(text));
    assert_eq!(locks.try_lock(cow("b")).unwrap().key(), "b");
    assert!(locks.try_lock(cow("a")).is_none() && locks.try_lock(&a).is_none());
    assert_eq!(locks.try_lock_many(["b", "c"]).unwrap().keys(), ["b", "c"]);
    assert!(locks.try_lock_many(["b", "a"]).is_none());
    drop(held);
    let bytes: KeyedMutex<Vec<u8>, Alike> = keylatch_local::Options::new().hasher(Alike).build();
    let held = bytes.lock_blocking(b"ab");
    assert_eq!(held.key(), b"ab");
    assert!(bytes.try_lock(b"cd").is_some() && bytes.try_lock(&b"ab"[..]).is_none());
}
