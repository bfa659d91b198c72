//! Claims and done, over and over, by many workers, in pools of different sizes: the strategy beside a worker
//! that does the same with `SELECT ... FOR UPDATE SKIP LOCKED` on the same PostgreSQL.
#![allow(clippy::cast_precision_loss)] // counts are small, and so is the error

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Statement};

use crate::strategies::servers::Postgres;

/// One task claimed and done.
type Pair = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// So many pairs are one measurement, or as many as there are tasks.
const PAIRS: usize = 4_000;
/// What a worker is to do.
const BODY: &str = "{\"to\": \"ann@example.org\", \"subject\": \"hello\"}";

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    client
}

/// Ours: filled in bulk with copies of one task, so that a million of them take no hour.
async fn fill_ours(sql: &Client, tasks: &keylatch::Tasks, size: usize) {
    sql.batch_execute("DELETE FROM keylatch.tasks").await.ok();
    tasks.create("first").body(BODY).await.expect("a task");
    let fill = format!(
        "INSERT INTO keylatch.tasks (pool, key, version, time_ms, wrote_version, wrote_ms, number, state,
             priority, ready_ms, due, claim, bytes)
         SELECT f.pool, convert_to('task ' || n, 'UTF8'), v, f.time_ms, v, f.wrote_ms, v, f.state,
             f.priority, f.ready_ms, f.due, f.claim, f.bytes
         FROM keylatch.tasks f, LATERAL (
             SELECT n, nextval('keylatch.numbers') AS v FROM generate_series(2, {size}) n) numbers;
         VACUUM ANALYZE keylatch.tasks"
    );
    for part in fill.split(';') {
        sql.batch_execute(part).await.expect("tasks");
    }
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

async fn fill_theirs(sql: &Client, size: usize) {
    let fill = format!(
        "DROP TABLE IF EXISTS bench_jobs;
         CREATE TABLE bench_jobs (
             id bigserial PRIMARY KEY, state text NOT NULL DEFAULT 'free', priority int NOT NULL DEFAULT 0,
             ready timestamptz NOT NULL DEFAULT now(), attempts int NOT NULL DEFAULT 0,
             until timestamptz, body bytea NOT NULL);
         CREATE INDEX bench_jobs_free ON bench_jobs (priority DESC, ready, id) WHERE state = 'free';
         INSERT INTO bench_jobs (body) SELECT convert_to('{BODY}', 'UTF8') FROM generate_series(1, {size});
         VACUUM ANALYZE bench_jobs"
    );
    for part in fill.split(';') {
        sql.batch_execute(part).await.expect("jobs");
    }
}

const CLAIM: &str = "UPDATE bench_jobs SET state = 'running', attempts = attempts + 1,
        until = now() + interval '60 s'
    WHERE id = (SELECT id FROM bench_jobs WHERE state = 'free' AND ready <= now()
        ORDER BY priority DESC, ready, id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING id, body";
const DONE: &str = "UPDATE bench_jobs SET state = 'done' WHERE id = $1 AND state = 'running'";

/// A connection and its statements for each worker.
async fn theirs(url: &str) -> Pair {
    let client = client(url).await;
    let claim: Statement = client.prepare(CLAIM).await.expect("CLAIM");
    let done: Statement = client.prepare(DONE).await.expect("DONE");
    let client = Arc::new(Mutex::new((client, claim, done)));
    Arc::new(move || {
        let client = Arc::clone(&client);
        Box::pin(async move {
            let it = client.lock().await;
            let row = it.0.query_one(&it.1, &[]).await.expect("a job");
            let changed = it.0.execute(&it.2, &[&row.get::<_, i64>(0)]).await.expect("done");
            assert_eq!(changed, 1, "it was ours");
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
        all.spawn(async move {
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_ok()
            {
                pair().await;
            }
        });
    }
    all.join_all().await;
    pairs as f64 / since.elapsed().as_secs_f64()
}

fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Pools of these sizes, by so many workers at once.
pub async fn run(rounds: usize, sizes: &[usize], workers: &[usize]) {
    let postgres = Postgres::start();
    let url = postgres.url();
    let sql = client(&url).await;
    let locks = keylatch::Locks::connect(&url).await.expect("what was just started");
    let tasks = locks.tasks("bench");
    tasks.create("first").await.expect("the tables are made");
    println!("\n== tasks: claim and done on PostgreSQL, with fsync");
    println!(
        "  {:>9} {:>8} {:>14} {:>22} {:>7}",
        "tasks", "workers", "keylatch, 1/s", "SKIP LOCKED, 1/s", "ratio"
    );
    for &size in sizes {
        for &count in workers {
            let mut others = Vec::new();
            for _ in 0..count {
                others.push(theirs_when_filled(&sql, &url, others.is_empty(), size).await);
            }
            let mine: Vec<Pair> = (0..count).map(|_| ours(tasks.clone())).collect();
            let (mut first, mut second) = (Vec::new(), Vec::new());
            for _ in 0..rounds {
                let pairs = PAIRS.min(size);
                fill_ours(&sql, &tasks, size).await;
                first.push(measure(&mine, pairs).await);
                refill_theirs(&sql, size).await;
                second.push(measure(&others, pairs).await);
            }
            let (first, second) = (middle(first), middle(second));
            let ratio = first / second;
            println!("  {size:>9} {count:>8} {first:>14.0} {second:>22.0} {ratio:>7.2}");
        }
    }
    println!("  ratio: Keylatch by the other");
}

async fn theirs_when_filled(sql: &Client, url: &str, first: bool, size: usize) -> Pair {
    // The table must be there when statements are prepared.
    if first {
        fill_theirs(sql, size).await;
    }
    theirs(url).await
}

/// The same table: prepared statements know it.
async fn refill_theirs(sql: &Client, size: usize) {
    let fill = format!(
        "TRUNCATE bench_jobs;
         INSERT INTO bench_jobs (body) SELECT convert_to('{BODY}', 'UTF8') FROM generate_series(1, {size});
         VACUUM ANALYZE bench_jobs"
    );
    for part in fill.split(';') {
        sql.batch_execute(part).await.expect("jobs");
    }
}
