//! What a URL says:
//!
//! - `redis://[user:password@]host[:port][/db]`, with `rediss:` over TLS, `redis+unix:///path`;
//! - `redis+sentinel://[user:password@]host[:port],host[:port].../service[/db]`, with
//!   `rediss+sentinel:` over TLS: the Redis that these Sentinels name.
//!
//! With TLS, `?ca=FILE` is whom to trust instead of those whom the machine trusts, `cert=FILE` and `key=FILE` who we
//! are. For Sentinels with a password of their own, `sentinel_user=` and `sentinel_password=`.

use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    Client, ClientTlsConfig, ConnectionInfo, IntoConnectionInfo, RedisError, TlsCertificates,
    TlsMode,
};
use tokio::sync::Mutex;

use crate::error::ConnectError;

/// Where Redis is.
pub(super) enum Place {
    One(Client),
    Sentinels {
        client: Mutex<SentinelClient>,
        db: i64,
        /// Their addresses, for whoever reads that nobody answers there.
        at: String,
    },
}

/// Where Sentinels listen if nothing else is said.
const SENTINEL_PORT: u16 = 26_379;

/// What we understand of what stands behind the `?`, and the rest.
#[derive(Default)]
struct Options<'a> {
    ca: Option<&'a str>,
    cert: Option<&'a str>,
    key: Option<&'a str>,
    sentinel_user: Option<&'a str>,
    sentinel_password: Option<&'a str>,
    others: Vec<&'a str>,
}

fn wrong(error: impl std::fmt::Display) -> ConnectError {
    ConnectError::Url(format!("not a URL of a Redis: {error}"))
}

impl Place {
    pub(super) fn parse(url: &str) -> Result<Place, ConnectError> {
        let (url, options) = Options::split(url);
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("'//' is missing"))?;
        let secure = scheme.starts_with("rediss");
        if secure {
            choose_cryptography();
        }
        let certificates = options.certificates(secure)?;
        if scheme.ends_with("+sentinel") {
            return sentinels(rest, secure, certificates, &options);
        }
        let url = match options.others.is_empty() {
            true => url.to_string(),
            false => format!("{url}?{}", options.others.join("&")),
        };
        let info = settled(url.into_connection_info().map_err(wrong)?);
        let client = match certificates {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        };
        Ok(Place::One(client.map_err(wrong)?))
    }

    pub(super) fn db(&self) -> i64 {
        match self {
            Place::One(client) => client.get_connection_info().redis_settings().db(),
            Place::Sentinels { db, .. } => *db,
        }
    }

    /// Of the Redis, or of its Sentinels.
    pub(super) fn addresses(&self) -> String {
        match self {
            Place::One(client) => client.get_connection_info().addr().to_string(),
            Place::Sentinels { at, .. } => at.clone(),
        }
    }

    /// How to reach it as things are now.
    pub(super) async fn client(&self) -> Result<Client, RedisError> {
        match self {
            Place::One(client) => Ok(client.clone()),
            Place::Sentinels { client, .. } => client.lock().await.async_get_client().await,
        }
    }
}

/// Every request is a small message that somebody waits for.
fn settled(info: ConnectionInfo) -> ConnectionInfo {
    info.set_tcp_settings(TcpSettings::default().set_nodelay(true))
}

/// Where a program has several to choose from, and has not chosen, there would be none.
fn choose_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may choose at this moment, and that is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

fn sentinels(
    rest: &str,
    secure: bool,
    certificates: Option<TlsCertificates>,
    options: &Options<'_>,
) -> Result<Place, ConnectError> {
    let (nodes, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = nodes.rsplit_once('@').map_or(("", nodes), |(user, hosts)| (user, hosts));
    let (service, db) = path.split_once('/').unwrap_or((path, "0"));
    if service.is_empty() {
        return Err(wrong(
            "the name of the service is missing: redis+sentinel://HOST:PORT/SERVICE",
        ));
    }
    let scheme = if secure { "rediss" } else { "redis" };
    let mut addresses = Vec::new();
    for host in hosts.split(',') {
        let port = if has_port(host) { String::new() } else { format!(":{SENTINEL_PORT}") };
        let node = format!("{scheme}://{host}{port}").into_connection_info().map_err(wrong)?;
        addresses.push(node.addr().clone());
    }
    let nodes = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    // The other library decodes names and passwords.
    let at = if user.is_empty() { "" } else { "@" };
    let redis =
        format!("redis://{user}{at}localhost/{db}").into_connection_info().map_err(wrong)?;
    let redis = redis.redis_settings();
    let master = SentinelServerType::Master;
    let mut builder = SentinelClientBuilder::new(addresses, service, master).map_err(wrong)?;
    builder = builder.set_client_to_redis_db(redis.db());
    if let Some(user) = redis.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = redis.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if let Some(user) = options.sentinel_user {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = options.sentinel_password {
        builder = builder.set_client_to_sentinel_password(password);
    }
    if secure {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    if let Some(certificates) = certificates {
        builder = builder.set_client_to_redis_certificates(certificates.clone());
        builder = builder.set_client_to_sentinel_certificates(certificates);
    }
    let settings = TcpSettings::default().set_nodelay(true);
    let client = builder.set_client_to_redis_tcp_settings(settings).build().map_err(wrong)?;
    Ok(Place::Sentinels { client: Mutex::new(client), db: redis.db(), at: nodes })
}

/// An IPv6 address stands in brackets.
fn has_port(host: &str) -> bool {
    host.rsplit_once(']').map_or(host, |(_, behind)| behind).contains(':')
}

impl<'a> Options<'a> {
    fn split(url: &'a str) -> (&'a str, Options<'a>) {
        let (url, query) = url.split_once('?').unwrap_or((url, ""));
        let mut options = Options::default();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("ca", file)) => options.ca = Some(file),
                Some(("cert", file)) => options.cert = Some(file),
                Some(("key", file)) => options.key = Some(file),
                Some(("sentinel_user", user)) => options.sentinel_user = Some(user),
                Some(("sentinel_password", password)) => options.sentinel_password = Some(password),
                _ => options.others.push(option),
            }
        }
        (url, options)
    }

    fn certificates(&self, secure: bool) -> Result<Option<TlsCertificates>, ConnectError> {
        let read = |file: &str| {
            std::fs::read(file).map_err(|error| ConnectError::Refused(format!("{file}: {error}")))
        };
        let client_tls = match (self.cert, self.key) {
            (Some(cert), Some(key)) => {
                Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? })
            }
            (None, None) => None,
            _ => return Err(wrong("'cert' and 'key' belong together")),
        };
        let root_cert = self.ca.map(read).transpose()?;
        if client_tls.is_none() && root_cert.is_none() {
            return Ok(None);
        }
        match secure {
            true => Ok(Some(TlsCertificates { client_tls, root_cert })),
            false => Err(wrong("'ca', 'cert' and 'key' need rediss:")),
        }
    }
}
