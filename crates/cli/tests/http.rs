//! HTTP of the real server, by programs that others wrote: curl, and what reads the description that
//! the server gives of itself. `scripts/setup` installs them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// A server that speaks nothing but HTTP.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start() -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_keylatch"))
            .args(["serve", "--ephemeral", "--resp", "off", "--enqueue", "off"])
            .args(["--http", "127.0.0.1:0"])
            .env("KEYLATCH_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address =
            lines.find_map(|line| Some(line.unwrap().trim().strip_prefix("HTTP on ")?.to_owned()));
        let url = format!("http://{}", address.expect("it says where HTTP is"));
        Server { process, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Something that `scripts/setup` puts there.
fn installed(path: &str) -> PathBuf {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    assert!(found.exists(), "{path} is missing: run scripts/setup");
    found
}

/// Runs a program to its end, which has to be a good one, and returns what it said.
fn run(command: &mut Command) -> String {
    let done =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: run scripts/setup"));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{said}{errors}", done.status);
    said
}

/// The status that curl gets, and the body.
fn curl(server: &Server, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "30", "--write-out", "\n%{http_code}"]);
    command.args(["--request", method]);
    if let Some(body) = body {
        command.args(["--header", "Content-Type: application/json", "--data", &body.to_string()]);
    }
    let said = run(command.arg(format!("{}{path}", server.url)));
    let (body, status) = said.rsplit_once('\n').unwrap();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
    (status.parse().unwrap(), body)
}

#[test]
fn curl_takes_renews_and_releases_a_lock() {
    let server = Server::start();
    let ask = json!({"name": "user:42", "owner": "ann"});
    let (status, granted) = curl(&server, "POST", "/v1/locks", Some(&ask));
    assert_eq!((status, &granted["status"]), (200, &json!("granted")));
    let ask = json!({"name": "user:42", "owner": "bob"});
    let (status, problem) = curl(&server, "POST", "/v1/locks", Some(&ask));
    assert_eq!((status, &problem["code"]), (409, &json!("busy")));
    assert_eq!(problem["blocker"]["owner"], "ann");
    assert_eq!(problem["blocker"]["token"], granted["token"]);
    let path = format!("/v1/locks/{}", granted["id"].as_str().unwrap());
    let lease = json!({"lease_ms": 60_000});
    let (status, renewed) = curl(&server, "POST", &format!("{path}/renew"), Some(&lease));
    assert_eq!((status, renewed), (200, json!({"status": "renewed", "lease_ms": 60_000})));
    assert_eq!(curl(&server, "DELETE", &path, None), (204, Value::Null));
    let (status, problem) = curl(&server, "GET", &path, None);
    assert_eq!((status, &problem["code"]), (404, &json!("not_held")));
    assert_eq!(curl(&server, "POST", "/v1/locks", Some(&ask)).0, 200, "bob's turn");
}

/// Answers are what the description says, to what it allows and to what it does not. Left out are
/// events, which never end, and that whatever fits the description is granted: somebody may be in
/// the way.
#[test]
fn the_server_does_what_its_description_says() {
    let server = Server::start();
    let scratch = tempfile::tempdir().unwrap();
    // 428 is what a header that is missing was made for (RFC 6585).
    let config = "[checks]\nmissing_required_header.expected-statuses = \
                  [\"400\", \"401\", \"403\", \"406\", \"415\", \"422\", \"428\"]\n";
    std::fs::write(scratch.path().join("schemathesis.toml"), config).unwrap();
    let mut command = Command::new(installed("tests/clients/.venv/bin/schemathesis"));
    command.current_dir(&scratch).args(["run", &format!("{}/openapi.json", server.url)]);
    command.args(["--max-examples", "25", "--seed", "1", "--exclude-path", "/v1/events"]);
    command.args(["--exclude-checks", "positive_data_acceptance", "--request-timeout", "30"]);
    run(&mut command);
}

#[test]
fn a_client_made_from_the_description_works() {
    let server = Server::start();
    let mut command = Command::new(installed("tests/clients/.venv/bin/python"));
    command.arg(installed("tests/clients/openapi.py")).arg(&server.url);
    assert!(run(&mut command).ends_with("done\n"));
}
