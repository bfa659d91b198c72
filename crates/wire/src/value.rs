//! Replies as a client reads them.

/// A reply, or a push.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+OK`.
    Simple(String),
    /// `-CODE what to do`.
    Error(String),
    /// A number.
    Integer(i64),
    /// Text or bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Null,
    /// True or false (RESP3).
    Bool(bool),
    /// A floating-point number (RESP3).
    Double(f64),
    /// Several.
    Array(Vec<Value>),
    /// Pairs (RESP3).
    Map(Vec<(Value, Value)>),
    /// What was not asked for (RESP3).
    Push(Vec<Value>),
}

/// Bytes that are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not RESP.
    #[error("the reply is not RESP")]
    Malformed,
    /// Longer than a client should take.
    #[error("the reply is too long or nested too deeply")]
    TooLong,
}

/// Values inside values.
const DEEPEST: usize = 16;
/// Bytes of one string, and parts of one array.
const LONGEST: usize = 512 * 1024 * 1024;

/// Reads one value from the front of `buffer`. Returns it and how many bytes it took; `None` if it
/// is not complete yet.
pub fn read_value(buffer: &[u8]) -> Result<Option<(Value, usize)>, ValueError> {
    let mut at = 0;
    Ok(read(buffer, &mut at, DEEPEST)?.map(|value| (value, at)))
}

fn read(buffer: &[u8], at: &mut usize, depth: usize) -> Result<Option<Value>, ValueError> {
    let Some(depth) = depth.checked_sub(1) else { return Err(ValueError::TooLong) };
    let Some((kind, line)) = read_line(buffer, at)? else { return Ok(None) };
    let text = || String::from_utf8_lossy(line).into_owned();
    Ok(Some(match kind {
        b'+' | b'(' => Value::Simple(text()),
        b'-' => Value::Error(text()),
        b':' => Value::Integer(number(line)?),
        b'_' => Value::Null,
        b'#' => Value::Bool(line == b"t"),
        b',' => Value::Double(text().parse().map_err(|_| ValueError::Malformed)?),
        b'$' | b'=' | b'!' => match number(line)? {
            -1 => Value::Null,
            length => {
                let length = bounded(length)?;
                let Some(bytes) = buffer.get(*at..*at + length + 2) else { return Ok(None) };
                *at += length + 2;
                let bytes = bytes.strip_suffix(b"\r\n").ok_or(ValueError::Malformed)?.to_vec();
                if kind == b'!' {
                    Value::Error(String::from_utf8_lossy(&bytes).into_owned())
                } else {
                    Value::Bulk(bytes)
                }
            }
        },
        b'*' | b'~' | b'>' if number(line)? == -1 => Value::Null,
        b'*' | b'~' | b'>' => {
            let Some(values) = read_all(buffer, at, bounded(number(line)?)?, depth)? else {
                return Ok(None);
            };
            if kind == b'>' { Value::Push(values) } else { Value::Array(values) }
        }
        b'%' => {
            let count = bounded(number(line)?)?;
            let Some(values) = read_all(buffer, at, 2 * count, depth)? else { return Ok(None) };
            let mut values = values.into_iter();
            let pairs = std::iter::from_fn(|| values.next().zip(values.next()));
            Value::Map(pairs.collect())
        }
        _ => return Err(ValueError::Malformed),
    }))
}

fn read_all(
    buffer: &[u8],
    at: &mut usize,
    count: usize,
    depth: usize,
) -> Result<Option<Vec<Value>>, ValueError> {
    // A part takes three bytes at least: nothing is set aside for what cannot be there.
    let mut values = Vec::with_capacity(count.min((buffer.len() - *at) / 3));
    for _ in 0..count {
        let Some(value) = read(buffer, at, depth)? else { return Ok(None) };
        values.push(value);
    }
    Ok(Some(values))
}

/// The kind of the next value and the rest of its first line.
fn read_line<'b>(buffer: &'b [u8], at: &mut usize) -> Result<Option<(u8, &'b [u8])>, ValueError> {
    let rest = &buffer[*at..];
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = rest[..end].strip_suffix(b"\r").ok_or(ValueError::Malformed)?;
    let (kind, line) = line.split_first().ok_or(ValueError::Malformed)?;
    *at += end + 1;
    Ok(Some((*kind, line)))
}

