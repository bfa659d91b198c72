//! What only this store does; the rest is the contract.

use std::sync::Arc;

use keylatch_table::{Extras, Mode, Party, RequestId, Resource, Standing, StandingPart};
use rusqlite::Connection;

use super::super::contract::{Ground, HANG, contract};
use super::super::store::{Change, Committed, Done, Expect, NameChange, Put, Store, Told, Write};
use super::Sqlite;

struct InDir(tempfile::TempDir);

impl InDir {
    fn new() -> InDir {
        InDir(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> String {
        self.0.path().join("deep/locks").display().to_string()
    }

    fn raw(&self) -> Connection {
        std::fs::create_dir_all(self.0.path().join("deep")).unwrap();
        Connection::open(self.path()).unwrap()
    }

    async fn refused(&self) -> String {
        match Sqlite::open(&self.path()).await {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it was opened"),
        }
    }
}

impl Ground for InDir {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Sqlite::open(&self.path()).await.unwrap())
    }
}

contract!(InDir::new());

mod tasks {
    use super::super::super::tasks::contract::task_contract;
    use super::InDir;
    task_contract!(InDir::new());
}

fn put(name: &str, expect: Expect, keep_ms: Option<u64>) -> Change {
    let put = Put { bytes: name.into(), keep_ms, holders: Vec::new() };
    let head = Write::Put(put);
    let one = NameChange {
        expect,
        last_seq: None,
        head,
        remove: Vec::new(),
        tell: false,
        own_up_to: None,
    };
    Change::of(name, one)
}

async fn done(store: &dyn Store, change: Change) -> Done {
    match store.commit(change).await.unwrap() {
        Committed::Done(done) => done,
        Committed::Mismatch(view) => panic!("{view:?}"),
    }
}

/// A file as version 1 made it, with one head.
fn make_version_1(file: &Connection, deadline: u64) {
    let tables = "
        CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), counter INTEGER NOT NULL,
            last_ms INTEGER NOT NULL, boot TEXT NOT NULL, offset_ms INTEGER NOT NULL) STRICT;
        CREATE TABLE heads (name TEXT PRIMARY KEY, version INTEGER NOT NULL,
            time_ms INTEGER NOT NULL, bytes BLOB NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE waiters (name TEXT NOT NULL, seq INTEGER NOT NULL, time_ms INTEGER NOT NULL,
            alive_until_ms INTEGER NOT NULL, bytes BLOB NOT NULL,
            PRIMARY KEY (name, seq)) STRICT, WITHOUT ROWID;
        INSERT INTO state VALUES (1, 1700, 1000005000, 'another boot', 0);
        INSERT INTO waiters VALUES ('old', 1600, 1000000000, 1000003000, x'');
        PRAGMA user_version = 1;";
    file.execute_batch(tables).unwrap();
    let part = StandingPart {
        resource: Resource::new("old", &[]).unwrap(),
        mode: Mode::Exclusive,
        asked: Mode::Exclusive,
    };
    let standing = Standing {
        id: RequestId::new("ann"),
        seq: (1 << 60) + 1,
        token: (1 << 60) + 1,
        since: 0,
        deadline: (deadline > 0).then_some(deadline),
        waited_ms: 0,
        lease_ms: deadline,
        party: Party::owner("ann"),
        detect: false,
        detached: false,
        parts: vec![part],
        extra: Extras::default(),
        wait_ms: 0,
        wait: None,
    };
    let standing = standing.encode();
    let mut bytes = vec![1, 1, 0, 0, 0];
    bytes.extend_from_slice(&(standing.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&standing);
    bytes.extend_from_slice(&[0, 0, 0, 0]);
    let insert = "INSERT INTO heads VALUES ('old', 1500, 1000000000, ?1)";
    file.execute(insert, [bytes]).unwrap();
}

#[tokio::test]
async fn a_file_of_version_1_is_taken_over_when_nobody_holds_anything() {
    let dir = InDir::new();
    make_version_1(&dir.raw(), 4_000);
    let store = dir.open().await;
    let view = store.read_all().await.unwrap();
    assert!(view.names.is_empty());
    // Its clock goes on, and its numbers do not fall back.
    assert!(view.now >= 1_000_005_000, "{}", view.now);
    assert!(done(&*store, put("k", Expect::Absent, None)).await.version > 1_700);
}

#[tokio::test]
async fn a_file_of_version_1_is_refused_while_somebody_holds() {
    // With a lease, and without one.
    for deadline in [60_000_000, 0] {
        let dir = InDir::new();
        make_version_1(&dir.raw(), deadline);
        let text = dir.refused().await;
        assert!(text.contains("earlier version of keylatch, and 'old' is held"), "{text}");
        // Nothing has changed.
        assert!(dir.refused().await.contains("'old' is held"));
    }
}

#[tokio::test]
async fn what_is_no_file_of_ours_is_refused() {
    let dir = InDir::new();
    dir.raw().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(dir.refused().await.contains("a database of another program"));
    let dir = InDir::new();
    dir.raw().execute_batch("PRAGMA user_version = 3").unwrap();
    assert!(dir.refused().await.contains("newer than this program"));
    let dir = InDir::new();
    drop(dir.raw());
    std::fs::write(dir.path(), vec![b'x'; 10_000]).unwrap();
    assert!(dir.refused().await.contains("not a database"));
}

#[tokio::test]
async fn numbers_of_an_old_copy_do_not_fall_back() {
    let dir = InDir::new();
    let store = dir.open().await;
    let first = done(&*store, put("k", Expect::Absent, None)).await.version;
    drop(store);
    dir.raw().execute("UPDATE state SET counter = counter - 1000000", []).unwrap();
    let store = dir.open().await;
    let second = done(&*store, put("k", Expect::Version(first), None)).await.version;
    assert!(second > first, "{second} after {first}");
    let third = done(&*store, put("k", Expect::Version(second), None)).await.version;
    assert_eq!(third, second + 1, "and then they are counted");
}

#[tokio::test]
async fn after_a_reboot_time_goes_on_from_the_last_write() {
    let dir = InDir::new();
    let store = dir.open().await;
    let before = done(&*store, put("k", Expect::Absent, None)).await.now;
    drop(store);
    dir.raw().execute("UPDATE state SET boot = 'another', offset_ms = 0", []).unwrap();
    let now = dir.open().await.read_all().await.unwrap().now;
    assert!((before..before + 60_000).contains(&now), "{now} after {before}");
}

#[tokio::test]
async fn who_missed_news_is_told_so() {
    let dir = InDir::new();
    let store = dir.open().await;
    let mut told = store.told();
    let news = "INSERT INTO news VALUES (?1, 'k', ?1, '7 8')";
    dir.raw().execute(news, [1]).unwrap();
    let one = |version| Told::Changed { name: "k".into(), version, removed: vec![7, 8] };
    assert_eq!(told.recv().await.unwrap(), one(1));
    dir.raw().execute(news, [5]).unwrap();
    assert_eq!(told.recv().await.unwrap(), Told::Anything);
    assert_eq!(told.recv().await.unwrap(), one(5));
}

#[tokio::test]
async fn news_do_not_pile_up() {
    let dir = InDir::new();
    let store = dir.open().await;
    let mut told = store.told();
    let mut all = tokio::task::JoinSet::new();
    for number in 0..1_500 {
        let mut change = put(&number.to_string(), Expect::Absent, None);
        change.names.values_mut().for_each(|one| one.tell = true);
        all.spawn(store.commit(change));
    }
    all.join_all().await;
    for _ in 0..1_500 {
        assert!(matches!(told.recv().await.unwrap(), Told::Changed { .. }));
    }
    let count = "SELECT count(*) FROM news";
    let count: i64 = dir.raw().query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1_000);
}

