//! Tokens as clients have them, `klt_<id>_<secret>`, and the hash that is kept of the secret.
//!
//! The secret has 256 random bits. Nobody tries all of those, however fast a hash is, so one
//! SHA-256 is enough: slow hashes with a salt are for passwords that people choose, and here they
//! would only let strangers keep the server busy with wrong tokens.

use std::fmt;

use rand::TryRngCore;
use rand::rngs::OsRng;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What every token begins with, so that scanners for leaked secrets can find it.
const PREFIX: &str = "klt_";
/// What a hash begins with in the file; another algorithm would have another word.
const ALGORITHM: &str = "sha256:";
/// The longest token that is looked at: three times what we make. It bounds the work of a stranger.
const LONGEST: usize = 256;

/// A token that was just made: the only time when its secret is known here.
pub struct NewToken {
    id: String,
    secret: String,
}

impl NewToken {
    /// A token from the system's random numbers; the error says that there are none.
    pub fn generate() -> std::io::Result<NewToken> {
        let (mut id, mut secret) = ([0; 8], [0; 32]);
        let filled = OsRng.try_fill_bytes(&mut id).and_then(|()| OsRng.try_fill_bytes(&mut secret));
        filled.map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(NewToken { id: hex(&id), secret: hex(&secret) })
    }

    /// Its public part.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What the file keeps of its secret.
    pub fn hash(&self) -> String {
        Hash::of(&self.secret).to_string()
    }

    /// The whole of it, for the client.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }
}

/// Without the secret: what is debugged ends up in logs.
impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The id and the secret of a token. What is no token at all has an id that nobody has, and all of
/// it as its secret, so that it is judged like any other.
pub(super) fn split(token: &str) -> (&str, &str) {
    let parts = token.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_'));
    parts.unwrap_or(("", token))
}

/// Whether a token is short enough to be looked at. Its sender knows its length anyway.
pub(super) fn is_judged(token: &str) -> bool {
    token.len() <= LONGEST
}

/// What an id in the file must be like: no `_`, which ends it in a token.
pub(super) fn is_id(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

/// The SHA-256 of a secret's text.
#[derive(Clone, Copy)]
pub(super) struct Hash(pub(super) [u8; 32]);

impl Hash {
    /// What an unknown id is compared with. No text is known to have it.
    pub(super) const DUMMY: Hash = Hash([0; 32]);

    pub(super) fn of(secret: &str) -> Hash {
        #[cfg(test)]
        work::count(|work| {
            work.hashes += 1;
            work.hashed_bytes += secret.len();
        });
        Hash(Sha256::digest(secret.as_bytes()).into())
    }

    /// Whether both are the same, in a time that does not depend on where they differ.
    pub(super) fn is(&self, other: &Hash) -> bool {
        #[cfg(test)]
        work::count(|work| work.comparisons += 1);
        self.0.ct_eq(&other.0).into()
    }

    /// From the file's text.
    pub(super) fn read(text: &str) -> Option<Hash> {
        let digits = text.strip_prefix(ALGORITHM)?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
        }
        Some(Hash(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", hex(&self.0))
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

/// What judging a token takes, counted: a time on a clock would be a test that fails by chance.
#[cfg(test)]
pub(super) mod work {
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Work {
        pub(crate) hashes: usize,
        pub(crate) hashed_bytes: usize,
        pub(crate) comparisons: usize,
    }

    thread_local!(static DONE: Cell<Work> = const { Cell::new(Work { hashes: 0, hashed_bytes: 0, comparisons: 0 }) });

    pub(super) fn count(add: impl FnOnce(&mut Work)) {
        let mut work = DONE.get();
        add(&mut work);
        DONE.set(work);
    }

    /// What has been done on this thread since it was last asked.
    pub(crate) fn take() -> Work {
        DONE.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_has_256_bits_of_secret_and_its_parts_are_found_again() {
        let (one, two) = (NewToken::generate().unwrap(), NewToken::generate().unwrap());
        assert_ne!(one.reveal(), two.reveal());
        assert_eq!(one.secret.len(), 64);
        let token = one.reveal();
        assert!(is_judged(&token) && is_id(one.id()));
        assert_eq!(split(&token), (one.id(), one.secret.as_str()));
        assert!(Hash::read(&one.hash()).unwrap().is(&Hash::of(&one.secret)));
        assert!(!Hash::read(&one.hash()).unwrap().is(&Hash::of(&two.secret)));
        assert!(!format!("{one:?}").contains(&one.secret));
    }

    #[test]
    fn the_hash_is_the_one_that_sha256sum_prints() {
        let printed = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Hash::of("abc").to_string(), printed);
        assert!(Hash::read(&printed.to_uppercase().replace("SHA", "sha")).is_some());
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let digits = "0".repeat(64);
        assert!(Hash::read(&format!("sha256:{digits}")).is_some());
        for wrong in [
            digits.clone(),
            format!("sha512:{digits}"),
            format!("sha256:{digits}0"),
            format!("sha256:{}", &digits[1..]),
            format!("sha256:{}g", &digits[1..]),
            format!("sha256:{}é", &digits[2..]),
            String::new(),
        ] {
            assert!(Hash::read(&wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_token_has_an_id_that_nobody_has() {
        for text in ["", "klt_", "klt_abc", "abc_def", "KLT_a_b", "bearer klt_a_b"] {
            assert_eq!(split(text), ("", text));
        }
        assert_eq!(split("klt_a_b_c"), ("a", "b_c"));
        assert_eq!(split("klt__b"), ("", "b"));
        for wrong in ["", "a_b", "a b", "é", &"a".repeat(65)] {
            assert!(!is_id(wrong), "{wrong}");
        }
    }
}
