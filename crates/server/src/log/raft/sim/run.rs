//! One world: it comes up in peace, things go wrong for a while, and then it has to come to rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylatch_table::{Acquire, Answer, Command, Party, Query, Reply, RequestId, Resource, Target};

use super::client::{self, Client};
use super::faults::Faults;
use super::here;
use super::judge::Counts;
use super::server::Said;
use super::world::{Plant, World, note};

/// How a world ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The sum of its trace, and how long that was.
    pub(super) sum: (u64, u64),
    pub(super) counts: Counts,
    pub(super) wrong: Option<String>,
    pub(super) ms: u64,
}

/// How long a cluster has for coming up, and for coming to rest.
const PEACE_MS: u64 = 60_000;
/// How long a request may take when nothing is wrong any more: a leader that is silent for a second is none,
/// elections may split a few times, and a line that hangs is noticed after 5 s.
const ANSWER_MS: u64 = 20_000;

/// Runs the world of a seed.
pub(super) fn run(seed: u64, plant: Plant) -> Ended {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap();
    let ended = runtime.block_on(async {
        let world = World::new(seed, plant);
        here::enter(Some(Arc::clone(&world)));
        live(&world).await;
        let (sum, judge) = (world.sum(), world.judge.lock());
        Ended { sum, counts: judge.counts, wrong: judge.wrong.clone(), ms: world.now() }
    });
    // Tasks still ask where they are when they are dropped.
    drop(runtime);
    here::enter(None);
    ended
}

async fn live(world: &Arc<World>) {
    // Files in memory, where there are such: the disk is simulated, and the machine's own has nothing to add.
    let memory = std::path::Path::new("/dev/shm");
    let root = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let root = root.unwrap();
    let count = world.pick(&[3, 3, 3, 5]);
    let mut faults = Faults::new(world, root.path(), count);
    for node in &mut faults.nodes {
        node.start(world);
    }
    if !wait(world, &mut faults, PEACE_MS, false).await {
        return world.judge.lock().find("the cluster does not come up".into());
    }
    note!(world, "{count} nodes are up");
    let done = Arc::new(AtomicBool::new(false));
    let (clients, keys) = (world.between(4, 10), world.between(1, 4));
    let clients: Vec<_> = (0..clients)
        .map(|number| tokio::spawn(Client::new(world, number, keys, &done).run()))
        .collect();
    faults.rage(world.pick(&[10_000, 20_000, 40_000])).await;
    faults.heal();
    done.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.expect("clients do not fail");
        if world.judge.lock().wrong.is_some() {
            return;
        }
    }
    rest(world, &mut faults).await;
    // Its tasks end with it, and so do its files.
    for node in &mut faults.nodes {
        if let Some(process) = node.process() {
            process.kill();
        }
    }
    world.doors.lock().clear();
}

/// Waits until everyone votes.
async fn wait(world: &Arc<World>, faults: &mut Faults, ms: u64, help: bool) -> bool {
    let end = world.now() + ms;
    while world.now() < end {
        if faults.has_left().await && faults.all_vote().await {
            return true;
        }
        if help {
            faults.help();
        }
        world.sleep(200).await;
    }
    false
}

/// Everything must come to rest: everyone votes, is answered, knows the same, and nothing is held any more.
async fn rest(world: &Arc<World>, faults: &mut Faults) {
    if !wait(world, faults, PEACE_MS, true).await {
        return world.judge.lock().find("not everyone votes, though nothing is wrong".into());
    }
    for node in &faults.nodes {
        let id = RequestId::new(&format!("last-{}", node.address));
        let key = Resource::plain(&node.address).unwrap();
        let ask = Acquire::new(id.clone(), key, Party::client("last"));
        let end = world.now() + ANSWER_MS;
        let mut said = None;
        // A line that was lost before may still be waited for, and then nobody is heard for a while.
        while world.now() < end && matches!(said, None | Some(Said::NoLeader { .. })) {
            let ask = Some(Command::Acquire(ask.clone()));
            said = client::ask(world, &node.address, ask, ANSWER_MS).await;
        }
        note!(world, "{}: {said:?}", node.address);
        if !matches!(said, Some(Said::Reply(Reply::Granted(_)))) {
            let text =
                format!("{} does not answer, though nothing is wrong: {said:?}", node.address);
            return world.judge.lock().find(text);
        }
        let release = Command::Release(Target::Id(id));
        let said = client::ask(world, &node.address, Some(release), ANSWER_MS).await;
        if !matches!(said, Some(Said::Reply(Reply::Released))) {
            let text = format!("{} does not release: {said:?}", node.address);
            return world.judge.lock().find(text);
        }
    }
    let end = world.now() + PEACE_MS;
    let mut held = None;
    while world.now() < end && held != Some((0, true)) {
        held = still(world);
        world.sleep(200).await;
    }
    if held != Some((0, true)) {
        let text = format!("held and waiting in the end, and whether all know it: {held:?}");
        world.judge.lock().find(text);
    }
}

/// How many requests hold or wait, and whether all nodes have applied the same.
fn still(world: &Arc<World>) -> Option<(u64, bool)> {
    let judge = world.judge.lock();
    let doors = world.doors.lock();
    let at_end = |name: &str| judge.applied.get(name) == Some(&judge.end());
    let same = doors.values().all(|door| at_end(&door.process.name));
    let table = doors.values().next()?.member().table();
    let Answer::Stats(stats) = table.lock().query(0, &Query::Stats) else { return None };
    Some((stats.held + stats.waiting, same))
}
