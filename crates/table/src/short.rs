//! Byte strings that are mostly short: up to 23 bytes lie in place, without an allocation.

/// 24 bytes, as a `Vec` would take, and no heap behind it for nearly all keys that people use.
#[derive(Clone)]
pub(crate) enum ShortBytes {
    InPlace(Len, [u8; IN_PLACE]),
    Heap(Box<[u8]>),
}

const IN_PLACE: usize = 23;

impl ShortBytes {
    pub(crate) fn new(bytes: &[u8]) -> ShortBytes {
        let Some(len) = Len::ALL.get(bytes.len()) else { return ShortBytes::Heap(bytes.into()) };
        let mut place = [0; IN_PLACE];
        place[..bytes.len()].copy_from_slice(bytes);
        ShortBytes::InPlace(*len, place)
    }

    /// The bytes of all parts; nothing is allocated on the way if they fit in place.
    pub(crate) fn concat(parts: [&[u8]; 3]) -> ShortBytes {
        let total = parts.iter().map(|part| part.len()).sum::<usize>();
        let Some(len) = Len::ALL.get(total) else {
            return ShortBytes::Heap(parts.concat().into());
        };
        let mut place = [0; IN_PLACE];
        let mut at = 0;
        for part in parts {
            place[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        ShortBytes::InPlace(*len, place)
    }
}

impl std::ops::Deref for ShortBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            ShortBytes::InPlace(len, place) => &place[..*len as usize],
            ShortBytes::Heap(bytes) => bytes,
        }
    }
}

/// The value of a lock that was taken by `SET`: any bytes, mostly few.
#[derive(Clone)]
pub struct Value(ShortBytes);

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value(ShortBytes::new(bytes))
    }
}

impl From<Box<[u8]>> for Value {
    fn from(bytes: Box<[u8]>) -> Value {
        Value::from(&*bytes)
    }
}

impl std::ops::Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&**self, f)
    }
}

/// A length of 0 to 23, written so that the compiler knows the values it never takes: they tell
/// the two forms apart, and free slots from used ones, without a byte of their own.
#[derive(Clone, Copy)]
#[rustfmt::skip]
pub(crate) enum Len {
    L0, L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11,
    L12, L13, L14, L15, L16, L17, L18, L19, L20, L21, L22, L23,
}

impl Len {
    #[rustfmt::skip]
    const ALL: [Len; IN_PLACE + 1] = {
        use Len::*;
        [
            L0, L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11,
            L12, L13, L14, L15, L16, L17, L18, L19, L20, L21, L22, L23,
        ]
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_read_back() {
        let all: Vec<u8> = (0..60).collect();
        for length in 0..all.len() {
            let short = ShortBytes::new(&all[..length]);
            assert_eq!(*short, all[..length]);
            assert_eq!(matches!(short, ShortBytes::InPlace(..)), length <= 23);
            let (front, back) = all[..length].split_at(length / 3);
            assert_eq!(*ShortBytes::concat([front, &[], back]), all[..length]);
        }
    }

    #[test]
    fn neither_the_form_nor_an_option_takes_room() {
        assert_eq!(size_of::<ShortBytes>(), 24);
        assert_eq!(size_of::<Option<ShortBytes>>(), 24);
        assert_eq!(size_of::<crate::Extras>(), 24, "nor the forms around it");
    }
}
