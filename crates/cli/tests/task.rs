//! `keylatch task` as its callers see it: the real binary over a real server.

mod common;

use std::io::Write;
use std::process::Stdio;

use common::cli::{Cli, Done, Running, eventually, number_in};
use common::{Server, Start};
use serde_json::{Value, json};

fn start() -> (Server, Cli) {
    let server = Start::ephemeral().start();
    let cli = Cli::over(&server);
    (server, cli)
}

/// A command with something on its standard input.
fn with_input(cli: &Cli, words: &[&str], input: &str) -> Done {
    let mut command = cli.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { code: done.status.code(), out: text(done.stdout), err: text(done.stderr) }
}

fn counts(cli: &Cli) -> Value {
    cli.json(&["task", "counts", "p"])
}

fn task(cli: &Cli, key: &str) -> Value {
    let done = cli.run(&["task", "ls", "p", "--prefix", key, "-o", "json"]);
    let lines = done.out.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.into_iter().find(|task: &Value| task["key"] == key).unwrap_or(Value::Null)
}

#[test]
fn a_task_goes_through_its_life_by_hand() {
    let (_server, cli) = start();
    let created = cli.json(&["task", "create", "p", "a", "--body", "hello", "--priority", "-3"]);
    assert_eq!(created["status"], "created");
    let again = cli.run(&["task", "create", "p", "a", "--body", "other"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), "exists\n"));

    let claimed = cli.run(&["task", "claim", "p", "--owner", "ann"]);
    let (line, body) = claimed.out.split_once('\n').unwrap();
    assert_eq!(body, "hello");
    let words: Vec<&str> = line.split(' ').collect();
    let [version, token, "a"] = words[..] else { panic!("{line}") };
    let shown = task(&cli, "a");
    assert_eq!((&shown["state"], &shown["owner"]), (&json!("claimed"), &json!("ann")));
    assert_eq!((&shown["priority"], &shown["token"]), (&json!(-3), &token.parse().unwrap()));

    let updated = cli.run(&["task", "update", "p", "a", version, "--body", "[1]", "--json"]);
    let next = updated.out.trim();
    let stale = cli.run(&["task", "done", "p", "a", version, "-o", "json"]);
    assert_eq!(stale.code, Some(1), "{stale:?}");
    assert!(stale.err.contains("\"status\":\"stale\"") && stale.err.contains(next), "{stale:?}");
    let back = cli.json(&["task", "back", "p", "a", next, "--error", "not today"]);
    assert_eq!((&back["state"], &back["attempts"]), (&json!("free"), &json!(1)));

    let claimed = cli.json(&["task", "claim", "p", "a", "--wait", "1m", "--lease", "10m"]);
    assert_eq!((&claimed["body"], &claimed["attempts"]), (&json!([1]), &json!(1)));
    let version = claimed["version"].to_string();
    assert_eq!(cli.run(&["task", "done", "p", "a", &version]).out, "done\n");
    assert_eq!(counts(&cli)["done"], 1);
    let refused = cli.run(&["task", "claim", "p", "a", "-o", "json"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("\"status\":\"refused\""), "{refused:?}");
    assert_eq!(cli.json(&["task", "delete", "p", "a"])["status"], "deleted");
    let gone = cli.run(&["task", "delete", "p", "a"]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
}

#[test]
fn nothing_free_is_75() {
    let (_server, cli) = start();
    for (words, status) in [
        (&["task", "claim", "p"][..], "nothing"),
        (&["task", "claim", "p", "--wait", "50ms"], "timeout"),
        (&["task", "claim", "p", "a", "--wait", "50ms"], "timeout"),
    ] {
        let done = cli.run(&[words, &["-o", "json"]].concat());
        assert_eq!(done.code, Some(75), "{done:?}");
        assert_eq!(done.out, format!("{}\n", json!({ "status": status })));
        assert_eq!(cli.run(words).code, Some(75));
    }
}

#[test]
fn a_claim_that_waits_gets_what_is_created_and_a_signal_withdraws_it() {
    let (_server, cli) = start();
    let waiting = cli.start(&["task", "claim", "p", "--wait", "1h"]);
    eventually("it waits", || counts(&cli)["waiting"] == 1);
    cli.run(&["task", "create", "p", "a"]);
    let claimed = waiting.done();
    assert!(claimed.out.ends_with(" a\n"), "{claimed:?}");
    let waiting = cli.start(&["task", "claim", "p", "--wait", "1h"]);
    eventually("it waits", || counts(&cli)["waiting"] == 1);
    waiting.signal("TERM");
    assert_eq!(waiting.done().code, Some(128 + 15));
    eventually("it is withdrawn", || counts(&cli)["waiting"] == 0);
}

#[test]
fn bodies_come_from_files_and_standard_input_and_bad_ones_are_refused() {
    let (_server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("body");
    std::fs::write(&file, "from a file").unwrap();
    cli.json(&["task", "create", "p", "file", "--body-file", file.to_str().unwrap()]);
    assert_eq!(task(&cli, "file")["body"], "from a file");
    for (key, option) in [("in", "--body"), ("in-file", "--body-file")] {
        let done = with_input(&cli, &["task", "create", "p", key, option, "-"], "from a pipe\n");
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(task(&cli, key)["body"], "from a pipe\n");
    }
    for (words, said) in [
        (&["--body", "{", "--json"][..], "the body is not JSON"),
        (&["--body-file", "/nowhere"], "cannot read /nowhere"),
        (&["--attempts", "many"], "invalid"),
        (&["--delay", "5"], "say the unit"),
        (&["--json"], "--json is about a body"),
    ] {
        let done = cli.run(&[&["task", "create", "p", "wrong"], words].concat());
        assert!(matches!(done.code, Some(1 | 2)) && done.err.contains(said), "{done:?}");
    }
    let large = "x".repeat(70_000);
    let done = with_input(&cli, &["task", "create", "p", "wrong", "--body", "-"], &large);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert_eq!(task(&cli, "wrong"), Value::Null);
}

#[test]
fn many_are_created_from_lines() {
    let (_server, cli) = start();
    let lines = (0..2_500).map(|at| format!("{{\"key\":\"k{at}\",\"body\":{at}}}"));
    let lines = lines.collect::<Vec<_>>().join("\n");
    let bulk = &["task", "create", "p", "-", "-o", "json"];
    let done = with_input(&cli, bulk, &lines);
    let said: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(said, json!({"status": "created", "created": 2_500, "existed": 0}));
    let more =
        "{\"key\":\"k7\"}\n\n{\"key\":\"new\",\"body\":\"text\",\"priority\":9,\"attempts\":1}\n";
    let done = with_input(&cli, &["task", "create", "p", "-"], more);
    assert_eq!(done.out, "created 1, 1 existed\n");
    assert_eq!(counts(&cli)["ready"], 2_501);
    let claimed = cli.json(&["task", "claim", "p"]);
    assert_eq!((&claimed["key"], &claimed["body"]), (&json!("new"), &json!("text")));
    assert_eq!(cli.json(&["task", "claim", "p"])["body"], 0);

    for (lines, said) in [
        ("{\"key\":\"ok\"}\nnonsense\n", "line 2"),
        ("{\"body\":1}\n", "missing field `key`"),
        ("{\"key\":\"x\",\"prio\":1}\n", "unknown field `prio`"),
    ] {
        let done = with_input(&cli, &["task", "create", "p", "-"], lines);
        assert_eq!(done.code, Some(1));
        assert!(done.err.contains(said), "{done:?}");
        assert_eq!(done.err.contains("the lines before"), said == "line 2", "{done:?}");
    }
    assert_eq!(task(&cli, "ok")["state"], "free", "what stood before the mistake is there");
    let done = with_input(&cli, &["task", "create", "p", "-", "--body", "x"], "{\"key\":\"y\"}\n");
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("each line has its own body"), "{done:?}");
    assert_eq!(task(&cli, "y"), Value::Null);
}

#[test]
fn lists_and_counts_show_the_states() {
    let (_server, cli) = start();
    for key in ["a1", "a2", "b1"] {
        cli.run(&["task", "create", "p", key, "--attempts", "1"]);
    }
    let version = cli.json(&["task", "claim", "p", "a1"])["version"].to_string();
    cli.json(&["task", "back", "p", "a1", &version, "--error", "first\nthe end"]);
    cli.run(&["task", "create", "other", "x", "--delay", "1h"]);
    let listed = cli.run(&["task", "ls", "p", "--state", "failed"]);
    let lines: Vec<&str> = listed.out.lines().collect();
    assert!(lines.len() == 2 && lines[1].starts_with("a1 ") && lines[1].ends_with("the end"));
    let limited = cli.run(&["task", "ls", "p", "--prefix", "a", "--limit", "1", "-o", "json"]);
    assert_eq!(limited.out.lines().count(), 1);
    let all = cli.run(&["task", "counts"]);
    let cells: Vec<Vec<&str>> = all.out.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(cells[1], ["other", "0", "1", "0", "0", "0", "0"]);
    assert_eq!(cells[2], ["p", "2", "0", "0", "0", "1", "0"]);
    assert_eq!(cli.json(&["task", "retry", "p"])["count"], 1);
    assert_eq!(counts(&cli)["ready"], 3);
    let wrong = cli.run(&["task", "ls", "p", "--state", "lost"]);
    assert!(wrong.err.contains("none of free, claimed, done and failed"), "{wrong:?}");
}

#[test]
fn work_runs_the_command_for_each_task_with_its_body() {
    let (_server, cli) = start();
    for (key, body) in [("a", "one"), ("b", "two"), ("c", "three")] {
        cli.run(&["task", "create", "p", key, "--body", body]);
    }
    let script = "echo $KEYLATCH_TASK_POOL $KEYLATCH_TASK_KEY $KEYLATCH_TASK_ATTEMPTS $(cat); \
                  test $KEYLATCH_TASK_TOKEN -gt 0 -a $KEYLATCH_TASK_VERSION -gt 0";
    let done = cli.run(&["task", "work", "p", "--drain", "--", "sh", "-c", script]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "p a 0 one\np b 0 two\np c 0 three\n"));
    assert!(done.err.contains("3 done, 0 put back"), "{done:?}");
    assert_eq!(counts(&cli)["done"], 3);
}

