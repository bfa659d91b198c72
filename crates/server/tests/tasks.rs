//! Tasks over RESP: every answer of every command, waiting, repeats, restarts, connections that go
//! away, and the rules of tasks as a client sees them.

mod common;

use common::{Client, Running};
use keylatch_wire::Value;

/// A number in the answer.
fn number(value: &Value, field: &str) -> i64 {
    value.field(field).and_then(Value::integer).unwrap_or_else(|| panic!("{field} in {value:?}"))
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.field(field).and_then(Value::text).unwrap_or_else(|| panic!("{field} in {value:?}"))
}

fn status(value: &Value) -> &str {
    text(value, "status")
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        other => panic!("a list: {other:?}"),
    }
}

/// A request with words of any bytes and any length.
fn words(words: &[&str]) -> Vec<u8> {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>()).into_bytes()
}

/// Until so many claims wait in the pool.
fn until_claiming(client: &mut Client, pool: &str, count: i64) {
    loop {
        let pools = list(client.ask(&format!("TASK COUNTS {pool}")));
        let waiting = pools.first().map_or(0, |counts| number(counts, "waiting"));
        if waiting == count {
            return;
        }
        std::thread::yield_now();
    }
}

/// Until the task is in that state.
fn until_state(client: &mut Client, pool: &str, key: &str, state: &str) {
    while text(&client.ask(&format!("TASK GET {pool} {key}")), "state") != state {
        std::thread::yield_now();
    }
}

/// Of each protocol one, each at a server of its own.
fn both() -> [(Running, Client); 2] {
    let (two, three) = (Running::start(), Running::start());
    let clients = (two.client(), three.client3());
    [(two, clients.0), (three, clients.1)]
}

#[test]
fn a_task_is_created_claimed_updated_and_done() {
    for (_server, mut client) in both() {
        let created = client.ask("TASK CREATE mails m1 BODY hello PRIORITY 3");
        assert_eq!(status(&created), "created");
        assert_eq!(client.say("TASK CREATE mails m1 BODY other"), "status=exists");
        let claimed = client.ask("TASK CLAIM mails OWNER ann ID c");
        assert_eq!(status(&claimed), "claimed");
        assert_eq!((text(&claimed, "id"), text(&claimed, "key")), ("c", "m1"));
        assert_eq!((text(&claimed, "body"), number(&claimed, "json")), ("hello", 0));
        assert_eq!((number(&claimed, "attempts"), number(&claimed, "waited_ms")), (0, 0));
        assert!((1..=60_000).contains(&number(&claimed, "lease_ms")));
        assert!(number(&claimed, "token") > 0);
        let version = number(&claimed, "version");
        assert!(version > number(&created, "version"));
        assert_eq!(client.say("TASK CLAIM mails ID n"), "status=nothing id=n");
        let updated = client.ask(&format!("TASK UPDATE mails m1 VERSION {version} LEASE 0"));
        assert_eq!((status(&updated), number(&updated, "lease_ms")), ("updated", -1));
        let stale = client.ask(&format!("TASK DONE mails m1 VERSION {version}"));
        let version = number(&updated, "version");
        assert_eq!((status(&stale), number(&stale, "version")), ("stale", version));
        let done = client.ask(&format!("TASK DONE mails m1 VERSION {version}"));
        assert_eq!(status(&done), "done");
        assert_eq!(client.say("TASK CLAIM mails KEY m1 ID r"), "status=refused id=r state=done");
        let version = number(&done, "version");
        let back = client.say(&format!("TASK BACK mails m1 VERSION {version}"));
        assert_eq!(back, "status=refused state=done");
        assert_eq!(status(&client.ask("TASK DELETE mails m1 VERSION 1")), "stale");
        let delete = format!("TASK DELETE mails m1 VERSION {version}");
        assert_eq!(client.say(&delete), "status=deleted");
        assert_eq!(client.say(&delete), "status=notfound");
        assert_eq!(client.say("TASK UPDATE mails m1 VERSION 1"), "status=notfound");
        assert_eq!(client.say("TASK DONE mails m1 VERSION 1"), "status=notfound");
        assert_eq!(client.say("TASK BACK mails m1 VERSION 1"), "status=notfound");
        assert_eq!(client.say("TASK GET mails m1"), "nil");
    }
}

