//! The bodies of the targets `resp` (what a server reads) and `reply` (what a client reads).
//!
//! The first byte of an input says how the rest is cut into pieces, so that a corpus can be read,
//! and written, by people.

use keylatch_wire::{
    Arguments, FrameError, Limits, Protocol, Request, Value, ValueError, WordError, Writer,
    read_arguments, read_value, write_lock, write_task,
};

use crate::random::Random;

/// What came out of a stream.
#[derive(Clone, Debug, PartialEq)]
enum Heard {
    Request(Box<Result<Request, WordError>>),
    /// A line without words.
    Nothing,
    /// Nothing more is read after this.
    Broken(FrameError),
}

/// A connection's bytes and what was understood of them.
#[derive(Default)]
struct Connection {
    buffer: Vec<u8>,
    heard: Vec<Heard>,
}

impl Connection {
    /// As the server does it: everything that is whole is taken from the front.
    fn receive(&mut self, piece: &[u8], limits: Limits) {
        if matches!(self.heard.last(), Some(Heard::Broken(_))) {
            return;
        }
        self.buffer.extend_from_slice(piece);
        let mut arguments = Arguments::default();
        loop {
            match read_arguments(&self.buffer, limits, &mut arguments) {
                Ok(None) => break,
                Ok(Some(taken)) => {
                    assert!(taken <= limits.frame.max(4), "{taken} bytes for one request");
                    assert!(arguments.len() <= limits.arguments.max(taken), "too many arguments");
                    self.heard.push(hear(&self.buffer, &arguments));
                    self.buffer.drain(..taken);
                }
                Err(error) => {
                    self.heard.push(Heard::Broken(error));
                    self.buffer.clear();
                    return;
                }
            }
        }
        let left = self.buffer.len();
        assert!(left <= limits.frame, "{left} bytes are kept for a request that is not complete");
    }
}

fn hear(buffer: &[u8], arguments: &Arguments) -> Heard {
    if arguments.is_empty() {
        return Heard::Nothing;
    }
    let request = Request::read(buffer, arguments);
    match &request {
        Ok(Request::Lock(_) | Request::Task(_)) => {
            let mut bytes = Vec::new();
            match &request {
                Ok(Request::Lock(lock)) => write_lock(lock, &mut bytes),
                Ok(Request::Task(task)) => write_task(task, &mut bytes),
                other => unreachable!("one of those: {other:?}"),
            }
            let mut again = Arguments::default();
            let limits = Limits { frame: usize::MAX, arguments: usize::MAX };
            let taken = read_arguments(&bytes, limits, &mut again);
            assert_eq!(taken, Ok(Some(bytes.len())), "what a client writes is a request");
            let written = Request::read(&bytes, &again);
            assert_eq!(written, request, "what a client writes is what it meant");
        }
        Ok(_) => {}
        Err(error) => {
            assert!(error.code.bytes().all(|byte| byte.is_ascii_uppercase()), "{error}");
        }
    }
    Heard::Request(Box::new(request))
}

