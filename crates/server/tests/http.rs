//! HTTP, as bytes on a socket: what is asked, what is answered, and what is refused.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::Running;
use serde_json::{Value, json};

struct Http {
    stream: BufReader<TcpStream>,
}

struct Got {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Status and code of a refusal.
    fn refusal(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.body);
        let body = self.json();
        assert_eq!(body["status"], self.status);
        (self.status, body["code"].as_str().unwrap().into())
    }
}

impl Http {
    fn to(server: &Running) -> Http {
        let stream = TcpStream::connect(server.addresses.http.unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Http { stream: BufReader::new(stream) }
    }

    fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn begin(&mut self, method: &str, path: &str, body: &str) {
        let json = if method == "POST" { "Content-Type: application/json\r\n" } else { "" };
        let length = body.len();
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{json}Content-Length: {length}\r\n\r\n{body}"
        ));
    }

    fn got(&mut self) -> Got {
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
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        got.body = String::from_utf8(body).unwrap();
        got
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> Got {
        self.begin(method, path, body);
        self.got()
    }

    fn lock(&mut self, body: &Value) -> Got {
        self.ask("POST", "/v1/locks", &body.to_string())
    }

    fn is_closed(&mut self) -> bool {
        self.stream.read(&mut [0; 100]).map_or(true, |count| count == 0)
    }
}

fn server() -> Running {
    Running::with(|config| config.http = Some("127.0.0.1:0".parse().unwrap()))
}

#[test]
fn a_lock_is_taken_shown_renewed_promoted_and_released() {
    let server = server();
    let mut http = Http::to(&server);
    let got = http.lock(&json!({"name": "a", "argument": ["x", 1.0, true, "@"], "mode": "O", "owner": "ann", "meta": "m"}));
    assert_eq!(got.status, 200, "{}", got.body);
    let granted = got.json();
    assert_eq!(granted["status"], "granted");
    assert_eq!(granted["lease_ms"], 30_000);
    let id = granted["id"].as_str().unwrap();
    let shown = http.ask("GET", &format!("/v1/locks/{id}"), "");
    let etag = shown.header("etag").unwrap().to_string();
    let lock = shown.json();
    assert_eq!(
        lock["resources"],
        json!([{"name": "a", "argument": ["x", 1, true, "@"], "mode": "O"}])
    );
    assert_eq!(
        (&lock["owner"], &lock["state"], &lock["meta"]),
        (&json!("ann"), &json!("held"), &json!("m"))
    );
    let same =
        format!("GET /v1/locks/{id} HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {etag}\r\n\r\n");
    http.send(&same);
    assert_eq!(http.got().status, 304);
    let renewed =
        http.ask("POST", &format!("/v1/locks/{id}/renew"), "{\"lease_ms\": 90000}").json();
    assert_eq!(renewed, json!({"status": "renewed", "lease_ms": 90_000}));
    let promoted = http.ask("POST", &format!("/v1/locks/{id}/promote"), "{}").json();
    assert_eq!(promoted["status"], "promoted");
    assert!(promoted["token"].as_u64() > granted["token"].as_u64());
    http.send(&same);
    assert_eq!(http.got().status, 200, "it is not the same any more");
    let list = http.ask("GET", "/v1/locks?name=a&owner=ann&limit=1", "").json();
    assert_eq!(list["locks"][0]["token"], promoted["token"]);
    assert_eq!(list["next_cursor"], lock["seq"]);
    assert_eq!(http.ask("DELETE", &format!("/v1/locks/{id}"), "").status, 204);
    assert_eq!(http.ask("GET", &format!("/v1/locks/{id}"), "").refusal(), (404, "not_held".into()));
    assert_eq!(
        http.ask("POST", &format!("/v1/locks/{id}/renew"), "{}").refusal(),
        (410, "ended".into())
    );
}

