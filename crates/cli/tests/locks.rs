//! `lock`, `unlock`, `renew`, `promote`, `ls`, `watch` and `revoke`: the real binary over a real server.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;

use common::cli::{Cli, Done};
use common::{Server, Start};
use serde_json::Value;

fn start() -> (Server, Cli) {
    let server = Start::ephemeral().start();
    let cli = Cli::over(&server);
    (server, cli)
}

/// What was printed, of a command that succeeds.
fn said(done: Done) -> String {
    assert_eq!(done.code, Some(0), "{done:?}");
    done.out
}

fn fails(done: &Done, code: i32, reason: &str) {
    assert_eq!(done.code, Some(code), "{done:?}");
    assert!(done.err.contains(reason), "{done:?}");
}

#[test]
fn a_lock_is_taken_by_one_command_and_released_by_another() {
    let (server, cli) = start();
    let line = said(cli.run(&["lock", "k", "--owner", "ann", "--lease", "10m"]));
    let (id, token) = line.trim_end().split_once(' ').unwrap();
    assert!(token.parse::<u64>().is_ok(), "{line}");
    fails(&cli.run(&["lock", "k"]), 75, "busy: ann has it");
    fails(&cli.run(&["lock", "k", "--wait", "20ms"]), 75, "not free in time: ann has it");
    let busy = cli.run(&["lock", "k", "-o", "json"]);
    let json: Value = serde_json::from_str(&busy.out).unwrap();
    assert_eq!(
        (busy.code, &json["status"], &json["owner"]),
        (Some(75), &"busy".into(), &"ann".into())
    );
    assert!(said(cli.run(&["renew", id, "--lease", "1h"])).starts_with("renewed for "));
    let renewed = cli.json(&["renew", id]);
    assert!(renewed["lease_ms"].as_u64().unwrap() > 600_000, "{renewed}");
    assert_eq!(said(cli.run(&["unlock", id])), "released\n");
    fails(&cli.run(&["renew", id]), 1, "somebody released it");
    fails(&cli.run(&["unlock", "nobody"]), 1, "nothing is held under this id");
    for words in [["renew", "nobody"], ["promote", "nobody"]] {
        fails(&cli.run(&words), 1, "nothing is held under this id: it has ended, or never was");
        let json = cli.run(&[&words[..], &["-o", "json"]].concat());
        assert!(json.err.contains(r#""status":"not held""#), "{json:?}");
    }
    server.client().lock("k");
}

#[test]
fn a_time_that_is_none_is_refused_with_what_to_write() {
    let cli = Cli::at("memory:".into());
    for words in [
        &["lock", "k", "--wait", "-5s"][..],
        &["lock", "k", "--wait=-5s"],
        &["run", "k", "--wait", "-5s", "--", "true"],
        &["task", "claim", "p", "--wait", "-5s"],
    ] {
        let done = cli.run(words);
        let said = "'-5s' is not a duration such as 500ms, 5s, 2m or 1h, or 0 for not at all";
        fails(&done, 2, said);
        assert!(!done.err.contains("-- -5s"), "{done:?}");
    }
    fails(&cli.run(&["renew", "id", "--lease", "-1m"]), 2, "'-1m' is not a duration such as");
    let work = ["task", "work", "p", "--backoff", "-1s..5s", "--", "true"];
    fails(&cli.run(&work), 2, "'-1s' is not a duration such as");
}

#[test]
fn json_is_one_object_a_line() {
    let (_server, cli) = start();
    let held = cli
        .json(&["lock", "product", "--arg", "@", "--arg", "\\@", "--arg", "-1", "--owner", "ann"]);
    assert_eq!(held["status"], "granted");
    let shared = cli.json(&["lock", "doc", "--shared", "--lease", "0"]);
    assert_eq!(shared["lease_ms"], Value::Null);
    let listed = said(cli.run(&["ls", "-o", "json"]));
    let listed: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["argument"], serde_json::json!(["@", "\\@", "-1"]));
    assert_eq!((&listed[0]["token"], &listed[0]["id"]), (&held["token"], &held["id"]));
    assert_eq!((&listed[1]["mode"], &listed[1]["lease_ms"]), (&"S".into(), &Value::Null));
    let error = cli.run(&["unlock", "nobody", "-o", "json"]);
    let json: Value = serde_json::from_str(&error.err).unwrap();
    assert!(error.code == Some(1) && json["error"].is_string(), "{error:?}");
    let released = cli.json(&["unlock", held["id"].as_str().unwrap()]);
    assert_eq!(released["status"], "released");
}

/// Whatever goes wrong: one object on standard error, with a word for programs.
#[test]
fn errors_are_json_too() {
    let (_server, cli) = start();
    let held = cli.json(&["lock", "k"]);
    let id = held["id"].as_str().unwrap();
    cli.json(&["unlock", id]);
    for (words, code, status) in [
        (&["lock", ""][..], 1, "invalid"),
        (&["lock", "k", "--wait", "soon"], 2, "misused"),
        (&["lock"], 2, "misused"),
        (&["run", "", "--", "true"], 1, "invalid"),
        (&["run", "k", "--", "/nowhere/at-all"], 127, "not started"),
        (&["unlock", "nobody"], 1, "not held"),
        (&["renew", id], 1, "lost"),
        (&["promote", id], 1, "lost"),
        (&["revoke", "1", "--reason", "x"], 1, "not held"),
        (&["ls", "--url", "nonsense"], 1, "invalid"),
        (&["ls", "--url", "keylatch://127.0.0.1:1"], 1, "unreachable"),
        (&["watch", "--url", "keylatch://127.0.0.1:1"], 1, "unreachable"),
    ] {
        // Before what may be a command of its own.
        let words = [&words[..1], &["-o", "json"], &words[1..]].concat();
        let done = cli.run(&words);
        assert_eq!((done.code, &*done.out), (Some(code), ""), "{words:?}: {done:?}");
        let json: Value = serde_json::from_str(&done.err)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {done:?}"));
        assert_eq!(json["status"], status, "{words:?}: {done:?}");
        assert!(json["error"].is_string(), "{words:?}: {done:?}");
        if status == "lost" {
            assert_eq!(json["cause"], "released", "{words:?}: {done:?}");
        }
    }
}

#[test]
fn a_run_says_in_json_what_became_of_it() {
    let (_server, cli) = start();
    let done = cli.run(&["run", "k", "-o", "json", "--", "sh", "-c", "echo ran; exit 3"]);
    assert_eq!((done.code, &*done.out), (Some(3), "ran\n"), "{done:?}");
    let said: Vec<Value> =
        done.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(said[0]["status"], "granted", "{done:?}");
    assert!(said[0]["token"].is_u64() && said[0].get("id").is_none(), "{done:?}");
    assert_eq!((&said[1]["status"], &said[1]["code"]), (&"ended".into(), &3.into()), "{done:?}");
    assert_eq!(said.len(), 2);
}

#[test]
fn a_list_is_a_table() {
    let (server, cli) = start();
    assert_eq!(said(cli.run(&["ls"])), "TOKEN  KEY  MODE  OWNER  STATE  FOR  LEASE\n");
    cli.json(&["lock", "product", "--arg", "a", "--owner", "ann", "--lease", "0"]);
    cli.json(&["lock", "other", "--mode", "optimistic", "--owner", "bob"]);
    let mut waiter = server.client();
    waiter.send("LOCK product ARG 1 a WAIT 60000 OWNER eve").unwrap();
    common::cli::eventually("it waits", || server.client().list("WAITERS").len() == 3);
    let table = said(cli.run(&["ls", "--waiters", "--name", "product"]));
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert_eq!(rows[1][1..5], ["product(a)", "X", "ann", "held"]);
    assert_eq!(rows[1][6], "-");
    assert_eq!((rows[2][0], rows[2][3], rows[2][4]), ("-", "eve", "waiting"));
    let table = said(cli.run(&["ls", "--owner", "bob"]));
    assert!(table.lines().count() == 2 && table.contains("other"), "{table}");
}

#[test]
fn optimistic_locks_are_promoted() {
    let (_server, cli) = start();
    let [first, second] = ["ann", "bob"].map(|owner| {
        let held = cli.json(&["lock", "k", "--mode", "O", "--owner", owner]);
        (held["id"].as_str().unwrap().to_owned(), held["token"].as_u64().unwrap())
    });
    let token: u64 = said(cli.run(&["promote", &first.0])).trim().parse().unwrap();
    assert!(token > second.1);
    fails(&cli.run(&["promote", &second.0]), 1, "another one was promoted");
    let readers =
        ["ann", "bob"].map(|owner| cli.json(&["lock", "doc", "--shared", "--owner", owner]));
    let busy = cli.run(&["promote", readers[0]["id"].as_str().unwrap()]);
    fails(&busy, 75, "busy: bob has it");
}

#[test]
fn what_happens_is_watched() {
    let (server, cli) = start();
    let [text, json] = [&["watch"][..], &["watch", "-o", "json"]].map(|words| {
        let mut process = cli.command(words).stdout(Stdio::piped()).spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let out = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().for_each(|line| drop(send.send(line.unwrap()))));
        (process, lines)
    });
    // Something happens until both have heard of it: they may not listen yet.
    let mut client = server.client();
    let mut heard = [None, None];
    common::cli::eventually("both have heard something", || {
        let token = client.lock("k OWNER ann");
        let token = token.to_string();
        assert_eq!(said(cli.run(&["revoke", &token, "--reason", "enough"])), "revoked\n");
        for (heard, (_, lines)) in heard.iter_mut().zip([&text, &json]) {
            *heard = heard.take().or_else(|| lines.try_recv().ok());
        }
        heard.iter().all(Option::is_some)
    });
    let [line, object] = heard.map(Option::unwrap);
    assert!(line.starts_with("lost       k (X) of ann: token "), "{line}");
    assert!(line.ends_with(" revoked (enough)"), "{line}");
    let event: Value = serde_json::from_str(&object).unwrap();
    assert_eq!((&event["event"], &event["cause"]), (&"lost".into(), &"revoked".into()));
    assert_eq!(event["request"]["resources"][0]["resource"], "k");
    for (mut process, _) in [text, json] {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    fails(&cli.run(&["revoke", "1", "--reason", "x"]), 1, "no grant has the token 1");
}

#[test]
fn a_lock_whose_id_nobody_learns_is_given_up() {
    let (server, cli) = start();
    let full = std::fs::File::create("/dev/full").unwrap();
    let status = cli.command(&["lock", "k"]).stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(1));
    server.client().lock("k");
}

