//! `keylatchs://`: the same connection inside of TLS.
//!
//! Trusted are the roots of the system or, if the URL has `?ca=PATH`, that authority and no other: a
//! lock server in one's own network must not be impersonated by whoever is in the public list.
//! `?cert=PATH&key=PATH` says who the client is.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, Error, RootCertStore, crypto::ring::default_provider,
};

use super::hello::percent_decoded;
use super::way::host;

/// What the URL says of certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    ca: Option<PathBuf>,
    /// A chain and its key.
    client: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// `ca=PATH&cert=PATH&key=PATH`, each or none.
    pub(super) fn read(query: &str) -> Result<Tls, String> {
        let (mut ca, mut cert, mut key) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let to = match name {
                "ca" => &mut ca,
                "cert" => &mut cert,
                "key" => &mut key,
                _ => return Err(format!("'{name}' is not known: there are ca, cert and key")),
            };
            let path = percent_decoded(value).filter(|path| !path.is_empty());
            let path = path.ok_or_else(|| format!("'{pair}' is not {name}=PATH"))?;
            *to = Some(PathBuf::from(path));
        }
        match (cert, key) {
            (Some(cert), Some(key)) => Ok(Tls { ca, client: Some((cert, key)) }),
            (None, None) => Ok(Tls { ca, client: None }),
            _ => Err("cert=PATH and key=PATH go together".into()),
        }
    }

    /// Reads the files, each time a connection is made: certificates are renewed while programs run.
    pub(super) async fn connector(&self) -> Result<TlsConnector, String> {
        let tls = self.clone();
        let read = tokio::task::spawn_blocking(move || tls.config());
        let config = read.await.map_err(|error| error.to_string())??;
        Ok(TlsConnector::from(Arc::new(config)))
    }

    fn config(&self) -> Result<ClientConfig, String> {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(self.roots()?);
        let Some((cert, key)) = &self.client else { return Ok(config.with_no_client_auth()) };
        let chain = certificates(cert)?;
        let wrong = |error| format!("{}: no private key: {error}", key.display());
        let private = PrivateKeyDer::from_pem_file(key).map_err(wrong)?;
        let wrong = |error| format!("{} and {}: {error}", cert.display(), key.display());
        config.with_client_auth_cert(chain, private).map_err(wrong)
    }

    fn roots(&self) -> Result<RootCertStore, String> {
        let mut roots = RootCertStore::empty();
        if let Some(ca) = &self.ca {
            for certificate in certificates(ca)? {
                let wrong = |error| format!("{}: {error}", ca.display());
                roots.add(certificate).map_err(wrong)?;
            }
            return Ok(roots);
        }
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
            let errors = errors.join(", ");
            return Err(format!("this system has no roots to trust ({errors}): say ?ca=PATH"));
        }
        Ok(roots)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match read {
        Ok(found) if Vec::is_empty(&found) => {
            Err(format!("{}: there is no certificate in it", path.display()))
        }
        read => read.map_err(|error| format!("{}: {error}", path.display())),
    }
}

/// Why there is no connection.
pub(super) enum Failed {
    /// What answers is not what was expected, and will not be if it is tried again.
    Refused(String),
    Lost(String),
}

/// The same connection inside of TLS; the address is `HOST:PORT`.
pub(super) async fn open(
    connector: &TlsConnector,
    address: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Failed> {
    let host = host(address);
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        Failed::Refused(format!("'{host}' is not a name that a certificate can have"))
    })?;
    let connected = connector.connect(name, stream).await;
    connected.map_err(|error| explain(address, &error))
}

/// Says what to do about it.
pub(super) fn explain(address: &str, error: &io::Error) -> Failed {
    let host = host(address);
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    let Some(cause) = cause else { return Failed::Lost(error.to_string()) };
    Failed::Refused(match cause {
        // A bad signature: an authority of the same name, but not the same one.
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => {
            "its certificate comes from nobody who is trusted here: if it is yours, say who signed it \
             with ?ca=PATH"
                .into()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!("its certificate is not for the name '{host}'"),
        Error::InvalidMessage(_) => "it does not speak TLS: is it keylatch://?".into(),
        Error::AlertReceived(alert) => {
            format!("it refuses us ({alert:?}): does it want a certificate, ?cert=PATH&key=PATH?")
        }
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::Tls;

    #[test]
    fn what_the_url_says_of_certificates_is_read_and_mistakes_named() {
        let both = Tls::read("cert=/a%20b.pem&ca=/ca&key=/k").unwrap();
        assert_eq!(both.ca, Some("/ca".into()));
        assert_eq!(both.client, Some(("/a b.pem".into(), "/k".into())));
        assert_eq!(Tls::read(""), Ok(Tls::default()));
        for (query, reason) in [
            ("cert=/a", "go together"),
            ("ca=", "is not ca=PATH"),
            ("ca=%zz", "is not ca=PATH"),
            ("insecure=1", "is not known"),
        ] {
            let error = Tls::read(query).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
