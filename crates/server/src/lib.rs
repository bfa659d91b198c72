//! The lock server: bytes come in, bytes go out, and between them one table decides.
//!
//! The walk of a request, which is also the order of the files: `listener/` (bytes to commands and
//! replies to bytes, one folder a protocol) -> `turn` (everything that has arrived, together) ->
//! `log/` (made durable, or not) -> the table -> `outbox` (who is told what) -> the connection.

mod certificates;
mod clock;
mod config;
mod connection;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod listener;
mod log;
mod outbox;
mod server;
mod transport;
mod turn;

pub use certificates::TlsError;
pub use config::{Config, ConfigError, LogSizes, TlsFiles};
pub use log::NodeError;
pub use server::{Addresses, Server, ServerError, Stop};
