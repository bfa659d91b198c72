//! Members that know each other by certificates, each a process, and what an operator does there with a certificate of
//! the same authority; with another one, or with none, nothing.

mod common;

use std::net::SocketAddr;
use std::path::Path;

use common::node::{Node, eventually, member, refused, said};
use common::{Start, text, token};
use keylatch_server::TlsFiles;
use keylatch_server::cluster::Visit;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

/// An authority, and everything that it has signed.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca"), issuer.pem()).unwrap();
        Authority { issuer, dir }
    }

    fn certify(&self, name: &str) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let file = |kind: &str, text: String| {
            let path = self.dir.path().join(format!("{name}.{kind}"));
            std::fs::write(&path, text).unwrap();
            path
        };
        TlsFiles {
            certificate: file("pem", signed.pem()),
            key: file("key", key.serialize_pem()),
            client_ca: Some(self.dir.path().join("ca")),
            require_client_certificate: true,
        }
    }
}

fn with_tls(start: Start, tls: &TlsFiles) -> Start {
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    start
        .environment("KEYLATCH_PEER_TLS_CERT", &text(&tls.certificate))
        .environment("KEYLATCH_PEER_TLS_KEY", &text(&tls.key))
        .environment("KEYLATCH_PEER_TLS_CA", &text(tls.client_ca.as_ref().unwrap()))
}

struct Place {
    dir: TempDir,
    authority: Authority,
    operator: TlsFiles,
}

impl Place {
    fn new() -> Place {
        let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let operator = authority.certify("operator");
        Place { dir, authority, operator }
    }

    fn start(&self, name: &str, join: Option<SocketAddr>) -> Node {
        let (peer, tls) = (common::free(), self.authority.certify(name));
        let server = with_tls(member(&self.dir.path().join(name), peer, join, 500), &tls).start();
        Node { peer, server, tls: Some(tls) }
    }

    /// One that waits to be added; there once it was.
    fn wait(&self, name: &str) -> (SocketAddr, std::thread::JoinHandle<Node>) {
        let (peer, tls) = (common::free(), self.authority.certify(name));
        let start = with_tls(member(&self.dir.path().join(name), peer, None, 500), &tls);
        let start = start.environment("KEYLATCH_JOIN", "wait");
        let node = move || Node { peer, server: start.start(), tls: Some(tls) };
        (peer, std::thread::spawn(node))
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().into()
    }
}

#[test]
fn an_operator_with_a_certificate_sees_adds_hands_over_and_takes_out() {
    let place = Place::new();
    let one = place.start("one", None);
    let two = place.start("two", Some(one.peer));
    two.until_voters(2);
    let first = token(&one.insist("LOCK k ID a OWNER ann LEASE 0"));
    let (peer, tls) = (one.peer.to_string(), Some(&place.operator));
    let status = said(&["status", "--peer", &peer], tls);
    assert_eq!(status["members"].as_array().unwrap().len(), 2, "{status}");

    let (at, waiting) = place.wait("three");
    eventually("it waits", || {
        let visit = Visit { peer: at.to_string(), tls: Some(place.operator.clone()) };
        visit.status().unwrap_err().to_string().contains("waits to be added").then_some(())
    });
    let added = said(&["add", &at.to_string(), "--peer", &peer], tls);
    let three = waiting.join().unwrap();
    three.until_voters(3);
    let node = three.status().unwrap().node.to_string();
    assert_eq!(added["added"], node, "{added}");
    assert_eq!(token(&three.insist("LOCK k ID a OWNER ann LEASE 0")), first);

    eventually("it takes over", || {
        let leads = three.status()?.leader?.to_string() == node;
        // Who has just been elected may not hand over at once.
        leads.then_some(()).or_else(|| {
            said(&["transfer", &node, "--peer", &peer], tls);
            None
        })
    });
    let out = one.status().unwrap().node.to_string();
    said(&["remove", &out, "--peer", &three.peer.to_string()], tls);
    three.until_voters(2);
    assert_eq!(text(&two.insist("LOCK k"), "status"), "busy");
}

#[test]
fn a_backup_is_fetched_over_tls_and_restored_as_a_cluster_with_tls() {
    let place = Place::new();
    let one = place.start("one", None);
    let two = place.start("two", Some(one.peer));
    two.until_voters(2);
    let first = token(&one.insist("LOCK k ID a OWNER ann LEASE 0"));
    let (backup, new) = (place.path("backup"), place.path("new"));
    for node in [&one, &two] {
        let words = ["snapshot", &backup, "--peer", &node.peer.to_string()];
        let made = said(&words, Some(&place.operator));
        assert_eq!(made["held"], 1, "{made}");
    }
    drop((one, two));
    said(&["restore", &backup, "--data", &new], None);
    let node = place.start("new", None);
    assert_eq!(token(&node.insist("LOCK k ID a OWNER ann LEASE 0")), first);
}

#[test]
fn without_a_certificate_of_that_authority_an_operator_can_do_nothing() {
    let place = Place::new();
    let one = place.start("one", None);
    token(&one.insist("LOCK k ID a LEASE 0"));
    let (at, waiting) = place.wait("two");
    let (peer, backup) = (one.peer.to_string(), place.path("backup"));
    let node = one.status().unwrap().node.to_string();
    let other = Authority::new();
    let stranger = other.certify("stranger");
    for tls in [None, Some(&stranger)] {
        refused(&["status", "--peer", &peer], tls);
        refused(&["add", &at.to_string(), "--peer", &peer], tls);
        refused(&["transfer", &node, "--peer", &peer], tls);
        refused(&["remove", &node, "--peer", &peer], tls);
        refused(&["snapshot", &backup, "--peer", &peer], tls);
    }
    assert!(!Path::new(&backup).exists(), "nothing of it was written");
    assert!(!waiting.is_finished(), "it was not added");
    // Nothing has changed: it is added by who may do so.
    said(&["add", &at.to_string(), "--peer", &peer], Some(&place.operator));
    let two = waiting.join().unwrap();
    two.until_voters(2);
    assert_eq!(one.count(""), 1);
}
