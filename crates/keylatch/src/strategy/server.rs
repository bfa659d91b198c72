//! `keylatch://`, and `keylatchs://` inside of TLS: the lock server, over one connection for everything (RESP3). If the connection is
//! lost, the next address is tried, everything without an answer is asked again under the same id,
//! and what is held or waited for is attached to the new connection.

mod claims;
mod events;
mod hello;
mod link;
mod list;
mod read;
mod tasks;
#[cfg(feature = "tls")]
mod tls;
mod way;

use std::time::Duration;

use keylatch_table::{Acquire, Entry, LocksQuery, RequestId};
use keylatch_wire::{Lock, Protocol, Value, Writer};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::{Granted, Loss, Pending, Renewed, Strategy};
use crate::clock::Moment;
use crate::error::{ConnectError, ListError, LockError, PromoteError};
use crate::event::Event;
use crate::guard::Released;
use crate::releasing::Counted;
use link::{Link, Submitted};
pub(crate) use way::Way;

/// How long the server may be away before an answer is not waited for any more; beyond the wait of
/// a lock.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Server {
    submit: mpsc::UnboundedSender<Submitted>,
    way: Way,
}

impl Server {
    pub(crate) async fn connect(
        mut way: Way,
        losses: mpsc::UnboundedSender<Loss>,
    ) -> Result<Server, ConnectError> {
        let (submit, submitted) = mpsc::unbounded_channel();
        // The first time a mistake in the address should show at once.
        let stream = way.connect().await?;
        tokio::spawn(Link::new(way.clone(), submitted, losses).run(stream));
        Ok(Server { submit, way })
    }

    fn command(&self, words: &[&str]) -> oneshot::Receiver<Result<Value, Failure>> {
        send(&self.submit, words)
    }
}

/// Sends a command and waits for its answer. The text of a failure says whether it was sent.
fn send(
    submit: &mpsc::UnboundedSender<Submitted>,
    words: &[impl AsRef<str>],
) -> oneshot::Receiver<Result<Value, Failure>> {
    let (send, answer) = oneshot::channel();
    // If the link has ended, the sender is dropped with it.
    drop(submit.send(Submitted::Command(encode(words), send)));
    answer
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It was never sent.
    NotSent(String),
    /// It was, and may have happened.
    Unknown(String),
    /// We are not let in any more.
    Denied(String),
}

impl From<Failure> for ListError {
    fn from(failure: Failure) -> ListError {
        match failure {
            Failure::NotSent(text) | Failure::Unknown(text) => ListError::Unreachable(text),
            Failure::Denied(text) => ListError::Denied(text),
        }
    }
}

fn encode(words: &[impl AsRef<str>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer { out: &mut out, protocol: Protocol::Resp2 };
    writer.array(words.len());
    for word in words {
        writer.bulk(word.as_ref().as_bytes());
    }
    out
}

async fn answer(receiver: oneshot::Receiver<Result<Value, Failure>>) -> Result<Value, Failure> {
    let ended = || Err(Failure::Unknown("the connection has been given up".into()));
    receiver.await.unwrap_or_else(|_| ended())
}

impl Strategy for Server {
    fn acquire(&self, ask: Acquire) -> Pending<Result<Granted, LockError>> {
        let extra = keylatch_table::Extra::from(ask.extra);
        let lock = Lock {
            part: ask.part,
            also: ask.also,
            owner: ask.party.explicit.then(|| (*ask.party.owner).into()),
            lease_ms: ask.lease_ms,
            wait_ms: ask.wait_ms,
            id: Some(ask.id),
            meta: extra.meta,
            max_hold_ms: extra.max_hold_ms,
            detect: ask.detect,
            asynchronous: ask.wait_ms > 0,
        };
        let (send, outcome) = oneshot::channel();
        drop(self.submit.send(Submitted::Lock(Box::new(lock), send)));
        Box::pin(async move {
            let ended = LockError::Unknown("the connection has been given up".into());
            outcome.await.unwrap_or(Err(ended))
        })
    }

    fn release(&self, id: &RequestId, counted: Counted) -> Pending<Released> {
        let (send, receiver) = oneshot::channel();
        let bytes = encode(&["UNLOCK", &id.to_string()]);
        drop(self.submit.send(Submitted::Release(id.clone(), bytes, send)));
        let released = async move {
            match answer(receiver).await {
                Ok(Value::Integer(1)) => Released::Released,
                Ok(Value::Integer(_)) => Released::NotHeld,
                _ => Released::Unknown,
            }
        };
        counted.carry(&Handle::current(), Box::pin(released))
    }

    fn renew(&self, id: &RequestId, lease_ms: Option<u64>) -> Pending<Option<Renewed>> {
        let since = Moment::now();
        let (id, lease) = (id.to_string(), lease_ms.map(|lease| lease.to_string()));
        let mut words = vec!["RENEW", &id];
        words.extend(lease.iter().flat_map(|lease| ["LEASE", lease]));
        let receiver = self.command(&words);
        Box::pin(async move {
            match answer(receiver).await {
                Ok(value) => read::renewed(&value, since),
                Err(Failure::Denied(text)) => Some(Renewed::Denied(text)),
                Err(Failure::NotSent(_) | Failure::Unknown(_)) => None,
            }
        })
    }

    fn promote(&self, id: &RequestId) -> Pending<Result<Granted, PromoteError>> {
        let since = Moment::now();
        let (send, receiver) = oneshot::channel();
        let bytes = encode(&["PROMOTE", &id.to_string()]);
        drop(self.submit.send(Submitted::Promote(id.clone(), bytes, send)));
        Box::pin(async move {
            match answer(receiver).await {
                Ok(value) => read::promoted(&value, since),
                Err(Failure::Denied(text)) => Err(PromoteError::Denied(text)),
                Err(Failure::NotSent(text) | Failure::Unknown(text)) => {
                    Err(PromoteError::Unknown(text))
                }
            }
        })
    }

    fn list(&self, query: LocksQuery) -> Pending<Result<Vec<Entry>, ListError>> {
        Box::pin(list::pages(self.submit.clone(), query))
    }

    fn revoke(&self, token: u64, reason: &str) -> Pending<Result<bool, ListError>> {
        let receiver = self.command(&["REVOKE", &token.to_string(), "REASON", reason]);
        Box::pin(async move {
            match answer(receiver).await {
                Ok(Value::Integer(count)) => Ok(count == 1),
                Ok(Value::Error(text)) => Err(read::refused(text)),
                Ok(other) => Err(ListError::Refused(format!("not an answer: {other:?}"))),
                Err(failure) => Err(failure.into()),
            }
        })
    }

    fn watch(&self) -> Pending<Result<mpsc::Receiver<Event>, ListError>> {
        Box::pin(events::watch(self.way.clone()))
    }
}
