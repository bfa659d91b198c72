//! HTTP, as bytes on a socket: what is asked, what is answered, and what is refused.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use common::Running;
use common::http::Http;
use serde_json::json;

fn server() -> Running {
    Running::with(|config| config.http = Some("127.0.0.1:0".parse().unwrap()))
}

#[test]
fn probes_are_answered_when_there_are_too_many_connections() {
    let server = Running::with(|config| {
        config.http = Some("127.0.0.1:0".parse().unwrap());
        config.connections = 2;
    });
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!((a.say("PING"), b.say("PING")), ("PONG".into(), "PONG".into()));
    for path in ["/livez", "/readyz", "/metrics"] {
        let answer = Http::to(&server).ask("GET", path, "");
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "{path}");
    }
    let refused = Http::to(&server).ask("GET", "/v1/locks", "");
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains("too many connections"), "{}", refused.body);
    // Those who say nothing may take the room for probes, and no more than that.
    let silent: Vec<TcpStream> =
        (0..9).map(|_| TcpStream::connect(server.addresses.http.unwrap()).unwrap()).collect();
    let mut told = String::new();
    (&silent[8]).read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
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
        ("{\"name\": \"a\", \"argument\": [\"\\\\x\"]}", "a field that begins with \\"),
        ("{\"name\": \"a\", \"argument\": [\"@x\"]}", "a field that begins with @"),
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
        http.listen(from);
        http
    };
    let event = |http: &mut Http| http.event().expect("the stream goes on");
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

/// A server that does not wait long for anyone.
fn impatient() -> Running {
    Running::with(|config| {
        config.handshake = Duration::from_millis(300);
        config.incomplete = Duration::from_millis(300);
    })
}

/// Until the server has closed it; what was said before is returned.
fn until_closed(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
    String::from_utf8(said).unwrap()
}

#[test]
fn who_says_nothing_or_does_not_finish_is_cut_off() {
    let server = impatient();
    let address = server.addresses.http.unwrap();
    let mut good = Http::to(&server);
    good.lock(&json!({"name": "a", "id": "one"}));
    let post = "POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let begun: Vec<TcpStream> = [
        String::new(),
        "G".into(),
        "GET /livez HTTP/1.1\r\nHost: loc".into(),
        format!("{post}Content-Length: 20\r\n\r\n"),
        format!("{post}Content-Length: 20\r\n\r\n{{\"name\":"),
    ]
    .iter()
    .map(|text| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    })
    .collect();
    for stream in begun {
        assert_eq!(until_closed(stream), "");
    }
    // A byte now and then does not help.
    let mut slow = TcpStream::connect(address).unwrap();
    let began = Instant::now();
    let line =
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
    for byte in line {
        // The second one after the end notices it.
        if slow.write_all(&[*byte]).is_err() {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it is still listened to");
        std::thread::sleep(Duration::from_millis(20));
    }
    // One who has said all of it may be silent for as long as it likes.
    assert_eq!(good.ask("DELETE", "/v1/locks/one", "").status, 204);
}

#[test]
fn who_has_nothing_more_to_say_is_answered_and_who_is_half_done_is_not_waited_for() {
    let server = server();
    let address = server.addresses.http.unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(until_closed(stream).ends_with("ok\n"));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: loc").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(until_closed(stream), "");
}

