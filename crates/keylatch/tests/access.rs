//! A lock server that wants to know who its clients are: tokens, rights, certificates.

mod common;

use std::fmt::{Debug, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::authority::{Authority, Identity};
use common::{HANG, Running, SOON, eventually};
use keylatch::{
    ConnectError, Event, ListError, LockError, Locks, LocksQuery, Lost, Mode, PromoteError,
    Released,
};
use keylatch_server::TlsFiles;
use keylatch_server::access::NewToken;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};

const ALL: &str = r#"["shared", "exclusive", "observe"]"#;

/// An access file, written anew whenever somebody comes or goes.
struct Desk {
    dir: tempfile::TempDir,
    text: String,
}

impl Desk {
    fn new() -> Desk {
        Desk { dir: tempfile::tempdir().unwrap(), text: String::new() }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("access.toml")
    }

    /// Somebody with these rights; the token.
    fn add(&mut self, name: &str, prefix: &str, rights: &str) -> String {
        let token = NewToken::generate().unwrap();
        writeln!(
            self.text,
            "[[principal]]\nname = '{name}'\ncertificate = '{name}'\n[[principal.token]]\nid = \
             '{}'\nhash = '{}'\n[[principal.rule]]\nprefix = '{prefix}'\nrights = {rights}",
            token.id(),
            token.hash(),
        )
        .unwrap();
        self.write();
        token.reveal()
    }

    fn write(&self) {
        std::fs::write(self.file(), &self.text).unwrap();
    }

    /// Nobody is known any more.
    fn revoke(&self) {
        std::fs::write(self.file(), "").unwrap();
    }

    fn server(&self) -> Running {
        Running::with(|config| config.access = Some(self.file()))
    }
}

fn url(server: &Running, token: &str) -> String {
    format!("keylatch://:{token}@{}", server.address)
}

async fn connect(server: &Running, token: &str) -> Locks {
    Locks::connect(&url(server, token)).await.unwrap()
}

