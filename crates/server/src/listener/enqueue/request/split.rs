//! Cuts the bytes of one connection into requests. Requests have no framing: several may come in
//! one segment, and one may be spread over many.
//!
//! | state | `next` |
//! |---|---|
//! | open | scans what was not scanned yet and gives the first request that is whole |
//! | closed, after anything malformed | throws away what is in the buffer |

use super::scan::{DEPTH, Scan, Step};
use super::{Request, from_json};

/// What is said to a whole JSON value that is no request.
const NOT_AN_OBJECT: &str = "A request must be a JSON object!";

/// Why nothing more is read on a connection. The peer gets this text once, with RC 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The bytes are not JSON.
    NotJson,
    /// Objects and arrays are nested too deep.
    TooDeep,
    /// The request is longer than so many bytes.
    TooLong(usize),
    /// The peer ended its side within a request.
    Cut,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Malformed::NotJson => f.write_str("The request is not JSON!"),
            Malformed::TooDeep => write!(f, "The request is nested deeper than {DEPTH}!"),
            Malformed::TooLong(most) => write!(f, "The request is longer than {most} bytes!"),
            Malformed::Cut => f.write_str("The request ends too early!"),
        }
    }
}

impl std::error::Error for Malformed {}

/// One connection's place in its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Splitter {
    scan: Scan,
    /// So many bytes of the buffer have been scanned. The last `scan.length()` of them are the
    /// request that is not whole yet, and those before it are done with.
    scanned: usize,
    closed: bool,
    /// Bytes scanned, moved or decoded so far: shows that the time is linear.
    #[cfg(test)]
    pub(super) work: usize,
}

impl Splitter {
    pub(crate) fn new() -> Splitter {
        Splitter {
            scan: Scan::new(),
            scanned: 0,
            closed: false,
            #[cfg(test)]
            work: 0,
        }
    }

    /// The next request. The caller appends to `buffer` what it reads and does nothing else to it,
    /// and calls this until it gives `None`; then at most `max_frame` bytes are left.
    ///
    /// After an `Err`, all that comes is thrown away.
    pub(crate) fn next(
        &mut self,
        buffer: &mut Vec<u8>,
        max_frame: usize,
    ) -> Option<Result<Request, Malformed>> {
        if self.closed {
            buffer.clear();
            return None;
        }
        let found = self.find(buffer, max_frame);
        match &found {
            Some(Err(_)) => {
                self.closed = true;
                *buffer = Vec::new();
            }
            Some(Ok(_)) => {
                // Moving no more bytes than are dropped keeps the time linear when many small
                // requests come in one large read.
                if self.done() >= buffer.len() - self.done() {
                    self.drop_done(buffer);
                }
            }
            None => self.drop_done(buffer),
        }
        found
    }

    /// Whether everything further on this connection is thrown away.
    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// To be asked when the peer has ended its side and `next` gave `None`: whether it ended
    /// between two requests. If not it still waits for an answer, and gets this error's.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.closed || self.scan.may_end() { Ok(()) } else { Err(Malformed::Cut) }
    }

    fn find(&mut self, buffer: &[u8], max_frame: usize) -> Option<Result<Request, Malformed>> {
        while self.scanned < buffer.len() {
            let skipped = self.scan.skip_text(&buffer[self.scanned..], max_frame);
            self.scanned += skipped;
            self.count(skipped);
            let Some(byte) = buffer.get(self.scanned) else { break };
            self.scanned += 1;
            self.count(1);
            match self.scan.feed(*byte) {
                Step::More if self.scan.length() < max_frame => {}
                Step::More => return Some(Err(Malformed::TooLong(max_frame))),
                Step::Number => return Some(Ok(Request::Bad(NOT_AN_OBJECT.into()))),
                Step::Whole => {
                    let length = self.scan.take_length();
                    self.count(length);
                    return Some(decode(&buffer[self.scanned - length..self.scanned]));
                }
                Step::NotJson => return Some(Err(Malformed::NotJson)),
                Step::TooDeep => return Some(Err(Malformed::TooDeep)),
            }
        }
        None
    }

    /// How many bytes at the front of the buffer nobody needs any more.
    fn done(&self) -> usize {
        self.scanned - self.scan.length()
    }

    fn drop_done(&mut self, buffer: &mut Vec<u8>) {
        let done = self.done();
        if done > 0 {
            buffer.drain(..done);
            self.scanned -= done;
            self.count(buffer.len());
        }
    }

    #[cfg(test)]
    fn count(&mut self, bytes: usize) {
        self.work += bytes;
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "counts in tests only")]
    fn count(&mut self, _: usize) {}
}

/// Reads a value that the scan found whole.
fn decode(value: &[u8]) -> Result<Request, Malformed> {
    let json = std::str::from_utf8(value).map_err(|_| Malformed::NotJson)?;
    Ok(if json.starts_with('{') { from_json(json) } else { Request::Bad(NOT_AN_OBJECT.into()) })
}
