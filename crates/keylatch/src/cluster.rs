//! A member of a cluster inside of this process: no server to run, and the locks survive as long as most of the
//! programs do.
//!
//! A [`Node`] is a whole member: it has a log on disk, votes, may lead, and serves [`Locks`] through a pair of
//! sockets that nobody else can reach. Others of the cluster may be embedded too, or be `keylatch serve`.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use keylatch::cluster::Node;
//!
//! // In the first program, and then in every other one with the peer address of any member.
//! let node = Node::builder("data").listen("127.0.0.1:5627").start().await?;
//! let other = Node::builder("more").listen("127.0.0.1:5628").join(["127.0.0.1:5627"]).start().await?;
//!
//! let guard = other.locks().lock("user:42").await?;
//! guard.release().await;
//! node.stop().await?; // the other one leads from now on, if it did not before
//! # Ok(())
//! # }
//! ```

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use keylatch_server::{
    Config, ConfigError, LogSizes, RedisPeer, Server, ServerError, Stop, TlsFiles,
};
use tokio::sync::oneshot;

use keylatch_server::cluster::Visit;
pub use keylatch_server::cluster::{ClusterError, MemberStatus, Role, Status};

use crate::error::ConnectError;
use crate::locks::Locks;

/// Why a member could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Not an address.
    #[error("'{0}' is not HOST:PORT, such as 127.0.0.1:5627")]
    Address(String),
    /// Everybody could join.
    #[error(
        "{0} is reachable from other machines, and members would not know each other: give them certificates \
         (`tls`), listen on 127.0.0.1 or ::1, or say `insecure`"
    )]
    Open(SocketAddr),
    /// Nobody could find it.
    #[error(
        "{0} is every address of this machine, and others need one: say which one (`advertise`)"
    )]
    Unnamed(SocketAddr),
    /// The address is taken, most likely.
    #[error("cannot listen on {0}: {1}; does another member run there? Choose another port")]
    Listen(SocketAddr, std::io::Error),
    /// The data folder is in use, most likely; or it is another node's, or nobody is there to join.
    #[error(transparent)]
    Server(ServerError),
    /// It runs, and cannot be reached from here.
    #[error(transparent)]
    Connect(#[from] ConnectError),
}

/// Why a member has ended otherwise than it was told to.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// Its disk, most likely.
    #[error(transparent)]
    Failed(#[from] ServerError),
    /// A mistake of ours.
    #[error("the member's thread has panicked")]
    Panicked,
}

/// What a member is like.
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `start`"]
pub struct Builder {
    data: PathBuf,
    listen: String,
    join: Vec<String>,
    resp: Option<SocketAddr>,
    http: Option<SocketAddr>,
    config: Config,
}

impl Builder {
    /// Where other members come in. Port 0 picks a free one, so it is for tests: a member is found again where
    /// it was. Members that cannot reach each other meet at a Redis (feature `redis`), where each of them has a name,
    /// by which others [`join`](Builder::join) it: `redis://USER:PASSWORD@HOST/0?channel=NAME&node=NAME`.
    pub fn listen(mut self, address: impl Into<String>) -> Builder {
        self.listen = address.into();
        self
    }

    /// As what other members know that address, if not as it is.
    pub fn advertise(mut self, address: impl Into<String>) -> Builder {
        self.config.peer_address = Some(address.into());
        self
    }

    /// Peer addresses of members of the cluster to join; one that answers is enough. Without any, a new data
    /// folder is the first member of a new cluster. A node that is a member already ignores them, unless
    /// they are of another cluster.
    pub fn join<A: Into<String>>(mut self, addresses: impl IntoIterator<Item = A>) -> Builder {
        self.join = addresses.into_iter().map(Into::into).collect();
        self
    }

    /// Members speak inside of TLS and show each other certificates of this authority. PEM files: certificate,
    /// its key, the authority.
    pub fn tls(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        authority: impl Into<PathBuf>,
    ) -> Builder {
        self.config.peer_tls = Some(TlsFiles {
            certificate: certificate.into(),
            key: key.into(),
            client_ca: Some(authority.into()),
            require_client_certificate: true,
        });
        self
    }

    /// Listen where other machines can come, without TLS: whoever can reach the port can join.
    pub fn insecure(mut self) -> Builder {
        self.config.insecure = true;
        self
    }

    /// Serves RESP too, for other programs; on loopback, unless it is `insecure`.
    pub fn resp(mut self, address: SocketAddr) -> Builder {
        self.resp = Some(address);
        self
    }

    /// Serves HTTP too (`/metrics`, `/readyz`, the API); on loopback, unless it is `insecure`.
    pub fn http(mut self, address: SocketAddr) -> Builder {
        self.http = Some(address);
        self
    }

    /// How long a request waits for a leader, unless it says that it waits longer. 3 s if nothing is said.
    pub fn leader_wait(mut self, time: Duration) -> Builder {
        self.config.leader_wait = time;
        self
    }

    /// Files of the log are made in this size ahead of time, two of them. 64 MiB if nothing is said.
    pub fn segment_bytes(mut self, bytes: u64) -> Builder {
        self.config.log.segment_bytes = bytes;
        self.config.log.reserve_bytes = LogSizes::default().reserve_bytes.min(bytes);
        self
    }

