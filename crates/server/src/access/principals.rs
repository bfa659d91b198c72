//! All principals, found by what they show. Immutable: a change of the file is another [`Access`],
//! and whoever is in the middle of something goes on with the one it has.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::file::{self, AccessError};
use super::principal::Principal;
use super::secret::{Hash, is_judged, split};

/// Who may come in, and what they may do.
#[derive(Default)]
pub struct Access {
    /// Every principal is in `names` and in `order`; the others point to those.
    pub(super) names: HashMap<Box<str>, Arc<Principal>>,
    pub(super) certificates: HashMap<Box<str>, Arc<Principal>>,
    /// By the token's id.
    pub(super) tokens: HashMap<Box<str>, Token>,
    /// As they stand in the file.
    pub(super) order: Vec<Arc<Principal>>,
}

/// What is kept of a token.
pub struct Token {
    pub(super) hash: Hash,
    pub(super) created: Option<String>,
    pub(super) principal: Arc<Principal>,
}

impl Token {
    /// When it was made, as the file says it.
    pub fn created(&self) -> Option<&str> {
        self.created.as_deref()
    }

    /// Whether a token is still the same one, this says.
    pub(crate) fn hash(&self) -> [u8; 32] {
        self.hash.0
    }

    /// Whose it is.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }
}

impl Access {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Access, AccessError> {
        file::read(path)
    }

    /// Reads what a file says, or would say; errors name `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Access, AccessError> {
        file::parse(path, text)
    }

    /// Whose token this is. A wrong secret, an unknown id and what is no token at all cost what a
    /// right token costs, so the time of the answer does not say which ids exist.
    pub fn by_token(&self, token: &str) -> Option<Arc<Principal>> {
        if !is_judged(token) {
            return None;
        }
        let (id, secret) = split(token);
        let known = self.tokens.get(id);
        let expected = known.map_or(&Hash::DUMMY, |token| &token.hash);
        let right = Hash::of(secret).is(expected);
        known.filter(|_| right).map(|token| Arc::clone(&token.principal))
    }

    /// Whose certificate has this common name. Whether it is genuine was decided before.
    pub fn by_certificate(&self, common_name: &str) -> Option<Arc<Principal>> {
        self.certificates.get(common_name).cloned()
    }

    /// The principal of this name: for listeners that have one of their own, and to see after a
    /// change of the file whether a connection's principal is still there.
    pub fn by_name(&self, name: &str) -> Option<Arc<Principal>> {
        self.names.get(name).cloned()
    }

    /// All principals, as they stand in the file.
    pub fn principals(&self) -> impl Iterator<Item = &Arc<Principal>> {
        self.order.iter()
    }

    /// The token with this id.
    pub(crate) fn token(&self, id: &str) -> Option<&Token> {
        self.tokens.get(id)
    }

    /// The ids of all tokens, in no order.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, &Token)> {
        self.tokens.iter().map(|(id, token)| (&**id, token))
    }

    /// The certificates, by their common names, in no order.
    pub fn certificates(&self) -> impl Iterator<Item = (&str, &Arc<Principal>)> {
        self.certificates.iter().map(|(name, principal)| (&**name, principal))
    }
}

/// Without hashes.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("principals", &self.order).finish_non_exhaustive()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("principal", &self.principal.name).finish_non_exhaustive()
    }
}
