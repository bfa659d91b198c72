//! Three processes that are one cluster, killed under load: no acknowledged grant is missing afterwards, no
//! two hold one lock, tokens grow, and all have the same table in the end. `KEYLATCH_CLUSTER_KILLS` says how
//! often (3).

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::node::eventually;
use common::{Client, HANG, Random, Server, text, token};
use keylatch_server::cluster::{Fingerprint, Role, Status, Visit};
use keylatch_wire::Value;
use tempfile::TempDir;

struct Node {
    dir: TempDir,
    peer: SocketAddr,
    server: Server,
}

fn start(dir: &TempDir, peer: SocketAddr, join: Option<SocketAddr>) -> Server {
    common::node::member(dir.path(), peer, join, 500).start()
}

impl Node {
    fn new(join: Option<SocketAddr>) -> Node {
        let (dir, peer) = (tempfile::tempdir().unwrap(), common::free());
        let server = start(&dir, peer, join);
        Node { dir, peer, server }
    }

    fn kill_and_start(&mut self) {
        self.server.kill();
        self.server = start(&self.dir, self.peer, None);
    }

    /// Takes it off the processor, or puts it back.
    fn signal(&self, name: &str) {
        let id = self.server.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    fn status(&self) -> Option<Status> {
        Visit::plainly(&self.peer).status().ok()
    }
}

fn three() -> Vec<Node> {
    let first = Node::new(None);
    let join = Some(first.peer);
    let nodes = vec![first, Node::new(join), Node::new(join)];
    for node in &nodes {
        until_voters(node, 3);
    }
    nodes
}

fn until_voters(node: &Node, count: usize) {
    eventually("voters", || {
        let members = node.status()?.members;
        let voters = members.iter().filter(|member| member.role == Role::Voter).count();
        (voters == count && members.len() == count).then_some(())
    });
}

fn until_equal(nodes: &[Node]) {
    eventually("equal tables", || {
        let all = nodes.iter().map(|node| Visit::plainly(&node.peer).fingerprint().ok());
        let all: Vec<Fingerprint> = all.collect::<Option<_>>()?;
        let as_far = all.iter().all(|one| one.applied == all[0].applied);
        assert!(!as_far || all.iter().all(|one| one.hash == all[0].hash), "{all:?}");
        as_far.then_some(())
    });
}

/// What the clients have been told, and whether it can be.
#[derive(Default)]
struct Judge {
    /// Who holds a key, as far as its client knows.
    holders: BTreeMap<String, String>,
    /// The last token of each key.
    tokens: BTreeMap<String, i64>,
    /// What was taken and never released: token by id.
    kept: BTreeMap<String, i64>,
    grants: u64,
}

impl Judge {
    fn granted(&mut self, key: &str, id: &str, token: i64) -> Result<(), String> {
        if let Some(other) = self.holders.insert(key.into(), id.into()) {
            return Err(format!("{id} and {other} both hold {key}"));
        }
        let last = self.tokens.insert(key.into(), token).unwrap_or(0);
        self.grants += 1;
        if last >= token { Err(format!("{key}: {token} comes after {last}")) } else { Ok(()) }
    }

    fn releases(&mut self, key: &str) {
        self.holders.remove(key);
    }
}

#[test]
fn the_judge_sees_two_holders_and_tokens_that_fall() {
    let mut judge = Judge::default();
    judge.granted("k", "a", 1).unwrap();
    assert!(judge.granted("k", "b", 2).unwrap_err().contains("both hold"));
    judge.releases("k");
    assert!(judge.granted("k", "c", 1).unwrap_err().contains("comes after"));
}

/// A client that goes to another member when one is gone or has no leader, and asks the same again.
struct Roaming<'a> {
    addresses: &'a Mutex<Vec<SocketAddr>>,
    at: usize,
    client: Option<Client>,
}

