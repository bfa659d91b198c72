//! Finds where one JSON value of a stream ends, a byte at a time, and says at once when it cannot
//! be JSON. The enqueue protocol has no framing, so this is its framing; `split` drives it.
//!
//! It is the grammar of RFC 8259 as an automaton, except that strings may be any bytes from `0x20`
//! (whoever takes the value checks the UTF-8). Nothing is looked at twice, so the time is linear
//! however the bytes arrive.
//!
//! | state | what may come |
//! |---|---|
//! | `Between` | white space, or the first byte of a top-level value |
//! | `Value` | a value, after `:` or `,` |
//! | `FirstItem`, `FirstKey` | a value or `]`; a key or `}` |
//! | `Key`, `Colon` | a key, after `,`; the `:` after it |
//! | `After` | `,` or what closes the innermost object or array |
//! | `Text`, `Escape`, `Hex` | inside a string, which is a key if `key` says so |
//! | `Literal` | the rest of `null`, `true` or `false` |
//! | `Number` | more of a number, or whatever may come after it |
//!
//! A number alone does not show its end. Waiting for the next byte would leave its sender without
//! an answer, so a top-level number counts as seen at its first digit ([`Step::Number`]), wherever
//! segments end, and the rest of it is read without another word.

/// How deep objects and arrays may be nested. Requests need 3; 64 is what one `u64` remembers.
pub(crate) const DEPTH: u32 = u64::BITS;

/// What one byte led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing yet.
    More,
    /// A top-level number has begun; its value is of no interest to anyone.
    Number,
    /// The top-level value that is not a number ends with this byte.
    Whole,
    /// No JSON goes on like this.
    NotJson,
    /// Nested deeper than [`DEPTH`].
    TooDeep,
}

/// The automaton.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    state: State,
    /// How many objects and arrays are open: at most [`DEPTH`].
    depth: u32,
    /// One bit for each of them, the innermost lowest: 1 is an object.
    objects: u64,
    /// Whether the string being read is a key.
    key: bool,
    /// Bytes of the present top-level value so far; 0 between values.
    length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Between,
    Value,
    FirstItem,
    FirstKey,
    Key,
    Colon,
    After,
    Text,
    Escape,
    /// So many hexadecimal digits are still to come.
    Hex(u8),
    Literal(&'static [u8]),
    Number(Part),
}

/// The part of a number that was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl Part {
    fn may_be_last(self) -> bool {
        matches!(self, Part::Zero | Part::Whole | Part::Fraction | Part::Exponent)
    }

    /// Whether the number is whole, and `byte` is no part of it.
    fn ends_before(self, byte: u8) -> bool {
        self.may_be_last() && self.then(byte).is_none()
    }

    /// The part that `byte` belongs to, if the number goes on with it.
    fn then(self, byte: u8) -> Option<Part> {
        match (self, byte) {
            (Part::Minus, b'0') => Some(Part::Zero),
            (Part::Minus | Part::Whole, b'0'..=b'9') => Some(Part::Whole),
            (Part::Zero | Part::Whole, b'.') => Some(Part::Point),
            (Part::Point | Part::Fraction, b'0'..=b'9') => Some(Part::Fraction),
            (Part::Zero | Part::Whole | Part::Fraction, b'e' | b'E') => Some(Part::E),
            (Part::E, b'+' | b'-') => Some(Part::Sign),
            (Part::E | Part::Sign | Part::Exponent, b'0'..=b'9') => Some(Part::Exponent),
            _ => None,
        }
    }
}

impl Scan {
    pub(super) fn new() -> Scan {
        Scan { state: State::Between, depth: 0, objects: 0, key: false, length: 0 }
    }

    /// Bytes of the present value so far.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The length of a value that is [`Step::Whole`]; the next one begins at 0.
    pub(super) fn take_length(&mut self) -> usize {
        std::mem::take(&mut self.length)
    }

    /// Whether the input may end here.
    pub(super) fn may_end(&self) -> bool {
        match self.state {
            State::Between => true,
            State::Number(part) => self.depth == 0 && part.may_be_last(),
            _ => false,
        }
    }

