//! The sockets of all connections, and waiting for them or for a time.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

/// Everything that is read from.
pub(crate) struct Sockets {
    poll: Poll,
    events: Events,
}

/// `epoll` counts in milliseconds; what is nearer is waited for with `ppoll`.
const NEAR: Duration = Duration::from_millis(2);
/// Events of one look.
const EVENTS: usize = 1_024;

impl Sockets {
    pub(crate) fn new() -> io::Result<Sockets> {
        Ok(Sockets { poll: Poll::new()?, events: Events::with_capacity(EVENTS) })
    }

    /// One more, known by its number.
    pub(crate) fn connect(&self, to: SocketAddr, number: usize) -> io::Result<TcpStream> {
        let stream = std::net::TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        self.poll.registry().register(&mut stream, Token(number), Interest::READABLE)?;
        Ok(stream)
    }

    /// Until something can be read, or until then.
    pub(crate) fn wait(&mut self, until: Instant) -> Result<()> {
        let time = until.saturating_duration_since(Instant::now());
        if time >= NEAR {
            return self.look(time);
        }
        self.look(Duration::ZERO)?;
        if self.events.is_empty() && !time.is_zero() {
            let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
            let mut sockets = [PollFd::new(self.poll.registry(), PollFlags::IN)];
            match rustix::event::poll(&mut sockets, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.look(Duration::ZERO)?;
        }
        Ok(())
    }

    fn look(&mut self, time: Duration) -> Result<()> {
        match self.poll.poll(&mut self.events, Some(time)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// The numbers of those that can be read.
    pub(crate) fn take_ready(&self, ready: &mut Vec<usize>) {
        ready.extend(self.events.iter().map(|event| event.token().0));
    }
}
