//! Requests as they come in: an array of bulk strings, or, for people with telnet, one line of
//! words. Nothing is copied: arguments are ranges of the buffer.

/// What a frame may be like. A length is checked as soon as it is read, before anything of that
/// size is buffered.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a whole request.
    pub frame: usize,
    /// Arguments of a request.
    pub arguments: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { frame: 128 * 1024, arguments: 4_096 }
    }
}

/// The arguments of one request, the command's name first.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    ranges: Vec<(usize, usize)>,
}

impl Arguments {
    /// How many there are; none for an empty line.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The argument at `position`, of the buffer that was read.
    pub fn get<'b>(&self, buffer: &'b [u8], position: usize) -> Option<&'b [u8]> {
        self.ranges.get(position).map(|(start, end)| &buffer[*start..*end])
    }
}

/// Bytes that are not a request. The connection cannot go on: where the next one would begin is not
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not an array of bulk strings.
    #[error(
        "expected an array of bulk strings; send commands as RESP arrays or as one line of words"
    )]
    Malformed,
    /// It speaks HTTP.
    #[error("this port speaks RESP, not HTTP")]
    Http,
    /// It speaks TLS.
    #[error("this port speaks RESP without TLS; see docs/security.md for how to serve with it")]
    Tls,
    /// Longer than the limit.
    #[error("the request is longer than {0} bytes")]
    TooLong(usize),
    /// More arguments than the limit.
    #[error("the request has more than {0} arguments")]
    TooMany(usize),
}

/// Reads one request from the front of `buffer` into `arguments`. Returns how many bytes it took;
/// `None` if it is not complete yet.
pub fn read_arguments(
    buffer: &[u8],
    limits: Limits,
    arguments: &mut Arguments,
) -> Result<Option<usize>, FrameError> {
    arguments.ranges.clear();
    match buffer.first() {
        None => Ok(None),
        Some(b'*') => read_array(buffer, limits, arguments),
        // What every handshake begins with, and no word.
        Some(0x16) => Err(FrameError::Tls),
        Some(_) => read_line_of_words(buffer, limits, arguments),
    }
}

fn read_array(
    buffer: &[u8],
    limits: Limits,
    arguments: &mut Arguments,
) -> Result<Option<usize>, FrameError> {
    let Some((count, mut at)) = read_length(buffer, 1)? else { return Ok(None) };
    if count > limits.arguments {
        return Err(FrameError::TooMany(limits.arguments));
    }
    for _ in 0..count {
        // Nearly all lengths have one digit or two.
        let (length, start) = match buffer.get(at..).unwrap_or_default() {
            [b'$', digit @ b'0'..=b'9', b'\r', b'\n', ..] => (usize::from(digit - b'0'), at + 4),
            [b'$', tens @ b'0'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
                (usize::from(tens - b'0') * 10 + usize::from(ones - b'0'), at + 5)
            }
            [b'$', ..] => match read_length(buffer, at + 1)? {
                Some(length) => length,
                None => return Ok(None),
            },
            [] => return Ok(None),
            [..] => return Err(FrameError::Malformed),
        };
        // At most nine digits were read, so nothing overflows here.
        let end = start + length;
        if end + 2 > limits.frame {
            return Err(FrameError::TooLong(limits.frame));
        }
        match buffer.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(FrameError::Malformed),
        }
        arguments.ranges.push((start, end));
        at = end + 2;
    }
    Ok(Some(at))
}

/// A number and the line end after it. Returns the number and where the next part begins.
fn read_length(buffer: &[u8], from: usize) -> Result<Option<(usize, usize)>, FrameError> {
    let mut number = 0usize;
    for (at, byte) in buffer.iter().enumerate().skip(from).take(10) {
        match byte {
            b'0'..=b'9' => number = number * 10 + usize::from(byte - b'0'),
            b'\r' if at > from => {
                return match buffer.get(at + 1) {
                    None => Ok(None),
                    Some(b'\n') => Ok(Some((number, at + 2))),
                    Some(_) => Err(FrameError::Malformed),
                };
            }
            _ => return Err(FrameError::Malformed),
        }
    }
    if buffer.len() >= from + 10 { Err(FrameError::Malformed) } else { Ok(None) }
}

const METHODS: [&[u8]; 7] =
    [b"GET /", b"POST /", b"PUT /", b"HEAD /", b"DELETE /", b"OPTIONS ", b"PATCH /"];

