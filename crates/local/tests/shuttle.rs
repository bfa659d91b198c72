//! The queue under every schedule that shuttle comes up with, from fixed seeds: nobody is let in
//! twice, nobody is forgotten (shuttle reports a deadlock), and nothing is left behind.
//!
//! `cargo test -p keylatch-local --features shuttle --test shuttle`; `KEYLATCH_SCHEDULES` says how
//! many.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use keylatch_local::{KeyedMutex, Options};
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

/// Runs `test` under many schedules; a failure prints the one that failed.
fn check(test: impl Fn() + Send + Sync + Clone + 'static) {
    let schedules = std::env::var("KEYLATCH_SCHEDULES").unwrap_or_else(|_| "4000".into());
    let schedules: usize = schedules.parse().expect("KEYLATCH_SCHEDULES is a number");
    let random = RandomScheduler::new_from_seed(7, schedules);
    Runner::new(random, Config::new()).run(test.clone());
    // Few but well-placed changes of thread find what needs a certain order.
    let by_priority = PctScheduler::new_from_seed(7, 3, schedules / 2);
    Runner::new(by_priority, Config::new()).run(test);
}

/// Who is inside: one writer, or any number of readers.
#[derive(Default)]
struct Room(AtomicI64);

impl Room {
    fn write(&self) {
        assert_eq!(self.0.swap(-1, Ordering::SeqCst), 0, "a writer is alone");
        thread::yield_now();
        assert_eq!(self.0.swap(0, Ordering::SeqCst), -1, "nobody came in");
    }

    fn read(&self) {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) >= 0, "no writer is in");
        thread::yield_now();
        assert!(self.0.fetch_sub(1, Ordering::SeqCst) > 0);
    }
}

#[derive(Clone)]
struct Scene {
    locks: Arc<KeyedMutex<u8>>,
    rooms: Arc<[Room; 3]>,
}

impl Scene {
    fn new(shards: usize) -> Scene {
        let locks = Options::new().shards(shards).build();
        Scene { locks: Arc::new(locks), rooms: Arc::default() }
    }

    fn write(&self, key: u8) {
        self.rooms[key as usize].write();
    }

    fn read(&self, key: u8) {
        self.rooms[key as usize].read();
    }

    /// Runs the parts side by side and looks at what is left.
    fn run(self, parts: Vec<fn(&Scene)>) {
        let threads: Vec<_> = parts
            .into_iter()
            .map(|part| {
                let scene = self.clone();
                thread::spawn(move || part(&scene))
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(self.locks.is_empty(), "{:?}", self.locks);
    }
}

/// Polls once and goes away, whether it was granted or not.
fn touch(future: impl Future + Unpin) {
    let mut future = future;
    let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

#[test]
fn readers_and_writers_with_cancellation() {
    check(|| {
        let writer = |scene: &Scene| {
            let _guard = scene.locks.lock_blocking(1);
            scene.write(1);
        };
        let reader = |scene: &Scene| {
            let _guard = scene.locks.lock_shared_blocking(1);
            scene.read(1);
        };
        let leaver = |scene: &Scene| {
            touch(scene.locks.lock(1));
            touch(scene.locks.lock_shared(1));
        };
        Scene::new(1).run(vec![writer, reader, leaver, reader, writer]);
    });
}

#[test]
fn time_outs_of_threads_and_tasks() {
    check(|| {
        let writer = |scene: &Scene| {
            let _guard = scene.locks.lock_blocking(1);
            scene.write(1);
        };
        let thread_in_a_hurry = |scene: &Scene| {
            if let Ok(_guard) = scene.locks.lock_blocking_deadline(1, soon()) {
                scene.write(1);
            }
            if let Ok(_guard) = scene.locks.lock_shared_blocking_deadline(1, soon()) {
                scene.read(1);
            }
        };
        let task_in_a_hurry = |scene: &Scene| {
            block_on(async {
                if let Ok(_guard) = scene.locks.lock_deadline(1, soon()).await {
                    scene.write(1);
                }
            });
        };
        Scene::new(1).run(vec![writer, thread_in_a_hurry, task_in_a_hurry, writer]);
    });
}

#[test]
fn upgrades_and_downgrades() {
    check(|| {
        let down = |scene: &Scene| {
            let guard = scene.locks.lock_blocking(1);
            scene.write(1);
            let _guard = guard.downgrade();
            scene.read(1);
        };
        let up = |scene: &Scene| {
            let guard = scene.locks.lock_shared_blocking(1);
            scene.read(1);
            match guard.try_upgrade() {
                Ok(_guard) => scene.write(1),
                Err(_guard) => scene.read(1),
            }
        };
        let reader = |scene: &Scene| {
            let _guard = scene.locks.lock_shared_blocking(1);
            scene.read(1);
        };
        Scene::new(1).run(vec![down, up, reader, down]);
    });
}

#[test]
fn several_keys_in_any_order_with_cancellation() {
    for shards in [1, 64] {
        check(move || {
            let both = |scene: &Scene| {
                let _guard = scene.locks.lock_many_blocking([1, 2]);
                scene.write(1);
                scene.write(2);
            };
            let both_backwards = |scene: &Scene| {
                let _guard = block_on(scene.locks.lock_many([2, 1, 0]));
                scene.write(2);
                scene.write(0);
            };
            let one = |scene: &Scene| {
                let _guard = scene.locks.lock_blocking(2);
                scene.write(2);
            };
            let leaver = |scene: &Scene| {
                touch(scene.locks.lock_many([1, 2]));
                let _ = scene.locks.lock_many_blocking_timeout([0, 2], Duration::from_secs(1));
            };
            let reader = |scene: &Scene| {
                let _guard = scene.locks.lock_shared_blocking(1);
                scene.read(1);
            };
            Scene::new(shards).run(vec![both, both_backwards, one, leaver, reader]);
        });
    }
}

#[test]
fn reservations_are_served_in_the_order_of_the_calls() {
    check(|| {
        let locks = Arc::new(KeyedMutex::<u8>::new());
        let order = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
        let places: Vec<_> = (0..4).map(|number| (number, locks.reserve_owned(1))).collect();
        let threads: Vec<_> = places
            .into_iter()
            .rev()
            .map(|(number, place)| {
                let order = Arc::clone(&order);
                thread::spawn(move || {
                    let _guard = block_on(place);
                    order.lock().unwrap().push(number);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    });
}

/// The control of "nobody is let in twice".
#[test]
#[should_panic(expected = "a writer is alone")]
fn without_the_lock_two_writers_meet() {
    check(|| {
        let writer = |scene: &Scene| scene.write(1);
        Scene::new(1).run(vec![writer, writer]);
    });
}

/// The control of "nobody is forgotten": a guard that is never dropped.
#[test]
#[should_panic(expected = "deadlock")]
fn a_waiter_that_is_never_granted_is_noticed() {
    check(|| {
        let forgets = |scene: &Scene| std::mem::forget(scene.locks.lock_blocking(1));
        let waits = |scene: &Scene| drop(scene.locks.lock_blocking(1));
        Scene::new(1).run(vec![forgets, waits]);
    });
}
