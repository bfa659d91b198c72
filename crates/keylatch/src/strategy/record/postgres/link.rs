//! From a URL to a connection: what is ours in it, TLS, and how a server's answers are judged.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Error, Notification, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::store::StoreError;
use super::LIMIT;
use super::pool::Params;

/// A connection that says nothing is asked after so long whether it still is one.
const QUIET: Duration = Duration::from_secs(15);
/// How many connections a process has by default; one more listens.
const CONNECTIONS: usize = 6;

/// Where, and how.
pub(super) struct Link {
    config: Config,
    tls: MakeRustlsConnect,
    /// How many connections at most.
    pub(super) connections: usize,
    /// Whether to try to be told: it costs a connection, and does not work behind some poolers.
    pub(super) listens: bool,
}

/// One connection.
pub(super) struct Wire {
    pub(super) client: Client,
    /// By their texts, which are few.
    prepared: Vec<(&'static str, Statement)>,
    drives: AbortHandle,
}

impl Wire {
    /// Ends it, whatever is under way.
    pub(super) fn cut(self) {
        self.drives.abort();
    }

    /// The text is always the same for the same types.
    pub(super) async fn query_prepared(
        &mut self,
        text: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        let known = self.prepared.iter().position(|(known, _)| std::ptr::eq(*known, text));
        let known = match known {
            Some(known) => known,
            None => {
                let types: Vec<Type> = params.iter().map(|(_, kind)| kind.clone()).collect();
                self.prepared.push((text, self.client.prepare_typed(text, &types).await?));
                self.prepared.len() - 1
            }
        };
        let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(value, _)| *value).collect();
        self.client.query(&self.prepared[known].1, &params).await
    }
}

/// How much of a certificate is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// Nothing, as PostgreSQL's own clients do unless they are asked to.
    Nothing,
    /// Who signed it.
    Signer,
    /// And that it is of this host.
    Everything,
}

impl Link {
    pub(super) fn new(url: &str) -> Result<Link, String> {
        let (start, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut connections, mut listens) = (CONNECTIONS, true);
        let (mut check, mut roots) = (Check::Nothing, None);
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("listen", "on") => listens = true,
                ("listen", "off") => listens = false,
                ("listen", other) => return Err(format!("listen={other}: it is on or off")),
                ("connections", text) => match text.parse() {
                    Ok(count @ 1..=1_000) => connections = count,
                    _ => return Err(format!("connections={text}: it is a number from 1 to 1000")),
                },
                ("sslmode", "verify-ca") => check = Check::Signer,
                ("sslmode", "verify-full") => check = Check::Everything,
                ("sslrootcert", path) => roots = Some(decode(path)?),
                _ => rest.push(pair),
            }
        }
        if check != Check::Nothing {
            rest.push("sslmode=require");
        }
        let url = format!("{start}?{}", rest.join("&"));
        let mut config: Config = url.parse().map_err(|error: Error| explained(&error))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(LIMIT);
        }
        if config.get_application_name().is_none() {
            config.application_name("keylatch");
        }
        config.keepalives_idle(QUIET).tcp_user_timeout(QUIET);
        let tls = tls(check, roots.as_deref())?;
        Ok(Link { config, tls, connections, listens })
    }

    pub(super) async fn connect(&self) -> Result<Wire, Error> {
        Ok(self.open().await?.0)
    }

    /// A connection, and what it is told.
    pub(super) async fn open(
        &self,
    ) -> Result<(Wire, mpsc::UnboundedReceiver<Notification>), Error> {
        let (client, mut connection) = self.config.connect(self.tls.clone()).await?;
        let (tell, told) = mpsc::unbounded_channel();
        let drives = tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notification(notification) = message {
                    drop(tell.send(notification));
                }
            }
        });
        Ok((Wire { client, prepared: Vec::new(), drives: drives.abort_handle() }, told))
    }
}

/// Text with `%41` for `A`.
fn decode(text: &str) -> Result<String, String> {
    let wrong = || format!("'{text}' is not a part of a URL");
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// How TLS is spoken, if the server wants it and the URL does not forbid it.
fn tls(check: Check, roots: Option<&str>) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = match check {
        Check::Nothing => Verifier { chain: None, check, provider: Arc::clone(&provider) },
        _ => {
            let roots = Arc::new(read_roots(roots)?);
            let chain = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
            let chain = chain.build().map_err(|error| format!("sslrootcert: {error}"))?;
            Verifier { chain: Some(chain), check, provider: Arc::clone(&provider) }
        }
    };
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

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Check::Nothing => "require",
            Check::Signer => "verify-ca",
            Check::Everything => "verify-full",
        })
    }
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

/// What went wrong, with its cause: the client's own text has none.
pub(super) fn explained(error: &Error) -> String {
    if let Some(answer) = error.as_db_error() {
        return answer.message().to_string();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// What became of something that was sent. A server that answers with an error has not done it, with these
/// exceptions: a connection that was ended from outside may have been ended after the commit; a
/// pooler answers in the place of a server that it has lost; and a commit that has happened can still be
/// hindered from telling, by a limit or by somebody who cancels it.
pub(super) fn failed(error: &Error) -> StoreError {
    let certain = error.as_db_error().is_some_and(|answer| {
        let code = answer.code();
        let doubtful = ["08", "53", "54", "57", "58", "F0", "XX"];
        answer.parsed_severity() == Some(Severity::Error)
            && !doubtful.iter().any(|class| code.code().starts_with(class))
            && *code != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
    });
    StoreError { text: format!("PostgreSQL: {}", explained(error)), unknown: !certain }
}
