//! The same tests for every channel, and those of TCP's bytes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::memory::Hub;
use super::tcp::{self, Tcp};
use super::tls::Tls;
use super::*;
use crate::config::TlsFiles;

/// Says what it was asked, and by whom; belongs to cluster 7 and has the number 1.
struct Echo;

impl Answers for Echo {
    fn welcome(&self, hello: &Hello) -> Result<Welcome, Refusal> {
        match hello {
            Hello { cluster: 0 | 7, to: 0 | 1, .. } => Ok(Welcome { cluster: 7, node: 1 }),
            Hello { cluster: 0 | 7, .. } => Err(Refusal::OtherNode),
            _ => Err(Refusal::OtherCluster),
        }
    }

    fn answer(self: Arc<Self>, from: u64, mut request: Vec<u8>) -> BoxFuture<'static, Vec<u8>> {
        Box::pin(async move {
            request.push(from as u8);
            request
        })
    }
}

/// Without TLS.
const PLAIN: Tcp = Tcp { tls: None };

async fn talk(channel: &dyn Channel, address: &str) {
    let hello = Hello { cluster: 7, from: 9, to: 1 };
    let (mut link, welcome) = channel.connect(address, hello).await.unwrap();
    assert_eq!(welcome, Welcome { cluster: 7, node: 1 });
    for request in [&b""[..], b"a", &vec![3; 1_000_000]] {
        let reply = link.call(request).await.unwrap();
        assert_eq!(reply.split_last(), Some((&9, request)));
    }
    let unknown = Hello { cluster: 0, from: 0, to: 0 };
    assert_eq!(channel.connect(address, unknown).await.unwrap().1.cluster, 7, "it wants to join");
    for (hello, refusal) in [
        (Hello { cluster: 8, ..hello }, Refusal::OtherCluster),
        (Hello { to: 2, ..hello }, Refusal::OtherNode),
    ] {
        let Err(ChannelError::Refused(got)) = channel.connect(address, hello).await else {
            panic!("{hello:?} was welcome");
        };
        assert_eq!(got, refusal);
    }
    assert!(link.call(&vec![0; MOST_BYTES + 1]).await.is_err(), "more than a frame");
}

fn serve(listener: std::net::TcpListener, tls: Option<Arc<Tls>>) {
    let listener = Box::new(tcp::Listener { listener, tls });
    tokio::spawn(listener.serve(Arc::new(Echo)).unwrap());
}

fn tcp() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    serve(listener, None);
    address
}

#[tokio::test]
async fn requests_are_answered_and_strangers_refused() {
    talk(&PLAIN, &tcp()).await;
    let hub = Hub::default();
    hub.put("one", Arc::new(Echo));
    talk(&hub.channel("nine"), "one").await;
}

/// The same over a Redis. A link that was asked for before the other side is there is refused, as elsewhere.
#[cfg(feature = "redis")]
#[tokio::test]
async fn requests_are_answered_and_strangers_refused_over_redis() {
    let dir = tempfile::tempdir().unwrap();
    let server = super::redis::tests::Running::start(dir.path());
    let (one, nine) = (server.channel("one"), server.channel("nine"));
    let hello = Hello { cluster: 7, from: 9, to: 1 };
    let nobody = nine.connect("one", hello).await;
    assert!(matches!(nobody, Err(ChannelError::Io(_))));
    tokio::spawn(Box::new(one).serve(Arc::new(Echo)).unwrap());
    while nine.connect("one", hello).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    talk(&nine, "one").await;
}

#[tokio::test]
async fn nobody_there_is_an_error() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let hello = Hello { cluster: 7, from: 9, to: 1 };
    assert!(matches!(PLAIN.connect(&address, hello).await, Err(ChannelError::Io(_))));
    let hub = Hub::default();
    assert!(matches!(hub.channel("a").connect("b", hello).await, Err(ChannelError::Io(_))));
}

#[tokio::test]
async fn a_cut_link_carries_nothing_until_it_is_healed() {
    let hub = Hub::default();
    hub.put("one", Arc::new(Echo));
    let channel = hub.channel("nine");
    let hello = Hello { cluster: 7, from: 9, to: 1 };
    let (mut link, _) = channel.connect("one", hello).await.unwrap();
    for (from, to) in [("nine", "one"), ("one", "nine")] {
        hub.cut(from, to);
        assert!(link.call(b"x").await.is_err() && channel.connect("one", hello).await.is_err());
        hub.heal();
        assert!(link.call(b"x").await.is_ok());
    }
}

/// Bytes that are no hello, or that claim what they are not, end the connection and nothing else.
#[tokio::test]
async fn bytes_that_make_no_sense_end_their_connection_only() {
    let address = tcp();
    let hello = Hello { cluster: 7, from: 9, to: 1 };
    let good = hello.to_bytes();
    let mut other_version = good.clone();
    other_version[6] = 9;
    let mut too_long = good.clone();
    too_long.extend_from_slice(&u32::MAX.to_le_bytes());
    for bytes in [vec![b'G'; 100], other_version, too_long] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest));
        // A reset is as good an end.
        let _ = read.await.expect("it is closed");
        assert!(rest.len() <= super::hello::WELCOME_BYTES);
    }
    talk(&PLAIN, &address).await;
}

#[tokio::test]
async fn another_version_is_told_apart_from_a_stranger() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut answer = super::hello::answer_to_bytes(Err(Refusal::Crowded));
            answer[6] = 2;
            stream.write_all(&answer).await.unwrap();
        }
    });
    let hello = Hello { cluster: 7, from: 9, to: 1 };
    let Err(error) = PLAIN.connect(&address, hello).await else { panic!("it is newer") };
    assert!(error.to_string().contains("another version"), "{error}");
}

/// A certificate for loopback in files, and the authority that signed it.
fn certificate(dir: &std::path::Path, name: &str) -> TlsFiles {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let signed = params.signed_by(&key, &issuer).unwrap();
    let file = |end: &str, text: String| {
        let path = dir.join(format!("{name}.{end}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsFiles {
        certificate: file("pem", signed.pem()),
        key: file("key", key.serialize_pem()),
        client_ca: Some(file("ca", issuer.pem())),
        require_client_certificate: true,
    }
}

#[tokio::test]
async fn inside_of_tls_only_those_of_the_same_authority_are_heard() {
    let dir = tempfile::tempdir().unwrap();
    let tls = |name: &str| Some(Arc::new(Tls::read(certificate(dir.path(), name)).unwrap()));
    let ours = tls("ours");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    serve(listener, ours.clone());
    talk(&Tcp { tls: ours.clone() }, &address).await;
    let hello = Hello { cluster: 7, from: 9, to: 1 };
    for stranger in [None, tls("theirs")] {
        assert!(Tcp { tls: stranger }.connect(&address, hello).await.is_err());
    }
    // One that trusts us, and has no certificate that we trust.
    let mut files = certificate(dir.path(), "other");
    files.client_ca = Some(dir.path().join("ours.ca"));
    let half = Tcp { tls: Some(Arc::new(Tls::read(files).unwrap())) };
    assert!(half.connect(&address, hello).await.is_err());
    talk(&Tcp { tls: ours }, &address).await;
}
