//! The contract, against a PostgreSQL of its own for each rule, also behind a pooler; and what is PostgreSQL's own.

#[path = "../../../../tests/common/postgres.rs"]
mod server;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylatch_table::RequestId;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::super::contract::{Ground, contract};
use super::super::store::{
    Append, Change, Committed, Expect, Holder, Name, NameChange, Put, Store, Told, Write,
};
use super::link::Link;
use super::{LIMIT, MOST_NAME_BYTES, Postgres, call};
use crate::error::ConnectError;
use server::Pooler;

struct Direct {
    postgres: server::Postgres,
    dir: TempDir,
}

impl Direct {
    fn new() -> Direct {
        Direct::with(&[])
    }

    fn with(options: &[&str]) -> Direct {
        let dir = tempfile::tempdir().unwrap();
        Direct { postgres: server::Postgres::start(dir.path(), options), dir }
    }
}

impl Ground for Direct {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Postgres::connect(&self.postgres.url()).await.unwrap())
    }
}

struct Pooled {
    pooler: Pooler,
    _direct: Direct,
}

impl Pooled {
    fn new() -> Pooled {
        let direct = Direct::new();
        let pooler = Pooler::start(direct.dir.path(), &direct.postgres);
        Pooled { pooler, _direct: direct }
    }
}

impl Ground for Pooled {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Postgres::connect(&self.pooler.url()).await.unwrap())
    }

    fn tells_exactly(&self) -> bool {
        false
    }
}

mod direct {
    use super::*;
    contract!(Direct::new());

    mod tasks {
        use super::super::super::super::tasks::contract::task_contract;
        use super::*;
        task_contract!(Direct::new());
    }
}

mod behind_a_pooler {
    use super::*;
    contract!(Pooled::new());

    mod tasks {
        use super::super::super::super::tasks::contract::task_contract;
        use super::*;
        task_contract!(Pooled::new());
    }
}

/// What is granted for so long to somebody.
fn granted(expect: Expect, text: &str) -> Change {
    let holder = Holder { id: RequestId::new("ann"), left_ms: Some(30_000), leased: true };
    let put = Put { bytes: text.into(), keep_ms: Some(60_000), holders: vec![holder] };
    let head = Write::Put(put);
    let one = NameChange {
        expect,
        last_seq: Some(0),
        head,
        remove: Vec::new(),
        tell: false,
        own_up_to: None,
    };
    Change::of("k", one)
}

fn ended(expect: Expect) -> Change {
    let mut change = granted(expect, "");
    change.names.values_mut().for_each(|one| one.head = Write::Delete);
    change
}

async fn done(store: &Postgres, change: Change) -> u64 {
    match store.commit(change).await.unwrap() {
        Committed::Done(done) => done.version,
        Committed::Mismatch(view) => panic!("{view:?}"),
    }
}

async fn head(store: &Postgres) -> Option<(u64, Vec<u8>)> {
    let mut view = store.read(vec!["k".into()]).await.unwrap();
    view.names.remove("k").unwrap().head.map(|head| (head.version, head.bytes))
}

