//! Tasks over HTTP: versions as `ETag` and `If-Match`, waiting, many at once, and what is refused.

mod common;

use std::time::Duration;

use common::Running;
use common::http::{Got, Http};
use serde_json::{Value, json};

fn create(http: &mut Http, task: &Value) -> Got {
    http.ask("POST", "/v1/tasks/p", &task.to_string())
}

fn claim(http: &mut Http, body: &Value) -> Got {
    http.ask("POST", "/v1/tasks/p/claim", &body.to_string())
}

fn etag(got: &Got) -> String {
    got.header("etag").unwrap_or_else(|| panic!("no ETag: {}", got.body)).into()
}

/// Until so many claims wait.
fn until_claiming(http: &mut Http, count: u64) {
    loop {
        let pools = http.ask("GET", "/v1/tasks", "").json();
        if pools["pools"].get(0).map_or(0, |pool| pool["waiting"].as_u64().unwrap()) == count {
            return;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_task_goes_from_its_creation_to_its_end() {
    let server = Running::start();
    let mut http = Http::to(&server);
    let body = json!({"to": ["ann", 1, null], "half": 0.5});
    let created = create(&mut http, &json!({"key": "m/1 \u{e4}", "body": body, "priority": -2}));
    assert_eq!(created.status, 201);
    assert_eq!(created.header("location"), Some("/v1/tasks/p/m%2F1%20%C3%A4"));
    let path = created.header("location").unwrap().to_owned();
    let version = created.json()["version"].as_u64().unwrap();
    assert_eq!(etag(&created), format!("\"{version}\""));
    assert_eq!(
        created.json(),
        json!({"status": "created", "key": "m/1 \u{e4}", "version": version})
    );
    let again = create(&mut http, &json!({"key": "m/1 \u{e4}"}));
    assert_eq!(again.refusal(), (409, "exists".into()));

    let shown = http.ask("GET", &path, "");
    assert_eq!((shown.status, etag(&shown)), (200, etag(&created)));
    let task = shown.json();
    assert_eq!((&task["state"], &task["body"]), (&json!("free"), &body));
    assert_eq!((&task["priority"], &task["due_ms"]), (&json!(-2), &json!(0)));
    assert_eq!(
        (&task["owner"], &task["claimed_ms"], &task["error"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(http.ask_unless("GET", &path, &etag(&created)).status, 304);
    assert_eq!(http.ask_unless("GET", &path, &format!("\"1\", W/{}", etag(&created))).status, 304);
    assert_eq!(http.ask_unless("GET", &path, "*").status, 304);
    assert_eq!(http.ask_unless("GET", &path, "\"1\"").status, 200);
    assert_eq!(http.ask("HEAD", &path, "").status, 200);

    let claimed = claim(&mut http, &json!({"owner": "ann", "id": "c", "lease_ms": 30_000}));
    assert_eq!(claimed.status, 200);
    let got = claimed.json();
    assert_eq!(
        (&got["status"], &got["id"], &got["key"]),
        (&json!("claimed"), &json!("c"), &json!("m/1 \u{e4}"))
    );
    assert_eq!((&got["body"], &got["attempts"], &got["waited_ms"]), (&body, &json!(0), &json!(0)));
    assert_eq!(etag(&claimed), format!("\"{}\"", got["version"]));
    assert!(got["lease_ms"].as_u64().is_some_and(|left| left <= 30_000) && got["token"].is_u64());
    let repeated = claim(&mut http, &json!({"owner": "ann", "id": "c", "lease_ms": 30_000}));
    assert_eq!(repeated.json()["version"], got["version"], "the same claim");
    assert_eq!(claim(&mut http, &json!({})).status, 204, "nothing more");

    let update = json!({"body": [1], "lease_ms": 0}).to_string();
    let updated = http.ask_at("PATCH", &path, &etag(&claimed), &update);
    assert_eq!((updated.status, &updated.json()["lease_ms"]), (200, &Value::Null));
    let stale = http.ask_at("POST", &format!("{path}/done"), &etag(&claimed), "{}");
    assert_eq!(stale.refusal(), (412, "stale".into()));
    assert_eq!(stale.json()["version"], updated.json()["version"]);
    let back = json!({"error": "broken"}).to_string();
    let back = http.ask_at("POST", &format!("{path}/back"), &etag(&updated), &back);
    assert_eq!((back.status, &back.json()["state"]), (200, &json!("free")));
    assert_eq!(back.json()["attempts"], 1);
    let claimed = claim(&mut http, &json!({"key": "m/1 \u{e4}"}));
    assert_eq!(claimed.json()["body"], json!([1]));
    let done = http.ask_at("POST", &format!("{path}/done"), &etag(&claimed), "{}");
    assert_eq!((done.status, &done.json()["status"]), (200, &json!("done")));
    let refused = claim(&mut http, &json!({"key": "m/1 \u{e4}"}));
    assert_eq!(refused.refusal(), (409, "refused".into()));
    assert_eq!(refused.json()["state"], "done");
    let refused = http.ask_at("POST", &format!("{path}/back"), &etag(&done), "{}");
    assert_eq!(refused.refusal(), (409, "refused".into()));
    assert_eq!(http.ask_at("DELETE", &path, "\"1\"", "").refusal(), (412, "stale".into()));
    assert_eq!(http.ask_at("DELETE", &path, &etag(&done), "").status, 204);
    let gone = (404, "no_such_task".to_owned());
    assert_eq!(http.ask("DELETE", &path, "").refusal(), gone);
    assert_eq!(http.ask("GET", &path, "").refusal(), gone);
    assert_eq!(http.ask_at("PATCH", &path, "\"1\"", "{}").refusal(), gone);
    let ended = claim(&mut http, &json!({"owner": "ann", "id": "c", "lease_ms": 30_000}));
    assert_eq!(ended.refusal(), (410, "ended".into()));
}

#[test]
fn a_change_needs_the_version_that_was_seen() {
    let server = Running::start();
    let mut http = Http::to(&server);
    create(&mut http, &json!({"key": "k"}));
    for (method, path) in
        [("PATCH", "/v1/tasks/p/k"), ("POST", "/v1/tasks/p/k/done"), ("POST", "/v1/tasks/p/k/back")]
    {
        let got = http.ask(method, path, "{}");
        assert_eq!(got.refusal(), (428, "version_required".into()), "{method} {path}");
        for (tag, refusal) in [
            ("*", (400, "invalid")),
            ("7", (400, "invalid")),
            ("\"1\", \"2\"", (400, "invalid")),
            ("\"007\"", (412, "stale")),
            ("\"x\"", (412, "stale")),
            ("W/\"7\"", (412, "stale")),
            ("\"7\"", (412, "stale")),
        ] {
            let got = http.ask_at(method, path, tag, "{}");
            assert_eq!(got.refusal(), (refusal.0, refusal.1.into()), "{method} {path} {tag}");
        }
    }
    assert_eq!(http.ask("GET", "/v1/tasks/p/k", "").json()["state"], "free", "nothing has changed");
    assert_eq!(http.ask_at("DELETE", "/v1/tasks/p/k", "*", "").status, 204);
}

#[test]
fn where_there_is_no_task_no_version_counts() {
    let server = Running::start();
    let mut http = Http::to(&server);
    for (method, path) in [
        ("PATCH", "/v1/tasks/p/k"),
        ("POST", "/v1/tasks/p/k/done"),
        ("POST", "/v1/tasks/p/k/back"),
        ("DELETE", "/v1/tasks/p/k"),
    ] {
        let body = if method == "DELETE" { "" } else { "{}" };
        for tag in ["\"007\"", "\"x\"", "W/\"7\"", "\"7\""] {
            let got = http.ask_at(method, path, tag, body);
            assert_eq!(got.refusal(), (404, "no_such_task".into()), "{method} {path} {tag}");
        }
        let got = http.ask_at(method, path, "7", body);
        assert_eq!(got.refusal(), (400, "invalid".into()), "{method} {path}");
    }
}

#[test]
fn an_update_of_a_task_that_nobody_has_claimed_leaves_it_free() {
    let server = Running::start();
    let (mut http, mut resp) = (Http::to(&server), server.client());
    let created = create(&mut http, &json!({"key": "k", "body": 1}));
    let path = "/v1/tasks/p/k";
    let updated = http.ask_at("PATCH", path, &etag(&created), &json!({"body": 2}).to_string());
    assert_eq!((updated.status, &updated.json()["lease_ms"]), (200, &Value::Null));
    let shown = http.ask("GET", path, "").json();
    assert_eq!((&shown["state"], &shown["body"]), (&json!("free"), &json!(2)));
    let again = resp.ask(&format!("TASK UPDATE p k VERSION {}", shown["version"]));
    assert_eq!(again.field("lease_ms").unwrap().integer(), Some(-1));
    assert_eq!(http.ask("GET", path, "").json()["state"], "free");
}

#[test]
fn what_is_not_json_is_base64() {
    let server = Running::start();
    let (mut http, mut resp) = (Http::to(&server), server.client());
    assert_eq!(create(&mut http, &json!({"key": "k", "body_base64": "AP8="})).status, 201);
    resp.say("TASK CREATE p text BODY hello");
    let tasks = http.ask("GET", "/v1/tasks/p", "").json();
    let shown: Vec<&Value> =
        tasks["tasks"].as_array().unwrap().iter().map(|task| &task["body_base64"]).collect();
    assert_eq!(shown, ["AP8=", "aGVsbG8="]);
    assert_eq!(tasks["tasks"][0].get("body"), None);
    create(&mut http, &json!({"key": "json", "body": {"a": 1}}));
    let got = resp.ask("TASK GET p json");
    assert_eq!(got.field("body").unwrap().text(), Some("{\"a\":1}"));
    assert_eq!(got.field("json").unwrap().integer(), Some(1));
    create(&mut http, &json!({"key": "none", "body": null}));
    let none = http.ask("GET", "/v1/tasks/p/none", "").json();
    assert_eq!((none.get("body"), none.get("body_base64")), (None, None));
    for bad in
        [json!({"key": "x", "body": 1, "body_base64": ""}), json!({"key": "x", "body_base64": "?"})]
    {
        assert_eq!(create(&mut http, &bad).refusal(), (400, "invalid".into()), "{bad}");
    }
    let deep = format!("{{\"key\": \"x\", \"body\": {}{}}}", "[".repeat(200), "]".repeat(200));
    assert_eq!(http.ask("POST", "/v1/tasks/p", &deep).refusal(), (400, "invalid".into()));
}

#[test]
fn many_are_created_at_once_and_each_has_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::with(|config| config.data = Some(dir.path().into()));
    let mut http = Http::to(&server);
    create(&mut http, &json!({"key": "b"}));
    let tasks = json!({"tasks": [
        {"key": "a", "body": 1, "id": "1"}, {"key": "b"}, {"key": "c", "delay_ms": 60_000},
    ]});
    let got = create(&mut http, &tasks);
    assert_eq!(got.status, 200);
    let answers = got.json()["tasks"].clone();
    assert_eq!((&answers[0]["key"], &answers[0]["status"]), (&json!("a"), &json!("created")));
    assert!(answers[0]["version"].is_u64());
    assert_eq!(answers[1], json!({"key": "b", "status": "exists"}));
    assert_eq!(answers[2]["status"], "created");
    let again = create(&mut http, &tasks).json();
    assert_eq!(again["tasks"][0], answers[0], "under its id the same answer");
    assert_eq!(again["tasks"][2]["status"], "exists");
    let pools = http.ask("GET", "/v1/tasks", "").json();
    assert_eq!(
        pools,
        json!({"pools": [{"pool": "p", "ready": 2, "delayed": 1, "claimed": 0, "done": 0, "failed": 0, "waiting": 0}]})
    );
    for bad in [
        json!({"tasks": []}),
        json!({"tasks": [{"body": 1}]}),
        json!({"tasks": [{"key": "a"}], "key": "b"}),
        json!({"tasks": [{"key": "new"}, {"key": ""}]}),
        json!({"tasks": [{"key": "new", "id": ""}]}),
        json!({"tasks": [{"key": "new", "delay_ms": 2_419_200_001u64}]}),
        json!({"tasks": vec![json!({"key": "a"}); 1_001]}),
    ] {
        assert_eq!(create(&mut http, &bad).refusal(), (400, "invalid".into()));
    }
    assert_eq!(http.ask("GET", "/v1/tasks/p/new", "").status, 404, "none of them is there");
    let reused = json!({"tasks": [{"key": "z", "id": "1"}, {"key": "y"}]});
    let reused = create(&mut http, &reused).json()["tasks"].clone();
    assert_eq!(
        (&reused[0]["status"], &reused[0]["code"]),
        (&json!("refused"), &json!("id_reused"))
    );
    assert_eq!(reused[1]["status"], "created");
    // Everyone who waits is served by them.
    let mut worker = Http::to(&server);
    worker.begin("POST", "/v1/tasks/p/claim", "{\"key\": \"d\", \"wait_ms\": 60000}");
    until_claiming(&mut http, 1);
    create(&mut http, &json!({"tasks": [{"key": "e"}, {"key": "d"}]}));
    assert_eq!(worker.got().json()["key"], "d");
}

#[test]
fn a_list_is_searched_and_paged() {
    let server = Running::start();
    let mut http = Http::to(&server);
    for number in 0..5 {
        create(&mut http, &json!({"key": format!("a{number}"), "attempts": 1}));
    }
    create(&mut http, &json!({"key": "b"}));
    for key in ["a1", "a3"] {
        let claimed = claim(&mut http, &json!({"key": key}));
        http.ask_at("POST", &format!("/v1/tasks/p/{key}/back"), &etag(&claimed), "{}");
    }
    let mut keys = |query: &str| {
        let list = http.ask("GET", &format!("/v1/tasks/p?{query}"), "").json();
        let tasks = list["tasks"].as_array().unwrap();
        let keys: Vec<&str> = tasks.iter().map(|task| task["key"].as_str().unwrap()).collect();
        (keys.join(" "), list["next_cursor"].as_u64())
    };
    assert_eq!(keys(""), ("a0 a1 a2 a3 a4 b".into(), None));
    assert_eq!(keys("state=failed"), ("a1 a3".into(), None));
    assert_eq!(keys("state=free&prefix=a"), ("a0 a2 a4".into(), None));
    let (first, cursor) = keys("limit=4");
    assert_eq!(first, "a0 a1 a2 a3");
    assert_eq!(keys(&format!("cursor={}", cursor.unwrap())), ("a4 b".into(), None));
    assert_eq!(
        http.ask("GET", "/v1/tasks/nowhere", "").json(),
        json!({"tasks": [], "next_cursor": null})
    );
    for query in ["state=lost", "limit=0", "limit=10001", "cursor=x", "name=k"] {
        let got = http.ask("GET", &format!("/v1/tasks/p?{query}"), "");
        assert_eq!(got.refusal(), (400, "invalid".into()), "{query}");
    }
    let one = http.ask("POST", "/v1/tasks/p/retry", "{\"key\": \"a1\"}").json();
    assert_eq!(one, json!({"status": "retried", "count": 1}));
    assert_eq!(http.ask("POST", "/v1/tasks/p/retry", "{}").json()["count"], 1);
    assert_eq!(http.ask("POST", "/v1/tasks/p/retry", "{}").json()["count"], 0);
}

#[test]
fn a_claim_waits_and_its_connection_goes_on() {
    let server = Running::start();
    let (mut worker, mut other) = (Http::to(&server), Http::to(&server));
    assert_eq!(claim(&mut worker, &json!({"wait_ms": 20})).status, 204, "not in time");
    worker.begin("POST", "/v1/tasks/p/claim", "{\"id\": \"w\", \"wait_ms\": 60000}");
    until_claiming(&mut other, 1);
    create(&mut other, &json!({"key": "k"}));
    let got = worker.got();
    assert_eq!((got.status, &got.json()["key"]), (200, &json!("k")));
    assert_eq!(worker.ask("GET", "/livez", "").status, 200);
    worker.begin("POST", "/v1/tasks/p/claim", "{\"id\": \"v\", \"wait_ms\": 60000}");
    until_claiming(&mut other, 1);
    assert_eq!(server.client().say("TASK CANCEL v"), "1");
    assert_eq!(worker.got().refusal(), (409, "cancelled".into()));
}

#[test]
fn who_waits_long_is_told_so_and_goes_on_under_the_same_id() {
    let server = Running::with(|config| config.http_answer = Duration::from_secs(2));
    let (mut worker, mut other) = (Http::to(&server), Http::to(&server));
    let ask = json!({"id": "w", "wait_ms": 60_000});
    let got = claim(&mut worker, &ask);
    assert_eq!((got.status, got.json()), (202, json!({"status": "waiting", "id": "w"})));
    // Another who comes now stands behind it.
    let mut behind = Http::to(&server);
    behind.begin("POST", "/v1/tasks/p/claim", "{\"id\": \"v\", \"wait_ms\": 60000}");
    until_claiming(&mut other, 2);
    worker.begin("POST", "/v1/tasks/p/claim", &ask.to_string());
    assert_eq!(create(&mut other, &json!({"key": "k"})).status, 201);
    let got = worker.got();
    assert_eq!((got.status, &got.json()["key"]), (200, &json!("k")));
    // With no time to wait it leaves.
    assert_eq!(claim(&mut other, &json!({"id": "v"})).status, 204);
    assert_eq!(behind.got().refusal(), (409, "cancelled".into()));
}

#[test]
fn what_is_wrong_is_said() {
    let server = Running::start();
    let refused =
        |method: &str, path: &str, body: &str| Http::to(&server).ask(method, path, body).refusal();
    let invalid = (400, "invalid".to_owned());
    for (method, path, body) in [
        ("POST", "/v1/tasks/p", "{}"),
        ("POST", "/v1/tasks/p", "{\"key\": 5}"),
        ("POST", "/v1/tasks/p", "{\"key\": \"\"}"),
        ("POST", "/v1/tasks/p", "{\"key\": \"k\", \"priority\": 2147483648}"),
        ("POST", "/v1/tasks/p", "{\"key\": \"k\", \"priority\": 0.5}"),
        ("POST", "/v1/tasks/p", "{\"key\": \"k\", \"attempts\": 4294967296}"),
        ("POST", "/v1/tasks/p", "{\"key\": \"k\", \"delay_ms\": -1}"),
        ("POST", "/v1/tasks/p", "{\"key\": \"k\", \"state\": \"done\"}"),
        ("POST", "/v1/tasks/p", "{\"tasks\": [[\"k\", null, null, null, null, null, null]]}"),
        ("POST", "/v1/tasks/p/retry", "[null, null]"),
        ("POST", "/v1/locks", "{\"resources\": [[\"n\", [], null]]}"),
        ("POST", "/v1/tasks/p/claim", ""),
        ("POST", "/v1/tasks/p/claim", "{\"lease_ms\": 2419200001}"),
        ("POST", "/v1/tasks/p/retry", "{\"keys\": []}"),
        ("GET", "/v1/tasks?pool=p", ""),
        ("GET", "/v1/tasks/p/k?x=y", ""),
        ("GET", "/v1/tasks/p/%ff", ""),
    ] {
        assert_eq!(refused(method, path, body), invalid, "{method} {path} {body}");
    }
    let long = "k".repeat(513);
    assert_eq!(refused("GET", &format!("/v1/tasks/{long}"), ""), invalid);
    assert_eq!(refused("GET", "/v1/tasks/", "").0, 404);
    assert_eq!(refused("GET", "/v1/tasks/p/", "").0, 404);
    assert_eq!(refused("GET", "/v1/tasks/p/k/l", "").0, 404);
    let got = Http::to(&server).ask("POST", "/v1/tasks/p/k", "{}");
    assert_eq!(got.refusal(), (405, "bad_method".into()));
    assert_eq!(got.header("allow"), Some("GET, DELETE, PATCH, HEAD"));
    let got = Http::to(&server).ask("PUT", "/v1/tasks/p/claim", "{}");
    assert_eq!((got.status, got.header("allow")), (405, Some("POST")));
    let mut http = Http::to(&server);
    http.send("PATCH /v1/tasks/p/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!(http.got().refusal(), (415, "not_json".into()));
    create(&mut http, &json!({"key": "one", "id": "i"}));
    let got = create(&mut http, &json!({"key": "two", "id": "i"}));
    assert_eq!(got.refusal(), (409, "id_reused".into()));
    // A key may be called as a thing that can be done.
    for key in ["claim", "retry", "done", ".."] {
        let created = create(&mut http, &json!({"key": key}));
        let path = created.header("location").unwrap().to_owned();
        assert_eq!(http.ask("GET", &path, "").json()["key"], key);
        assert_eq!(http.ask("DELETE", &path, "").status, 204);
    }
}

#[test]
fn events_and_figures_tell_of_tasks() {
    let server = Running::start();
    let (mut listener, mut http) = (Http::to(&server), Http::to(&server));
    listener.listen("");
    let mut worker = Http::to(&server);
    let ask = "{\"wait_ms\": 60000, \"lease_ms\": 1, \"id\": \"w\"}";
    worker.begin("POST", "/v1/tasks/p/claim", ask);
    until_claiming(&mut http, 1);
    create(&mut http, &json!({"key": "secret-key"}));
    assert_eq!(worker.got().status, 200);
    let (_, kind, data) = listener.event().unwrap();
    assert_eq!(
        (kind.as_str(), &data["pool"], &data["key"]),
        ("claimed", &json!("p"), &json!("secret-key"))
    );
    let (_, kind, data) = listener.event().unwrap();
    assert_eq!((kind.as_str(), &data["key"]), ("lapsed", &json!("secret-key")));
    claim(&mut http, &json!({"key": "nothing"}));
    claim(&mut http, &json!({"key": "nothing", "wait_ms": 1}));
    let claimed = claim(&mut http, &json!({"owner": "ann"}));
    http.ask_at("POST", "/v1/tasks/p/secret-key/done", &etag(&claimed), "{}");
    claim(&mut http, &json!({"key": "secret-key"}));
    create(&mut http, &json!({"key": "later", "delay_ms": 60_000}));
    let text = http.ask("GET", "/metrics", "").body;
    for line in [
        "keylatch_tasks{state=\"ready\"} 0",
        "keylatch_tasks{state=\"delayed\"} 1",
        "keylatch_tasks{state=\"claimed\"} 0",
        "keylatch_tasks{state=\"done\"} 1",
        "keylatch_tasks{state=\"failed\"} 0",
        "keylatch_claims_total{outcome=\"claimed\"} 2",
        "keylatch_claims_total{outcome=\"nothing\"} 1",
        "keylatch_claims_total{outcome=\"timeout\"} 1",
        "keylatch_claims_total{outcome=\"refused\"} 1",
        "keylatch_claims_total{outcome=\"cancelled\"} 0",
        "keylatch_claims_lapsed_total 1",
        "keylatch_claims_waiting 0",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    assert!(!text.contains("secret-key") && !text.contains("ann"), "labels have no names");
    let document = http.ask("GET", "/openapi.json", "").json();
    assert!(document["paths"]["/v1/tasks/{pool}/{key}"]["patch"].is_object());
}
