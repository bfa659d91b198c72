//! The body of the fuzz target `enqueue`. It panics if it finds something wrong.

use keylatch_table::{Command, RequestId};

use super::split::Malformed;
use super::{Request, Splitter};

/// However the bytes come, the same requests come out, and nothing is kept beyond a frame. The first
/// byte of the input says how the rest is cut into pieces.
pub fn fuzz(input: &[u8]) {
    let Some((&seed, bytes)) = input.split_first() else { return };
    // Half of the inputs are near the bound.
    let max_frame = if seed.is_multiple_of(2) { 128 * 1024 } else { 64 };
    let whole = hear([bytes], max_frame);
    let lengths = [1, 2, 3, 5, 8, 13, 64, 256];
    let length = lengths[usize::from(seed / 2) % lengths.len()];
    let in_pieces = hear(bytes.chunks(length), max_frame);
    assert_eq!(whole, in_pieces, "it depends on how the bytes come");
    // Unequal pieces: what is before a cut has been scanned, what is behind it has not.
    let cut = usize::from(seed) * bytes.len() / 256;
    let (front, back) = bytes.split_at(cut);
    assert_eq!(whole, hear([front, back], max_frame), "it depends on how the bytes come");
}

/// What comes out of a connection, and whether it ended between two requests.
fn hear<'b>(
    pieces: impl IntoIterator<Item = &'b [u8]>,
    max_frame: usize,
) -> (Vec<Result<Request, Malformed>>, Result<(), Malformed>) {
    let (mut splitter, mut buffer) = (Splitter::new(), Vec::new());
    let mut heard = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Some(outcome) = splitter.next(&mut buffer, max_frame) {
            assert!(!matches!(heard.last(), Some(Err(_))), "nothing is read after an error");
            if let Ok(request) = &outcome {
                check(request);
            }
            heard.push(outcome);
        }
        assert!(buffer.len() <= max_frame, "{} bytes are kept", buffer.len());
    }
    (heard, splitter.end())
}

/// What the rest of the server relies on.
fn check(request: &Request) {
    match request {
        Request::Lock(lock) => {
            assert!(lock.timeout_ms > 0, "0 would be for ever");
            assert!(!lock.uuid.is_empty());
            assert_ne!(lock.owner.as_deref(), Some(""));
            let ask = lock.clone().into_acquire(RequestId::new("id"), "shown");
            let command = Command::Acquire(ask);
            assert_eq!(Command::decode(&command.encode()).as_ref(), Ok(&command), "in the log");
        }
        Request::Unlock(uuid) | Request::Promote(uuid) => assert!(!uuid.is_empty()),
        Request::List(filter) => {
            assert_ne!(filter.name.as_deref(), Some(""));
            assert_ne!(filter.owner.as_deref(), Some(""));
        }
        Request::Bad(text) => assert!(!text.is_empty()),
    }
}
