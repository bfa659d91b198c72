//! The network between members: each is known to the others by an address of ours, and what comes there is passed
//! on. A link can be cut or slow in either direction. What is cut is held back and comes late, as with a network
//! that loses packets and is repaired; with `reset` the connections are gone, as with one whose other end is.
//!
//! Who calls is read from the hello of the peer protocol, whose layout never changes up to its version.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Magic, version, cluster, from, to.
const HELLO_BYTES: usize = 40;
const FROM_AT: usize = 24;
/// How long a caller is unknown at most: a member that has just been started.
const KNOWN_WITHIN: Duration = Duration::from_millis(500);

/// All of them. Members are known by their place.
#[derive(Default)]
pub struct Wires {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Where a member really is, by place.
    behind: BTreeMap<usize, SocketAddr>,
    /// The place of a node.
    places: BTreeMap<u64, usize>,
    /// What one says to another is held back.
    cut: BTreeSet<(usize, usize)>,
    /// What one says to another takes so long.
    slow: BTreeMap<(usize, usize), Duration>,
    open: Vec<Open>,
}

struct Open {
    ends: (usize, usize),
    streams: [TcpStream; 2],
}

impl Wires {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An address for the member at this place.
    pub fn add(self: &Arc<Self>, place: usize) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let wires = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let wires = Arc::clone(&wires);
                std::thread::spawn(move || drop(wires.carry(stream, place)));
            }
        });
        Ok(address)
    }

    /// The member at this place runs there now.
    pub fn leads_to(&self, place: usize, address: SocketAddr) {
        self.state().behind.insert(place, address);
    }

    /// The member at this place is this node.
    pub fn knows(&self, place: usize, node: u64) {
        self.state().places.insert(node, place);
        self.changed.notify_all();
    }

    /// What these say to those is held back.
    pub fn cut(&self, links: impl IntoIterator<Item = (usize, usize)>, reset: bool) {
        let mut state = self.state();
        let links: BTreeSet<(usize, usize)> = links.into_iter().collect();
        state.cut.extend(&links);
        if reset {
            state.open.retain(|open| {
                let (from, to) = open.ends;
                let hit = links.contains(&(from, to)) || links.contains(&(to, from));
                if hit {
                    for stream in &open.streams {
                        drop(stream.shutdown(Shutdown::Both));
                    }
                }
                !hit
            });
        }
    }

    /// What these say to those takes so long.
    pub fn slow(&self, links: impl IntoIterator<Item = (usize, usize)>, by: Duration) {
        let mut state = self.state();
        state.slow.extend(links.into_iter().map(|link| (link, by)));
    }

    /// All of it is as it should be.
    pub fn heal(&self) {
        let mut state = self.state();
        state.cut.clear();
        state.slow.clear();
        self.changed.notify_all();
    }

    /// One connection, until either end closes it.
    fn carry(&self, mut caller: TcpStream, place: usize) -> io::Result<()> {
        caller.set_nodelay(true)?;
        let mut hello = [0; HELLO_BYTES];
        caller.read_exact(&mut hello)?;
        let from = u64::from_le_bytes(hello[FROM_AT..FROM_AT + 8].try_into().expect("eight"));
        // Visitors (operators, and who wants to join) say that they are nobody: they always come through.
        let from = if from == 0 { None } else { self.place_of(from) };
        if let Some(from) = from {
            self.until_open((from, place));
            self.until_open((place, from));
        }
        let address = self.state().behind.get(&place).copied();
        let address = address.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut called = TcpStream::connect(address)?;
        called.set_nodelay(true)?;
        called.write_all(&hello)?;
        let ends = (from.unwrap_or(usize::MAX), place);
        let streams = [caller.try_clone()?, called.try_clone()?];
        let (read_back, write_back) = (called.try_clone()?, caller.try_clone()?);
        self.state().open.push(Open { ends, streams });
        std::thread::scope(|scope| {
            scope.spawn(|| self.pump(read_back, write_back, (ends.1, ends.0)));
            self.pump(caller, called, ends);
        });
        Ok(())
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, link: (usize, usize)) {
        let mut room = vec![0; 64 * 1_024];
        while let Ok(count @ 1..) = from.read(&mut room) {
            self.until_open(link);
            let late = self.state().slow.get(&link).copied();
            if let Some(late) = late {
                std::thread::sleep(late);
            }
            if to.write_all(&room[..count]).is_err() {
                break;
            }
        }
        for stream in [from, to] {
            drop(stream.shutdown(Shutdown::Both));
        }
        // Whatever has ended is forgotten, so that the list does not grow.
        self.state().open.retain(|open| open.streams[0].peer_addr().is_ok());
    }

    fn until_open(&self, link: (usize, usize)) {
        let waited = self.changed.wait_while(self.state(), |state| state.cut.contains(&link));
        drop(waited);
    }

    fn place_of(&self, node: u64) -> Option<usize> {
        let unknown = |state: &mut State| !state.places.contains_key(&node);
        let waited = self.changed.wait_timeout_while(self.state(), KNOWN_WITHIN, unknown);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.places.get(&node).copied()
    }
}
