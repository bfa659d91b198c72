//! Who may do what, on every port: a server with an access file, and principals that have one right
//! each.

mod common;
mod tls_common;

use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::http::{Got, Http};
use common::{Client, Peer, Running, lock, show};
use keylatch_server::access::NewToken;
use keylatch_wire::Value;
use serde_json::json;
use tls_common::Place as Certificates;

/// A principal, and its rights by prefix.
type Line<'a> = (&'a str, &'a [(&'a str, &'a str)]);

/// One principal a right, on names that begin with `a:`, and some that have more.
const EVERYONE: &[Line<'_>] = &[
    ("shared", &[("a:", "shared")]),
    ("exclusive", &[("a:", "exclusive")]),
    ("observe", &[("a:", "observe")]),
    ("revoke", &[("a:", "revoke")]),
    ("admin", &[("a:", "admin")]),
    ("watcher", &[("", "observe")]),
    ("nobody", &[]),
    ("root", &[("", "admin")]),
];

/// The order of the columns below.
const WHO: [&str; 8] =
    ["shared", "exclusive", "observe", "revoke", "admin", "watcher", "nobody", "root"];

/// An access file, and the tokens of those who are in it.
struct Place {
    dir: tempfile::TempDir,
    tokens: HashMap<String, NewToken>,
    made: Cell<u32>,
}

impl Place {
    fn new(lines: &[Line<'_>]) -> Place {
        let tokens = lines.iter().map(|(name, _)| ((*name).into(), NewToken::generate().unwrap()));
        let place = Place {
            dir: tempfile::tempdir().unwrap(),
            tokens: tokens.collect(),
            made: Cell::new(0),
        };
        place.write(lines);
        place
    }

    fn access(&self) -> PathBuf {
        self.dir.path().join("access.toml")
    }

    fn audit(&self) -> PathBuf {
        self.dir.path().join("audit.jsonl")
    }

    /// What the file says from now on.
    fn write(&self, lines: &[Line<'_>]) {
        let text: String = lines.iter().map(|line| self.text(line)).collect();
        std::fs::write(self.access(), text).unwrap();
    }

    fn text(&self, (name, rules): &Line<'_>) -> String {
        let token = &self.tokens[*name];
        let mut text = format!(
            "[[principal]]\nname = \"{name}\"\ncertificate = \"{name}.example\"\n\
             [[principal.token]]\nid = \"{}\"\nhash = \"{}\"\n",
            token.id(),
            token.hash()
        );
        for (prefix, right) in *rules {
            let rights = right.replace(' ', "\", \"");
            text +=
                &["[[principal.rule]]\nprefix = \"", prefix, "\"\nrights = [\"", &rights, "\"]\n"]
                    .concat();
        }
        text
    }

    fn token(&self, name: &str) -> String {
        self.tokens[name].reveal()
    }

    fn server(&self) -> Running {
        Running::with(|config| {
            config.access = Some(self.access());
            config.audit = Some(self.audit());
        })
    }

    fn resp(&self, server: &Running, name: &str) -> Client {
        let mut client = server.client();
        assert_eq!(client.say(&format!("AUTH {}", self.token(name))), "OK", "{name}");
        client
    }

    fn http(&self, server: &Running, name: &str) -> Http {
        Http::to(server).with_token(&self.token(name))
    }

    /// A word that nobody has said before.
    fn fresh(&self) -> String {
        self.made.set(self.made.get() + 1);
        format!("made-{}", self.made.get())
    }
}

/// What of it may be done, by whom.
fn columns(may: impl Fn(&str) -> bool) -> String {
    WHO.iter().map(|who| if may(who) { 'y' } else { '.' }).collect()
}

fn field(value: &Value, name: &str) -> String {
    show(value.field(name).unwrap_or_else(|| panic!("no {name} in {value:?}")))
}

/// Allowed, or refused with these words and no other.
fn may_resp(reply: &str, needs: &str) -> bool {
    if reply.starts_with('-') {
        assert!(reply.starts_with("-NOPERM ") && reply.contains(needs), "{reply}");
    }
    !reply.starts_with('-')
}

fn may_http(got: &Got, needs: &str) -> bool {
    if got.status == 403 {
        assert_eq!(got.refusal(), (403, "forbidden".into()));
        assert!(got.json()["detail"].as_str().unwrap().contains(needs), "{}", got.body);
    } else {
        assert!(got.status < 300, "{}: {}", got.status, got.body);
    }
    got.status != 403
}

#[test]
fn each_right_allows_what_it_says_below_its_prefix_and_nothing_else() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    //                    shared ... root
    for (prefix, mode, expected) in [
        ("a:", "S", "y...y..y"),
        ("a:", "O", "y...y..y"),
        ("a:", "E", ".y..y..y"),
        ("a:", "X", ".y..y..y"),
        ("a", "S", ".......y"),
        ("b:", "S", ".......y"),
        ("b:", "X", ".......y"),
    ] {
        let needs = if "SO".contains(mode) { "`shared`" } else { "`exclusive`" };
        let (name, wait) = (|| format!("{prefix}{}", place.fresh()), 50);
        let by_resp = columns(|who| {
            let mut client = place.resp(&server, who);
            let reply = client.say(&format!("LOCK {} MODE {mode} WAIT {wait}", name()));
            assert_eq!(client.say("PING"), "PONG", "{who}: the connection goes on");
            may_resp(&reply, needs)
        });
        assert_eq!(by_resp, expected, "RESP, {mode} on {prefix}");
        let by_http = columns(|who| {
            let mut http = place.http(&server, who);
            let got = http.lock(&json!({"name": name(), "mode": mode, "wait_ms": wait}));
            assert_eq!(http.ask("GET", "/livez", "").status, 200, "{who}: the connection goes on");
            may_http(&got, needs)
        });
        assert_eq!(by_http, expected, "HTTP, {mode} on {prefix}");
    }
}

#[test]
fn one_part_that_is_not_allowed_is_enough_to_refuse_all() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let mut client = place.resp(&server, "exclusive");
    let refused = client.say("LOCK a:1 AND b:1");
    assert!(refused.starts_with("-NOPERM ") && refused.contains("'b:1'"), "{refused}");
    assert!(client.say("LOCK a:1 AND a:2 MODE S").starts_with("-NOPERM "));
    assert!(client.say("LOCK a:1 AND a:2 ID one").starts_with("status=granted"));
    let mut http = place.http(&server, "exclusive");
    let got = http.lock(&json!({"resources": [{"name": "a:3"}, {"name": "b:3"}]}));
    assert_eq!(got.status, 403);
    assert_eq!(http.lock(&json!({"resources": [{"name": "a:3"}, {"name": "a:4"}]})).status, 200);
}

