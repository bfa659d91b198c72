//! On the lock server, durable, beside a Redis that syncs every write (`appendfsync always`) and workers that
//! claim with `LMOVE` and are done with `LREM`. Every worker has a connection of its own on both sides.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use keylatch::Locks;
use redis::aio::MultiplexedConnection;

use super::{BODY, LARGE, Pair, Plan, Rates, Sizes, WAYS, measure, ours, parts, settle};
use crate::strategies::servers::Redis;

/// `keylatch serve`, from beside this program.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(dir: &Path) -> Server {
        let program = std::env::current_exe().expect("this program").with_file_name("keylatch");
        let mut process = Command::new(program)
            .args(["serve", "--resp", "127.0.0.1:0", "--http", "off", "--enqueue", "off", "--data"])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server: cargo build --release -p keylatch-cli");
        let out = BufReader::new(process.stdout.take().expect("piped"));
        let address = |line: &str| {
            let words = line.split_whitespace();
            let mut found = words.filter(|word| word.starts_with("127.0.0.1:"));
            found.next().map(|word| word.trim_end_matches(|end: char| !end.is_ascii_digit()).into())
        };
        let mut lines = out.lines().map_while(Result::ok);
        let address: String = lines.find_map(|line| address(&line)).expect("an address");
        Server { process, url: format!("keylatch://{address}") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

async fn fill_ours(tasks: &keylatch::Tasks, size: usize) {
    let all = (0..size).map(|number| tasks.create(number.to_string()).body(BODY));
    tasks.create_many(all).await.expect("tasks");
}

const LINE: &str = "bench:line";
const TAKEN: &str = "bench:taken";

async fn fill_theirs(connection: &mut MultiplexedConnection, size: usize) {
    let gone: i64 =
        redis::cmd("DEL").arg(LINE).arg(TAKEN).query_async(connection).await.expect("DEL");
    assert!(gone <= 2);
    let all: Vec<String> = (0..size).map(|number| format!("{number} {BODY}")).collect();
    for some in all.chunks(1_000) {
        let _: i64 =
            redis::cmd("RPUSH").arg(LINE).arg(some).query_async(connection).await.expect("RPUSH");
    }
}

async fn theirs(url: &str) -> Pair {
    let client = redis::Client::open(url).expect("an address");
    let connection = client.get_multiplexed_async_connection().await.expect("the Redis");
    Arc::new(move || {
        let mut connection = connection.clone();
        Box::pin(async move {
            let mut take = redis::cmd("LMOVE");
            take.arg(LINE).arg(TAKEN).arg("LEFT").arg("RIGHT");
            let taken: String = take.query_async(&mut connection).await.expect("a task");
            let mut done = redis::cmd("LREM");
            done.arg(TAKEN).arg(1).arg(taken);
            let done: i64 = done.query_async(&mut connection).await.expect("LREM");
            assert_eq!(done, 1, "it was ours");
        })
    })
}

pub(super) async fn run(plan: &Plan) {
    let redis = Redis::durable();
    let url = redis.url();
    let client = redis::Client::open(&*url).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("the Redis");
    super::head("on the server, durable, beside Redis with appendfsync always");
    let mut sizes = Sizes::default();
    for &size in &plan.sizes {
        for &count in &plan.workers {
            let dir = tempfile::tempdir().expect("a directory");
            let server = Server::start(dir.path());
            let mut mine: [Vec<Pair>; WAYS.len()] = Default::default();
            let (mut others, mut pools) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let locks = Locks::connect(&server.url).await.expect("the server");
                pools.push(locks);
                others.push(theirs(&url).await);
            }
            let mut rates: [Rates; WAYS.len()] = Default::default();
            for round in 0..plan.rounds {
                let (pairs, parts) = parts(size);
                let (mut times, mut other) = ([Duration::ZERO; WAYS.len()], Duration::ZERO);
                for part in 0..parts {
                    if round == 0 || size < LARGE {
                        for (way, mine) in WAYS.into_iter().zip(&mut mine) {
                            let pool = format!("bench {round} {part} {}", way.name());
                            fill_ours(&pools[0].tasks(pool.as_str()), size + way.more(count)).await;
                            let one = |locks: &Locks| ours(locks.tasks(pool.as_str()), way);
                            *mine = pools.iter().map(one).collect();
                        }
                        fill_theirs(&mut connection, size).await;
                        settle().await;
                    }
                    for (time, mine) in times.iter_mut().zip(&mine) {
                        *time += measure(mine, pairs).await;
                    }
                    other += measure(&others, pairs).await;
                }
                for (rates, time) in rates.iter_mut().zip(times) {
                    rates.add(pairs * parts, time, other);
                }
            }
            for (way, rates) in WAYS.into_iter().zip(&rates) {
                let rate = rates.print((size, count), way, "LMOVE + LREM");
                sizes.add(size, count, way, rate);
            }
        }
    }
    sizes.print();
}
