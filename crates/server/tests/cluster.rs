//! Several servers of this process that are one cluster.

mod common;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Client, Running};
use keylatch_server::cluster::{Fingerprint, Role, Status, Visit};
use keylatch_server::{Config, LogSizes, TlsFiles};
use keylatch_wire::Value;
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

fn start(dir: &Path, join: &[SocketAddr]) -> Running {
    Running::with(|config| {
        config.data = Some(dir.into());
        config.enqueue = None;
        config.log = SMALL;
        // A busy machine may need several elections for one.
        config.leader_wait = HANG / 8;
        config.peer = Some("127.0.0.1:0".parse().unwrap());
        config.join = join.iter().map(ToString::to_string).collect();
    })
}

fn peer(server: &Running) -> SocketAddr {
    server.addresses.peer.unwrap()
}

/// A busy disk may take its time; nobody there at all is a failure.
fn status(server: &Running) -> Status {
    eventually("a status", || Visit::plainly(&peer(server)).status().ok())
}

/// Files that are made in no time, also by three at once.
const SMALL: LogSizes =
    LogSizes { segment_bytes: 1 << 20, reserve_bytes: 1 << 16, snapshot_bytes: 64 << 20 };

struct Three {
    servers: Vec<Running>,
    dirs: Vec<TempDir>,
}

impl Three {
    /// One, and two that have joined it.
    fn start() -> Three {
        let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let first = start(dirs[0].path(), &[]);
        let joined: Vec<Running> =
            dirs[1..].iter().map(|dir| start(dir.path(), &[peer(&first)])).collect();
        let servers: Vec<Running> = std::iter::once(first).chain(joined).collect();
        for server in &servers {
            until_voters(server, 3);
        }
        Three { servers, dirs }
    }

    /// Where the leader is, and where the others are.
    fn leader(&self) -> (usize, Vec<usize>) {
        let nodes: Vec<u64> = self.servers.iter().map(|server| status(server).node).collect();
        let leader = eventually("a leader", || status(&self.servers[0]).leader);
        let (leads, follow) = (0..3).partition::<Vec<_>, _>(|at| nodes[*at] == leader);
        (leads[0], follow)
    }
}

fn until_voters(server: &Running, count: usize) {
    eventually("voters", || {
        let members = status(server).members;
        let voters = members.iter().filter(|member| member.role == Role::Voter).count();
        (voters == count && members.len() == count).then_some(())
    });
}

fn token(value: &Value) -> i64 {
    value.field("token").and_then(Value::integer).unwrap_or_else(|| panic!("{value:?}"))
}

#[test]
fn a_cluster_of_one_serves() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &[]);
    let mut client = server.client3();
    assert_eq!(client.say("LOCK a ID a OWNER ann"), "status=granted id=a");
    assert_eq!(client.say("LOCK a ID b"), "status=busy id=b owner=ann mode=X state=held");
    client.send("SET k v NX\nGET k\nDEL k\nGET k\nPING\nLOCK n ID n LEASE 20");
    let got: Vec<String> = (0..6).map(|_| client.next()).collect();
    assert_eq!(got, ["OK", "v", "1", "nil", "PONG", "status=granted id=n"]);
    assert_eq!(client.next(), "push keylatch lost id=n cause=expired");
    server.stop();
    let server = start(dir.path(), &[]);
    assert_eq!(server.client().say("UNLOCK a"), "1");
}

#[test]
fn clients_of_every_member_share_their_locks() {
    let three = Three::start();
    let mut clients: Vec<Client> = three.servers.iter().map(Running::client3).collect();
    let mut last = 0;
    for round in 0..9 {
        let (taker, other) = (round % 3, (round + 1) % 3);
        let granted = clients[taker].ask(&format!("LOCK k ID t{round} OWNER one"));
        assert!(token(&granted) > last, "{granted:?}");
        last = token(&granted);
        let busy = clients[other].say(&format!("LOCK k ID o{round}"));
        assert_eq!(busy, format!("status=busy id=o{round} owner=one mode=X state=held"));
        clients[other].send(&format!("LOCK k ID w{round} WAIT 60000"));
        common::until_waiting(&mut clients[(round + 2) % 3], 1);
        assert_eq!(clients[taker].say(&format!("UNLOCK t{round}")), "1");
        assert_eq!(clients[other].next(), format!("status=granted id=w{round}"));
        assert_eq!(clients[taker].say(&format!("UNLOCK w{round}")), "1", "by whoever knows the id");
    }
}

