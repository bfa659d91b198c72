//! Mutual TLS between members: each shows a certificate of the same authority, and the one that is called is
//! the one whose name or address was called.
//!
//! Links are few and last, so the files are read for each of them: new certificates are in use for new links
//! without a restart. Files that are wrong are said to be so, and the last good ones stay in use.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::certificates::{TlsError, client_config, server_config};
use crate::config::TlsFiles;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(2);

pub(crate) struct Tls {
    files: TlsFiles,
    /// What was good last.
    last: Mutex<(Arc<ServerConfig>, Arc<ClientConfig>)>,
}

impl Tls {
    pub(crate) fn read(files: TlsFiles) -> Result<Tls, TlsError> {
        let last = Mutex::new(both(&files)?);
        Ok(Tls { files, last })
    }

    fn configs(&self) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        match both(&self.files) {
            Ok(both) => *self.last.lock() = both,
            Err(error) => tracing::error!(%error, "the old certificates for members stay in use"),
        }
        self.last.lock().clone()
    }

    pub(crate) async fn connect(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        TlsConnector::from(self.configs().1).connect(name, stream).await
    }

    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<server::TlsStream<TcpStream>> {
        let accepting = TlsAcceptor::from(self.configs().0).accept(stream);
        tokio::time::timeout(HANDSHAKE, accepting).await?
    }
}

fn both(files: &TlsFiles) -> Result<(Arc<ServerConfig>, Arc<ClientConfig>), TlsError> {
    Ok((Arc::new(server_config(files)?), Arc::new(client_config(files)?)))
}
