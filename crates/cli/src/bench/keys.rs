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
pub(crate) struct Turn(usize);

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
    pub(crate) fn first_turn(connection: usize) -> Turn {
        Turn(connection)
    }

    /// The number of the next key. Shared ones are gone through in turn, each connection from another
    /// one on: how evenly connections are served is then the server's doing and not chance.
    pub(crate) fn next(&self, connection: usize, turn: &mut Turn) -> usize {
        turn.0 += 1;
        match self.keys {
            Keys::Own(each) => connection * each + turn.0 % each,
            Keys::Shared(all) => turn.0 % all,
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
        let mut turn = KeyBook::first_turn(2);
        let keys: Vec<usize> = (0..4).map(|_| book.next(2, &mut turn)).collect();
        assert_eq!(keys, [5, 4, 5, 4]);
    }

    #[test]
    fn shared_keys_are_gone_through_from_different_places() {
        let book = KeyBook::new(Keys::Shared(3), 2, "k:".into());
        for (connection, expected) in [(0, [1, 2, 0, 1]), (1, [2, 0, 1, 2])] {
            let mut turn = KeyBook::first_turn(connection);
            assert_eq!([0; 4].map(|_| book.next(connection, &mut turn)), expected);
        }
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
