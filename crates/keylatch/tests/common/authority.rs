//! Certificates of our own.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// An authority, and where its certificate is.
pub(crate) struct Authority {
    pub(crate) issuer: CertifiedIssuer<'static, KeyPair>,
    pub(crate) file: PathBuf,
}

/// A certificate and its key, as files and as they are.
pub(crate) struct Identity {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) private: PrivateKeyDer<'static>,
}

impl Authority {
    pub(crate) fn new(dir: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = dir.join(format!("{name}.pem"));
        std::fs::write(&file, issuer.pem()).unwrap();
        Authority { issuer, file }
    }

    /// The first name is its common name, too.
    pub(crate) fn identity(&self, dir: &Path, names: &[&str]) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        let (cert, key) = (dir.join(&names[0]), dir.join(format!("{}.key", names[0])));
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names.clone()).unwrap();
        params.distinguished_name.push(DnType::CommonName, names[0].as_str());
        let signed = params.signed_by(&pair, &self.issuer).unwrap();
        std::fs::write(&cert, signed.pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        let private = PrivatePkcs8KeyDer::from(pair.serialize_der()).into();
        Identity { cert, key, chain: vec![signed.der().clone()], private }
    }
}
