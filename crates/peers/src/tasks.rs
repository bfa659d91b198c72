//! Claims and done, over and over, by many workers, in pools of different sizes: beside workers that do the
//! same with what PostgreSQL and Redis have for it.
#![allow(clippy::cast_precision_loss)] // counts are small, and so is the error

mod postgres;
mod server;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One task claimed and done.
type Pair = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// So many pairs are one measurement, of a small pool in several parts: each after the pool was filled again.
const PAIRS: usize = 4_000;
/// A pool of at least this size is filled once, and stays about as large as it was.
const LARGE: usize = 100_000;
/// What a worker is to do.
const BODY: &str = "{\"to\": \"ann@example.org\", \"subject\": \"hello\"}";

/// What is measured.
pub struct Plan {
    /// How often.
    pub rounds: usize,
    /// Of pools.
    pub sizes: Vec<usize>,
    /// So many at once.
    pub workers: Vec<usize>,
    /// On the lock server.
    pub server: bool,
    /// On PostgreSQL.
    pub postgres: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        let (sizes, workers) = (vec![1_000, 100_000], vec![1, 16, 64]);
        Plan { rounds: 3, sizes, workers, server: true, postgres: true }
    }
}

/// Measures and prints.
pub async fn run(plan: &Plan) {
    if plan.server {
        server::run(plan).await;
    }
    if plan.postgres {
        postgres::run(plan).await;
    }
    println!("  ratio: Keylatch by the other, the middle one of {} rounds and all", plan.rounds);
}

/// What a worker of ours does.
#[derive(Clone, Copy)]
enum Way {
    /// Claims, is done, claims the next: a round trip each, like the others.
    Apart,
    /// Is done and claims the next at the same time: a round trip for both.
    Along,
}

const WAYS: [Way; 2] = [Way::Apart, Way::Along];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Apart => "claim, then done",
            Way::Along => "done with next",
        }
    }

    /// How many more tasks there have to be than are measured: so many are claimed at the end.
    fn more(self, workers: usize) -> usize {
        match self {
            Way::Apart => 0,
            Way::Along => workers,
        }
    }
}

/// A worker of ours.
fn ours(tasks: keylatch::Tasks, way: Way) -> Pair {
    match way {
        Way::Apart => apart(tasks),
        Way::Along => along(tasks),
    }
}

fn along(tasks: keylatch::Tasks) -> Pair {
    let claimed = Arc::new(tokio::sync::Mutex::new(None));
    Arc::new(move || {
        let (tasks, claimed) = (tasks.clone(), Arc::clone(&claimed));
        Box::pin(async move {
            let mut claimed = claimed.lock().await;
            let claim: keylatch::Claim = match claimed.take() {
                Some(claim) => claim,
                None => tasks.claim().try_now().await.expect("a claim").expect("a task"),
            };
            let (done, next) = claim.done_and(tasks.claim().try_now()).await;
            done.expect("done");
            *claimed = next.await.expect("a claim");
        })
    })
}

fn apart(tasks: keylatch::Tasks) -> Pair {
    Arc::new(move || {
        let tasks = tasks.clone();
        Box::pin(async move {
            let claim = tasks.claim().wait(Duration::ZERO).await.expect("a claim");
            claim.expect("a task").done().await.expect("done");
        })
    })
}

/// How long so many pairs take.
async fn measure(workers: &[Pair], pairs: usize) -> Duration {
    let left = Arc::new(AtomicUsize::new(pairs));
    let since = Instant::now();
    let mut all = tokio::task::JoinSet::new();
    for pair in workers {
        let (pair, left) = (Arc::clone(pair), Arc::clone(&left));
        let one = move |left: &AtomicUsize| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
        };
        all.spawn(async move {
            while one(&left) {
                pair().await;
            }
        });
    }
    all.join_all().await;
    since.elapsed()
}

/// What was filled in goes to the disk now, and not while something is measured.
async fn settle() {
    let sync = || std::process::Command::new("sync").status();
    let synced = tokio::task::spawn_blocking(sync).await;
    assert!(synced.is_ok_and(|it| it.is_ok_and(|status| status.success())), "sync");
}

/// How many pairs are measured after a pool of a size was filled, and how often.
fn parts(size: usize) -> (usize, usize) {
    let pairs = PAIRS.min(size);
    (pairs, PAIRS.div_ceil(pairs))
}

fn head(place: &str) {
    println!("\n== tasks: claim and done {place}");
    println!(
        "  {:>9} {:>8}  {:<16} {:<16} {:>14} {:>11} {:>7}  rounds",
        "tasks", "workers", "keylatch", "beside", "keylatch, 1/s", "other, 1/s", "ratio"
    );
}

/// Pairs a second in all rounds: those of Keylatch, and those of the other right after.
#[derive(Default)]
struct Rates(Vec<(f64, f64)>);

impl Rates {
    fn add(&mut self, pairs: usize, ours: Duration, theirs: Duration) {
        let rate = |time: Duration| pairs as f64 / time.as_secs_f64();
        self.0.push((rate(ours), rate(theirs)));
    }

    /// Ours, the middle one.
    fn print(&self, (size, workers): (usize, usize), way: Way, other: &str) -> f64 {
        let middle = |all: &mut Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let mut ratios: Vec<f64> = self.0.iter().map(|(ours, theirs)| ours / theirs).collect();
        let all: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let ours = middle(&mut self.0.iter().map(|rates| rates.0).collect());
        let theirs = middle(&mut self.0.iter().map(|rates| rates.1).collect());
        println!(
            "  {size:>9} {workers:>8}  {:<16} {other:<16} {ours:>14.0} {theirs:>11.0} {:>7.2}  {}",
            way.name(),
            middle(&mut ratios),
            all.join(" ")
        );
        ours
    }
}

/// What the size of a pool changes: rates by workers and size.
#[derive(Default)]
struct Sizes(BTreeMap<(usize, usize), f64>);

impl Sizes {
    fn add(&mut self, size: usize, workers: usize, way: Way, rate: f64) {
        if let Way::Apart = way {
            self.0.entry((workers, size)).or_insert(rate);
        }
    }

    fn print(&self) {
        for ((workers, size), rate) in &self.0 {
            let small = self.0.range((*workers, 0)..).next();
            if let Some(((_, least), first)) = small.filter(|((_, least), _)| least < size) {
                let by = rate / first;
                println!("  keylatch, {workers} workers: {size} tasks by {least}: {by:.2}");
            }
        }
    }
}