/// Cuts bytes into pieces that are a few bytes long, or longer.
fn pieces(seed: u8, bytes: &[u8]) -> Vec<&[u8]> {
    let mut random = Random::new(u64::from(seed));
    let longest = 1 << (1 + seed % 8);
    let (mut pieces, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let length = (1 + random.below(longest) as usize).min(rest.len());
        let (piece, behind) = rest.split_at(length);
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// However the bytes come, the same requests come out, and nothing is kept beyond a frame.
pub fn resp(input: &[u8]) {
    let Some((&seed, bytes)) = input.split_first() else { return };
    // Half of the inputs are near the bounds.
    let limits = match seed % 2 {
        0 => Limits::default(),
        _ => Limits { frame: 256, arguments: 8 },
    };
    let mut in_pieces = Connection::default();
    for piece in pieces(seed, bytes) {
        in_pieces.receive(piece, limits);
    }
    // A read of the server is bounded as well, so bytes that come together come in such pieces.
    let mut together = Connection::default();
    for piece in bytes.chunks(limits.frame / 2) {
        together.receive(piece, limits);
    }
    assert_eq!(in_pieces.heard, together.heard, "it depends on how the bytes come");
    assert_eq!(in_pieces.buffer, together.buffer, "it depends on how the bytes come");
}

/// Bytes as a client reads them, and values as a server writes them.
pub fn reply(input: &[u8]) {
    let Some((&seed, bytes)) = input.split_first() else { return };
    match seed % 3 {
        0 => any_reply(bytes),
        1 => written_reply(bytes, Protocol::Resp2),
        _ => written_reply(bytes, Protocol::Resp3),
    }
}

/// A value is there when its last byte is, not before, and an error stays one.
fn any_reply(bytes: &[u8]) {
    let whole = read_value(bytes);
    let end = match &whole {
        Ok(Some((value, taken))) => {
            assert!(*taken <= bytes.len());
            assert!(parts(value) <= *taken, "more parts than bytes");
            assert!(bytes[..*taken].ends_with(b"\r\n"), "it does not end with a line");
            *taken
        }
        Ok(None) | Err(_) => bytes.len(),
    };
    // All prefixes of short inputs, some of long ones.
    for at in (0..end).step_by(1 + end / 64) {
        let part = read_value(&bytes[..at]);
        match &whole {
            Err(error) => assert!(part == Ok(None) || part == Err(*error), "{part:?}"),
            _ => assert_eq!(part, Ok(None), "{at} of {end} bytes are enough"),
        }
    }
    if let Ok(Some((value, taken))) = &whole {
        let again = read_value(&bytes[..*taken]);
        // NaN differs from itself.
        assert_eq!(
            format!("{again:?}"),
            format!("{:?}", Ok::<_, ValueError>(Some((value, taken))))
        );
    }
}

/// How many values are in it.
fn parts(value: &Value) -> usize {
    match value {
        Value::Array(values) | Value::Push(values) => 1 + values.iter().map(parts).sum::<usize>(),
        Value::Map(pairs) => {
            1 + pairs.iter().map(|(key, value)| parts(key) + parts(value)).sum::<usize>()
        }
        _ => 1,
    }
}

fn written_reply(bytes: &[u8], protocol: Protocol) {
    let mut out = Vec::new();
    let mut from = bytes.iter().copied();
    let mut writer = Writer { out: &mut out, protocol };
    let expected = write(&mut from, &mut writer, 8);
    let length = out.len();
    assert_eq!(read_value(&out), Ok(Some((expected.clone(), length))), "it reads back");
    // What follows is left alone.
    out.extend(from);
    assert_eq!(read_value(&out), Ok(Some((expected, length))), "it reads back");
}

/// Writes a value that the bytes choose, and returns how a client should see it.
fn write(from: &mut impl Iterator<Item = u8>, writer: &mut Writer<'_>, depth: usize) -> Value {
    let resp3 = writer.protocol == Protocol::Resp3;
    let kind = from.next().unwrap_or(0);
    let count = usize::from(kind >> 4);
    match (kind % 9, depth) {
        (1, _) => {
            let text: String =
                from.take(count).filter(u8::is_ascii_graphic).map(char::from).collect();
            writer.simple(&text);
            Value::Simple(text)
        }
        (2, _) => {
            let text: String = from.take(count).map(char::from).collect();
            writer.error("CODE", &text);
            Value::Error(format!("CODE {}", text.replace(['\r', '\n'], " ")))
        }
        (3, _) => {
            let bytes = [0; 8].map(|_| from.next().unwrap_or(0));
            let number = u64::from_le_bytes(bytes);
            writer.unsigned(number);
            Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
        }
        (4, _) => {
            let bytes: Vec<u8> = from.take(count).collect();
            writer.bulk(&bytes);
            Value::Bulk(bytes)
        }
        (5, 1..) => {
            writer.array(count);
            Value::Array((0..count).map(|_| write(from, writer, depth - 1)).collect())
        }
        (6, 1..) => {
            writer.push(count);
            let values = (0..count).map(|_| write(from, writer, depth - 1)).collect();
            if resp3 { Value::Push(values) } else { Value::Array(values) }
        }
        (7, 1..) => {
            writer.map(count);
            let values: Vec<Value> =
                (0..2 * count).map(|_| write(from, writer, depth - 1)).collect();
            if !resp3 {
                return Value::Array(values);
            }
            let mut values = values.into_iter();
            Value::Map(std::iter::from_fn(|| values.next().zip(values.next())).collect())
        }
        (8, _) => {
            let number = from.next().map_or(0, |byte| -i64::from(byte));
            writer.integer(number);
            Value::Integer(number)
        }
        _ => {
            writer.null();
            Value::Null
        }
    }
}
