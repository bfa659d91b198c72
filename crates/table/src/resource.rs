//! What is locked: a name and up to sixteen fields, any of which may be the wildcard.
//!
//! A [`Resource`] is kept as one canonical byte string, because the table compares, hashes and
//! stores it far more often than anyone looks inside:
//!
//! ```text
//! u16 length of the name | name | u8 number of fields | field...
//! field: u8 tag (0 wildcard, 1 text, 2 number, 3 false, 4 true) | u16 length | bytes
//! ```
//!
//! Integers are little-endian; wildcards and booleans have neither length nor bytes. The number of
//! fields stands *before* them, so that the bytes up to any field are a prefix shared by exactly
//! the resources that share name, number of fields and those leading fields.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::short::ShortBytes;

/// One field of a resource's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field<'a> {
    /// The wildcard: overlaps with every field.
    Any,
    /// A string.
    Text(&'a str),
    /// A JSON number in its canonical text, which the caller sees to (`1.0` is not `1` here); never
    /// equal to the string of the same text.
    Number(&'a str),
    /// A JSON boolean.
    Bool(bool),
}

/// Shorthand for [`Field::Any`].
pub const ANY: Field<'static> = Field::Any;

impl<'a> From<&'a str> for Field<'a> {
    fn from(text: &'a str) -> Field<'a> {
        Field::Text(text)
    }
}

/// A name and its fields, in the canonical byte form that `docs/table-format.md` describes.
#[derive(Clone)]
pub struct Resource {
    bytes: ShortBytes,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        *self.bytes == *other.bytes
    }
}

impl Eq for Resource {}

impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

/// Why a resource could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceError {
    /// A name may not be empty.
    EmptyName,
    /// A name or field is longer than 65,535 bytes.
    TooLong,
    /// More than [`Resource::FIELDS`] fields.
    TooManyFields,
    /// A name must be UTF-8.
    NotText,
    /// The bytes are not the canonical form.
    Malformed,
}

impl fmt::Display for ResourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResourceError::EmptyName => "a resource needs a name",
            ResourceError::TooLong => "a name or field is longer than 65,535 bytes",
            ResourceError::TooManyFields => "a resource has at most 16 fields",
            ResourceError::NotText => "a name must be valid UTF-8",
            ResourceError::Malformed => "these bytes are not a resource",
        })
    }
}

impl std::error::Error for ResourceError {}

const ANY_TAG: u8 = 0;
const TEXT_TAG: u8 = 1;
const NUMBER_TAG: u8 = 2;
const FALSE_TAG: u8 = 3;
const TRUE_TAG: u8 = 4;

impl Resource {
    /// The most fields a resource can have; a set of field positions then fits a `u16`.
    pub const FIELDS: usize = 16;

    /// A plain key: a name without fields.
    pub fn plain(name: &str) -> Result<Resource, ResourceError> {
        Resource::plain_bytes(name.as_bytes())
    }

    /// The same of bytes that may be none: they are looked at here, and nearly all are plain ASCII.
    pub fn plain_bytes(name: &[u8]) -> Result<Resource, ResourceError> {
        if !name.is_ascii() && std::str::from_utf8(name).is_err() {
            return Err(ResourceError::NotText);
        }
        if name.is_empty() {
            return Err(ResourceError::EmptyName);
        }
        let length = u16::try_from(name.len()).map_err(|_| ResourceError::TooLong)?;
        let parts = [&length.to_le_bytes()[..], name, &[0]];
        Ok(Resource { bytes: ShortBytes::concat(parts) })
    }

    /// A name with fields.
    pub fn new(name: &str, fields: &[Field<'_>]) -> Result<Resource, ResourceError> {
        if fields.is_empty() {
            return Resource::plain(name);
        }
        if name.is_empty() {
            return Err(ResourceError::EmptyName);
        }
        if fields.len() > Resource::FIELDS {
            return Err(ResourceError::TooManyFields);
        }
        let texts = fields.iter().map(|field| 3 + field_text(*field).len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(3 + name.len() + texts);
        push_text(&mut bytes, name)?;
        bytes.push(fields.len() as u8);
        for field in fields {
            match field {
                Field::Any => bytes.push(ANY_TAG),
                Field::Bool(false) => bytes.push(FALSE_TAG),
                Field::Bool(true) => bytes.push(TRUE_TAG),
                Field::Text(text) => {
                    bytes.push(TEXT_TAG);
                    push_text(&mut bytes, text)?;
                }
                Field::Number(text) => {
                    bytes.push(NUMBER_TAG);
                    push_text(&mut bytes, text)?;
                }
            }
        }
        Ok(Resource { bytes: ShortBytes::new(&bytes) })
    }

    /// Reads the canonical form back, refusing everything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Resource, ResourceError> {
        let malformed = ResourceError::Malformed;
        let (name, rest) = take_text(bytes).ok_or(malformed)?;
        if name.is_empty() {
            return Err(malformed);
        }
        let (&count, mut rest) = rest.split_first().ok_or(malformed)?;
        if usize::from(count) > Resource::FIELDS {
            return Err(malformed);
        }
        for _ in 0..count {
            rest = take_field(rest).ok_or(malformed)?.1;
        }
        if rest.is_empty() {
            Ok(Resource { bytes: ShortBytes::new(bytes) })
        } else {
            Err(malformed)
        }
    }

    /// The canonical form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The name.
    pub fn name(&self) -> &str {
        take_text(&self.bytes).expect("canonical: a name comes first").0
    }

    pub(crate) fn name_len(&self) -> usize {
        self.arity_at() - 2
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.bytes.len() == self.arity_at() + 1
    }

    /// How many fields there are.
    pub fn arity(&self) -> usize {
        usize::from(self.bytes[self.arity_at()])
    }

    /// The fields in order.
    pub fn fields(&self) -> Fields<'_> {
        Fields { rest: &self.bytes[self.arity_at() + 1..] }
    }

