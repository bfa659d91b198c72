//! Which key a connection takes next, and the watch over who holds what.
//!
//! A key counts as held from the moment its grant is read until just before its release is sent. The
//! server holds it at least that long, so two holders here are two holders there.

use super::plan::Keys;

/// The keys of a run.
pub(crate) struct KeyBook {
    keys: Keys,
    /// Differs from run to run: leftovers of another one are not in the way.
    run: String,
    held: Vec<Held>,
    pub(crate) double_grants: u64,
    pub(crate) token_falls: u64,
}

#[derive(Clone, Copy, Default)]
struct Held {
    holders: u32,
    /// The latest token; 0 where there are none.
    token: u64,
}

/// A connection's place in its keys.
#[derive(Clone, Copy)]
pub(crate) struct Turn(u64);

impl KeyBook {
    pub(crate) fn new(keys: Keys, connections: usize, run: String) -> KeyBook {
        let count = match keys {
            Keys::Own(each) => each * connections,
            Keys::Shared(all) => all,
        };
        let held = vec![Held::default(); count];
        KeyBook { keys, run, held, double_grants: 0, token_falls: 0 }
    }

    /// Where connection number `connection` begins.
    pub(crate) fn first_turn(&self, connection: usize) -> Turn {
        match self.keys {
            Keys::Own(_) => Turn(0),
            // Any number but 0, another one for each.
            Keys::Shared(_) => Turn((connection as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        }
    }

    /// The number of the next key.
    pub(crate) fn next(&self, connection: usize, turn: &mut Turn) -> usize {
        match self.keys {
            Keys::Own(each) => {
                turn.0 += 1;
                connection * each + (turn.0 % each as u64) as usize
            }
            Keys::Shared(all) => {
                // xorshift64: a new order for each connection, the same in every run.
                turn.0 ^= turn.0 << 13;
                turn.0 ^= turn.0 >> 7;
                turn.0 ^= turn.0 << 17;
                ((turn.0 >> 16) % all as u64) as usize
            }
        }
    }

    /// Appends the name of a key.
    pub(crate) fn write_name(&self, key: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.run.as_bytes());
        out.extend_from_slice(itoa::Buffer::new().format(key).as_bytes());
    }

    /// A grant has been read.
    pub(crate) fn granted(&mut self, key: usize, token: Option<u64>) {
        let held = &mut self.held[key];
        self.double_grants += u64::from(held.holders > 0);
        held.holders += 1;
        if let Some(token) = token {
            self.token_falls += u64::from(token <= held.token);
            held.token = token;
        }
    }

    /// A release is about to be sent.
    pub(crate) fn releasing(&mut self, key: usize) {
        self.held[key].holders -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_keys_go_round_and_never_meet() {
        let book = KeyBook::new(Keys::Own(2), 3, "k:".into());
        let mut turn = book.first_turn(2);
        let keys: Vec<usize> = (0..4).map(|_| book.next(2, &mut turn)).collect();
        assert_eq!(keys, [5, 4, 5, 4]);
    }

    #[test]
    fn shared_keys_are_all_used_evenly() {
        let book = KeyBook::new(Keys::Shared(8), 3, "k:".into());
        let mut count = [0; 8];
        let mut turn = book.first_turn(0);
        for _ in 0..8_000 {
            count[book.next(0, &mut turn)] += 1;
        }
        assert!(count.iter().all(|count| (850..1_150).contains(count)), "{count:?}");
    }

    #[test]
    fn a_second_holder_and_a_lower_token_are_noticed() {
        let mut book = KeyBook::new(Keys::Shared(2), 2, "k:".into());
        book.granted(0, Some(5));
        book.granted(1, Some(5));
        book.releasing(0);
        book.granted(0, Some(6));
        assert_eq!((book.double_grants, book.token_falls), (0, 0));
        book.granted(0, Some(6));
        assert_eq!((book.double_grants, book.token_falls), (1, 1));
    }
}
