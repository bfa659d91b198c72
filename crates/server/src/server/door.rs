//! The way into a server from inside of its process: a pair of sockets that nobody else can reach, so there is
//! neither a port nor a question of who that is. The library's embedded member comes in here.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Stop;

/// Makes connections to a server of this process, which speak RESP. Clones lead to the same server.
#[derive(Clone, Debug)]
pub struct Door {
    comers: Comers,
    stop: Stop,
}

/// Those who have come and were not let in yet.
#[derive(Clone, Debug)]
pub(super) struct Comers(Arc<Mutex<Option<Vec<UnixStream>>>>);

impl Door {
    pub(super) fn new(comers: &Comers, stop: &Stop) -> Door {
        Door { comers: comers.clone(), stop: stop.clone() }
    }

    /// One end of a new connection. It is not blocking.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let mut comers = self.comers.0.lock();
        let Some(comers) = comers.as_mut() else {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the member has stopped"));
        };
        comers.push(ours);
        self.stop.wake();
        Ok(theirs)
    }
}

impl Comers {
    pub(super) fn new() -> Comers {
        Comers(Arc::new(Mutex::new(Some(Vec::new()))))
    }

    pub(super) fn take(&self) -> Vec<UnixStream> {
        self.0.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Nobody lets anybody in any more.
    pub(super) fn close(&self) {
        *self.0.lock() = None;
    }
}