    /// The positions that hold the wildcard, as a bit set.
    pub(crate) fn wildcards(&self) -> u16 {
        let mut rest = self.fields().rest;
        let (mut set, mut position) = (0, 0);
        while let Some((tag, after)) = skip_field(rest) {
            set |= u16::from(tag == ANY_TAG) << position;
            (rest, position) = (after, position + 1);
        }
        set
    }

    /// How many fields come before the first wildcard.
    pub(crate) fn leading_literals(&self) -> usize {
        (self.wildcards().trailing_zeros() as usize).min(self.arity())
    }

    /// The bytes up to and without field `depth`: the key of the group of that depth.
    pub(crate) fn prefix(&self, depth: usize) -> &[u8] {
        let mut rest = self.fields().rest;
        for _ in 0..depth {
            rest = skip_field(rest).map_or(rest, |(_, after)| after);
        }
        &self.bytes[..self.bytes.len() - rest.len()]
    }

    /// The first `depth` fields with the wildcard at those positions of `mask`, in canonical form
    /// (a whole resource if `depth` is the number of fields), into `out`.
    pub(crate) fn widened(&self, depth: usize, mask: u16, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.prefix(0));
        let mut rest = self.fields().rest;
        for position in 0..depth {
            let after = skip_field(rest).expect("as many fields as counted").1;
            if mask & 1 << position == 0 {
                out.extend_from_slice(&rest[..rest.len() - after.len()]);
            } else {
                out.push(ANY_TAG);
            }
            rest = after;
        }
    }

    fn arity_at(&self) -> usize {
        2 + usize::from(u16::from_le_bytes([self.bytes[0], self.bytes[1]]))
    }
}

/// Reads as `name` or `name(A,@)`, with `\` before a field that begins with `@` or `\`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        for (position, field) in self.fields().enumerate() {
            f.write_str(if position == 0 { "(" } else { "," })?;
            match field {
                Field::Any => f.write_str("@")?,
                Field::Text(text) if text.starts_with(['@', '\\']) => write!(f, "\\{text}")?,
                Field::Text(text) | Field::Number(text) => f.write_str(text)?,
                Field::Bool(value) => write!(f, "{value}")?,
            }
        }
        if self.arity() > 0 { f.write_str(")") } else { Ok(()) }
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The fields of a resource, in order.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (field, rest) = take_field(self.rest).expect("canonical: whole fields");
        self.rest = rest;
        Some(field)
    }
}

fn field_text(field: Field<'_>) -> &str {
    match field {
        Field::Text(text) | Field::Number(text) => text,
        Field::Any | Field::Bool(_) => "",
    }
}

fn push_text(bytes: &mut Vec<u8>, text: &str) -> Result<(), ResourceError> {
    let length = u16::try_from(text.len()).map_err(|_| ResourceError::TooLong)?;
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    Ok(())
}

fn take_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

/// The tag of the first of the fields of a resource, and what is behind that field; `None` behind the last. What a
/// text says is not looked at.
fn skip_field(fields: &[u8]) -> Option<(u8, &[u8])> {
    let (&tag, rest) = fields.split_first()?;
    let length = match (tag, rest) {
        (TEXT_TAG | NUMBER_TAG, [low, high, ..]) => {
            2 + usize::from(u16::from_le_bytes([*low, *high]))
        }
        _ => 0,
    };
    Some((tag, &rest[length..]))
}

