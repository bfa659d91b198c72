//! What is measured. Times are for one lock and unlock.

#![allow(clippy::cast_precision_loss)] // counts and times as ratios

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use super::subjects::{Keylatch, Readers, Subject};

/// Locks and unlocks in one timed round.
const ROUND: u64 = 100_000;

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

fn each(time: Duration, count: u64) -> f64 {
    time.as_nanos() as f64 / count as f64
}

/// Numbers that look random, the same for everyone; cheap beside a lock.
fn keys(seed: u64, below: u64) -> impl FnMut() -> u64 {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// One thread, nobody in the way, a random key each time.
pub fn uncontended<S: Subject>(below: u64) -> impl FnMut() -> f64 {
    let (subject, runtime) = (S::new(), runtime());
    let mut next = keys(7, below);
    move || {
        let start = Instant::now();
        runtime.block_on(async {
            for _ in 0..ROUND {
                black_box(subject.lock(next()).await);
            }
        });
        each(start.elapsed(), ROUND)
    }
}

/// The same while a million others are held.
pub fn among_a_million<S: Subject>() -> impl FnMut() -> f64 {
    let (subject, runtime) = (Box::leak(Box::new(S::new())), runtime());
    let held: Vec<S::Guard<'_>> = runtime.block_on(async { hold(subject, 1_000_000).await });
    std::mem::forget(held);
    let mut next = keys(7, 1_000_000);
    move || {
        let start = Instant::now();
        runtime.block_on(async {
            for _ in 0..ROUND / 10 {
                black_box(subject.lock(1_000_000 + next()).await);
            }
        });
        each(start.elapsed(), ROUND / 10)
    }
}

async fn hold<S: Subject>(subject: &S, count: u64) -> Vec<S::Guard<'_>> {
    let mut held = Vec::with_capacity(count as usize);
    for key in 0..count {
        held.push(subject.lock(key).await);
    }
    held
}

/// Two threads, each with keys of its own.
pub fn two_threads<S: Subject>(below: u64) -> impl FnMut() -> f64 {
    let subject = Arc::new(S::new());
    move || {
        threads(&subject, 2, |subject, thread| {
            let mut next = keys(7 + thread, below);
            move |runtime| {
                runtime.block_on(async {
                    for _ in 0..ROUND {
                        black_box(subject.lock(next() * 2 + thread).await);
                    }
                });
            }
        })
    }
}

/// Readers of one key, in that many threads.
pub fn readers<S: Readers>(count: u64) -> impl FnMut() -> f64 {
    let subject = Arc::new(S::new());
    move || {
        threads(&subject, count, |subject, _| {
            move |runtime| {
                runtime.block_on(async {
                    for _ in 0..ROUND {
                        black_box(subject.read(1).await);
                    }
                });
            }
        })
    }
}

/// Time for each operation of all threads together, from the moment when all are ready.
fn threads<S: Subject, W: FnOnce(&Runtime) + Send + 'static>(
    subject: &Arc<S>,
    count: u64,
    work: impl Fn(Arc<S>, u64) -> W,
) -> f64 {
    let barrier = Arc::new(Barrier::new(count as usize + 1));
    let handles: Vec<_> = (0..count)
        .map(|thread| {
            let (work, barrier) = (work(Arc::clone(subject), thread), Arc::clone(&barrier));
            std::thread::spawn(move || {
                let runtime = runtime();
                barrier.wait();
                work(&runtime);
            })
        })
        .collect();
    barrier.wait();
    let start = Instant::now();
    for handle in handles {
        handle.join().expect("a thread that does not panic");
    }
    each(start.elapsed(), ROUND * count)
}

/// How many tasks want the one key.
const TASKS: u64 = 64;

/// Many tasks, one key: each holds it over one yield, so that every lock is a hand-over.
pub fn hand_over<S: Subject>() -> impl FnMut() -> f64 {
    let subject = Arc::new(S::new());
    tasks(move || {
        let subject = Arc::clone(&subject);
        async move {
            for _ in 0..ROUND / 10 / TASKS {
                let guard = subject.lock(1).await;
                yield_now().await;
                drop(guard);
            }
        }
    })
}

/// The same in task style.
pub fn hand_over_run() -> impl FnMut() -> f64 {
    let subject = Arc::new(Keylatch::new());
    tasks(move || {
        let subject = Arc::clone(&subject);
        async move {
            for _ in 0..ROUND / 10 / TASKS {
                subject.locks().run(1, yield_now).await;
            }
        }
    })
}

/// Uncontended, in task style.
pub fn uncontended_run(below: u64) -> impl FnMut() -> f64 {
    let (subject, runtime) = (Keylatch::new(), runtime());
    let mut next = keys(7, below);
    move || {
        let start = Instant::now();
        runtime.block_on(async {
            for _ in 0..ROUND {
                subject.locks().run(next(), || async {}).await;
            }
        });
        each(start.elapsed(), ROUND)
    }
}

/// On the lightest executor there can be, so that the time is that of the lock rather than of the
/// scheduler: a queue of the tasks that can go on.
fn tasks<F: Future<Output = ()>>(work: impl Fn() -> F) -> impl FnMut() -> f64 {
    struct Ready {
        queue: Arc<parking_lot::Mutex<VecDeque<usize>>>,
        task: usize,
    }
    impl Wake for Ready {
        fn wake(self: Arc<Self>) {
            self.queue.lock().push_back(self.task);
        }
        fn wake_by_ref(self: &Arc<Self>) {
            self.queue.lock().push_back(self.task);
        }
    }
    move || {
        let mut tasks: Vec<_> = (0..TASKS).map(|_| Some(Box::pin(work()))).collect();
        let queue = Arc::new(parking_lot::Mutex::new((0..TASKS as usize).collect()));
        let waker = |task| Waker::from(Arc::new(Ready { queue: Arc::clone(&queue), task }));
        let wakers: Vec<Waker> = (0..TASKS as usize).map(waker).collect();
        let start = Instant::now();
        loop {
            let next = queue.lock().pop_front();
            let Some(task) = next else { break };
            let context = &mut Context::from_waker(&wakers[task]);
            if let Some(future) = &mut tasks[task]
                && future.as_mut().poll(context).is_ready()
            {
                tasks[task] = None;
            }
        }
        assert!(tasks.iter().all(Option::is_none), "every task has ended");
        each(start.elapsed(), ROUND / 10 / TASKS * TASKS)
    }
}

async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Bytes of memory that a held key takes: in all, and without its guard.
pub fn memory<S: Subject>() -> (f64, f64) {
    let count = 1_000_000;
    let subject = S::new();
    let before = resident();
    let held = runtime().block_on(hold(&subject, count));
    let all = (resident() - before) as f64 / count as f64;
    let guard = size_of::<S::Guard<'_>>() as f64;
    std::mem::forget(held);
    (all, all - guard)
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize =
        status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}