#[test]
fn promoting_needs_exclusive_besides() {
    let place = Place::new(&[
        ("shared", &[("a:", "shared")]),
        ("both", &[("a:", "shared exclusive")]),
        ("admin", &[("a:", "admin")]),
    ]);
    let server = place.server();
    for (who, may) in [("shared", false), ("both", true), ("admin", true)] {
        let (name, id) = (format!("a:{}", place.fresh()), place.fresh());
        let mut client = place.resp(&server, who);
        assert!(client.say(&format!("LOCK {name} MODE O ID {id}")).starts_with("status=granted"));
        let reply = client.say(&format!("PROMOTE {id}"));
        assert_eq!(may_resp(&reply, "`exclusive`"), may, "{who}: {reply}");
        let (name, id) = (format!("a:{}", place.fresh()), place.fresh());
        let mut http = place.http(&server, who);
        assert_eq!(http.lock(&json!({"name": name, "mode": "O", "id": id})).status, 200);
        let got = http.ask("POST", &format!("/v1/locks/{id}/promote"), "{}");
        assert_eq!(may_http(&got, "`exclusive`"), may, "{who}: {}", got.body);
    }
}

#[test]
fn revoking_needs_its_right_on_the_names_of_the_grant() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let mut root = place.resp(&server, "root");
    for (prefix, expected) in [("a:", "...yy..y"), ("b:", ".......y")] {
        let mut grant = || {
            let granted = root.ask(&format!("LOCK {prefix}{} LEASE 0", place.fresh()));
            field(&granted, "token")
        };
        let tokens: HashMap<&str, [String; 2]> =
            WHO.iter().map(|who| (*who, [grant(), grant()])).collect();
        let by_resp = columns(|who| {
            let [token, _] = &tokens[who];
            let reply = place.resp(&server, who).say(&format!("REVOKE {token} REASON test"));
            assert!(reply == "1" || reply == "0" || reply.starts_with("-NOPERM "), "{reply}");
            reply == "1"
        });
        assert_eq!(by_resp, expected, "RESP, {prefix}");
        let by_http = columns(|who| {
            let [_, token] = &tokens[who];
            let body = format!("{{\"token\": {token}, \"reason\": \"test\"}}");
            let got = place.http(&server, who).ask("POST", "/v1/revoke", &body);
            assert!([200, 403, 404].contains(&got.status), "{}", got.body);
            got.status == 200
        });
        assert_eq!(by_http, expected, "HTTP, {prefix}");
    }
    // A grant that one may not know of is one that there is not.
    let hidden = field(&root.ask("LOCK b:hidden"), "token");
    let mut client = place.resp(&server, "revoke");
    let unknown = client.say("REVOKE 999999 REASON test");
    assert_eq!(client.say(&format!("REVOKE {hidden} REASON test")), unknown);
    let mut http = place.http(&server, "revoke");
    let unknown = http.ask("POST", "/v1/revoke", "{\"token\": 999999, \"reason\": \"test\"}").body;
    let body = format!("{{\"token\": {hidden}, \"reason\": \"test\"}}");
    assert_eq!(http.ask("POST", "/v1/revoke", &body).body, unknown);
}

