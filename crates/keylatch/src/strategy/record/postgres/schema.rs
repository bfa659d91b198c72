//! The schema, made or found.

use tokio_postgres::error::SqlState;

use super::link::{Link, Wire, explained};
use crate::error::ConnectError;

/// The version of `schema.sql`.
const VERSION: i32 = 3;
const SCHEMA: &str = include_str!("schema.sql");

/// Makes sure that the schema is there, as this program knows it.
pub(super) async fn set_up(link: &Link) -> Result<(), ConnectError> {
    let wire = link.connect().await.map_err(|error| match error.as_db_error() {
        Some(_) => ConnectError::Refused(format!("PostgreSQL: {}", explained(&error))),
        None => ConnectError::Unreachable(link.unreachable(&error)),
    })?;
    match known(version(&wire).await, "use")? {
        true => Ok(()),
        false => create(&wire).await,
    }
}

/// Of the schema that is there.
async fn version(wire: &Wire) -> Result<Option<i32>, tokio_postgres::Error> {
    match wire.client.query_typed("SELECT version FROM keylatch.schema", &[]).await {
        Ok(rows) => rows.first().map(|row| row.try_get(0)).transpose(),
        Err(error)
            if matches!(
                error.code(),
                Some(&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether it is there; what is wrong with it, if it is not as it should be.
fn known(
    version: Result<Option<i32>, tokio_postgres::Error>,
    what: &str,
) -> Result<bool, ConnectError> {
    match version {
        Ok(None) => Ok(false),
        Ok(Some(VERSION)) => Ok(true),
        // Nothing that was released has made such a one.
        Ok(Some(older)) if older < VERSION => Err(ConnectError::Refused(format!(
            "the schema keylatch in this database has version {older}, and this program knows {VERSION}: stop \
             all programs that use it, run DROP SCHEMA keylatch CASCADE, which forgets its locks and tasks, and \
             start them again"
        ))),
        Ok(Some(other)) => Err(ConnectError::Refused(format!(
            "the schema keylatch in this database has version {other}, and this program knows {VERSION}: \
             use a newer program"
        ))),
        Err(error) => Err(refused(&error, what)),
    }
}

/// Others may be about to do the same: it is looked again under a lock.
async fn create(wire: &Wire) -> Result<(), ConnectError> {
    let begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(1802728813, 1)";
    wire.client.batch_execute(begin).await.map_err(|error| refused(&error, "create"))?;
    // Inside a transaction an error would end it; so it is asked for what is certainly there.
    let there = "SELECT to_regclass('keylatch.schema') IS NOT NULL";
    let there = wire.client.query_typed(there, &[]).await;
    let there = there.and_then(|rows| rows.first().map_or(Ok(false), |row| row.try_get(0)));
    if there.map_err(|error| refused(&error, "use"))? {
        known(version(wire).await, "use")?;
    } else {
        let create = format!("{SCHEMA}; INSERT INTO keylatch.schema (version) VALUES ({VERSION})");
        wire.client.batch_execute(&create).await.map_err(|error| refused(&error, "create"))?;
    }
    wire.client.batch_execute("COMMIT").await.map_err(|error| refused(&error, "create"))
}

fn refused(error: &tokio_postgres::Error, what: &str) -> ConnectError {
    let text = explained(error);
    if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        return ConnectError::Refused(format!("PostgreSQL: {text}"));
    }
    let remedy = match what {
        "create" => {
            "the role of this URL may not create the schema keylatch. Either run as an administrator \
             `GRANT CREATE ON DATABASE ... TO ...`, or connect once with a role that may, and then \
             give this one the rights to it"
        }
        _ => "the role of this URL may not use the schema keylatch. Run as its owner",
    };
    ConnectError::Refused(format!("PostgreSQL: {text}: {remedy}: {RIGHTS}"))
}

/// All that is needed to use the schema.
const RIGHTS: &str = "GRANT USAGE ON SCHEMA keylatch TO ...; \
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA keylatch TO ...; \
    GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA keylatch TO ...";
