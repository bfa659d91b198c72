//! What each strategy can do and promises, in one place: programs ask [`crate::Locks::capabilities`],
//! the conformance suite chooses its tests by it (what is promised must work, what is not must be
//! refused), and the table in `docs/strategies/README.md` is made of it (`tests/capabilities.rs`).
//!
//! A new strategy is one more constant and its place in [`Capabilities::ALL`].

use std::time::Duration;

/// What a strategy can do, and what it promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The schemes of its URLs, the usual one first; none if it is no URL that opens it.
    pub schemes: &'static [&'static str],
    /// How its URLs look.
    pub url: &'static str,
    /// Its page in `docs/strategies`.
    pub page: &'static str,
    /// What it is for.
    pub purpose: &'static str,
    /// What its locks survive.
    pub survives: &'static str,
    /// Whether an acknowledged grant is on disk.
    pub durable: Durable,
    /// Whose clock leases count by.
    pub clock: &'static str,
    /// What a lock that is free, and its release, cost.
    pub cost: &'static str,
    /// How those who wait learn that it is their turn.
    pub woken: &'static str,
    /// Whether grants follow the order of arrival strictly.
    pub fair: bool,
    /// Whether a request may name several keys of different names.
    pub several_names: bool,
    /// How many may wait for one key; more are refused.
    pub waiters: u64,
    /// The shortest lease, of locks and of claims; a shorter one is made as long.
    pub shortest_lease: Duration,
    /// Whether [`crate::Locks::watch`] tells what happens.
    pub watch: bool,
    /// Whether [`crate::Ask::detect`] finds cycles of owners.
    pub detect: bool,
    /// Whether [`crate::Locks::tasks`] works.
    pub tasks: bool,
    /// Whether [`crate::Tasks::counts`] knows of all claims that wait; else only of those of this process.
    pub counts_waiting: bool,
    /// How long an id that was granted and has ended is not granted again; `None` if it is.
    pub ended_ids: Option<Duration>,
    /// The feature of the crate that it needs.
    pub feature: Option<&'static str>,
}

/// Whether an acknowledged grant is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durable {
    /// Never.
    No,
    /// Always.
    Yes,
    /// As whoever runs it has decided, in these words.
    Configured(&'static str),
}

/// What the table does, wherever it is.
const TABLE: Capabilities = Capabilities {
    schemes: &["memory"],
    url: "memory:",
    page: "memory.md",
    purpose: "one program, tests",
    survives: "nothing",
    durable: Durable::No,
    clock: "the process's",
    cost: "no call",
    woken: "the process",
    fair: true,
    several_names: true,
    waiters: 10_000,
    shortest_lease: Duration::from_millis(1),
    watch: true,
    detect: true,
    tasks: true,
    counts_waiting: true,
    ended_ids: Some(Duration::from_secs(60)),
    feature: None,
};

/// What a record store does unless it says otherwise: the same rules, but nobody who sees all of it.
const RECORDS: Capabilities = Capabilities {
    watch: false,
    detect: false,
    counts_waiting: false,
    ended_ids: None,
    waiters: 1_000,
    ..TABLE
};

const SQLITE: Capabilities = Capabilities {
    schemes: &["sqlite"],
    url: "sqlite:PATH",
    page: "sqlite.md",
    purpose: "several processes, one machine; the default",
    survives: "process and machine crash",
    durable: Durable::Yes,
    clock: "the machine's, suspend included",
    cost: "2 transactions",
    woken: "the process; from another one within some 4 ms",
    feature: Some("sqlite"),
    ..RECORDS
};

const REDIS: Capabilities = Capabilities {
    schemes: &["redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+unix"],
    url: "redis://",
    page: "redis.md",
    purpose: "Redis you already run",
    survives: "client crash; not a Redis fail-over",
    durable: Durable::Configured("as Redis is"),
    clock: "Redis's",
    cost: "2 scripts",
    woken: "a channel",
    feature: Some("redis"),
    ..RECORDS
};

const POSTGRES: Capabilities = Capabilities {
    schemes: &["postgres", "postgresql"],
    url: "postgres://",
    page: "postgres.md",
    purpose: "PostgreSQL you already run, also behind a pooler",
    survives: "client and database crash; not an asynchronous fail-over",
    durable: Durable::Yes,
    clock: "PostgreSQL's",
    cost: "2 statements",
    woken: "a notification; behind a pooler it looks every 50 ms",
    feature: Some("postgres"),
    ..RECORDS
};

const ETCD: Capabilities = Capabilities {
    schemes: &["etcd", "etcds"],
    url: "etcd://",
    page: "etcd.md",
    purpose: "etcd you already run",
    survives: "client crash, and a minority of etcd",
    durable: Durable::Yes,
    clock: "etcd's leases, in whole seconds",
    cost: "2 transactions",
    woken: "a watch",
    shortest_lease: Duration::from_secs(1),
    feature: Some("etcd"),
    ..RECORDS
};

const SERVER: Capabilities = Capabilities {
    schemes: &["keylatch", "keylatchs"],
    url: "keylatch://",
    page: "server.md",
    purpose: "the lock server",
    survives: "server crash (not with `--ephemeral`)",
    durable: Durable::Configured("unless `--ephemeral`"),
    clock: "the server's own",
    cost: "2 requests",
    woken: "a push",
    feature: Some("server"),
    ..TABLE
};

const CLUSTER: Capabilities = Capabilities {
    schemes: &[],
    url: "cluster::Node",
    page: "cluster.md",
    purpose: "a member of a cluster inside of your program",
    survives: "the crash of a minority of its members",
    durable: Durable::Yes,
    clock: "the leader's",
    cost: "2 entries of the log",
    feature: Some("cluster"),
    ..SERVER
};

impl Capabilities {
    /// Those of every strategy, compiled in or not.
    pub const ALL: &'static [Capabilities] =
        &[TABLE, SQLITE, REDIS, POSTGRES, ETCD, SERVER, CLUSTER];

    /// Those of a member in this process, which has no URL.
    #[cfg(feature = "cluster")]
    pub(crate) const CLUSTER: Capabilities = CLUSTER;

    /// A lease as it is asked for: at least the shortest, unless it is none.
    pub(crate) fn lease(&self, asked: Duration) -> Duration {
        if asked.is_zero() { asked } else { asked.max(self.shortest_lease) }
    }

    /// Those of the strategy that a URL names; `None` if it names none.
    pub fn of(url: &str) -> Option<&'static Capabilities> {
        let (scheme, _) = url.split_once(':')?;
        Capabilities::ALL.iter().find(|it| it.schemes.contains(&scheme))
    }
}

#[cfg(test)]
mod tests {
    use super::Capabilities;

    #[test]
    fn the_bounds_are_those_of_the_table() {
        let settings = keylatch_table::Settings::default();
        for it in Capabilities::ALL {
            assert!(it.waiters <= settings.waiters, "{}", it.url);
            let ended = it.ended_ids.map(|time| time.as_millis());
            assert!(ended.is_none_or(|ms| ms == settings.ended_ms.into()), "{}", it.url);
        }
    }

    #[test]
    fn a_url_names_its_strategy() {
        assert_eq!(Capabilities::of("keylatchs://a:1?ca=x").unwrap().page, "server.md");
        assert_eq!(Capabilities::of("memory:").unwrap().page, "memory.md");
        assert_eq!(Capabilities::of("ftp://x"), None);
        assert_eq!(Capabilities::of("nonsense"), None);
    }
}