#[test]
fn names_are_seen_by_those_who_have_some_right_on_them() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let mut root = place.resp(&server, "root");
    for (name, expected) in [("a:1", "yyyyyy.y"), ("b:1", ".....y.y")] {
        assert!(root.say(&format!("LOCK {name} ID secret-{name}")).starts_with("status=granted"));
        let list = format!("/v1/locks?name={name}");
        let sees_id = |who: &str| name == "a:1" && who == "admin" || who == "root";
        let by_resp = columns(|who| {
            let reply = place.resp(&server, who).say(&format!("LOCKS NAME {name}"));
            assert_eq!(reply.contains("secret"), sees_id(who), "{who}: {reply}");
            reply.contains(name)
        });
        assert_eq!(by_resp, expected, "LOCKS, {name}");
        let by_http = columns(|who| {
            let got = place.http(&server, who).ask("GET", &list, "");
            assert_eq!(got.status, 200, "{}", got.body);
            assert_eq!(got.body.contains("secret"), sees_id(who), "{who}: {}", got.body);
            !got.json()["locks"].as_array().unwrap().is_empty()
        });
        assert_eq!(by_http, expected, "GET, {name}");
        let shown = columns(|who| {
            let path = format!("/v1/locks/secret-{name}");
            place.http(&server, who).ask("GET", &path, "").status == 200
        });
        assert_eq!(shown, columns(sees_id), "by id, {name}");
    }
    // Its own are always shown, with their ids.
    let mut client = place.resp(&server, "exclusive");
    assert!(client.say("LOCK a:own ID mine").starts_with("status=granted"));
    let Value::Array(all) = client.ask("LOCKS NAME a:own") else { panic!("a list") };
    assert_eq!(field(&all[0], "id"), "mine");
    let mut http = place.http(&server, "exclusive");
    assert_eq!(http.ask("GET", "/v1/locks?name=a:own", "").json()["locks"][0]["id"], "mine");
    assert_eq!(http.ask("GET", "/v1/locks/mine", "").status, 200);
}

#[test]
fn a_list_has_the_rights_of_the_one_who_asked_whoever_speaks_behind_it() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let mut root = place.resp(&server, "root");
    assert!(root.say("LOCK b:1 ID secret").starts_with("status=granted"));
    let mut client = place.resp(&server, "shared");
    client.send(&format!("LOCKS\nAUTH wrong\nAUTH {}", place.token("root")));
    assert_eq!(client.next(), "[]");
    assert!(client.next().starts_with("-WRONGPASS "));
    assert_eq!(client.next(), "OK");
    for behind in [String::new(), format!("Authorization: Bearer {}\r\n", place.token("root"))] {
        let mut http = Http::to(&server);
        http.send(&format!(
            "GET /v1/locks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n\
             GET /livez HTTP/1.1\r\nHost: localhost\r\n{behind}\r\n",
            place.token("shared")
        ));
        assert_eq!(http.got().json()["locks"], json!([]));
        assert_eq!(http.got().body, "ok\n");
    }
}

#[test]
fn the_id_of_another_principal_is_one_that_there_is_not() {
    let place = Place::new(&[
        ("ann", &[("a:", "shared exclusive")]),
        ("bob", &[("a:", "shared exclusive")]),
        ("admin", &[("a:", "admin")]),
    ]);
    let server = place.server();
    let mut ann = place.resp(&server, "ann");
    for id in ["one", "two", "three"] {
        assert!(ann.say(&format!("LOCK a:{id} MODE O ID {id}")).starts_with("status=granted"));
    }
    let mut bob = place.resp(&server, "bob");
    for verb in ["UNLOCK", "CANCEL", "RENEW", "PROMOTE"] {
        assert_eq!(bob.say(&format!("{verb} one")), bob.say(&format!("{verb} unknown")), "{verb}");
    }
    let mut http = place.http(&server, "bob");
    for (method, path, body) in
        [("DELETE", "", ""), ("GET", "", ""), ("POST", "/renew", "{}"), ("POST", "/promote", "{}")]
    {
        let mut ask = |id: &str| {
            let got = http.ask(method, &format!("/v1/locks/{id}{path}"), body);
            (got.status, got.body)
        };
        assert_eq!(ask("one"), ask("unknown"), "{method} {path}");
    }
    assert!(bob.say("LOCK a:one MODE O ID one").starts_with('-'), "no repeat of another's request");
    assert_eq!(
        http.lock(&json!({"name": "a:one", "mode": "O", "id": "one"})).refusal(),
        (409, "id_reused".into())
    );
    assert_eq!(ann.say("UNLOCK one"), "1", "it is there for its principal");
    assert_eq!(place.http(&server, "ann").ask("DELETE", "/v1/locks/two", "").status, 204);
    assert_eq!(place.resp(&server, "admin").say("UNLOCK three"), "1", "and for an administrator");
}

