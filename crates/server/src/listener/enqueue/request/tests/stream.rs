//! Where requests end: everything that is not JSON, every bound, and streams split at random.

use serde::de::IgnoredAny;

use super::super::scan::{DEPTH, Scan, Step};
use super::*;

#[test]
fn whatever_is_json_but_no_object_is_answered_and_the_connection_goes_on() {
    let values =
        ["null", "true", "false", r#""x""#, r#""{""#, "[]", r#"[{"OP":"4"}]"#, "-0.5e+7", "42"];
    for value in values {
        for json in
            [format!("{value} {LIST}"), format!("{value}{LIST}"), format!("{value}\n{LIST}\n")]
        {
            let outcomes = whole(&json);
            let refused = Request::Bad("A request must be a JSON object!".into());
            assert_eq!(outcomes, [Ok(refused), Ok(no_filter())], "{json}");
        }
    }
}

#[test]
fn a_lone_number_is_answered_once_and_at_once() {
    let refused = || Ok(Request::Bad("A request must be a JSON object!".into()));
    assert_eq!(whole("4"), [refused()]);
    assert_eq!(split(["4", "2", ".", "5", "e", "7", " "].map(str::as_bytes)), [refused()]);
    assert_eq!(split(["-", "1", "\n2"].map(str::as_bytes)), [refused(), refused()]);
    for (json, why) in
        [("-", Malformed::Cut), ("-x", Malformed::NotJson), ("- 1", Malformed::NotJson)]
    {
        assert_eq!(whole(json), [Err(why)], "{json}");
    }
    for json in ["1.x", "01", "1e+}", "1.e5"] {
        assert_eq!(whole(json), [refused(), Err(Malformed::NotJson)], "{json}");
    }
    for json in ["1.", "1e", "1e-"] {
        assert_eq!(whole(json), [refused(), Err(Malformed::Cut)], "{json}");
    }
    let digits = "1".repeat(MAX_FRAME + 1);
    assert_eq!(whole(digits), [refused(), Err(Malformed::TooLong(MAX_FRAME))]);
}

#[test]
fn bytes_that_are_not_json_end_the_connection_at_the_first_bad_byte() {
    let bad: [&[u8]; 30] = [
        b"x",
        b"GET / HTTP/1.1\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"}",
        b"]",
        b",",
        b"\0",
        b"\xef\xbb\xbf{}",
        b"\x80",
        b"'OP'",
        b"nul ",
        b"nulL",
        b"tru{",
        b"NaN",
        b"{]",
        b"{,",
        b"{'OP'",
        b"{OP",
        b"{\"OP\" \"1\"",
        b"{\"OP\":}",
        b"{\"OP\":\"1\",}",
        b"{\"OP\":\"1\"]",
        b"{\"OP\":1 2",
        b"{\"OP\":01",
        b"{\"OP\":.5",
        b"{\"OP\":+5",
        b"[1,]",
        b"[}",
        b"\"line\nbreak",
        b"\"\\x",
    ];
    for bytes in bad {
        // A request after it is discarded, and so is one that comes later.
        let stream = [bytes, LIST.as_bytes()].concat();
        assert_eq!(whole(&stream), [Err(Malformed::NotJson)], "{}", bytes.escape_ascii());
        let outcomes = split([bytes, LIST.as_bytes(), b"more", LIST.as_bytes()]);
        assert_eq!(outcomes, [Err(Malformed::NotJson)], "{}", bytes.escape_ascii());
        // One before it is carried out.
        let stream = [LIST.as_bytes(), bytes].concat();
        assert_eq!(whole(stream), [Ok(no_filter()), Err(Malformed::NotJson)]);
    }
    for bytes in [&b"\"\\u12g"[..], b"{\"a\\", b"\"\\u123", b"{", b"[[", b"\"", b"t", b"{\"a\":1"] {
        let bad = if bytes.contains(&b'g') { Malformed::NotJson } else { Malformed::Cut };
        assert_eq!(whole(bytes), [Err(bad)], "{}", bytes.escape_ascii());
    }
}

#[test]
fn text_that_is_not_utf8_is_not_json() {
    for bytes in [&b"\"\xff\""[..], b"{\"OP\":\"4\",\"x\":\"\xc3\"}", b"{\"\xed\xa0\x80\":1}"] {
        assert_eq!(whole([bytes, LIST.as_bytes()].concat()), [Err(Malformed::NotJson)]);
    }
}

