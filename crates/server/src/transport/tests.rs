use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread::JoinHandle;

use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

use super::{Incoming, Shaken, Transport};

type Client = StreamOwned<ClientConnection, std::net::TcpStream>;

/// A certificate that stands for itself, and its key.
fn identity(common: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, common);
    let pair = KeyPair::generate().unwrap();
    let signed = params.self_signed(&pair).unwrap();
    (signed.der().clone(), PrivatePkcs8KeyDer::from(pair.serialize_der()).into())
}

/// A server's side of TLS, and a client that does `what` in a thread of its own.
fn pair(what: impl FnOnce(Client) + Send + 'static) -> (Transport, JoinHandle<()>) {
    let ((server, server_key), (client, client_key)) = (identity("server"), identity("jobs"));
    let trusting = |certificate: &CertificateDer<'static>| {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        Arc::new(roots)
    };
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(trusting(&client), Arc::clone(&provider));
    let theirs = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(trusting(&server))
        .with_client_auth_cert(vec![client], client_key)
        .unwrap();
    let ours = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![server], server_key)
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let stream = std::net::TcpStream::connect(address).unwrap();
        let name = "localhost".try_into().unwrap();
        what(StreamOwned::new(ClientConnection::new(Arc::new(theirs), name).unwrap(), stream));
    });
    let (stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let stream = mio::net::TcpStream::from_std(stream);
    (Transport::tls(stream, Arc::new(ours)).unwrap(), thread)
}

fn shake(transport: &mut Transport) {
    assert!(transport.is_handshaking() && transport.peer().is_none());
    while transport.handshake().0 != Shaken::Done {
        transport.flush().unwrap();
        std::thread::yield_now();
    }
    transport.flush().unwrap();
}

#[test]
fn who_has_shown_a_certificate_has_its_name() {
    let (mut transport, thread) = pair(|mut client| {
        client.write_all(b"hello").unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
    });
    shake(&mut transport);
    assert_eq!(transport.peer(), Some("jobs"));
    transport.say_goodbye();
    drop(transport);
    thread.join().unwrap();
}

#[test]
fn nothing_stays_behind_that_is_not_reported() {
    let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
    let expected = sent.clone();
    let (mut transport, thread) = pair(move |mut client| {
        client.write_all(&sent).unwrap();
        client.conn.send_close_notify();
        client.flush().unwrap();
        client.sock.shutdown(Shutdown::Write).unwrap();
        client.read_to_end(&mut Vec::new()).unwrap();
    });
    shake(&mut transport);
    // Small, so that most is decrypted and waits.
    let mut room = [0; 1_000];
    let mut got = Vec::new();
    loop {
        match transport.read(&mut room) {
            Incoming::Bytes(count, more) => {
                got.extend_from_slice(&room[..count]);
                assert!(more || count < room.len(), "there may be more behind a full room");
            }
            Incoming::Nothing | Incoming::Again => std::thread::yield_now(),
            Incoming::End => break,
        }
    }
    assert!(got == expected);
    assert!(matches!(transport.read(&mut room), Incoming::End), "told each time");
    transport.say_goodbye();
    drop(transport);
    thread.join().unwrap();
}

#[test]
fn what_was_said_before_it_broke_is_still_taken() {
    let (mut transport, thread) = pair(|mut client| {
        client.write_all(b"whole").unwrap();
        client.sock.write_all(b"\x17\x03\x03\x00\x20broken broken broken broken brok").unwrap();
        let error = client.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
    });
    shake(&mut transport);
    let mut room = [0; 1_000];
    let mut got = Vec::new();
    loop {
        match transport.read(&mut room) {
            Incoming::Bytes(count, _) => got.extend_from_slice(&room[..count]),
            Incoming::Nothing | Incoming::Again => std::thread::yield_now(),
            Incoming::End => break,
        }
    }
    assert_eq!(got, b"whole");
    assert!(matches!(transport.read(&mut room), Incoming::End), "told each time");
    assert!(transport.has_unsent(), "an alert");
    transport.say_goodbye();
    drop(transport);
    thread.join().unwrap();
}
