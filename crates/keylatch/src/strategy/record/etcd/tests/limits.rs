//! Large changes, several members, users and their rights, TLS.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::error::ConnectError;
use crate::strategy::record::store::{
    Append, Change, Committed, Expect, Holder, NameChange, Put, Write,
};
use keylatch_table::RequestId;

fn change(expect: Expect, holders: usize, leased: bool) -> Change {
    let holder = |number: usize| Holder {
        id: RequestId::new(&number.to_string()),
        left_ms: Some(60_000),
        leased,
    };
    let holders = (0..holders).map(holder).collect();
    let head = Write::Put(Put { bytes: "1".into(), keep_ms: Some(60_000), holders });
    let one = NameChange {
        expect,
        last_seq: None,
        head,
        remove: Vec::new(),
        tell: false,
        own_up_to: None,
    };
    Change::of("k", one)
}

async fn alive(store: &Etcd) -> usize {
    let view = store.read(vec!["k".into()]).await.unwrap();
    view.names["k"].head.as_ref().unwrap().alive.as_ref().unwrap().len()
}

async fn works(url: &str) {
    let store = Etcd::connect(url).await.unwrap();
    let made = store.commit(change(Expect::Absent, 1, true)).await.unwrap();
    assert!(matches!(made, Committed::Done(_)));
    assert_eq!(alive(&store).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_may_have_a_thousand_holders() {
    let running = Running::start();
    let store = Etcd::connect(&running.etcd.url()).await.unwrap();
    for (count, leased) in [(1_000, true), (1_000, false), (999, false), (300, true), (1, false)] {
        let expect = if count == 1_000 && leased { Expect::Absent } else { Expect::There };
        let made = store.commit(change(expect, count, leased)).await.unwrap();
        assert!(matches!(made, Committed::Done(_)), "{count}");
        assert_eq!(alive(&store).await, count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_refused() {
    let running = Running::start();
    let store = Etcd::connect(&running.etcd.url()).await.unwrap();
    let many = store.commit(change(Expect::Absent, 20_000, true)).await.unwrap_err();
    assert!(!many.unknown && many.text.contains("more than etcd takes"), "{}", many.text);
    let append = |number: u32| Append {
        id: RequestId::new(&number.to_string()),
        to: vec!["k".into()],
        bytes: Vec::new(),
        live_ms: 1_000,
    };
    let mut change = change(Expect::Absent, 1, true);
    change.appends = (0..33).map(append).collect();
    let many = store.commit(change.clone()).await.unwrap_err();
    assert!(!many.unknown && many.text.contains("at most"), "{}", many.text);
    change.appends.pop();
    assert!(matches!(store.commit(change).await.unwrap(), Committed::Done(_)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_member_that_answers_is_enough() {
    let running = Running::start();
    let (port, dead) = (running.etcd.port, "127.0.0.1:1,127.0.0.1:2");
    // Whichever it begins with.
    for number in 0..6 {
        works(&format!("etcd://{dead},127.0.0.1:{port}?prefix=a{number}")).await;
    }
}

/// One command of etcd's own.
fn etcdctl(etcd: &server::Etcd, user: &[&str], words: &[&str]) {
    let place = format!("127.0.0.1:{}", etcd.port);
    let ran = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &place])
        .args(user)
        .args(words)
        .output()
        .expect("etcdctl is not installed: see scripts/setup");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_rights_below_the_prefix_and_no_others() {
    let Running { etcd, dir } = Running::start();
    let ask = |words: &[&str]| etcdctl(&etcd, &[], words);
    ask(&["user", "add", "root:secret"]);
    ask(&["user", "grant-role", "root", "root"]);
    ask(&["role", "add", "locks"]);
    ask(&["role", "grant-permission", "locks", "--prefix=true", "readwrite", "keylatch/"]);
    ask(&["user", "add", "app:a@b"]);
    ask(&["user", "grant-role", "app", "locks"]);
    ask(&["auth", "enable"]);
    let url =
        |user: &str, prefix: &str| format!("etcd://{user}127.0.0.1:{}?prefix={prefix}", etcd.port);
    works(&url("app:a%40b@", "keylatch/")).await;
    for (user, prefix) in [("", "keylatch/"), ("app:wrong@", "keylatch/"), ("app:a%40b@", "other")]
    {
        match Etcd::connect(&url(user, prefix)).await {
            Err(ConnectError::Refused(_)) => {}
            Err(other) => panic!("{user}: {other}"),
            Ok(_) => panic!("{user} is let in"),
        }
    }
    // It forgets who is who when it is restarted, and is told again.
    let store = Etcd::connect(&url("app:a%40b@", "keylatch/x")).await.unwrap();
    let etcd = etcd.kill_and_restart();
    let made = store.commit(change(Expect::Absent, 1, true)).await;
    // What was under way on the old connection may not be known.
    if let Err(failed) = made {
        assert!(failed.unknown, "{}", failed.text);
    }
    store.read(vec!["k".into()]).await.unwrap();
    drop((etcd, dir));
}

/// A certificate for this machine, signed by itself.
fn certificate(dir: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(dir.join("key.pem"))
        .arg("-out")
        .arg(dir.join("cert.pem"))
        .output()
        .expect("openssl is not installed: see scripts/setup");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tls_it_is_known_who_answers() {
    let dir = tempfile::tempdir().unwrap();
    certificate(dir.path());
    let etcd = server::Etcd::start_tls(dir.path());
    let place = format!("etcds://127.0.0.1:{}", etcd.port);
    works(&format!("{place}?ca={}", dir.path().join("cert.pem").display())).await;
    // Nobody else vouches for it.
    assert!(Etcd::connect(&place).await.is_err());
    assert!(Etcd::connect(&etcd.url()).await.is_err());
}