/// Until all tables are the same after the same entries.
fn until_equal(servers: &[&Running]) {
    eventually("equal tables", || {
        let all: Vec<Fingerprint> = servers
            .iter()
            .map(|server| Visit::plainly(&peer(server)).fingerprint().ok())
            .collect::<Option<_>>()?;
        if all.iter().all(|one| one.applied == all[0].applied) {
            assert!(all.iter().all(|one| one.hash == all[0].hash), "{all:?}");
            return Some(());
        }
        None
    });
}

/// Asks again what met no leader, as clients do.
fn insist(client: &mut Client, line: &str) -> Value {
    eventually(line, || {
        let answer = client.ask(line);
        let text = common::show(&answer);
        (!text.starts_with("-NOLEADER")).then_some(answer)
    })
}

#[test]
fn who_asks_a_follower_alone_joins_too() {
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let one = start(dirs[0].path(), &[]);
    let two = start(dirs[1].path(), &[peer(&one)]);
    until_voters(&two, 2);
    let leader = eventually("a leader", || status(&two).leader);
    let follower = if leader == status(&two).node { &one } else { &two };
    let three = start(dirs[2].path(), &[peer(follower)]);
    for server in [&one, &two, &three] {
        until_voters(server, 3);
    }
}

#[test]
fn a_leader_that_stops_hands_over_and_nothing_is_lost() {
    let mut three = Three::start();
    let (leader, others) = three.leader();
    let (mut one, mut two) =
        (three.servers[others[0]].client3(), three.servers[others[1]].client3());
    let first = token(&one.ask("LOCK k ID a OWNER ann LEASE 600000"));
    // Two wait, in this order, at different members.
    two.send("LOCK k ID b WAIT 60000");
    let mut look = three.servers[others[0]].client();
    common::until_waiting(&mut look, 1);
    let mut late = three.servers[others[0]].client3();
    late.send("LOCK k ID c WAIT 60000");
    common::until_waiting(&mut look, 2);
    three.servers.remove(leader).stop();
    let now = eventually("another leader", || {
        let seen = status(&three.servers[0]);
        seen.leader.filter(|leader| *leader != 0)
    });
    assert!(three.servers.iter().any(|server| status(server).node == now));
    let again = insist(&mut one, "LOCK k ID a OWNER ann LEASE 600000");
    assert_eq!(token(&again), first, "the same grant");
    let left = again.field("lease_ms").and_then(Value::integer).unwrap();
    assert!((500_000..=600_000).contains(&left), "{left}");
    assert_eq!(insist(&mut one, "UNLOCK a"), Value::Integer(1));
    let second = two.value();
    assert!(token(&second) > first && second.field("id").unwrap().is("b"));
    assert_eq!(two.say("UNLOCK b"), "1");
    let third = late.value();
    assert!(token(&third) > token(&second) && third.field("id").unwrap().is("c"));
    until_equal(&three.servers.iter().collect::<Vec<_>>());
}

#[test]
fn a_member_that_is_gone_keeps_the_places_of_its_waiters_for_a_while() {
    let mut three = Three::start();
    let (_, others) = three.leader();
    let (gone, stays) = (others[0], others[1]);
    let mut holder = three.servers[stays].client3();
    holder.say("LOCK k ID a LEASE 600000");
    let mut waiter = three.servers[gone].client3();
    waiter.send("LOCK k ID b WAIT 600000");
    common::until_waiting(&mut holder, 1);
    let mut behind = three.servers[stays].client3();
    behind.send("LOCK k ID c WAIT 600000");
    common::until_waiting(&mut holder, 2);
    let dir = three.dirs.remove(gone);
    three.servers.remove(gone).stop();
    // It comes back by another member, and is still the first.
    let at = stays - usize::from(gone < stays);
    let mut waiter = three.servers[at].client3();
    waiter.send("LOCK k ID b WAIT 600000");
    common::until_waiting(&mut holder, 2);
    assert_eq!(insist(&mut holder, "UNLOCK a"), Value::Integer(1));
    assert_eq!(waiter.next(), "status=granted id=b");
    // Now it holds; the one who waits behind it is at a member that goes, and does not come back.
    drop(behind);
    eventually("nobody waits", || {
        let Value::Array(all) = holder.ask("LOCKS WAITERS") else { panic!("a list") };
        (all.len() == 1).then_some(())
    });
    // The node comes back as itself, with all of it.
    let back = start(dir.path(), &[]);
    until_voters(&back, 3);
    let all: Vec<&Running> = three.servers.iter().chain([&back]).collect();
    until_equal(&all);
}

