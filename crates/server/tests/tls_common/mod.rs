//! An authority, certificates in files, a server that uses them, and clients that trust it.
#![allow(dead_code)] // every test file uses some of it

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keylatch_server::{Config, Server, TlsFiles};
use keylatch_wire::read_value;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Running;
use super::common::show;

type Issuer = CertifiedIssuer<'static, KeyPair>;

pub(crate) struct Place {
    dir: tempfile::TempDir,
    pub(crate) issuer: Issuer,
    /// Where the authority's certificate is.
    pub(crate) ca: PathBuf,
}

/// A certificate and its key.
pub(crate) struct Identity {
    certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let issuer = authority("ours");
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, issuer.pem()).unwrap();
        let place = Place { dir, issuer, ca };
        place.renew();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn identity(&self, issuer: &Issuer, name: &str) -> Identity {
        let certificate = self.path(&format!("{name}.pem"));
        let key = self.path(&format!("{name}.key"));
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let signed = params.signed_by(&pair, issuer).unwrap();
        std::fs::write(&certificate, signed.pem()).unwrap();
        std::fs::write(&key, pair.serialize_pem()).unwrap();
        Identity { certificate, key }
    }

    /// Puts a new certificate of the server in place, and returns it.
    pub(crate) fn renew(&self) -> Vec<u8> {
        let Identity { certificate, .. } = self.identity(&self.issuer, "server");
        CertificateDer::from_pem_file(certificate).unwrap().to_vec()
    }

    pub(crate) fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.path("server.pem"),
            key: self.path("server.key"),
            client_ca: None,
            require_client_certificate: false,
        }
    }

    pub(crate) fn server(&self, change: impl FnOnce(&mut Config)) -> Running {
        Running::with(|config| {
            config.tls = Some(self.files());
            change(config);
        })
    }

    pub(crate) fn unconnected(&self, server: &Running) -> (ClientConnection, TcpStream) {
        (self.connection(None, rustls::DEFAULT_VERSIONS), socket(server))
    }

    /// The first thing that a client says.
    pub(crate) fn hello(&self) -> Vec<u8> {
        let mut tls = self.connection(None, rustls::DEFAULT_VERSIONS);
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        hello
    }

    /// A client that has agreed on TLS and said nothing.
    pub(crate) fn handshaken(&self, server: &Running) -> StreamOwned<ClientConnection, TcpStream> {
        let (mut tls, mut socket) = self.unconnected(server);
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).unwrap();
        }
        StreamOwned::new(tls, socket)
    }

    pub(crate) fn client(&self, server: &Running) -> io::Result<Secure> {
        self.client_as(server, None)
    }

    pub(crate) fn client_as(
        &self,
        server: &Running,
        identity: Option<Identity>,
    ) -> io::Result<Secure> {
        Secure::greet(self.connection(identity, rustls::DEFAULT_VERSIONS), socket(server))
    }

    pub(crate) fn old_client(&self, server: &Running) -> io::Result<Secure> {
        Secure::greet(self.connection(None, &[&rustls::version::TLS12]), socket(server))
    }

    fn connection(
        &self,
        identity: Option<Identity>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
                config
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key).unwrap())
                    .unwrap()
            }
        };
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
    }
}

pub(crate) fn authority(name: &str) -> Issuer {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A connection to where TLS is spoken.
pub(crate) fn socket(server: &Running) -> TcpStream {
    let socket = TcpStream::connect(server.addresses.resp.unwrap()).unwrap();
    // Longer than anything here takes: a hang is a failure, not a timing.
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// Whether a server starts with these files.
pub(crate) fn bind(files: TlsFiles) -> Result<(), String> {
    let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let config = Config { resp: Some(free), enqueue: None, tls: Some(files), ..Config::default() };
    Server::bind(config).map(drop).map_err(|error| error.to_string())
}

/// A client inside of TLS.
#[derive(Debug)]
pub(crate) struct Secure {
    pub(crate) stream: StreamOwned<ClientConnection, TcpStream>,
    buffer: Vec<u8>,
}

impl Secure {
    /// A server that refuses a certificate says so only after the client thinks that all is well.
    fn greet(tls: ClientConnection, socket: TcpStream) -> io::Result<Secure> {
        let mut stream = StreamOwned::new(tls, socket);
        stream.write_all(b"PING\r\n")?;
        stream.flush()?;
        let mut heard = [0; 7];
        stream.read_exact(&mut heard)?;
        assert_eq!(&heard, b"+PONG\r\n");
        Ok(Secure { stream, buffer: Vec::new() })
    }

    /// What the server has shown.
    pub(crate) fn certificate(&self) -> Vec<u8> {
        self.stream.conn.peer_certificates().unwrap()[0].to_vec()
    }

    pub(crate) fn send(&mut self, lines: &str) {
        let lines: Vec<String> = lines.lines().map(|line| format!("{line}\r\n")).collect();
        self.stream.write_all(lines.concat().as_bytes()).unwrap();
        self.stream.flush().unwrap();
    }

    /// The next reply, as text.
    pub(crate) fn next(&mut self) -> String {
        let mut room = vec![0; 64 * 1024];
        loop {
            if let Some((value, taken)) = read_value(&self.buffer).unwrap() {
                self.buffer.drain(..taken);
                return show(&value);
            }
            let count = self.stream.read(&mut room).unwrap();
            assert!(count > 0, "the server closed the connection");
            self.buffer.extend_from_slice(&room[..count]);
        }
    }

    pub(crate) fn say(&mut self, line: &str) -> String {
        self.send(line);
        self.next()
    }

    /// What comes until the server has nothing more to say; an error if it does not announce that.
    pub(crate) fn end(&mut self) -> Result<Vec<u8>, io::ErrorKind> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => Ok(rest),
            Err(error) => Err(error.kind()),
        }
    }
}