fn take_field(bytes: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    match tag {
        ANY_TAG => Some((Field::Any, rest)),
        FALSE_TAG => Some((Field::Bool(false), rest)),
        TRUE_TAG => Some((Field::Bool(true), rest)),
        TEXT_TAG => take_text(rest).map(|(text, rest)| (Field::Text(text), rest)),
        NUMBER_TAG => take_text(rest).map(|(text, rest)| (Field::Number(text), rest)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(fields: &[Field<'_>]) -> Resource {
        Resource::new("n", fields).unwrap()
    }

    #[test]
    fn the_canonical_form_reads_back_as_it_was_written() {
        let fields =
            [ANY, Field::Text("a"), Field::Number("1"), Field::Bool(true), Field::Bool(false)];
        let resource = made(&fields);
        assert_eq!(resource.name(), "n");
        assert_eq!(resource.arity(), 5);
        assert_eq!(resource.fields().collect::<Vec<_>>(), fields);
        assert_eq!(Resource::from_bytes(resource.as_bytes()).as_ref(), Ok(&resource));
        assert_eq!(resource.wildcards(), 1);
        assert_eq!(resource.leading_literals(), 0);
        assert_eq!(made(&["a".into(), "b".into(), ANY]).leading_literals(), 2);
        assert_eq!(made(&["a".into(), ANY, ANY]).wildcards(), 6);
    }

    #[test]
    fn every_truncation_and_extension_of_the_canonical_form_is_refused() {
        let resource = made(&[ANY, "ab".into(), Field::Number("7"), Field::Bool(true)]);
        let bytes = resource.as_bytes();
        for end in 0..bytes.len() {
            assert_eq!(Resource::from_bytes(&bytes[..end]), Err(ResourceError::Malformed));
        }
        let longer = [bytes, b"x"].concat();
        assert_eq!(Resource::from_bytes(&longer), Err(ResourceError::Malformed));
        for bad in [&[0, 0, 0][..], &[1, 0, 0xff, 0], &[1, 0, b'n', 17], &[1, 0, b'n', 1, 9]] {
            assert_eq!(Resource::from_bytes(bad), Err(ResourceError::Malformed));
        }
        let sixteen = made(&[ANY; 16]);
        assert_eq!(Resource::from_bytes(sixteen.as_bytes()).as_ref(), Ok(&sixteen));
        let mut seventeen = sixteen.as_bytes().to_vec();
        seventeen[3] = 17;
        seventeen.push(0);
        assert_eq!(Resource::from_bytes(&seventeen), Err(ResourceError::Malformed));
    }

    #[test]
    fn what_cannot_be_a_resource_is_refused_with_its_reason() {
        assert_eq!(Resource::plain(""), Err(ResourceError::EmptyName));
        assert_eq!(Resource::plain(&"n".repeat(65_536)), Err(ResourceError::TooLong));
        let long = "f".repeat(65_536);
        for field in [Field::Text(&long), Field::Number(&long)] {
            assert_eq!(Resource::new("n", &[field]), Err(ResourceError::TooLong));
        }
        assert_eq!(Resource::new("n", &[ANY; 17]), Err(ResourceError::TooManyFields));
        for error in [
            ResourceError::EmptyName,
            ResourceError::TooLong,
            ResourceError::TooManyFields,
            ResourceError::Malformed,
        ] {
            assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn a_number_is_not_the_string_of_the_same_digits() {
        assert_ne!(made(&[Field::Number("1")]), made(&["1".into()]));
        assert_ne!(made(&[Field::Bool(true)]), made(&["true".into()]));
    }

    #[test]
    fn prefixes_are_shared_by_those_with_the_same_leading_fields_only() {
        let (ab, ac) = (made(&["a".into(), "b".into()]), made(&["a".into(), "c".into()]));
        assert_eq!(ab.prefix(0), ac.prefix(0));
        assert_eq!(ab.prefix(1), ac.prefix(1));
        assert_ne!(ab.prefix(2), ac.prefix(2));
        assert_eq!(ab.prefix(2), ab.as_bytes());
        assert_ne!(ab.prefix(1), made(&["a".into(), "b".into(), "c".into()]).prefix(1));
        let mut out = Vec::new();
        ab.widened(2, 0b10, &mut out);
        assert_eq!(out, made(&["a".into(), ANY]).as_bytes());
        ab.widened(1, 0b01, &mut out);
        assert_eq!(out, made(&[ANY, "x".into()]).prefix(1));
        ab.widened(2, 0, &mut out);
        assert_eq!(out, ab.as_bytes());
    }

    #[test]
    fn text_that_looks_like_a_wildcard_is_shown_escaped() {
        let shown = made(&[ANY, "@".into(), "\\x".into(), Field::Number("2"), Field::Bool(true)]);
        assert_eq!(shown.to_string(), "n(@,\\@,\\\\x,2,true)");
        assert_eq!(format!("{:?}", Resource::plain("user:42").unwrap()), "user:42");
    }
    #[test]
    fn equal_resources_are_one_key_of_a_map() {
        let long = "a name that does not fit in place";
        let names = ["short", long, "short", long, "other"];
        let set: std::collections::HashSet<Resource> =
            names.iter().map(|name| Resource::plain(name).unwrap()).collect();
        assert_eq!(set.len(), 3);
    }
}