#[test]
fn waiters_of_a_dead_member_leave_after_a_grace() {
    let mut three = Three::start();
    let (_, others) = three.leader();
    let (gone, stays) = (others[0], others[1]);
    let mut holder = three.servers[stays].client3();
    holder.say("LOCK k ID a LEASE 600000");
    let mut waiter = three.servers[gone].client3();
    waiter.send("LOCK k ID b WAIT 600000");
    common::until_waiting(&mut holder, 1);
    three.servers.remove(gone).stop();
    eventually("it has left", || {
        let Value::Array(all) = holder.ask("LOCKS WAITERS") else { panic!("a list") };
        (all.len() == 1).then_some(())
    });
    drop(waiter);
}

#[test]
fn bug_16_two_of_three_do_grant_and_one_alone_does_not() {
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let start = |dir: &Path, join: &[SocketAddr], peer: &str| {
        Running::with(|config| {
            config.data = Some(dir.into());
            config.peer = Some(peer.parse().unwrap());
            config.join = join.iter().map(ToString::to_string).collect();
            config.log = SMALL;
            config.leader_wait = Duration::from_millis(300);
        })
    };
    let mut servers = vec![start(dirs[0].path(), &[], "127.0.0.1:0")];
    let first = peer(&servers[0]);
    servers.extend(dirs[1..].iter().map(|dir| start(dir.path(), &[first], "127.0.0.1:0")));
    for server in &servers {
        until_voters(server, 3);
    }
    let addresses: Vec<SocketAddr> = servers.iter().map(peer).collect();
    let mut client = servers[2].client3();
    assert_eq!(client.say("LOCK held ID held LEASE 600000"), "status=granted id=held");
    let second = servers.remove(1);
    second.stop();
    let granted = insist(&mut client, "LOCK two-of-three ID x LEASE 600000");
    assert!(granted.field("status").unwrap().is("granted"), "two of three do grant");
    servers.remove(0).stop();
    for line in ["LOCK alone", "LOCK held ID other", "UNLOCK held", "LOCKS", "GET k"] {
        let answer = client.say(line);
        assert!(answer.starts_with("-NOLEADER"), "{line}: {answer}");
    }
    assert_eq!(client.say("PING"), "PONG");
    // With a majority again it goes on, and what was not done was not done.
    let back = start(dirs[1].path(), &[], &addresses[1].to_string());
    assert_eq!(
        insist(&mut client, "LOCK held ID other OWNER o").field("status").unwrap(),
        &Value::Bulk(b"busy".to_vec())
    );
    assert_eq!(insist(&mut client, "UNLOCK held"), Value::Integer(1));
    until_equal(&[&servers[0], &back]);
}

#[test]
fn bug_16_three_of_five_do_grant_and_two_do_not() {
    let dirs: Vec<TempDir> = (0..5).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut servers = vec![start(dirs[0].path(), &[])];
    for dir in &dirs[1..] {
        servers.push(start(dir.path(), &[peer(&servers[0])]));
    }
    for server in &servers {
        until_voters(server, 5);
    }
    let mut client = servers[0].client3();
    for (left, name) in [(4, "four"), (3, "three")] {
        servers.remove(left).stop();
        let granted = insist(&mut client, &format!("LOCK {name}-of-five LEASE 0"));
        assert!(granted.field("status").unwrap().is("granted"), "{name}: {granted:?}");
    }
    servers.remove(2).stop();
    let answer = client.say("LOCK two-of-five");
    assert!(answer.starts_with("-NOLEADER"), "{answer}");
}