#[test]
fn the_enqueue_port_has_the_rights_of_its_principal() {
    // On the name that the helper locks.
    for (rights, expected) in [
        ("shared", "SO"),
        ("exclusive", "EX"),
        ("shared exclusive", "SOEX"),
        ("observe", ""),
        ("revoke", ""),
        ("admin", "SOEX"),
    ] {
        let place = Place::new(&[("enqueue", &[("tab", rights)]), ("root", &[("", "admin")])]);
        let server = place.server();
        let mut may = String::new();
        for mode in ["S", "O", "E", "X"] {
            let mut peer = Peer::to(&server);
            let said = peer.say(&lock(mode, mode, "ann", 50));
            if said == common::OK {
                may += mode;
                let mut root = place.resp(&server, "root");
                let Value::Array(all) = root.ask("LOCKS") else { panic!("a list") };
                assert_eq!(field(&all[0], "owner"), "ann");
                assert_eq!(peer.unlock(mode), common::OK);
            } else {
                assert!(said.contains("this needs the right"), "{said}");
                assert!(peer.unlock("none").contains("not exist"), "the connection goes on");
            }
        }
        assert_eq!(may, expected, "{rights}");
    }
    let place = Place::new(&[("root", &[("", "admin")])]);
    let server = place.server();
    let said = Peer::to(&server).say(&lock("u", "X", "ann", 0));
    assert!(said.contains("has no principal for the enqueue port"), "nobody speaks there: {said}");
}

#[test]
fn what_is_taken_on_the_enqueue_port_is_its_principals() {
    let place = Place::new(&[
        ("enqueue", &[("tab", "shared exclusive")]),
        ("other", &[("tab", "shared exclusive")]),
        ("root", &[("", "admin")]),
    ]);
    let server = place.server();
    let mut peer = Peer::to(&server);
    assert_eq!(peer.say(&lock("u", "X", "ann", 0)), common::OK);
    let Value::Array(all) = place.resp(&server, "root").ask("LOCKS") else { panic!("a list") };
    let id = field(&all[0], "id");
    let mut other = place.resp(&server, "other");
    assert_eq!(other.say(&format!("UNLOCK {id}")), "0", "not even for one who knows the id");
    let mut same = place.resp(&server, "enqueue");
    assert_eq!(same.say(&format!("UNLOCK {id}")), "1", "the same principal on another port");
}

#[test]
fn nothing_is_said_to_one_who_has_not_logged_in() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let mut client = server.client();
    for line in
        ["PING", "LOCK a:1", "LOCKS", "INFO", "SUBSCRIBE keylatch:events", "GET k", "HELLO 3"]
    {
        let said = client.say(line);
        assert!(said.starts_with("-NOAUTH ") && said.contains("AUTH token"), "{line}: {said}");
    }
    let right = place.token("root");
    let (id, secret) = right.rsplit_once('_').unwrap();
    let other = secret.replace(|digit| digit != '0', "0");
    for wrong in ["x", id, "klt__", &format!("{id}_{other}"), &right[1..], &"x".repeat(1_000)] {
        assert!(client.say(&format!("AUTH {wrong}")).starts_with("-WRONGPASS "), "{wrong}");
        assert!(client.say(&format!("HELLO 3 AUTH default {wrong}")).starts_with("-WRONGPASS "));
        assert!(client.say("LOCKS").starts_with("-NOAUTH "));
        let got = Http::to(&server).with_token(wrong).ask("GET", "/v1/locks", "");
        assert_eq!(got.refusal(), (401, "unauthorized".into()));
        assert_eq!(got.header("www-authenticate"), Some("Bearer"));
    }
    assert!(client.say(&format!("HELLO 3 AUTH default {right}")).contains("server=keylatch"));
    assert_eq!(client.say("PING"), "PONG");
    assert!(client.say("AUTH wrong").starts_with("-WRONGPASS "));
    assert!(client.say("LOCKS").starts_with("-NOAUTH "), "one who says a wrong token is nobody");
    let mut http = Http::to(&server);
    assert_eq!(http.lock(&json!({"name": "a:1"})).refusal(), (401, "unauthorized".into()));
    let mut http = http.with_token(&right);
    assert_eq!(http.lock(&json!({"name": "a:1", "id": "one"})).status, 200);
    let mut http = http.with_token("");
    assert_eq!(http.ask("DELETE", "/v1/locks/one", "").status, 401, "each request says who it is");
}

