//! Where the server is, and how a connection to it is made.

use std::net::IpAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::TlsConnector;

use super::hello::{self, Token, Unwelcome};
#[cfg(feature = "tls")]
use super::tls::{self, Failed, Tls};
use crate::error::ConnectError;

/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(2);
/// Between two rounds over all addresses.
pub(super) const BACK_OFF: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_secs(1));

/// What a server of this process is called.
#[cfg(feature = "cluster")]
const WITHIN: &str = "the member in this process";

/// Where the server is, and who we are there.
#[derive(Clone)]
pub(crate) struct Way {
    addresses: Vec<String>,
    /// The address that is tried next.
    next: usize,
    token: Option<Token>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    /// The server is in this process, and this is its door; then there is no address.
    #[cfg(feature = "cluster")]
    door: Option<keylatch_server::Door>,
}

/// A connection.
pub(super) enum Stream {
    Plain(TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    #[cfg(feature = "cluster")]
    Inside(tokio::net::UnixStream),
}

/// One end of it each.
pub(super) type Halves<'a> =
    (Box<dyn AsyncRead + Send + Unpin + 'a>, Box<dyn AsyncWrite + Send + Unpin + 'a>);

impl Stream {
    /// Whether something that was written may stay here until it is flushed.
    pub(super) fn holds_back(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            #[cfg(feature = "tls")]
            Stream::Tls(_) => true,
            #[cfg(feature = "cluster")]
            Stream::Inside(_) => false,
        }
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
            #[cfg(feature = "cluster")]
            Stream::Inside(stream) => {
                let (reader, writer) = stream.split();
                (Box::new(reader), Box::new(writer))
            }
        }
    }
}

impl Way {
    /// `//[:TOKEN@]host:port,host:port`, after `keylatch:`.
    pub(crate) fn plain(rest: &str) -> Result<Way, ConnectError> {
        let way = Way::read(rest)?;
        let strange = way.addresses.iter().find(|address| !is_loopback(host(address)));
        if let (Some(address), Some(_)) = (strange, &way.token) {
            tracing::warn!(
                address,
                "a token goes over the network in the clear, for everyone to read: use keylatchs://"
            );
        }
        Ok(way)
    }

    /// The same with `?ca=PATH&cert=PATH&key=PATH` behind it, after `keylatchs:`.
    #[cfg(feature = "tls")]
    pub(crate) fn tls(rest: &str) -> Result<Way, ConnectError> {
        let (list, query) = rest.split_once('?').unwrap_or((rest, ""));
        // Not shown: it would be the end of a token.
        if !list.contains('@') && query.split('=').next().is_some_and(|name| name.contains('@')) {
            let text = "an @ after the ? is written %40, and a ? before the @ is written %3F";
            return Err(ConnectError::Url(text.into()));
        }
        let tls = Tls::read(query).map_err(ConnectError::Url)?;
        Ok(Way { tls: Some(tls), ..Way::read(list)? })
    }