async fn refused(url: &str) -> String {
    match Postgres::connect(url).await {
        Err(ConnectError::Refused(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("connected"),
    }
}

/// A grant is on the disk when it is answered, also where a database is set not to wait for that; and no number is
/// given twice, whatever was forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_forgets_no_grant_and_no_number() {
    // What is not waited for reaches the disk late.
    let mut ground = Direct::with(&["wal_writer_delay=10s", "wal_writer_flush_after=1GB"]);
    let url = ground.postgres.url();
    ground.postgres.sql("ALTER ROLE postgres SET synchronous_commit = off");
    let store = Postgres::connect(&url).await.unwrap();
    let mut last = 0;
    for round in 0..5 {
        let text = round.to_string();
        let expect = if round == 0 { Expect::Absent } else { Expect::Version(last) };
        let version = done(&store, granted(expect, &text)).await;
        assert!(version > last, "{version} after {last}");
        // These are not waited for, and need not come back. They are so many that the sequence has written
        // down more than once how far it is.
        let other = |expect, head| {
            let mut change = granted(expect, "");
            let mut one = change.names.pop_first().unwrap().1;
            one.head = head;
            change.names.insert("other".into(), one);
            change
        };
        let nobody = Put { bytes: Vec::new(), keep_ms: Some(1), holders: Vec::new() };
        drop(store.commit(other(Expect::Absent, Write::Put(nobody.clone()))).await);
        let again = || other(Expect::There, Write::Put(nobody.clone()));
        for _ in 0..100 {
            done(&store, again()).await;
        }
        let gone = done(&store, other(Expect::There, Write::Delete)).await;
        ground.postgres.crash();
        ground.postgres.restart();
        assert_eq!(head(&store).await, Some((version, text.into_bytes())));
        last = version;
        assert!(done(&store, granted(Expect::Version(version), "again")).await > gone);
        last = head(&store).await.unwrap().0.max(last);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_it_is_heard_again() {
    let mut ground = Direct::new();
    let store = Postgres::connect(&ground.postgres.url()).await.unwrap();
    let mut told = store.told();
    store.somebody_waits(true);
    ground.postgres.crash();
    let gone = store.commit(granted(Expect::Absent, "1")).await.unwrap_err();
    assert!(!gone.unknown || gone.text.contains("closed"), "{gone:?}");
    ground.postgres.restart();
    while told.try_recv().is_ok() {}
    // It says by itself that something may have been missed.
    while told.recv().await.unwrap() != Told::Anything {}
    store.modes.subscribe().wait_for(|mode| mode.hears).await.unwrap();
    drop(store.commit(ended(Expect::There)).await);
    let mut change = granted(Expect::Absent, "1");
    change.names.values_mut().for_each(|one| one.tell = true);
    let version = done(&store, change).await;
    let expected = Told::Changed { name: "k".into(), version, removed: Vec::new() };
    while told.recv().await.unwrap() != expected {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_answered_is_certain() {
    let ground = Direct::new();
    let url = ground.postgres.url();
    let store = Postgres::connect(&url).await.unwrap();
    let (other, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let lock = call::locks([&"k".into()].into_iter())[0];
    let hold = format!("SELECT pg_advisory_lock(1802728812, {lock})");
    other.batch_execute(&hold).await.unwrap();
    // PostgreSQL says that it could not have the lock.
    let since = Instant::now();
    let error = store.commit(granted(Expect::Absent, "1")).await.unwrap_err();
    assert!(!error.unknown && error.text.contains("lock timeout"), "{error:?}");
    assert!(since.elapsed() < 2 * LIMIT);
    // Somebody ends the connection meanwhile.
    let waits = tokio::spawn(store.commit(granted(Expect::Absent, "1")));
    let waiting = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted";
    while other.query(waiting, &[]).await.unwrap().is_empty() {}
    let error = waits.await.unwrap().unwrap_err();
    assert!(error.unknown, "{error:?}");
    // It does not answer at all.
    ground.postgres.sql("ALTER PROCEDURE keylatch.commit RENAME TO old_commit");
    let error = store.commit(ended(Expect::There));
    other.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    assert!(!matches!(error.await, Ok(Committed::Done(_))));
    assert_eq!(head(&store).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_of_many_makes_the_schema() {
    let ground = Direct::new();
    let mut all = JoinSet::new();
    for _ in 0..8 {
        let url = ground.postgres.url();
        all.spawn(async move { Postgres::connect(&url).await.unwrap() });
    }
    let all = all.join_all().await;
    done(&all[0], granted(Expect::Absent, "1")).await;
    assert!(head(&all[7]).await.is_some());
    ground.postgres.sql("UPDATE keylatch.schema SET version = 4");
    let text = refused(&ground.postgres.url()).await;
    assert!(text.contains("has version 4") && text.contains("newer program"), "{text}");
    ground.postgres.sql("UPDATE keylatch.schema SET version = 1");
    let text = refused(&ground.postgres.url()).await;
    assert!(text.contains("has version 1") && text.contains("DROP SCHEMA"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rights_it_says_which() {
    let ground = Direct::new();
    ground.postgres.sql("CREATE ROLE poor LOGIN");
    let url = ground.postgres.url().replace("postgres@", "poor@");
    let text = refused(&url).await;
    assert!(text.contains("GRANT CREATE ON DATABASE"), "{text}");
    drop(Postgres::connect(&ground.postgres.url()).await.unwrap());
    let text = refused(&url).await;
    let (_, rights) = text.split_once("GRANT").expect("what to run");
    // What it says is all that is needed.
    ground.postgres.sql(&format!("GRANT{}", rights.replace("...", "poor")));
    let store = Postgres::connect(&url).await.unwrap();
    let version = done(&store, granted(Expect::Absent, "1")).await;
    done(&store, ended(Expect::Version(version))).await;
    assert!(store.touch(Vec::new(), 1).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_isolation_is_none_of_ours() {
    let ground = Direct::new();
    ground.postgres.sql("ALTER ROLE postgres SET default_transaction_isolation = serializable");
    let stores = [
        Arc::new(Postgres::connect(&ground.postgres.url()).await.unwrap()),
        Arc::new(Postgres::connect(&ground.postgres.url()).await.unwrap()),
    ];
    let mut version = done(&stores[0], granted(Expect::Absent, "0")).await;
    for _ in 0..5 {
        let mut all = JoinSet::new();
        for number in 0..16 {
            let (store, expect) = (Arc::clone(&stores[number % 2]), Expect::Version(version));
            all.spawn(async move { store.commit(granted(expect, "1")).await.unwrap() });
        }
        let won = all.join_all().await.into_iter().filter_map(|committed| match committed {
            Committed::Done(done) => Some(done.version),
            Committed::Mismatch(_) => None,
        });
        let won: Vec<u64> = won.collect();
        assert_eq!(won.len(), 1);
        version = won[0];
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_too_long_is_refused() {
    let ground = Direct::new();
    let store = Postgres::connect(&ground.postgres.url()).await.unwrap();
    for (length, fits) in [(MOST_NAME_BYTES, true), (MOST_NAME_BYTES + 1, false)] {
        // Not to be made shorter by compression.
        let name: String = (0..length).map(|_| rand::random_range('!'..='~')).collect();
        let mut change = granted(Expect::Absent, "1");
        let one = change.names.pop_first().unwrap().1;
        change.names.insert(Name::from(name.clone()), one);
        let append = Append {
            id: RequestId::new("bob"),
            to: vec![name.into()],
            bytes: Vec::new(),
            live_ms: 1,
        };
        change.appends.push(append);
        assert_eq!(store.commit(change).await.is_ok(), fits);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_speaks_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (key, cert) = (dir.path().join("key"), dir.path().join("cert"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=here"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    server::give(&key);
    let files = [("ssl_key_file", &key), ("ssl_cert_file", &cert)];
    let files = files.map(|(name, path)| format!("{name}={}", path.display()));
    let ssl = server::Postgres::start(dir.path(), &["ssl=on", &files[0], &files[1]]);
    let by_name = ssl.url().replace("127.0.0.1", "localhost");
    let root = format!("sslrootcert={}", cert.display());
    for (url, mode) in [
        (&ssl.url(), "sslmode=require".to_string()),
        (&ssl.url(), format!("sslmode=verify-ca&{root}")),
        (&by_name, format!("sslmode=verify-full&{root}")),
    ] {
        let store = Postgres::connect(&format!("{url}?{mode}")).await.expect(&mode);
        let count = "SELECT count(*) FROM pg_stat_ssl WHERE ssl";
        assert_ne!(ssl.sql(count), "0", "{mode}");
        drop(store);
    }
    for (url, mode) in [
        (&ssl.url(), format!("sslmode=verify-full&{root}")),
        (&by_name, "sslmode=verify-full".to_string()),
        (&by_name, "sslmode=verify-ca".to_string()),
    ] {
        let Err(error) = Postgres::connect(&format!("{url}?{mode}")).await else {
            panic!("{mode}")
        };
        assert!(error.to_string().contains("certificate"), "{mode}: {error}");
    }
}

#[tokio::test]
async fn a_url_says_what_is_wrong_with_it() {
    for (url, why) in [
        ("postgres://h/d?listen=perhaps", "listen=perhaps"),
        ("postgres://h/d?connections=0", "connections=0"),
        ("postgres://h/d?colour=blue", "colour"),
        ("postgres://h/d?sslmode=verify-full&sslrootcert=%2Fnot%2Fthere", "/not/there"),
    ] {
        let Err(ConnectError::Url(text)) = Postgres::connect(url).await else { panic!("{url}") };
        assert!(text.contains(why), "{text}");
    }
    let nobody = format!("postgres://x@127.0.0.1:{}/d", server::free_port());
    let error = Postgres::connect(&nobody).await.err();
    assert!(matches!(error, Some(ConnectError::Unreachable(_))), "{error:?}");
}

/// What PostgreSQL plans, not time: the first row of an index, and no sort.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_looks_at_does_not_grow_with_the_pool() {
    let ground = Direct::new();
    let store = Postgres::connect(&ground.postgres.url()).await.unwrap();
    store.tasks().unwrap().counts(None).await.unwrap();
    ground.postgres.sql(
        "INSERT INTO keylatch.tasks SELECT 'p', convert_to('k' || n, 'UTF8'), n, 1, n, 1, n, n % 2, n % 7,
             CASE n % 2 WHEN 0 THEN 1 ELSE 9000000000000 END, 1 - n % 2, NULL, '', ''
         FROM generate_series(1, 50000) n",
    );
    ground.postgres.sql("VACUUM ANALYZE keylatch.tasks");
    let plan = |text: &str| {
        let explain =
            "SET enable_seqscan = off; EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) ";
        ground.postgres.sql(&format!("{explain}{text}"))
    };
    let first = plan(
        "SELECT * FROM keylatch.tasks t WHERE t.pool = 'p' AND t.due = 1
         ORDER BY t.priority DESC, t.ready_ms, t.number LIMIT 1 FOR UPDATE SKIP LOCKED",
    );
    assert!(first.contains("Index Scan using tasks_line") && !first.contains("Sort"), "{first}");
    let later = plan(
        "SELECT l.pool, l.key FROM keylatch.tasks l WHERE l.pool = 'p' AND l.due = 0 AND l.ready_ms <= 2
         ORDER BY l.ready_ms LIMIT 200 FOR UPDATE SKIP LOCKED",
    );
    assert!(later.contains("using tasks_later") && !later.contains("Sort"), "{later}");
    let repeat = plan(
        "SELECT * FROM keylatch.tasks t WHERE t.claim_id = 'x' AND t.pool = 'p' AND t.state = 1 LIMIT 1",
    );
    assert!(repeat.contains("tasks_claim"), "{repeat}");
    // Such a plan reads a few pages.
    let pages = |plan: &str| {
        let hit = plan.lines().find_map(|line| line.trim().strip_prefix("Buffers: shared hit="));
        let hit = hit.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        hit.expect("pages are counted")
    };
    assert!(pages(&first) < 20, "{first}");
    let take = ground.postgres.sql(concat!(
        "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan;
         PREPARE take (bytea, bytea, bytea, bigint) AS ",
        include_str!("tasks/take.sql"),
        "; EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) EXECUTE take('p', 'i', 'c', 60000)"
    ));
    for part in ["Tid Scan", "Index Scan using tasks_line", "using tasks_later", "(actual rows=1"] {
        assert!(take.contains(part), "{part}: {take}");
    }
    assert!(!take.contains("Sort") && !take.contains("Seq Scan"), "{take}");
    assert!(pages(&take) < 100, "{take}");
}

/// Whoever has noted that it waits sees what was written by those who could not see the note.
#[tokio::test]
async fn whoever_begins_to_wait_waits_for_those_who_write() {
    let ground = Direct::new();
    let store = Postgres::connect(&ground.postgres.url()).await.unwrap();
    store.tasks().unwrap().counts(None).await.unwrap();
    let link = Link::new(&ground.postgres.url()).unwrap();
    let (writes, begins) = (link.connect().await.unwrap(), link.connect().await.unwrap());
    let begin = "BEGIN; SET LOCAL keylatch.is_set_up = 'on';
        SELECT keylatch.task_create_one('p', 'k', 0::smallint, 0, NULL, 0, '', '')";
    writes.client.batch_execute(begin).await.unwrap();
    let end = "SELECT keylatch.task_writers_end()";
    let mut ended = std::pin::pin!(begins.client.batch_execute(end));
    let early = tokio::time::timeout(Duration::from_millis(300), &mut ended).await;
    assert!(early.is_err(), "it is not committed yet");
    writes.client.batch_execute("COMMIT").await.unwrap();
    ended.await.unwrap();
    // What only reads does not matter.
    writes.client.batch_execute("BEGIN; SELECT * FROM keylatch.tasks").await.unwrap();
    let since = Instant::now();
    begins.client.batch_execute(end).await.unwrap();
    assert!(since.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn tables_of_tasks_of_another_version_are_refused() {
    let ground = Direct::new();
    let store = Postgres::connect(&ground.postgres.url()).await.unwrap();
    store.tasks().unwrap().counts(None).await.unwrap();
    for (version, remedy) in [(1, "DROP SCHEMA keylatch CASCADE"), (99, "use a newer program")] {
        ground.postgres.sql(&format!("UPDATE keylatch.task_schema SET version = {version}"));
        let store = Postgres::connect(&ground.postgres.url()).await.unwrap();
        let error = store.tasks().unwrap().counts(None).await.unwrap_err();
        assert!(!error.unknown && error.text.contains(remedy), "{}", error.text);
    }
}