#[test]
fn paths_that_everybody_may_see_and_paths_that_not() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    for (path, anybody, expected) in [
        ("/livez", 200, "yyyyyyyy"),
        ("/readyz", 200, "yyyyyyyy"),
        ("/openapi.json", 200, "yyyyyyyy"),
        ("/metrics", 401, "..y.yy.y"),
        ("/v1/longest", 401, ".....y.y"),
        ("/v1/owners", 401, ".....y.y"),
        ("/v1/cluster", 401, ".....y.y"),
        ("/v1/locks", 401, "yyyyyyyy"),
    ] {
        assert_eq!(Http::to(&server).ask("GET", path, "").status, anybody, "{path}");
        let may = columns(|who| {
            let got = place.http(&server, who).ask("GET", path, "");
            // There is no cluster to be seen here, by those who may see it.
            let shown = if path == "/v1/cluster" { 404 } else { 200 };
            assert!([shown, 403].contains(&got.status), "{who}, {path}: {}", got.body);
            got.status == shown
        });
        assert_eq!(may, expected, "{path}");
    }
    assert_eq!(Http::to(&server).ask("GET", "/readyz?verbose", "").body, "ready\n");
    let verbose = place.http(&server, "watcher").ask("GET", "/readyz?verbose", "").body;
    assert!(verbose.contains("held: 0"), "{verbose}");
}

#[test]
fn events_are_for_those_who_may_observe_every_name() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let by_resp = columns(|who| {
        let reply = place.resp(&server, who).say("SUBSCRIBE keylatch:events");
        may_resp(&reply, "`observe`")
    });
    assert_eq!(by_resp, ".....y.y");
    assert_eq!(Http::to(&server).ask("GET", "/v1/events", "").status, 401);
    let by_http = columns(|who| {
        let mut http = place.http(&server, who);
        http.begin("GET", "/v1/events", "");
        let got = http.got();
        if got.status == 403 {
            assert_eq!(got.refusal(), (403, "forbidden".into()));
        }
        got.status == 200
    });
    assert_eq!(by_http, ".....y.y");
    let by_head = columns(|who| {
        let mut http = place.http(&server, who);
        let status = http.ask("HEAD", "/v1/events", "").status;
        assert_eq!(http.ask("GET", "/livez", "").status, 200, "it is no stream");
        status == 200
    });
    assert_eq!(by_head, ".....y.y");
}

#[test]
fn events_have_no_ids() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let mut subscriber = place.resp(&server, "watcher");
    subscriber.say("SUBSCRIBE keylatch:events");
    let mut listener = place.http(&server, "watcher");
    listener.listen("");
    let mut root = place.resp(&server, "root");
    let granted = root.ask("LOCK b:1 ID secret");
    root.say(&format!("REVOKE {} REASON test", field(&granted, "token")));
    let told = subscriber.next();
    assert!(told.contains("b:1") && told.contains("revoked"), "{told}");
    assert!(!told.contains("secret"), "{told}");
    let (_, kind, data) = listener.event().unwrap();
    assert_eq!((kind.as_str(), &data["cause"]), ("lost", &json!("revoked")));
    assert!(!data.to_string().contains("secret"), "{data}");
}

#[test]
fn a_refused_request_that_asks_for_it_is_the_last_of_its_connection() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let body = "{\"name\": \"b:1\", \"wait_ms\": 1000}";
    for who in ["shared", "nobody"] {
        let mut http = Http::to(&server);
        http.send(&format!(
            "POST /v1/locks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            place.token(who),
            body.len()
        ));
        let got = http.got();
        assert_eq!((got.status, got.header("connection")), (403, Some("close")));
        assert!(http.is_closed());
    }
}

