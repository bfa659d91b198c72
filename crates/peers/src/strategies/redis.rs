//! On a Redis: beside the plain pair of commands that lock libraries use, and beside one of them.

use std::sync::Arc;
use std::time::Duration;

use redis::Script;
use rslock::LockManager;

use super::measure::{How, Load, Pair, Subject, compare, keylatch};
use super::servers::Redis;

/// `SET NX PX` and a script that compares and deletes; whoever is refused asks again after 1 ms.
async fn plain(url: &str) -> Subject {
    let client = redis::Client::open(url).expect("an address");
    let connection =
        client.get_multiplexed_async_connection().await.expect("the Redis just started");
    let release = Arc::new(Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
    ));
    let pair = move |task: usize| -> Pair {
        let (connection, release) = (connection.clone(), Arc::clone(&release));
        Arc::new(move |key| {
            let (mut connection, release) = (connection.clone(), Arc::clone(&release));
            Box::pin(async move {
                let value = format!("task {task}");
                loop {
                    let mut set = redis::cmd("SET");
                    set.arg(&*key).arg(&value).arg("NX").arg("PX").arg(30_000);
                    let set: Option<String> = set.query_async(&mut connection).await.expect("SET");
                    if set.is_some() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let mut release = release.key(&*key);
                let released: i64 =
                    release.arg(&value).invoke_async(&mut connection).await.expect("a script");
                assert_eq!(released, 1);
            })
        })
    };
    Subject { name: "SET NX PX + script, polls 1 ms", pair: Box::new(pair) }
}

/// A library that does the same, as often as it takes.
fn rslock(url: &str) -> Subject {
    let mut manager = LockManager::new(vec![url]);
    // Retries are delayed by a random time up to this.
    manager.set_retry(1_000_000, Duration::from_millis(2));
    let pair: Pair = Arc::new(move |key| {
        let manager = manager.clone();
        Box::pin(async move {
            let lock = manager.lock(key.as_bytes(), Duration::from_secs(30)).await;
            manager.unlock(&lock.expect("a lock")).await;
        })
    });
    Subject { name: "rslock", pair: Box::new(move |_| Arc::clone(&pair)) }
}

/// All of them.
pub async fn run(how: &How) {
    let redis = Redis::start();
    println!("\n== Redis, without persistence");
    let subjects = [keylatch(&redis.url()).await, plain(&redis.url()).await, rslock(&redis.url())];
    let loads = [
        Load { name: "one at a time", tasks: 1, keys: 1 },
        Load { name: "own keys", tasks: 64, keys: 64 },
        Load { name: "contended", tasks: 64, keys: 8 },
    ];
    for load in loads {
        compare(&subjects, load, how).await;
    }
}
