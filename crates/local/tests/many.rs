//! Several keys at once: all or nothing.

mod common;

use common::{Task, poll, ready, waits};
use keylatch_local::{KeyedMutex, Options};

/// With one shard and with many: the keys may share one or not.
fn tables() -> [KeyedMutex<u32>; 2] {
    [Options::new().shards(1).build(), Options::new().shards(64).build()]
}

#[test]
fn it_holds_all_keys_each_once_or_none() {
    for locks in tables() {
        let guard = ready(locks.lock_many([1, 2, 3, 2, 1]));
        let mut keys = guard.keys();
        keys.sort_unstable();
        assert_eq!((keys, locks.len()), (vec![1, 2, 3], 3));
        assert!([1, 2, 3].into_iter().all(|key| locks.try_lock(key).is_none()));
        assert!(locks.try_lock_many([3, 4]).is_none());
        assert!(locks.try_lock(4).is_some(), "nothing of it was held");
        drop(guard);
        assert!(locks.is_empty());
        assert!(ready(locks.lock_many([0; 0])).keys().is_empty(), "nothing to lock");
    }
}

#[test]
fn it_holds_nothing_while_it_waits_but_keeps_its_places() {
    for locks in tables() {
        let two = ready(locks.lock(2));
        let mut many = waits(locks.lock_many([1, 2]));
        assert_eq!((locks.holders(1), locks.waiters(1), locks.waiters(2)), (0, 1, 1));
        let mut behind = waits(locks.lock_shared(1));
        assert!(locks.try_lock(1).is_none() && locks.try_lock_shared(1).is_none());
        drop(two);
        let many = ready(&mut many);
        assert!(poll(&mut behind).is_pending());
        drop(many);
        drop(ready(&mut behind));
        assert!(locks.is_empty());
    }
}

#[test]
fn it_is_granted_when_the_last_of_its_keys_is_free_whichever_that_is() {
    for locks in tables() {
        for last in 0..3 {
            let mut held: Vec<_> = (0..3).map(|key| Some(ready(locks.lock(key)))).collect();
            let task = Task::new();
            let mut many = locks.lock_many([2, 0, 1]);
            assert!(task.poll(&mut many).is_pending());
            for key in (0..3).filter(|key| *key != last) {
                held[key] = None;
                assert!(task.poll(&mut many).is_pending());
            }
            assert_eq!(task.woken(), 0);
            held[last] = None;
            assert_eq!(task.woken(), 1);
            drop(ready(&mut many));
            assert!(locks.is_empty());
        }
    }
}

#[test]
fn requests_that_share_keys_come_in_the_order_of_arrival() {
    for locks in tables() {
        let held = ready(locks.lock(2));
        let mut first = waits(locks.lock_many([1, 2]));
        let mut second = waits(locks.lock_many([3, 1]));
        let mut third = waits(locks.lock_many([2, 3]));
        drop(held);
        assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
        drop(ready(&mut first));
        assert!(poll(&mut third).is_pending());
        drop(ready(&mut second));
        drop(ready(&mut third));
        assert!(locks.is_empty());
    }
}

#[test]
fn leaving_lets_those_behind_it_pass_in_all_queues() {
    for locks in tables() {
        let held = ready(locks.lock(2));
        let many = waits(locks.lock_many([1, 2]));
        let mut one = waits(locks.lock(1));
        let mut two = waits(locks.lock(2));
        drop(many);
        drop(ready(&mut one));
        assert!(poll(&mut two).is_pending());
        drop(held);
        drop(ready(&mut two));
        assert!(locks.is_empty());
    }
}

#[test]
fn leaving_can_free_another_that_wants_several() {
    for locks in tables() {
        let held = ready(locks.lock(3));
        let first = waits(locks.lock_many([1, 2, 3]));
        let mut second = waits(locks.lock_many([2, 1]));
        drop(first);
        drop(ready(&mut second));
        drop(held);
        assert!(locks.is_empty());
    }
}

#[test]
fn dropped_after_it_was_granted_it_releases_all() {
    for locks in tables() {
        let held = ready(locks.lock(2));
        let many = waits(locks.lock_many([1, 2]));
        drop(held);
        assert_eq!((locks.holders(1), locks.holders(2)), (1, 1));
        drop(many);
        assert!(locks.is_empty());
    }
}

#[test]
fn unlocking_twice_is_unlocking_once() {
    for locks in tables() {
        let mut many = ready(locks.lock_many([1, 2]));
        assert!(many.unlock());
        let other = locks.try_lock(1).expect("it is free");
        assert!(!many.unlock(), "they were not held any more");
        assert!(many.keys().is_empty());
        drop(many);
        assert!(locks.try_lock(1).is_none());
        drop(other);
    }
}

#[test]
fn readers_of_one_of_its_keys_are_waited_for() {
    for locks in tables() {
        let readers = (ready(locks.lock_shared(1)), ready(locks.lock_shared(1)));
        let mut many = waits(locks.lock_many([1, 2]));
        drop(readers.0);
        assert!(poll(&mut many).is_pending());
        drop(readers.1);
        drop(ready(&mut many));
        assert!(locks.is_empty());
    }
}

#[test]
fn a_downgrade_in_front_of_it_changes_nothing_for_it() {
    for locks in tables() {
        let held = ready(locks.lock(1));
        let mut many = waits(locks.lock_many([1, 2]));
        let shared = held.downgrade();
        assert!(poll(&mut many).is_pending());
        drop(shared);
        drop(ready(&mut many));
    }
}

#[test]
fn it_is_granted_whatever_comes_and_goes_around_it() {
    for locks in tables() {
        let held: Vec<_> = (0..4).map(|key| ready(locks.lock_shared(key))).collect();
        let mut many = waits(locks.lock_many([0, 1, 2, 3]));
        let mut behind: Vec<_> = (0..4).map(|key| waits(locks.lock(key))).collect();
        for (key, reader) in held.into_iter().enumerate() {
            drop(reader);
            // Those behind it leave and come again, so that its queues are looked at again.
            behind[key] = waits(locks.lock(key as u32));
        }
        drop(ready(&mut many));
        for mut waiter in behind {
            drop(ready(&mut waiter));
        }
        assert!(locks.is_empty());
    }
}

#[test]
fn thousands_of_keys_are_no_problem() {
    for locks in tables() {
        let keys = || (0..20_000).chain(0..20_000);
        let first = ready(locks.lock_many(keys()));
        let mut second = waits(locks.lock_many(keys()));
        drop(first);
        assert_eq!(ready(&mut second).keys().len(), 20_000);
        assert!(locks.is_empty());
    }
}
