//! Three servers that are one cluster and know nothing of each other's addresses: they meet at a Redis.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::Running;
use keylatch_server::cluster::{Role, Visit};
use keylatch_server::{LogSizes, RedisPeer};
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

struct Redis {
    process: Child,
    port: u16,
}

/// A certificate for a Redis and one for those who come there, and the authority that has signed both.
fn certify(dir: &Path) {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
    for name in ["server", "member"] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let signed = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(dir.join(format!("{name}.pem")), signed.pem()).unwrap();
        std::fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

impl Redis {
    /// Inside of TLS, and for those only who show a certificate of the same authority.
    fn start_with_tls(dir: &Path, port: u16) -> Redis {
        certify(dir);
        let mut tls = vec!["--tls-port".to_owned(), port.to_string()];
        for (option, file) in [
            ("--tls-cert-file", "server.pem"),
            ("--tls-key-file", "server.key"),
            ("--tls-ca-cert-file", "ca.pem"),
        ] {
            tls.extend([option.to_owned(), dir.join(file).to_str().unwrap().to_owned()]);
        }
        Redis::start_as(dir, port, 0, &tls)
    }

    fn start(dir: &Path, port: u16) -> Redis {
        Redis::start_as(dir, port, port, &[])
    }

    fn start_as(dir: &Path, port: u16, plain: u16, options: &[String]) -> Redis {
        let users = "user default off\n\
            user ann on >secret resetchannels &locks:* +publish +subscribe +unsubscribe +pubsub|numsub\n";
        let file = dir.join("redis.conf");
        std::fs::write(&file, users).unwrap();
        let mut process = Command::new("redis-server")
            .arg(file)
            .args(["--port", &plain.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(dir)
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is missing: scripts/setup installs it");
        eventually("redis", || {
            assert_eq!(process.try_wait().unwrap(), None, "redis-server does not start");
            let stream = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
            // Where nobody listens a connection may meet itself.
            (stream.local_addr().ok()? != stream.peer_addr().ok()?).then_some(())
        });
        Redis { process, port }
    }

    fn url(&self, node: &str) -> String {
        format!("redis://ann:secret@127.0.0.1:{}/0?channel=locks&node={node}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn start(dir: &TempDir, url: &str, join: &[&str], leader_wait: Duration) -> Running {
    Running::with(|config| {
        config.data = Some(dir.path().into());
        config.enqueue = None;
        config.log =
            LogSizes { segment_bytes: 1 << 20, reserve_bytes: 1 << 16, snapshot_bytes: 64 << 20 };
        config.leader_wait = leader_wait;
        config.peer_redis = Some(RedisPeer::parse(url).unwrap());
        config.join = join.iter().map(|name| (*name).to_owned()).collect();
    })
}

#[test]
fn members_that_meet_at_a_redis_lose_nothing_when_it_restarts() {
    let place = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let redis = Redis::start(place.path(), free.port());
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let names = ["one", "two", "three"];
    let servers: Vec<Running> = (0..3)
        .map(|at| {
            let join: &[&str] = if at == 0 { &[] } else { &["one"] };
            start(&dirs[at], &redis.url(names[at]), join, HANG / 8)
        })
        .collect();
    let visit = |name: &str| Visit { peer: redis.url(name), tls: None };
    let voters = |name: &str| {
        let status = visit(name).status().ok()?;
        let voters = status.members.iter().filter(|member| member.role == Role::Voter).count();
        (voters == 3).then_some(status)
    };
    for name in names {
        eventually("voters", || voters(name));
    }
    // Whoever is asked, it is one table.
    let mut clients: Vec<_> = servers.iter().map(Running::client3).collect();
    assert_eq!(clients[0].say("LOCK a ID a OWNER ann"), "status=granted id=a");
    assert_eq!(clients[1].say("LOCK a ID b"), "status=busy id=b owner=ann mode=X state=held");
    assert_eq!(clients[2].say("LOCK c ID c OWNER bob"), "status=granted id=c");
    // An operator reaches them there too.
    let status = eventually("voters", || voters("two"));
    let leads =
        |member: &&keylatch_server::cluster::MemberStatus| Some(member.node) != status.leader;
    let other = status.members.iter().find(leads).unwrap().node;
    eventually("a transfer", || visit("three").transfer(other).ok());
    eventually("another leader", || (voters("one")?.leader == Some(other)).then_some(()));
    assert_eq!(clients[0].say("LOCK c ID d"), "status=busy id=d owner=bob mode=X state=held");
    // Without Redis nobody hears anybody, and nobody grants.
    let (port, url) = (redis.port, redis.url("one"));
    drop(redis);
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(&format!("LOCK e{at} ID e{at} WAIT 60000"));
    }
    assert!(Visit { peer: url, tls: None }.status().is_err());
    let redis = Redis::start(place.path(), port);
    // They go on where they were, and it was asked for once.
    let got: Vec<String> = clients.iter_mut().map(common::Client::next).collect();
    assert_eq!(got, ["status=granted id=e0", "status=granted id=e1", "status=granted id=e2"]);
    assert_eq!(clients[1].say("UNLOCK a"), "1");
    assert_eq!(clients[2].say("UNLOCK c"), "1");
    assert_eq!(clients[0].say("UNLOCK e1"), "1");
    assert_eq!(clients[0].say("LOCK a ID f OWNER cid"), "status=granted id=f");
    // All of them have the same table in the end.
    let visit = |name: &str| Visit { peer: redis.url(name), tls: None };
    eventually("the same", || {
        let all = names.map(|name| visit(name).fingerprint().ok());
        (all[0].is_some() && all[0] == all[1] && all[1] == all[2]).then_some(())
    });
    drop(servers);
}

#[test]
fn without_redis_who_asks_is_told_that_nobody_leads() {
    let place = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let redis = Redis::start(place.path(), free.port());
    let dirs: Vec<TempDir> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let wait = Duration::from_millis(300);
    let one = start(&dirs[0], &redis.url("one"), &[], wait);
    let two = start(&dirs[1], &redis.url("two"), &["one"], wait);
    eventually("voters", || {
        let status = Visit { peer: redis.url("two"), tls: None }.status().ok()?;
        (status.members.iter().filter(|member| member.role == Role::Voter).count() == 2)
            .then_some(())
    });
    let mut clients = [one.client3(), two.client3()];
    eventually("a leader", || {
        (clients[1].say("LOCK a ID a OWNER ann") == "status=granted id=a").then_some(())
    });
    drop(redis);
    for client in &mut clients {
        let answer = client.say("LOCK b ID b");
        assert!(answer.starts_with("-NOLEADER"), "{answer}");
        // The log says who is refused, and not what was known here before.
        let answer = client.say("LOCK a ID c");
        assert!(answer.starts_with("-NOLEADER"), "{answer}");
    }
}

#[test]
fn members_meet_at_a_redis_inside_of_tls_that_knows_them_by_their_certificates() {
    let place = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let redis = Redis::start_with_tls(place.path(), free.port());
    let file = |name: &str| place.path().join(name).display().to_string();
    let base = format!("rediss://ann:secret@localhost:{}/0?channel=locks&node=", redis.port);
    let tls =
        format!("&ca={}&cert={}&key={}", file("ca.pem"), file("member.pem"), file("member.key"));
    let url = |node: &str| format!("{base}{node}{tls}");
    let dirs: Vec<TempDir> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let one = start(&dirs[0], &url("one"), &[], HANG / 8);
    let two = start(&dirs[1], &url("two"), &["one"], HANG / 8);
    let visit = |peer: String| Visit { peer, tls: None };
    eventually("voters", || {
        let status = visit(url("two")).status().ok()?;
        (status.members.iter().filter(|member| member.role == Role::Voter).count() == 2)
            .then_some(())
    });
    assert_eq!(one.client3().say("LOCK a ID a OWNER ann"), "status=granted id=a");
    let busy = "status=busy id=b owner=ann mode=X state=held";
    assert_eq!(two.client3().say("LOCK a ID b"), busy);
    // Whoever does not know its authority does not go in, nor who is not known there.
    let unknown = format!("{base}one&ca={}", file("ca.pem"));
    for peer in [format!("{base}one"), unknown] {
        let error = visit(peer).status().unwrap_err().to_string();
        assert!(error.contains("there is no connection to Redis"), "{error}");
    }
    let missing = format!("{base}one&ca={}", file("nowhere.pem"));
    let error = visit(missing).status().unwrap_err().to_string();
    assert!(error.contains("nowhere.pem"), "{error}");
}