#[tokio::test]
async fn any_number_of_names_is_swept() {
    let dir = InDir::new();
    let store = dir.open().await;
    let mut all = tokio::task::JoinSet::new();
    for number in 0..1_500 {
        let keep_ms = if number % 100 == 0 { None } else { Some(1) };
        all.spawn(store.commit(put(&number.to_string(), Expect::Absent, keep_ms)));
    }
    all.join_all().await;
    let since = std::time::Instant::now();
    while store.read_all().await.unwrap().names.len() > 15 {
        assert!(since.elapsed() < HANG, "they do not go");
        dir.open().await;
    }
    assert_eq!(store.read_all().await.unwrap().names.len(), 15);
}

/// Steps of SQLite's machine, not time.
#[tokio::test]
async fn what_a_claim_looks_at_does_not_grow_with_the_pool() {
    use rusqlite::StatementStatus::VmStep;
    let dir = InDir::new();
    let store = dir.open().await;
    let tasks = store.tasks().unwrap();
    tasks.counts(None).await.unwrap();
    let raw = dir.raw();
    let mut steps = Vec::new();
    let mut there = 0;
    for size in [1_000, 100_000] {
        let fill = "INSERT INTO tasks SELECT 'p', 'k' || value, value, 1, value, 1, value, value % 2,
                value % 7, CASE value % 2 WHEN 0 THEN 1 ELSE 9000000000000 END, 1 - value % 2,
                NULL, x'', x'' FROM (WITH RECURSIVE n (value) AS (
                    SELECT ?1 UNION ALL SELECT value + 1 FROM n WHERE value + 1 < ?2) SELECT value FROM n)";
        raw.execute(fill, [there, size]).unwrap();
        there = size;
        let mut all = Vec::new();
        for (text, more) in [
            (super::tasks::LINE, vec![2_000_000_000i64, 200]),
            (super::tasks::FIRST, vec![]),
            (super::tasks::NEXT, vec![]),
        ] {
            let mut statement = raw.prepare(text).unwrap();
            let mut values: Vec<rusqlite::types::Value> = vec!["p".to_string().into()];
            values.extend(more.into_iter().map(rusqlite::types::Value::from));
            let mut rows = statement.query(rusqlite::params_from_iter(values)).unwrap();
            while rows.next().unwrap().is_some() {}
            drop(rows);
            all.push(statement.get_status(VmStep));
        }
        steps.push(all);
    }
    assert_eq!(steps[0], steps[1]);
    // So that the count would show it.
    let mut whole = raw.prepare("SELECT count(*) FROM tasks WHERE bytes = x'01'").unwrap();
    whole.query_row([], |_| Ok(())).unwrap();
    assert!(whole.get_status(VmStep) > 100_000);
}
