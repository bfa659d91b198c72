//! `keylatchs://`: a real lock server behind something that ends TLS, with certificates of our own.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::authority::{Authority, Identity};
use common::{HANG, Running, eventually};
use keylatch::{ConnectError, Event, LockError, Locks, LocksQuery, Lost};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Ends TLS in front of a server. With `clients`, only for those whose certificate comes from there.
async fn proxy(to: SocketAddr, us: Identity, clients: Option<&Authority>) -> SocketAddr {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.issuer.der().clone()).unwrap();
            let provider = Arc::new(default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let config = config.with_single_cert(us.chain, us.private).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else { return };
                let mut server = TcpStream::connect(to).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
    address
}

async fn refused(url: &str) -> String {
    match tokio::time::timeout(HANG, Locks::connect(url)).await.expect("it hangs") {
        Err(ConnectError::Refused(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("connected"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_waits_losses_and_events_go_through_tls() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(None, None);
    let authority = Authority::new(dir.path(), "ca");
    let us = authority.identity(dir.path(), &["localhost", "127.0.0.1"]);
    let port = proxy(server.address, us, None).await.port();
    for host in ["localhost", "127.0.0.1"] {
        let url = format!("keylatchs://{host}:{port}?ca={}", authority.file.display());
        let locks = Locks::connect(&url).await.unwrap();
        let mut watch = locks.watch().await.unwrap();
        let held = locks.lock("k").await.unwrap();
        let waiting = tokio::spawn(locks.lock("k").into_future());
        let query = LocksQuery { waiters: true, ..LocksQuery::default() };
        eventually(async || locks.list(query.clone()).await.is_ok_and(|all| all.len() == 2)).await;
        locks.revoke(held.token(), "enough").await.unwrap();
        assert_eq!(held.lost().await, Lost::Revoked(Some("enough".into())));
        let next = waiting.await.unwrap().unwrap();
        assert!(matches!(watch.next().await, Some(Event::Lost { .. })));
        next.release().await;
        // More than fits into one record, and into what the socket takes at once.
        let many: Vec<_> = (0..2_000)
            .map(|number| {
                let ask = locks.lock(format!("{number}{}", "x".repeat(400)));
                tokio::spawn(ask.lease(Duration::from_secs(600)).into_future())
            })
            .collect();
        for one in many {
            drop(one.await.unwrap().unwrap());
        }
        locks.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_go_through_tls() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(None, None);
    let authority = Authority::new(dir.path(), "ca");
    let us = authority.identity(dir.path(), &["localhost"]);
    let port = proxy(server.address, us, None).await.port();
    let url = format!("keylatchs://localhost:{port}?ca={}", authority.file.display());
    let tasks = Locks::connect(&url).await.unwrap().tasks("p");
    // One that waits is told by a push.
    let waiting = tokio::spawn(tasks.claim().wait(HANG).into_future());
    eventually(async || tasks.counts().await.is_ok_and(|counts| counts.waiting == 1)).await;
    // The largest body is more than fits into one record.
    let body = "x".repeat(65_536);
    tasks.create("large").body(body.as_str()).await.unwrap();
    let claim = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!((&**claim.key(), claim.text()), ("large", Some(&*body)));
    let updated = claim.update("smaller").await.unwrap();
    assert_eq!(updated.version, claim.version());
    claim.done().await.unwrap();
    assert_eq!(tasks.get("large").await.unwrap().unwrap().body.unwrap().bytes.len(), 7);
    assert!(tasks.claim().wait(Duration::ZERO).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_not_the_server_is_refused_and_why_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(None, None);
    let [ours, theirs] = ["ours", "theirs"].map(|name| Authority::new(dir.path(), name));
    let us = ours.identity(dir.path(), &["localhost"]);
    let port = proxy(server.address, us, None).await.port();
    let elsewhere = tempfile::tempdir().unwrap();
    let namesake = Authority::new(elsewhere.path(), "ours");
    for wrong in [theirs.file.display(), namesake.file.display()] {
        let text = refused(&format!("keylatchs://localhost:{port}?ca={wrong}")).await;
        assert!(text.contains("comes from nobody who is trusted here"), "{text}");
    }
    let ours = ours.file.display();
    // Nor do the roots of the system, if it has any, know of it.
    let system = Locks::connect(&format!("keylatchs://localhost:{port}")).await;
    let system = system.err().unwrap().to_string();
    assert!(system.contains("say") && system.contains("?ca=PATH"), "{system}");

    let text = refused(&format!("keylatchs://127.0.0.1:{port}?ca={ours}")).await;
    assert!(text.contains("is not for the name '127.0.0.1'"), "{text}");
    let plain = server.address.port();
    let text = refused(&format!("keylatchs://localhost:{plain}?ca={ours}")).await;
    assert!(text.contains("does not speak TLS"), "{text}");

    for (url, reason) in [
        ("keylatchs://localhost:1?ca=/nowhere", "/nowhere: "),
        ("keylatchs://localhost:1?cert=/nowhere", "go together"),
    ] {
        let error = Locks::connect(url).await.err().unwrap();
        assert!(matches!(error, ConnectError::Configuration(_) | ConnectError::Url(_)));
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_has_a_certificate_if_the_server_wants_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(None, None);
    let [ours, theirs] = ["ours", "theirs"].map(|name| Authority::new(dir.path(), name));
    let us = ours.identity(dir.path(), &["localhost"]);
    let port = proxy(server.address, us, Some(&ours)).await.port();
    let url = format!("keylatchs://localhost:{port}?ca={}", ours.file.display());
    let with = |it: &Identity| format!("{url}&cert={}&key={}", it.cert.display(), it.key.display());

    let text = refused(&url).await;
    assert!(text.contains("does it want a certificate"), "{text}");
    let stranger = theirs.identity(dir.path(), &["stranger"]);
    let text = refused(&with(&stranger)).await;
    assert!(text.contains("it refuses us"), "{text}");

    let ann = ours.identity(dir.path(), &["ann"]);
    let locks = Locks::connect(&with(&ann)).await.unwrap();
    let _held = locks.lock("k").await.unwrap();
    let plain = Locks::connect(&server.url()).await.unwrap();
    assert!(matches!(plain.lock("k").try_now().await, Err(LockError::Busy(_))), "the same locks");
}