fn read_line_of_words(
    buffer: &[u8],
    limits: Limits,
    arguments: &mut Arguments,
) -> Result<Option<usize>, FrameError> {
    if METHODS.iter().any(|method| buffer.starts_with(method)) {
        return Err(FrameError::Http);
    }
    // A line that people type; nobody types more.
    let longest = limits.frame.min(4_096);
    let Some(end) = buffer.iter().take(longest).position(|byte| *byte == b'\n') else {
        return if buffer.len() >= longest { Err(FrameError::TooLong(longest)) } else { Ok(None) };
    };
    let mut start = None;
    for (at, byte) in buffer[..=end].iter().enumerate() {
        match (byte, start) {
            (b' ' | b'\r' | b'\n' | b'\t', Some(from)) => {
                arguments.ranges.push((from, at));
                start = None;
            }
            (b' ' | b'\r' | b'\n' | b'\t', None) => {}
            (byte, _) if *byte < b' ' || *byte == 0x7f => return Err(FrameError::Malformed),
            (_, None) => start = Some(at),
            (_, Some(_)) => {}
        }
    }
    Ok(Some(end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Option<(Vec<String>, usize)>, FrameError> {
        let mut arguments = Arguments::default();
        let limits = Limits { frame: 64, arguments: 4 };
        let taken = read_arguments(bytes, limits, &mut arguments)?;
        Ok(taken.map(|taken| {
            let text = |at| String::from_utf8_lossy(arguments.get(bytes, at).unwrap()).into();
            ((0..arguments.len()).map(text).collect(), taken)
        }))
    }

    #[test]
    fn a_request_is_read_once_it_is_complete_and_not_before() {
        let bytes = b"*2\r\n$4\r\nPING\r\n$3\r\na\r\n\r\n*1";
        let whole = bytes.len() - 2;
        for end in 0..whole {
            assert_eq!(read(&bytes[..end]), Ok(None), "{end}");
        }
        assert_eq!(read(bytes), Ok(Some((vec!["PING".into(), "a\r\n".into()], whole))));
        assert_eq!(read(b"*0\r\n"), Ok(Some((vec![], 4))));
    }

    #[test]
    fn lengths_may_have_one_digit_or_two_or_more() {
        for bytes in [
            &b"*1\r\n$7\r\nuser:42\r\n"[..],
            b"*1\r\n$07\r\nuser:42\r\n",
            b"*01\r\n$000007\r\nuser:42\r\n",
        ] {
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Ok(None), "{end}");
            }
            assert_eq!(read(bytes), Ok(Some((vec!["user:42".into()], bytes.len()))));
        }
        let twelve = b"*1\r\n$12\r\nuser:1234567\r\n";
        assert_eq!(read(twelve), Ok(Some((vec!["user:1234567".into()], twelve.len()))));
    }

    #[test]
    fn a_line_of_words_is_a_request_too() {
        let words = |text: &[u8]| read(text).unwrap().unwrap();
        assert_eq!(words(b" LOCK  user:42\r\nrest"), (vec!["LOCK".into(), "user:42".into()], 16));
        assert_eq!(words(b"PING\n"), (vec!["PING".into()], 5));
        assert_eq!(words(b"\r\n"), (vec![], 2));
        assert_eq!(read(b"PING"), Ok(None));
    }

    #[test]
    fn what_is_not_a_request_is_refused_as_soon_as_it_shows() {
        for bad in [
            &b"*x"[..],
            b"*1\r\n:1\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$\r\n",
            b"*1\r\n$1x\r\n",
            b"*1\r\n$1\n",
            b"*1\r\n$1\r\nabc",
            b"*1\rx",
            b"*\r\n",
            b"*12345678901",
            b"\x00\x01\n",
            b"*1\r\n$1\r\na\rb",
        ] {
            assert_eq!(read(bad), Err(FrameError::Malformed), "{bad:?}");
        }
        assert_eq!(read(b"*1\r\n$65\r\n"), Err(FrameError::TooLong(64)), "before it is there");
        assert_eq!(read(b"*5\r\n"), Err(FrameError::TooMany(4)));
        assert_eq!(read(&[b'a'; 64]), Err(FrameError::TooLong(64)));
        assert_eq!(read(b"\x16\x03\x01"), Err(FrameError::Tls));
        assert_eq!(read(b"POST /v1/locks HTTP/1.1\r\n"), Err(FrameError::Http));
        for error in [FrameError::Malformed, FrameError::Http, FrameError::TooLong(1)] {
            assert!(!error.to_string().is_empty());
        }
    }
}