#[test]
fn a_frame_may_be_as_long_as_the_bound_and_no_longer() {
    let fill = |length: usize| {
        let empty = r#"{"OP":"4","x":""}"#.len();
        format!(r#"{{"OP":"4","x":"{}"}}"#, "x".repeat(length - empty))
    };
    assert_eq!(one(&fill(MAX_FRAME)), no_filter());
    let long = fill(MAX_FRAME + 1);
    assert_eq!(whole(&long), [Err(Malformed::TooLong(MAX_FRAME))]);
    assert_eq!(split(long.as_bytes().chunks(1000)), [Err(Malformed::TooLong(MAX_FRAME))]);
    // It is refused as soon as it is known, not when it ends.
    assert_eq!(whole(&long[..MAX_FRAME]), [Err(Malformed::TooLong(MAX_FRAME))]);
    assert_eq!(whole(&long[..MAX_FRAME - 1]), [Err(Malformed::Cut)]);
    let array = "[".to_owned() + &" ".repeat(MAX_FRAME);
    assert_eq!(whole(array), [Err(Malformed::TooLong(MAX_FRAME))]);
    // White space between requests is no part of them.
    let spaces = " ".repeat(3 * MAX_FRAME) + LIST;
    assert_eq!(whole(spaces), [Ok(no_filter())]);
}

#[test]
fn nesting_is_bounded() {
    let depth = DEPTH as usize;
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let inside = format!(r#"{{"OP":"4","x":{}}}"#, nested(depth - 1));
    assert_eq!(one(&inside), no_filter());
    let objects = r#"{"x":"#.repeat(depth - 1) + "{}" + &"}".repeat(depth - 1);
    assert_eq!(bad(&objects), "OP is missing!");
    let mixed = r#"{"x":["#.repeat(depth / 2) + &"]}".repeat(depth / 2);
    assert_eq!(bad(&mixed), "OP is missing!");
    let inside = format!(r#"{{"OP":"4","x":{}}}"#, nested(depth));
    assert_eq!(whole(inside), [Err(Malformed::TooDeep)]);
    assert_eq!(whole("[".repeat(depth + 1)), [Err(Malformed::TooDeep)]);
    assert_eq!(whole("[".repeat(depth)), [Err(Malformed::Cut)]);
}

#[test]
fn several_requests_come_in_one_segment_and_one_in_many() {
    let all =
        [LOCK, UNLOCK, PROMOTE, LIST].map(|json| Ok(one(json))).into_iter().collect::<Vec<_>>();
    for between in ["", " ", "\r\n", "\n\n\t "] {
        let stream = [LOCK, UNLOCK, PROMOTE, LIST].join(between);
        assert_eq!(whole(&stream), all);
        assert_eq!(split(stream.as_bytes().chunks(1)), all);
        for at in 0..stream.len() {
            let (first, second) = stream.as_bytes().split_at(at);
            assert_eq!(split([first, second]), all, "{at}");
        }
    }
}

#[test]
fn nothing_comes_of_nothing() {
    assert_eq!(whole(""), []);
    assert_eq!(whole(" \r\n\t "), []);
    assert_eq!(split([]), []);
}

#[test]
fn what_is_malformed_says_why() {
    for (malformed, message) in [
        (Malformed::NotJson, "The request is not JSON!"),
        (Malformed::TooDeep, "The request is nested deeper than 64!"),
        (Malformed::TooLong(131_072), "The request is longer than 131072 bytes!"),
        (Malformed::Cut, "The request ends too early!"),
    ] {
        assert_eq!(malformed.to_string(), message);
    }
}

/// `SplitMix64`: enough for tests, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }

    fn segments<'a>(&mut self, mut stream: &'a [u8], longest: usize) -> Vec<&'a [u8]> {
        let mut segments = Vec::new();
        while !stream.is_empty() {
            let (segment, rest) = stream.split_at((1 + self.below(longest)).min(stream.len()));
            segments.push(segment);
            stream = rest;
        }
        segments
    }
}

