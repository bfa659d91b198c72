//! The contract, against a PostgreSQL of its own for each rule, also behind a pooler; and what is PostgreSQL's own.

#[path = "../../../../tests/common/postgres.rs"]
mod server;

use std::sync::Arc;

use tempfile::TempDir;

use super::super::contract::{Ground, contract};
use super::super::store::Store;
use super::Postgres;
use server::Pooler;

struct Direct {
    postgres: server::Postgres,
    _dir: TempDir,
}

impl Direct {
    fn new() -> Direct {
        let dir = tempfile::tempdir().unwrap();
        Direct { postgres: server::Postgres::start(dir.path(), &[]), _dir: dir }
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
        let pooler = Pooler::start(direct._dir.path(), &direct.postgres);
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
}

mod behind_a_pooler {
    use super::*;
    contract!(Pooled::new());
}