#[test]
fn what_is_too_large_is_refused_before_it_is_there() {
    let server = server();
    let address = server.addresses.http.unwrap();
    let large = "x".repeat(1 << 20);
    for (text, status) in [
        (format!("GET /{large} HTTP/1.1\r\nHost: localhost\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {large}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(10_000)), 431),
        (large.clone(), 431),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        // It need not read all of it to know.
        drop(stream.write_all(text.as_bytes()));
        let said = until_closed(stream);
        assert!(said.is_empty() || said.starts_with(&format!("HTTP/1.1 {status} ")), "{said}");
    }
    for length in ["131073", "4294967296", "18446744073709551615"] {
        let mut http = Http::to(&server);
        http.send(&format!(
            "POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        ));
        assert_eq!(http.got().refusal(), (413, "too_large".into()), "{length}");
        assert!(http.is_closed());
    }
    // As large as is allowed.
    let mut http = Http::to(&server);
    let body = format!("{{\"name\": \"a\"{}}}", " ".repeat(128 * 1024 - 13));
    assert_eq!(body.len(), 128 * 1024);
    assert_eq!(http.ask("POST", "/v1/locks", &body).status, 200);
    let deep = "[".repeat(100_000);
    let body = format!("{{\"name\": \"a\", \"argument\": {deep}}}");
    assert_eq!(http.ask("POST", "/v1/locks", &body).refusal(), (400, "invalid".into()));
}

#[test]
fn one_who_asks_well_is_served_while_others_do_not() {
    let server = server();
    let address = server.addresses.http.unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let done = &done;
    let bad = [
        "LOCK a\r\n\r\n",
        "GET /nothing HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\n{{{",
        "\0\0\0\0",
        "GET /livez HTTP/1.1\r\nHost: loc",
    ];
    std::thread::scope(|scope| {
        let flood = |text: &'static str| {
            let mut count = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let Ok(mut stream) = TcpStream::connect(address) else { continue };
                drop(stream.write_all(text.as_bytes()));
                drop(stream.shutdown(Shutdown::Write));
                drop(stream.read(&mut [0; 100]));
                count += 1;
            }
            count
        };
        let floods: Vec<_> = bad.iter().map(|text| scope.spawn(move || flood(text))).collect();
        let mut http = Http::to(&server);
        for round in 0..500 {
            let id = format!("id-{round}");
            let got = http.lock(&json!({"name": "a", "id": id}));
            assert_eq!(got.status, 200, "{}", got.body);
            assert_eq!(http.ask("DELETE", &format!("/v1/locks/{id}"), "").status, 204);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        let counts: Vec<u64> = floods.into_iter().map(|one| one.join().unwrap()).collect();
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    });
}

#[test]
fn requests_that_come_together_are_answered_in_their_order() {
    let server = server();
    let mut http = Http::to(&server);
    let rounds = 200;
    for round in 0..rounds {
        let id = format!("id-{round}");
        // A change, a question that sees it, another change, a question that does not, and a text.
        http.begin("POST", "/v1/locks", &json!({"name": "a", "id": id}).to_string());
        http.begin("GET", &format!("/v1/locks/{id}"), "");
        http.begin("GET", "/livez", "");
        http.begin("DELETE", &format!("/v1/locks/{id}"), "");
        http.begin("GET", &format!("/v1/locks/{id}"), "");
        http.begin("GET", "/nothing", "");
    }
    for round in 0..rounds {
        let id = format!("id-{round}");
        let granted = http.got().json();
        assert_eq!((&granted["status"], &granted["id"]), (&json!("granted"), &json!(id)));
        assert_eq!(http.got().json()["id"], json!(id));
        assert_eq!(http.got().body, "ok\n");
        assert_eq!(http.got().status, 204);
        assert_eq!(http.got().refusal(), (404, "not_held".into()));
        assert_eq!(http.got().refusal(), (404, "no_such_path".into()));
    }
}

#[test]
fn who_waits_and_goes_away_leaves_the_line_after_the_grace() {
    let server = Running::with(|config| config.grace = Duration::from_millis(500));
    let mut first = Http::to(&server);
    first.lock(&json!({"name": "a", "id": "one"}));
    let waiting = |http: &mut Http| {
        let list = http.ask("GET", "/v1/locks?name=a&waiters=true", "").json();
        list["locks"].as_array().unwrap().len() - 1
    };
    let body = "{\"name\": \"a\", \"id\": \"two\", \"wait_ms\": 600000}";
    let mut second = Http::to(&server);
    second.begin("POST", "/v1/locks", body);
    while waiting(&mut first) == 0 {}
    let gone = Instant::now();
    drop(second);
    // Whoever comes back within the grace has its place still.
    let mut second = Http::to(&server);
    second.begin("POST", "/v1/locks", body);
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!(waiting(&mut first), 1, "it came back");
    drop(second);
    while waiting(&mut first) == 1 {
        assert!(gone.elapsed() < Duration::from_secs(30), "it stands in the way of others");
    }
    assert_eq!(first.ask("DELETE", "/v1/locks/one", "").status, 204);
    assert_eq!(first.lock(&json!({"name": "a", "id": "three"})).status, 200, "nobody has got it");
}

/// Takes a lock and lets it be revoked: one event.
fn happen(http: &mut Http, name: &str, reason: &str) {
    let token = http.lock(&json!({"name": name, "owner": "ann"})).json()["token"].clone();
    let body = json!({"token": token, "reason": reason}).to_string();
    assert_eq!(http.ask("POST", "/v1/revoke", &body).status, 200);
}

#[test]
fn a_hundred_who_listen_all_hear_it() {
    let server = server();
    let mut all: Vec<Http> = (0..100).map(|_| Http::to(&server)).collect();
    for http in &mut all {
        http.listen("");
    }
    let mut http = Http::to(&server);
    for name in ["a", "b", "c"] {
        happen(&mut http, name, "test");
    }
    for listener in &mut all {
        for name in ["a", "b", "c"] {
            let (_, kind, data) = listener.event().expect("the stream goes on");
            assert_eq!(kind, "lost");
            assert_eq!(data["request"]["resources"][0]["resource"], name);
        }
    }
}

#[test]
fn one_who_listens_and_does_not_read_is_dropped_and_the_others_hear_on() {
    let server = server();
    let (mut deaf, mut good) = (Http::to(&server), Http::to(&server));
    deaf.listen("");
    good.listen("");
    let mut http = Http::to(&server);
    // More than sockets hold and the server keeps, of events of about a kilobyte.
    let reason = "x".repeat(1_000);
    let count = 16_000;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for at in 0..count {
                let (_, kind, data) = good.event().expect("the stream goes on");
                assert_eq!(kind, "lost");
                let name = format!("key-{at}");
                assert_eq!(data["request"]["resources"][0]["resource"], name.as_str());
            }
        });
        for at in 0..count {
            happen(&mut http, &format!("key-{at}"), &reason);
        }
        reader.join().unwrap();
    });
    // It ends, perhaps in the middle of an event.
    let mut heard = Vec::new();
    drop(deaf.stream.read_to_end(&mut heard));
    let heard = String::from_utf8_lossy(&heard).matches("event: lost").count();
    assert!(heard < count, "it was dropped");
}
