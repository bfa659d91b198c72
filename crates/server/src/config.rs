//! What a server is told when it starts.

mod redis_peer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use keylatch_table::Settings;
#[cfg(feature = "redis")]
pub(crate) use redis_peer::RedisCertificates;
pub use redis_peer::RedisPeer;

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
    /// Where other members of the cluster come in; `None` is a server that is alone. Port 0 picks a free one.
    pub peer: Option<SocketAddr>,
    /// Instead of that, a Redis at which the members meet. This node needs a name there: that in the URL, or
    /// `peer_address`.
    pub peer_redis: Option<RedisPeer>,
    /// As what other members know that address, if not as it is.
    pub peer_address: Option<String>,
    /// Members speak inside of TLS, and show each other certificates of the authority in `client_ca`; `None`
    /// is off.
    pub peer_tls: Option<TlsFiles>,
    /// Peer addresses of members of a cluster to join, or the word `wait`: then it is told later. A node that is a
    /// member already ignores them, unless they are of another cluster.
    pub join: Vec<String>,
    /// How long a request waits for a leader, unless it says that it waits longer.
    pub leader_wait: Duration,
    /// Whoever is in this process comes in by [`crate::Door`], so no listener is needed.
    pub in_process: bool,
    /// Names under which HTTP is answered, beside addresses and `localhost`.
    pub http_hosts: Vec<String>,
    /// An answer over HTTP takes no longer: proxies commonly wait a minute, some half of that. Whoever
    /// still waits then is told so, and keeps its place for as long once more.
    pub http_answer: Duration,
    /// Everyone but the enqueue protocol, which has none, speaks inside of TLS; `None` is off.
    pub tls: Option<TlsFiles>,
    /// Who may do what (docs/security.md); without it everybody who can connect may do everything.
    pub access: Option<PathBuf>,
    /// Where refused access and revocations are written down; without it they are logged.
    pub audit: Option<PathBuf>,
    /// As whom everybody speaks the enqueue protocol, which has no credentials, if there is `access`.
    pub enqueue_principal: String,
    /// Listen where other machines can come, without TLS or without `access`.
    pub insecure: bool,
    /// The same for the enqueue protocol, which can have neither.
    pub enqueue_insecure: bool,
    /// Connections at once; more are told so and closed.
    pub connections: usize,
    /// Bytes of a request.
    pub frame_bytes: usize,
    /// Bytes that may wait for a client that does not read; beyond that it is cut off.
    pub unread_bytes: usize,
    /// A connection that has sent nothing within this time is cut off; what it says to agree on TLS
    /// does not count.
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

