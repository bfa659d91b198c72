//! The messages of etcd's protocol that are used here, as `rpc.proto`, `kv.proto` describe them. By hand: they
//! are few and never change, and nobody needs a compiler for them to build this.

use prost::{Enumeration, Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum SortOrder {
    None = 0,
    Ascending = 1,
    Descending = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum SortTarget {
    Key = 0,
    Create = 2,
    Mod = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(enumeration = "SortOrder", tag = "5")]
    pub(super) sort_order: i32,
    #[prost(enumeration = "SortTarget", tag = "6")]
    pub(super) sort_target: i32,
    #[prost(bool, tag = "7")]
    pub(super) serializable: bool,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
    #[prost(int64, tag = "12")]
    pub(super) min_create_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

/// Of a put or a deletion, of which nothing is needed.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Nothing {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum Is {
    Equal = 0,
    Greater = 1,
    Less = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum Target {
    Version = 0,
    Create = 1,
    Mod = 2,
    Value = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(enumeration = "Is", tag = "1")]
    pub(super) is: i32,
    #[prost(enumeration = "Target", tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "With", tags = "5, 6, 7")]
    pub(super) with: Option<With>,
    #[prost(bytes = "vec", tag = "64")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum With {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Op {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRequest),
    #[prost(message, tag = "4")]
    Txn(TxnRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OpResponse {
    #[prost(oneof = "Response", tags = "1, 2, 3, 4")]
    pub(super) response: Option<Response>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(Nothing),
    #[prost(message, tag = "3")]
    Delete(Nothing),
    #[prost(message, tag = "4")]
    Txn(TxnResponse),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Op>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<Op>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<OpResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

/// Also what a lease's keeping alive answers.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    /// Seconds; none, if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

/// To revoke a lease or to keep it alive.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreate>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(bool, tag = "6")]
    pub(super) prev_kv: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// 0 is a put, 1 a deletion.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
    #[prost(message, optional, tag = "3")]
    pub(super) prev_kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

impl Compare {
    fn new(key: Vec<u8>, range_end: Vec<u8>, is: Is, target: Target, with: With) -> Compare {
        let (is, target) = (is as i32, target as i32);
        Compare { is, target, key, with: Some(with), range_end }
    }

    /// This key was last written in this revision; in 0 if it is not there.
    pub(super) fn written(key: Vec<u8>, revision: i64) -> Compare {
        Compare::new(key, Vec::new(), Is::Equal, Target::Mod, With::Mod(revision))
    }

    /// Something is in this range: a range without keys is compared like a key that is not there.
    pub(super) fn some_in((key, end): (Vec<u8>, Vec<u8>)) -> Compare {
        Compare::new(key, end, Is::Greater, Target::Create, With::Create(0))
    }

    /// Nothing is in this range.
    pub(super) fn none_in((key, end): (Vec<u8>, Vec<u8>)) -> Compare {
        Compare::new(key, end, Is::Equal, Target::Create, With::Create(0))
    }

    /// All in this range, if there is any, was written before this revision.
    pub(super) fn all_before((key, end): (Vec<u8>, Vec<u8>), revision: i64) -> Compare {
        Compare::new(key, end, Is::Less, Target::Mod, With::Mod(revision))
    }

    /// This key is there, with this value.
    pub(super) fn value(key: Vec<u8>, value: Vec<u8>) -> Compare {
        Compare::new(key, Vec::new(), Is::Equal, Target::Value, With::Value(value))
    }
}

impl Op {
    pub(super) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> Op {
        Op { request: Some(Request::Put(PutRequest { key, value, lease })) }
    }

    pub(super) fn delete(key: Vec<u8>) -> Op {
        Op::delete_range((key, Vec::new()))
    }

    pub(super) fn delete_range((key, range_end): (Vec<u8>, Vec<u8>)) -> Op {
        Op { request: Some(Request::Delete(DeleteRequest { key, range_end })) }
    }

    pub(super) fn range(range: RangeRequest) -> Op {
        Op { request: Some(Request::Range(range)) }
    }

    pub(super) fn txn(txn: TxnRequest) -> Op {
        Op { request: Some(Request::Txn(txn)) }
    }
}

impl RangeRequest {
    pub(super) fn one(key: Vec<u8>) -> RangeRequest {
        RangeRequest { key, ..RangeRequest::default() }
    }

    pub(super) fn all((key, range_end): (Vec<u8>, Vec<u8>)) -> RangeRequest {
        RangeRequest { key, range_end, ..RangeRequest::default() }
    }

    /// In the order in which they were created, only those after this revision.
    pub(super) fn created_after(self, revision: i64) -> RangeRequest {
        RangeRequest {
            min_create_revision: revision + 1,
            sort_order: SortOrder::Ascending as i32,
            sort_target: SortTarget::Create as i32,
            ..self
        }
    }
}

impl TxnResponse {
    /// What was read, in the order in which it was asked for.
    pub(super) fn ranges(self) -> impl Iterator<Item = Vec<KeyValue>> {
        self.counted_ranges().map(|range| range.kvs)
    }

    /// The same, with how many there are.
    pub(super) fn counted_ranges(self) -> impl Iterator<Item = RangeResponse> {
        self.responses.into_iter().filter_map(|one| match one.response {
            Some(Response::Range(range)) => Some(range),
            _ => None,
        })
    }

    /// The answers of transactions in this one.
    pub(super) fn inner(self) -> impl Iterator<Item = TxnResponse> {
        self.responses.into_iter().filter_map(|one| match one.response {
            Some(Response::Txn(txn)) => Some(txn),
            _ => None,
        })
    }

    pub(super) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }
}
