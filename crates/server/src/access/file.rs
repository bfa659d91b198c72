//! The access file: TOML, read as a whole or refused as a whole. A mistake must not leave a part of
//! the rules in force, so unknown words and everything that is said twice are errors; each says
//! where it is and what to do.
//!
//! ```toml
//! [[principal]]
//! name = "billing"
//! certificate = "billing.example"     # the common name of its client certificate; may be left out
//! [[principal.token]]
//! id = "5f0c1d2e3a4b5c6d"             # the public part
//! hash = "sha256:<64 hex digits>"     # of the secret part's text
//! created = "2026-11-16T10:00:00Z"
//! [[principal.rule]]
//! prefix = "billing:"                 # names that begin so; "" is every name
//! rights = ["shared", "exclusive", "observe"]   # there are also "revoke" and "admin"
//! ```

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::principal::{Principal, Right, Rule};
use super::principals::{Access, Token};
use super::secret::{Hash, is_id};

/// Larger than any list of principals that somebody looks after: some 30,000 of them.
const LARGEST_BYTES: u64 = 16 << 20;
/// The longest name of a principal: as the table's bound on owners and principals.
const NAME_BYTES: usize = 256;

/// Why there is no access file in force.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// It is not there.
    #[error(
        "{} does not exist: `keylatch token create NAME --prefix PREFIX --right RIGHT --file {}` \
         makes one", .0.display(), .0.display()
    )]
    NotFound(PathBuf),
    /// It cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Everyone could change it.
    #[error(
        "everyone on this machine may change {}, and so give themselves every right: chmod 600 {}",
        .0.display(), .0.display()
    )]
    WritableByAll(PathBuf),
    /// Something in it is wrong.
    #[error("{}, line {line}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what to do.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    principal: Vec<PrincipalPart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrincipalPart {
    name: Spanned<String>,
    certificate: Option<Spanned<String>>,
    #[serde(default)]
    token: Vec<TokenPart>,
    #[serde(default)]
    rule: Vec<RulePart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenPart {
    id: Spanned<String>,
    hash: Spanned<String>,
    created: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulePart {
    prefix: String,
    rights: Spanned<Vec<Spanned<String>>>,
}

pub(super) fn read(path: &Path) -> Result<Access, AccessError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => AccessError::NotFound(path.into()),
        _ => AccessError::Io { path: path.into(), error: source },
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if about.mode() & 0o002 != 0 {
        return Err(AccessError::WritableByAll(path.into()));
    }
    let mut text = String::new();
    file.take(LARGEST_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LARGEST_BYTES {
        return Err(failed(io::Error::other("it is larger than 16 MiB; is it the right file?")));
    }
    parse(path, &text)
}

pub(super) fn parse(path: &Path, text: &str) -> Result<Access, AccessError> {
    let wrong = |Wrong { at, reason }: Wrong| {
        let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        AccessError::Invalid { path: path.into(), line, reason }
    };
    let file: File = toml::from_str(text).map_err(|error| wrong(not_understood(&error)))?;
    build(file).map_err(wrong)
}

/// Something that is wrong, and where: a byte of the text.
struct Wrong {
    at: usize,
    reason: String,
}

impl Wrong {
    fn new(at: Range<usize>, reason: String) -> Wrong {
        Wrong { at: at.start, reason }
    }
}

/// The parser's own words, but for values: whoever puts a token in the wrong place is not to find
/// it in a log.
fn not_understood(error: &toml::de::Error) -> Wrong {
    let message = error.message().trim_end().replace('\n', "; ");
    let reason = match message.contains("klt_") {
        true => "a token does not belong here; the file has an id and a hash of it".into(),
        false => message,
    };
    Wrong::new(error.span().unwrap_or(0..0), reason)
}

fn build(file: File) -> Result<Access, Wrong> {
    let mut access = Access::default();
    for part in file.principal {
        let (name, at) = (part.name.get_ref(), part.name.span());
        if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
            let reason = format!(
                "the name of a principal has 1 to {NAME_BYTES} bytes, and no control characters"
            );
            return Err(Wrong::new(at, reason));
        }
        let rules = part.rule.iter().map(rule).collect::<Result<Vec<_>, Wrong>>()?;
        let principal = Arc::new(Principal::new(name, rules));
        let twice = format!("there are two principals `{name}`: make them one, or rename this one");
        put(&mut access.names, &part.name, Arc::clone(&principal), twice)?;
        if let Some(certificate) = &part.certificate {
            if certificate.get_ref().is_empty() {
                let reason = "the certificate's common name is empty: leave the line out".into();
                return Err(Wrong::new(certificate.span(), reason));
            }
            let twice = format!(
                "the certificate `{}` belongs to two principals: it can be only one",
                certificate.get_ref()
            );
            put(&mut access.certificates, certificate, Arc::clone(&principal), twice)?;
        }
        for token in part.token {
            let (id, token) = token_of(token, &principal)?;
            let twice = format!("there are two tokens `{}`: remove one", id.get_ref());
            put(&mut access.tokens, &id, token, twice)?;
        }
        access.order.push(principal);
    }
    Ok(access)
}

fn put<T>(
    map: &mut HashMap<Box<str>, T>,
    key: &Spanned<String>,
    value: T,
    twice: String,
) -> Result<(), Wrong> {
    match map.insert(key.get_ref().as_str().into(), value) {
        None => Ok(()),
        Some(_) => Err(Wrong::new(key.span(), twice)),
    }
}

fn token_of(
    part: TokenPart,
    principal: &Arc<Principal>,
) -> Result<(Spanned<String>, Token), Wrong> {
    if !is_id(part.id.get_ref()) {
        let reason = "the id of a token has 1 to 64 letters, digits or hyphens, as `keylatch token \
                      create` makes it; the secret part does not belong here";
        return Err(Wrong::new(part.id.span(), reason.into()));
    }
    let Some(hash) = Hash::read(part.hash.get_ref()) else {
        let reason = "the hash of a token is `sha256:` and 64 hex digits, as `keylatch token create` \
                      makes it; the secret itself does not belong here";
        return Err(Wrong::new(part.hash.span(), reason.into()));
    };
    let token = Token { hash, created: part.created, principal: Arc::clone(principal) };
    Ok((part.id, token))
}

fn rule(part: &RulePart) -> Result<Rule, Wrong> {
    let known = || Right::ALL.map(Right::word).join(", ");
    if part.rights.get_ref().is_empty() {
        let reason = format!("a rule without rights allows nothing: give some of {}", known());
        return Err(Wrong::new(part.rights.span(), reason));
    }
    let right = |word: &Spanned<String>| {
        Right::from_word(word.get_ref()).ok_or_else(|| {
            let reason = format!("there is no right `{}`; there are {}", word.get_ref(), known());
            Wrong::new(word.span(), reason)
        })
    };
    let rights = part.rights.get_ref().iter().map(right).collect::<Result<Vec<_>, Wrong>>()?;
    Ok(Rule::new(&part.prefix, &rights))
}