#[test]
fn a_refusal_names_the_blocker() {
    let server = server();
    let mut http = Http::to(&server);
    http.lock(&json!({"name": "a", "owner": "ann"}));
    let got = http.lock(&json!({"name": "a", "owner": "bob"}));
    assert_eq!(got.refusal(), (409, "busy".into()));
    let problem = got.json();
    assert_eq!(problem["blocker"]["owner"], "ann");
    assert_eq!(problem["detail"], "ann is in the way");
    let got = http.lock(&json!({"name": "a", "owner": "bob", "wait_ms": 20}));
    assert_eq!(got.refusal(), (409, "timeout".into()));
    let got = http.lock(&json!({"name": "b", "id": "one"}));
    assert_eq!(got.status, 200);
    assert_eq!(http.lock(&json!({"name": "c", "id": "one"})).refusal(), (409, "id_reused".into()));
}

#[test]
fn a_lock_is_the_same_on_every_port() {
    let server = server();
    let (mut http, mut resp) = (Http::to(&server), server.client());
    let got =
        http.lock(&json!({"name": "a", "argument": ["x", "\\@y", "@"], "owner": "ann", "id": "i"}));
    assert_eq!(got.status, 200, "{}", got.body);
    assert!(resp.say("LOCK a ARG 3 x \\@y z").contains("owner=ann"));
    assert_eq!(resp.say("LOCK a ARG 3 x y z ID j OWNER bob"), "status=granted id=j");
    assert_eq!(
        http.lock(&json!({"name": "a", "argument": ["x", "y", "z"]})).json()["blocker"]["owner"],
        "bob"
    );
    assert_eq!(resp.say("UNLOCK i"), "1");
    assert_eq!(http.ask("DELETE", "/v1/locks/j", "").status, 204);
    assert_eq!(resp.say("SET k v NX PX 60000"), "OK");
    assert_eq!(http.lock(&json!({"name": "k"})).refusal().1, "busy");
}

#[test]
fn a_wait_ends_with_the_release_and_the_connection_goes_on() {
    let server = server();
    let (mut first, mut second) = (Http::to(&server), Http::to(&server));
    first.lock(&json!({"name": "a", "id": "one"}));
    second.begin("POST", "/v1/locks", "{\"name\": \"a\", \"id\": \"two\", \"wait_ms\": 60000}");
    second.begin("GET", "/livez", "");
    while first.ask("GET", "/v1/locks?waiters=true", "").json()["locks"].as_array().unwrap().len()
        < 2
    {}
    assert_eq!(first.ask("DELETE", "/v1/locks/one", "").status, 204);
    let granted = second.got().json();
    assert_eq!((&granted["status"], &granted["id"]), (&json!("granted"), &json!("two")));
    assert_eq!(second.got().body, "ok\n", "what came behind it is answered behind it");
}

#[test]
fn who_waits_long_is_told_so_and_goes_on_under_the_same_id() {
    let server = Running::with(|config| {
        config.http = Some("127.0.0.1:0".parse().unwrap());
        config.http_answer = Duration::from_millis(500);
    });
    let (mut first, mut second) = (Http::to(&server), Http::to(&server));
    first.lock(&json!({"name": "a", "id": "one"}));
    let ask = json!({"name": "a", "id": "two", "owner": "bob", "wait_ms": 60_000});
    let got = second.lock(&ask);
    assert_eq!((got.status, got.json()), (202, json!({"status": "waiting", "id": "two"})));
    // Another who comes now stands behind it.
    first.begin("POST", "/v1/locks", "{\"name\": \"a\", \"id\": \"three\", \"wait_ms\": 60000}");
    let mut third = Http::to(&server);
    while third.ask("GET", "/v1/locks?waiters=true", "").json()["locks"].as_array().unwrap().len()
        < 3
    {}
    second.begin("POST", "/v1/locks", &ask.to_string());
    assert_eq!(third.ask("DELETE", "/v1/locks/one", "").status, 204);
    assert_eq!(second.got().json()["status"], "granted");
}

