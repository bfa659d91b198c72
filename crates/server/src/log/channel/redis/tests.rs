//! What a Redis may do to messages: lose them, bring them late or twice, go away.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::super::{MOST_BYTES, Refusal, Welcome};
use super::frame::Frame;
use super::*;

const HANG: Duration = Duration::from_secs(60);

/// A Redis of our own; it is killed when it is dropped.
pub(crate) struct Running {
    process: Child,
    port: u16,
}

impl Running {
    pub(crate) fn start(dir: &Path) -> Running {
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // Somebody may take the port in between; then another one is tried.
        (0..10).find_map(|_| Running::start_at(free().port(), dir)).expect("redis-server starts")
    }

    fn start_at(port: u16, dir: &Path) -> Option<Running> {
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(dir)
            .args(["--requirepass", "secret"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is missing: scripts/setup installs it");
        let mut redis = Running { process, port };
        let since = Instant::now();
        while since.elapsed() < HANG {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(redis);
            }
            if redis.process.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// The channel of the node with this name.
    pub(crate) fn channel(&self, own: &str) -> Redis {
        let url = format!("redis://:secret@127.0.0.1:{}/0?channel=test", self.port);
        Redis::new(&RedisPeer::parse(&url).unwrap(), own.into()).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Counts what it is asked.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Answers for Counts {
    fn welcome(&self, _: &Hello) -> Result<Welcome, Refusal> {
        Ok(Welcome { cluster: 7, node: 1 })
    }

    fn answer(self: Arc<Self>, _: u64, request: Vec<u8>) -> BoxFuture<'static, Vec<u8>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { request })
    }
}

const VISIT: Hello = Hello { cluster: 0, from: 0, to: 0 };

/// Links that fail while Redis is away, or its subscriptions are not there yet.
async fn connect(channel: &Redis, address: &str) -> Box<dyn Link> {
    let since = Instant::now();
    loop {
        match channel.connect(address, VISIT).await {
            Ok((link, _)) => return link,
            Err(error) => assert!(since.elapsed() < HANG, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_request_that_comes_twice_is_answered_once() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Running::start(dir.path());
    let (one, two) = (redis.channel("one"), redis.channel("two"));
    let counts = Arc::new(Counts::default());
    tokio::spawn(Box::new(one.clone()).serve(counts.clone()).unwrap());
    drop(connect(&two, "one").await);
    // By hand, with every frame published twice.
    let mut talk = two.0.open("one").await.unwrap();
    let (session, from) = (talk.session, "two".to_owned());
    let twice = async |kind, number, bytes: &[u8]| {
        let bytes = bytes.to_vec();
        let frame =
            Frame { kind, session, number, piece: 0, last: true, from: from.clone(), bytes };
        for _ in 0..2 {
            two.0.shared.publish("one", &frame).await.unwrap();
        }
    };
    twice(Kind::Hello, 0, &VISIT.to_bytes()).await;
    talk.receive(Kind::Welcome, 0).await.unwrap();
    for number in 1..=3 {
        twice(Kind::Request, number, b"x").await;
        assert_eq!(talk.receive(Kind::Reply, number).await.unwrap(), b"x");
    }
    // A late one of an earlier number is not answered either.
    twice(Kind::Request, 2, b"late").await;
    twice(Kind::Request, 4, b"y").await;
    assert_eq!(talk.receive(Kind::Reply, 4).await.unwrap(), b"y");
    assert_eq!(counts.0.load(Ordering::SeqCst), 4);
    // Nor is an answer that comes twice taken for that to another request.
    let late = Frame {
        kind: Kind::Reply,
        session,
        number: 4,
        piece: 0,
        last: true,
        from: "one".into(),
        bytes: b"late".into(),
    };
    one.0.shared.publish("two", &late).await.unwrap();
    talk.send(Kind::Request, 5, b"z").await.unwrap();
    assert_eq!(talk.receive(Kind::Reply, 5).await.unwrap(), b"z");
}

#[tokio::test]
async fn a_missing_piece_ends_the_session_and_nothing_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Running::start(dir.path());
    let (one, two) = (redis.channel("one"), redis.channel("two"));
    let counts = Arc::new(Counts::default());
    tokio::spawn(Box::new(one).serve(counts.clone()).unwrap());
    drop(connect(&two, "one").await);
    let mut talk = two.0.open("one").await.unwrap();
    talk.send(Kind::Hello, 0, &VISIT.to_bytes()).await.unwrap();
    talk.receive(Kind::Welcome, 0).await.unwrap();
    let session = talk.session;
    for (piece, last) in [(0, false), (2, true)] {
        let (kind, from, bytes) = (Kind::Request, "two".to_owned(), b"x".to_vec());
        let frame = Frame { kind, session, number: 1, piece, last, from, bytes };
        two.0.shared.publish("one", &frame).await.unwrap();
    }
    // Whoever goes on is told that there is no such session.
    let since = Instant::now();
    while talk.send(Kind::Request, 2, b"y").await.is_ok() && !talk.inbox.is_closed() {
        assert!(since.elapsed() < HANG);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(talk.receive(Kind::Reply, 1).await.is_err());
    assert_eq!(counts.0.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_longest_message_goes_both_ways_and_two_of_them_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Running::start(dir.path());
    let (one, two) = (redis.channel("one"), redis.channel("two"));
    tokio::spawn(Box::new(one).serve(Arc::new(Counts::default())).unwrap());
    let mut links = [connect(&two, "one").await, connect(&two, "one").await];
    let long: Vec<u8> = (0..MOST_BYTES).map(|at| (at / 1_000) as u8).collect();
    let [first, second] = &mut links;
    let (first, second) = tokio::join!(first.call(&long), second.call(&long));
    assert!(first.unwrap() == long && second.unwrap() == long);
}

#[tokio::test]
async fn links_end_with_redis_and_are_made_again_when_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Running::start(dir.path());
    let (one, two) = (redis.channel("one"), redis.channel("two"));
    tokio::spawn(Box::new(one).serve(Arc::new(Counts::default())).unwrap());
    let mut link = connect(&two, "one").await;
    assert_eq!(link.call(b"x").await.unwrap(), b"x");
    let port = redis.port;
    drop(redis);
    let end = tokio::time::timeout(HANG, link.call(b"x")).await;
    assert!(end.expect("it does not hang").is_err());
    assert!(two.connect("one", VISIT).await.is_err());
    let _redis = Running::start_at(port, dir.path()).expect("its port is free again");
    let mut link = connect(&two, "one").await;
    assert_eq!(link.call(b"x").await.unwrap(), b"x");
}

#[tokio::test]
async fn whoever_is_not_let_in_by_redis_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Running::start(dir.path());
    let url = format!("redis://:wrong@127.0.0.1:{}/0?channel=test", redis.port);
    let channel = Redis::new(&RedisPeer::parse(&url).unwrap(), "two".into()).unwrap();
    let since = Instant::now();
    loop {
        let Err(error) = channel.connect("one", VISIT).await else { panic!("it was let in") };
        let text = error.to_string();
        if text.contains("there is no connection to Redis")
            && text.contains("authentication failed")
        {
            assert!(!text.contains("wrong@"), "{text}");
            return;
        }
        assert!(since.elapsed() < HANG, "{text}");
    }
}
