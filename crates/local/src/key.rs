//! What callers may name a key by: the key itself, a reference to it, or its borrowed form.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hash};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// A way to name a key of type `K`: by value, by reference (`&K`), or borrowed (`&str` for a
/// `String`). A key is made from it only if nobody holds or waits for that key yet.
///
/// Implement it for a borrowed form of your own key type. `hash_with` must agree with the hash of
/// the key, and `is` with its `Eq`, as for [`Borrow`](std::borrow::Borrow).
///
/// ```
/// use std::hash::{BuildHasher, Hash};
/// use keylatch_local::{Key, KeyedMutex};
///
/// #[derive(PartialEq, Eq, Hash)]
/// struct Account { bank: String, number: u64 }
///
/// impl Key<Account> for (&str, u64) {
///     fn hash_with<S: BuildHasher>(&self, state: &S) -> u64 { state.hash_one(self) }
///     fn is(&self, key: &Account) -> bool { (key.bank.as_str(), key.number) == *self }
///     fn into_key(self) -> Account { Account { bank: self.0.into(), number: self.1 } }
/// }
///
/// let locks = KeyedMutex::<Account>::new();
/// let held = locks.lock_blocking(("north", 42));
/// assert!(locks.try_lock(Account { bank: "north".into(), number: 42 }).is_none());
/// # drop(held);
/// ```
#[diagnostic::on_unimplemented(
    message = "a key of type `{K}` cannot be named by `{Self}`",
    note = "use the key itself, a reference to it, or its borrowed form (`&str` for `String`)"
)]
pub trait Key<K> {
    /// The hash that the key has.
    fn hash_with<S: BuildHasher>(&self, state: &S) -> u64;
    /// Whether `key` is the one that is meant.
    fn is(&self, key: &K) -> bool;
    /// The key itself.
    fn into_key(self) -> K;
}

impl<K: Hash + Eq> Key<K> for K {
    fn hash_with<S: BuildHasher>(&self, state: &S) -> u64 {
        state.hash_one(self)
    }
    fn is(&self, key: &K) -> bool {
        self == key
    }
    fn into_key(self) -> K {
        self
    }
}

impl<K: Hash + Eq + Clone> Key<K> for &K {
    fn hash_with<S: BuildHasher>(&self, state: &S) -> u64 {
        state.hash_one(*self)
    }
    fn is(&self, key: &K) -> bool {
        *self == key
    }
    fn into_key(self) -> K {
        self.clone()
    }
}

impl<T: Hash + Eq + Clone, const N: usize> Key<Vec<T>> for &[T; N] {
    fn hash_with<S: BuildHasher>(&self, state: &S) -> u64 {
        state.hash_one(self.as_slice())
    }
    fn is(&self, key: &Vec<T>) -> bool {
        self.as_slice() == key
    }
    fn into_key(self) -> Vec<T> {
        self.to_vec()
    }
}

impl Key<String> for &&str {
    fn hash_with<S: BuildHasher>(&self, state: &S) -> u64 {
        state.hash_one(**self)
    }
    fn is(&self, key: &String) -> bool {
        **self == key
    }
    fn into_key(self) -> String {
        (*self).into()
    }
}

impl Key<String> for Cow<'_, str> {
    fn hash_with<S: BuildHasher>(&self, state: &S) -> u64 {
        state.hash_one(&**self)
    }
    fn is(&self, key: &String) -> bool {
        **self == *key
    }
    fn into_key(self) -> String {
        self.into_owned()
    }
}

/// The borrowed forms of the standard library.
macro_rules! borrowed {
    ($($borrowed:ty => $owned:ty $(, $T:ident)?;)*) => {$(
        impl $(<$T: Hash + Eq + Clone>)? Key<$owned> for &$borrowed {
            fn hash_with<S: BuildHasher>(&self, state: &S) -> u64 {
                state.hash_one(*self)
            }
            fn is(&self, key: &$owned) -> bool {
                let key: &$borrowed = key;
                *self == key
            }
            fn into_key(self) -> $owned {
                self.into()
            }
        }
    )*};
}

borrowed! {
    str => String;
    str => Box<str>;
    str => Rc<str>;
    str => Arc<str>;
    [T] => Vec<T>, T;
    [T] => Box<[T]>, T;
    [T] => Arc<[T]>, T;
    Path => PathBuf;
    OsStr => OsString;
}