#[test]
fn what_is_wrong_is_said() {
    let server = server();
    let refused =
        |method: &str, path: &str, body: &str| Http::to(&server).ask(method, path, body).refusal();
    let lock = |body: &str| {
        let got = Http::to(&server).ask("POST", "/v1/locks", body);
        (got.refusal(), got.json()["detail"].as_str().unwrap().to_string())
    };
    for (body, says) in [
        ("", "the body: EOF"),
        ("{", "the body: EOF"),
        ("[]", "the body: "),
        ("{}", "say what to lock"),
        ("{\"name\": \"\"}", "a resource needs a name"),
        ("{\"name\": \"a\", \"mode\": \"Z\"}", "mode 'Z' is not S"),
        ("{\"name\": \"a\", \"wait\": 1}", "the body: unknown field `wait`"),
        ("{\"name\": \"a\", \"wait_ms\": -1}", "the body: -1 is not a whole number"),
        ("{\"name\": \"a\", \"argument\": [null]}", "a field of `argument`"),
        ("{\"mode\": \"S\"}", "`argument` and `mode` belong"),
        ("{\"name\": \"a\", \"id\": \"\"}", "the request id is empty"),
        ("{\"name\": \"a\", \"lease_ms\": 99999999999999}", "the lease is longer"),
        (
            "{\"resources\": [{\"name\": \"a\"}, {\"name\": \"a\"}]}",
            "two resources of the request overlap",
        ),
    ] {
        let ((status, code), detail) = lock(body);
        assert_eq!((status, code.as_str()), (400, "invalid"), "{body}");
        assert!(detail.starts_with(says), "{body}: {detail}");
    }
    assert_eq!(refused("GET", "/nothing", ""), (404, "no_such_path".into()));
    assert_eq!(refused("DELETE", "/v1/locks", ""), (405, "bad_method".into()));
    assert_eq!(refused("PUT", "/v1/locks", ""), (405, "bad_method".into()));
    assert_eq!(refused("GET", "/v1/locks?limit=0", ""), (400, "invalid".into()));
    assert_eq!(refused("GET", "/v1/locks?nonsense=1", ""), (400, "invalid".into()));
    assert_eq!(refused("DELETE", "/v1/locks/%ff", ""), (400, "invalid".into()));
    assert_eq!(
        refused("POST", "/v1/revoke", "{\"token\": 1, \"reason\": \"x\"}"),
        (404, "not_held".into())
    );
    let mut http = Http::to(&server);
    http.send("POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n\r\n{\"name\": \"a\"}\n");
    assert_eq!(http.got().refusal(), (415, "not_json".into()));
    for (head, status) in [
        ("GET /livez HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        ("POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n", 413),
        ("POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        ("LOCK a\r\n\r\n", 400),
    ] {
        let mut http = Http::to(&server);
        http.send(head);
        let got = http.got();
        assert_eq!(got.refusal().0, status, "{head}");
        assert_eq!(got.header("connection"), Some("close"));
        assert!(http.is_closed(), "{head}");
    }
}

#[test]
fn a_connection_is_closed_when_that_is_asked_for() {
    let server = server();
    for head in [
        "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n",
    ] {
        let mut http = Http::to(&server);
        http.send(head);
        assert_eq!(http.got().status, 200);
        assert!(http.is_closed());
    }
    let mut http = Http::to(&server);
    http.lock(&json!({"name": "a", "id": "one"}));
    let mut waits = Http::to(&server);
    let body = "{\"name\": \"a\", \"wait_ms\": 60000}";
    waits.send(&format!("POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    while http.ask("GET", "/v1/locks?waiters=true", "").json()["locks"].as_array().unwrap().len()
        < 2
    {}
    http.ask("DELETE", "/v1/locks/one", "");
    assert_eq!(waits.got().json()["status"], "granted", "not before it is answered");
    assert!(waits.is_closed());
    let mut http = Http::to(&server);
    http.send("HEAD /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut text = vec![0; 4096];
    let mut all = String::new();
    while !all.ends_with("ok\n") {
        let count = http.stream.read(&mut text).unwrap();
        all += std::str::from_utf8(&text[..count]).unwrap();
    }
    assert!(!all.contains("openapi\""), "HEAD has no body: {all}");
}

#[test]
fn events_can_be_followed_and_followed_again() {
    let server = server();
    let listen = |from: &str| {
        let mut http = Http::to(&server);
        http.send(&format!("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n{from}\r\n"));
        assert_eq!(http.got().header("content-type"), Some("text/event-stream"));
        http
    };
    let event = |http: &mut Http| {
        let (mut id, mut kind, mut data) = (String::new(), String::new(), Value::Null);
        loop {
            let mut line = String::new();
            assert!(http.stream.read_line(&mut line).unwrap() > 0, "the stream ended");
            match line.trim_end().split_once(": ") {
                Some(("id", text)) => id = text.into(),
                Some(("event", text)) => kind = text.into(),
                Some(("data", text)) => data = serde_json::from_str(text).unwrap(),
                _ if kind.is_empty() => {}
                _ => return (id, kind, data),
            }
        }
    };
    let mut events = listen("");
    let mut http = Http::to(&server);
    let revoke = |http: &mut Http, name: &str| {
        let token = http.lock(&json!({"name": name, "owner": "ann"})).json()["token"].clone();
        let revoked =
            http.ask("POST", "/v1/revoke", &json!({"token": token, "reason": "test"}).to_string());
        assert_eq!(revoked.json(), json!({"status": "revoked"}));
    };
    revoke(&mut http, "a");
    let (first, kind, data) = event(&mut events);
    assert_eq!(kind, "lost");
    assert_eq!((&data["cause"], &data["reason"]), (&json!("revoked"), &json!("test")));
    assert_eq!(data["request"]["resources"][0]["resource"], "a");
    drop(events);
    revoke(&mut http, "b");
    revoke(&mut http, "c");
    let mut events = listen(&format!("Last-Event-ID: {first}\r\n"));
    assert_eq!(event(&mut events).2["request"]["resources"][0]["resource"], "b");
    assert_eq!(event(&mut events).2["request"]["resources"][0]["resource"], "c");
    let mut events = listen("Last-Event-ID: 1-1\r\n");
    assert_eq!(event(&mut events).1, "missed");
    revoke(&mut http, "d");
    assert_eq!(event(&mut events).2["request"]["resources"][0]["resource"], "d");
}

#[test]
fn whoever_watches_the_server_gets_figures_without_names() {
    let server = server();
    let mut http = Http::to(&server);
    http.lock(&json!({"name": "secret", "owner": "ann", "id": "one"}));
    http.lock(&json!({"name": "secret", "owner": "bob"}));
    http.ask("DELETE", "/v1/locks/one", "");
    let text = http.ask("GET", "/metrics", "").body;
    for line in [
        "keylatch_acquire_total{mode=\"X\",outcome=\"granted\"} 1",
        "keylatch_acquire_total{mode=\"X\",outcome=\"busy\"} 1",
        "keylatch_released_total 1",
        "keylatch_held 0",
        "keylatch_hold_seconds_count 1",
        "keylatch_wait_seconds_count 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in:\n{text}");
    }
    assert!(!text.contains("secret") && !text.contains("ann"));
    assert_eq!(http.ask("GET", "/livez", "").body, "ok\n");
    assert_eq!(http.ask("GET", "/readyz", "").body, "ready\n");
    assert!(http.ask("GET", "/readyz?verbose", "").body.contains("log: off"));
    let document = http.ask("GET", "/openapi.json", "").json();
    assert!(document["paths"]["/v1/locks/{id}"]["delete"]["responses"]["204"].is_object());
    assert_eq!(http.ask("GET", "/v1/owners", "").json(), json!({"owners": []}));
    assert!(http.ask("GET", "/v1/longest", "").json()["holds"].is_array());
}