#[test]
fn work_puts_back_what_fails_and_tries_it_again_until_the_last_attempt() {
    let (_server, cli) = start();
    cli.run(&["task", "create", "p", "flaky"]);
    cli.run(&["task", "create", "p", "broken", "--attempts", "2"]);
    let script = "echo \"said $KEYLATCH_TASK_KEY\" >&2; \
                  test $KEYLATCH_TASK_KEY = flaky -a $KEYLATCH_TASK_ATTEMPTS -ge 2";
    let words = ["task", "work", "p", "--backoff", "10ms..20ms", "--wait", "500ms", "-o", "json"];
    let done = cli.run(&[&words[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(done.code, Some(1), "some were put back: {done:?}");
    let flaky = task(&cli, "flaky");
    assert_eq!((&flaky["state"], &flaky["attempts"]), (&json!("done"), &json!(2)));
    let broken = task(&cli, "broken");
    assert_eq!((&broken["state"], &broken["attempts"]), (&json!("failed"), &json!(2)));
    assert_eq!(broken["error"], "exit status: 1: said broken");
    let said: Vec<Value> =
        done.err.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = said.last().unwrap();
    assert_eq!((&last["done"], &last["back"]), (&json!(1), &json!(4)), "{said:?}");
    assert!(done.err.contains("said flaky"), "what a command says is passed on");
}

#[test]
fn work_once_has_the_exit_code_of_the_command() {
    let (_server, cli) = start();
    let once = |command: &[&str]| {
        cli.run(&[&["task", "work", "p", "--once", "--wait", "50ms", "--"], command].concat()).code
    };
    assert_eq!(once(&["true"]), Some(75), "no task");
    for (key, command, code) in [
        ("a", &["true"][..], 0),
        ("b", &["sh", "-c", "exit 7"], 7),
        ("c", &["/nowhere/at-all"], 127),
        ("d", &["/etc/passwd"], 126),
    ] {
        cli.run(&["task", "create", "p", key, "--priority", "1"]);
        assert_eq!(once(command), Some(code), "{command:?}");
        if code >= 126 {
            let task = task(&cli, key);
            assert_eq!((&task["attempts"], &task["error"]), (&json!(0), &Value::Null));
            eventually("it is free again", || counts(&cli)["claimed"] == 0);
            cli.run(&["task", "delete", "p", key]);
        }
    }
}

#[test]
fn work_that_finds_no_task_says_that_it_waits_for_one() {
    let (_server, cli) = start();
    let waiting = cli.start(&["task", "work", "p", "--once", "--", "true"]);
    eventually("it says so", || waiting.has_said("keylatch: waiting for a task in p\n"));
    let json = cli.start(&["task", "work", "p", "--once", "-o", "json", "--", "true"]);
    eventually("it says so", || json.has_said(r#"{"pool":"p","status":"waiting"}"#));
    let bounded = cli.run(&["task", "work", "p", "--once", "--wait", "900ms", "--", "true"]);
    assert_eq!(bounded.code, Some(75), "{bounded:?}");
    assert_eq!(bounded.err, "keylatch: waiting for a task in p, for 900ms at most\n");
    for key in ["a", "b"] {
        cli.run(&["task", "create", "p", key]);
    }
    assert_eq!((waiting.done().code, json.done().code), (Some(0), Some(0)));
    // Whoever has something to do says nothing of that.
    cli.run(&["task", "create", "p", "c"]);
    let busy = cli.run(&["task", "work", "p", "--once", "--", "sleep", "0.6"]);
    assert_eq!((busy.code, busy.err.as_str()), (Some(0), ""));
}

#[test]
fn counts_show_who_waits_only_where_that_is_known() {
    let (_server, server) = start();
    let dir = tempfile::tempdir().unwrap();
    let file = Cli::at(format!("sqlite:{}", dir.path().join("tasks").display()));
    for (cli, known) in [(&server, true), (&file, false)] {
        cli.run(&["task", "create", "p", "a"]);
        assert_eq!(counts(cli).get("waiting").is_some(), known);
        for words in [&["task", "counts"][..], &["task", "counts", "p"]] {
            let shown = cli.run(words).out;
            assert_eq!(shown.contains("WAITING"), known, "{shown}");
            let cells = shown.lines().map(|line| line.split_whitespace().count());
            assert!(cells.eq([6 + usize::from(known); 2]), "{shown}");
        }
    }
}

#[test]
fn work_in_parallel_runs_so_many_at_a_time() {
    let (_server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    for key in ["a", "b", "c"] {
        cli.run(&["task", "create", "p", key]);
    }
    // Each waits until three are there.
    let script = format!(
        "touch {0}/$KEYLATCH_TASK_KEY; while [ $(ls {0} | wc -l) -lt 3 ]; do sleep 0.02; done",
        dir.path().display()
    );
    let words = ["task", "work", "p", "--drain", "--parallel", "3", "--", "sh", "-c", &script];
    let done = cli.run(&words);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(counts(&cli)["done"], 3);
}

/// A worker at a task that takes as long as the file `go` is not there.
fn slow_worker(cli: &Cli, dir: &std::path::Path) -> Running {
    let script =
        format!("echo $$ > {0}/pid; while [ ! -e {0}/go ]; do sleep 0.02; done", dir.display());
    let worker = cli.start(&["task", "work", "p", "--lease", "2s", "--", "sh", "-c", &script]);
    number_in(&dir.join("pid"));
    worker
}

#[test]
fn a_signal_lets_work_finish_and_claims_nothing_more() {
    let (_server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    cli.run(&["task", "create", "p", "a"]);
    cli.run(&["task", "create", "p", "b"]);
    let worker = slow_worker(&cli, dir.path());
    worker.signal("TERM");
    eventually("it says so", || worker.has_said("finishing what runs"));
    std::fs::write(dir.path().join("go"), "").unwrap();
    let done = worker.done();
    assert_eq!(done.code, Some(0), "{done:?}");
    let counts = counts(&cli);
    assert_eq!((&counts["done"], &counts["ready"]), (&json!(1), &json!(1)));
}

#[test]
fn a_second_signal_stops_what_runs_and_the_attempt_does_not_count() {
    let (_server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    cli.run(&["task", "create", "p", "a"]);
    let worker = slow_worker(&cli, dir.path());
    worker.signal("INT");
    eventually("it says so", || worker.has_said("finishing what runs"));
    worker.signal("TERM");
    let done = worker.done();
    assert_eq!(done.code, Some(128 + 15), "{done:?}");
    eventually("it is free", || counts(&cli)["ready"] == 1);
    assert_eq!(task(&cli, "a")["attempts"], 0);
}

#[test]
fn a_task_that_is_taken_away_stops_its_command() {
    let (_server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    cli.run(&["task", "create", "p", "a"]);
    let worker = slow_worker(&cli, dir.path());
    let pid = number_in(&dir.path().join("pid"));
    cli.run(&["task", "delete", "p", "a"]);
    eventually("the command is stopped", || {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    });
    eventually("it says why", || worker.has_said("the task was deleted"));
    // It goes on with the next one.
    std::fs::write(dir.path().join("go"), "").unwrap();
    cli.run(&["task", "create", "p", "b"]);
    eventually("the next one is done", || counts(&cli)["done"] == 1);
    worker.signal("TERM");
    let done = worker.done();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("1 done, 0 put back, 1 lost"), "{done:?}");
}

#[test]
fn a_worker_that_cannot_renew_stops_its_command_before_the_lease_ends() {
    let (server, cli) = start();
    let dir = tempfile::tempdir().unwrap();
    cli.run(&["task", "create", "p", "a"]);
    let worker = slow_worker(&cli, dir.path());
    let pid = number_in(&dir.path().join("pid"));
    drop(server);
    eventually("the command is stopped", || {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    });
    eventually("it says why", || worker.has_said("about to end"));
    eventually("who waits says why nothing comes", || worker.has_said("nobody answers"));
    worker.signal("TERM");
}
