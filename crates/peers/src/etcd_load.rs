//! Pairs of lock and unlock on etcd: by its lock API, and by the least that could be called a lock there, a put if
//! nobody has put, and a delete.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // counts are small, and so is the error

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// Clients that share a connection: HTTP/2 carries many requests at once, but not any number.
const A_CONNECTION: usize = 32;
/// Locks of one lease are one lock, so each client has its own; longer than any run.
const LEASE_S: i64 = 600;

/// What a pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `Lock` and `Unlock` of the lock API, under a lease that the client has already.
    Lock,
    /// A transaction that puts a key if it is not there, and a delete.
    CompareAndPut,
}

#[derive(Clone, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Lock {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

/// Also a delete of one key.
#[derive(Clone, PartialEq, Message)]
struct Key {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// That the revision which created a key is this one: 0 if nobody has.
#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
}

#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct Outcome {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

/// The number of `CREATE` among what can be compared.
const CREATED: i32 = 1;

async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> A
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::new(channel.clone());
    client.ready().await.expect("etcd");
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    let answer = client.unary(tonic::Request::new(request), path, codec).await;
    answer.expect("an answer of etcd").into_inner()
}

async fn pair(channel: &Channel, what: What, key: &[u8], lease: i64) {
    match what {
        What::Lock => {
            let ask = Lock { name: key.to_vec(), lease };
            let held: Locked = call(channel, "/v3lockpb.Lock/Lock", ask).await;
            let _: Nothing = call(channel, "/v3lockpb.Lock/Unlock", Key { key: held.key }).await;
        }
        What::CompareAndPut => {
            let free = Compare { target: CREATED, key: key.to_vec(), create_revision: Some(0) };
            let put = Put { key: key.to_vec(), value: b"held".to_vec() };
            let ask =
                Transaction { compare: vec![free], success: vec![Operation { put: Some(put) }] };
            let put: Outcome = call(channel, "/etcdserverpb.KV/Txn", ask).await;
            assert!(put.succeeded, "nobody else has this key");
            let delete = Key { key: key.to_vec() };
            let _: Nothing = call(channel, "/etcdserverpb.KV/DeleteRange", delete).await;
        }
    }
}

/// So many clients for so long; what came of it, as JSON.
pub async fn run(address: &str, what: What, clients: usize, time: Duration) -> String {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let endpoint = endpoint.tcp_nodelay(true);
    let mut subjects = Vec::new();
    let mut channel = endpoint.connect().await.expect("an etcd");
    for client in 0..clients {
        if client % A_CONNECTION == 0 {
            channel = endpoint.connect().await.expect("an etcd");
        }
        let grant = Grant { ttl: LEASE_S };
        let granted: Granted = call(&channel, "/etcdserverpb.Lease/LeaseGrant", grant).await;
        subjects.push((channel.clone(), granted.id));
    }
    let (since, all) = (Instant::now(), Arc::new(std::sync::Mutex::new(Vec::new())));
    let mut tasks = Vec::new();
    for (client, (channel, lease)) in subjects.into_iter().enumerate() {
        let all = Arc::clone(&all);
        tasks.push(tokio::spawn(async move {
            let (key, mut times) = (format!("bench/{client}"), Vec::new());
            while since.elapsed() < time {
                let began = Instant::now();
                pair(&channel, what, key.as_bytes(), lease).await;
                times.push(began.elapsed().as_micros() as u64);
            }
            all.lock().expect("nobody panics").extend(times);
        }));
    }
    for task in tasks {
        task.await.expect("a client failed");
    }
    let elapsed = since.elapsed().as_secs_f64();
    let mut all = std::mem::take(&mut *all.lock().expect("all are done"));
    all.sort_unstable();
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize];
    format!(
        r#"{{"pairs": {}, "pairs_per_s": {:.1}, "p50_us": {}, "p99_us": {}}}"#,
        all.len(),
        all.len() as f64 / elapsed,
        at(0.5),
        at(0.99)
    )
}
