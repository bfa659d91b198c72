//! Tasks on a lock server that goes away and comes back, and on a network that loses answers.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{HANG, Running, SOON, eventually};
use keylatch::{ChangeError, ClaimError, Locks, LostClaim, TaskError, TaskState};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_claims_and_waits_survive_a_restart_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let server = Running::start(Some(dir.path()), None);
    let address = server.address;
    let locks = Locks::connect(&server.url()).await.unwrap();
    let tasks = locks.tasks("pool");
    tasks.create("a").body("kept").await.unwrap();
    let claim = tasks.claim().lease(SOON).wait(SOON).await.unwrap().unwrap();
    let any = tokio::spawn(tasks.claim().wait(HANG).into_future());
    let named = tokio::spawn(tasks.claim_key("b").wait(HANG).into_future());
    eventually(async || tasks.counts().await.unwrap().waiting == 2).await;
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    // Asked for while nobody is there: answered when somebody is.
    let create = tokio::spawn(tasks.create("meanwhile").into_future());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let server = Running::start(Some(dir.path()), Some(address));
    assert!(create.await.unwrap().unwrap().is_some());
    assert_eq!(&**any.await.unwrap().unwrap().unwrap().key(), "meanwhile");
    assert!(!named.is_finished());
    tasks.create("b").await.unwrap();
    assert_eq!(&**named.await.unwrap().unwrap().unwrap().key(), "b");
    assert_eq!(claim.is_lost(), None);
    claim.done().await.unwrap();
    assert_eq!(tasks.get("a").await.unwrap().unwrap().state, TaskState::Done);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stays_away_costs_the_lease_and_no_call_hangs() {
    let server = Running::start(None, None);
    let locks = Locks::connect(&server.url()).await.unwrap();
    let tasks = locks.tasks("pool");
    tasks.create("a").await.unwrap();
    let claim = tasks.claim().lease(Duration::from_millis(500)).wait(SOON).await.unwrap().unwrap();
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
    assert_eq!(claim.lost().await, LostClaim::Unreachable);
    let (claimed, created, done) = tokio::join!(
        tasks.claim().wait(Duration::from_millis(50)).into_future(),
        tasks.create("b").into_future(),
        claim.done(),
    );
    assert!(matches!(claimed, Err(ClaimError::Task(TaskError::Unreachable(_)))), "{claimed:?}");
    assert!(matches!(created, Err(TaskError::Unreachable(_))), "{created:?}");
    // Its renewal may have been on its way, and then nobody knows its version.
    let unknown =
        |error: &TaskError| matches!(error, TaskError::Unreachable(_) | TaskError::Unknown(_));
    assert!(matches!(&done, Err(ChangeError::Task(error)) if unknown(error)), "{done:?}");
}

/// Between client and server. When told to, it takes what the server says next and closes the connection
/// instead of passing it on: the command has happened, and its answer is lost.
struct Network {
    address: SocketAddr,
    lose: Arc<AtomicBool>,
}

impl Network {
    fn before(server: SocketAddr) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, lose) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&lose);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
                let (up, down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pass(up, server, None));
                let told = Arc::clone(&told);
                std::thread::spawn(move || pass(down, client, Some(&told)));
            }
        });
        Network { address, lose }
    }

    fn lose_the_next_answer(&self) {
        self.lose.store(true, Ordering::SeqCst);
    }

    fn has_lost_it(&self) -> bool {
        !self.lose.load(Ordering::SeqCst)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, lose: Option<&AtomicBool>) {
    let mut room = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut room) {
        if lose.is_some_and(|lose| lose.swap(false, Ordering::SeqCst)) {
            break;
        }
        if to.write_all(&room[..count]).is_err() {
            break;
        }
    }
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_answer_is_lost_happens_once() {
    let server = Running::start(None, None);
    let network = Network::before(server.address);
    let tasks = Locks::connect(&format!("keylatch://{}", network.address)).await.unwrap();
    let tasks = tasks.tasks("pool");
    let there = Locks::connect(&server.url()).await.unwrap().tasks("pool");
    for round in 1..=5 {
        let key = format!("k{round}");
        network.lose_the_next_answer();
        let version = tasks.create(key.clone()).await.unwrap();
        assert!(network.has_lost_it());
        let version = version.expect("it is new, whoever asks twice");
        assert_eq!(there.get(&key).await.unwrap().unwrap().version, version);

        network.lose_the_next_answer();
        let claim = tasks.claim().try_now().await.unwrap().expect("its own, and not a second one");
        assert!(network.has_lost_it());
        assert_eq!((**claim.key() == *key, there.counts().await.unwrap().claimed), (true, 1));

        network.lose_the_next_answer();
        let updated = claim.update("more").await.unwrap();
        assert!(network.has_lost_it());
        assert_eq!(there.get(&key).await.unwrap().unwrap().version, updated.version);

        network.lose_the_next_answer();
        assert_eq!(claim.put_back().await.unwrap().attempts, 1, "counted once");
        let claim = tasks.claim().try_now().await.unwrap().unwrap();
        network.lose_the_next_answer();
        let done = claim.done().await.unwrap();
        assert_eq!(there.get(&key).await.unwrap().unwrap().version, done);
        assert_eq!(there.counts().await.unwrap().done, round);
    }
}

/// The push that tells a waiting claim its task is lost with the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_outcome_is_lost_gets_its_task_all_the_same() {
    let server = Running::start(None, None);
    let network = Network::before(server.address);
    let tasks = Locks::connect(&format!("keylatch://{}", network.address)).await.unwrap();
    let tasks = tasks.tasks("pool");
    let there = Locks::connect(&server.url()).await.unwrap().tasks("pool");
    for round in 0..5 {
        let waiting = tokio::spawn(tasks.claim().wait(HANG).lease(SOON).into_future());
        eventually(async || there.counts().await.unwrap().waiting == 1).await;
        network.lose_the_next_answer();
        there.create(format!("k{round}")).body("x").await.unwrap();
        let claim = waiting.await.unwrap().unwrap().unwrap();
        assert!(network.has_lost_it());
        assert_eq!(claim.text(), Some("x"));
        // With its whole lease, not with the grace of one whose connection was away.
        assert!(claim.ends().unwrap() > SOON / 2, "{:?}", claim.ends());
        assert_eq!(there.counts().await.unwrap().claimed, 1);
        claim.done().await.unwrap();
    }
}