    /// Takes the bytes of a string up to the first that may mean something, so few of them that the value has fewer than
    /// `most` bytes. Nothing else would come of taking them one by one; it is where most bytes are.
    pub(super) fn skip_text(&mut self, bytes: &[u8], most: usize) -> usize {
        if self.state != State::Text {
            return 0;
        }
        let bytes = &bytes[..bytes.len().min(most.saturating_sub(self.length + 1))];
        let ends = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
        let count = bytes.iter().position(ends).unwrap_or(bytes.len());
        self.length += count;
        count
    }

    /// Takes the next byte. After [`Step::NotJson`] and [`Step::TooDeep`] there is no next one.
    pub(super) fn feed(&mut self, byte: u8) -> Step {
        self.length += 1;
        match self.state {
            State::Text => self.text(byte),
            State::Number(part) if self.depth == 0 && part.ends_before(byte) => {
                self.state = State::Between;
                self.length = 0;
                // `01` is no number.
                if byte.is_ascii_digit() { Step::NotJson } else { self.feed(byte) }
            }
            State::Number(part) => self.number(part, byte),
            State::Between if is_space(byte) => {
                self.length = 0;
                Step::More
            }
            State::Value
            | State::FirstItem
            | State::FirstKey
            | State::Key
            | State::Colon
            | State::After
                if is_space(byte) =>
            {
                Step::More
            }
            State::FirstItem if byte == b']' => self.close(),
            State::Between | State::Value | State::FirstItem => self.begin(byte),
            State::FirstKey if byte == b'}' => self.close(),
            State::FirstKey | State::Key if byte == b'"' => self.begin_text(true),
            State::Colon if byte == b':' => self.go(State::Value),
            State::After => self.after(byte),
            State::Escape => match byte {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.go(State::Text),
                b'u' => self.go(State::Hex(4)),
                _ => Step::NotJson,
            },
            State::Hex(left) if byte.is_ascii_hexdigit() => {
                self.go(if left == 1 { State::Text } else { State::Hex(left - 1) })
            }
            State::Literal([next, rest @ ..]) if byte == *next => match rest {
                [] => self.end(),
                rest => self.go(State::Literal(rest)),
            },
            _ => Step::NotJson,
        }
    }

    fn go(&mut self, state: State) -> Step {
        self.state = state;
        Step::More
    }

    fn begin(&mut self, byte: u8) -> Step {
        match byte {
            b'{' => self.open(true),
            b'[' => self.open(false),
            b'"' => self.begin_text(false),
            b'n' => self.go(State::Literal(b"ull")),
            b't' => self.go(State::Literal(b"rue")),
            b'f' => self.go(State::Literal(b"alse")),
            b'-' => self.go(State::Number(Part::Minus)),
            b'0'..=b'9' => self.number(Part::Minus, byte),
            _ => Step::NotJson,
        }
    }

    fn begin_text(&mut self, key: bool) -> Step {
        self.key = key;
        self.go(State::Text)
    }

    fn text(&mut self, byte: u8) -> Step {
        match byte {
            b'"' if self.key => self.go(State::Colon),
            b'"' => self.end(),
            b'\\' => self.go(State::Escape),
            0x00..0x20 => Step::NotJson,
            _ => Step::More,
        }
    }

    fn number(&mut self, part: Part, byte: u8) -> Step {
        match part.then(byte) {
            Some(next) => {
                self.state = State::Number(next);
                if part == Part::Minus && self.depth == 0 { Step::Number } else { Step::More }
            }
            None if part.may_be_last() && is_space(byte) => self.go(State::After),
            None if part.may_be_last() => self.after(byte),
            None => Step::NotJson,
        }
    }

    fn after(&mut self, byte: u8) -> Step {
        let in_object = self.objects & 1 == 1;
        match byte {
            b',' => self.go(if in_object { State::Key } else { State::Value }),
            b'}' if in_object => self.close(),
            b']' if !in_object => self.close(),
            _ => Step::NotJson,
        }
    }

    fn open(&mut self, object: bool) -> Step {
        if self.depth == DEPTH {
            return Step::TooDeep;
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u64::from(object);
        self.go(if object { State::FirstKey } else { State::FirstItem })
    }

    fn close(&mut self) -> Step {
        self.depth -= 1;
        self.objects >>= 1;
        self.end()
    }

    /// A value that is not a number ends with this byte.
    fn end(&mut self) -> Step {
        if self.depth == 0 {
            self.state = State::Between;
            Step::Whole
        } else {
            self.go(State::After)
        }
    }
}

fn is_space(byte: u8) -> bool {
    byte <= b' ' && matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
