//! Where the server is, and how a connection to it is made.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::TlsConnector;

#[cfg(feature = "tls")]
use super::tls::{self, Failed, Tls};
use crate::error::ConnectError;

/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(2);
/// Between two rounds over all addresses.
pub(super) const BACK_OFF: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_secs(1));

/// Where the server is.
#[derive(Clone)]
pub(crate) struct Way {
    addresses: Vec<String>,
    /// The address that is tried next.
    next: usize,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// A connection.
pub(super) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// One end of it each.
pub(super) type Halves<'a> =
    (Box<dyn AsyncRead + Send + Unpin + 'a>, Box<dyn AsyncWrite + Send + Unpin + 'a>);

impl Stream {
    /// Whether something that was written may stay here until it is flushed.
    pub(super) fn holds_back(&self) -> bool {
        !matches!(self, Stream::Plain(_))
    }

    pub(super) fn split(&mut self) -> Halves<'_> {
        match self {
            Stream::Plain(stream) => {
                let (reader, writer) = stream.split();
                (Box::new(reader), Box::new(writer))
            }
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                (Box::new(reader), Box::new(writer))
            }
        }
    }
}

impl Way {
    /// `//host:port,host:port`, after `keylatch:`.
    pub(crate) fn plain(rest: &str) -> Result<Way, ConnectError> {
        let addresses = addresses(rest).map_err(ConnectError::Url)?;
        Ok(Way {
            addresses,
            next: 0,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// The same with `?ca=PATH&cert=PATH&key=PATH` behind it, after `keylatchs:`.
    #[cfg(feature = "tls")]
    pub(crate) fn tls(rest: &str) -> Result<Way, ConnectError> {
        let (list, query) = rest.split_once('?').unwrap_or((rest, ""));
        let tls = Tls::read(query).map_err(ConnectError::Url)?;
        Ok(Way { tls: Some(tls), ..Way::plain(list)? })
    }

    /// The first address that answers.
    pub(super) async fn connect(&mut self) -> Result<Stream, ConnectError> {
        #[cfg(feature = "tls")]
        let connector = match &self.tls {
            Some(tls) => Some(tls.connector().await.map_err(ConnectError::Configuration)?),
            None => None,
        };
        let mut last = ConnectError::Unreachable("no lock server is named".into());
        for _ in 0..self.addresses.len() {
            let address = &self.addresses[self.next % self.addresses.len()];
            self.next += 1;
            #[cfg(feature = "tls")]
            let connected = open(address, connector.as_ref());
            #[cfg(not(feature = "tls"))]
            let connected = open(address);
            let connected = tokio::time::timeout(CONNECT, connected).await;
            let no_answer = || Err(unreachable_error(address, "no answer"));
            match connected.unwrap_or_else(|_| no_answer()) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn unreachable_error(address: &str, reason: impl std::fmt::Display) -> ConnectError {
    ConnectError::Unreachable(format!("no lock server was reached ({address}: {reason})"))
}

async fn open(
    address: &str,
    #[cfg(feature = "tls")] connector: Option<&TlsConnector>,
) -> Result<Stream, ConnectError> {
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|error| unreachable_error(address, error))?;
    drop(stream.set_nodelay(true));
    #[cfg(feature = "tls")]
    if let Some(connector) = connector {
        return match tls::open(connector, address, stream).await {
            Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
            Err(Failed::Refused(reason)) => {
                Err(ConnectError::Refused(format!("{address}: {reason}")))
            }
            Err(Failed::Lost(reason)) => Err(unreachable_error(address, reason)),
        };
    }
    Ok(Stream::Plain(stream))
}

fn addresses(rest: &str) -> Result<Vec<String>, String> {
    let list = rest.strip_prefix("//").unwrap_or(rest).trim_end_matches('/');
    let address = |text: &str| match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.into()),
        None if !text.is_empty() => Ok(format!("{text}:5625")),
        _ => Err(format!("'{text}' is not HOST:PORT, such as localhost:5625")),
    };
    list.split(',').map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::addresses;

    #[test]
    fn addresses_are_read_and_mistakes_named() {
        assert_eq!(addresses("//a:1,b:2").unwrap(), ["a:1", "b:2"]);
        assert_eq!(addresses("//localhost/").unwrap(), ["localhost:5625"]);
        assert_eq!(addresses("//[::1]:7").unwrap(), ["[::1]:7"]);
        for wrong in ["//", "//a:", "//a:1,,b:2", "//:1", "//a:99999"] {
            assert!(addresses(wrong).unwrap_err().contains("is not HOST:PORT"), "{wrong}");
        }
    }
}
