//! What has been acknowledged survives a restart.

mod common;

use std::path::Path;

use common::Running;
use keylatch_wire::Value;

fn start(dir: &Path) -> Running {
    Running::with(|config| config.data = Some(dir.into()))
}

fn token(value: &Value) -> i64 {
    value.field("token").and_then(Value::integer).expect("a token")
}

#[test]
fn locks_waiters_and_tokens_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let (mut ann, mut bob) = (server.client(), server.client());
    let first = token(&ann.ask("LOCK k ID a OWNER ann LEASE 600000"));
    assert_eq!(ann.say("SET redis v NX"), "OK");
    bob.send("LOCK k ID b OWNER bob WAIT 60000");
    while ann.ask("LOCKS WAITERS NAME k") == ann.ask("LOCKS NAME k") {}
    server.stop();

    let server = start(dir.path());
    let (mut ann, mut bob) = (server.client(), server.client());
    assert_eq!(ann.say("GET redis"), "v");
    let again = ann.ask("LOCK k ID a OWNER ann LEASE 600000");
    assert_eq!(token(&again), first, "the same grant");
    let left = again.field("lease_ms").and_then(Value::integer).unwrap();
    assert!((590_000..=600_000).contains(&left), "{left}");
    bob.send("LOCK k ID b OWNER bob WAIT 60000");
    let mut eve = server.client();
    assert_eq!(eve.say("LOCK k ID e"), "status=busy id=e owner=ann mode=X state=held");
    assert_eq!(ann.say("UNLOCK a"), "1");
    let granted = bob.value();
    assert!(granted.field("status").unwrap().is("granted"));
    assert!(token(&granted) > first);
    server.stop();

    let server = start(dir.path());
    let mut eve = server.client();
    assert_eq!(eve.say("LOCK k ID a"), "status=ended id=a cause=released", "still remembered");
    assert_eq!(eve.say("UNLOCK a"), "1");
    assert!(token(&eve.ask("LOCK other")) > token(&granted));
}

/// Thousands of locks of one party, and snapshots all the time while they are taken and released.
#[test]
fn what_is_in_snapshots_survives_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        Running::with(|config| {
            config.data = Some(dir.path().into());
            config.log.snapshot_bytes = 65_536;
        })
    };
    let server = start();
    let mut client = server.client();
    let mut last = 0;
    for round in 0..40 {
        let locks: Vec<String> =
            (0..200).map(|at| format!("LOCK k:{round}:{at} ID {round}:{at}")).collect();
        client.send(&locks.join("\n"));
        for _ in &locks {
            last = token(&client.value()).max(last);
        }
        // Every second one goes again.
        let unlocks: Vec<String> =
            (0..200).step_by(2).map(|at| format!("UNLOCK {round}:{at}")).collect();
        client.send(&unlocks.join("\n"));
        for _ in &unlocks {
            assert_eq!(client.next(), "1");
        }
    }
    // Some snapshot has most of them; more come as long as the log grows.
    let size = || dir.path().join("snapshot").metadata().map_or(0, |metadata| metadata.len());
    let mut more = 0;
    while size() < 65_536 {
        more += 1;
        client.send(&format!("LOCK more ID more-{more}\nUNLOCK more-{more}"));
        last = token(&client.value()).max(last);
        client.value();
    }
    server.stop();
    for again in 0..2 {
        let server = start();
        let mut client = server.client();
        let info = client.say("INFO");
        assert!(info.contains("held:4000"), "{info}");
        assert!(client.say("LOCK k:7:7").starts_with("status=busy"));
        let granted = client.ask(&format!("LOCK k:7:8 ID free-{again}"));
        assert!(token(&granted) > last);
        assert_eq!(client.say(&format!("UNLOCK free-{again}")), "1");
        server.stop();
    }
}

#[test]
fn everything_else_is_as_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let mut client = server.client3();
    client.send("SET k v NX\nGET k\nDEL k\nGET k\nPING\nLOCK n ID n LEASE 20");
    let got: Vec<String> = (0..6).map(|_| client.next()).collect();
    assert_eq!(got, ["OK", "v", "1", "nil", "PONG", "status=granted id=n"]);
    assert_eq!(client.next(), "push keylatch lost id=n cause=expired");
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path());
    let free = Some("127.0.0.1:0".parse().unwrap());
    let config = keylatch_server::Config {
        data: Some(dir.path().into()),
        resp: free,
        enqueue: None,
        http: None,
        ..keylatch_server::Config::default()
    };
    let Err(error) = keylatch_server::Server::bind(config) else { panic!("it is taken") };
    assert!(matches!(error, keylatch_server::ServerError::Log(_)), "{error}");
    drop(server);
}

#[test]
fn bounds_are_those_of_the_last_start() {
    let dir = tempfile::tempdir().unwrap();
    let start = |name_bytes| {
        Running::with(|config| {
            config.data = Some(dir.path().into());
            config.settings.set("name_bytes", name_bytes);
        })
    };
    let server = start(8);
    assert!(server.client().say("LOCK a-long-name").starts_with("-LIMIT"));
    server.stop();
    let server = start(100);
    assert_eq!(server.client().say("LOCK a-long-name ID a"), "status=granted id=a");
    server.stop();
    let server = start(8);
    assert!(server.client().say("LOCK another-name").starts_with("-LIMIT"));
    assert_eq!(server.client().say("UNLOCK a"), "1", "what is held stays held");
}
