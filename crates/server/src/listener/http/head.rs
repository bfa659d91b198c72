//! The first part of a request: its line and headers, and what they must not be. Nothing of a body is
//! kept before its length is known to be within the bound.

use httparse::{EMPTY_HEADER, Status};

use super::problem::Problem;

/// More headers than browsers and proxies send together.
const HEADERS: usize = 64;
/// Bytes of line and headers.
pub(crate) const HEAD_BYTES: usize = 16 * 1024;

/// What was asked for, without its body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) method: Method,
    /// As it came, without what is behind `?`.
    pub(super) path: String,
    /// What is behind `?`.
    pub(super) query: String,
    pub(super) body_bytes: usize,
    /// The connection ends behind the answer.
    pub(super) close: bool,
    /// The secret behind `Bearer`.
    pub(super) bearer: Option<String>,
    pub(super) if_none_match: Option<String>,
    pub(super) if_match: Option<String>,
    pub(super) last_event_id: Option<String>,
    pub(super) is_json: bool,
    /// What is found may be that of a while ago (`stale`).
    pub(super) stale: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    Delete,
    Patch,
    Other,
}

impl Method {
    fn of(word: &str) -> Method {
        match word {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            "PATCH" => Method::Patch,
            _ => Method::Other,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Delete => "DELETE",
            Method::Patch => "PATCH",
            Method::Other => "",
        }
    }
}

/// Bytes that cannot be the beginning of a request: what to answer before the connection is closed.
pub(super) type Bad = Problem;

impl Head {
    /// The head at the front of the input and its length, once it is complete.
    pub(super) fn read(input: &[u8], hosts: &[String]) -> Result<Option<(Head, usize)>, Bad> {
        let mut headers = [EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(input) {
            Ok(Status::Complete(length)) if length <= HEAD_BYTES => length,
            Ok(Status::Partial) if input.len() <= HEAD_BYTES => return Ok(None),
            Ok(_) => {
                let text = format!("the headers may have at most {HEAD_BYTES} bytes");
                return Err(Problem::new(431, "too_large", text));
            }
            Err(httparse::Error::TooManyHeaders) => {
                return Err(Problem::new(431, "too_large", format!("at most {HEADERS} headers")));
            }
            Err(error) => {
                return Err(Problem::new(400, "bad_request", format!("not HTTP/1.1: {error}")));
            }
        };
        let target = request.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut head = Head {
            method: Method::of(request.method.unwrap_or_default()),
            path: path.into(),
            query: query.into(),
            body_bytes: 0,
            close: request.version == Some(0),
            bearer: None,
            if_none_match: None,
            if_match: None,
            last_event_id: None,
            is_json: false,
            stale: false,
        };
        let (mut host, mut origin) = (None, None);
        let mut lengths = 0;
        for header in request.headers.iter() {
            let Ok(value) = std::str::from_utf8(header.value) else {
                let text = format!("the header {} is not text", header.name);
                return Err(Problem::new(400, "bad_request", text));
            };
            match header.name.to_ascii_lowercase().as_str() {
                "host" if host.is_some() => {
                    return Err(Problem::new(400, "bad_host", "more than one Host".into()));
                }
                "host" => host = Some(value),
                "origin" => origin = Some(value),
                "content-length" => {
                    // `+5` is a number to Rust.
                    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
                    let Some(bytes) = value.parse().ok().filter(|_| digits) else {
                        let text = format!("Content-Length '{value}' is not a number");
                        return Err(Problem::new(400, "bad_request", text));
                    };
                    head.body_bytes = bytes;
                    lengths += 1;
                }
                "transfer-encoding" => {
                    let text = "send the body with a Content-Length";
                    return Err(Problem::new(411, "length_required", text.into()));
                }
                "connection" => {
                    let has = |word: &str| {
                        value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word))
                    };
                    head.close = (head.close || has("close")) && !has("keep-alive");
                }
                "authorization" => {
                    let (scheme, secret) = value.split_once(' ').unwrap_or_default();
                    if scheme.eq_ignore_ascii_case("bearer") {
                        head.bearer = Some(secret.trim().into());
                    }
                }
                "if-none-match" => head.if_none_match = Some(value.into()),
                "if-match" => head.if_match = Some(value.into()),
                "last-event-id" => head.last_event_id = Some(value.into()),
                "content-type" => {
                    let kind = value.split(';').next().unwrap_or_default().trim();
                    head.is_json = kind.eq_ignore_ascii_case("application/json");
                }
                // A page of another site may make a browser send something, and is not to read or do
                // anything here.
                "sec-fetch-site" if value == "cross-site" => return Err(cross_site()),
                _ => {}
            }
        }
        if lengths > 1 {
            return Err(Problem::new(400, "bad_request", "more than one Content-Length".into()));
        }
        let of_ours = |origin: &str| origin.split_once("://").map(|(_, at)| at) == host;
        if origin.is_some_and(|origin| !of_ours(origin)) {
            return Err(cross_site());
        }
        match host {
            Some(host) if is_ours(host, hosts) => Ok(Some((head, length))),
            Some(host) => {
                let text = format!(
                    "this server does not answer for '{host}'; use its address, or add the name to `http_hosts`"
                );
                Err(Problem::new(421, "bad_host", text))
            }
            None => Err(Problem::new(400, "bad_host", "say the Host".into())),
        }
    }
}