#[test]
fn a_task_that_is_put_back_too_often_has_failed_until_it_is_retried() {
    for (_server, mut client) in both() {
        client.say("TASK CREATE p k ATTEMPTS 2");
        client.say("TASK CREATE p other");
        let claimed = client.ask("TASK CLAIM p KEY k");
        assert_eq!(claimed.field("body"), None, "it has none");
        let version = number(&claimed, "version");
        let back = client.ask(&format!("TASK BACK p k VERSION {version} ERROR broken"));
        assert_eq!((status(&back), text(&back, "state")), ("back", "free"));
        assert_eq!(number(&back, "attempts"), 1);
        let claimed = client.ask("TASK CLAIM p KEY k");
        assert_eq!(number(&claimed, "attempts"), 1);
        let version = number(&claimed, "version");
        let back = client.ask(&format!("TASK BACK p k VERSION {version} DELAY 5"));
        assert_eq!((text(&back, "state"), number(&back, "attempts")), ("failed", 2));
        assert_eq!(client.say("TASK CLAIM p KEY k ID r"), "status=refused id=r state=failed");
        let shown = client.ask("TASK GET p k");
        assert_eq!((text(&shown, "state"), text(&shown, "error")), ("failed", "broken"));
        assert_eq!(client.say("TASK RETRY p KEY other"), "status=retried count=0");
        assert_eq!(client.say("TASK RETRY p"), "status=retried count=1");
        assert_eq!(client.say("TASK RETRY nowhere"), "status=retried count=0");
        let claimed = client.ask("TASK CLAIM p KEY k");
        assert_eq!((status(&claimed), number(&claimed, "attempts")), ("claimed", 0));
    }
}

