//! What carries a connection's bytes: the socket itself (or a pair of them, for whoever is in this process), or TLS on it. `Connection` reads and writes
//! through it, and does not know which it is but for the handshake.
//!
//! The socket says only once that something is there (edge-triggered readiness). So whatever may
//! still be in it, or decrypted in here, is reported with what was read (`more`), and whoever reads
//! comes again until nothing is left. What TLS has to send of its own (its part of a handshake,
//! alerts) is sent like answers are: as long as there is any, there is something unsent.
//!
//! | state of TLS | what is done | becomes |
//! |---|---|---|
//! | handshake | `handshake`, a bounded step each time | open; failed |
//! | open | `read`, `write` | ended by the other side; broken |
//! | ended | `read` says so, each time; `write` still goes | |
//! | broken | an alert is sent; `read` says it is over, each time | |

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::{ServerConfig, ServerConnection};

use crate::certificates::subject;

pub(crate) enum Transport {
    Plain(TcpStream),
    /// From inside of this process.
    Inside(UnixStream),
    Tls(Box<Tls>),
}

/// What came of reading.
pub(crate) enum Incoming {
    /// So many bytes, and whether there may be more.
    Bytes(usize, bool),
    /// Nothing at the moment.
    Nothing,
    /// Nothing yet of what was read; there may be more.
    Again,
    /// It is over.
    End,
}

/// What came of one step of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shaken {
    /// It is finished; requests may be there already.
    Done,
    /// It is the other side's turn.
    Waits,
    /// There may be more to read.
    More,
    /// It came to nothing. What is to be said about it has been said.
    Failed,
}

pub(crate) struct Tls {
    stream: TcpStream,
    session: ServerConnection,
    /// We have answered in the handshake: what comes now is work for us, whatever becomes of it.
    answered: bool,
    /// Something was sent that is no TLS; what was understood before may still have to be taken.
    broken: bool,
    /// Who the other side is, if it has shown a certificate.
    peer: Option<String>,
}

/// Looks into the socket in one go: TLS takes 4 KiB each time, and records that carry nothing must
/// not keep anyone here.
const LOOKS: usize = 24;
/// Bytes that are thrown away after a failed handshake, so that closing does not tear up the alert.
const DISCARD: usize = 64 * 1024;

impl Transport {
    /// TLS on this socket; the handshake is still to come.
    pub(crate) fn tls(stream: TcpStream, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let session = ServerConnection::new(config)?;
        let tls = Tls { stream, session, answered: false, broken: false, peer: None };
        Ok(Transport::Tls(Box::new(tls)))
    }

    pub(crate) fn source(&mut self) -> &mut dyn Source {
        match self {
            Transport::Plain(stream) => stream,
            Transport::Inside(stream) => stream,
            Transport::Tls(tls) => &mut tls.stream,
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match self {
            Transport::Plain(_) | Transport::Inside(_) => false,
            Transport::Tls(tls) => tls.session.is_handshaking(),
        }
    }

    /// One step of the handshake, and whether it took cryptography.
    pub(crate) fn handshake(&mut self) -> (Shaken, bool) {
        match self {
            Transport::Plain(_) | Transport::Inside(_) => (Shaken::Done, false),
            Transport::Tls(tls) => tls.handshake(),
        }
    }

    /// Who the other side is, by its certificate.
    pub(crate) fn peer(&self) -> Option<&str> {
        match self {
            Transport::Plain(_) | Transport::Inside(_) => None,
            Transport::Tls(tls) => tls.peer.as_deref(),
        }
    }

    pub(crate) fn read(&mut self, room: &mut [u8]) -> Incoming {
        match self {
            Transport::Plain(stream) => read_plain(stream, room),
            Transport::Inside(stream) => read_plain(stream, room),
            Transport::Tls(tls) => tls.read(room),
        }
    }

    /// Takes some of these bytes, which then need not be offered again.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => write_plain(stream, bytes),
            Transport::Inside(stream) => write_plain(stream, bytes),
            Transport::Tls(tls) => tls.write(bytes),
        }
    }

    /// Whether some of what was taken, or of the handshake, has not gone yet.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Transport::Plain(_) | Transport::Inside(_) => false,
            Transport::Tls(tls) => tls.session.wants_write(),
        }
    }

    /// Sends of that what the socket has room for.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(_) | Transport::Inside(_) => Ok(()),
            Transport::Tls(tls) => tls.flush(),
        }
    }

    /// The last thing that is said here: that nothing was cut off. If there is no room for that, the
    /// other side did not listen anyway.
    pub(crate) fn say_goodbye(&mut self) {
        if let Transport::Tls(tls) = self {
            tls.session.send_close_notify();
            drop(tls.flush());
        }
    }
}