fn number(line: &[u8]) -> Result<i64, ValueError> {
    let text = std::str::from_utf8(line).map_err(|_| ValueError::Malformed)?;
    text.parse().map_err(|_| ValueError::Malformed)
}

fn bounded(number: i64) -> Result<usize, ValueError> {
    let length = usize::try_from(number).map_err(|_| ValueError::Malformed)?;
    if length > LONGEST { Err(ValueError::TooLong) } else { Ok(length) }
}

impl Value {
    /// The value of a field of a map, or of a flat array of pairs (RESP2).
    pub fn field(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Map(pairs) => pairs.iter().find(|(key, _)| key.is(name)).map(|(_, value)| value),
            Value::Array(values) => {
                let mut pairs = values.chunks_exact(2);
                pairs.find(|pair| pair[0].is(name)).map(|pair| &pair[1])
            }
            _ => None,
        }
    }

    /// As text, if it is text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Simple(text) => Some(text),
            Value::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// As a number, if it is one.
    pub fn integer(&self) -> Option<i64> {
        if let Value::Integer(number) = self { Some(*number) } else { None }
    }

    /// Whether it is this text.
    pub fn is(&self, text: &str) -> bool {
        self.text() == Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_once_they_are_complete_and_not_before() {
        let bytes = b"%2\r\n+a\r\n*3\r\n:1\r\n_\r\n#t\r\n$2\r\nb\r\r\n,1.5\r\n";
        let a = Value::Array(vec![Value::Integer(1), Value::Null, Value::Bool(true)]);
        let b = (Value::Bulk(b"b\r".to_vec()), Value::Double(1.5));
        let map = Value::Map(vec![(Value::Simple("a".into()), a), b]);
        for end in 0..bytes.len() {
            assert_eq!(read_value(&bytes[..end]), Ok(None), "{end}");
        }
        assert_eq!(read_value(bytes), Ok(Some((map, bytes.len()))));
    }

    #[test]
    fn fields_are_found_in_maps_and_in_flat_pairs() {
        for bytes in [&b"%1\r\n+token\r\n:7\r\n"[..], b"*2\r\n$5\r\ntoken\r\n:7\r\n"] {
            let (value, _) = read_value(bytes).unwrap().unwrap();
            assert_eq!(value.field("token").and_then(Value::integer), Some(7));
            assert_eq!(value.field("owner"), None);
        }
        assert_eq!(Value::Null.field("x"), None);
        assert_eq!((Value::Null.text(), Value::Null.integer()), (None, None));
    }

    #[test]
    fn other_kinds_are_read_too() {
        let kinds: [(&[u8], Value); 7] = [
            (b"-ERR no\r\n", Value::Error("ERR no".into())),
            (b"$-1\r\n", Value::Null),
            (b"*-1\r\n", Value::Null),
            (b"!6\r\nERR no\r\n", Value::Error("ERR no".into())),
            (b"(123\r\n", Value::Simple("123".into())),
            (b">1\r\n+a\r\n", Value::Push(vec![Value::Simple("a".into())])),
            (b"~0\r\n", Value::Array(vec![])),
        ];
        for (bytes, value) in kinds {
            assert_eq!(read_value(bytes), Ok(Some((value, bytes.len()))));
        }
    }

    #[test]
    fn nonsense_is_refused_and_nothing_is_set_aside_for_it() {
        for bad in [&b"?\r\n"[..], b"\r\n", b":x\r\n", b"+a\n", b"$-2\r\n", b",x\r\n", b"$1\r\nabc"]
        {
            assert_eq!(read_value(bad), Err(ValueError::Malformed), "{bad:?}");
        }
        assert_eq!(read_value(b"$9999999999\r\n"), Err(ValueError::TooLong));
        assert_eq!(read_value(b"*500000000\r\n"), Ok(None));
        assert_eq!(read_value(&b"*1\r\n".repeat(17)), Err(ValueError::TooLong));
    }
}
