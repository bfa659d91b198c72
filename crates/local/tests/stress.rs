//! Many at once, on every kind of executor: no update is lost. The control without the lock loses
//! some, so the check can fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use keylatch_local::{KeyedMutex, Options};

const KEYS: usize = 3;

/// Counters that are read and written in two steps, as a careless program would.
#[derive(Default)]
struct Counters([AtomicU64; KEYS]);

impl Counters {
    fn read(&self, key: usize) -> u64 {
        self.0[key].load(Ordering::Relaxed)
    }

    fn write(&self, key: usize, value: u64) {
        self.0[key].store(value, Ordering::Relaxed);
    }

    fn sum(&self) -> u64 {
        (0..KEYS).map(|key| self.read(key)).sum()
    }
}

/// One update of each of `workers` in turn, with a chance for others between its two steps.
async fn update(locks: &KeyedMutex<usize>, counters: &Counters, worker: usize, step: usize) {
    let key = (worker + step) % KEYS;
    match (worker * 7 + step) % 5 {
        0 => {
            let guard = locks.lock_many([key, (key + 1) % KEYS]).await;
            add(counters, key).await;
            drop(guard);
        }
        1 => {
            let reader = locks.lock_shared(key).await;
            let before = counters.read(key);
            futures_lite::future::yield_now().await;
            assert_eq!(counters.read(key), before, "nobody writes while it is read");
            drop(reader);
            locks.run(key, || add(counters, key)).await;
        }
        2 => {
            // Gives up now and then, and tries again until it has it.
            let guard = loop {
                if let Ok(guard) = locks.lock_timeout(key, Duration::from_micros(50)).await {
                    break guard;
                }
            };
            add(counters, key).await;
            drop(guard.downgrade());
        }
        _ => {
            let guard = locks.lock(key).await;
            add(counters, key).await;
            drop(guard);
        }
    }
}

async fn add(counters: &Counters, key: usize) {
    let value = counters.read(key);
    futures_lite::future::yield_now().await;
    counters.write(key, value + 1);
}

const WORKERS: usize = 8;
const STEPS: usize = 400;

fn check(locks: &KeyedMutex<usize>, counters: &Counters) {
    assert_eq!(counters.sum(), (WORKERS * STEPS) as u64, "lost updates");
    assert!(locks.is_empty());
}

/// One shard, so that different keys meet too.
fn table() -> Arc<KeyedMutex<usize>> {
    Arc::new(Options::new().shards(1).build())
}

async fn work(locks: Arc<KeyedMutex<usize>>, counters: Arc<Counters>, worker: usize) {
    for step in 0..STEPS {
        update(&locks, &counters, worker, step).await;
    }
}

#[test]
fn no_update_is_lost_on_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (locks, counters) = (table(), Arc::new(Counters::default()));
    let spawn = |worker| runtime.spawn(work(Arc::clone(&locks), Arc::clone(&counters), worker));
    let tasks: Vec<_> = (0..WORKERS).map(spawn).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    check(&locks, &counters);
}

#[test]
fn no_update_is_lost_on_smol() {
    let (locks, counters) = (table(), Arc::new(Counters::default()));
    let spawn = |worker| smol::spawn(work(Arc::clone(&locks), Arc::clone(&counters), worker));
    let tasks: Vec<_> = (0..WORKERS).map(spawn).collect();
    smol::block_on(async {
        for task in tasks {
            task.await;
        }
    });
    check(&locks, &counters);
}

#[test]
fn no_update_is_lost_among_threads_and_tasks_together() {
    let (locks, counters) = (table(), Arc::new(Counters::default()));
    let threads: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (locks, counters) = (Arc::clone(&locks), Arc::clone(&counters));
            thread::spawn(move || match worker % 2 {
                0 => futures_lite::future::block_on(work(locks, counters, worker)),
                _ => (0..STEPS).for_each(|step| update_blocking(&locks, &counters, worker, step)),
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    check(&locks, &counters);
}

fn update_blocking(locks: &KeyedMutex<usize>, counters: &Counters, worker: usize, step: usize) {
    let key = (worker + step) % KEYS;
    let add = || {
        let value = counters.read(key);
        thread::yield_now();
        counters.write(key, value + 1);
    };
    match (worker * 7 + step) % 4 {
        0 => {
            let _guard = locks.lock_many_blocking([(key + 1) % KEYS, key]);
            add();
        }
        1 => {
            let guard = loop {
                if let Ok(guard) = locks.lock_blocking_timeout(key, Duration::from_micros(50)) {
                    break guard;
                }
            };
            add();
            drop(guard);
        }
        2 => locks.run_blocking(key, add),
        _ => {
            // A reader that wants to write lets go first, unless it is alone.
            let reader = locks.lock_shared_blocking(key);
            let _guard = reader.try_upgrade().unwrap_or_else(|reader| {
                drop(reader);
                locks.lock_blocking(key)
            });
            add();
        }
    }
}

/// The control: without the lock the same updates are lost.
#[test]
fn without_the_lock_updates_are_lost() {
    let counters = Counters::default();
    let executor = smol::LocalExecutor::new();
    for worker in 0..WORKERS {
        let counters = &counters;
        let task = executor.spawn(async move {
            for step in 0..STEPS {
                add(counters, (worker + step) % KEYS).await;
            }
        });
        task.detach();
    }
    futures_lite::future::block_on(executor.run(async {
        while !executor.is_empty() {
            futures_lite::future::yield_now().await;
        }
    }));
    assert!(counters.sum() < (WORKERS * STEPS) as u64);
}
