//! Batches and the records in them: bytes out, bytes in. The layout stands in the file above.
//!
//! A batch is the unit of durability: its checksum covers everything, so after a crash either all
//! of its records exist or none.

use crc32fast::Hasher;

/// "KLB1" as it stands in the file.
const MAGIC: u32 = u32::from_le_bytes(*b"KLB1");
/// Magic, length, sequence number, checksum.
pub(super) const HEADER: usize = 20;
/// Kind, index, length.
const RECORD: usize = 13;
/// Batches start at multiples of this, so a search for them need not look at every byte.
pub(super) const ALIGN: usize = 8;
/// What one call may write. A quarter of what the length field holds: the first batch of a segment
/// repeats two blobs, each of which was once a batch itself, and must still fit.
pub(super) const MAX_PAYLOAD: usize = 1 << 30;

/// What a batch can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// The first record of each segment: the last index when the segment began.
    Start {
        last: u64,
    },
    Entry {
        index: u64,
        bytes: &'a [u8],
    },
    /// Entries behind `last` are gone.
    Truncate {
        last: u64,
    },
    /// Entries up to and including `upto` are gone; the blob describes the last of them.
    Purge {
        upto: u64,
        meta: &'a [u8],
    },
    /// Replaces the metadata.
    Meta {
        bytes: &'a [u8],
    },
}

impl<'a> Record<'a> {
    fn parts(self) -> (u8, u64, &'a [u8]) {
        match self {
            Record::Start { last } => (1, last, &[]),
            Record::Entry { index, bytes } => (2, index, bytes),
            Record::Truncate { last } => (3, last, &[]),
            Record::Purge { upto, meta } => (4, upto, meta),
            Record::Meta { bytes } => (5, 0, bytes),
        }
    }

    /// Takes one record from the front of `rest`.
    fn take(rest: &mut &'a [u8]) -> Result<Record<'a>, &'static str> {
        const SHORT: &str = "a record is longer than its batch";
        let (head, body) = rest.split_at_checked(RECORD).ok_or(SHORT)?;
        let (kind, index) = (head[0], u64_at(head, 1));
        let (bytes, behind) = body.split_at_checked(u32_at(head, 9) as usize).ok_or(SHORT)?;
        *rest = behind;
        match (kind, bytes.is_empty()) {
            (1, true) => Ok(Record::Start { last: index }),
            (2, _) => Ok(Record::Entry { index, bytes }),
            (3, true) => Ok(Record::Truncate { last: index }),
            (4, _) => Ok(Record::Purge { upto: index, meta: bytes }),
            (5, _) => Ok(Record::Meta { bytes }),
            _ => Err("a record of unknown kind"),
        }
    }
}

/// The records of a payload, in order.
pub(super) fn records(
    mut payload: &[u8],
) -> impl Iterator<Item = Result<Record<'_>, &'static str>> {
    std::iter::from_fn(move || {
        if payload.is_empty() {
            return None;
        }
        let record = Record::take(&mut payload);
        if record.is_err() {
            payload = &[];
        }
        Some(record)
    })
}

/// Appends a batch to `out`, which must end where a batch may start.
pub(super) fn write<'a>(
    out: &mut Vec<u8>,
    sequence: u64,
    records: impl Iterator<Item = &'a Record<'a>>,
) {
    assert_eq!(out.len() % ALIGN, 0, "a batch starts aligned");
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    for record in records {
        let (kind, index, bytes) = record.parts();
        let length = u32::try_from(bytes.len()).expect("callers keep to MAX_PAYLOAD");
        out.push(kind);
        out.extend_from_slice(&index.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(bytes);
    }
    let (header, payload) = out[start..].split_at_mut(HEADER);
    let length = u32::try_from(payload.len()).expect("callers keep to MAX_PAYLOAD");
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    let sum = checksum(&header[..16], payload);
    header[16..].copy_from_slice(&sum.to_le_bytes());
    out.resize(out.len().next_multiple_of(ALIGN), 0);
}

/// The bytes that these records need as a payload.
pub(super) fn payload_len(records: &[Record<'_>]) -> usize {
    records.iter().map(|record| RECORD + record.parts().2.len()).sum()
}

/// A batch whose checksum matches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch<'a> {
    pub(super) sequence: u64,
    pub(super) payload: &'a [u8],
}

impl Batch<'_> {
    /// Header, payload and padding: the distance to the next batch.
    pub(super) fn size(&self) -> usize {
        (HEADER + self.payload.len()).next_multiple_of(ALIGN)
    }
}