/// JSON and nearly JSON.
const PIECES: [&str; 34] = [
    LOCK,
    UNLOCK,
    PROMOTE,
    LIST,
    "null",
    "true",
    "[1,[2]]",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\"a\"",
    "\"\\u00e9\\\"\"",
    "\\",
    " ",
    "\n",
    "0",
    "-1.5e+3",
    "12",
    "-",
    ".",
    "e",
    "\"OP\"",
    "\"1\"",
    "{\"OP\":",
    "{\"a\":[",
    "]}",
    "\u{e9}",
    "\"\u{1f512}",
    "[]",
    "{}",
];

#[test]
fn requests_are_the_same_wherever_the_stream_is_split() {
    let mut random = Random(20_261_115);
    for _ in 0..300 {
        let mut stream = String::new();
        let mut wanted = Vec::new();
        for _ in 0..random.below(30) {
            let json = random.pick(&[LOCK, UNLOCK, PROMOTE, LIST, "{}", "null", "[{\"a\":\"]\"}]"]);
            stream += json;
            stream += random.pick(&["", "", " ", "\r\n", "  \t"]);
            wanted.push(Ok(one(json)));
        }
        for longest in [3, 50, 2_000] {
            let segments = random.segments(stream.as_bytes(), longest);
            assert_eq!(split(segments), wanted);
        }
    }
}

#[test]
fn nearly_json_comes_out_the_same_wherever_it_is_split() {
    let mut random = Random(3_721);
    for _ in 0..20_000 {
        let stream = (0..random.below(8)).map(|_| random.pick(&PIECES)).collect::<String>();
        let wanted = whole(&stream);
        let segments = random.segments(stream.as_bytes(), 5);
        assert_eq!(split(segments), wanted, "{stream}");
    }
}

#[test]
fn the_scan_finds_whole_exactly_what_serde_finds_whole() {
    let mut random = Random(8_259);
    let (mut agreed, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let inside = (0..random.below(7)).map(|_| random.pick(&PIECES)).collect::<String>();
        let (open, close) = random.pick(&[&("{", "}"), &("[", "]"), &("\"", "\"")]);
        let text = format!("{open}{inside}{close}");
        let mut scan = Scan::new();
        let mut steps = text.bytes().map(|byte| scan.feed(byte));
        let at = steps.position(|step| step != Step::More);
        let ends = at == Some(text.len() - 1) && scan.may_end();
        assert_eq!(ends, serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{text}");
        if ends { agreed += 1 } else { refused += 1 }
    }
    assert!(agreed > 5_000 && refused > 5_000, "{agreed} {refused}");
}

#[test]
fn random_bytes_never_panic_and_never_pile_up() {
    let mut random = Random(65_535);
    for round in 0..5_000 {
        let max_frame = [1, 2, 16, 64, 1_000][round % 5];
        let mut splitter = Splitter::new();
        let mut buffer = Vec::new();
        for _ in 0..random.below(20) {
            let before = buffer.len();
            match random.below(3) {
                0 => buffer.extend((0..random.below(50)).map(|_| random.next() as u8)),
                1 => {
                    buffer.extend((0..random.below(50)).map(|_| b"{}[]\",:\\ 0"[random.below(10)]));
                }
                _ => buffer.extend_from_slice(random.pick(&PIECES).as_bytes()),
            }
            let most = buffer.len();
            assert!(before <= max_frame);
            while splitter.next(&mut buffer, max_frame).is_some() {
                assert!(buffer.len() <= most);
            }
            assert!(buffer.len() <= max_frame);
        }
        let _ = splitter.end();
    }
}

#[test]
fn every_byte_is_handled_a_bounded_number_of_times() {
    let large = format!(r#"{{"OP":"4","x":"{}"}}"#, "x".repeat(100_000));
    let small = "{}".repeat(50_000);
    let mixed = format!("{LIST}{large}{small}{large} {LOCK}").repeat(3);
    let mut random = Random(1);
    for stream in [large.repeat(3), small, " ".repeat(100_000), "1".repeat(100_000), mixed] {
        for longest in [1, 7, 1_000, usize::MAX] {
            let mut splitter = Splitter::new();
            let mut buffer = Vec::new();
            for segment in random.segments(stream.as_bytes(), longest.min(stream.len())) {
                buffer.extend_from_slice(segment);
                while splitter.next(&mut buffer, MAX_FRAME).is_some() {}
            }
            assert!(!splitter.is_closed());
            // Scanned once, decoded once, moved at most twice.
            assert!(splitter.work <= 4 * stream.len(), "{} {}", splitter.work, stream.len());
        }
    }
}