/// Until it is so; the file is looked at once a second even if nobody says that it has changed.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_changed_file_holds_for_those_who_are_there() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let (mut shared, mut root) = (place.resp(&server, "shared"), place.resp(&server, "root"));
    let mut watcher = place.resp(&server, "watcher");
    watcher.say("SUBSCRIBE keylatch:events");
    let mut listener = place.http(&server, "watcher");
    listener.listen("");
    assert!(shared.say("LOCK a:1").starts_with("-NOPERM "));
    // A right more, and principals less.
    place.write(&[("shared", &[("a:", "shared exclusive")]), ("observe", &[("", "observe")])]);
    server.reload();
    until("the new right holds", || shared.say("LOCK a:1 ID one").starts_with("status=granted"));
    assert!(root.say("LOCKS").starts_with("-NOAUTH "), "who is gone has to log in again");
    assert!(root.say(&format!("AUTH {}", place.token("root"))).starts_with("-WRONGPASS "));
    assert!(watcher.is_closed(), "it hears nothing more");
    assert!(listener.event().is_none(), "nor does this one");
    assert_eq!(place.http(&server, "root").ask("GET", "/v1/locks", "").status, 401);
    // A right less; nobody says that the file has changed.
    place.write(&[("shared", &[("a:", "observe")])]);
    until("the right is gone", || shared.say("LOCK a:2").starts_with("-NOPERM "));
    assert_eq!(shared.say("UNLOCK one"), "1", "what it holds is its own still");
}

#[test]
fn one_who_may_not_observe_any_more_hears_nothing_more() {
    let place = Place::new(&[("ann", &[("", "observe")])]);
    let server = place.server();
    let mut subscriber = place.resp(&server, "ann");
    subscriber.say("SUBSCRIBE keylatch:events");
    let mut listener = place.http(&server, "ann");
    listener.listen("");
    place.write(&[("ann", &[("a:", "observe")])]);
    server.reload();
    assert!(subscriber.is_closed());
    assert!(listener.event().is_none());
}

#[test]
fn who_has_no_right_any_more_is_not_granted_what_it_waits_for() {
    let lines: &[Line<'_>] = &[("ann", &[("", "admin")]), ("bob", &[("a:", "exclusive")])];
    let place = Place::new(lines);
    let server = place.server();
    let (mut ann, mut bob) = (place.resp(&server, "ann"), place.resp(&server, "bob"));
    assert!(ann.say("LOCK a:1 ID one").starts_with("status=granted"));
    bob.send("LOCK a:1 ID two WAIT 60000");
    let mut http = place.http(&server, "bob");
    http.begin("POST", "/v1/locks", "{\"name\": \"a:1\", \"id\": \"three\", \"wait_ms\": 60000}");
    until("they wait", || ann.say("LOCKS WAITERS").matches("waiting").count() == 2);
    place.write(&lines[..1]);
    server.reload();
    assert_eq!(bob.next(), "status=cancelled id=two");
    assert_eq!(http.got().refusal(), (409, "cancelled".into()));
    assert_eq!(ann.say("UNLOCK one"), "1");
    assert_eq!(ann.say("LOCKS WAITERS"), "[]", "nobody has it now");
}

#[test]
fn a_token_with_another_secret_is_another_token() {
    let place = Place::new(&[("ann", &[("a:", "exclusive")])]);
    let server = place.server();
    let mut ann = place.resp(&server, "ann");
    assert!(ann.say("LOCK a:1").starts_with("status=granted"));
    let text = std::fs::read_to_string(place.access()).unwrap();
    let (old, new) = (place.tokens["ann"].hash(), NewToken::generate().unwrap().hash());
    std::fs::write(place.access(), text.replace(&old, &new)).unwrap();
    server.reload();
    until("it has to log in again", || ann.say("PING").starts_with("-NOAUTH "));
}

#[test]
fn a_broken_file_leaves_the_old_one_in_force() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let mut root = place.resp(&server, "root");
    let good = std::fs::read_to_string(place.access()).unwrap();
    for broken in ["[[principal]]\nname = \"x\"\nnonsense = 1\n", "[[", "\u{0}"] {
        std::fs::write(place.access(), broken).unwrap();
        server.reload();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(root.say("PING"), "PONG", "{broken}");
        assert!(place.resp(&server, "shared").say("LOCK a:1 MODE S").starts_with("status=granted"));
    }
    std::fs::remove_file(place.access()).unwrap();
    server.reload();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(root.say("PING"), "PONG", "no file");
    std::fs::write(place.access(), good.replace("name = \"root\"", "name = \"other\"")).unwrap();
    server.reload();
    until("a good one holds again", || {
        root.say("LOCK b:new");
        let Value::Array(all) = place.resp(&server, "watcher").ask("LOCKS NAME b:new") else {
            return false;
        };
        all.len() == 1
    });
}

