//! Finds a slot by the hash of its key. What one look needs lies in one line of the cache: with hundreds of thousands of
//! locks each line is waited for, and an index that keeps tags and slots apart waits twice.
//!
//! A key has a home line, by its hash. Where that is full the entry goes to the next line that has room, and each full line that
//! it went past counts it (`passed`), so that a search knows where to end, and nothing is left behind by what is removed.

/// Entries of a line, so that it has 64 bytes.
const PLACES: usize = 12;
/// Entries a line, on average, with which it grows: more of them go past their homes the fuller the lines are.
const FULL: usize = 9;
/// More lines than these a processor does not fetch at a time.
const AT_ONCE: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    /// None, or a power of two of them.
    lines: Vec<Line>,
    len: usize,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Line {
    slots: [u32; PLACES],
    /// Some bits of the hash of each entry; 0 where there is none.
    tags: [u8; PLACES],
    /// How many entries of this line, or of those before it, lie behind it.
    passed: u32,
}

impl Line {
    /// Places that have this tag, lowest first.
    #[inline]
    fn places(&self, tag: u8) -> impl Iterator<Item = usize> + use<> {
        let tags = &self.tags;
        let front = u64::from_le_bytes([
            tags[0], tags[1], tags[2], tags[3], tags[4], tags[5], tags[6], tags[7],
        ]);
        let back = u32::from_le_bytes([tags[8], tags[9], tags[10], tags[11]]);
        let mut front = zeros(front ^ u64::from_le_bytes([tag; 8]));
        // Nothing is as the tag beyond its end.
        let mut back = zeros(u64::from(back ^ u32::from_le_bytes([tag; 4])) | !0 << 32);
        std::iter::from_fn(move || {
            let (bits, first) = if front != 0 { (&mut front, 0) } else { (&mut back, 8) };
            let place = (*bits != 0).then(|| first + bits.trailing_zeros() as usize / 8);
            *bits &= bits.wrapping_sub(1);
            place
        })
    }
}

/// The highest bit of each byte that is 0, and of no other: what lies in a vacant place is nothing to look at.
#[inline]
fn zeros(bytes: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const LOW: u64 = u64::from_le_bytes([0x7f; 8]);
    // This is quicker and misses none, but may find a 1 above a 0.
    if bytes.wrapping_sub(ONES) & !bytes & !LOW == 0 {
        return 0;
    }
    // Here nothing is carried from one byte to the next.
    !(((bytes & LOW) + LOW) | bytes | LOW)
}

/// The bits that do not choose the line; never 0.
#[inline]
fn tag(hash: u64) -> u8 {
    ((hash >> 56) as u8).max(1)
}

