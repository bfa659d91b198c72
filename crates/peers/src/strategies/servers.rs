//! Databases, started as the tests of `keylatch` start them.

#[path = "../../../keylatch/tests/common/etcd.rs"]
mod etcd;
#[path = "../../../keylatch/tests/common/postgres.rs"]
mod postgres;
#[path = "../../../keylatch/tests/common/redis.rs"]
mod redis;

use tempfile::TempDir;

/// Without persistence, unless it is started as durable.
pub struct Redis(redis::Redis, #[allow(dead_code)] TempDir);

impl Redis {
    pub(super) fn start() -> Redis {
        let dir = tempfile::tempdir().expect("a directory");
        Redis(redis::Redis::start(dir.path(), &[]), dir)
    }

    /// Every write is on disk before it is answered.
    pub(crate) fn durable() -> Redis {
        let dir = tempfile::tempdir().expect("a directory");
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        Redis(redis::Redis::start(dir.path(), &options), dir)
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }
}

/// With all that makes it durable.
pub struct Postgres(postgres::Postgres, #[allow(dead_code)] TempDir);

impl Postgres {
    pub(crate) fn start() -> Postgres {
        let dir = tempfile::tempdir().expect("a directory");
        Postgres(postgres::Postgres::start(dir.path(), &["max_connections=200"]), dir)
    }

    pub(crate) fn url(&self) -> String {
        self.0.url()
    }
}

/// One node.
pub struct Etcd(etcd::Etcd, #[allow(dead_code)] TempDir);

impl Etcd {
    pub(super) fn start() -> Etcd {
        let dir = tempfile::tempdir().expect("a directory");
        Etcd(etcd::Etcd::start(dir.path()), dir)
    }

    pub(super) fn url(&self) -> String {
        self.0.url()
    }

    pub(super) fn address(&self) -> String {
        self.url().trim_start_matches("etcd://").to_string()
    }
}