#[test]
fn a_client_certificate_says_who_it_is() {
    let certificates = Certificates::new();
    let place = Place::new(EVERYONE);
    let server = Running::with(|config| {
        let mut files = certificates.files();
        files.client_ca = Some(certificates.ca.clone());
        config.tls = Some(files);
        config.access = Some(place.access());
    });
    let identity = |name: &str| certificates.identity(&certificates.issuer, name);
    let mut client = certificates.client_as(&server, Some(identity("exclusive.example"))).unwrap();
    assert!(client.say("LOCK a:1 ID one").starts_with("status=granted"));
    assert!(client.say("LOCK b:1").starts_with("-NOPERM "));
    // It may still say a token, and is that one then.
    assert_eq!(client.say(&format!("AUTH {}", place.token("root"))), "OK");
    assert!(client.say("LOCK b:1").starts_with("status=granted"));
    // The certificate of somebody else now.
    let mut other = certificates.client_as(&server, Some(identity("shared.example"))).unwrap();
    assert!(other.say("LOCK a:2 MODE S").starts_with("status=granted"));
    let text = std::fs::read_to_string(place.access()).unwrap();
    std::fs::write(place.access(), text.replace("shared.example", "another.example")).unwrap();
    server.reload();
    until("a certificate that means nothing any more", || {
        other.say("LOCK a:3 MODE S").starts_with("-NOAUTH ")
    });
}

#[test]
fn refusals_and_revocations_are_written_down_without_secrets() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let mut root = place.resp(&server, "root");
    let token = field(&root.ask("LOCK a:1 ID secret-id"), "token");
    let mut client = place.resp(&server, "shared");
    client.say("LOCK a:refused ID secret-id-2");
    client.say("UNLOCK secret-id");
    client.say("AUTH klt_wrong_wrongsecret");
    let mut http = place.http(&server, "observe");
    http.lock(&json!({"name": "a:over-http", "id": "secret-id-3"}));
    http.ask("GET", "/v1/owners", "");
    place.http(&server, "shared").ask("GET", "/metrics", "");
    place.http(&server, "shared").ask("GET", "/v1/events", "");
    Http::to(&server).ask("GET", "/v1/locks", "");
    server.client().say("LOCK a:1");
    place.resp(&server, "shared").say("SUBSCRIBE keylatch:events");
    // Whoever revokes and does not wait for the answer is written down like any other.
    let mut revoke = place.resp(&server, "revoke");
    revoke.send(&format!("REVOKE {token} REASON test"));
    drop(revoke);
    until("the revocation", || root.say("LOCKS") == "[]");
    let again = field(&root.ask("LOCK a:2 ID secret-id-4"), "token");
    let body = format!("{{\"token\": {again}, \"reason\": \"test\"}}");
    let mut http = Http::to(&server);
    http.send(&format!(
        "POST /v1/revoke HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}\
         GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
        place.token("revoke"),
        body.len()
    ));
    assert_eq!((http.got().status, http.got().status), (200, 200));
    server.stop();
    let text = std::fs::read_to_string(place.audit()).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has =
        |listener: &str, principal: Option<&str>, what: &str, name: Option<&str>, came: &str| {
            let same = |line: &&serde_json::Value| {
                line["listener"] == listener
                    && line["principal"].as_str() == principal
                    && line["what"] == what
                    && line["name"].as_str() == name
                    && line["outcome"] == came
                    && line["address"] == "127.0.0.1"
            };
            assert_eq!(lines.iter().filter(same).count(), 1, "{what} by {principal:?} in:\n{text}");
        };
    has("resp", Some("shared"), "LOCK", Some("a:refused"), "refused");
    has("resp", Some("shared"), "UNLOCK", None, "refused");
    has("resp", None, "AUTH", None, "refused");
    has("http", Some("observe"), "LOCK", Some("a:over-http"), "refused");
    has("http", Some("observe"), "LIST", None, "refused");
    has("http", Some("shared"), "METRICS", None, "refused");
    has("http", Some("shared"), "EVENTS", Some(""), "refused");
    has("http", None, "ask", None, "refused");
    has("resp", None, "ask", None, "refused");
    has("resp", Some("shared"), "EVENTS", None, "refused");
    has("resp", Some("revoke"), "REVOKE", None, "done");
    has("http", Some("revoke"), "REVOKE", None, "done");
    let revoked = lines.iter().filter(|line| line["what"] == "REVOKE");
    let tokens: Vec<String> = revoked.map(|line| line["token"].to_string()).collect();
    assert_eq!(tokens, [token, again]);
    assert!(!text.contains("secret") && !text.contains("klt_"), "{text}");
    for token in place.tokens.values() {
        assert!(!text.contains(token.reveal().rsplit('_').next().unwrap()));
    }
}