/// Where the certificates are, in PEM form. They may be replaced while the server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and behind it those between it and its authority.
    pub certificate: PathBuf,
    /// The private key of that certificate.
    pub key: PathBuf,
    /// Who signs the certificates of clients; `None` asks for none.
    pub client_ca: Option<PathBuf>,
    /// Whether a client must show one. One that is shown must be good either way.
    pub require_client_certificate: bool,
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
            peer: None,
            peer_redis: None,
            peer_address: None,
            peer_tls: None,
            join: Vec::new(),
            leader_wait: Duration::from_secs(3),
            in_process: false,
            http_hosts: Vec::new(),
            http_answer: Duration::from_secs(20),
            tls: None,
            access: None,
            audit: None,
            enqueue_principal: "enqueue".into(),
            insecure: false,
            enqueue_insecure: false,
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
        "{0} is reachable from other machines, and there is no {1}: give it (docs/security.md), listen \
         on 127.0.0.1 or ::1, or say --insecure"
    )]
    NotLoopback(SocketAddr, &'static str),
    /// The enqueue protocol has neither TLS nor tokens.
    #[error(
        "{0} is reachable from other machines, and the enqueue protocol has neither TLS nor tokens: \
         listen on 127.0.0.1 or ::1, or say --enqueue-insecure"
    )]
    EnqueueNotLoopback(SocketAddr),
    /// Whoever can reach a member could join.
    #[error(
        "{0} is reachable from other machines, and members of a cluster would not know each other: give them \
         certificates (--peer-tls-cert, --peer-tls-key, --peer-tls-ca), listen on 127.0.0.1 or ::1, or say \
         --insecure"
    )]
    PeerNotLoopback(SocketAddr),
    /// Not a Redis at which members can meet.
    #[error("peers at a Redis: {0}")]
    RedisUrl(String),
    /// Nobody could call it.
    #[error(
        "peers at a Redis: this node has no name there: add &node=NAME to the URL, each node its own"
    )]
    RedisWithoutNode,
    /// Nobody could add it.
    #[error(
        "peers at a Redis: a node cannot wait there to be added to a cluster: name a member with --join"
    )]
    RedisCannotWait,
    /// What members say could be read, and said by others.
    #[error(
        "peers at a Redis: what members say goes over the network in the clear: use rediss://, a Redis on this \
         machine, or say --insecure"
    )]
    RedisExposed,
    /// There would be nobody to show them to.
    #[error(
        "members that meet at a Redis show each other no certificates: leave out --peer-tls-cert, --peer-tls-key \
         and --peer-tls-ca, and use rediss:// (with &ca=FILE, &cert=FILE and &key=FILE if the Redis wants them)"
    )]
    RedisWithPeerTls,
    /// It is not there.
    #[error("peers at a Redis: this was compiled without the feature `redis` of keylatch-server")]
    NoRedis,
    /// A member has a log.
    #[error("a member of a cluster needs a data directory: it cannot be ephemeral")]
    PeerWithoutData,
    /// A log would lie wherever the server is started.
    #[error("data is empty: name a directory, or say ephemeral")]
    EmptyData,
    /// Nobody could find it.
    #[error("to join a cluster a node needs an address for the other members: say --peer")]
    JoinWithoutPeer,
    /// Nobody can be called there.
    #[error("'{0}' is no peer address of a member to join: say HOST:PORT, or `wait` alone")]
    Join(String),
    /// Nothing to listen on.
    #[error("every listener is off: switch on --resp, --enqueue or --http")]
    NoListener,
    /// Nobody could come in.
    #[error("client certificates are required, and nothing says who signs them: give a client CA")]
    NoClientCa,
    /// A bound of the table.
    #[error("settings: {0}")]
    Settings(String),
    /// Two listeners on one address.
    #[error("{0} is named for two listeners; each needs an address of its own")]
    Twice(SocketAddr),
    /// Too small to be of use.
    #[error("{0} must be at least {1}")]
    TooSmall(&'static str, usize),
}