#[test]
fn bug_19_the_log_is_shortened_and_who_joins_late_gets_a_snapshot() {
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let first = Running::with(|config| {
        config.data = Some(dirs[0].path().into());
        config.peer = Some("127.0.0.1:0".parse().unwrap());
        config.log = LogSizes { snapshot_bytes: 65_536, ..SMALL };
        config.leader_wait = HANG / 8;
    });
    let mut client = first.client();
    let locks: Vec<String> =
        (0..3_000).map(|at| format!("LOCK k:{at} ID k:{at} LEASE 0")).collect();
    client.send(&locks.join("\n"));
    for _ in &locks {
        token(&client.value());
    }
    // Each of them is an entry; more than are kept behind a snapshot.
    let mut more = |entries| {
        for _ in 0..entries {
            client.send(&format!("SET more {} NX\nDEL more", "v".repeat(500)));
            assert_eq!((client.next(), client.next()), ("OK".into(), "1".into()));
        }
    };
    more(800);
    // The log is shortened after a snapshot of all that, at the latest before the next but one.
    let made = || std::fs::metadata(dirs[0].path().join("snapshot")).ok()?.modified().ok();
    for _ in 0..3 {
        let before = made();
        eventually("a snapshot", || {
            more(10);
            (made() != before).then_some(())
        });
    }
    let joined: Vec<Running> =
        dirs[1..].iter().map(|dir| start(dir.path(), &[peer(&first)])).collect();
    let all = [&first, &joined[0], &joined[1]];
    for server in all {
        until_voters(server, 3);
    }
    until_equal(&all);
    // It has not written so much that it would have made one itself.
    assert!(dirs[2].path().join("snapshot").exists(), "it was sent a snapshot");
    let info = joined[1].client().say("INFO");
    assert!(info.contains("held:3000"), "{info}");
    // Shrink again.
    let at = Visit::plainly(&peer(&first));
    for server in &joined {
        let node = status(server).node;
        eventually("it is out", || at.remove(node).ok());
    }
    until_voters(&first, 1);
    eventually("the last one is not taken out", || {
        let error = at.remove(status(&first).node).unwrap_err().to_string();
        error.contains("last").then_some(())
    });
    assert_eq!(client.say("UNLOCK k:0"), "1");
}

#[test]
fn leadership_is_handed_over_on_request() {
    let three = Three::start();
    let mut client = three.servers[0].client3();
    for _ in 0..2 {
        let (_, others) = three.leader();
        let to = status(&three.servers[others[0]]).node;
        let any = Visit::plainly(&peer(&three.servers[others[1]]));
        eventually("it takes over", || any.transfer(to).ok());
        eventually("all know", || {
            three.servers.iter().all(|server| status(server).leader == Some(to)).then_some(())
        });
        let answer = insist(&mut client, "LOCK k");
        let id = answer.field("id").and_then(Value::text).unwrap().to_owned();
        assert_eq!(insist(&mut client, &format!("UNLOCK {id}")), Value::Integer(1));
    }
}

#[test]
fn a_node_that_grew_from_one_alone_keeps_its_locks_and_a_member_does_not_start_alone() {
    let dirs: Vec<TempDir> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let alone = |dir: &Path| Running::with(|config| config.data = Some(dir.into()));
    let server = alone(dirs[0].path());
    let first = token(&server.client().ask("LOCK k ID a LEASE 600000"));
    server.stop();
    let one = start(dirs[0].path(), &[]);
    let two = start(dirs[1].path(), &[peer(&one)]);
    for server in [&one, &two] {
        until_voters(server, 2);
    }
    assert_eq!(token(&two.client().ask("LOCK k ID a LEASE 600000")), first);
    two.stop();
    one.stop();
    let config = Config { data: Some(dirs[0].path().into()), ..Config::default() };
    let Err(error) = keylatch_server::Server::bind(config) else { panic!("it is not alone") };
    assert!(error.to_string().contains("2 members"), "{error}");
    let Err(error) = keylatch_server::Server::bind(Config {
        data: Some(dirs[1].path().into()),
        join: vec!["127.0.0.1:1".into()],
        ..Config::default()
    }) else {
        panic!("nobody could find it")
    };
    assert!(error.to_string().contains("--peer"), "{error}");
}

