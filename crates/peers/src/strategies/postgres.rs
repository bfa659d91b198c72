//! On a PostgreSQL: beside a durable lock row and beside advisory locks, which nothing survives.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

use super::measure::{How, Load, Pair, Subject, compare, keylatch};
use super::servers::Postgres;

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("PostgreSQL");
    tokio::spawn(connection);
    client
}

async fn clients(url: &str) -> Vec<Arc<Mutex<Client>>> {
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(Arc::new(Mutex::new(client(url).await)));
    }
    clients
}

/// A row that says who holds it, taken and given back durably, by a transaction each: what a lock that
/// outlives its transaction needs. Whoever finds it taken asks again after 1 ms.
fn row(clients: Vec<Arc<Mutex<Client>>>) -> Subject {
    let pair = move |task: usize| -> Pair {
        let client = Arc::clone(&clients[task]);
        Arc::new(move |key| {
            let client = Arc::clone(&client);
            Box::pin(async move {
                let mut client = client.lock().await;
                let holder = i64::try_from(task).unwrap_or(0);
                loop {
                    let change = client.transaction().await.expect("BEGIN");
                    let row = "SELECT holder FROM bench_locks WHERE name = $1 FOR UPDATE";
                    let row = change.query_one(row, &[&&*key]).await.expect("SELECT FOR UPDATE");
                    let free = row.get::<_, Option<i64>>(0).is_none();
                    if free {
                        let take = "UPDATE bench_locks SET holder = $1, \
                                    until = now() + interval '30 s' WHERE name = $2";
                        change.execute(take, &[&holder, &&*key]).await.expect("UPDATE");
                    }
                    change.commit().await.expect("COMMIT");
                    if free {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let give = "UPDATE bench_locks SET holder = NULL WHERE name = $1 AND holder = $2";
                client.execute(give, &[&&*key, &holder]).await.expect("UPDATE");
            })
        })
    };
    Subject { name: "durable lock row, FOR UPDATE", pair: Box::new(pair) }
}

/// A lock of the session, in memory: gone with the connection, and with the database.
fn advisory(clients: Vec<Arc<Mutex<Client>>>) -> Subject {
    let pair = move |task: usize| -> Pair {
        let client = Arc::clone(&clients[task]);
        Arc::new(move |key| {
            let client = Arc::clone(&client);
            Box::pin(async move {
                let client = client.lock().await;
                let lock = "SELECT pg_advisory_lock(hashtext($1))";
                client.execute(lock, &[&&*key]).await.expect("pg_advisory_lock");
                let unlock = "SELECT pg_advisory_unlock(hashtext($1))";
                client.execute(unlock, &[&&*key]).await.expect("pg_advisory_unlock");
            })
        })
    };
    Subject { name: "pg_advisory_lock (not durable)", pair: Box::new(pair) }
}

/// All of them.
pub async fn run(how: &How) {
    let postgres = Postgres::start();
    println!("\n== PostgreSQL, with fsync");
    let setup = client(&postgres.url()).await;
    let rows = "CREATE TABLE bench_locks (name text PRIMARY KEY, holder bigint, until timestamptz);
                INSERT INTO bench_locks SELECT 'bench:' || n FROM generate_series(0, 63) n";
    setup.batch_execute(rows).await.expect("a table");
    let clients = clients(&postgres.url()).await;
    let subjects = [keylatch(&postgres.url()).await, row(clients.clone()), advisory(clients)];
    let loads = [
        Load { name: "one at a time", tasks: 1, keys: 1 },
        Load { name: "own keys", tasks: 64, keys: 64 },
        Load { name: "contended", tasks: 64, keys: 8 },
    ];
    for load in loads {
        compare(&subjects, load, how).await;
    }
}
