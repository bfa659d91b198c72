//! TLS to PostgreSQL, with rustls. By default as PostgreSQL's own clients do it: encrypted if the server can, and
//! whose certificate it is does not matter; `sslmode=verify-full` looks.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How much of a certificate is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Nothing, as PostgreSQL's own clients do unless they are asked to.
    Nothing,
    /// Who signed it.
    Signer,
    /// And that it is of this host.
    Everything,
}

/// How TLS is spoken, if the server wants it and the URL does not forbid it.
pub(super) fn tls(check: Check, roots: Option<&str>) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = match check {
        Check::Nothing => None,
        Check::Signer | Check::Everything => {
            let roots = Arc::new(read_roots(roots)?);
            let chain = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
            Some(chain.build().map_err(|error| format!("sslrootcert: {error}"))?)
        }
    };
    let verifier = Verifier { chain, check, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn read_roots(path: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match path {
        None | Some("system") => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            let read = |error| format!("sslrootcert={path}: {error}");
            for root in CertificateDer::pem_file_iter(path).map_err(read)? {
                let added = roots.add(root.map_err(read)?);
                added.map_err(|error| format!("sslrootcert={path}: {error}"))?;
            }
        }
    }
    match roots.is_empty() {
        true => Err("there are no certificates to check the server's with: set sslrootcert".into()),
        false => Ok(roots),
    }
}

/// Looks at as much of a certificate as was asked for. That the server has its key is always checked.
#[derive(Debug)]
struct Verifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    check: Check,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, between, name, ocsp, now) {
            // The name is looked at last: all else was right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == Check::Signer => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