#[test]
fn tasks_need_rights_on_their_pool() {
    let place = Place::new(EVERYONE);
    let server = place.server();
    let mut root = place.resp(&server, "root");
    for pool in ["a:p", "b:p"] {
        assert!(root.say(&format!("TASK CREATE {pool} k")).starts_with("status=created"));
    }
    let change = "TASK CREATE a:p k";
    let changes = [
        change,
        "TASK CLAIM a:p KEY none",
        "TASK UPDATE a:p k VERSION 1",
        "TASK DONE a:p k VERSION 1",
        "TASK BACK a:p k VERSION 1",
        "TASK DELETE a:p none",
        "TASK RETRY a:p",
    ];
    let questions = ["TASK GET a:p k", "TASK LIST a:p"];
    for who in WHO {
        let mut client = place.resp(&server, who);
        for line in changes {
            let may = matches!(who, "exclusive" | "admin" | "root");
            let said = client.say(line);
            assert_eq!(!said.starts_with("-NOPERM"), may, "{who}: {line}: {said}");
        }
        for line in questions {
            let may = matches!(who, "observe" | "admin" | "watcher" | "root");
            let said = client.say(line);
            assert_eq!(!said.starts_with("-NOPERM"), may, "{who}: {line}: {said}");
        }
        let Value::Array(pools) = client.ask("TASK COUNTS") else { panic!("a list") };
        let pools: Vec<&str> =
            pools.iter().map(|pool| pool.field("pool").unwrap().text().unwrap()).collect();
        let seen: &[&str] = match who {
            "observe" | "admin" => &["a:p"],
            "watcher" | "root" => &["a:p", "b:p"],
            _ => &[],
        };
        assert_eq!(pools, seen, "{who}");
        let mut http = place.http(&server, who);
        let may = matches!(who, "exclusive" | "admin" | "root");
        let create = json!({"key": "k"}).to_string();
        let many = json!({"tasks": [{"key": "k"}]}).to_string();
        let created = http.ask("POST", "/v1/tasks/a:p", &create).status;
        assert_eq!(created, if may { 409 } else { 403 }, "{who}");
        let created = http.ask("POST", "/v1/tasks/a:p", &many).status;
        assert_eq!(created, if may { 200 } else { 403 }, "{who}");
        let may = matches!(who, "observe" | "admin" | "watcher" | "root");
        let shown = http.ask("GET", "/v1/tasks/a:p/k", "").status;
        assert_eq!(shown, if may { 200 } else { 403 }, "{who}");
        let pools = http.ask("GET", "/v1/tasks", "").json();
        assert_eq!(pools["pools"].as_array().unwrap().len(), seen.len(), "{who}");
    }
    let audit = std::fs::read_to_string(place.audit()).unwrap();
    assert!(audit.lines().any(|line| line.contains("TASK") && line.contains("a:p")), "{audit}");
}

#[test]
fn a_waiting_claim_is_its_principals() {
    let lines: &[Line<'_>] = &[
        ("ann", &[("a:", "exclusive observe")]),
        ("bob", &[("a:", "exclusive")]),
        ("watcher", &[("", "observe")]),
        ("root", &[("", "admin")]),
    ];
    let place = Place::new(lines);
    let server = place.server();
    let (mut ann, mut bob) = (place.resp(&server, "ann"), place.resp(&server, "bob"));
    ann.send("TASK CLAIM a:p ID w WAIT 60000");
    let mut other = place.resp(&server, "ann");
    let until_waiting = |client: &mut Client| loop {
        let Value::Array(pools) = client.ask("TASK COUNTS") else { panic!("a list") };
        if pools.iter().any(|pool| pool.field("waiting").unwrap().integer() == Some(1)) {
            break;
        }
    };
    until_waiting(&mut other);
    assert!(bob.say("TASK CLAIM a:p ID w WAIT 60000").starts_with("-IDREUSED"));
    assert_eq!(bob.say("TASK CANCEL w"), "0", "as if it did not exist");
    let mut watcher = place.resp(&server, "watcher");
    watcher.say("HELLO 3");
    watcher.say("SUBSCRIBE keylatch:events");
    assert!(bob.say("TASK CREATE a:p k").starts_with("status=created"));
    assert!(show(&ann.value()).starts_with("status=claimed id=w"));
    let event = show(&watcher.value());
    assert!(event.contains("\"event\":\"claimed\"") && event.contains("\"id\":\"\""), "{event}");
    ann.send("TASK CLAIM a:p ID v WAIT 60000");
    until_waiting(&mut other);
    assert_eq!(other.say("TASK CANCEL v"), "1", "its own, from anywhere");
    assert_eq!(ann.next(), "status=cancelled id=v");
    // Whoever is not in the file any more does not get what it waited for.
    ann.send("TASK CLAIM a:p ID u WAIT 60000");
    until_waiting(&mut other);
    place.write(&lines[1..]);
    server.reload();
    assert_eq!(ann.next(), "status=cancelled id=u");
    assert!(place.resp(&server, "root").say("TASK CREATE a:p l").starts_with("status=created"));
}
