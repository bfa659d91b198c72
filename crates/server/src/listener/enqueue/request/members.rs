//! Members of an object and items of an array, as the text they are. The scan has seen that it is JSON, so it
//! is cut here and not judged again: each byte once more, and nothing is copied.

use std::borrow::Cow;

/// Walks through the inside of an object or array.
pub(super) struct Inside<'a> {
    rest: &'a str,
}

impl<'a> Inside<'a> {
    /// Of a whole object or array, without white space around it.
    pub(super) fn of(json: &'a str) -> Inside<'a> {
        Inside { rest: &json[1..json.len() - 1] }
    }

    /// The next member: its name with the quotes, and its value.
    pub(super) fn member(&mut self) -> Option<(&'a str, &'a str)> {
        Some((self.value()?, self.value()?))
    }

    /// The next value, a name among them.
    pub(super) fn value(&mut self) -> Option<&'a str> {
        let between = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':');
        let bytes = self.rest.as_bytes();
        let start = bytes.iter().position(|byte| !between(*byte))?;
        let bytes = &bytes[start..];
        let end = match bytes[0] {
            b'"' => text_end(bytes),
            b'{' | b'[' => nested_end(bytes),
            _ => bytes.iter().position(|byte| between(*byte)).unwrap_or(bytes.len()),
        };
        let (value, rest) = self.rest[start..].split_at(end);
        self.rest = rest;
        Some(value)
    }
}

/// What a string, with its quotes, says.
pub(super) fn text(raw: &str) -> Result<Cow<'_, str>, serde_json::Error> {
    let inside = &raw[1..raw.len() - 1];
    if inside.as_bytes().contains(&b'\\') {
        return serde_json::from_str(raw).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(inside))
}

/// Where the string that begins here ends.
fn text_end(bytes: &[u8]) -> usize {
    let mut at = 1;
    loop {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
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
        let mut inside = Inside { rest: json.get(1..json.len() - 1).unwrap_or_default() };
        match json.as_bytes()[0] {
            b'[' => std::iter::from_fn(|| inside.value()).map(put_together).collect(),
            b'{' => std::iter::from_fn(|| inside.member())
                .map(|(name, value)| (text(name).unwrap().into_owned(), put_together(value)))
                .collect::<Map<_, _>>()
                .into(),
            b'"' => Value::String(text(json).unwrap().into_owned()),
            _ => serde_json::from_str(json).unwrap(),
        }
    }

    #[test]
    fn members_are_cut_where_they_end() {
        let json = r#"{ "a" : 1.5e3,"b\"{":[1,{"x":"]\\"},[]] , "":null,"c":"\u0041\n,:" }"#;
        let mut inside = Inside::of(json);
        let members: Vec<_> = std::iter::from_fn(|| inside.member()).collect();
        let wanted = [
            (r#""a""#, "1.5e3"),
            (r#""b\"{""#, r#"[1,{"x":"]\\"},[]]"#),
            (r#""""#, "null"),
            (r#""c""#, r#""\u0041\n,:""#),
        ];
        assert_eq!(members, wanted);
        let mut inside = Inside::of("[ ]");
        assert_eq!(inside.value(), None);
    }

    #[test]
    fn texts_say_what_a_json_library_reads() {
        for raw in [r#""""#, r#""plain""#, r#""\u00e4 ä \\ \" \ud83d\udd12""#] {
            assert_eq!(text(raw).unwrap(), serde_json::from_str::<String>(raw).unwrap());
        }
        assert!(text(r#""\ud800""#).is_err());
    }
}
