//! What clients and operators see of a cluster: reads that may be stale, `/v1/cluster`, `/readyz` and
//! `/metrics` of a member, who is let in and who is not.

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use common::Running;
use common::http::Http;
use keylatch_server::cluster::{Role, State, Status, Visit};
use keylatch_server::{Config, LogSizes, Server};
use keylatch_wire::Value;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// Longer than anything here takes: a hang is a failure, not a timing.
const HANG: Duration = Duration::from_secs(60);

fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(since.elapsed() < HANG, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn configure(config: &mut Config, dir: &Path, peer: SocketAddr, join: &[&str]) {
    config.data = Some(dir.into());
    config.enqueue = None;
    config.log =
        LogSizes { segment_bytes: 1 << 20, reserve_bytes: 1 << 16, snapshot_bytes: 64 << 20 };
    config.leader_wait = Duration::from_millis(300);
    config.peer = Some(peer);
    config.join = join.iter().map(ToString::to_string).collect();
}

fn free() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn start(dir: &Path, join: &[&str]) -> Running {
    Running::with(|config| configure(config, dir, free(), join))
}

fn peer(server: &Running) -> SocketAddr {
    server.addresses.peer.unwrap()
}

fn visit(server: &Running) -> Visit {
    Visit::plainly(&peer(server))
}

fn status(server: &Running) -> Status {
    eventually("a status", || visit(server).status().ok())
}

fn until_voters(server: &Running, count: usize) {
    eventually("voters", || {
        let members = status(server).members;
        let voters = members.iter().filter(|member| member.role == Role::Voter).count();
        (voters == count && members.len() == count).then_some(())
    });
}

/// One, and others that have joined it.
fn cluster(dirs: &[TempDir]) -> Vec<Running> {
    let first = start(dirs[0].path(), &[]);
    let join = peer(&first).to_string();
    let mut servers = vec![first];
    servers.extend(dirs[1..].iter().map(|dir| start(dir.path(), &[&join])));
    for server in &servers {
        until_voters(server, dirs.len());
    }
    servers
}

fn dirs(count: usize) -> Vec<TempDir> {
    (0..count).map(|_| tempfile::tempdir().unwrap()).collect()
}

fn insist(server: &Running, line: &str) -> Value {
    eventually(line, || {
        let answer = server.client().ask(line);
        (!common::show(&answer).starts_with("-NOLEADER")).then_some(answer)
    })
}

#[test]
fn a_member_that_is_cut_off_answers_stale_questions_and_no_others() {
    let dirs = dirs(2);
    let mut servers = cluster(&dirs);
    insist(&servers[0], "LOCK k ID held OWNER ann LEASE 0");
    insist(&servers[0], "TASK CREATE pool key BODY b");
    // It is there; that is not yet known to one that may be behind.
    let other = servers.pop().unwrap();
    let seen = |line: &str| common::show(&other.client().ask(line));
    eventually("it has got there", || {
        let is_there = seen("LOCKS STALE").contains("id held ");
        (is_there && seen("TASK LIST pool STALE") != "[]").then_some(())
    });
    servers.pop().unwrap().stop();
    eventually("nobody leads", || status(&other).leader.is_none().then_some(()));
    for line in
        ["LOCKS", "LOCKS NAME k", "GET k", "TASK GET pool key", "TASK LIST pool", "TASK COUNTS"]
    {
        assert!(seen(line).starts_with("-NOLEADER"), "{line}");
    }
    for line in ["TASK GET pool key", "TASK LIST pool STATE free"] {
        assert!(seen(&format!("{line} STALE")).contains("key key "), "{line}");
    }
    for line in ["TASK COUNTS STALE", "TASK COUNTS pool STALE"] {
        assert!(seen(line).contains("pool pool "), "{line}");
    }
    assert_eq!(seen("TASK LIST other STALE"), "[]");
    assert!(seen("LOCKS NAME k WAITERS STALE").contains("id held "));
    assert_eq!(seen("LOCKS NAME other STALE"), "[]");
    let mut http = Http::to(&other);
    for path in [
        "/v1/locks",
        "/v1/locks?name=k",
        "/v1/locks/held",
        "/v1/owners",
        "/v1/tasks",
        "/v1/tasks/pool",
        "/v1/tasks/pool/key",
    ] {
        let fresh = http.ask("GET", path, "");
        assert_eq!(fresh.refusal(), (503, "no_leader".into()), "{path}");
        let sign = if path.contains('?') { '&' } else { '?' };
        let stale = http.ask("GET", &format!("{path}{sign}stale=true"), "");
        assert_eq!(stale.status, 200, "{path}: {}", stale.body);
        let text = stale.body;
        assert!(["held", "ann", "pool", "key"].iter().any(|word| text.contains(word)), "{text}");
        let fresh = http.ask("GET", &format!("{path}{sign}stale=false"), "");
        assert_eq!(fresh.status, 503, "{path}");
    }
    for word in ["stale", "stale=1", "stale=no"] {
        let answer = http.ask("GET", &format!("/v1/locks?{word}"), "");
        assert_eq!(answer.refusal(), (400, "invalid".into()), "{word}");
    }
    // Nothing is changed staly.
    let lock = http.lock(&json!({"name": "other"}));
    assert_eq!(lock.refusal(), (503, "no_leader".into()));
}

/// A stale answer does not overtake what was asked before it on the same connection.
#[test]
fn answers_keep_their_order_around_a_stale_question() {
    let dirs = dirs(1);
    let server = cluster(&dirs).remove(0);
    insist(&server, "LOCK first ID first LEASE 0");
    let mut client = server.client();
    for round in 0..20 {
        client.send(&format!(
            "LOCK k ID r{round}\nLOCKS NAME k STALE\nUNLOCK r{round}\nLOCKS NAME k STALE"
        ));
        assert!(client.next().contains("granted"));
        let seen = client.next();
        assert!(seen.contains(&format!("id r{round} ")), "its own lock is seen: {seen}");
        assert_eq!((client.next(), client.next()), ("1".into(), "[]".into()));
    }
    // Nor does it wait for anybody else's.
    let mut waiter = server.client();
    waiter.send("LOCK first ID waits WAIT 600000");
    eventually("it waits", || {
        let Value::Array(all) = client.ask("LOCKS WAITERS STALE") else { panic!("a list") };
        (all.len() == 2).then_some(())
    });
}

/// A value of `/metrics`.
fn metric(server: &Running, name: &str) -> Option<u64> {
    let text = Http::to(server).ask("GET", "/metrics", "").body;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[test]
fn members_show_the_cluster_and_are_ready_while_there_is_a_leader() {
    let dirs = dirs(3);
    let mut servers = cluster(&dirs);
    insist(&servers[1], "LOCK k ID a LEASE 0");
    let leader = eventually("a leader", || status(&servers[0]).leader);
    for server in &servers {
        eventually("ready", || {
            let got = Http::to(server).ask("GET", "/readyz?verbose", "");
            (got.status == 200 && got.body.contains("cluster: ok")).then_some(())
        });
        let got = Http::to(server).ask("GET", "/v1/cluster", "");
        let (shown, status) = (got.json(), status(server));
        assert_eq!(got.status, 200);
        assert_eq!(shown["cluster"], format!("{:032x}", status.cluster));
        assert_eq!(shown["node"], status.node.to_string());
        assert_eq!(shown["leader"], leader.to_string());
        assert_eq!(shown["caught_up"], true);
        let members = shown["members"].as_array().unwrap();
        assert_eq!(members.len(), 3);
        assert!(members.iter().all(|one| one["role"] == "voter"), "{shown}");
        assert_eq!(members.iter().filter(|one| one["leads"] == true).count(), 1);
        let leads = status.node == leader;
        assert_eq!(shown["state"], if leads { "leader" } else { "follower" });
        assert_eq!(members[0]["matched"].is_u64(), leads, "only who leads knows");
        let state =
            |word: &str| metric(server, &format!("keylatch_cluster_state{{state=\"{word}\"}}"));
        assert_eq!(
            (state("leader"), state("follower")),
            (Some(leads.into()), Some((!leads).into()))
        );
        assert_eq!(metric(server, "keylatch_cluster_has_leader"), Some(1));
        assert_eq!(metric(server, "keylatch_cluster_caught_up"), Some(1));
        assert_eq!(metric(server, "keylatch_cluster_term"), Some(status.term));
        assert_eq!(metric(server, "keylatch_cluster_members{role=\"voter\"}"), Some(3));
        assert!(metric(server, "keylatch_cluster_applied_index") >= Some(status.applied));
        assert!(metric(server, "keylatch_cluster_log_index") >= Some(status.applied));
        assert!(metric(server, "keylatch_cluster_leaders_total") >= Some(1));
        let others = status.members.iter().filter(|member| member.node != leader);
        for member in others {
            let name = format!("keylatch_cluster_lag_entries{{node=\"{}\"}}", member.node);
            assert_eq!(metric(server, &name).is_some(), leads, "{name}");
        }
    }
    // With the last one alone nobody is ready, and it says why.
    let last = servers.remove(0);
    drop(servers);
    let got = eventually("not ready", || {
        let got = Http::to(&last).ask("GET", "/readyz", "");
        (got.status == 503).then_some(got)
    });
    assert!(got.body.contains("no leader") || got.body.contains("no majority"), "{}", got.body);
    eventually("it shows", || {
        (metric(&last, "keylatch_cluster_has_leader") == Some(0)).then_some(())
    });
    let shown = Http::to(&last).ask("GET", "/v1/cluster", "").json();
    assert_eq!(shown["leader"], Json::Null, "{shown}");
    assert_eq!(Http::to(&last).ask("GET", "/livez", "").status, 200);
    // A server that is alone has none, and is ready.
    let alone = Running::start();
    let got = Http::to(&alone).ask("GET", "/v1/cluster", "");
    assert_eq!(got.refusal(), (404, "no_cluster".into()));
    assert_eq!(Http::to(&alone).ask("GET", "/readyz", "").status, 200);
    assert_eq!(metric(&alone, "keylatch_cluster_term"), None);
}

#[test]
fn a_node_waits_to_be_added_and_is_added_once() {
    let dirs = dirs(4);
    let one = start(dirs[0].path(), &[]);
    insist(&one, "LOCK k ID a LEASE 0");
    // Its port has to be known before it runs.
    let [at, resp] =
        [free(), free()].map(|any| std::net::TcpListener::bind(any).unwrap().local_addr().unwrap());
    let dir = dirs[1].path().to_owned();
    let waiting = std::thread::spawn(move || {
        Running::with(|config| {
            configure(config, &dir, at, &["wait"]);
            config.resp = Some(resp);
        })
    });
    eventually("it waits", || {
        let said = Visit::plainly(&at).status().unwrap_err().to_string();
        said.contains("waits to be added").then_some(())
    });
    // Clients go elsewhere meanwhile, and do not wait for an answer that does not come.
    assert!(std::net::TcpStream::connect(resp).is_err());
    let node = eventually("it is added", || visit(&one).add(&at.to_string()).ok());
    let two = waiting.join().unwrap();
    assert!(std::net::TcpStream::connect(resp).is_ok());
    until_voters(&two, 2);
    assert_eq!(status(&two).node, node);
    assert_eq!(status(&two).cluster, status(&one).cluster);
    let again = visit(&one).add(&at.to_string()).unwrap_err().to_string();
    assert!(again.contains("already"), "{again}");
    // It is a member from now on, whatever it is started with.
    two.stop();
    let two = Running::with(|config| configure(config, dirs[1].path(), at, &["wait"]));
    assert_eq!(status(&two).node, node);
    assert!(common::show(&insist(&two, "LOCK k")).starts_with("status=busy"));
    // One that has a cluster of its own stays in that.
    let other = start(dirs[2].path(), &[]);
    let why = visit(&one).add(&peer(&other).to_string()).unwrap_err().to_string();
    assert!(why.contains("another cluster"), "{why}");
    assert_eq!(status(&one).members.len(), 2);
}

#[test]
fn a_node_that_was_taken_out_does_not_come_back_as_it_was() {
    let dirs = dirs(3);
    let mut servers = cluster(&dirs);
    let out = servers.pop().unwrap();
    let node = status(&out).node;
    // It has served somebody.
    insist(&out, "LOCK k ID a LEASE 0");
    eventually("it is out", || visit(&servers[0]).remove(node).ok());
    until_voters(&servers[0], 2);
    let at = peer(&out);
    out.stop();
    let join = peer(&servers[0]).to_string();
    let mut config = Config { resp: Some(free()), http: None, ..Config::default() };
    // Where it was, as after any restart.
    configure(&mut config, dirs[2].path(), at, &[&join]);
    let server = Server::bind(config).unwrap();
    let error = server.run().unwrap_err().to_string();
    assert!(error.contains("taken out") && error.contains("empty"), "{error}");
    assert_eq!(status(&servers[0]).members.len(), 2, "it is not back");
    // With an empty directory it is a new member.
    let empty = tempfile::tempdir().unwrap();
    let back = start(empty.path(), &[&join]);
    // The log has had three before; that it is one of them is the end of it.
    eventually("it votes", || (status(&back).state == State::Follower).then_some(()));
    until_voters(&servers[0], 3);
    assert_ne!(status(&back).node, node);
}
