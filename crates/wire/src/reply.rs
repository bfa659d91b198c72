//! Replies, as bytes. A RESP2 client gets the same as a RESP3 client, with maps as flat arrays and
//! without pushes.

/// Which protocol a connection speaks; `HELLO 3` changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every Redis client speaks.
    #[default]
    Resp2,
    /// With maps and pushes.
    Resp3,
}

/// Appends replies to a buffer.
pub struct Writer<'a> {
    /// Where to.
    pub out: &'a mut Vec<u8>,
    /// In which form.
    pub protocol: Protocol,
}

impl Writer<'_> {
    fn line(&mut self, kind: u8, number: impl itoa::Integer) {
        self.out.push(kind);
        self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// `+OK` and the like.
    pub fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// An error: a code word, and what to do. Line ends in the text become spaces.
    pub fn error(&mut self, code: &str, text: &str) {
        self.out.push(b'-');
        self.out.extend_from_slice(code.as_bytes());
        self.out.push(b' ');
        let clean = |byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte };
        self.out.extend(text.bytes().map(clean));
        self.out.extend_from_slice(b"\r\n");
    }

    /// A number.
    pub fn integer(&mut self, number: i64) {
        self.line(b':', number);
    }

    /// A number that has no sign; those beyond the protocol's 63 bits are cut to them.
    pub fn unsigned(&mut self, number: u64) {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Text or bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.line(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Bytes that are RESP already: words that are always the same.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Text or bytes of that length, which `write` appends.
    pub fn bulk_with(&mut self, length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.line(b'$', length);
        let end = self.out.len() + length;
        write(self.out);
        debug_assert_eq!(self.out.len(), end, "as long as announced");
        self.out.extend_from_slice(b"\r\n");
    }

    /// Nothing.
    pub fn null(&mut self) {
        let null: &[u8] = match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        };
        self.out.extend_from_slice(null);
    }

    /// Begins an array of that many.
    pub fn array(&mut self, count: usize) {
        self.line(b'*', count);
    }

    /// Begins a map of that many pairs.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.line(b'*', 2 * pairs),
            Protocol::Resp3 => self.line(b'%', pairs),
        }
    }

    /// Begins a push of that many parts. (RESP2 has none: as an array, for subscriptions.)
    pub fn push(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.line(b'*', count),
            Protocol::Resp3 => self.line(b'>', count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Writer<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Writer { out: &mut out, protocol });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_protocols_differ_in_maps_pushes_and_nothing() {
        let all = |writer: &mut Writer<'_>| {
            writer.map(1);
            writer.push(2);
            writer.null();
        };
        assert_eq!(written(Protocol::Resp2, all), "*2\r\n*2\r\n$-1\r\n");
        assert_eq!(written(Protocol::Resp3, all), "%1\r\n>2\r\n_\r\n");
    }

    #[test]
    fn everything_else_is_the_same() {
        let all = |writer: &mut Writer<'_>| {
            writer.simple("OK");
            writer.error("SYNTAX", "two\r\nlines");
            writer.integer(-1);
            writer.unsigned(u64::MAX);
            writer.bulk(b"ab");
            writer.bulk_with(3, |out| out.extend_from_slice(b"cde"));
            writer.array(3);
        };
        let text = "+OK\r\n-SYNTAX two  lines\r\n:-1\r\n:9223372036854775807\r\n$2\r\nab\r\n$3\r\ncde\r\n*3\r\n";
        assert_eq!(written(Protocol::Resp2, all), text);
        assert_eq!(written(Protocol::Resp3, all), text);
    }
}
