//! The request id: a caller's secret name for one request.

use std::fmt;

/// Names one request for its whole life; knowing it is what allows renew, promote and release.
///
/// Nearly all ids are UUIDs in their usual 36-byte text. Those are kept as 16 bytes in place, which
/// saves an allocation and a cache miss on every look-up; every other text is kept as it is. Both
/// read back as exactly the text they were made from.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(Form);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Form {
    Uuid([u8; 16]),
    Text(Box<str>),
}

/// Where the hyphens of a UUID's text stand.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// Where the two digits of each byte begin.
const DIGITS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
/// The length of a UUID's text.
const UUID_TEXT: usize = 36;

impl RequestId {
    /// The id with this text.
    pub fn new(text: &str) -> RequestId {
        RequestId(parse_uuid(text.as_bytes()).map_or_else(|| Form::Text(text.into()), Form::Uuid))
    }

    /// The id whose text is the UUID with these bytes.
    pub fn from_uuid(bytes: [u8; 16]) -> RequestId {
        RequestId(Form::Uuid(bytes))
    }

    /// The number of bytes of its text.
    pub fn text_len(&self) -> usize {
        match &self.0 {
            Form::Uuid(_) => UUID_TEXT,
            Form::Text(text) => text.len(),
        }
    }

    /// Appends its text.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Form::Uuid(bytes) => out.extend_from_slice(&uuid_text(bytes)),
            Form::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }

    /// The bytes that stand for the id in a hash: in place for a UUID.
    pub(crate) fn hash_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Uuid(bytes) => bytes,
            Form::Text(text) => text.as_bytes(),
        }
    }

    /// The UUID's bytes, or the text of any other id.
    pub(crate) fn parts(&self) -> Result<&[u8; 16], &str> {
        match &self.0 {
            Form::Uuid(bytes) => Ok(bytes),
            Form::Text(text) => Err(text),
        }
    }
}

/// The bytes of a UUID written in the canonical way (lower case, hyphens in place).
fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text: &[u8; UUID_TEXT] = text.try_into().ok()?;
    if HYPHENS.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    // One look at the end whether all were digits: ids are read more often than refused.
    let (mut bytes, mut seen) = ([0; 16], 0);
    for (byte, at) in bytes.iter_mut().zip(DIGITS) {
        let (high, low) = (VALUES[usize::from(text[at])], VALUES[usize::from(text[at + 1])]);
        seen |= high | low;
        *byte = high << 4 | low & 0x0f;
    }
    (seen < 16).then_some(bytes)
}

fn uuid_text(bytes: &[u8; 16]) -> [u8; UUID_TEXT] {
    let mut text = [b'-'; UUID_TEXT];
    for (byte, at) in bytes.iter().zip(DIGITS) {
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 0x0f)];
    }
    text
}

/// What a character is worth as a digit of a UUID in lower case; 255 if it is none.
const VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut value = 0;
    while value < 16 {
        values[HEX[value] as usize] = value as u8;
        value += 1;
    }
    values
};

const HEX: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Text(text) => f.write_str(text),
            Form::Uuid(bytes) => {
                f.write_str(std::str::from_utf8(&uuid_text(bytes)).expect("digits and hyphens"))
            }
        }
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<&str> for RequestId {
    fn from(text: &str) -> RequestId {
        RequestId::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_reads_back_as_it_was_written() {
        let uuid = "0189abcd-ef01-7234-8567-89abcdef0123";
        assert!(RequestId::new(uuid).parts().is_ok());
        for text in [
            uuid,
            "0189ABCD-ef01-7234-8567-89abcdef0123",
            "0189abcd-ef01-7234-8567x89abcdef0123",
            "0189abcdeef01-7234-8567-89abcdef0123",
            "g189abcd-ef01-7234-8567-89abcdef0123",
            "0189abcd-ef01-7234-8567-89abcdef012",
            "",
            "7",
        ] {
            let id = RequestId::new(text);
            assert_eq!(id.to_string(), text);
            let mut out = b"id ".to_vec();
            id.append_to(&mut out);
            assert_eq!(out, [b"id ", text.as_bytes()].concat());
            assert_eq!(id.text_len(), text.len());
            assert_eq!(id.parts().is_ok(), text == uuid, "{text}");
            assert_eq!(id, RequestId::from(text));
            assert_eq!(format!("{id:?}"), text);
        }
    }

    #[test]
    fn an_id_hashes_by_the_bytes_that_tell_it_from_others() {
        assert_eq!(RequestId::from_uuid([7; 16]).hash_bytes(), [7; 16]);
        assert_eq!(RequestId::new("job").hash_bytes(), b"job");
    }
}
