//! How members of a cluster reach each other: requests and replies as bytes, whatever carries them. What
//! they mean is not known here. A kind of channel is a `Channel` that calls others and a `Serves` where
//! others call; a member is given both and does not know of which kind they are.
//!
//! - `hello`: who is there, said first on every link.
//! - `tcp`: links as TCP connections, `tls`: inside of which both show who they are.
//! - `redis`: links over a Redis at which members meet that cannot reach each other.
//! - `memory`: links inside of a process, which tests can cut.
//!
//! A link carries one request at a time, so nothing can queue up in it: who waits for a reply does not send
//! the next request. What must not wait for something long (a heartbeat behind a snapshot) has a link of
//! its own.

mod hello;
#[cfg(test)]
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod tcp;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
pub(crate) use hello::{Hello, Refusal, Welcome};

/// A request or a reply is no longer than this: a turn of requests (4 MiB), each of which may be
/// some eight times as long in the log.
pub(crate) const MOST_BYTES: usize = 64 * 1024 * 1024;

/// Why there was no reply. Whether the request has arrived is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// Nobody is there, or the link broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Somebody is there, and does not talk to us.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A link, and who is at its other end; later.
pub(crate) type Connecting<'a> = BoxFuture<'a, Result<(Box<dyn Link>, Welcome), ChannelError>>;

/// Makes links.
pub(crate) trait Channel: Send + Sync + 'static {
    /// A link to whoever is at `address`, after both have said who they are.
    fn connect<'a>(&'a self, address: &'a str, hello: Hello) -> Connecting<'a>;
}

/// One link to one member.
pub(crate) trait Link: Send + Sync {
    /// One request, one reply. After an error, or if the future is dropped, the link is of no use.
    fn call<'a>(&'a mut self, request: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, ChannelError>>;
}

/// Where a node is called.
pub(crate) trait Serves: Send + 'static {
    /// What is returned answers everyone who comes, until it is dropped. Called on the runtime that it is to
    /// run on.
    fn serve(self: Box<Self>, answers: Arc<dyn Answers>) -> io::Result<BoxFuture<'static, ()>>;
}

/// What answers at the other end.
pub(crate) trait Answers: Send + Sync + 'static {
    /// Whether to talk to them.
    fn welcome(&self, hello: &Hello) -> Result<Welcome, Refusal>;
    /// The reply to a request of a node that was welcome.
    fn answer(self: Arc<Self>, from: u64, request: Vec<u8>) -> BoxFuture<'static, Vec<u8>>;
}
