//! A walk through objects and arrays, of which names and values come out as the text they are. The scan has seen that
//! it is JSON, so it is cut here and not judged again: each byte once more, and nothing is copied.

use std::borrow::Cow;

/// How far the walk has come.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    rest: &'a str,
}

impl<'a> Walk<'a> {
    /// Before a whole value.
    pub(super) fn new(json: &'a str) -> Walk<'a> {
        Walk { rest: json }
    }

    /// Goes into the next value, if that is what this bracket opens: its names, values and items come next.
    pub(super) fn goes_into(&mut self, bracket: char) -> bool {
        self.skip_between();
        let inside = self.rest.strip_prefix(bracket);
        self.rest = inside.unwrap_or(self.rest);
        inside.is_some()
    }

    /// The next name, value or item, whole, with the quotes of a string; `None` where the object or array ends, and the walk is
    /// behind that then.
    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.skip_between();
        let bytes = self.rest.as_bytes();
        let end = match bytes.first()? {
            b'"' => text_end(bytes),
            b'{' | b'[' => nested_end(bytes),
            b'}' | b']' => {
                self.rest = &self.rest[1..];
                return None;
            }
            _ => bytes.iter().position(|byte| !is_bare(*byte)).unwrap_or(bytes.len()),
        };
        let (value, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(value)
    }

    fn skip_between(&mut self) {
        let between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':');
        let start = self.rest.as_bytes().iter().position(|byte| !between(byte));
        self.rest = &self.rest[start.unwrap_or(self.rest.len())..];
    }
}

/// What a string, with its quotes, says.
pub(super) fn text(raw: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    let inside = &raw[1..raw.len() - 1];
    if inside.bytes().any(|byte| byte == b'\\') {
        return serde_json::from_str(raw).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(inside))
}

/// Of a number, `null`, `true` or `false`.
fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// Where the string that begins here ends.
fn text_end(bytes: &[u8]) -> usize {
    let mut at = 1;
    loop {
        let rest = &bytes[at..];
        at += rest.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(rest.len());
        match bytes[at] {
            b'"' => return at + 1,
            _ => at += 2,
        }
    }
}

/// Where the object or array that begins here ends.
fn nested_end(bytes: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    loop {
        match bytes[at] {
            b'"' => {
                at += text_end(&bytes[at..]);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use serde_json::{Map, Value, json};

    use super::*;

    #[test]
    fn whatever_is_cut_and_put_together_again_is_what_a_json_library_reads() {
        let mut random = StdRng::seed_from_u64(4);
        for _ in 0..2_000 {
            let value = any(&mut random, 4);
            for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let read: Value = serde_json::from_str(&json).unwrap();
                assert_eq!(put_together(&json), read, "{json}");
            }
        }
    }

    fn any(random: &mut StdRng, depth: u32) -> Value {
        let text = |random: &mut StdRng| -> String {
            let letters = ['a', '"', '\\', '{', ']', ':', ',', ' ', '\n', '\u{1f512}', '\u{1}'];
            (0..random.random_range(0..4)).map(|_| letters[random.random_range(0..11)]).collect()
        };
        match random.random_range(0..if depth == 0 { 4 } else { 6 }) {
            0 => Value::Null,
            1 => json!(random.random_bool(0.5)),
            2 => json!(random.random_range(-1e9..1e9)),
            3 => Value::String(text(random)),
            4 => (0..random.random_range(0..4)).map(|_| any(random, depth - 1)).collect(),
            _ => Value::Object(
                (0..random.random_range(0..4))
                    .map(|_| (text(random), any(random, depth - 1)))
                    .collect(),
            ),
        }
    }

    fn put_together(json: &str) -> Value {
        let mut walk = Walk::new(json);
        if walk.goes_into('[') {
            return std::iter::from_fn(|| walk.next()).map(put_together).collect();
        }
        if walk.goes_into('{') {
            let member = || Some((walk.next()?, walk.next()?));
            return std::iter::from_fn(member)
                .map(|(name, value)| (text(name).unwrap().into_owned(), put_together(value)))
                .collect::<Map<_, _>>()
                .into();
        }
        let value = walk.next().unwrap();
        match value.as_bytes()[0] {
            b'"' => Value::String(text(value).unwrap().into_owned()),
            _ => serde_json::from_str(value).unwrap(),
        }
    }

    #[test]
    fn names_and_values_are_cut_where_they_end() {
        let json = r#"{ "a" : 1.5e3,"b\"{":[1,{"x":"]\\"},[]] , "":null,"c":"\u0041\n,:" }"#;
        let mut walk = Walk::new(json);
        assert!(!walk.goes_into('[') && walk.goes_into('{'));
        let parts = [
            r#""a""#,
            "1.5e3",
            r#""b\"{""#,
            r#"[1,{"x":"]\\"},[]]"#,
            r#""""#,
            "null",
            r#""c""#,
            r#""\u0041\n,:""#,
        ];
        assert!(std::iter::from_fn(|| walk.next()).eq(parts));
        assert_eq!(walk.rest, "", "it is behind the end");
    }

    #[test]
    fn one_can_go_into_a_value_and_on_behind_it() {
        let mut walk = Walk::new(r#"{"a":{"b":[ ],"c":-1},"d":[true]}"#);
        assert!(walk.goes_into('{') && walk.next() == Some(r#""a""#) && walk.goes_into('{'));
        assert_eq!([walk.next(), walk.next()], [Some(r#""b""#), Some("[ ]")]);
        assert_eq!([walk.next(), walk.next()], [Some(r#""c""#), Some("-1")]);
        assert_eq!([walk.next(), walk.next()], [None, Some(r#""d""#)]);
        assert_eq!([walk.next(), walk.next()], [Some("[true]"), None]);
    }

    #[test]
    fn texts_say_what_a_json_library_reads() {
        for raw in [r#""""#, r#""plain""#, r#""\u00e4 ä \\ \" \ud83d\udd12""#] {
            assert_eq!(text(raw).unwrap(), serde_json::from_str::<String>(raw).unwrap());
        }
        assert!(text(r#""\ud800""#).is_err());
    }
}