impl Roaming<'_> {
    /// Until there is an answer; `None` if the test is over.
    fn ask(&mut self, line: &str, over: &AtomicBool) -> Option<Value> {
        let since = Instant::now();
        loop {
            let client = self.client.take().or_else(|| {
                let addresses = self.addresses.lock().unwrap();
                Client::try_to(addresses[self.at % addresses.len()]).ok()
            });
            let mut client = client;
            let answer = client.as_mut().and_then(|client| client.ask(line));
            match answer {
                Some(Value::Error(error)) if error.starts_with("NOLEADER") => {}
                Some(answer) => {
                    self.client = client;
                    return Some(answer);
                }
                None => {}
            }
            if over.load(Ordering::Relaxed) {
                return None;
            }
            assert!(since.elapsed() < HANG, "no answer to {line}");
            self.at += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn work(worker: u64, addresses: &Mutex<Vec<SocketAddr>>, judge: &Mutex<Judge>, over: &AtomicBool) {
    let mut client = Roaming { addresses, at: worker as usize, client: None };
    let mut random = Random(worker);
    for round in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let id = format!("{worker}-{round:06}");
        if round % 8 == 0 {
            let line = format!("LOCK kept:{id} ID kept-{id} LEASE 0");
            let Some(answer) = client.ask(&line, over) else { return };
            judge.lock().unwrap().kept.insert(format!("kept-{id}"), token(&answer));
            continue;
        }
        let key = format!("key:{}", random.below(3));
        let line = format!("LOCK {key} ID {id} WAIT 20000 LEASE 3600000");
        let Some(answer) = client.ask(&line, over) else { return };
        if text(&answer, "status") != "granted" {
            continue;
        }
        judge.lock().unwrap().granted(&key, &id, token(&answer)).unwrap();
        // Long enough for a second holder to show.
        std::thread::sleep(Duration::from_millis(3));
        judge.lock().unwrap().releases(&key);
        let Some(answer) = client.ask(&format!("UNLOCK {id}"), over) else { return };
        assert_eq!(answer, Value::Integer(1), "{id}");
    }
}

#[test]
fn a_leader_killed_under_load_loses_no_grant_and_makes_no_second_holder() {
    under_load(|nodes, leader| nodes[leader].kill_and_start());
}

/// It does not know that another one leads now, and what it then says must not be stale.
#[test]
fn a_leader_that_sleeps_under_load_wakes_up_as_nobody() {
    under_load(|nodes, leader| {
        nodes[leader].signal("-STOP");
        let (asleep, awake) = (&nodes[leader], &nodes[(leader + 1) % 3]);
        let was = awake.status().unwrap().leader;
        eventually("another leader", || {
            let leader = awake.status()?.leader;
            (leader.is_some() && leader != was).then_some(())
        });
        asleep.signal("-CONT");
    });
}

/// Does something bad to the leader while clients of all members lock and release, again and again.
fn under_load(harm: impl Fn(&mut Vec<Node>, usize)) {
    let kills = common::how_many("KEYLATCH_CLUSTER_KILLS", 3);
    let mut nodes = three();
    let addresses = Mutex::new(nodes.iter().map(|node| node.server.resp).collect::<Vec<_>>());
    let (judge, over) = (Mutex::new(Judge::default()), AtomicBool::new(false));
    let slowest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _end = End(&over);
        for worker in 0..6 {
            let (addresses, judge, over) = (&addresses, &judge, &over);
            scope.spawn(move || work(worker, addresses, judge, over));
        }
        for _ in 0..kills {
            let before = judge.lock().unwrap().grants;
            eventually("a load", || (judge.lock().unwrap().grants > before + 50).then_some(()));
            let leader = eventually("a leader", || {
                let leader = nodes[0].status()?.leader?;
                nodes.iter().position(|node| node.status().is_some_and(|it| it.node == leader))
            });
            let (since, before) = (Instant::now(), judge.lock().unwrap().grants);
            harm(&mut nodes, leader);
            addresses.lock().unwrap()[leader] = nodes[leader].server.resp;
            eventually("grants go on", || {
                (judge.lock().unwrap().grants > before + 20).then_some(())
            });
            slowest.fetch_max(since.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("the slowest of {kills}: {} ms", slowest.into_inner());
    until_equal(&nodes);
    let judge = judge.into_inner().unwrap();
    assert!(judge.kept.len() > kills as usize, "there was a load");
    for node in &nodes {
        let list = node.server.client().list("");
        let found: BTreeMap<&str, i64> =
            list.iter().map(|lock| (text(lock, "id"), common::number(lock, "token"))).collect();
        for (id, token) in &judge.kept {
            assert_eq!(found.get(id.as_str()), Some(token), "{id} was granted");
        }
    }
}

/// From one to three and back to one, the first one gone, while clients go on.
#[test]
fn a_cluster_grows_and_shrinks_under_load() {
    let mut nodes = vec![Node::new(None)];
    let addresses = Mutex::new(vec![nodes[0].server.resp]);
    let (judge, over) = (Mutex::new(Judge::default()), AtomicBool::new(false));
    let goes_on = || {
        let before = judge.lock().unwrap().grants;
        eventually("a load", || (judge.lock().unwrap().grants > before + 20).then_some(()));
    };
    std::thread::scope(|scope| {
        let _end = End(&over);
        for worker in 0..4 {
            let (addresses, judge, over) = (&addresses, &judge, &over);
            scope.spawn(move || work(worker, addresses, judge, over));
        }
        goes_on();
        for count in [2, 3] {
            nodes.push(Node::new(Some(nodes[0].peer)));
            until_voters(&nodes[count - 1], count);
            addresses.lock().unwrap().push(nodes[count - 1].server.resp);
            goes_on();
        }
        until_voters(&nodes[0], 3);
        // The first one led. It hands over, and goes.
        for left in [2, 1] {
            let out = nodes[0].status().unwrap().node;
            addresses.lock().unwrap().remove(0);
            let stays = Visit::plainly(&nodes[1].peer);
            eventually("it is out", || stays.remove(out).ok());
            nodes.remove(0);
            until_voters(&nodes[0], left);
            goes_on();
        }
        over.store(true, Ordering::Relaxed);
    });
    let judge = judge.into_inner().unwrap();
    let list = nodes[0].server.client().list("");
    let found: Vec<&str> = list.iter().map(|lock| text(lock, "id")).collect();
    assert!(judge.kept.keys().all(|id| found.contains(&id.as_str())), "{found:?}");
}

/// Ends the load, also when a check has failed.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn keylatch(words: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_keylatch")).args(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn an_operator_sees_members_hands_over_and_takes_one_out() {
    let nodes = three();
    let peer = nodes[1].peer.to_string();
    let (_, said) = keylatch(&["cluster", "status", "--peer", &peer]);
    assert_eq!(said.lines().filter(|line| line.contains("127.0.0.1:")).count(), 3, "{said}");
    assert!(said.contains("leader") && said.contains("voter"), "{said}");
    let status = nodes[0].status().unwrap();
    let other = status.members.iter().find(|one| Some(one.node) != status.leader).unwrap().node;
    eventually("it takes over", || {
        keylatch(&["cluster", "transfer", "--peer", &peer, &other.to_string()]).0.then_some(())
    });
    eventually("it is seen", || (nodes[1].status()?.leader == Some(other)).then_some(()));
    let (_, said) = keylatch(&["cluster", "status", "--peer", &peer, "-o", "json"]);
    assert!(said.contains(&format!("\"leader\":\"{other}\"")), "{said}");
    let out = status.members.iter().find(|one| one.node != other).unwrap();
    let peer = nodes.iter().find(|node| node.peer.to_string() != out.address).unwrap();
    let (ok, said) =
        keylatch(&["cluster", "remove", "--peer", &peer.peer.to_string(), &out.node.to_string()]);
    assert!(ok, "{said}");
    until_voters(peer, 2);
    let (ok, said) = keylatch(&["cluster", "remove", "--peer", &peer.peer.to_string(), "77"]);
    assert!(!ok && said.contains("no node 77"), "{said}");
    let (ok, said) = keylatch(&["cluster", "status", "--peer", "127.0.0.1:1"]);
    assert!(!ok && said.contains("peer address"), "{said}");
    let resp = peer.server.resp.to_string();
    let (ok, said) = keylatch(&["cluster", "status", "--peer", &resp]);
    assert!(!ok && said.contains("does not answer as a member"), "{said}");
}

/// Whether it runs meanwhile or is started again without being told to join anybody.
#[test]
fn who_was_taken_out_finds_out_and_ends() {
    let mut nodes = three();
    let leader = nodes[0].status().unwrap().leader.unwrap();
    let follows = |node: &Node| node.status().is_some_and(|it| it.node != leader);
    for sleeps in [true, false] {
        let mut out = nodes.remove(nodes.iter().position(follows).unwrap());
        let node = out.status().unwrap().node.to_string();
        if sleeps {
            out.server.kill();
        }
        let peer = nodes[0].peer.to_string();
        let (ok, said) = keylatch(&["cluster", "remove", "--peer", &peer, &node]);
        assert!(ok, "{said}");
        if sleeps {
            out.server = start(&out.dir, out.peer, None);
        }
        let ended = out.server.ended();
        assert!(ended.said.contains("was taken out of its cluster"), "{sleeps}: {}", ended.said);
        assert_eq!(ended.status.code(), Some(1));
    }
}

/// Whoever is asked names the dead one for a while yet; the operator need not know that.
#[test]
fn a_leader_that_was_killed_a_moment_ago_is_taken_out() {
    let mut nodes = three();
    let status = nodes[0].status().unwrap();
    let leader = status.leader.unwrap();
    let leads = |node: &Node| node.status().is_some_and(|it| it.node == leader);
    let mut dead = nodes.remove(nodes.iter().position(leads).unwrap());
    dead.server.kill();
    let peer = nodes[0].peer.to_string();
    let (ok, said) = keylatch(&["cluster", "remove", "--peer", &peer, &leader.to_string()]);
    assert!(ok, "{said}");
    until_voters(&nodes[0], 2);
}

/// The next leader has never heard of it, and shows all the same for how long it is silent.
#[test]
fn a_leader_that_died_is_seen_to_be_silent() {
    let mut nodes = three();
    let leader = nodes[0].status().unwrap().leader.unwrap();
    let leads = |node: &Node| node.status().is_some_and(|it| it.node == leader);
    let mut dead = nodes.remove(nodes.iter().position(leads).unwrap());
    dead.server.kill();
    let silence = || {
        let mut seen = nodes.iter().filter_map(Node::status);
        let seen = seen.find(|it| it.leader == Some(it.node) && it.node != leader)?;
        seen.members.iter().find(|member| member.node == leader)?.heard_ms
    };
    let first = eventually("a leader who misses the last one", silence);
    eventually("it has been silent for longer", || silence().filter(|ms| *ms > first));
}

/// It still leads as far as Raft is concerned, and its log is where an operator looks.
#[test]
fn a_leader_that_nobody_follows_says_so() {
    let mut nodes = three();
    let leader = nodes[0].status().unwrap().leader.unwrap();
    let leads = |node: &Node| node.status().is_some_and(|it| it.node == leader);
    let mut left = nodes.remove(nodes.iter().position(leads).unwrap());
    for node in &mut nodes {
        node.server.kill();
    }
    // A majority is missed after two seconds, and looked for all the time.
    eventually("it has been alone for long", || {
        let status = left.status()?;
        let mut others = status.members.iter().filter(|member| member.node != leader);
        others.all(|member| member.heard_ms.is_some_and(|ms| ms > 4_000)).then_some(())
    });
    let said = left.server.kill().said;
    assert!(said.contains("most members do not answer"), "{said}");
}

/// What is held stays held while nobody leads: whoever holds it goes on until its lease would end.
#[test]
fn a_command_goes_on_under_its_lock_while_nobody_leads() {
    let mut nodes = three();
    let dir = tempfile::tempdir().unwrap();
    let (began, end) = (dir.path().join("began"), dir.path().join("end"));
    // It is connected to one that will be killed, and comes to the one that is left.
    let url = format!("keylatch://{},{}", nodes[1].server.resp, nodes[0].server.resp);
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.05; done", began.display(), end.display());
    let mut run = Command::new(env!("CARGO_BIN_EXE_keylatch"))
        .args(["run", "held", "--url", &url, "--lease", "5m", "--", "sh", "-c", &script])
        .spawn()
        .unwrap();
    eventually("it runs", || began.exists().then_some(()));
    nodes[1].server.kill();
    nodes[2].server.kill();
    // Long enough for the client to come to this one too, and to be told the same.
    for round in 0..4 {
        let mut client = nodes[0].server.client();
        client.send(&format!("LOCK other{round}")).unwrap();
        let said = format!("{:?}", client.next().unwrap());
        assert!(said.contains("NOLEADER"), "{said}");
    }
    for node in &mut nodes[1..] {
        node.server = start(&node.dir, node.peer, None);
    }
    eventually("somebody leads", || {
        let mut client = nodes[0].server.client();
        client.send("LOCK another ID another")?;
        let said = client.next()?;
        (!matches!(said, Value::Error(_)) && text(&said, "status") == "granted").then_some(())
    });
    let list = nodes[0].server.client().list("");
    assert!(list.iter().any(|lock| text(lock, "name") == "held"), "{list:?}");
    assert!(run.try_wait().unwrap().is_none(), "it was stopped");
    std::fs::write(&end, "").unwrap();
    let ended = eventually("it ends", || run.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}
