//! The lock server: bytes come in, bytes go out, and between them one table decides.
//!
//! The walk of a request, which is also the order of the files: `listener/` (bytes to commands and
//! replies to bytes, one folder a protocol) -> `turn` (everything that has arrived, together) ->
//! `log/` (made durable, or not) -> the table -> `outbox` (who is told what) -> the connection.
//! [`access`] says who may do what.

pub mod access;
mod certificates;
mod clock;
pub mod cluster;
mod config;
mod connection;
mod feed;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod listener;
mod log;
mod metrics;
mod outbox;
mod pace;
mod server;
mod transport;
mod turn;

pub use certificates::TlsError;
pub use config::{Config, ConfigError, LogSizes, RedisPeer, TlsFiles};
pub use log::NodeError;
pub use server::{Addresses, Door, Server, ServerError, Stop};