/// No looking again: whatever was acknowledged anywhere is seen everywhere.
#[test]
fn what_one_member_has_acknowledged_every_other_one_shows_at_once() {
    let three = Three::start();
    let mut clients: Vec<Client> = three.servers.iter().map(Running::client).collect();
    for round in 0..30 {
        let (taker, other) = (round % 3, (round + 1 + round % 2) % 3);
        token(&clients[taker].ask(&format!("LOCK k ID r{round}")));
        let Value::Array(seen) = clients[other].ask("LOCKS NAME k") else { panic!("a list") };
        let ids: Vec<&str> = seen.iter().filter_map(|lock| lock.field("id")?.text()).collect();
        assert_eq!(ids, [format!("r{round}")]);
        assert_eq!(clients[taker].say(&format!("UNLOCK r{round}")), "1");
        assert_eq!(clients[other].say("LOCKS NAME k"), "[]");
    }
}

#[test]
fn a_node_that_lost_its_disk_is_another_node_and_one_with_locks_of_its_own_joins_nobody() {
    let mut three = Three::start();
    let mut client = three.servers[0].client();
    token(&client.ask("LOCK k ID a LEASE 600000"));
    let lost = three.servers.pop().unwrap();
    let (was, at) = (status(&lost).node, peer(&lost));
    lost.stop();
    let empty = tempfile::tempdir().unwrap();
    let back = Running::with(|config| {
        config.data = Some(empty.path().into());
        config.peer = Some(at);
        config.join = vec![peer(&three.servers[0]).to_string()];
        config.log = SMALL;
    });
    until_voters(&back, 4);
    assert_ne!(status(&back).node, was, "it has a new number");
    let visit = Visit::plainly(&peer(&three.servers[0]));
    eventually("the old one is out", || visit.remove(was).ok());
    until_voters(&back, 3);
    assert!(back.client().say("LOCK k").starts_with("status=busy"));
    // With locks of its own it does not join anybody, and neither does who is a member elsewhere.
    for (own, says) in [(None, "locks of its own"), (Some(()), "another cluster")] {
        let other = tempfile::tempdir().unwrap();
        let any = || "127.0.0.1:0".parse().unwrap();
        let alone = Running::with(|config| {
            config.data = Some(other.path().into());
            config.peer = own.map(|()| any());
        });
        token(&alone.client().ask("LOCK own"));
        alone.stop();
        let Err(error) = keylatch_server::Server::bind(Config {
            data: Some(other.path().into()),
            resp: Some("127.0.0.1:0".parse().unwrap()),
            enqueue: None,
            http: None,
            peer: Some(any()),
            join: vec![peer(&back).to_string()],
            ..Config::default()
        }) else {
            panic!("its locks would be gone, or be locks of their own")
        };
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// A certificate for loopback, and the authority that signed it.
fn certificate(dir: &Path) -> TlsFiles {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let signed = params.signed_by(&key, &issuer).unwrap();
    let file = |name: &str, text: String| {
        std::fs::write(dir.join(name), text).unwrap();
        dir.join(name)
    };
    TlsFiles {
        certificate: file("pem", signed.pem()),
        key: file("key", key.serialize_pem()),
        client_ca: Some(file("ca", issuer.pem())),
        require_client_certificate: true,
    }
}

#[test]
fn members_with_certificates_are_one_cluster_and_nobody_else_is_heard() {
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let tls = certificate(dirs[2].path());
    let start = |dir: &Path, join: Vec<String>| {
        Running::with(|config| {
            config.data = Some(dir.into());
            config.peer = Some("127.0.0.1:0".parse().unwrap());
            config.peer_tls = Some(tls.clone());
            config.join = join;
            config.log = SMALL;
        })
    };
    let one = start(dirs[0].path(), Vec::new());
    let two = start(dirs[1].path(), vec![peer(&one).to_string()]);
    let visit = Visit { peer: peer(&two).to_string(), tls: Some(tls.clone()) };
    eventually("both vote", || {
        let members = visit.status().ok()?.members;
        (members.iter().filter(|one| one.role == Role::Voter).count() == 2).then_some(())
    });
    token(&one.client().ask("LOCK k ID a LEASE 600000"));
    assert!(two.client().say("LOCK k").starts_with("status=busy"));
    assert!(Visit::plainly(&peer(&two)).status().is_err(), "it shows no certificate");
    let other = tempfile::tempdir().unwrap();
    let stranger = Visit { tls: Some(certificate(other.path())), ..visit };
    assert!(stranger.status().is_err(), "of another authority");
}
