//! On PostgreSQL: the strategy beside workers that do the same with `SELECT ... FOR UPDATE SKIP LOCKED`. Each of
//! those has a connection of its own, prepared statements, and two transactions a task, with the same
//! `synchronous_commit`.

mod peers;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls, Statement};

use self::peers::{PEERS, Peer};
use super::{BODY, LARGE, Pair, Plan, Rates, Sizes, WAYS, measure, ours, parts, settle};
use crate::strategies::servers::Postgres;

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    client
}

/// One statement after the other: `VACUUM` goes alone.
async fn all(sql: &Client, text: &str) {
    for statement in text.split(';') {
        sql.batch_execute(statement).await.expect("what fills a table");
    }
}

/// Ours: filled in bulk with copies of one task, so that a million of them take no hour.
async fn fill_ours(sql: &Client, tasks: &keylatch::Tasks, size: usize) {
    all(sql, "TRUNCATE keylatch.tasks").await;
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
    all(sql, &fill).await;
}

async fn fill_theirs(sql: &Client, peer: &Peer, size: usize) {
    all(sql, &peer.fill.replace("{size}", &size.to_string()).replace("{body}", BODY)).await;
}

/// A connection and its statements for each worker.
async fn theirs(url: &str, peer: &Peer) -> Pair {
    let client = client(url).await;
    let claim: Statement = client.prepare(peer.claim).await.expect("a claim");
    let done: Statement = client.prepare(peer.done).await.expect("done");
    let client = Arc::new(Mutex::new((client, claim, done)));
    Arc::new(move || {
        let client = Arc::clone(&client);
        Box::pin(async move {
            let it = client.lock().await;
            let row = it.0.query_one(&it.1, &[]).await.expect("a job");
            let (id, attempt): (i64, i32) = (row.get(0), row.get(1));
            let changed = it.0.execute(&it.2, &[&id, &attempt]).await.expect("done");
            assert_eq!(changed, 1, "it was ours");
        })
    })
}

/// Pools of these sizes, by so many workers at once.
pub(super) async fn run(plan: &Plan) {
    let postgres = Postgres::start();
    let url = postgres.url();
    let sql = client(&url).await;
    let locks = keylatch::Locks::connect(&url).await.expect("what was just started");
    let tasks = locks.tasks("bench");
    tasks.create("first").await.expect("the tables are made");
    for peer in &PEERS {
        all(&sql, peer.make).await;
    }
    super::head("on PostgreSQL, with fsync");
    let mut sizes = Sizes::default();
    for &size in &plan.sizes {
        for &count in &plan.workers {
            let mut rates: [[Rates; WAYS.len()]; PEERS.len()] = Default::default();
            for round in 0..plan.rounds {
                for (nth, (peer, rates)) in PEERS.iter().zip(&mut rates).enumerate() {
                    let mut others = Vec::new();
                    for _ in 0..count {
                        others.push(theirs(&url, peer).await);
                    }
                    let (pairs, parts) = parts(size);
                    let (mut times, mut other) = ([Duration::ZERO; WAYS.len()], Duration::ZERO);
                    for _ in 0..parts {
                        if size < LARGE || round == 0 {
                            fill_theirs(&sql, peer, size).await;
                        }
                        for (at, (time, way)) in times.iter_mut().zip(WAYS).enumerate() {
                            if size < LARGE || (round, nth, at) == (0, 0, 0) {
                                fill_ours(&sql, &tasks, size + way.more(count)).await;
                            }
                            let mine: Vec<Pair> =
                                (0..count).map(|_| ours(tasks.clone(), way)).collect();
                            all(&sql, "VACUUM; CHECKPOINT").await;
                            settle().await;
                            *time += measure(&mine, pairs).await;
                        }
                        other += measure(&others, pairs).await;
                    }
                    for (rates, time) in rates.iter_mut().zip(times) {
                        rates.add(pairs * parts, time, other);
                    }
                }
            }
            for (peer, rates) in PEERS.iter().zip(&rates) {
                for (way, rates) in WAYS.into_iter().zip(rates) {
                    let rate = rates.print((size, count), way, peer.name);
                    sizes.add(size, count, way, rate);
                }
            }
        }
    }
    sizes.print();
}
