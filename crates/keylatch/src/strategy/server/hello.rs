//! The first words on every connection: which protocol is spoken, and who we are. Nothing else is
//! sent before the server has taken them, so what is asked again after a reconnection is never
//! refused for want of a name.

use std::fmt;
use std::io;

use keylatch_wire::{Value, read_value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::way::Stream;
use super::{encode, read};
use crate::error::ConnectError;

/// What a client shows to say who it is. It is a secret, and nothing here prints it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Token(Box<str>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The user name that goes with a token; the server takes any.
const USER: &str = "default";
/// The answer is some hundred bytes; whoever says more is not a lock server.
const ANSWER_BYTES: usize = 16 * 1_024;

impl Token {
    /// Takes `:TOKEN@` out of `//:TOKEN@host:port,host:port`; what is left is the list. Errors say
    /// nothing of what stands before the `@`.
    pub(super) fn split(list: &str) -> Result<(Option<Token>, &str), ConnectError> {
        let list = list.strip_prefix("//").unwrap_or(list);
        let Some((before, list)) = list.rsplit_once('@') else { return Ok((None, list)) };
        let wrong = |text: &str| Err(ConnectError::Url(text.into()));
        let Some((_, token)) = before.split_once(':') else {
            return wrong("a token has a colon before it: keylatch://:TOKEN@HOST:PORT");
        };
        if token.contains(['@', ',']) {
            return wrong(
                "one token is for all addresses, before the first: keylatch://:TOKEN@HOST,HOST",
            );
        }
        match percent_decoded(token).filter(|token| !token.is_empty()) {
            Some(token) => Ok((Some(Token(token.into())), list)),
            None => wrong("there is no token between the colon and the @"),
        }
    }

    /// That of the environment.
    pub(super) fn from_environment() -> Result<Option<Token>, ConnectError> {
        Ok(crate::place::token()?.map(|token| Token(token.into())))
    }
}

/// Why a server does not take us.
pub(super) enum Unwelcome {
    /// It was not heard.
    Lost(io::Error),
    /// It has no room now.
    Full(String),
    /// It does not know who we are.
    Denied(String),
    /// It is not a lock server.
    Refused(String),
}

/// Says who we are, and hears whether that is taken. A server of TLS 1.3 that refuses our certificate
/// says so only here.
pub(super) async fn greet(stream: &mut Stream, token: Option<&Token>) -> Result<(), Unwelcome> {
    let mut words = vec!["HELLO", "3"];
    words.extend(token.iter().flat_map(|token| ["AUTH", USER, &token.0]));
    let (mut reader, mut writer) = stream.split();
    // A server that is full speaks first, and may be gone before it could be written to.
    let mut written = writer.write_all(&encode(&words)).await;
    if written.is_ok() {
        written = writer.flush().await;
    }
    let mut input = Vec::new();
    loop {
        match read_value(&input) {
            Ok(Some((value, taken))) if taken == input.len() => return judge(&value, token),
            Ok(None) if input.len() < ANSWER_BYTES => {}
            _ => return Err(Unwelcome::Refused("what answers is not a lock server".into())),
        }
        match reader.read_buf(&mut input).await {
            Ok(0) => {
                let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up");
                return Err(Unwelcome::Lost(written.err().unwrap_or_else(closed)));
            }
            Ok(_) => {}
            Err(error) => return Err(Unwelcome::Lost(error)),
        }
    }
}

fn judge(value: &Value, token: Option<&Token>) -> Result<(), Unwelcome> {
    let Value::Error(text) = value else {
        return match value.field("proto") {
            Some(_) => Ok(()),
            None => Err(Unwelcome::Refused("what answers is not a lock server".into())),
        };
    };
    Err(match (read::denied(text), token) {
        (Some(_), None) => Unwelcome::Denied(
            "the server wants to know who you are: give a token, keylatch://:TOKEN@HOST:PORT or \
             KEYLATCH_AUTH, or a certificate that it knows"
                .into(),
        ),
        (Some(reason), Some(_)) => Unwelcome::Denied(reason),
        (None, _) if text.starts_with("LIMIT ") => Unwelcome::Full(text.clone()),
        (None, _) => Unwelcome::Refused(text.clone()),
    })
}

pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(after.get(..2)?, 16).ok()?);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(list: &str) -> Option<Token> {
        Token::split(list).unwrap().0
    }

    #[test]
    fn a_token_stands_before_the_addresses() {
        let klt = Some(Token("klt_1_x".into()));
        assert_eq!(Token::split("//:klt_1_x@a:1,b:2").unwrap(), (klt.clone(), "a:1,b:2"));
        assert_eq!(token("//ann:klt_1_x@a"), klt, "a user name does not matter");
        assert_eq!(token("//:klt%5f1_x@a"), klt);
        assert_eq!(Token::split("//a:1").unwrap(), (None, "a:1"));
    }

    #[test]
    fn nothing_says_what_a_token_is() {
        let text = format!("{:?}", token("//:secret@a"));
        assert_eq!(text, "Some(Token(..))");
        for wrong in ["//secret@a", "//:@a", "//:%zzsecret@a", "//:secret@a,:secret@b"] {
            let error = Token::split(wrong).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
    }
}
