//! Who comes when.

mod common;

use std::future::Future;

use common::{Task, poll, ready, waits};
use keylatch_local::KeyedMutex;

fn locks() -> KeyedMutex<&'static str> {
    KeyedMutex::new()
}

#[test]
fn writers_and_readers_come_in_the_order_of_arrival_and_readers_together() {
    let locks = locks();
    let s1 = ready(locks.lock_shared("k"));
    let mut e1 = waits(locks.lock("k"));
    let mut s2 = waits(locks.lock_shared("k"));
    let mut e2 = waits(locks.lock("k"));
    let mut s3 = waits(locks.lock_shared("k"));
    let mut s4 = waits(locks.lock_shared("k"));
    assert_eq!((locks.holders("k"), locks.waiters("k")), (1, 5));

    drop(s1);
    assert!(poll(&mut s2).is_pending(), "behind E1");
    let e1 = ready(&mut e1);
    drop(e1);
    assert!(poll(&mut e2).is_pending() && poll(&mut s3).is_pending(), "behind S2");
    let s2 = ready(&mut s2);
    drop(s2);
    assert!(poll(&mut s3).is_pending() && poll(&mut s4).is_pending(), "behind E2");
    let e2 = ready(&mut e2);
    drop(e2);
    let together = (ready(&mut s3), ready(&mut s4));
    assert_eq!((locks.holders("k"), locks.waiters("k")), (2, 0));
    drop(together);
    assert_eq!(locks.len(), 0);
}

#[test]
fn a_reader_never_passes_a_writer_that_waits() {
    let locks = locks();
    let reader = ready(locks.lock_shared("k"));
    let mut writer = waits(locks.lock("k"));
    let mut late = waits(locks.lock_shared("k"));
    assert!(locks.try_lock_shared("k").is_none());
    drop(reader);
    drop(ready(&mut writer));
    drop(ready(&mut late));
}

#[test]
fn try_lock_succeeds_only_with_no_holder_and_no_waiter() {
    let locks = locks();
    let held = locks.try_lock("k").expect("nobody has it");
    assert!(locks.try_lock("k").is_none());
    drop(held);
    let reader = locks.try_lock_shared("k").unwrap();
    assert!(locks.try_lock("k").is_none(), "a reader holds it");
    let mut waiter = waits(locks.lock("k"));
    drop(reader);
    assert!(locks.try_lock("k").is_none(), "it has been handed over to the one who waited");
    drop(ready(&mut waiter));
    assert!(locks.try_lock("k").is_some());
}

#[test]
fn try_lock_shared_fails_if_an_exclusive_is_held_or_queued() {
    let locks = locks();
    let writer = ready(locks.lock("k"));
    assert!(locks.try_lock_shared("k").is_none());
    drop(writer);
    let (a, b) = (locks.try_lock_shared("k").unwrap(), locks.try_lock_shared("k").unwrap());
    let waiter = waits(locks.lock("k"));
    assert!(locks.try_lock_shared("k").is_none(), "a writer waits");
    drop(waiter);
    assert!(locks.try_lock_shared("k").is_some(), "it has left");
    drop((a, b));
}

#[test]
fn a_try_that_fails_leaves_no_trace() {
    let locks = locks();
    let held = ready(locks.lock("k"));
    for _ in 0..100 {
        assert!(locks.try_lock("k").is_none() && locks.try_lock_shared("k").is_none());
    }
    assert_eq!((locks.len(), locks.waiters("k")), (1, 0));
    drop(held);
    assert!(locks.is_empty());
}

#[test]
fn keys_do_not_know_each_other() {
    let locks = locks();
    let a = ready(locks.lock("a"));
    let b = ready(locks.lock("b"));
    assert_eq!(locks.len(), 2);
    drop((a, b));
}

#[test]
fn a_place_is_taken_at_the_first_poll() {
    let locks = locks();
    let held = ready(locks.lock("k"));
    let mut made_first = locks.lock("k");
    let mut polled_first = waits(locks.lock("k"));
    assert!(poll(&mut made_first).is_pending());
    drop(held);
    assert!(poll(&mut made_first).is_pending());
    drop(ready(&mut polled_first));
    drop(ready(&mut made_first));
}

#[test]
fn a_reservation_is_a_place_taken_at_the_call() {
    let locks = locks();
    let held = ready(locks.lock("k"));
    let mut reserved = locks.reserve("k");
    let mut polled = waits(locks.lock("k"));
    let mut reader = locks.reserve_shared("k");
    drop(held);
    assert!(poll(&mut polled).is_pending());
    assert!(poll(&mut reader).is_pending());
    drop(ready(&mut reserved));
    drop(ready(&mut polled));
    drop(ready(&mut reader));
}

