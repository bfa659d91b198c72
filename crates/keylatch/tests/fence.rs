//! The fences that docs/strategies/README.md gives in one line each, as they stand there, in front of
//! a real SQLite and a real Redis.

mod common;

/// What stands there after `- NAME: `, between backticks.
fn line(name: &str) -> &'static str {
    let page = include_str!("../../../docs/strategies/README.md");
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("- {name}: `")));
    line.expect("the page has it").split_once('`').expect("it ends").0
}

/// Tokens as they are: of a server that began at the time in microseconds. Each with what it writes,
/// and whether it may.
const WRITES: [(u64, &str, bool); 5] = [
    (1_760_000_000_000_001, "first", true),
    (1_760_000_000_000_001, "the same holder again", true),
    (1_760_000_000_000_007, "second", true),
    (1_760_000_000_000_006, "a stale one", false),
    (1_760_000_000_000_008, "third", true),
];

#[test]
fn the_sql_fence_refuses_an_older_token() {
    let database = rusqlite::Connection::open_in_memory().unwrap();
    let schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, value TEXT, token INTEGER NOT NULL)";
    database.execute(schema, []).unwrap();
    database.execute("INSERT INTO t VALUES (1, '', 0)", []).unwrap();
    for (token, value, may) in WRITES {
        let rows = database.execute(line("SQL"), (value, token.cast_signed(), 1)).unwrap();
        assert_eq!(rows, usize::from(may), "{token}");
        let stored = "SELECT value FROM t WHERE id = 1";
        let stored: String = database.query_row(stored, [], |row| row.get(0)).unwrap();
        assert_eq!(stored == value, may);
    }
}

#[test]
fn the_redis_fence_refuses_an_older_token() {
    let dir = tempfile::tempdir().unwrap();
    let server = common::Redis::start(dir.path(), &[]);
    let mut redis = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let script = redis::Script::new(line("Redis"));
    for (token, value, may) in WRITES {
        let done: Option<i64> =
            script.key("data").arg(token).arg(value).invoke(&mut redis).unwrap();
        assert_eq!(done.is_some(), may, "{token}");
        let stored: String = redis::cmd("HGET").arg("data").arg("value").query(&mut redis).unwrap();
        assert_eq!(stored == value, may);
    }
}
