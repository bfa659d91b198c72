//! How connections come: accepted, and inside of TLS after a handshake.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use keylatch_table::Text;
use mio::net::{TcpListener, TcpStream, UnixStream};
use mio::{Interest, Token};

use super::{FIRST_CONNECTION, Turns};
use crate::connection::{Connection, ConnectionId};
use crate::listener::{Speaks, http, resp};
use crate::transport::{Shaken, Transport};

/// Connections beyond the bound, for probes over HTTP.
const FOR_PROBES: usize = 8;

impl Turns {
    /// Takes everyone who waits at the door. False if some had to be left there: nobody says when
    /// they can be let in, so it has to be tried again.
    pub(crate) fn accept(&mut self, listener: &TcpListener, speaks: fn() -> Speaks) -> bool {
        loop {
            match listener.accept() {
                Ok((stream, address)) => self.welcome(stream, address, speaks()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of descriptors, most likely; others may be closed by and by.
                    tracing::warn!(%error, "a connection could not be accepted");
                    return false;
                }
            }
        }
    }

    fn welcome(&mut self, mut stream: TcpStream, address: SocketAddr, mut speaks: Speaks) {
        let certificates = match speaks {
            Speaks::Enqueue(_) => None,
            Speaks::Resp(_) | Speaks::Http(_) => self.certificates.as_ref(),
        };
        let beyond = self.connections.len().checked_sub(self.config.connections);
        if matches!(speaks, Speaks::Http(_)) && beyond.is_some_and(|beyond| beyond < FOR_PROBES) {
            speaks = Speaks::Http(http::Session::for_a_probe());
        } else if beyond.is_some() {
            if certificates.is_some() {
                // It could not be read before a handshake, which is what there is no room for.
                return;
            }
            drop(io::Write::write(&mut stream, &speaks.error("LIMIT", http::TOO_MANY)));
            return;
        }
        drop(stream.set_nodelay(true));
        let transport = match certificates {
            None => Transport::Plain(stream),
            Some(certificates) => match Transport::tls(stream, certificates.config()) {
                Ok(transport) => transport,
                Err(error) => return tracing::warn!(%error, "TLS could not begin"),
            },
        };
        self.take_in(transport, speaks, address.to_string().into(), address.ip());
    }

    /// Somebody of this process, for whom there is always room.
    pub(crate) fn welcome_inside(&mut self, stream: UnixStream) {
        let speaks = Speaks::Resp(resp::Session::default());
        let shown = format!("process {}", std::process::id()).into();
        self.take_in(Transport::Inside(stream), speaks, shown, Ipv4Addr::LOCALHOST.into());
    }

    fn take_in(&mut self, mut transport: Transport, speaks: Speaks, shown: Text, address: IpAddr) {
        let entry = self.connections.vacant_entry();
        let token = Token(entry.key() + FIRST_CONNECTION);
        let registered = self.registry.register(transport.source(), token, Interest::READABLE);
        if let Err(error) = registered {
            tracing::warn!(%error, "a connection could not be registered");
            return;
        }
        self.last += 1;
        let id = ConnectionId { at: entry.key(), number: self.last };
        entry.insert(Connection::new(id, transport, speaks, shown, address));
    }

    /// Goes on with the handshake of a connection. True if that took cryptography.
    pub(super) fn shake(&mut self, id: ConnectionId) -> bool {
        let connection = &mut self.connections[id.at];
        connection.queued = false;
        let (shaken, worked) = connection.transport.handshake();
        if connection.transport.has_unsent() {
            self.dirty.push(id.at);
        }
        match shaken {
            Shaken::Done => {
                let peer = connection.transport.peer();
                tracing::debug!(shown = %connection.shown, peer, "a handshake is done");
                self.receive(id.at);
            }
            Shaken::Waits => connection.readable = false,
            Shaken::More => self.again(id),
            Shaken::Failed => self.close(id.at),
        }
        worked
    }
}
