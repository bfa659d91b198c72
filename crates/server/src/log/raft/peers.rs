//! The other members: where they are, and lines to them that are made again when they break.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::identity::Identity;
use crate::log::channel::{Channel, ChannelError, Hello, Link};

pub(crate) struct Peers {
    pub(crate) identity: Identity,
    pub(crate) channel: Arc<dyn Channel>,
    /// As the log says, and before that as whoever needs one was told.
    addresses: Mutex<BTreeMap<u64, String>>,
}

impl Peers {
    pub(crate) fn new(identity: Identity, channel: Arc<dyn Channel>) -> Peers {
        Peers { identity, channel, addresses: Mutex::default() }
    }

    /// A node is found there now.
    pub(crate) fn learn(&self, node: u64, address: &str) {
        let mut addresses = self.addresses.lock();
        if addresses.get(&node).is_none_or(|known| known != address) {
            addresses.insert(node, address.into());
        }
    }

    pub(crate) fn line(self: &Arc<Self>, node: u64) -> Line {
        Line { peers: Arc::clone(self), node, link: None }
    }
}

/// A line to one member. Cancel safe: what is dropped half-way is not used again.
pub(crate) struct Line {
    peers: Arc<Peers>,
    node: u64,
    link: Option<Box<dyn Link>>,
}

impl Line {
    pub(crate) fn node(&self) -> u64 {
        self.node
    }

    pub(crate) async fn call(
        &mut self,
        request: &[u8],
        within: Duration,
    ) -> Result<Vec<u8>, ChannelError> {
        let calling = async {
            let mut link = match self.link.take() {
                Some(link) => link,
                None => self.connect().await?,
            };
            let reply = link.call(request).await?;
            self.link = Some(link);
            Ok(reply)
        };
        let timed_out = |_| ChannelError::Io(io::ErrorKind::TimedOut.into());
        tokio::time::timeout(within, calling).await.map_err(timed_out)?
    }

    async fn connect(&self) -> Result<Box<dyn Link>, ChannelError> {
        let address = self.peers.addresses.lock().get(&self.node).cloned();
        let address = address.ok_or_else(|| io::Error::other("its address is not known"))?;
        let Identity { cluster, node, .. } = self.peers.identity;
        let hello = Hello { cluster, from: node, to: self.node };
        let (link, _) = self.peers.channel.connect(&address, hello).await?;
        Ok(link)
    }
}