/// The batch at the front of `bytes`.
pub(super) fn read(bytes: &[u8]) -> Result<Batch<'_>, &'static str> {
    let (header, rest) = bytes.split_at_checked(HEADER).ok_or("a batch is cut short")?;
    if u32_at(header, 0) != MAGIC {
        return Err("no batch starts here, yet the bytes are not empty");
    }
    let payload = rest.get(..u32_at(header, 4) as usize).ok_or("a batch is cut short")?;
    if u32_at(header, 16) != checksum(&header[..16], payload) {
        return Err("the checksum of a batch does not match");
    }
    Ok(Batch { sequence: u64_at(header, 8), payload })
}

/// Searches the bytes behind a bad place for a batch that was written after it, and returns its
/// offset. `expected` is the sequence number that should have stood at the front of `bytes`.
///
/// A real follower is at most one number further per smallest batch in between. Asking for that
/// before the checksum keeps the search linear, and keeps entry bytes that look like a batch from
/// being taken for one unless they also guess the number.
pub(super) fn follower(bytes: &[u8], expected: u64) -> Option<usize> {
    let smallest = HEADER.next_multiple_of(ALIGN);
    (0..bytes.len()).step_by(ALIGN).find(|&at| {
        let rest = &bytes[at..];
        rest.len() >= HEADER
            && u32_at(rest, 0) == MAGIC
            && u64_at(rest, 8)
                .checked_sub(expected)
                .is_some_and(|ahead| ahead <= (at / smallest) as u64)
            && read(rest).is_ok()
    })
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Record<'_>; 5] = [
        Record::Start { last: 7 },
        Record::Entry { index: 8, bytes: b"eight" },
        Record::Truncate { last: 3 },
        Record::Purge { upto: 2, meta: b"term 1" },
        Record::Meta { bytes: b"" },
    ];

    fn written(sequence: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, sequence, ALL.iter());
        out
    }

    #[test]
    fn every_record_survives_the_round_trip() {
        let bytes = written(9);
        let batch = read(&bytes).unwrap();
        assert_eq!((batch.sequence, batch.size()), (9, bytes.len()));
        assert_eq!(batch.payload.len(), payload_len(&ALL));
        let back: Vec<_> = records(batch.payload).map(Result::unwrap).collect();
        assert_eq!(back, ALL);
    }

    #[test]
    fn the_bytes_are_those_of_the_format_document() {
        let mut out = Vec::new();
        write(&mut out, 2, [Record::Entry { index: 3, bytes: b"hi" }].iter());
        let mut expected = b"KLB1\x0f\0\0\0\x02\0\0\0\0\0\0\0".to_vec();
        let payload = b"\x02\x03\0\0\0\0\0\0\0\x02\0\0\0hi";
        let sum = crc32fast::hash(&[&expected[..], payload].concat());
        expected.extend(sum.to_le_bytes());
        expected.extend(payload);
        expected.extend([0; 5]);
        assert_eq!(out, expected);
    }

    #[test]
    fn no_flipped_bit_and_no_shorter_length_is_a_batch() {
        let bytes = written(9);
        let end = HEADER + payload_len(&ALL);
        for at in 0..end {
            assert!(read(&bytes[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(read(&flipped).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn malformed_payloads_end_with_an_error() {
        for payload in [&[9; 12][..], &[9; 13], b"\x02\0\0\0\0\0\0\0\0\x02\0\0\0h", &[0; 13]] {
            assert!(records(payload).last().unwrap().is_err(), "{payload:?}");
            assert_eq!(records(payload).count(), 1);
        }
        // A kind without content that has content.
        assert!(records(b"\x03\0\0\0\0\0\0\0\0\x01\0\0\0h").next().unwrap().is_err());
    }

    #[test]
    fn a_follower_must_be_aligned_later_and_within_reach() {
        let place = |gap: usize, sequence| [vec![1; gap], written(sequence)].concat();
        assert_eq!(follower(&place(48, 11), 10), Some(48));
        assert_eq!(follower(&place(48, 12), 10), Some(48), "two small batches fit in between");
        assert_eq!(follower(&place(48, 13), 10), None, "three do not");
        assert_eq!(follower(&place(48, 10), 10), Some(48));
        assert_eq!(follower(&place(48, 9), 10), None, "older than the bad one");
        assert_eq!(follower(&place(47, 11), 10), None, "not aligned");
    }
}
