//! Many workers, some of which die: each task is done once, and none is lost. The judge is what the store
//! answered: only who finished a task at the version it had claimed has done it. The control believes
//! whoever has claimed one, and finds some done twice. Chance says who dies and who is slow, but the first who claims
//! something dies, and the second is so slow that another has done its task.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{Claim, TaskAction, TaskReply};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::super::super::contract::Ground;
use super::{POOL, Side, any, at, back, command, new};

#[derive(Default)]
struct Judge {
    /// How often each was done, as far as the store says so, and as far as workers believe.
    done: BTreeMap<String, usize>,
    believed: BTreeMap<String, usize>,
    claims: usize,
    stale: usize,
}

/// What becomes of a worker that has claimed something.
enum Fate {
    /// It dies, and nobody is told.
    Dies,
    /// It takes too long, and does not know.
    Slow,
    /// It takes so long that another one thinks that it has done the task.
    Overtaken,
    PutsBack,
    Works,
}

impl Judge {
    fn next(&mut self) -> Fate {
        self.claims += 1;
        match (self.claims, rand::random_range(0..100)) {
            (2, _) => Fate::Overtaken,
            (1, _) | (_, 0..3) => Fate::Dies,
            (_, 3..5) => Fate::Slow,
            (_, 5..8) => Fate::PutsBack,
            _ => Fate::Works,
        }
    }
}

struct Job {
    tasks: usize,
    workers: usize,
    lease_ms: u64,
}

fn size(ground: &impl Ground) -> Job {
    // A store that counts leases in seconds is waited for longer.
    let (tasks, workers) = if ground.has_own_leases() { (300, 10) } else { (2_000, 20) };
    Job { tasks, workers, lease_ms: ground.life_ms() }
}

async fn work(ground: &impl Ground) -> Judge {
    let Job { tasks, workers, lease_ms } = size(ground);
    let sides = [Side::open(ground).await, Side::open(ground).await, Side::open(ground).await];
    let sides = Arc::new(sides);
    let mut creates = JoinSet::new();
    for creator in 0..10 {
        let sides = Arc::clone(&sides);
        creates.spawn(async move {
            for number in (creator..tasks).step_by(10) {
                let create = TaskAction::Create(new(&format!("{number}")));
                let created = sides[number % 3].say(&format!("create {number}"), create).await;
                assert!(matches!(created, TaskReply::Created(_)));
            }
        });
    }
    creates.join_all().await;
    let judge = Arc::new(Mutex::new(Judge::default()));
    let mut all = JoinSet::new();
    for worker in 0..workers {
        let (sides, judge) = (Arc::clone(&sides), Arc::clone(&judge));
        all.spawn(async move {
            let side = &sides[worker % 3];
            for round in 0.. {
                let claim = Claim { lease_ms, wait_ms: lease_ms * 3, ..any() };
                let id = format!("{worker}:{round}");
                let outcome = side.0.task(command(&id, TaskAction::Claim(claim))).await.unwrap();
                let TaskReply::Claimed(got) = outcome else { return };
                let fate = judge.lock().next();
                match fate {
                    Fate::Dies => continue,
                    Fate::Slow => tokio::time::sleep(Duration::from_millis(lease_ms * 2)).await,
                    Fate::Overtaken => {
                        while !judge.lock().believed.contains_key(&*got.key) {
                            tokio::time::sleep(Duration::from_millis(10)).await;
                        }
                    }
                    Fate::PutsBack => {
                        side.say(&format!("back {id}"), back(&got, 0)).await;
                        continue;
                    }
                    Fate::Works => {}
                }
                *judge.lock().believed.entry(got.key.to_string()).or_default() += 1;
                match side.say(&format!("done {id}"), TaskAction::Finish(at(&got))).await {
                    TaskReply::Finished(_) => {
                        *judge.lock().done.entry(got.key.to_string()).or_default() += 1;
                    }
                    TaskReply::Stale(_) => judge.lock().stale += 1,
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    all.join_all().await;
    let counts = sides[0].0.pools(Some(POOL)).await.unwrap().remove(0);
    assert_eq!(counts.done, tasks as u64, "none is lost: {counts:?}");
    std::mem::take(&mut *judge.lock())
}

pub(crate) async fn each_task_is_done_once(ground: &impl Ground) {
    let judge = work(ground).await;
    assert_eq!(judge.done.len(), size(ground).tasks);
    assert!(judge.done.values().all(|times| *times == 1), "{:?}", judge.done);
}

/// The control: this is what the check is for.
pub(crate) async fn without_the_version_check_some_are_done_twice(ground: &impl Ground) {
    let judge = work(ground).await;
    assert!(judge.believed.values().any(|times| *times > 1), "nobody was too slow");
    assert!(judge.stale > 0);
}
