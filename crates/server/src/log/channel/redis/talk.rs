//! One session, of either side: messages in pieces, each once and whole or not at all.
//!
//! Redis cuts off who is more than 32 MiB behind, so no more than a window of pieces is on its way before the
//! other side says that it has taken them. What is late, or comes twice, has a number that is over and is dropped;
//! what is missing ends the session, and whoever needs one makes another.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::frame::{Frame, Kind};
use super::hub::Shared;
use crate::log::channel::MOST_BYTES;

/// Bytes of a piece.
const PIECE: usize = 256 * 1024;
/// Pieces that may be on their way: 2 MiB, so that the links of several members stay well below what Redis keeps
/// for one that reads slowly.
const WINDOW: u32 = 8;
/// What may lie here and was not taken: a window, what says that one was taken, and some that came twice.
pub(super) const INBOX: usize = WINDOW as usize + 8;
/// How long the rest of a message may take, piece by piece.
const REST: Duration = Duration::from_secs(10);

pub(super) struct Talk {
    pub(super) shared: Arc<Shared>,
    /// The other side.
    pub(super) to: String,
    pub(super) session: u128,
    pub(super) inbox: mpsc::Receiver<Frame>,
}

impl Talk {
    pub(super) async fn send(&mut self, kind: Kind, number: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too long for a message"));
        }
        let count = bytes.len().div_ceil(PIECE).max(1) as u32;
        for piece in 0..count {
            let begin = piece as usize * PIECE;
            let end = bytes.len().min(begin + PIECE);
            let last = piece + 1 == count;
            self.publish(kind, number, piece, last, bytes[begin..end].to_vec()).await?;
            if (piece + 1).is_multiple_of(WINDOW) && !last {
                self.until_taken(kind.taken(), number, piece + 1).await?;
            }
        }
        Ok(())
    }

    async fn until_taken(&mut self, kind: Kind, number: u64, count: u32) -> io::Result<()> {
        loop {
            let frame = self.soon().await?;
            if (frame.kind, frame.number, frame.piece) == (kind, number, count) {
                return Ok(());
            }
        }
    }

    /// The message with this number. The first piece may take any time.
    pub(super) async fn receive(&mut self, kind: Kind, number: u64) -> io::Result<Vec<u8>> {
        let (mut message, mut next) = (Vec::new(), 0);
        loop {
            let frame = match next {
                0 => self.inbox.recv().await.ok_or_else(gone)?,
                _ => self.soon().await?,
            };
            // Late, or for the second time.
            if frame.kind != kind || frame.number < number || frame.piece < next {
                continue;
            }
            if frame.number > number || frame.piece > next {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a piece is missing"));
            }
            if message.len() + frame.bytes.len() > MOST_BYTES {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
            }
            message.extend_from_slice(&frame.bytes);
            next += 1;
            if frame.last {
                return Ok(message);
            }
            if next.is_multiple_of(WINDOW) {
                self.publish(kind.taken(), number, next, true, Vec::new()).await?;
            }
        }
    }

    async fn soon(&mut self) -> io::Result<Frame> {
        tokio::time::timeout(REST, self.inbox.recv()).await?.ok_or_else(gone)
    }

    async fn publish(
        &self,
        kind: Kind,
        number: u64,
        piece: u32,
        last: bool,
        bytes: Vec<u8>,
    ) -> io::Result<()> {
        let (session, from) = (self.session, self.shared.own.clone());
        let frame = Frame { kind, session, number, piece, last, from, bytes };
        self.shared.publish(&self.to, &frame).await
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the session is gone")
}
