//! Lock and release, over and over, by many tasks.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // counts are small, and so is the error

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One lock and its release on a key.
pub type Pair = Arc<dyn Fn(Arc<str>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Who is measured.
pub struct Subject {
    /// As it is shown.
    pub name: &'static str,
    /// What it does, for each task anew: some need a connection of their own.
    pub pair: Box<dyn Fn(usize) -> Pair>,
}

/// How much of what.
#[derive(Clone, Copy)]
pub struct Load {
    /// As it is shown.
    pub name: &'static str,
    /// So many tasks.
    pub tasks: usize,
    /// On so many keys; as many as tasks: each has its own.
    pub keys: usize,
}

/// How it is measured.
#[derive(Clone)]
pub struct How {
    /// So often, in turn.
    pub rounds: usize,
    /// For so long.
    pub time: Duration,
    /// Only loads whose name begins so.
    pub load: String,
    /// Only Keylatch, to look at it with other tools.
    pub alone: bool,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Pairs a second.
    pub rate: f64,
    /// Of a pair, in microseconds.
    pub p50: f64,
    /// Of a pair, in microseconds.
    pub p99: f64,
    /// The most that one task did, by the least.
    pub spread: f64,
}

/// Runs one subject under a load for so long.
pub async fn measure(subject: &Subject, load: Load, time: Duration) -> Outcome {
    let end = Instant::now() + time;
    let mut tasks = Vec::new();
    for task in 0..load.tasks {
        let pair = (subject.pair)(task);
        let key: Arc<str> = format!("bench:{}", task % load.keys).into();
        tasks.push(tokio::spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < end {
                let since = Instant::now();
                pair(Arc::clone(&key)).await;
                times.push(since.elapsed().as_secs_f64() * 1e6);
            }
            times
        }));
    }
    let since = Instant::now();
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for task in tasks {
        let times = task.await.expect("a task failed");
        counts.push(times.len());
        all.extend(times);
    }
    let elapsed = since.elapsed().as_secs_f64();
    all.sort_by(f64::total_cmp);
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize];
    let least = counts.iter().min().copied().unwrap_or(0).max(1) as f64;
    let most = counts.iter().max().copied().unwrap_or(0) as f64;
    Outcome { rate: all.len() as f64 / elapsed, p50: at(0.5), p99: at(0.99), spread: most / least }
}

/// All subjects under a load, in turn, several times; the middle of each, printed beside the others.
pub async fn compare(subjects: &[Subject], load: Load, how: &How) {
    let How { rounds, time, .. } = *how;
    if !load.name.starts_with(&how.load) {
        return;
    }
    let subjects = if how.alone { &subjects[..1] } else { subjects };
    println!("\n{} ({} tasks, {} keys)", load.name, load.tasks, load.keys);
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); subjects.len()];
    for round in 0..rounds {
        for (at, subject) in subjects.iter().enumerate() {
            eprint!("\r  round {} of {rounds}: {:<40}", round + 1, subject.name);
            outcomes[at].push(measure(subject, load, time).await);
        }
    }
    eprint!("\r{:<70}\r", "");
    println!(
        "  {:<34} {:>10} {:>7} {:>10} {:>11} {:>7}",
        "", "pairs/s", "ratio", "p50 us", "p99 us", "spread"
    );
    let middle = |outcomes: &[Outcome], what: fn(&Outcome) -> f64| {
        let mut all: Vec<f64> = outcomes.iter().map(what).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let ours = middle(&outcomes[0], |outcome| outcome.rate);
    for (subject, outcomes) in subjects.iter().zip(&outcomes) {
        let rate = middle(outcomes, |outcome| outcome.rate);
        println!(
            "  {:<34} {:>10.0} {:>7.2} {:>10.0} {:>11.0} {:>7.2}",
            subject.name,
            rate,
            ours / rate,
            middle(outcomes, |outcome| outcome.p50),
            middle(outcomes, |outcome| outcome.p99),
            middle(outcomes, |outcome| outcome.spread),
        );
    }
    println!("  ratio: Keylatch by this one");
}

/// Keylatch behind a URL.
pub async fn keylatch(url: &str) -> Subject {
    let locks = keylatch::Locks::connect(url).await.expect("what was just started");
    let pair: Pair = Arc::new(move |key| {
        let ask = locks.lock(&*key);
        Box::pin(async move {
            let guard = ask.await.expect("a lock");
            guard.release().await;
        })
    });
    Subject { name: "keylatch", pair: Box::new(move |_| Arc::clone(&pair)) }
}