    fn read(list: &str) -> Result<Way, ConnectError> {
        let (token, list) = Token::split(list)?;
        let addresses = addresses(list).map_err(ConnectError::Url)?;
        let token = match token {
            Some(token) => Some(token),
            None => Token::from_environment()?,
        };
        Ok(Way {
            addresses,
            next: 0,
            token,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "cluster")]
            door: None,
        })
    }

    /// To a server of this process.
    #[cfg(feature = "cluster")]
    pub(crate) fn inside(door: keylatch_server::Door) -> Way {
        Way {
            addresses: Vec::new(),
            next: 0,
            token: None,
            #[cfg(feature = "tls")]
            tls: None,
            door: Some(door),
        }
    }

    /// The first address that answers and takes us.
    pub(super) async fn connect(&mut self) -> Result<Stream, ConnectError> {
        #[cfg(feature = "cluster")]
        if let Some(door) = &self.door {
            let stream = door.connect().and_then(tokio::net::UnixStream::from_std);
            let mut stream =
                Stream::Inside(stream.map_err(|error| unreachable_error(WITHIN, error))?);
            let greeted = tokio::time::timeout(CONNECT, hello::greet(&mut stream, None)).await;
            let greeted = greeted.map_err(|_| unreachable_error(WITHIN, "no answer"))?;
            greeted.map_err(|unwelcome| explain(WITHIN, &stream, unwelcome))?;
            return Ok(stream);
        }
        #[cfg(feature = "tls")]
        let connector = match &self.tls {
            Some(tls) => Some(tls.connector().await.map_err(ConnectError::Configuration)?),
            None => None,
        };
        let mut last = ConnectError::Unreachable("no lock server is named".into());
        for _ in 0..self.addresses.len() {
            let address = &self.addresses[self.next % self.addresses.len()];
            self.next += 1;
            let connected = async {
                #[cfg(feature = "tls")]
                let mut stream = open(address, connector.as_ref()).await?;
                #[cfg(not(feature = "tls"))]
                let mut stream = open(address).await?;
                let greeted = hello::greet(&mut stream, self.token.as_ref()).await;
                greeted.map_err(|unwelcome| explain(address, &stream, unwelcome))?;
                Ok(stream)
            };
            let connected = tokio::time::timeout(CONNECT, connected).await;
            let no_answer = || Err(unreachable_error(address, "no answer"));
            match connected.unwrap_or_else(|_| no_answer()) {
                Ok(stream) => return Ok(stream),
                // That others are away is no news to one who is not let in.
                Err(_) if matches!(last, ConnectError::Denied(_)) => {}
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
        let opened = tls::open(connector, address, stream).await;
        let opened = opened.map_err(|failed| tls_error(address, failed))?;
        return Ok(Stream::Tls(Box::new(opened)));
    }
    Ok(Stream::Plain(stream))
}

#[cfg(feature = "tls")]
fn tls_error(address: &str, failed: Failed) -> ConnectError {
    match failed {
        Failed::Refused(reason) => ConnectError::Refused(format!("{address}: {reason}")),
        Failed::Lost(reason) => unreachable_error(address, reason),
    }
}

fn explain(address: &str, stream: &Stream, unwelcome: Unwelcome) -> ConnectError {
    match (unwelcome, stream) {
        #[cfg(feature = "tls")]
        (Unwelcome::Lost(error), Stream::Tls(_)) => {
            tls_error(address, tls::explain(address, &error))
        }
        (Unwelcome::Lost(error), _) => unreachable_error(address, error),
        (Unwelcome::Full(reason), _) => unreachable_error(address, reason),
        (Unwelcome::Denied(reason), _) => ConnectError::Denied(format!("{address}: {reason}")),
        (Unwelcome::Refused(reason), _) => ConnectError::Refused(format!("{address}: {reason}")),
    }
}

/// The host of `HOST:PORT`.
pub(super) fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn addresses(list: &str) -> Result<Vec<String>, String> {
    let address = |text: &str| match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.into()),
        None if !text.is_empty() => Ok(format!("{text}:5625")),
        _ => Err(format!("'{text}' is not HOST:PORT, such as localhost:5625")),
    };
    list.trim_end_matches('/').split(',').map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::{addresses, host, is_loopback};

    #[test]
    fn addresses_are_read_and_mistakes_named() {
        assert_eq!(addresses("a:1,b:2").unwrap(), ["a:1", "b:2"]);
        assert_eq!(addresses("localhost/").unwrap(), ["localhost:5625"]);
        assert_eq!(addresses("[::1]:7").unwrap(), ["[::1]:7"]);
        for wrong in ["", "a:", "a:1,,b:2", ":1", "a:99999"] {
            assert!(addresses(wrong).unwrap_err().contains("is not HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for ours in ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert!(is_loopback(host(ours)), "{ours}");
        }
        for other in ["192.0.2.1:1", "[2001:db8::1]:1", "localhost.example:1"] {
            assert!(!is_loopback(host(other)), "{other}");
        }
    }
}
