//! The connection that everybody here shares. When it breaks, whoever needs it next makes it again;
//! behind Sentinels that may be another Redis.

use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::watch;

use super::super::store::StoreError;
use super::place::Place;
use crate::error::ConnectError;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// Whatever a replica that became the master has missed, or a Redis that was emptied has forgotten:
/// numbers go on from the time of day, which is ahead of all that were given out before.
const RAISE: &str = "
    local time = redis.call('TIME')
    local least = time[1] * 1e6 + time[2]
    if tonumber(redis.call('GET', 'keylatch:counter') or 0) < least then
        redis.call('SET', 'keylatch:counter', string.format('%d', least))
    end";

pub(super) struct Link {
    place: Place,
    now: Mutex<Option<Connected>>,
    /// One at a time makes it again.
    making: tokio::sync::Mutex<()>,
    /// The number of the connection; it is told when one has broken.
    broken: watch::Sender<u64>,
}

#[derive(Clone)]
struct Connected {
    number: u64,
    connection: MultiplexedConnection,
}

impl Link {
    pub(super) async fn connect(place: Place) -> Result<Link, ConnectError> {
        let connection = connect(&place).await?;
        let now = Mutex::new(Some(Connected { number: 0, connection }));
        Ok(Link { place, now, making: tokio::sync::Mutex::default(), broken: watch::channel(0).0 })
    }

    /// A connection and its number.
    pub(super) async fn connection(&self) -> Result<(u64, MultiplexedConnection), StoreError> {
        if let Some(Connected { number, connection }) = self.now.lock().clone() {
            return Ok((number, connection));
        }
        let _making = self.making.lock().await;
        // Somebody else may have made it meanwhile.
        if let Some(Connected { number, connection }) = self.now.lock().clone() {
            return Ok((number, connection));
        }
        let connection = connect(&self.place).await;
        // Nothing was sent.
        let connection =
            connection.map_err(|error| StoreError { text: error.to_string(), unknown: false })?;
        let number = *self.broken.borrow();
        *self.now.lock() = Some(Connected { number, connection: connection.clone() });
        Ok((number, connection))
    }

    /// This came over that connection; perhaps it is not to be used any more.
    pub(super) fn broke(&self, number: u64, error: &RedisError) {
        let not_the_master = matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        );
        if !not_the_master && !error.is_io_error() && !error.is_unrecoverable_error() {
            return;
        }
        let mut now = self.now.lock();
        if now.as_ref().is_some_and(|now| now.number == number) {
            *now = None;
            self.broken.send_replace(number + 1);
        }
    }

    pub(super) fn broken(&self) -> watch::Receiver<u64> {
        self.broken.subscribe()
    }

    pub(super) fn addresses(&self) -> String {
        self.place.addresses()
    }

    /// For another connection to the same Redis.
    pub(super) async fn client(&self) -> Result<Client, RedisError> {
        self.place.client().await
    }
}

async fn connect(place: &Place) -> Result<MultiplexedConnection, ConnectError> {
    let connecting = tokio::time::timeout(ANSWER * 2, async {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        let client = place.client().await.map_err(|error| refused(&place.addresses(), &error))?;
        // Behind Sentinels only they say which Redis it is.
        let at = client.get_connection_info().addr().to_string();
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(|error| refused(&at, &error))?;
        check(&at, &mut connection).await?;
        Ok(connection)
    });
    let slow = |_| format!("Redis at {}: it does not answer in time", place.addresses());
    connecting.await.map_err(slow).map_err(ConnectError::Unreachable)?
}

/// What went wrong while connecting with this address.
pub(super) fn refused(at: &str, error: &RedisError) -> ConnectError {
    let code = error.code().unwrap_or_default();
    match error.kind() {
        ErrorKind::AuthenticationFailed => ConnectError::Refused(format!(
            "Redis does not accept this user name and password: {error}"
        )),
        ErrorKind::MasterNameNotFoundBySentinel => {
            ConnectError::Refused(format!("the Sentinels know no service of this name: {error}"))
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => {
            ConnectError::Refused("this Redis is a replica, which cannot be written to".into())
        }
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            ConnectError::Refused(format!("this user of Redis may not do what locks need: {error}"))
        }
        ErrorKind::Extension if matches!(code, "NOAUTH" | "WRONGPASS") => {
            ConnectError::Refused(format!("Redis wants a user name and password: {error}"))
        }
        ErrorKind::Server(ServerErrorKind::ResponseError) | ErrorKind::InvalidClientConfig => {
            ConnectError::Refused(format!("Redis: {error}"))
        }
        _ => ConnectError::Unreachable(format!("Redis at {at}: {error}")),
    }
}

/// Whether locks are safe there.
async fn check(at: &str, connection: &mut MultiplexedConnection) -> Result<(), ConnectError> {
    let info: Result<String, RedisError> = redis::cmd("INFO").query_async(connection).await;
    let info = info.map_err(|error| refused(at, &error))?;
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("")
    };
    let version = field("redis_version");
    let major: u32 = version.split('.').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    if major < 7 {
        return Err(ConnectError::Refused(format!(
            "this Redis is of version {version}: locks need 7 or newer"
        )));
    }
    if field("cluster_enabled") == "1" {
        return Err(ConnectError::Refused(
            "this Redis is a cluster, whose keys cannot change together: use one Redis, or the lock \
             server"
                .into(),
        ));
    }
    let policy = field("maxmemory_policy");
    if field("maxmemory") != "0" && policy != "noeviction" {
        return Err(ConnectError::Refused(format!(
            "this Redis may evict locks when its memory is full (maxmemory-policy is {policy}): set it \
             to noeviction, or use another Redis"
        )));
    }
    let raised: Result<(), RedisError> =
        redis::cmd("EVAL").arg(RAISE).arg(0).query_async(connection).await;
    raised.map_err(|error| refused(at, &error))
}