#[test]
fn a_reservation_of_a_free_key_holds_it_until_it_is_dropped() {
    let locks = locks();
    let reserved = locks.reserve("k");
    assert!(locks.try_lock("k").is_none());
    drop(reserved);
    assert!(locks.is_empty());
    let guard = ready(locks.reserve("k"));
    assert_eq!(guard.key(), "k");
}

#[test]
fn who_is_dropped_while_it_waits_lets_those_behind_it_pass() {
    let locks = locks();
    let reader = ready(locks.lock_shared("k"));
    let writer = waits(locks.lock("k"));
    let task = Task::new();
    let mut late = locks.lock_shared("k");
    assert!(task.poll(&mut late).is_pending());
    drop(writer);
    assert_eq!(task.woken(), 1);
    drop(ready(&mut late));
    drop(reader);
    assert!(locks.is_empty());
}

#[test]
fn who_is_dropped_after_it_was_granted_releases() {
    let locks = locks();
    let held = ready(locks.lock("k"));
    let granted = waits(locks.lock("k"));
    let mut next = waits(locks.lock("k"));
    drop(held);
    drop(granted);
    drop(ready(&mut next));
    assert!(locks.is_empty());
}

#[test]
fn places_in_the_middle_and_at_the_end_can_be_left() {
    let locks = locks();
    let held = ready(locks.lock("k"));
    let mut waiters: Vec<_> = (0..5).map(|_| Some(waits(locks.lock("k")))).collect();
    for left in [2, 4] {
        waiters[left] = None;
    }
    assert_eq!(locks.waiters("k"), 3);
    drop(held);
    for at in [0, 1, 3] {
        drop(ready(waiters[at].as_mut().unwrap()));
    }
    assert!(locks.is_empty());
}

#[test]
fn each_waiter_is_woken_once_and_only_when_it_is_its_turn() {
    let locks = locks();
    let held = ready(locks.lock("k"));
    let tasks: Vec<_> = (0..3).map(|_| Task::new()).collect();
    let mut futures: Vec<_> = (0..3).map(|_| locks.lock("k")).collect();
    for (task, future) in tasks.iter().zip(&mut futures) {
        assert!(task.poll(future).is_pending());
        assert!(task.poll(future).is_pending(), "polled again without a reason");
    }
    let woken = || tasks.iter().map(|task| task.woken()).collect::<Vec<_>>();
    assert_eq!(woken(), [0, 0, 0]);
    drop(held);
    assert_eq!(woken(), [1, 0, 0]);
    drop(ready(&mut futures[0]));
    assert_eq!(woken(), [1, 1, 0]);
    drop(ready(&mut futures[1]));
    assert_eq!(woken(), [1, 1, 1]);
}

#[test]
fn the_waker_of_the_last_poll_counts() {
    let locks = locks();
    let held = ready(locks.lock("k"));
    let (first, second) = (Task::new(), Task::new());
    let mut future = locks.lock("k");
    assert!(first.poll(&mut future).is_pending());
    assert!(second.poll(&mut future).is_pending());
    drop(held);
    assert_eq!((first.woken(), second.woken()), (0, 1));
}

#[test]
fn a_downgrade_lets_readers_in_that_are_next_and_no_writer() {
    let locks = locks();
    let writer = ready(locks.lock("k"));
    let mut reader = waits(locks.lock_shared("k"));
    let mut second = waits(locks.lock("k"));
    let mut behind = waits(locks.lock_shared("k"));
    let shared = writer.downgrade();
    let reader = ready(&mut reader);
    assert!(poll(&mut second).is_pending() && poll(&mut behind).is_pending());
    assert_eq!((shared.key(), locks.holders("k")), ("k", 2));
    drop((shared, reader));
    drop(ready(&mut second));
    drop(ready(&mut behind));
    let alone = ready(locks.lock("k")).downgrade();
    assert!(locks.try_lock_shared("k").is_some() && locks.try_lock("k").is_none());
    drop(alone);
    assert!(locks.is_empty());
}

#[test]
fn only_a_sole_reader_can_upgrade_and_it_does_not_look_at_waiters() {
    let locks = locks();
    let (a, b) = (ready(locks.lock_shared("k")), ready(locks.lock_shared("k")));
    let a = a.try_upgrade().expect_err("there are two");
    drop(b);
    let a = a.try_upgrade().expect("it is alone").downgrade();
    let mut writer = waits(locks.lock("k"));
    let b = a.try_upgrade().expect("alone, though a writer waits");
    assert!(locks.try_lock_shared("k").is_none());
    drop(b);
    drop(ready(&mut writer));
    let (a, b) = (ready(locks.lock_shared("k")), ready(locks.lock_shared("k")));
    let writer = waits(locks.lock("k"));
    let a = a.try_upgrade().expect_err("two, and a writer waits");
    drop((a, b, writer));
    assert!(locks.is_empty());
}