impl Index {
    /// The entry that has this hash and is `same`.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        let last = self.lines.len().checked_sub(1)?;
        let home = hash as usize & last;
        let mut at = home;
        loop {
            let line = &self.lines[at];
            for place in line.places(tag(hash)) {
                let slot = line.slots[place];
                if same(slot) {
                    return Some(slot);
                }
            }
            if line.passed == 0 {
                return None;
            }
            at = (at + 1) & last;
            // Each line may have been full once, if not all at a time.
            if at == home {
                return None;
            }
        }
    }

    /// Adds an entry whose key it does not have; `hash_of` is the hash of any entry.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let room = if self.lines.len() == 1 { PLACES } else { self.lines.len() * FULL };
        if self.len == room {
            self.grow(hash_of);
        }
        self.put(hash, slot);
        self.len += 1;
    }

    /// Removes an entry that is there.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        let (home, at, place) = self.locate(hash, slot);
        self.lines[at].tags[place] = 0;
        self.len -= 1;
        let (mut before, last) = (home, self.lines.len() - 1);
        while before != at {
            self.lines[before].passed -= 1;
            before = (before + 1) & last;
        }
    }

    /// Puts another slot into the place of one that is there; the key stays the same.
    #[inline]
    pub(crate) fn replace(&mut self, hash: u64, slot: u32, by: u32) {
        let (_, at, place) = self.locate(hash, slot);
        self.lines[at].slots[place] = by;
    }

    /// Fetches what will be looked at for these hashes; what it returns means nothing. First some hashes, and then their
    /// lines: so there is little between one line and the next, and more of them come at the same time.
    #[inline]
    pub(crate) fn fetch(&self, hashes: impl Iterator<Item = u64>) -> u32 {
        let Some(last) = self.lines.len().checked_sub(1) else { return 0 };
        let (mut seen, mut hashes) = (0, hashes.fuse());
        let mut some = [0; AT_ONCE];
        loop {
            let mut count = 0;
            for (place, hash) in some.iter_mut().zip(&mut hashes) {
                *place = hash;
                count += 1;
            }
            for hash in &some[..count] {
                seen ^= self.lines[*hash as usize & last].passed;
            }
            if count < AT_ONCE {
                return seen;
            }
        }
    }

    /// Its home, where it is, and the place there.
    #[inline]
    fn locate(&self, hash: u64, slot: u32) -> (usize, usize, usize) {
        let last = self.lines.len() - 1;
        let home = hash as usize & last;
        let mut at = home;
        loop {
            let line = &self.lines[at];
            let mut places = line.places(tag(hash));
            if let Some(place) = places.find(|place| line.slots[*place] == slot) {
                return (home, at, place);
            }
            at = (at + 1) & last;
            assert!(line.passed > 0 && at != home, "every live node is indexed");
        }
    }

    #[inline]
    fn put(&mut self, hash: u64, slot: u32) {
        let last = self.lines.len() - 1;
        let mut at = hash as usize & last;
        loop {
            let line = &mut self.lines[at];
            if let Some(place) = line.places(0).next() {
                (line.slots[place], line.tags[place]) = (slot, tag(hash));
                return;
            }
            line.passed += 1;
            at = (at + 1) & last;
        }
    }

    #[cold]
    fn grow(&mut self, hash_of: impl Fn(u32) -> u64) {
        let lines = vec![Line::default(); (self.lines.len() * 2).max(1)];
        for line in std::mem::replace(&mut self.lines, lines) {
            for (slot, _) in line.slots.into_iter().zip(line.tags).filter(|(_, tag)| *tag != 0) {
                self.put(hash_of(slot), slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Random steps beside a map; `hash` is that of a key, and keys are what slots are named after.
    fn follows_a_map(keys: u32, hash: impl Fn(u32) -> u64) {
        let (mut index, mut map) = (Index::default(), BTreeMap::new());
        let mut random = 1u64;
        for step in 0..40 * keys {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (random >> 33) as u32 % keys;
            // It fills, and empties again, and once more.
            let fills = (step / (10 * keys)).is_multiple_of(2);
            // A slot says which key it is of, and whether it has been replaced.
            let slot = key * 2;
            match map.get(&key).copied() {
                None if fills || random.is_multiple_of(4) => {
                    index.insert(hash(key), slot, |slot| hash(slot / 2));
                    map.insert(key, slot);
                }
                Some(there) if !fills || random.is_multiple_of(8) => {
                    index.remove(hash(key), there);
                    map.remove(&key);
                }
                Some(there) => {
                    index.replace(hash(key), there, there ^ 1);
                    map.insert(key, there ^ 1);
                }
                None => {}
            }
            let found = index.find(hash(key), |slot| slot / 2 == key);
            assert_eq!(found, map.get(&key).copied(), "step {step}, key {key}");
            assert_eq!(index.len, map.len());
        }
        for (key, slot) in &map {
            assert_eq!(index.find(hash(*key), |slot| slot / 2 == *key), Some(*slot));
            index.remove(hash(*key), *slot);
        }
        let left = |line: &Line| line.passed != 0 || line.tags != [0; PLACES];
        assert!(!index.lines.iter().any(left), "nothing is left behind");
    }

    #[test]
    fn it_has_what_was_put_in_and_not_removed() {
        let spread = |key: u32| u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        follows_a_map(2_000, spread);
        follows_a_map(13, spread);
        for few in 2..80 {
            follows_a_map(few, spread);
        }
    }

    #[test]
    fn keys_that_hash_alike_go_past_their_homes_and_back() {
        follows_a_map(100, |_| u64::MAX);
        follows_a_map(300, |key| u64::from(key % 3) << 56 | u64::from(key % 2));
        follows_a_map(300, |key| u64::from(key % 5) << 56 | 7);
    }

    #[test]
    fn a_search_ends_also_if_something_went_past_every_line() {
        let mut index = Index::default();
        let (even, odd) = (0, 1);
        let home = |slot: u32| u64::from(slot >= 100);
        // Two lines: 12 entries in the even one, and one behind it.
        for slot in 0..=PLACES as u32 {
            index.insert(even, slot, home);
        }
        for slot in 0..PLACES as u32 {
            index.remove(even, slot);
        }
        // Now the odd one is filled, and one goes on to the even one.
        for slot in 100..100 + PLACES as u32 {
            index.insert(odd, slot, home);
        }
        assert!(index.lines.iter().all(|line| line.passed == 1), "{index:?}");
        assert_eq!(index.find(even, |_| false), None);
        assert_eq!(index.find(odd, |slot| slot == 111), Some(111));
        assert_eq!(index.find(even, |slot| slot == 12), Some(12));
    }

    #[test]
    fn a_tag_that_differs_in_one_bit_is_another_one() {
        let mut index = Index::default();
        for slot in 0..PLACES as u32 {
            index.insert(u64::from(2 + slot % 2) << 56, slot, |_| unreachable!("it fits"));
        }
        for slot in 0..PLACES as u32 {
            assert_eq!(index.find(2 << 56, |found| found == slot).is_some(), slot % 2 == 0);
        }
    }

    #[test]
    fn only_bytes_that_are_0_are_found() {
        for byte in 0..=255u8 {
            let expected = if byte == 0 { 0x80 } else { 0 };
            for neighbours in [0, 1, 0x7f, 0x80, 0xff] {
                let bytes =
                    [neighbours, byte, neighbours, byte, byte, neighbours, neighbours, byte];
                let found = zeros(u64::from_le_bytes(bytes)).to_le_bytes();
                assert_eq!([found[1], found[3], found[4], found[7]], [expected; 4], "{bytes:?}");
            }
        }
    }

    #[test]
    fn a_line_is_one_of_the_cache_and_an_empty_index_takes_nothing() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
        let index = Index::default();
        assert_eq!((index.find(1, |_| true), index.lines.capacity()), (None, 0));
        assert_eq!(index.fetch([1, 2].into_iter()), 0);
    }
}
