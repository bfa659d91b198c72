//! On PostgreSQL: the strategy beside a worker that does the same with `SELECT ... FOR UPDATE SKIP LOCKED`.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Statement};

use super::{BODY, PAIRS, Pair, Rates, measure, ours};
use crate::strategies::servers::Postgres;

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

/// Pools of these sizes, by so many workers at once.
pub(super) async fn run(rounds: usize, sizes: &[usize], workers: &[usize]) {
    let postgres = Postgres::start();
    let url = postgres.url();
    let sql = client(&url).await;
    let locks = keylatch::Locks::connect(&url).await.expect("what was just started");
    let tasks = locks.tasks("bench");
    tasks.create("first").await.expect("the tables are made");
    super::head("on PostgreSQL, with fsync", "SKIP LOCKED");
    for &size in sizes {
        for &count in workers {
            let mut others = Vec::new();
            for _ in 0..count {
                others.push(theirs_when_filled(&sql, &url, others.is_empty(), size).await);
            }
            let mine: Vec<Pair> = (0..count).map(|_| ours(tasks.clone())).collect();
            let mut rates = Rates::default();
            for _ in 0..rounds {
                let pairs = PAIRS.min(size);
                fill_ours(&sql, &tasks, size).await;
                rates.ours.push(measure(&mine, pairs).await);
                refill_theirs(&sql, size).await;
                rates.theirs.push(measure(&others, pairs).await);
            }
            rates.print(size, count);
        }
    }
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
