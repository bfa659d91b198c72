//! What is to be done, checked once.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Bench, Protocol};

/// A load, ready to run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) connections: usize,
    pub(crate) keys: Keys,
    pub(crate) end: End,
    pub(crate) warm_up: Duration,
    /// Between two locks of an open loop.
    pub(crate) interval: Option<Duration>,
    pub(crate) hold: Duration,
    pub(crate) lease_ms: u64,
    pub(crate) wait_ms: u64,
    pub(crate) poll: Duration,
    pub(crate) progress: bool,
}

/// When it is enough.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    After(Duration),
    Pairs(u64),
}

/// Who wants which keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Each connection so many of its own, in turn.
    Own(usize),
    /// All connections the same ones, in turn.
    Shared(usize),
}

impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Keys, String> {
        let (kind, count) = text.split_once(':').unwrap_or((text, ""));
        let count = match (kind, count) {
            ("own", "") => Some(1),
            (_, count) => count.parse().ok().filter(|count| (1..=MOST_KEYS).contains(count)),
        };
        match (kind, count) {
            ("own", Some(count)) => Ok(Keys::Own(count)),
            ("shared", Some(count)) => Ok(Keys::Shared(count)),
            _ => Err(format!("say `own`, `own:N` or `shared:N`, N from 1 to {MOST_KEYS}")),
        }
    }
}

/// The watch over holders has an entry for each.
const MOST_KEYS: usize = 1_000_000;
/// One process has so many descriptors at best.
const MOST_CONNECTIONS: usize = 60_000;
/// Longer than anyone would wait for a result.
const LONGEST_S: f64 = 86_400.0;

impl Plan {
    pub(crate) fn new(bench: &Bench) -> Result<Plan> {
        let (protocol, address) = target(bench)?;
        let many = 1..=MOST_CONNECTIONS;
        ensure!(many.contains(&bench.connections), "--connections is 1 to {MOST_CONNECTIONS}");
        ensure!(
            bench.lease_ms == 0 || bench.hold_ms < bench.lease_ms,
            "--hold-ms must be below --lease-ms: a lock that ends by itself cannot be checked"
        );
        ensure!(protocol != Protocol::Redis || bench.lease_ms > 0, "redis needs --lease-ms");
        ensure!(bench.pairs != Some(0), "--pairs is at least 1");
        ensure!(bench.seconds != Some(0.0), "--seconds is above 0: there is nothing to measure");
        if let Some(rate) = bench.rate {
            ensure!((0.001..=1e7).contains(&rate), "--rate is 0.001 to 10000000 a second");
        }
        let end = match bench.pairs {
            Some(pairs) => End::Pairs(pairs),
            None => End::After(seconds("--seconds", bench.seconds.unwrap_or(10.0))?),
        };
        let warm_up = if bench.pairs.is_some() { 0.0 } else { 1.0 };
        Ok(Plan {
            address,
            protocol,
            connections: bench.connections,
            keys: bench.keys,
            end,
            warm_up: seconds("--warm-up", bench.warm_up.unwrap_or(warm_up))?,
            interval: bench.rate.map(|rate| Duration::from_secs_f64(1.0 / rate)),
            hold: Duration::from_millis(bench.hold_ms),
            lease_ms: bench.lease_ms,
            wait_ms: bench.wait_ms,
            poll: seconds("--poll", bench.poll / 1_000.0)?,
            progress: bench.shows_progress(),
        })
    }
}

fn seconds(flag: &str, seconds: f64) -> Result<Duration> {
    ensure!((0.0..=LONGEST_S).contains(&seconds), "{flag} is 0 to {LONGEST_S} seconds");
    Ok(Duration::from_secs_f64(seconds))
}

/// Where to, and what is spoken there: the flag, else the URL, else RESP.
fn target(bench: &Bench) -> Result<(Protocol, SocketAddr)> {
    let given = bench.address.as_deref();
    let (scheme, host) = match given.and_then(|text| text.split_once("://")) {
        Some((scheme, host)) => (Some(scheme), Some(host.trim_end_matches('/'))),
        None => (None, given),
    };
    let of_url = match scheme {
        None => None,
        Some("keylatch") => Some(Protocol::Resp),
        Some("redis") => Some(Protocol::Redis),
        Some("enqueue") => Some(Protocol::Enqueue),
        Some(other) => anyhow::bail!("'{other}://': say keylatch://, redis:// or enqueue://"),
    };
    let protocol = bench.protocol.or(of_url).unwrap_or(Protocol::Resp);
    let host = host.unwrap_or(match protocol {
        Protocol::Resp => "127.0.0.1:5625",
        Protocol::Redis => "127.0.0.1:6379",
        Protocol::Enqueue => "127.0.0.1:3721",
    });
    let wrong = || format!("'{host}' is not an address: say HOST:PORT, such as 127.0.0.1:5625");
    let address = host.to_socket_addrs().with_context(wrong)?.next().with_context(wrong)?;
    Ok((protocol, address))
}