impl Config {
    /// Whether a server could run so.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let addresses = [self.resp, self.enqueue, self.http];
        if addresses.iter().all(Option::is_none) && !self.in_process {
            return Err(ConfigError::NoListener);
        }
        let open = |address: &SocketAddr| !address.ip().is_loopback();
        let missing = match (&self.tls, &self.access) {
            (None, None) => Some("TLS and no access file"),
            (None, Some(_)) => Some("TLS"),
            (Some(_), None) => Some("access file"),
            (Some(_), Some(_)) => None,
        };
        if let Some(missing) = missing.filter(|_| !self.insecure)
            && let Some(address) = [self.resp, self.http].into_iter().flatten().find(open)
        {
            return Err(ConfigError::NotLoopback(address, missing));
        }
        if let Some(address) =
            self.enqueue.filter(|address| open(address) && !self.enqueue_insecure)
        {
            return Err(ConfigError::EnqueueNotLoopback(address));
        }
        if let Some(address) = self.peer.filter(open)
            && !self.insecure
            && self.peer_tls.is_none()
        {
            return Err(ConfigError::PeerNotLoopback(address));
        }
        if self.peer_tls.as_ref().is_some_and(|tls| tls.client_ca.is_none()) {
            return Err(ConfigError::NoClientCa);
        }
        if let Some(redis) = &self.peer_redis {
            self.validate_redis(redis)?;
        }
        if self.data.as_ref().is_some_and(|dir| dir.as_os_str().is_empty()) {
            return Err(ConfigError::EmptyData);
        }
        if self.is_member() && self.data.is_none() {
            return Err(ConfigError::PeerWithoutData);
        }
        if !self.is_member() && !self.join.is_empty() {
            return Err(ConfigError::JoinWithoutPeer);
        }
        if self.peer.is_some() && self.join != ["wait"] {
            let has_port = |address: &&String| {
                address
                    .rsplit_once(':')
                    .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
            };
            if let Some(bad) = self.join.iter().find(|address| !has_port(address)) {
                return Err(ConfigError::Join(bad.clone()));
            }
        }
        if self
            .tls
            .as_ref()
            .is_some_and(|tls| tls.require_client_certificate && tls.client_ca.is_none())
        {
            return Err(ConfigError::NoClientCa);
        }
        let listens: Vec<_> = [self.resp, self.enqueue, self.http, self.peer]
            .into_iter()
            .flatten()
            .filter(|address| address.port() != 0)
            .collect();
        let twice = |at: &usize| listens[..*at].contains(&listens[*at]);
        if let Some(at) = (0..listens.len()).find(twice) {
            return Err(ConfigError::Twice(listens[at]));
        }
        // The server's own ids have 36 characters.
        let settings = &self.settings;
        for (name, value, least) in [
            ("id_bytes", settings.id_bytes, 36),
            ("name_bytes", settings.name_bytes, 1),
            ("resources", settings.resources, 1),
            ("requests", settings.requests, 1),
        ] {
            if value < least {
                return Err(ConfigError::TooSmall(name, least as usize));
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

    /// Whether it is a member of a cluster, by whatever channel.
    pub(crate) fn is_member(&self) -> bool {
        self.peer.is_some() || self.peer_redis.is_some()
    }

    fn validate_redis(&self, redis: &RedisPeer) -> Result<(), ConfigError> {
        if !cfg!(feature = "redis") {
            return Err(ConfigError::NoRedis);
        }
        if redis.node().is_none() {
            let name = self.peer_address.clone().ok_or(ConfigError::RedisWithoutNode)?;
            redis.clone().with_node(name)?;
        }
        if self.join == ["wait"] {
            return Err(ConfigError::RedisCannotWait);
        }
        if redis.is_exposed() && !self.insecure {
            return Err(ConfigError::RedisExposed);
        }
        if self.peer_tls.is_some() {
            return Err(ConfigError::RedisWithPeerTls);
        }
        redis.certificates().map(drop)
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
        let files = TlsFiles {
            certificate: "cert".into(),
            key: "key".into(),
            client_ca: None,
            require_client_certificate: true,
        };
        let locked = Config { tls: Some(files), ..good.clone() };
        assert_eq!(locked.validate(), Err(ConfigError::NoClientCa));
        let alone = |word: &str| Config {
            peer: Some("127.0.0.1:5627".parse().unwrap()),
            data: Some("data".into()),
            join: vec![word.into()],
            ..good.clone()
        };
        for word in ["wait", "127.0.0.1:5627", "[::1]:5627", "a-host:5627"] {
            assert_eq!(alone(word).validate(), Ok(()), "{word}");
        }
        for word in ["127.0.0.1", "a-host", ":5627", "a-host:", "a-host:99999"] {
            assert_eq!(alone(word).validate(), Err(ConfigError::Join(word.into())));
        }
        let empty = Config { data: Some("".into()), ..good.clone() };
        assert_eq!(empty.validate(), Err(ConfigError::EmptyData));
        let same = Config { http: good.resp, ..good.clone() }.validate().unwrap_err();
        assert!(same.to_string().contains("is named for two listeners"), "{same}");
        let zero = "127.0.0.1:0".parse().ok();
        let free = Config { resp: zero, enqueue: zero, http: zero, ..good.clone() };
        assert_eq!(free.validate(), Ok(()));
        for (name, least) in
            [("id_bytes", 36), ("name_bytes", 1), ("resources", 1), ("requests", 1)]
        {
            let mut settings = Settings::default();
            settings.set(name, least - 1);
            let few = Config { settings, ..good.clone() }.validate();
            assert_eq!(few, Err(ConfigError::TooSmall(name, least as usize)));
        }
        let small = Config { frame_bytes: 10, ..good.clone() }.validate().unwrap_err();
        assert_eq!(small.to_string(), "frame_bytes must be at least 1024");
        let mut settings = Settings::default();
        settings.set("id_bytes", 1_000);
        let error = Config { settings, ..good }.validate().unwrap_err();
        assert_eq!(error.to_string(), "settings: id_bytes is at most 255");
    }
}
