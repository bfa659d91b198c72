//! A client of HTTP that shows what it gets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::Running;

pub(crate) struct Http {
    pub(crate) stream: BufReader<TcpStream>,
    /// The header line that says who this is.
    authorization: String,
    /// The answer that comes next has no body: it is one to `HEAD`.
    bare: bool,
}

pub(crate) struct Got {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Status and code of a refusal.
    pub(crate) fn refusal(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.body);
        let body = self.json();
        assert_eq!(body["status"], self.status);
        (self.status, body["code"].as_str().unwrap().into())
    }
}

impl Http {
    pub(crate) fn to(server: &Running) -> Http {
        Http::at(server.addresses.http.unwrap())
    }

    pub(crate) fn at(address: SocketAddr) -> Http {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        // Longer than anything here takes: a hang is a failure, not a timing.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Http { stream: BufReader::new(stream), authorization: String::new(), bare: false }
    }

    /// Each request says this token from now on.
    pub(crate) fn with_token(mut self, token: &str) -> Http {
        self.authorization = format!("Authorization: Bearer {token}\r\n");
        self
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn begin(&mut self, method: &str, path: &str, body: &str) {
        self.begin_with(method, path, "", body);
    }

    /// With a header line more.
    fn begin_with(&mut self, method: &str, path: &str, header: &str, body: &str) {
        let json = if matches!(method, "POST" | "PATCH") {
            "Content-Type: application/json\r\n"
        } else {
            ""
        };
        let length = body.len();
        self.bare = method == "HEAD";
        let who = &self.authorization;
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{who}{json}{header}Content-Length: {length}\r\n\r\n{body}"
        );
        self.send(&text);
    }

    pub(crate) fn got(&mut self) -> Got {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("'{line}'")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.into()));
        }
        let mut got = Got { status, headers, body: String::new() };
        let length = got.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; if self.bare { 0 } else { length }];
        self.stream.read_exact(&mut body).unwrap();
        got.body = String::from_utf8(body).unwrap();
        got
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, body: &str) -> Got {
        self.begin(method, path, body);
        self.got()
    }

    /// The same at a version, as an `ETag` has it.
    pub(crate) fn ask_at(&mut self, method: &str, path: &str, etag: &str, body: &str) -> Got {
        self.begin_with(method, path, &format!("If-Match: {etag}\r\n"), body);
        self.got()
    }

    /// The same unless it is this version still.
    pub(crate) fn ask_unless(&mut self, method: &str, path: &str, etag: &str) -> Got {
        self.begin_with(method, path, &format!("If-None-Match: {etag}\r\n"), "");
        self.got()
    }

    pub(crate) fn lock(&mut self, body: &Value) -> Got {
        self.ask("POST", "/v1/locks", &body.to_string())
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.stream.read(&mut [0; 100]).map_or(true, |count| count == 0)
    }

    /// Listens to events, from behind one if `from` is a header line that says so.
    pub(crate) fn listen(&mut self, from: &str) {
        let who = &self.authorization;
        let text = format!("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n{who}{from}\r\n");
        self.send(&text);
        let got = self.got();
        assert_eq!(got.header("content-type"), Some("text/event-stream"), "{}", got.body);
    }

    /// The next event: its id, its kind and what it says. Nothing if the stream has ended.
    pub(crate) fn event(&mut self) -> Option<(String, String, Value)> {
        let (mut id, mut kind, mut data) = (String::new(), String::new(), Value::Null);
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", text)) => id = text.into(),
                Some(("event", text)) => kind = text.into(),
                Some(("data", text)) => data = serde_json::from_str(text).unwrap(),
                _ if kind.is_empty() => {}
                _ => return Some((id, kind, data)),
            }
        }
    }
}