/// Not by way of the C library, which makes each call a point where a thread can be cancelled.
fn read_plain(socket: impl AsFd, room: &mut [u8]) -> Incoming {
    loop {
        return match rustix::net::recv(&socket, &mut *room, RecvFlags::empty()) {
            Ok((0, _)) => Incoming::End,
            Ok((count, _)) => Incoming::Bytes(count, count == room.len()),
            Err(Errno::AGAIN) => Incoming::Nothing,
            Err(Errno::INTR) => continue,
            Err(_) => Incoming::End,
        };
    }
}

/// Likewise.
fn write_plain(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

impl Tls {
    fn handshake(&mut self) -> (Shaken, bool) {
        let mut worked = false;
        for _ in 0..LOOKS {
            match self.session.read_tls(&mut self.stream) {
                Ok(0) => return (Shaken::Failed, worked),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return (Shaken::Waits, worked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return (Shaken::Failed, worked),
            }
            worked |= self.answered;
            if let Err(error) = self.session.process_new_packets() {
                tracing::debug!(%error, "a handshake failed");
                self.fail();
                return (Shaken::Failed, worked);
            }
            self.answered |= self.session.wants_write();
            worked |= self.answered;
            if !self.session.is_handshaking() {
                let shown = self.session.peer_certificates().and_then(<[_]>::first);
                self.peer = shown.and_then(subject::name);
                return (Shaken::Done, worked);
            }
        }
        (Shaken::More, worked)
    }

    /// Sends the alert. If bytes were left unread, closing would be a reset, and that may overtake it.
    fn fail(&mut self) {
        drop(self.flush());
        drop(self.stream.shutdown(std::net::Shutdown::Write));
        let mut room = [0; 4 * 1024];
        for _ in 0..DISCARD / room.len() {
            if !matches!(self.stream.read(&mut room), Ok(1..)) {
                return;
            }
        }
    }

    fn read(&mut self, room: &mut [u8]) -> Incoming {
        let mut filled = 0;
        let all = |filled, more| match filled {
            0 if more => Incoming::Again,
            0 => Incoming::Nothing,
            _ => Incoming::Bytes(filled, more),
        };
        for _ in 0..LOOKS {
            // What is decrypted already comes first: there is room for little of it in there.
            match self.session.reader().read(&mut room[filled..]) {
                Ok(count @ 1..) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.broken => {}
                // Told again when it is read again. An end that TLS does not announce is an end too:
                // a request says itself whether it is complete.
                Ok(_) | Err(_) if filled == 0 => return Incoming::End,
                Ok(_) | Err(_) => return all(filled, true),
            }
            if filled == room.len() {
                return all(filled, true);
            }
            match self.session.read_tls(&mut self.stream) {
                Ok(0) => {}
                Ok(_) => {
                    if let Err(error) = self.session.process_new_packets() {
                        tracing::debug!(%error, "a connection broke");
                        self.broken = true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return all(filled, false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.broken = true,
            }
        }
        all(filled, true)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // There is room in there for 64 KiB; once that is full it takes nothing until some has gone.
        for _ in 0..2 {
            let count = self.session.writer().write(bytes)?;
            self.flush()?;
            if count > 0 {
                return Ok(count);
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
