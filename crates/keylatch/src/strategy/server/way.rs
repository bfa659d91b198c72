//! Where the server is, and how a connection to it is made.

use std::time::Duration;

use tokio::net::TcpStream;

use crate::error::ConnectError;

/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(2);
/// Between two rounds over all addresses.
pub(super) const BACK_OFF: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_secs(1));

/// Where the server is.
#[derive(Clone)]
pub(super) struct Way {
    addresses: Vec<String>,
    /// The address that is tried next.
    next: usize,
}

impl Way {
    pub(super) fn new(addresses: Vec<String>) -> Way {
        Way { addresses, next: 0 }
    }

    /// The first address that answers.
    pub(super) async fn connect(&mut self) -> Result<TcpStream, ConnectError> {
        let mut last = String::new();
        for _ in 0..self.addresses.len() {
            let address = &self.addresses[self.next % self.addresses.len()];
            self.next += 1;
            match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    drop(stream.set_nodelay(true));
                    return Ok(stream);
                }
                Ok(Err(error)) => last = format!("{address}: {error}"),
                Err(_) => last = format!("{address}: no answer"),
            }
        }
        Err(ConnectError::Unreachable(format!("no lock server was reached ({last})")))
    }
}
