//! Record stores: databases that only have to compare and swap. For each name in use they keep a
//! *head* (who holds) and a *queue* (who waits). The rules are those of the table: what was read
//! becomes a small table, the command is applied to it, and what then stands is written back if
//! nobody has written meanwhile.
//!
//! - `store`: what a store has to do.
//! - `format`: heads and waiters as bytes.
//! - `decide`: from what was read to what is to be written.
//! - `line`: requests of one process on one name keep their order.
//! - `sqlite`: one file, several processes. `redis`: a Redis, one script a change. `postgres`: a
//!   PostgreSQL, one call of a procedure for some changes.

// BEING REWRITTEN: decide, driver, format, line, redis, sqlite come back with the new store contract.
#![allow(dead_code, unused)]
#[cfg(test)]
mod contract;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod store;
