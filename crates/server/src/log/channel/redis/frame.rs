//! What is published: pieces of what members say, each with the session and the number of the request it belongs
//! to, because whoever listens hears everybody, and nobody promises that nothing is lost.

/// "KLR" and the version of all of this.
const MAGIC: &[u8; 4] = b"KLR\x01";
/// Bytes before the name of the sender.
const HEAD: usize = 4 + 1 + 16 + 8 + 4 + 1 + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Opens a session; its bytes are a hello.
    Hello,
    /// The answer to that.
    Welcome,
    Request,
    Reply,
    /// So many pieces of a request have been taken: there is room for more.
    RequestTaken,
    ReplyTaken,
    /// There is no such session (any more).
    Gone,
    /// To oneself: whether anything arrives.
    Echo,
}

const KINDS: [Kind; 8] = [
    Kind::Hello,
    Kind::Welcome,
    Kind::Request,
    Kind::Reply,
    Kind::RequestTaken,
    Kind::ReplyTaken,
    Kind::Gone,
    Kind::Echo,
];

impl Kind {
    /// Whether it is for whoever opened the session.
    pub(super) fn is_for_caller(self) -> bool {
        matches!(self, Kind::Welcome | Kind::Reply | Kind::RequestTaken | Kind::Gone)
    }

    /// What is said when pieces of this have been taken.
    pub(super) fn taken(self) -> Kind {
        match self {
            Kind::Reply => Kind::ReplyTaken,
            _ => Kind::RequestTaken,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) session: u128,
    /// Of the request within its session, from 1; 0 for what opens it.
    pub(super) number: u64,
    /// Of the message, from 0; in what says that some were taken, how many.
    pub(super) piece: u32,
    pub(super) last: bool,
    /// Who says it, to be answered there.
    pub(super) from: String,
    pub(super) bytes: Vec<u8>,
}

impl Frame {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + self.from.len() + self.bytes.len());
        out.extend_from_slice(MAGIC);
        out.push(KINDS.iter().position(|kind| *kind == self.kind).expect("all are there") as u8);
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.piece.to_le_bytes());
        out.push(u8::from(self.last));
        out.push(u8::try_from(self.from.len()).expect("names are shorter"));
        out.extend_from_slice(self.from.as_bytes());
        out.extend_from_slice(&self.bytes);
        out
    }

    /// `None` if it is nothing of ours.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Frame> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (kind, rest) = rest.split_first()?;
        let (session, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (piece, rest) = rest.split_first_chunk()?;
        let (last, rest) = rest.split_first()?;
        let (length, rest) = rest.split_first()?;
        let (from, bytes) = rest.split_at_checked(usize::from(*length))?;
        Some(Frame {
            kind: *KINDS.get(usize::from(*kind))?,
            session: u128::from_le_bytes(*session),
            number: u64::from_le_bytes(*number),
            piece: u32::from_le_bytes(*piece),
            last: *last == 1,
            from: std::str::from_utf8(from).ok()?.into(),
            bytes: bytes.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back_and_pieces_of_their_heads_do_not() {
        for kind in KINDS {
            let frame = Frame {
                kind,
                session: 1 << 100,
                number: 7,
                piece: 3,
                last: true,
                from: "a".into(),
                bytes: b"text".into(),
            };
            let bytes = frame.to_bytes();
            assert_eq!(Frame::from_bytes(&bytes), Some(frame));
            for length in 0..=HEAD {
                assert_eq!(Frame::from_bytes(&bytes[..length]), None);
            }
        }
        assert_eq!(
            Frame::from_bytes(b"KLR\x02 of another version, which is longer than a head"),
            None
        );
    }
}
