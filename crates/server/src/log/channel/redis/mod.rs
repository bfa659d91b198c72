//! Links over the publish and subscribe of a Redis, for members that cannot reach each other directly. A node's
//! address is a name; whoever is subscribed to `CHANNEL:NAME` is called there.
//!
//! - `frame`: what is published.
//! - `talk`: one session: messages in pieces, in order, each once.
//! - `hub`: the connection to Redis, and which session what is heard belongs to.
//!
//! Redis keeps nothing of it and promises nothing, so nothing is promised here: who does not hear an answer asks
//! again, as over any other channel. While Redis is away the members do not hear each other and nobody leads. Who
//! may publish there may join, so its user and password are what certificates are elsewhere.

mod frame;
mod hub;
mod talk;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{Client, ClientTlsConfig, IntoConnectionInfo, TlsCertificates};

use self::frame::Kind;
use self::hub::Hub;
use self::talk::Talk;
use super::hello::{self, WELCOME_BYTES};
use super::{Answers, Channel, ChannelError, Connecting, Hello, Link, Serves};
use crate::config::{ConfigError, RedisCertificates, RedisPeer};

/// How long a hello may take.
const HELLO: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(crate) struct Redis(Arc<Hub>);

struct RedisLink {
    talk: Talk,
    number: u64,
}

impl Redis {
    /// Nothing is connected before it is needed.
    pub(crate) fn new(peer: &RedisPeer, own: String) -> Result<Redis, ConfigError> {
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Somebody else may choose at this moment, and that is as good.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let wrong = |error: redis::RedisError| ConfigError::RedisUrl(error.to_string());
        let info = peer.url().into_connection_info().map_err(wrong)?;
        let nodelay = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let info = info.set_tcp_settings(nodelay);
        let client = match peer.certificates()? {
            None => Client::open(info),
            Some(RedisCertificates { ca, own }) => {
                let own = own
                    .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
                Client::build_with_tls(info, TlsCertificates { client_tls: own, root_cert: ca })
            }
        };
        let client = client.map_err(wrong)?;
        Ok(Redis(Arc::new(Hub::new(client, peer.channel().into(), own))))
    }
}

impl Channel for Redis {
    fn connect<'a>(&'a self, address: &'a str, hello: Hello) -> Connecting<'a> {
        Box::pin(async move {
            let connecting = async {
                let talk = self.0.open(address).await?;
                let mut link = RedisLink { talk, number: 0 };
                link.talk.send(Kind::Hello, 0, &hello.to_bytes()).await?;
                let answer = link.talk.receive(Kind::Welcome, 0).await?;
                let answer: [u8; WELCOME_BYTES] =
                    answer.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                let welcome = hello::answer_from_bytes(&answer)?;
                let link: Box<dyn Link> = Box::new(link);
                Ok((link, welcome))
            };
            let late = |_| ChannelError::Io(self.0.shared.late());
            tokio::time::timeout(HELLO, connecting).await.map_err(late)?
        })
    }
}

impl Link for RedisLink {
    fn call<'a>(&'a mut self, request: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, ChannelError>> {
        Box::pin(async move {
            self.number += 1;
            self.talk.send(Kind::Request, self.number, request).await?;
            Ok(self.talk.receive(Kind::Reply, self.number).await?)
        })
    }
}

impl Drop for RedisLink {
    fn drop(&mut self) {
        self.talk.shared.hang_up(self.talk.session);
    }
}

impl Serves for Redis {
    fn serve(self: Box<Self>, answers: Arc<dyn Answers>) -> io::Result<BoxFuture<'static, ()>> {
        self.0.answer_by(Some(answers));
        self.0.begin();
        let place = Place(*self);
        Ok(Box::pin(async move {
            let _place = place;
            std::future::pending::<()>().await;
        }))
    }
}

/// Dropped, nobody is answered any more.
struct Place(Redis);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.answer_by(None);
    }
}
