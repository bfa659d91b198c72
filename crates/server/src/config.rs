//! What a server is told when it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use keylatch_table::Settings;

/// How a server runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the log and its snapshots are; `None` keeps everything in memory.
    pub data: Option<PathBuf>,
    /// Where RESP is spoken; `None` is off. Port 0 picks a free one.
    pub resp: Option<SocketAddr>,
    /// Where the enqueue protocol is spoken; `None` is off. Port 0 picks a free one.
    pub enqueue: Option<SocketAddr>,
    /// Where HTTP is spoken; `None` is off. Port 0 picks a free one.
    pub http: Option<SocketAddr>,
    /// Names under which HTTP is answered, beside addresses and `localhost`.
    pub http_hosts: Vec<String>,
    /// An answer over HTTP takes no longer: proxies commonly wait a minute, some half of that. Whoever
    /// still waits then is told so, and keeps its place for as long once more.
    pub http_answer: Duration,
    /// Connections at once; more are told so and closed.
    pub connections: usize,
    /// Bytes of a request.
    pub frame_bytes: usize,
    /// Bytes that may wait for a client that does not read; beyond that it is cut off.
    pub unread_bytes: usize,
    /// A connection that has sent nothing within this time is cut off.
    pub handshake: Duration,
    /// A connection that has begun a request and not finished it within this time is cut off.
    pub incomplete: Duration,
    /// A connection that has neither sent nor got anything for this long, and holds and waits for
    /// nothing here, is cut off; zero never.
    pub idle: Duration,
    /// How long the place of a waiter is kept whose connection is gone (not on the enqueue port).
    pub grace: Duration,
    /// Sizes of the log's files.
    pub log: LogSizes,
    /// The bounds of the table.
    pub settings: Settings,
}

/// Sizes of the log's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSizes {
    /// Files of the log are made in this size ahead of time, and one more is kept ready.
    pub segment_bytes: u64,
    /// Bytes that are kept for releases and renewals when the disk is full.
    pub reserve_bytes: u64,
    /// A snapshot is made, and the log shortened, when it has grown by this much.
    pub snapshot_bytes: u64,
}

impl Default for LogSizes {
    /// 64 MiB: made in about 40 ms and read again in a quarter of a second where it was measured.
    /// 4 MiB: some ten thousand releases, one at a time.
    fn default() -> LogSizes {
        LogSizes { segment_bytes: 64 << 20, reserve_bytes: 4 << 20, snapshot_bytes: 64 << 20 }
    }
}

impl Default for Config {
    fn default() -> Config {
        let loopback = |port| Some(SocketAddr::from(([127, 0, 0, 1], port)));
        Config {
            data: None,
            resp: loopback(5625),
            enqueue: loopback(3721),
            http: loopback(5626),
            http_hosts: Vec::new(),
            http_answer: Duration::from_secs(20),
            connections: 16_000,
            frame_bytes: 128 * 1024,
            unread_bytes: 16 * 1024 * 1024,
            handshake: Duration::from_secs(10),
            incomplete: Duration::from_secs(10),
            idle: Duration::ZERO,
            grace: Duration::from_secs(2),
            log: LogSizes::default(),
            settings: Settings::default(),
        }
    }
}

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not loopback.
    #[error(
        "{0} is reachable from other machines, and this server has no access control yet: listen on \
         127.0.0.1 or ::1"
    )]
    NotLoopback(SocketAddr),
    /// Nothing to listen on.
    #[error("every listener is off: switch on --resp, --enqueue or --http")]
    NoListener,
    /// A bound of the table.
    #[error("settings: {0}")]
    Settings(String),
    /// Too small to be of use.
    #[error("{0} must be at least {1}")]
    TooSmall(&'static str, usize),
}

impl Config {
    /// Whether a server could run so.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let addresses = [self.resp, self.enqueue, self.http];
        if addresses.iter().all(Option::is_none) {
            return Err(ConfigError::NoListener);
        }
        for address in addresses.into_iter().flatten() {
            if !address.ip().is_loopback() {
                return Err(ConfigError::NotLoopback(address));
            }
        }
        for (name, value, least) in [
            ("connections", self.connections, 1),
            ("frame_bytes", self.frame_bytes, 1_024),
            ("unread_bytes", self.unread_bytes, 65_536),
            ("log.segment_bytes", self.log.segment_bytes as usize, 65_536),
            ("log.reserve_bytes", self.log.reserve_bytes as usize, 65_536),
            ("log.snapshot_bytes", self.log.snapshot_bytes as usize, 65_536),
        ] {
            if value < least {
                return Err(ConfigError::TooSmall(name, least));
            }
        }
        self.settings.validate().map_err(|error| ConfigError::Settings(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_with_a_reason() {
        let good = Config::default();
        assert_eq!(good.validate(), Ok(()));
        let off = Config { resp: None, enqueue: None, http: None, ..good.clone() };
        assert_eq!(off.validate(), Err(ConfigError::NoListener));
        let open: SocketAddr = "0.0.0.0:5625".parse().unwrap();
        let error = Config { resp: Some(open), ..good.clone() }.validate().unwrap_err();
        assert!(error.to_string().starts_with("0.0.0.0:5625 is reachable"), "{error}");
        let small = Config { frame_bytes: 10, ..good.clone() }.validate().unwrap_err();
        assert_eq!(small.to_string(), "frame_bytes must be at least 1024");
        let mut settings = Settings::default();
        settings.set("id_bytes", 1_000);
        let error = Config { settings, ..good }.validate().unwrap_err();
        assert_eq!(error.to_string(), "settings: id_bytes is at most 255");
    }
}
