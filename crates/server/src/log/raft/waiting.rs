//! A node that knows no cluster yet, and waits at its peer address until an operator adds it to one
//! (`keylatch cluster add`). It begins as one that was told whom to join.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::NodeError;
use super::identity::Identity;
use super::message::{self, Led, Request, reply_to_bytes};
use crate::log::channel::tcp;
use crate::log::channel::tls::Tls;
use crate::log::channel::{Answers, Hello, Refusal, Welcome};

/// What stands in place of addresses to join.
const WAIT: &str = "wait";
/// Whom it was told to join, a line each: it may have to ask them again after a restart.
const JOINING: &str = "joining";
/// How long the answer to whoever has added it may take to be written.
const LINGER: Duration = Duration::from_millis(200);

/// Whom to join. If that is not known yet, waits at the peer address until it is.
pub(crate) fn whom_to_join(
    join: &[String],
    dir: &Path,
    listener: &TcpListener,
    tls: Option<&Arc<Tls>>,
) -> Result<Vec<String>, NodeError> {
    if join != [WAIT] {
        return Ok(join.to_vec());
    }
    if Identity::read(dir)?.is_some() {
        return match std::fs::read_to_string(dir.join(JOINING)) {
            Ok(text) => Ok(text.lines().map(Into::into).collect()),
            // A member that has never waited.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        };
    }
    if dir.join("log").exists() {
        return Err(NodeError::OwnData(dir.into()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Added { identity, join } = runtime.block_on(until_added(listener, tls.cloned()))?;
    let mut file = File::create(dir.join(JOINING))?;
    file.write_all(join.join("\n").as_bytes())?;
    file.sync_all()?;
    identity.begin(dir)?;
    Ok(join)
}

/// What it was told.
struct Added {
    identity: Identity,
    join: Vec<String>,
}

/// The listener is the node's own, which serves members afterwards.
async fn until_added(listener: &TcpListener, tls: Option<Arc<Tls>>) -> Result<Added, NodeError> {
    let listener = listener.try_clone()?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (added, wait) = oneshot::channel();
    let service = Waiting { added: Mutex::new(Some(added)) };
    let serving = tokio::spawn(tcp::accept(listener, tls, Arc::new(service)));
    tracing::info!("this node waits to be added to a cluster: keylatch cluster add");
    let added = wait.await;
    // Whoever has added it is still to be told so.
    tokio::time::sleep(LINGER).await;
    serving.abort();
    added.map_err(|_| NodeError::Failed("nobody can add it any more".into()))
}

struct Waiting {
    added: Mutex<Option<oneshot::Sender<Added>>>,
}

impl Waiting {
    fn add(&self, cluster: u128, join: Vec<String>) -> Led {
        let identity = Identity::new(cluster);
        let sent = self.added.lock().take().map(|added| added.send(Added { identity, join }));
        match sent {
            Some(Ok(())) => Led::Index(identity.node),
            _ => Led::Refused("it has been added already".into()),
        }
    }
}

impl Answers for Waiting {
    fn welcome(&self, hello: &Hello) -> Result<Welcome, Refusal> {
        match hello {
            Hello { cluster: 0, .. } => Ok(Welcome { cluster: 0, node: 0 }),
            _ => Err(Refusal::OtherCluster),
        }
    }

    fn answer(self: Arc<Self>, _: u64, request: Vec<u8>) -> BoxFuture<'static, Vec<u8>> {
        let reply = match Request::from_bytes(&request) {
            Ok(Request::Add(cluster, join)) => Ok(self.add(cluster, join)),
            Ok(_) => Err("it waits to be added to a cluster: keylatch cluster add".into()),
            Err(error) => Err(error.to_string()),
        };
        Box::pin(async move { reply_to_bytes(reply, message::write_led) })
    }
}