    /// Starts it. It serves when this returns, and it may still be without a leader, or on its way into the
    /// cluster: what is asked of it then waits for that.
    ///
    /// To be called inside of a tokio runtime, which then also renews what is held. The member itself has two
    /// threads of its own. If this is dropped, the member stops as soon as it has started.
    pub async fn start(self) -> Result<Node, StartError> {
        let (opened, open) = oneshot::channel();
        let thread = std::thread::Builder::new().name("keylatch".into());
        let thread = thread.spawn(move || {
            let (listen, tls) = (self.listen.clone(), self.config.peer_tls.clone());
            let advertised = self.config.peer_address.clone();
            let server = match self.bind() {
                Err(error) => {
                    drop(opened.send(Err(error)));
                    return Ok(());
                }
                Ok(server) => server,
            };
            let (stop, door) = (server.stopper(), server.door());
            // At a Redis it is visited by way of that too.
            let bound = server.addresses().peer.map(|bound| bound.to_string());
            let peer = bound.map_or(listen, |bound| advertised.unwrap_or(bound));
            let visit = Visit { peer, tls };
            if opened.send(Ok((stop.clone(), door, visit))).is_err() {
                // Nobody waits for it any more.
                stop.stop();
            }
            server.run().inspect_err(|error| {
                tracing::error!(%error, "the member of a cluster in this process has ended");
            })
        });
        let thread = thread.map_err(|error| StartError::Server(error.into()))?;
        let opened = open.await.expect("its thread tells what becomes of it");
        let (stop, door, visit) = opened?;
        let name =
            RedisPeer::parse(&visit.peer).ok().and_then(|redis| redis.node().map(Into::into));
        let address = name.unwrap_or_else(|| visit.peer.clone());
        let mut node = Node { stop, visit, address, locks: None, thread: Some(thread) };
        node.locks = Some(Locks::inside(door).await?);
        Ok(node)
    }

    /// Takes its time: it reads the log, and looks for the cluster to join.
    fn bind(self) -> Result<Server, StartError> {
        let Builder { data, listen, join, resp, http, config } = self;
        let (mut peer, mut peer_redis) = (None, None);
        if RedisPeer::is_meant(&listen) {
            peer_redis = Some(at_redis(&listen).map_err(|error| StartError::Server(error.into()))?);
        } else {
            let resolved = listen.to_socket_addrs().ok().and_then(|mut all| all.next());
            let address = resolved.ok_or(StartError::Address(listen))?;
            if address.ip().is_unspecified() && config.peer_address.is_none() {
                return Err(StartError::Unnamed(address));
            }
            peer = Some(address);
        }
        let config = Config {
            data: Some(data),
            peer,
            peer_redis,
            join,
            resp,
            http,
            enqueue: None,
            in_process: true,
            ..config
        };
        Server::bind(config).map_err(|error| match error {
            ServerError::Config(ConfigError::PeerNotLoopback(address)) => StartError::Open(address),
            ServerError::Listen(address, error) => StartError::Listen(address, error),
            error => StartError::Server(error),
        })
    }
}

fn at_redis(url: &str) -> Result<RedisPeer, ConfigError> {
    let redis = RedisPeer::parse(url)?;
    redis.node().is_some().then_some(redis).ok_or(ConfigError::RedisWithoutNode)
}

/// A member of a cluster in this process.
///
/// If it is dropped it stops as if it was told to, and nobody waits for that; [`Node::stop`] does.
pub struct Node {
    stop: Stop,
    /// How it is asked about the cluster: as everyone asks.
    visit: Visit,
    /// As what other members know it.
    address: String,
    /// There from when it has started.
    locks: Option<Locks>,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
}

impl Node {
    /// A member whose log is in this folder, which is made if it is not there. Only one member at a time uses
    /// it, and one that lost it comes back as a new one.
    pub fn builder(data: impl Into<PathBuf>) -> Builder {
        Builder {
            data: data.into(),
            listen: "127.0.0.1:5627".into(),
            join: Vec::new(),
            resp: None,
            http: None,
            config: Config::default(),
        }
    }

    /// The locks of the cluster, over this member. Clones share everything; a program needs one. They end with
    /// the node: what is asked later fails with `Unreachable` or `Unknown`.
    pub fn locks(&self) -> Locks {
        self.locks.clone().expect("it has started")
    }

    /// Where other members find this one, at a Redis its name: what they give to [`Builder::join`].
    pub fn peer_address(&self) -> &str {
        &self.address
    }

    /// How the cluster looks from here: who is in it, and who leads.
    pub async fn status(&self) -> Result<Status, ClusterError> {
        let visit = self.visit.clone();
        let asked = tokio::task::spawn_blocking(move || visit.status()).await;
        asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Stops it: another member leads, if this one did; what was asked is answered; and what waits here can come
    /// back by another member within ten seconds. Locks that are held stay held until their leases end, unless
    /// they were released before.
    pub async fn stop(mut self) -> Result<(), StopError> {
        self.stop.stop();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        match joined {
            Ok(Ok(ended)) => Ok(ended?),
            _ => Err(StopError::Panicked),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.stop();
    }
}
