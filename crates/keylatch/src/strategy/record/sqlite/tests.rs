//! What only this store does; the rest is the contract.

use std::sync::Arc;

use keylatch_table::RequestId;
use rusqlite::Connection;

use super::super::contract::{Ground, contract};
use super::super::store::{Change, Committed, Expect, NameChange, Put, Store, Write};
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
