//! On an etcd of one node: beside its own lock API.

use std::sync::Arc;

use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::measure::{How, Load, Pair, Subject, compare, keylatch};
use super::servers::Etcd;

#[derive(Clone, PartialEq, Message)]
struct GrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct GrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

/// What holds: `key`, as the answer to a lock has it (2) and as an unlock wants it (1).
#[derive(Clone, PartialEq, Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

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

/// etcd's own locks, each task with a lease that it has already: two locks of one lease are one lock.
async fn own(address: &str) -> Subject {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = endpoint.connect().await.expect("the etcd just started");
    let mut leases = Vec::new();
    for _ in 0..64 {
        let grant = GrantRequest { ttl: 600 };
        let grant: GrantResponse = call(&channel, "/etcdserverpb.Lease/LeaseGrant", grant).await;
        leases.push(grant.id);
    }
    let pair = move |task: usize| -> Pair {
        let (channel, lease) = (channel.clone(), leases[task]);
        Arc::new(move |key| {
            let channel = channel.clone();
            Box::pin(async move {
                let ask = LockRequest { name: key.as_bytes().to_vec(), lease };
                let held: LockResponse = call(&channel, "/v3lockpb.Lock/Lock", ask).await;
                let give = UnlockRequest { key: held.key };
                let _: Nothing = call(&channel, "/v3lockpb.Lock/Unlock", give).await;
            })
        })
    };
    Subject { name: "etcd's lock API", pair: Box::new(pair) }
}

/// All of them.
pub async fn run(how: &How) {
    let etcd = Etcd::start();
    println!("\n== etcd, one node, with fsync");
    let subjects = [keylatch(&etcd.url()).await, own(&etcd.address()).await];
    let loads = [
        Load { name: "one at a time", tasks: 1, keys: 1 },
        Load { name: "own keys", tasks: 64, keys: 64 },
        Load { name: "contended", tasks: 64, keys: 8 },
    ];
    for load in loads {
        compare(&subjects, load, how).await;
    }
}
