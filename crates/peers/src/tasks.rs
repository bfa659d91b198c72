//! Claims and done, over and over, by many workers, in pools of different sizes: beside workers that do the
//! same with what PostgreSQL and Redis have for it.
#![allow(clippy::cast_precision_loss)] // counts are small, and so is the error

mod postgres;
mod server;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// One task claimed and done.
type Pair = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// So many pairs are one measurement, or as many as there are tasks.
const PAIRS: usize = 4_000;
/// What a worker is to do.
const BODY: &str = "{\"to\": \"ann@example.org\", \"subject\": \"hello\"}";

/// Pools of these sizes, by so many workers at once.
pub async fn run(rounds: usize, sizes: &[usize], workers: &[usize]) {
    server::run(rounds, sizes, workers).await;
    postgres::run(rounds, sizes, workers).await;
    println!("  ratio: Keylatch by the other");
}

fn ours(tasks: keylatch::Tasks) -> Pair {
    Arc::new(move || {
        let tasks = tasks.clone();
        Box::pin(async move {
            let claim = tasks.claim().wait(Duration::ZERO).await.expect("a claim");
            claim.expect("a task").done().await.expect("done");
        })
    })
}

/// Pairs a second.
async fn measure(workers: &[Pair], pairs: usize) -> f64 {
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
    pairs as f64 / since.elapsed().as_secs_f64()
}

fn head(place: &str, other: &str) {
    println!("\n== tasks: claim and done {place}");
    println!(
        "  {:>9} {:>8} {:>14} {:>22} {:>7}",
        "tasks",
        "workers",
        "keylatch, 1/s",
        format!("{other}, 1/s"),
        "ratio"
    );
}

/// Of all rounds.
#[derive(Default)]
struct Rates {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Rates {
    /// The middle ones.
    fn print(self, size: usize, workers: usize) {
        let middle = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (ours, theirs) = (middle(self.ours), middle(self.theirs));
        let ratio = ours / theirs;
        println!("  {size:>9} {workers:>8} {ours:>14.0} {theirs:>22.0} {ratio:>7.2}");
    }
}