#[test]
fn unlocking_twice_is_unlocking_once() {
    let locks = locks();
    let mut guard = ready(locks.lock("k"));
    assert!(guard.unlock());
    let other = locks.try_lock("k").expect("it is free");
    assert!(!guard.unlock(), "it has not been held any more");
    drop(guard);
    assert!(locks.try_lock("k").is_none(), "the other's lock is not touched");
    drop(other);
}

#[test]
#[should_panic(expected = "has no key any more")]
fn an_unlocked_guard_has_no_key() {
    let locks = locks();
    let mut guard = ready(locks.lock("k"));
    guard.unlock();
    guard.key();
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn polling_again_after_ready_panics() {
    let locks = locks();
    let mut lock = locks.lock("k");
    drop(poll(&mut lock));
    drop(poll(&mut lock));
}

#[test]
fn a_guard_that_was_unlocked_cannot_be_upgraded() {
    let locks = locks();
    let mut guard = ready(locks.lock_shared("k"));
    guard.unlock();
    assert!(guard.try_upgrade().is_err());
    assert!(locks.is_empty());
}

#[test]
fn things_show_what_they_are() {
    let locks = locks();
    let mut guard = ready(locks.lock("k"));
    assert_eq!(format!("{guard:?}"), r#"Guard { key: Some("k"), .. }"#);
    let waiting = waits(locks.lock("k"));
    assert_eq!(format!("{waiting:?}"), r#"Lock("queued")"#);
    assert_eq!(format!("{:?}", locks.lock("k")), r#"Lock("new")"#);
    assert_eq!(format!("{locks:?}"), "KeyedMutex { len: 1, .. }");
    drop(waiting);
    guard.unlock();
    assert_eq!(format!("{guard:?}"), "Guard { key: None, .. }");
    assert_eq!(format!("{:?}", locks.reserve("k")), r#"Lock("granted")"#);
    let many = ready(locks.lock_many(["a"]));
    assert_eq!(format!("{many:?}"), r#"ManyGuard { keys: ["a"], .. }"#);
}

#[test]
fn a_waker_that_panics_does_not_keep_the_others_from_being_woken() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("on purpose");
        }
    }
    let locks = locks();
    let held = ready(locks.lock("k"));
    let mut readers: Vec<_> = (0..4).map(|_| locks.lock_shared("k")).collect();
    let tasks: Vec<_> = (0..4).map(|_| Task::new()).collect();
    let waker = std::task::Waker::from(std::sync::Arc::new(Panics));
    for (at, reader) in readers.iter_mut().enumerate() {
        let pending = match at {
            0 | 2 => {
                let context = &mut std::task::Context::from_waker(&waker);
                std::pin::Pin::new(reader).poll(context).is_pending()
            }
            _ => tasks[at].poll(reader).is_pending(),
        };
        assert!(pending);
    }
    // Of two that panic the second would end the program; one is enough to see.
    drop(readers.remove(2));
    let release = std::panic::AssertUnwindSafe(|| drop(held));
    assert!(std::panic::catch_unwind(release).is_err());
    assert_eq!((tasks[1].woken(), tasks[3].woken()), (1, 1));
    assert_eq!(locks.holders("k"), 3);
}

#[test]
fn a_key_may_use_the_table_when_it_is_dropped() {
    #[derive(PartialEq, Eq, Hash)]
    struct Curious(u8);
    static LOCKS: std::sync::LazyLock<KeyedMutex<Curious>> =
        std::sync::LazyLock::new(|| keylatch_local::Options::new().shards(1).build());
    impl Drop for Curious {
        fn drop(&mut self) {
            std::hint::black_box(LOCKS.len());
        }
    }
    let held = ready(LOCKS.lock(Curious(1)));
    assert!(LOCKS.try_lock(Curious(1)).is_none());
    let waiter = waits(LOCKS.lock(Curious(1)));
    drop(held);
    drop(waiter);
    let held = ready(LOCKS.lock(Curious(2)));
    let many = waits(LOCKS.lock_many([Curious(2), Curious(3)]));
    drop(many);
    drop(held);
    assert!(LOCKS.is_empty());
}

#[test]
fn the_number_of_shards_is_kept_within_bounds() {
    for shards in [0, 1, 3, 100_000] {
        let locks: KeyedMutex<u64> = keylatch_local::Options::new().shards(shards).build();
        let held: Vec<_> = (0..100).map(|key| ready(locks.lock(key))).collect();
        assert_eq!(locks.len(), 100);
        assert!(!locks.is_empty());
        drop(held);
        assert!(locks.is_empty());
    }
}

#[test]
fn a_table_may_be_used_across_a_caught_panic() {
    let locks = locks();
    let caught = std::panic::catch_unwind(|| locks.run_blocking("k", || panic!("on purpose")));
    let caught: Result<(), _> = caught;
    assert!(caught.is_err() && locks.is_empty());
}
