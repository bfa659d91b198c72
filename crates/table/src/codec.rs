//! Bytes for commands and snapshots: little-endian integers as variable-length quantities, texts
//! and lists with their length in front. Reading checks everything and never allocates more than
//! the input is long.

use std::fmt;
use std::sync::Arc;

use crate::{Mode, RequestId, Resource, Text};

/// Why bytes could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// They end too early.
    Short,
    /// More follows than belongs there.
    Long,
    /// A value that cannot stand there; the text says which.
    Bad(&'static str),
    /// The checksum does not match the content.
    Checksum,
    /// Written by a newer version of the format.
    Version(u32),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecError::Short => f.write_str("the bytes end too early"),
            CodecError::Long => f.write_str("there are bytes behind the end"),
            CodecError::Bad(what) => write!(f, "bad {what}"),
            CodecError::Checksum => {
                f.write_str("the checksum does not match: the bytes are damaged")
            }
            CodecError::Version(version) => {
                write!(f, "format version {version} is newer than this build; upgrade to read it")
            }
        }
    }
}

impl std::error::Error for CodecError {}

/// Appends to a byte string.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u8(value.into());
    }

    /// Seven bits a byte, the lowest first; the top bit says that more follow.
    pub(crate) fn u64(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.u64(value.into());
    }

    /// Small numbers of either sign stay small.
    pub(crate) fn i32(&mut self, value: i32) {
        self.u32((value << 1 ^ value >> 31).cast_unsigned());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Writer, T),
    ) {
        self.u64(items.len() as u64);
        items.for_each(|item| write(self, item));
    }

    pub(crate) fn id(&mut self, id: &RequestId) {
        match id.parts() {
            Ok(uuid) => {
                self.u8(1);
                self.bytes.extend_from_slice(uuid);
            }
            Err(text) => {
                self.u8(0);
                self.text(text);
            }
        }
    }

    pub(crate) fn mode(&mut self, mode: Mode) {
        self.u8(mode.code());
    }

    pub(crate) fn resource(&mut self, resource: &Resource) {
        self.bytes(resource.as_bytes());
    }
}

/// Takes from the front of a byte string.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

pub(crate) type Read<T> = Result<T, CodecError>;

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Everything must have been read.
    pub(crate) fn end(self) -> Read<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(CodecError::Long) }
    }

    pub(crate) fn take(&mut self, length: usize) -> Read<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(CodecError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn bool(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(CodecError::Bad("flag")),
        }
    }

    /// Only the shortest form of a number is accepted, so that equal values have equal bytes.
    pub(crate) fn u64(&mut self) -> Read<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if (shift == 63 && bits > 1) || (shift > 0 && byte == 0) {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CodecError::Bad("number"))
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        self.u64()?.try_into().map_err(|_| CodecError::Bad("number"))
    }

    pub(crate) fn i32(&mut self) -> Read<i32> {
        let value = self.u32()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    pub(crate) fn bytes(&mut self) -> Read<&'a [u8]> {
        let length = self.u64()?;
        self.take(usize::try_from(length).map_err(|_| CodecError::Short)?)
    }

    pub(crate) fn text(&mut self) -> Read<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| CodecError::Bad("text"))
    }

    pub(crate) fn shared(&mut self) -> Read<Text> {
        Ok(Arc::from(self.text()?))
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Read<T>,
    ) -> Read<Option<T>> {
        self.bool()?.then(|| read(self)).transpose()
    }

    /// Each item takes at least a byte, so a length beyond the input is refused before anything
    /// is set aside for it.
    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Reader<'a>) -> Read<T>,
    ) -> Read<Vec<T>> {
        let length = self.u64()?;
        if length > self.rest.len() as u64 {
            return Err(CodecError::Short);
        }
        (0..length).map(|_| read(self)).collect()
    }

    pub(crate) fn id(&mut self) -> Read<RequestId> {
        match self.u8()? {
            0 => {
                let id = RequestId::new(self.text()?);
                // A UUID has one form of bytes, the short one.
                if id.parts().is_ok() { Err(CodecError::Bad("id")) } else { Ok(id) }
            }
            1 => Ok(RequestId::from_uuid(self.take(16)?.try_into().expect("took 16"))),
            _ => Err(CodecError::Bad("id")),
        }
    }

    pub(crate) fn mode(&mut self) -> Read<Mode> {
        Mode::from_code(self.u8()?).ok_or(CodecError::Bad("mode"))
    }

    pub(crate) fn resource(&mut self) -> Read<Resource> {
        Resource::from_bytes(self.bytes()?).map_err(|_| CodecError::Bad("resource"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_have_one_form() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut writer = Writer::default();
            writer.u64(value);
            assert_eq!(Reader::new(&writer.bytes).u64(), Ok(value));
            for end in 0..writer.bytes.len() {
                assert_eq!(Reader::new(&writer.bytes[..end]).u64(), Err(CodecError::Short));
            }
        }
        let bad = Err(CodecError::Bad("number"));
        assert_eq!(Reader::new(&[0x80, 0]).u64(), bad);
        assert_eq!(Reader::new(&[0xff; 10]).u64(), bad);
        assert_eq!(
            Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).u64(),
            bad
        );
        assert_eq!(
            Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x10]).u32(),
            Err(CodecError::Bad("number"))
        );
        for value in [0, 1, -1, 5, -64, i32::MAX, i32::MIN] {
            let mut writer = Writer::default();
            writer.i32(value);
            assert_eq!(Reader::new(&writer.bytes).i32(), Ok(value));
        }
        let mut small = Writer::default();
        small.i32(-3);
        assert_eq!(small.bytes, [5]);
    }

    #[test]
    fn what_does_not_belong_is_refused() {
        assert_eq!(Reader::new(&[2]).bool(), Err(CodecError::Bad("flag")));
        assert_eq!(Reader::new(&[1, 0xff]).text(), Err(CodecError::Bad("text")));
        assert_eq!(Reader::new(&[3, 0]).bytes(), Err(CodecError::Short));
        assert_eq!(Reader::new(&[9, 0, 0]).list(Reader::u8), Err(CodecError::Short));
        assert_eq!(Reader::new(&[2, 7, 8]).list(Reader::u8), Ok(vec![7, 8]));
        assert_eq!(Reader::new(&[7]).id(), Err(CodecError::Bad("id")));
        assert_eq!(Reader::new(&[4]).mode(), Err(CodecError::Bad("mode")));
        assert_eq!(Reader::new(&[1, 7]).resource(), Err(CodecError::Bad("resource")));
        assert_eq!(Reader::new(&[1]).end(), Err(CodecError::Long));
        assert_eq!(Reader::new(&[]).end(), Ok(()));
        let uuid = "0189abcd-ef01-7234-8567-89abcdef0123";
        let long = [&[0, 36][..], uuid.as_bytes()].concat();
        assert_eq!(Reader::new(&long).id(), Err(CodecError::Bad("id")));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let bad = CodecError::Bad("mode");
        for (error, text) in [
            (CodecError::Short, "early"),
            (CodecError::Long, "behind"),
            (bad, "bad mode"),
            (CodecError::Checksum, "damaged"),
            (CodecError::Version(9), "version 9"),
        ] {
            assert!(error.to_string().contains(text));
        }
    }
}
