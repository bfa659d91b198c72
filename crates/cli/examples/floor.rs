//! A server that reads and answers `+OK` to every request, and does nothing else: what the system
//! itself costs. `scripts/bench server` measures it beside the others.

use std::io::{Read, Write};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(usize::MAX - 1);

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let mut listener = TcpListener::bind(([127, 0, 0, 1], port).into())?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut events = Events::with_capacity(1_024);
    let (mut room, mut answers) = (vec![0; 65_536], Vec::new());
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let token = Token(connections.len());
                    poll.registry().register(&mut stream, token, Interest::READABLE)?;
                    connections.push(Some(stream));
                }
                continue;
            }
            let at = event.token().0;
            let Some(stream) = &mut connections[at] else { continue };
            match stream.read(&mut room) {
                Ok(0) => connections[at] = None,
                // Each request begins with a star, and these have no other.
                Ok(count) => {
                    answers.push((at, room[..count].split(|byte| *byte == b'*').count() - 1));
                }
                Err(_) => {}
            }
        }
        for (at, count) in answers.drain(..) {
            if let Some(stream) = &mut connections[at] {
                drop(stream.write(&b"+OK\r\n".repeat(count)));
            }
        }
    }
}
