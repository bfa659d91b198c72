//! Where a Redis may be, and which are refused.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::super::place::Place;
use super::ends;
use super::*;

async fn refused(url: &str) -> String {
    match Redis::connect(url).await {
        Err(ConnectError::Refused(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("connected"),
    }
}

#[tokio::test]
async fn a_redis_that_is_not_fit_for_locks_is_refused() {
    let evicts = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"];
    assert!(refused(&Server::start(&evicts).url()).await.contains("may evict locks"));
    let cluster = ["--cluster-enabled", "yes"];
    assert!(refused(&Server::start(&cluster).url()).await.contains("is a cluster"));
    let master = Server::start(&[]);
    let replica = ["--replicaof", "127.0.0.1", &master.port.to_string()];
    let replica = Server::start(&replica);
    eventually(async || info(&replica, "master_link_status") == "up").await;
    assert!(refused(&replica.url()).await.contains("is a replica"));
    assert!(refused(&format!("{}/99", master.url())).await.contains("DB index is out of range"));
}

fn info(server: &Server, field: &str) -> String {
    let info: String = server.say(&["INFO"]);
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().to_string()
}

#[tokio::test]
async fn passwords() {
    let mut server = Server::start(&["--requirepass", "se cret"]);
    let at = format!("127.0.0.1:{}", server.port);
    assert!(refused(&format!("redis://{at}")).await.contains("password"));
    assert!(refused(&format!("redis://:wrong@{at}")).await.contains("password"));
    Redis::connect(&format!("redis://:se%20cret@{at}/3")).await.unwrap();
    server.stop();
    // One that may do little.
    let server = Server::start(&["--user", "eve", "on", ">pw", "~*", "+@all", "-@pubsub"]);
    let url = format!("redis://eve:pw@127.0.0.1:{}", server.port);
    assert!(refused(&url).await.contains("may not do what locks need"));
    // What docs/strategies/redis.md says.
    let enough = "--user eve on >pw ~keylatch:* &keylatch:* +eval +evalsha +script|load +info +scan \
                  +time +incr +incrby +get +mget +set +setrange +del +exists +persist \
                  +pexpireat +pexpiretime +hget +hmget +hset +hdel +hgetall +publish +subscribe";
    let server = Server::start(&enough.split_whitespace().collect::<Vec<_>>());
    let url = format!("redis://eve:pw@127.0.0.1:{}", server.port);
    let store = Redis::connect(&url).await.unwrap();
    let taken = done(&store, put("k", Expect::Absent, None)).await.version;
    let wait = and_append(change("k", Expect::There, Write::Keep), "ann", 1_000_000);
    let seq = wait.seq_of(done(&store, wait.clone()).await.version, 0);
    let ann = Stand { id: "ann".into(), seq };
    let touched = store.touch(vec![(ann.clone(), vec!["k".into()])], 1_000_000).await;
    assert_eq!(touched.unwrap(), [true]);
    assert_eq!(store.read_all().await.unwrap().names["k"].queue.len(), 1);
    let mut handed = put("k", Expect::Version(taken), Some(1_000_000));
    let one = handed.names.get_mut("k").unwrap();
    (one.last_seq, one.remove) = (None, vec![ann]);
    let handed = done(&store, handed).await.version;
    done(&store, change("k", Expect::Version(handed), Write::Delete)).await;
    // Some that go together.
    let [m, n] = ["m", "n"].map(|name| land(&store, name, ends::forever()));
    let left = [("m", ends::taken(m).await), ("n", ends::taken(n).await)];
    for left in left.map(|(name, version)| land(&store, name, Plain::Leave(version))) {
        assert!(matches!(left.await.unwrap(), Landed::Left { .. }));
    }
}

#[tokio::test]
async fn nobody_there() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let error = Redis::connect(&url).await.err().unwrap();
    assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn urls() {
    for url in [
        "redis:nothing",
        "redis+sentinel://127.0.0.1:1",
        "redis+sentinel://127.0.0.1:1/",
        "redis+sentinel://127.0.0.1:x/service",
        "redis://127.0.0.1:1/?ca=/tmp/x",
        "rediss://127.0.0.1:1/?cert=/tmp/x",
    ] {
        assert!(
            matches!(Place::parse(url), Err(ConnectError::Url(_) | ConnectError::Refused(_))),
            "{url}"
        );
    }
    for (url, db) in [
        ("redis://127.0.0.1", 0),
        ("redis://u:p@[::1]:7/4", 4),
        ("redis://127.0.0.1/1?protocol=resp3", 1),
        ("redis+sentinel://u:p@one,two:3,[::1],[::1]:4/service/7?sentinel_password=x", 7),
        ("rediss+sentinel://one/service", 0),
    ] {
        assert_eq!(Place::parse(url).unwrap_or_else(|error| panic!("{url}: {error}")).db(), db);
    }
}

/// Of one who signs, and of a server and a client that it has signed.
struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    fn make() -> Certificates {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "the one who signs");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        write("ca.pem", ca.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let names = ["localhost".into(), "127.0.0.1".into()];
            let params = CertificateParams::new(names).unwrap();
            write(&format!("{name}.pem"), params.signed_by(&key, &ca).unwrap().pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Certificates { dir }
    }

    fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn options(&self) -> Vec<String> {
        let file = |option: &str, name: &str| [option.to_string(), self.file(name)];
        [file("--tls-cert-file", "server.pem"), file("--tls-key-file", "server.key")]
            .concat()
            .into_iter()
            .chain(file("--tls-ca-cert-file", "ca.pem"))
            .collect()
    }
}

#[tokio::test]
async fn over_tls() {
    let certificates = Certificates::make();
    let port = free_port();
    let tls = port.to_string();
    let options = certificates.options();
    let mut options: Vec<&str> = options.iter().map(|option| &option[..]).collect();
    options.extend(["--tls-port", &tls]);
    // It wants to know who we are.
    let _server = Server::start(&options);
    let url = format!("rediss://localhost:{port}/");
    let ca = format!("ca={}", certificates.file("ca.pem"));
    let (cert, key) = (certificates.file("client.pem"), certificates.file("client.key"));
    let whole = format!("{url}?{ca}&cert={cert}&key={key}");
    let store = Redis::connect(&whole).await.unwrap();
    let mut told = store.told();
    let mut tell = put("k", Expect::Absent, None);
    tell.names.values_mut().for_each(|one| one.tell = true);
    let version = done(&store, tell).await.version;
    let changed = Told::Changed { name: "k".into(), version, removed: vec![] };
    while told.recv().await.unwrap() != changed {}
    // Without saying who we are, or trusting somebody else.
    assert!(Redis::connect(&format!("{url}?{ca}")).await.is_err());
    assert!(Redis::connect(&url).await.is_err());
}

/// A Sentinel that watches this one.
fn sentinel(master: &Server) -> Server {
    for _ in 0..10 {
        let (port, dir) = (free_port(), tempfile::tempdir().unwrap());
        let config = dir.path().join("sentinel.conf");
        let text = format!(
            "sentinel monitor locks 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds locks 500\n\
             sentinel failover-timeout locks 5000\n",
            master.port
        );
        std::fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        if let Some(process) = start_at(port, dir.path(), &[&config, "--sentinel"]) {
            return Server { process, port, dir };
        }
    }
    panic!("the Sentinel does not start")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels() {
    let mut master = Server::start(&[]);
    let replica = Server::start(&["--replicaof", "127.0.0.1", &master.port.to_string()]);
    eventually(async || info(&replica, "master_link_status") == "up").await;
    let sentinel = sentinel(&master);
    let known = async || {
        let known: redis::Value = sentinel.say(&["SENTINEL", "REPLICAS", "locks"]);
        matches!(known, redis::Value::Array(replicas) if !replicas.is_empty())
    };
    eventually(known).await;
    // One of them is not there.
    let nodes = format!("127.0.0.1:{},127.0.0.1:{}", free_port(), sentinel.port);
    let unknown = format!("redis+sentinel://{nodes}/others");
    assert!(Redis::connect(&unknown).await.is_err());
    let store = Redis::connect(&format!("redis+sentinel://{nodes}/locks")).await.unwrap();
    let mut told = store.told();
    let before = done(&store, put("k", Expect::Absent, None)).await.version;
    while told.try_recv().is_ok() {}
    master.stop();
    // It goes on with the other one, which may or may not know of the last write.
    let mut after = None;
    eventually(async || {
        after = try_done(&store, put("new", Expect::Absent, None)).await.ok();
        after.is_some()
    })
    .await;
    let after = after.unwrap().version;
    assert!(after > before, "{after} after {before}");
    assert_eq!(told.recv().await.unwrap(), Told::Anything);
    assert_eq!(info(&replica, "role"), "master");
}
