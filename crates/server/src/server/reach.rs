//! How a member reaches the others and is reached, as it is configured: one place for every kind of channel.

use std::sync::Arc;

use super::{Listeners, ServerError};
use crate::config::Config;
#[cfg(feature = "redis")]
use crate::config::ConfigError;
#[cfg(feature = "redis")]
use crate::log::channel::redis::Redis;
use crate::log::channel::tcp::{self, Tcp};
use crate::log::channel::tls::Tls;
use crate::log::channel::{Channel, Serves};

pub(super) struct Reach {
    pub(super) channel: Arc<dyn Channel>,
    pub(super) serves: Box<dyn Serves>,
    /// As what others know this node.
    pub(super) address: String,
}

impl Reach {
    /// `None` for a server that is alone.
    pub(super) fn open(
        listeners: &mut Listeners,
        config: &Config,
        tls: Option<Arc<Tls>>,
    ) -> Result<Option<Reach>, ServerError> {
        #[cfg(feature = "redis")]
        if let Some(peer) = &config.peer_redis {
            let named = peer.node().or(config.peer_address.as_deref());
            let address = named.ok_or(ConfigError::RedisWithoutNode)?.to_owned();
            let redis = Redis::new(peer, address.clone())?;
            let channel = Arc::new(redis.clone());
            return Ok(Some(Reach { channel, serves: Box::new(redis), address }));
        }
        let Some(listener) = listeners.peer.take() else { return Ok(None) };
        let bound = listener.local_addr()?.to_string();
        Ok(Some(Reach {
            channel: Arc::new(Tcp { tls: tls.clone() }),
            serves: Box::new(tcp::Listener { listener, tls }),
            address: config.peer_address.clone().unwrap_or(bound),
        }))
    }
}