impl Head {
    /// Takes `stale` out of the query, which any question may have.
    pub(super) fn take_stale(&mut self) -> Result<(), Problem> {
        if !matches!(self.method, Method::Get | Method::Head) || !self.path.starts_with("/v1/") {
            return Ok(());
        }
        let mut rest = Vec::new();
        for part in self.query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=').unwrap_or((part, "")) {
                ("stale", "true") => self.stale = true,
                ("stale", "false") => self.stale = false,
                ("stale", other) => {
                    let text = format!("stale: '{other}' is neither true nor false");
                    return Err(Problem::new(400, "invalid", text));
                }
                _ => rest.push(part),
            }
        }
        self.query = rest.join("&");
        Ok(())
    }
}

fn cross_site() -> Problem {
    Problem::new(403, "cross_site", "this server does not answer pages of other sites".into())
}

/// A name that others may let point here is not taken: that is how a page in a browser would get in.
/// Addresses and `localhost` cannot be made to point elsewhere.
fn is_ours(host: &str, hosts: &[String]) -> bool {
    let (name, port) = match host.rfind(':') {
        Some(at) if !host.ends_with(']') => (&host[..at], &host[at + 1..]),
        _ => (host, ""),
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    port.bytes().all(|byte| byte.is_ascii_digit())
        && (name.eq_ignore_ascii_case("localhost")
            || address.parse::<std::net::IpAddr>().is_ok()
            || hosts.iter().any(|other| other.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(Head, usize)>, Bad> {
        Head::read(text.replace('\n', "\r\n").as_bytes(), &["locks.example".into()])
    }

    fn refused(text: &str) -> (u16, String) {
        let problem = read(text).unwrap_err();
        (problem.status, problem.code.into())
    }

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let text = "POST /v1/locks?a=b HTTP/1.1\nHost: 127.0.0.1:5626\nContent-Type: application/json; charset=utf-8\n\
                    Content-Length: 12\nAuthorization: Bearer abc\nConnection: close\n\n";
        let (head, length) = read(text).unwrap().unwrap();
        assert_eq!((head.method, head.body_bytes, head.close), (Method::Post, 12, true));
        assert_eq!((head.path.as_str(), head.query.as_str()), ("/v1/locks", "a=b"));
        assert_eq!((head.bearer.as_deref(), head.is_json), (Some("abc"), true));
        assert_eq!(length, text.replace('\n', "\r\n").len());
        for end in 0..text.len() - 1 {
            assert_eq!(read(&text[..end]), Ok(None), "{}", &text[..end]);
        }
    }

    #[test]
    fn only_hosts_that_nobody_else_can_point_here_are_answered() {
        for host in
            ["localhost", "LOCALHOST:1", "127.0.0.1:5626", "[::1]:80", "10.0.0.7", "Locks.example"]
        {
            let text = format!("GET / HTTP/1.1\nHost: {host}\n\n");
            assert!(read(&text).unwrap().is_some(), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "locks.example:x",
            "",
        ] {
            let text = format!("GET / HTTP/1.1\nHost: {host}\n\n");
            assert_eq!(refused(&text), (421, "bad_host".into()), "{host}");
        }
        assert_eq!(refused("GET / HTTP/1.1\n\n").0, 400);
        assert_eq!(refused("GET / HTTP/1.1\nHost: localhost\nHost: ::1\n\n").0, 400);
    }

    #[test]
    fn what_two_readers_could_take_differently_is_refused() {
        let with = |line: &str| refused(&format!("POST / HTTP/1.1\nHost: localhost\n{line}\n\n")).0;
        assert_eq!(with("Transfer-Encoding: chunked"), 411);
        assert_eq!(with("Content-Length: 1\nContent-Length: 2"), 400);
        assert_eq!(with("Content-Length: +1"), 400);
        assert_eq!(with("Content-Length: 99999999999999999999999"), 400);
        assert_eq!(with("Sec-Fetch-Site: cross-site"), 403);
        assert_eq!(with("Origin: http://evil.example"), 403);
        assert_eq!(with("Origin: null"), 403);
        assert_eq!(with(&format!("X: {}", "y".repeat(HEAD_BYTES))), 431);
        assert_eq!(with(&"A: b\n".repeat(70)), 431);
        assert_eq!(refused("LOCK a\nHost: localhost\n\n").0, 400);
    }
}