#[test]
fn lists_and_counts_show_every_field() {
    for (_server, mut client) in both() {
        client.send_bytes(&words(&["TASK", "CREATE", "p", "a1", "BODY", "{\"n\":1}", "JSON"]));
        assert_eq!(status(&client.value()), "created");
        client.say("TASK CREATE p a2 PRIORITY -7 DELAY 3600000");
        client.say("TASK CREATE p b1");
        client.say("TASK CREATE q x");
        let claimed = client.ask("TASK CLAIM p KEY b1 OWNER ann LEASE 0");
        let all = list(client.ask("TASK LIST p"));
        assert_eq!(
            all.iter().map(|task| text(task, "key")).collect::<Vec<_>>(),
            ["a1", "a2", "b1"]
        );
        let [a1, a2, b1] = &all[..] else { panic!("three") };
        assert_eq!((text(a1, "body"), number(a1, "json")), ("{\"n\":1}", 1));
        assert_eq!((text(a1, "state"), number(a1, "due_ms")), ("free", 0));
        assert_eq!((number(a1, "token"), number(a1, "claimed_ms")), (0, -1));
        assert_eq!(
            (a1.field("owner"), a1.field("error")),
            (Some(&Value::Null), Some(&Value::Null))
        );
        assert_eq!((number(a2, "priority"), number(a2, "json")), (-7, 0));
        assert_eq!(a2.field("body"), Some(&Value::Null));
        assert!((1..=3_600_000).contains(&number(a2, "due_ms")));
        assert_eq!((text(b1, "state"), text(b1, "owner")), ("claimed", "ann"));
        assert_eq!(number(b1, "token"), number(&claimed, "token"));
        assert_eq!(number(b1, "version"), number(&claimed, "version"));
        assert_eq!((number(b1, "lease_ms"), number(b1, "attempts")), (-1, 0));
        assert!(number(b1, "claimed_ms") >= 0 && number(b1, "created_ms") >= 0);
        assert_eq!(client.ask("TASK GET p b1").field("number"), b1.field("number"));
        let mut keys = |line: &str| {
            let found = list(client.ask(line));
            found.iter().map(|task| text(task, "key").to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(keys("TASK LIST p STATE free"), "a1 a2");
        assert_eq!(keys("TASK LIST p PREFIX b"), "b1");
        assert_eq!(keys("TASK LIST p LIMIT 2"), "a1 a2");
        let cursor = number(a2, "number");
        assert_eq!(keys(&format!("TASK LIST p CURSOR {cursor}")), "b1");
        assert_eq!(keys("TASK LIST nowhere"), "");
        let counts = list(client.ask("TASK COUNTS"));
        assert_eq!(
            counts.iter().map(|counts| text(counts, "pool")).collect::<Vec<_>>(),
            ["p", "q"]
        );
        let of = |field| number(&counts[0], field);
        assert_eq!(
            ["ready", "delayed", "claimed", "done", "failed", "waiting"].map(of),
            [1, 1, 1, 0, 0, 0]
        );
        assert_eq!(list(client.ask("TASK COUNTS q")).len(), 1);
        assert_eq!(client.say("TASK COUNTS nowhere"), "[]");
    }
}

#[test]
fn a_list_of_long_bodies_comes_in_pages() {
    let server = Running::start();
    let mut client = server.client();
    let body = "b".repeat(60_000);
    for number in 0..150 {
        client.send_bytes(&words(&["TASK", "CREATE", "p", &format!("k{number}"), "BODY", &body]));
    }
    for _ in 0..150 {
        assert_eq!(status(&client.value()), "created");
    }
    let (mut cursor, mut seen, mut pages) = (0, 0, 0);
    loop {
        let page = list(client.ask(&format!("TASK LIST p CURSOR {cursor}")));
        let Some(last) = page.last() else { break };
        cursor = number(last, "number");
        seen += page.len();
        pages += 1;
    }
    assert_eq!(seen, 150);
    assert!(pages > 1, "9 MB in one answer");
}

#[test]
fn malformed_requests_are_refused_with_a_reason_and_the_connection_goes_on() {
    let server = Running::start();
    let mut client = server.client();
    for (line, text) in [
        ("TASK", "-SYNTAX what to do is missing; usage: TASK CREATE|CLAIM"),
        ("TASK FLY p", "-SYNTAX 'FLY' is not understood here"),
        ("TASK CREATE p", "-SYNTAX the key is missing; usage: TASK CREATE pool key"),
        ("TASK CREATE p k BODY {x JSON", "-BADARG the body is not JSON: key must be a string"),
        ("TASK UPDATE p k VERSION 1 BODY [ JSON", "-BADARG the body is not JSON"),
        ("TASK CREATE p k PRIORITY high", "-BADARG PRIORITY must be a whole number"),
        ("TASK DONE p k", "-SYNTAX VERSION is missing"),
        ("TASK CLAIM p WAIT 604800001", "-LIMIT the wait is longer than 604800000 ms"),
        ("TASK CLAIM p LEASE 2419200001", "-LIMIT the lease is longer than"),
        ("TASK CREATE p k DELAY 2419200001", "-LIMIT the task delay is longer than"),
        ("TASK LIST p STATE gone", "-SYNTAX 'gone' is not a state"),
    ] {
        let said = client.say(line);
        assert!(said.starts_with(text), "{line}: {said}");
    }
    let long = "k".repeat(513);
    let said = client.say(&format!("TASK CREATE p {long}"));
    assert!(said.starts_with("-LIMIT the task key is longer than 512 bytes"), "{said}");
    client.send_bytes(&words(&["TASK", "CREATE", "p", "k", "BODY", &"b".repeat(65_537)]));
    let said = client.next();
    assert!(said.starts_with("-LIMIT the task body is longer than 65536 bytes"), "{said}");
    client.send_bytes(&words(&["TASK", "CREATE", "", "k"]));
    assert!(client.next().starts_with("-BADARG the pool is empty"));
    assert_eq!(client.say("TASK COUNTS"), "[]", "nothing has happened");
}

#[test]
fn a_waiting_claim_blocks_its_connection_until_there_is_a_task() {
    for (server, mut worker) in both() {
        let mut other = server.client();
        worker.send("TASK CLAIM p ID w WAIT 60000\nPING behind");
        until_claiming(&mut other, "p", 1);
        assert_eq!(status(&other.ask("TASK CREATE p k BODY b")), "created");
        assert_eq!(other.say("TASK CREATE p k"), "status=exists");
        let claimed = worker.value();
        assert_eq!((status(&claimed), text(&claimed, "key")), ("claimed", "k"));
        assert_eq!((text(&claimed, "id"), text(&claimed, "body")), ("w", "b"));
        assert_eq!(worker.next(), "behind", "answered after the claim it stood behind");
        let version = number(&claimed, "version");
        assert_eq!(status(&worker.ask(&format!("TASK DONE p k VERSION {version}"))), "done");
    }
}

#[test]
fn a_wait_with_nothing_free_ends_on_time() {
    for (server, mut client) in both() {
        let mut other = server.client();
        other.say("TASK CREATE p later DELAY 3600000");
        assert_eq!(client.say("TASK CLAIM p ID w WAIT 30"), "status=timeout id=w");
        assert_eq!(client.say("TASK CLAIM p ID w"), "status=nothing id=w", "it may ask again");
        client.send("TASK CLAIM p ID w WAIT 60000");
        until_claiming(&mut other, "p", 1);
        assert_eq!(other.say("TASK CANCEL w"), "1");
        assert_eq!(client.next(), "status=cancelled id=w");
        assert_eq!(other.say("TASK CANCEL w"), "0");
        assert_eq!(other.say("CANCEL w"), "0", "locks have ids of their own");
    }
}

#[test]
fn asynchronous_claims_are_answered_by_pushes() {
    let server = Running::start();
    let (mut worker, mut other) = (server.client3(), server.client());
    for (line, answer) in [
        ("TASK CLAIM p ID a WAIT 60000 ASYNC", "status=waiting id=a"),
        ("TASK CLAIM p ID b WAIT 60000 ASYNC KEY named", "status=waiting id=b"),
        ("TASK CLAIM q ID c WAIT 20 ASYNC", "status=waiting id=c"),
    ] {
        assert_eq!(worker.say(line), answer);
    }
    assert_eq!(worker.next(), "push keylatch timeout status=timeout id=c");
    assert_eq!(worker.say("TASK CLAIM q ID d WAIT 60000 ASYNC"), "status=waiting id=d");
    other.say("TASK CREATE p k BODY b");
    let Value::Push(push) = worker.value() else { panic!("a push") };
    assert_eq!(
        push.iter().take(2).map(|word| word.text()).collect::<Vec<_>>(),
        [Some("keylatch"), Some("claimed")]
    );
    assert_eq!(
        (status(&push[2]), text(&push[2], "id"), text(&push[2], "key")),
        ("claimed", "a", "k")
    );
    assert_eq!(text(&push[2], "body"), "b");
    // The one who waits for `named` is told once nobody can have it any more.
    let created = other.ask("TASK CREATE p named DELAY 3600000");
    let version = number(&created, "version");
    assert_eq!(status(&other.ask(&format!("TASK DONE p named VERSION {version}"))), "done");
    assert_eq!(worker.next(), "push keylatch refused status=refused id=b state=done");
    assert_eq!(other.say("TASK CANCEL d"), "1");
    assert_eq!(worker.next(), "push keylatch cancelled status=cancelled id=d");
    other.say("TASK CREATE q now");
    let at_once = worker.ask("TASK CLAIM q WAIT 60000 ASYNC");
    assert_eq!(status(&at_once), "claimed", "at once says so at once");
}

#[test]
fn a_repeat_under_one_id_has_the_same_answer() {
    for (_server, mut client) in both() {
        let created = client.say("TASK CREATE p k BODY b ID 1");
        assert!(created.starts_with("status=created"));
        assert_eq!(client.say("TASK CREATE p k BODY b ID 1"), created);
        assert!(client.say("TASK CREATE p k BODY c ID 1").starts_with("-IDREUSED"));
        let claimed = client.ask("TASK CLAIM p OWNER ann ID 2");
        let again = client.ask("TASK CLAIM p OWNER ann ID 2 WAIT 5");
        assert_eq!((text(&again, "key"), text(&again, "body")), ("k", "b"));
        assert_eq!(number(&again, "version"), number(&claimed, "version"));
        assert_eq!(number(&again, "token"), number(&claimed, "token"));
        let version = number(&claimed, "version");
        let update = format!("TASK UPDATE p k VERSION {version} BODY c ID 3");
        let updated = client.ask(&update);
        assert_eq!(number(&client.ask(&update), "version"), number(&updated, "version"));
        assert_eq!(client.say("TASK CLAIM p OWNER ann ID 2"), "status=ended id=2");
        let back = format!("TASK BACK p k VERSION {} ID 4", number(&updated, "version"));
        assert_eq!(client.say(&back), client.say(&back));
        assert_eq!(number(&client.ask("TASK GET p k"), "attempts"), 1, "once");
        let claimed = client.ask("TASK CLAIM p");
        let done = format!("TASK DONE p k VERSION {} ID 5", number(&claimed, "version"));
        assert_eq!(client.say(&done), client.say(&done));
        assert_eq!(client.say("TASK DELETE p k ID 6"), "status=deleted");
        assert_eq!(client.say("TASK DELETE p k ID 6"), "status=deleted");
        assert_eq!(client.say("TASK RETRY p ID 7"), client.say("TASK RETRY p ID 7"));
        assert_eq!(client.say("TASK CREATE p k BODY b ID 1"), created, "it is not made again");
        assert_eq!(client.say("TASK GET p k"), "nil");
    }
}

#[test]
fn an_update_after_the_lease_ran_out_succeeds_if_and_only_if_nobody_claimed_since() {
    for (server, mut ann) in both() {
        let mut bob = server.client();
        for (key, claimed_since) in [("alone", false), ("taken", true)] {
            bob.say(&format!("TASK CREATE p {key}"));
            let claimed = ann.ask(&format!("TASK CLAIM p KEY {key} LEASE 1 OWNER ann"));
            until_state(&mut bob, "p", key, "free");
            let version = number(&claimed, "version");
            let shown = bob.ask(&format!("TASK GET p {key}"));
            assert_eq!(number(&shown, "version"), version, "running out is not a write");
            if claimed_since {
                assert_eq!(status(&bob.ask(&format!("TASK CLAIM p KEY {key}"))), "claimed");
            }
            let updated = ann.ask(&format!("TASK UPDATE p {key} VERSION {version} LEASE 60000"));
            let expected = if claimed_since { "stale" } else { "updated" };
            assert_eq!(status(&updated), expected);
            let shown = bob.ask(&format!("TASK GET p {key}"));
            assert_eq!(text(&shown, "state"), "claimed");
            let anns = text(&shown, "owner") == "ann";
            assert_eq!(anns, !claimed_since);
        }
    }
}

#[test]
fn asking_for_one_key_never_gives_another() {
    let server = Running::start();
    let (mut worker, mut other) = (server.client(), server.client());
    for key in ["a", "b", "c"] {
        other.say(&format!("TASK CREATE p {key} PRIORITY 9"));
    }
    assert_eq!(worker.say("TASK CLAIM p KEY d ID 1"), "status=nothing id=1");
    assert_eq!(text(&worker.ask("TASK CLAIM p KEY b"), "key"), "b");
    assert_eq!(worker.say("TASK CLAIM p KEY b ID 2"), "status=nothing id=2", "it is claimed");
    worker.send("TASK CLAIM p KEY b ID 3 WAIT 60000");
    until_claiming(&mut other, "p", 1);
    other.say("TASK CREATE p e");
    until_claiming(&mut other, "p", 1);
    let version = number(&other.ask("TASK GET p b"), "version");
    assert_eq!(status(&other.ask(&format!("TASK BACK p b VERSION {version}"))), "back");
    assert_eq!(text(&worker.value(), "key"), "b");
}

#[test]
fn a_done_task_never_comes_back() {
    let server = Running::start();
    let mut client = server.client();
    client.say("TASK CREATE p k");
    let claimed = client.ask("TASK CLAIM p LEASE 1 ID c");
    let version = number(&claimed, "version");
    let done = client.ask(&format!("TASK DONE p k VERSION {version}"));
    assert_eq!(status(&done), "done");
    // The lease has run out by the time that this wait is over.
    assert_eq!(client.say("TASK CLAIM p ID n WAIT 30"), "status=timeout id=n");
    assert_eq!(text(&client.ask("TASK GET p k"), "state"), "done");
    assert_eq!(client.say("TASK CREATE p k"), "status=exists", "it is kept until it is deleted");
    assert_eq!(client.say("TASK RETRY p"), "status=retried count=0");
    assert_eq!(client.say("TASK CLAIM p KEY k ID k"), "status=refused id=k state=done");
    let version = number(&done, "version");
    client.say(&format!("TASK UPDATE p k VERSION {version} BODY b LEASE 1"));
    assert_eq!(text(&client.ask("TASK GET p k"), "state"), "done");
    assert_eq!(client.say("TASK CLAIM p ID m"), "status=nothing id=m");
}

#[test]
fn a_named_claim_waits_also_for_a_key_that_does_not_exist_yet() {
    let server = Running::start();
    let (mut worker, mut other) = (server.client(), server.client());
    worker.send("TASK CLAIM p KEY k ID w WAIT 60000");
    until_claiming(&mut other, "p", 1);
    other.say("TASK CREATE p first");
    until_claiming(&mut other, "p", 1);
    other.say("TASK CREATE p k");
    assert_eq!(text(&worker.value(), "key"), "k");
}

#[test]
fn of_a_named_claim_and_an_any_claim_for_one_task_exactly_one_wins() {
    let server = Running::start();
    let (mut named, mut any, mut other) = (server.client3(), server.client3(), server.client());
    for round in 0..50 {
        named.send(&format!("TASK CLAIM p KEY k{round} WAIT 60000 ID n{round}"));
        any.send(&format!("TASK CLAIM p WAIT 60000 ID a{round}"));
        // Sometimes both wait already, sometimes they arrive together with the task.
        if round % 2 == 0 {
            until_claiming(&mut other, "p", 2);
        }
        other.say(&format!("TASK CREATE p k{round}"));
        until_state(&mut other, "p", &format!("k{round}"), "claimed");
        until_claiming(&mut other, "p", 1);
        let cancelled = ["n", "a"].map(|of| other.say(&format!("TASK CANCEL {of}{round}")));
        let (named_got, any_got) = (named.value(), any.value());
        let mut both = [status(&named_got), status(&any_got)];
        both.sort_unstable();
        assert_eq!(both, ["cancelled", "claimed"], "round {round}");
        let named_won = status(&named_got) == "claimed";
        assert_eq!(cancelled, if named_won { ["0", "1"] } else { ["1", "0"] });
    }
}

#[test]
fn whoever_has_waited_longest_is_served_first_and_the_highest_priority_is_given_first() {
    let server = Running::start();
    let (mut first, mut second, mut other) = (server.client(), server.client(), server.client());
    first.send("TASK CLAIM p ID 1 WAIT 60000");
    until_claiming(&mut other, "p", 1);
    second.send("TASK CLAIM p ID 2 WAIT 60000");
    until_claiming(&mut other, "p", 2);
    other.say("TASK CREATE p a");
    other.say("TASK CREATE p b PRIORITY 5");
    assert_eq!(text(&first.value(), "key"), "a");
    assert_eq!(text(&second.value(), "key"), "b");
    for (key, priority) in [("low", -1), ("high", 7), ("middle", 0)] {
        other.say(&format!("TASK CREATE p {key} PRIORITY {priority}"));
    }
    let keys = [(); 3].map(|()| text(&other.ask("TASK CLAIM p"), "key").to_owned());
    assert_eq!(keys, ["high", "middle", "low"]);
}

#[test]
fn a_claim_whose_connection_is_lost_while_it_waits_gets_nothing_for_long() {
    let server = Running::with(|config| config.grace = std::time::Duration::from_millis(50));
    let (mut worker, mut other) = (server.client(), server.client());
    worker.send("TASK CLAIM p ID w WAIT 60000");
    until_claiming(&mut other, "p", 1);
    drop(worker);
    until_claiming(&mut other, "p", 0);
    other.say("TASK CREATE p k");
    assert_eq!(text(&other.ask("TASK GET p k"), "state"), "free");
}

#[test]
fn a_claim_comes_back_to_its_place_on_another_connection() {
    let server = Running::with(|config| config.grace = std::time::Duration::from_secs(60));
    let (mut worker, mut other) = (server.client(), server.client());
    worker.send("TASK CLAIM p ID w WAIT 60000");
    until_claiming(&mut other, "p", 1);
    drop(worker);
    other.say("TASK CREATE p k");
    until_state(&mut other, "p", "k", "claimed");
    let mut again = server.client();
    let claimed = again.ask("TASK CLAIM p ID w WAIT 60000");
    assert_eq!((status(&claimed), text(&claimed, "key")), ("claimed", "k"));
}

#[test]
fn subscribers_hear_of_claims_that_waited_and_of_leases_that_ran_out() {
    let server = Running::start();
    let (mut listener, mut worker, mut other) =
        (server.client3(), server.client(), server.client());
    listener.say("SUBSCRIBE keylatch:events");
    let mut event = || {
        let Value::Push(parts) = listener.value() else { panic!("a push") };
        serde_json::from_str::<serde_json::Value>(parts[2].text().unwrap()).unwrap()
    };
    worker.send("TASK CLAIM p ID w WAIT 60000 LEASE 1");
    until_claiming(&mut other, "p", 1);
    other.say("TASK CREATE p k BODY secret");
    worker.value();
    let claimed = event();
    assert_eq!((&claimed["event"], &claimed["pool"]), (&"claimed".into(), &"p".into()));
    assert_eq!((&claimed["id"], &claimed["key"]), (&"w".into(), &"k".into()));
    assert!(claimed["token"].is_u64() && claimed["waited_ms"].is_u64());
    assert_eq!(claimed.get("body"), None);
    let lapsed = event();
    assert_eq!((&lapsed["event"], &lapsed["key"]), (&"lapsed".into(), &"k".into()));
    assert_eq!(lapsed["token"], claimed["token"]);
    worker.say("TASK CLAIM q ID x WAIT 20");
    assert_eq!(event()["event"], "claim_timeout");
    worker.send("TASK CLAIM q KEY z ID y WAIT 60000");
    until_claiming(&mut other, "q", 1);
    let created = other.ask("TASK CREATE q z DELAY 3600000");
    other.say(&format!("TASK DONE q z VERSION {}", number(&created, "version")));
    let refused = event();
    assert_eq!((&refused["event"], &refused["state"]), (&"claim_refused".into(), &"done".into()));
    assert_eq!(worker.next(), "status=refused id=y state=done");
    worker.send("TASK CLAIM q ID v WAIT 60000");
    until_claiming(&mut other, "q", 1);
    other.say("TASK CANCEL v");
    assert_eq!(event()["event"], "claim_cancelled");
}

#[test]
fn a_restart_keeps_tasks_claims_and_answers() {
    let dir = tempfile::tempdir().unwrap();
    let start = || Running::with(|config| config.data = Some(dir.path().into()));
    let server = start();
    let mut client = server.client();
    let created = client.say("TASK CREATE p k BODY b PRIORITY 4 ID 1");
    client.say("TASK CREATE p later DELAY 3600000");
    client.say("TASK CREATE p free");
    let claimed = client.ask("TASK CLAIM p OWNER ann LEASE 600000 ID 2");
    assert_eq!(client.say("TASK CLAIM p KEY nothing ID n"), "status=nothing id=n");
    let mut worker = server.client();
    worker.send("TASK CLAIM q ID w WAIT 60000");
    until_claiming(&mut client, "q", 1);
    server.stop();

    let server = start();
    let mut client = server.client();
    assert_eq!(client.say("TASK CREATE p k BODY b PRIORITY 4 ID 1"), created, "the same answer");
    let shown = client.ask("TASK GET p k");
    assert_eq!((text(&shown, "state"), text(&shown, "owner")), ("claimed", "ann"));
    assert_eq!((text(&shown, "body"), number(&shown, "priority")), ("b", 4));
    let again = client.ask("TASK CLAIM p OWNER ann LEASE 600000 ID 2");
    assert_eq!(number(&again, "token"), number(&claimed, "token"), "the same claim");
    assert_eq!(number(&again, "version"), number(&claimed, "version"));
    assert!((590_000..=600_000).contains(&number(&again, "lease_ms")));
    assert!(number(&client.ask("TASK GET p later"), "due_ms") > 3_000_000);
    // Whoever waited has its place, for as long as it takes to come back.
    let mut worker = server.client();
    worker.send("TASK CLAIM q ID w WAIT 60000");
    until_claiming(&mut client, "q", 1);
    client.say("TASK CREATE q k");
    assert_eq!(text(&worker.value(), "key"), "k");
    let version = number(&claimed, "version");
    let done = client.say(&format!("TASK DONE p k VERSION {version} ID 3"));
    server.stop();

    let server = start();
    let mut client = server.client();
    assert_eq!(client.say(&format!("TASK DONE p k VERSION {version} ID 3")), done);
    assert_eq!(client.say("TASK CLAIM p KEY k ID r"), "status=refused id=r state=done");
    assert_eq!(text(&client.ask("TASK CLAIM p"), "key"), "free");
}

/// A refusal is answered as it is in memory, also when it does not go through the log, and after
/// what the same connection has asked before it.
#[test]
fn refusals_of_a_durable_server_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::with(|config| config.data = Some(dir.path().into()));
    let mut client = server.client();
    client.send(
        "TASK CLAIM p ID a\nTASK CREATE p k\nTASK CLAIM p ID b LEASE 0\nTASK CLAIM p ID c\n\
         TASK CANCEL c\nTASK CLAIM p WAIT 604800001 ID d",
    );
    assert_eq!(client.next(), "status=nothing id=a");
    assert_eq!(status(&client.value()), "created");
    assert_eq!(status(&client.value()), "claimed");
    assert_eq!(client.next(), "status=nothing id=c");
    assert_eq!(client.next(), "0");
    assert!(client.next().starts_with("-LIMIT the wait is longer"));
    assert_eq!(client.say("TASK CLAIM p ID c"), "status=nothing id=c");
    assert_eq!(client.say("TASK CLAIM p ID c WAIT 20"), "status=timeout id=c");
}