async fn denied(url: &str) -> String {
    let since = Instant::now();
    let error = Locks::connect(url).await.err().expect("connected");
    assert!(since.elapsed() < SOON, "tried again and again");
    let ConnectError::Denied(text) = &error else { panic!("{error:?}") };
    assert!(!format!("{error} {error:?}").contains("klt_"), "{error}");
    text.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_allows_what_its_rules_say_and_no_more() {
    let mut desk = Desk::new();
    let billing = desk.add("billing", "billing:", ALL);
    let reader = desk.add("reader", "billing:", r#"["shared"]"#);
    let server = desk.server();
    let (billing, reader) = (connect(&server, &billing).await, connect(&server, &reader).await);

    let held = billing.lock("billing:1").await.unwrap();
    let asked = billing.lock("payroll:7").wait(HANG).await;
    let Err(LockError::Denied(text)) = asked else { panic!("{asked:?}") };
    assert!(text.contains("`exclusive`"), "{text}");
    let asked = reader.lock("billing:2").try_now().await;
    let Err(LockError::Denied(text)) = asked else { panic!("{asked:?}") };
    assert!(text.contains("`exclusive` on 'billing:2'"), "{text}");

    let optimistic = reader.lock("billing:3").mode(Mode::Optimistic).await.unwrap();
    assert!(matches!(optimistic.promote().await, Err(PromoteError::Denied(_))));
    assert!(optimistic.is_lost().is_none(), "it is as it was");
    let revoked = reader.revoke(held.token(), "mine").await;
    assert!(matches!(revoked, Err(ListError::Denied(_))), "{revoked:?}");
    let watched = billing.watch().await.err();
    assert!(matches!(watched, Some(ListError::Denied(_))), "{watched:?}");

    assert_eq!(held.release().await, Released::Released, "the connection is as good as before");
    assert!(reader.lock("billing:1").shared().try_now().await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_not_known_is_told_so_at_once() {
    let mut desk = Desk::new();
    let good = desk.add("ann", "", ALL);
    let server = desk.server();
    let text = denied(&server.url()).await;
    assert!(text.contains("KEYLATCH_AUTH"), "{text}");
    for wrong in ["klt_1_secret", &good[..good.len() - 1]] {
        let text = denied(&url(&server, wrong)).await;
        assert!(text.contains("this token is not known"), "{text}");
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let both = format!("keylatch://:klt_1_secret@{},{nobody}", server.address);
    assert!(denied(&both).await.contains("this token is not known"), "not: unreachable");

    let open = Running::start(None, None);
    let text = denied(&url(&open, &good)).await;
    assert!(text.contains("has no tokens"), "{text}");
    assert!(connect(&server, &good).await.lock("k").await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_revoked_costs_the_next_call_and_leaves_the_lease() {
    let mut desk = Desk::new();
    let token = desk.add("ann", "", ALL);
    let server = desk.server();
    let locks = connect(&server, &token).await;
    let held = locks.lock("k").lease(Duration::from_secs(5)).await.unwrap();
    let kept = locks.lock("kept").lease(Duration::ZERO).await.unwrap();
    let waiting = tokio::spawn(locks.lock("k").into_future());
    let query = LocksQuery { waiters: true, ..LocksQuery::default() };
    eventually(async || locks.list(query.clone()).await.unwrap().len() == 3).await;
    let mut watch = locks.watch().await.unwrap();

    desk.revoke();
    let refused = async || match locks.list(LocksQuery::default()).await {
        Ok(_) => false,
        Err(ListError::Denied(_)) => true,
        Err(other) => panic!("{other:?}"),
    };
    eventually(refused).await;
    assert!(held.is_lost().is_none(), "nobody else has it");
    let asked = locks.lock("other").wait(SOON).await;
    assert!(
        matches!(&asked, Err(LockError::Denied(text)) if text.contains("not known")),
        "{asked:?}"
    );
    let waited = tokio::time::timeout(HANG, waiting).await.unwrap().unwrap();
    // The server cancels the wait; and the call above makes the client come again, and be refused.
    // Whichever comes first is heard.
    match &waited {
        Err(LockError::Cancelled) => {}
        Err(LockError::Unknown(text)) if text.contains("not known") => {}
        other => panic!("{other:?}"),
    }
    let ended = async { while watch.next().await.is_some() {} };
    tokio::time::timeout(HANG, ended).await.expect("the events go on");
    // Its lease ends, perhaps while a renewal is on its way.
    let lost = tokio::time::timeout(HANG, held.lost()).await.unwrap();
    assert!(matches!(lost, Lost::Expired | Lost::Unreachable), "{lost:?}");
    assert_eq!(held.release().await, Released::Unknown);

    // It is known again: whoever asks is let in, and what has no lease was held all the time.
    desk.write();
    eventually(async || locks.lock("other").try_now().await.is_ok()).await;
    assert!(kept.is_lost().is_none());
    assert_eq!(kept.release().await, Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_is_said_again_on_every_connection() {
    let mut desk = Desk::new();
    let token = desk.add("ann", "", ALL);
    let data = tempfile::tempdir().unwrap();
    let start = |address| {
        Running::with(|config| {
            config.access = Some(desk.file());
            config.data = Some(data.path().into());
            config.resp = address;
        })
    };
    let server = start(Some(([127, 0, 0, 1], 0).into()));
    let address = server.address;
    let locks = connect(&server, &token).await;
    let held = locks.lock("k").await.unwrap();
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    let _server = start(Some(address));
    assert!(matches!(locks.lock("k").try_now().await, Err(LockError::Busy(_))));
    assert_eq!(held.release().await, Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_shown_to_their_own_principal_and_to_administrators() {
    let mut desk = Desk::new();
    let ann = desk.add("ann", "a:", ALL);
    let bob = desk.add("bob", "", r#"["exclusive", "observe"]"#);
    let root = desk.add("root", "", r#"["admin"]"#);
    let server = desk.server();
    let (ann, bob) = (connect(&server, &ann).await, connect(&server, &bob).await);
    let root = connect(&server, &root).await;
    let (ours, theirs) = (ann.lock("a:1").await.unwrap(), bob.lock("a:2").await.unwrap());
    let _hidden = bob.lock("b:1").await.unwrap();
    let list = async |locks: &Locks| -> Vec<(String, String)> {
        let entries = locks.list(LocksQuery::default()).await.unwrap();
        let shown = |entry: &keylatch::Entry| (entry.resource.to_string(), entry.id.to_string());
        entries.iter().map(shown).collect()
    };
    let (our_id, their_id) = (ours.id().to_string(), theirs.id().to_string());
    assert_eq!(
        list(&ann).await,
        [("a:1".to_owned(), our_id.clone()), ("a:2".into(), String::new())]
    );
    let all = list(&bob).await;
    assert_eq!((all.len(), &all[0].1, &all[1].1), (3, &String::new(), &their_id));
    assert_eq!(list(&root).await[0].1, our_id);
    assert_eq!(bob.release(ours.id()).await, Released::NotHeld, "as if there were none");
    assert!(ours.is_lost().is_none());

    let mut watch = bob.watch().await.unwrap();
    root.revoke(ours.token(), "enough").await.unwrap();
    let Some(Event::Lost { id, .. }) = watch.next().await else { panic!("not lost") };
    assert_eq!(id.to_string(), "");
    assert_eq!(ours.lost().await, Lost::Revoked(Some("enough".into())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_says_who_a_client_is() {
    let mut desk = Desk::new();
    let token = desk.add("ann", "a:", ALL);
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let us = authority.identity(dir.path(), &["localhost"]);
    let server = Running::with(|config| {
        config.access = Some(desk.file());
        config.tls = Some(TlsFiles {
            certificate: us.cert.clone(),
            key: us.key.clone(),
            client_ca: Some(authority.file.clone()),
            require_client_certificate: false,
        });
    });
    let port = server.address.port();
    let ca = authority.file.display();
    let as_who = |it: &Identity| {
        let (cert, key) = (it.cert.display(), it.key.display());
        format!("keylatchs://localhost:{port}?ca={ca}&cert={cert}&key={key}")
    };
    let locks = Locks::connect(&as_who(&authority.identity(dir.path(), &["ann"]))).await.unwrap();
    let held = locks.lock("a:1").await.unwrap();
    assert!(matches!(locks.lock("b:1").await, Err(LockError::Denied(_))));
    let by_token = format!("keylatchs://:{token}@localhost:{port}?ca={ca}");
    let same = Locks::connect(&by_token).await.unwrap();
    assert_eq!(same.release(held.id()).await, Released::Released, "the same principal");

    let stranger = as_who(&authority.identity(dir.path(), &["stranger"]));
    assert!(denied(&stranger).await.contains("a certificate that it knows"));
    denied(&format!("keylatchs://localhost:{port}?ca={ca}")).await;
    denied(&format!("keylatchs://:klt_1_secret@localhost:{port}?ca={ca}")).await;
}

/// Everything that is logged in this process.
#[derive(Default)]
struct Logged(Mutex<String>);

static LOGGED: Logged = Logged(Mutex::new(String::new()));

impl Visit for &Logged {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock(), "{field}={value:?}").unwrap();
    }
}

impl tracing::Subscriber for &'static Logged {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        attributes.record(&mut &**self);
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut &**self);
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut &**self);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_in_no_error_and_in_no_log() {
    tracing::subscriber::set_global_default(&LOGGED).unwrap();
    let mut desk = Desk::new();
    desk.add("ann", "", ALL);
    let server = desk.server();
    let address = server.address;
    for wrong in [
        format!("keylatch://:klt_1_hush@{address}"),
        format!("keylatch://klt_1_hush@{address}"),
        format!("keylatch://:klt_1_hush@{address}?"),
        format!("keylatch://:klt_1_hush@{address},:klt_1_hush@{address}"),
        format!("keylach://:klt_1_hush@{address}"),
        format!("keylatchs://:klt_1_hush@{address}"),
        format!("keylatchs://:klt_1_hush?hush@{address}"),
        "keylatch://:klt_1_hush@192.0.2.1:1".into(),
        "keylatch://:klt_1_hush@:1".into(),
    ] {
        let error = Locks::connect(&wrong).await.err().expect(&wrong);
        let text = format!("{error} {error:?}");
        assert!(!text.contains("hush"), "{text}");
    }
    let logged = LOGGED.0.lock().clone();
    assert!(logged.contains("in the clear") && logged.contains("192.0.2.1:1"), "{logged}");
    assert!(!logged.contains("hush"), "{logged}");
}
