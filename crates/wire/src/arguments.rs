//! The arguments of a request, one after the other.

use crate::frame::Arguments;
use crate::request::WordError;

/// A walk through the arguments of a request, behind the command's name.
pub(crate) struct Words<'b> {
    buffer: &'b [u8],
    arguments: &'b Arguments,
    at: usize,
    /// How the command is written, for errors.
    usage: &'static str,
    /// Where the first options stand that were given; no command has more.
    given: [u32; MOST_OPTIONS],
    count: usize,
}

const MOST_OPTIONS: usize = 8;

impl<'b> Words<'b> {
    pub(crate) fn new(
        buffer: &'b [u8],
        arguments: &'b Arguments,
        at: usize,
        usage: &'static str,
    ) -> Words<'b> {
        Words { buffer, arguments, at, usage, given: [0; MOST_OPTIONS], count: 0 }
    }

    pub(crate) fn left(&self) -> usize {
        self.arguments.len() - self.at
    }

    /// The next argument, if there is one.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<&'b [u8]> {
        let word = self.arguments.get(self.buffer, self.at)?;
        self.at += 1;
        Some(word)
    }

    pub(crate) fn syntax(&self, what: &str) -> WordError {
        WordError::new("SYNTAX", format!("{what}; usage: {}", self.usage))
    }

    #[inline]
    pub(crate) fn bytes(&mut self, what: &str) -> Result<&'b [u8], WordError> {
        match self.next() {
            Some(word) => Ok(word),
            None => Err(self.missing(what)),
        }
    }

    #[cold]
    fn missing(&self, what: &str) -> WordError {
        // An option is said in capitals.
        let named =
            if what.bytes().all(|byte| byte.is_ascii_uppercase()) { "what follows " } else { "" };
        self.syntax(&format!("{named}{what} is missing"))
    }

    /// To be asked for each option, as the last argument that was taken: which of two would count?
    pub(crate) fn once(&mut self, option: &'b [u8]) -> Result<(), WordError> {
        let given = |at: &u32| self.arguments.get(self.buffer, *at as usize);
        let mut given = self.given[..self.count].iter().filter_map(given);
        if given.any(|other| other.eq_ignore_ascii_case(option)) {
            return Err(self.twice(option));
        }
        if let Some(place) = self.given.get_mut(self.count) {
            *place = (self.at - 1) as u32;
            self.count += 1;
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn twice(&self, option: &[u8]) -> WordError {
        self.syntax(&format!("{} is given twice", String::from_utf8_lossy(option)))
    }

    pub(crate) fn text(&mut self, what: &str) -> Result<&'b str, WordError> {
        let bytes = self.bytes(what)?;
        std::str::from_utf8(bytes)
            .map_err(|_| WordError::new("BADARG", format!("{what} must be valid UTF-8")))
    }

    pub(crate) fn number(&mut self, what: &str) -> Result<u64, WordError> {
        let bytes = self.bytes(what)?;
        parse_number(bytes).ok_or_else(|| {
            let got = String::from_utf8_lossy(bytes);
            let text = format!("{what} must be a whole number, 0 or more, not '{got}'");
            WordError::new("BADARG", text)
        })
    }

    /// A number of 32 bits that may have a sign.
    pub(crate) fn signed(&mut self, what: &str) -> Result<i32, WordError> {
        let bytes = self.bytes(what)?;
        let (sign, digits) = match bytes {
            [b'-', digits @ ..] => (-1, digits),
            digits => (1, digits),
        };
        let number = parse_number(digits).and_then(|number| i64::try_from(number).ok());
        number.and_then(|number| i32::try_from(sign * number).ok()).ok_or_else(|| {
            let got = String::from_utf8_lossy(bytes);
            let (least, most) = (i32::MIN, i32::MAX);
            let text = format!("{what} must be a whole number from {least} to {most}, not '{got}'");
            WordError::new("BADARG", text)
        })
    }

    /// There must be no more.
    pub(crate) fn end(&mut self) -> Result<(), WordError> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(self.unknown(word)),
        }
    }

    pub(crate) fn unknown(&self, word: &[u8]) -> WordError {
        self.syntax(&format!("'{}' is not understood here", String::from_utf8_lossy(word)))
    }
}

pub(crate) fn parse_number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    // So few digits do not overflow, and nearly all numbers have fewer.
    if bytes.len() <= 9 {
        let mut number = 0;
        for byte in bytes {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number * 10 + u32::from(digit);
        }
        return Some(u64::from(number));
    }
    bytes.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// A word in capitals, if it is short enough to be one of ours.
pub(crate) struct Capitals {
    bytes: [u8; 16],
    len: usize,
}

impl Capitals {
    #[inline]
    pub(crate) fn of(word: &[u8]) -> Capitals {
        let mut bytes = [0; 16];
        let len = word.len().min(16);
        bytes[..len].copy_from_slice(&word[..len]);
        bytes.make_ascii_uppercase();
        // A longer word is none of ours, whatever it begins with.
        Capitals { bytes, len: if word.len() > 16 { 0 } else { len } }
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::parse_number;

    #[test]
    fn numbers_of_any_length_are_read_as_they_stand() {
        for number in ["0", "7", "007", "999999999", "1000000000", "4294967296", "0000000000001"] {
            assert_eq!(parse_number(number.as_bytes()), number.parse().ok(), "{number}");
        }
        let most = u64::MAX.to_string();
        assert_eq!(parse_number(most.as_bytes()), Some(u64::MAX));
        for none in
            ["", "-1", "+1", "1x", "x", " 1", "12345678/", "1234567890:", "18446744073709551616"]
        {
            assert_eq!(parse_number(none.as_bytes()), None, "{none}");
        }
    }
}
