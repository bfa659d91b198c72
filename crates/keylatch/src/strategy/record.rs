//! Record stores: databases that only have to compare and swap. For each name in use they keep a
//! *head* (who holds) and a *queue* (who waits). The rules are those of the table: what was read
//! becomes a small table, the command is applied to it, and what then stands is written back if
//! nobody has written meanwhile.
//!
//! - `store`: what a store has to do.
//! - `format`: heads and waiters as bytes.
//! - `decide`: from what was read to what is to be written.
//! - `driver`: the strategy: what is asked takes its turn, and waits. `act`: lets the table decide, and writes. `alone`:
//!   the same where nobody else is, in one step. `watcher`: looks after all of it.
//! - `known`: what is known of names without asking. `mine`: what this process has asked for.
//! - `relay`: what goes from one request of a process to the next one, before it is written.
//! - `line`: requests of one process on one name keep their order, and go to the store together.
//! - `simulation`: the driver over a store where everything goes wrong, in tests.
//! - `contract`: what every store must do, as tests. `model`: the most naive one, for tests.
//! - `tasks`: tasks, on the same stores.
//! - `sqlite`: one file, several processes. `redis`: a Redis, one script a change. `etcd`: an etcd, one
//!   transaction a change, and its leases. `postgres`: a PostgreSQL, one call for some changes.

mod act;
mod alone;
#[cfg(test)]
mod contract;
mod decide;
mod driver;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
mod format;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod gather;
mod known;
mod line;
mod mine;
#[cfg(test)]
mod model;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod relay;
#[cfg(test)]
mod simulation;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod store;
mod tasks;
mod watcher;

pub(crate) use driver::Records;

/// By ids and names, of which nobody outside can make many that collide: seeds are random.
type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
type Set<K> = std::collections::HashSet<K, foldhash::fast::RandomState>;