#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let (_server, cli) = start();
    let mut command = cli.command(&["ls"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(128 + 13), Vec::new()));
}

#[test]
fn mistakes_are_named() {
    let (_server, cli) = start();
    for (words, code, reason) in [
        (&["lock", "k", "--wait", "5"][..], 2, "'5' is not a duration such as 500ms, 5s"),
        (&["lock", "k", "--lease", "soon"], 2, "'soon' is not a duration"),
        (&["lock", "k", "--mode", "Z"], 2, "'Z' is none of S, E, X and O"),
        (&["lock", "k", "--mode", "S", "--shared"], 2, "cannot be used with"),
        (&["lock", ""], 1, "a resource needs a name"),
        (&["run", "k"], 2, "<CMD>..."),
        (&["ls", "--url", "nonsense"], 1, "'nonsense' names no strategy"),
        (&["run", "k", "--url", "keylatch://x:y", "--", "true"], 1, "is not HOST:PORT"),
        (&["ls", "--url", "keylatch://127.0.0.1:1"], 1, "no lock server was reached"),
    ] {
        fails(&cli.run(words), code, reason);
    }
}

/// Nothing is installed, nothing runs, and it works all the same.
#[test]
fn without_a_url_the_locks_are_in_a_file_of_the_user() {
    let state = tempfile::tempdir().unwrap();
    let cli = common::cli::Cli::at(String::new());
    let run = |words: &[&str]| {
        let mut command = cli.command(words);
        command.env_remove("KEYLATCH_URL").env("XDG_STATE_HOME", state.path());
        common::cli::Running::start(command).done()
    };
    let inside = format!("{} run backup --wait 0 -- true; echo $?", env!("CARGO_BIN_EXE_keylatch"));
    let done = run(&["run", "backup", "--", "sh", "-c", &inside]);
    assert_eq!((done.code, done.out.trim()), (Some(0), "75"), "{done:?}");
    assert_eq!(run(&["run", "backup", "--wait", "0", "--", "true"]).code, Some(0));
    assert!(state.path().join("keylatch/locks.sqlite").exists());
    // The user's file takes them elsewhere, and a flag wins over it.
    let (config, other) = (state.path().join("keylatch"), state.path().join("other"));
    let url = |path: &std::path::Path| format!("sqlite:{}", path.display());
    let toml = format!("url = \"{}\"", url(&other));
    std::fs::write(config.join("config.toml"), toml).unwrap();
    let run = |words: &[&str]| {
        let mut command = cli.command(words);
        command.env_remove("KEYLATCH_URL").env("XDG_CONFIG_HOME", state.path());
        common::cli::Running::start(command).done()
    };
    assert_eq!(run(&["lock", "k"]).code, Some(0));
    assert!(other.exists());
    assert_eq!(run(&["lock", "k"]).code, Some(75));
    assert_eq!(run(&["lock", "k", "--url", &url(&state.path().join("third"))]).code, Some(0));
}

#[test]
fn help_teaches() {
    let (_server, cli) = start();
    for (words, example) in [
        (&["--help"][..], "keylatch run backup -- ./backup.sh"),
        (&["run", "--help"], "keylatch run backup --wait 0 -- ./backup.sh"),
        (&["lock", "--help"], "keylatch lock deploy --lease 10m"),
        (&["ls", "--help"], "keylatch ls --waiters"),
        (&["watch", "--help"], "keylatch watch -o json"),
    ] {
        let text = said(cli.run(words));
        assert!(text.contains(example), "{words:?}: {text}");
    }
}
