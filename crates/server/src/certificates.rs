//! The server's certificates: read when it starts, and again whenever the files change, without a
//! restart. Connections that exist keep what they began with.
//!
//! `Turns` owns it and asks once a second whether the files are still the same. A new certificate and
//! its key cannot be put in place at one moment, so new files that do not go together are an error in
//! the log and no more: the old ones stay in use until the files change once more.

pub(crate) mod subject;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config::TlsFiles;

/// Bytes of a file with certificates; a chain has some thousand.
const FILE_BYTES: u64 = 1024 * 1024;

/// What is wrong with the files that TLS needs.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It is not there, or not for us.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is not text between markers, or something between them is damaged.
    #[error("{} is not PEM: {error}", path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
        /// Where it stops being PEM.
        error: pem::Error,
    },
    /// Something else may be in it.
    #[error("there is no certificate in {}: it needs -----BEGIN CERTIFICATE-----", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// Something else may be in it.
    #[error("there is no private key in {}: it needs -----BEGIN PRIVATE KEY-----", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// Nobody is there to ask for the passphrase.
    #[error("the private key in {} is encrypted: take its passphrase off", path.display())]
    EncryptedKey {
        /// The file.
        path: PathBuf,
    },
    /// Markers and letters are right, what they stand for is not.
    #[error("{} cannot be used: {error}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: rustls::Error,
    },
    /// Each is fine.
    #[error(
        "the private key in {} is not that of the first certificate in {}",
        key.display(),
        certificate.display()
    )]
    KeyDoesNotFit {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// None of the authorities can be one.
    #[error("no client can be verified with {}: {error}", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// Why.
        error: String,
    },
}

/// The certificates in use, and the files they came from.
pub(crate) struct Certificates {
    files: TlsFiles,
    config: Arc<ServerConfig>,
    /// The files as they were when they were last read, well or not: what is wrong is said once.
    seen: Vec<Option<Stamp>>,
}

/// Another one is another file, or another content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Certificates {
    pub(crate) fn read(files: TlsFiles) -> Result<Certificates, TlsError> {
        // First this: what changes while they are read is seen the next time.
        let seen = stamps(&files);
        let config = Arc::new(server_config(&files)?);
        Ok(Certificates { files, config, seen })
    }

    /// For a new connection.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    pub(crate) fn read_if_changed(&mut self) {
        if stamps(&self.files) != self.seen {
            self.read_again();
        }
    }

    pub(crate) fn read_again(&mut self) {
        self.seen = stamps(&self.files);
        match server_config(&self.files) {
            Ok(config) => {
                self.config = Arc::new(config);
                tracing::info!("new certificates are in use");
            }
            Err(error) => tracing::error!(%error, "the old certificates stay in use"),
        }
    }
}

fn stamps(files: &TlsFiles) -> Vec<Option<Stamp>> {
    let paths = [Some(&files.certificate), Some(&files.key), files.client_ca.as_ref()];
    let stamp = |path: &PathBuf| {
        let about = std::fs::metadata(path).ok()?;
        Some(Stamp {
            device: about.dev(),
            inode: about.ino(),
            bytes: about.size(),
            modified: (about.mtime(), about.mtime_nsec()),
        })
    };
    paths.into_iter().flatten().map(stamp).collect()
}

pub(crate) fn server_config(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let TlsFiles { certificate, key, client_ca, require_client_certificate } = files;
    let chain = certificates(certificate)?;
    let private = private_key(key)?;
    let provider = Arc::new(default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has what the default versions need");
    let config = match client_ca {
        None => config.with_no_client_auth(),
        Some(path) => {
            let failed = |error: String| TlsError::ClientCa { path: path.clone(), error };
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| failed(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = match require_client_certificate {
                true => verifier,
                false => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build().map_err(|error| failed(error.to_string()))?;
            config.with_client_cert_verifier(verifier)
        }
    };
    let mut config = config.with_single_cert(chain, private).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::KeyDoesNotFit { certificate: certificate.clone(), key: key.clone() }
        }
        rustls::Error::InvalidCertificate(_) => {
            TlsError::Unusable { path: certificate.clone(), error }
        }
        error => TlsError::Unusable { path: key.clone(), error },
    })?;
    // Connections last. None is taken up again later on the strength of a certificate that has
    // expired since, or whose authority has gone.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The same files for the other end, where both show a certificate of the same authority.
pub(crate) fn client_config(files: &TlsFiles) -> Result<ClientConfig, TlsError> {
    let TlsFiles { certificate, key, client_ca, .. } = files;
    let mut roots = RootCertStore::empty();
    if let Some(path) = client_ca {
        let failed = |error: rustls::Error| TlsError::Unusable { path: path.clone(), error };
        for authority in certificates(path)? {
            roots.add(authority).map_err(failed)?;
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has what the default versions need")
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(certificate)?, private_key(key)?);
    config.map_err(|error| TlsError::Unusable { path: certificate.clone(), error })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = content(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| TlsError::NotPem { path: path.into(), error })?;
    match found.is_empty() {
        true => Err(TlsError::NoCertificate { path: path.into() }),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = content(path)?;
    let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound if text.windows(encrypted.len()).any(|at| at == encrypted) => {
            TlsError::EncryptedKey { path: path.into() }
        }
        pem::Error::NoItemsFound => TlsError::NoKey { path: path.into() },
        error => TlsError::NotPem { path: path.into(), error },
    })
}

/// All of a file, which must be one: a pipe would keep everyone waiting.
fn content(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let mut text = Vec::new();
        File::open(path)?.take(FILE_BYTES + 1).read_to_end(&mut text)?;
        match text.len() as u64 > FILE_BYTES {
            true => Err(io::Error::other("it is longer than 1 MiB")),
            false => Ok(text),
        }
    };
    read().map_err(|error| TlsError::Unreadable { path: path.into(), error })
}
