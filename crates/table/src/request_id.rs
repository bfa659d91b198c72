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
            Form::Uuid(_) => 36,
            Form::Text(text) => text.len(),
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
    if text.len() != 36 || HYPHENS.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut bytes = [0; 16];
    let mut digits = (0..36).filter(|at| !HYPHENS.contains(at)).map(|at| digit(text[at]));
    for byte in &mut bytes {
        *byte = digits.next()?? << 4 | digits.next()??;
    }
    Some(bytes)
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Text(text) => f.write_str(text),
            Form::Uuid(bytes) => bytes.iter().enumerate().try_for_each(|(at, byte)| {
                let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                write!(f, "{hyphen}{byte:02x}")
            }),
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
