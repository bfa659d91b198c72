//! What is swept, and who is kept from it.

use super::super::keys::Keys;
use super::super::link::Link;
use super::super::url::Url;
use super::super::value;
use super::super::wire::{Op, TxnRequest};
use super::*;
use crate::strategy::record::store::Put;

/// Whoever ends in between has kept nobody from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_it_was_swept_is_noted_when_it_was() {
    let running = Running::start();
    let url = Url::parse(&running.etcd.url()).unwrap();
    let (link, keys) = (Link::open(&url).await.unwrap(), Keys::new(&url.prefix));
    let head = Put { bytes: "1".into(), keep_ms: Some(1), holders: Vec::new() };
    let left = Op::put(keys.head("k", 0), value::head(&head, 0), 0);
    link.txn(TxnRequest { success: vec![left], ..TxnRequest::default() }).await.unwrap();
    let everything = (vec![0], vec![0]);
    let mut events = link.watch(everything).await.unwrap();
    let store = Etcd::connect(&running.etcd.url()).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        for event in events.message().await.unwrap().unwrap().events {
            let deleted = event.kind == 1;
            let key = event.kv.unwrap().key;
            if (deleted && key == keys.head("k", 0)) || (!deleted && key == keys.swept()) {
                seen.push(key);
            }
        }
    }
    assert_eq!(seen, [keys.head("k", 0), keys.swept()]);
    drop(store);
}
