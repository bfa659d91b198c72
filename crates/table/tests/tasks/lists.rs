//! Reading tasks: lists, pages, counts.

use crate::common::Scene;
use crate::common::tasks::{POOL, any, command, named, new_task};
use keylatch_table::{Claim, ClaimOutcome, Create, PoolCounts, TaskAction, TaskState, TasksQuery};

fn all() -> TasksQuery {
    TasksQuery { pool: POOL.into(), state: None, prefix: None, limit: 0, cursor: 0 }
}

fn keys(scene: &Scene, query: TasksQuery) -> Vec<String> {
    scene.list_tasks(query).iter().map(|task| task.key.to_string()).collect()
}

/// One task in each state, and one that is delayed.
fn one_of_each() -> Scene {
    let mut scene = Scene::with(&[("task_attempts", 1)]);
    for key in ["job-claimed", "done", "failed", "job-free"] {
        scene.create(key);
    }
    scene.create_as(Create { delay_ms: 9_000, ..new_task("job-later") });
    scene.claim("w");
    scene.finish("done", 2);
    scene.put_back("failed", 3);
    scene
}

#[test]
fn tasks_are_listed_in_the_order_of_their_creation() {
    let scene = one_of_each();
    assert_eq!(keys(&scene, all()), ["job-claimed", "done", "failed", "job-free", "job-later"]);
    let numbers: Vec<u64> = scene.list_tasks(all()).iter().map(|task| task.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(scene.list_tasks(all())[0], scene.entry("job-claimed"));
}

#[test]
fn lists_are_filtered_by_state_and_prefix() {
    let scene = one_of_each();
    let of = |state| keys(&scene, TasksQuery { state: Some(state), ..all() });
    assert_eq!(of(TaskState::Free), ["job-free", "job-later"]);
    assert_eq!(of(TaskState::Claimed), ["job-claimed"]);
    assert_eq!(of(TaskState::Done), ["done"]);
    assert_eq!(of(TaskState::Failed), ["failed"]);
    let jobs = TasksQuery { prefix: Some("job-".into()), ..all() };
    assert_eq!(keys(&scene, jobs.clone()), ["job-claimed", "job-free", "job-later"]);
    let free = TasksQuery { state: Some(TaskState::Free), limit: 1, ..jobs };
    assert_eq!(keys(&scene, free), ["job-free"]);
    assert_eq!(keys(&scene, TasksQuery { pool: "other".into(), ..all() }), [""; 0]);
}

#[test]
fn pages_follow_each_other() {
    let scene = one_of_each();
    let page = |cursor| keys(&scene, TasksQuery { limit: 2, cursor, ..all() });
    assert_eq!(page(0), ["job-claimed", "done"]);
    assert_eq!(page(2), ["failed", "job-free"]);
    assert_eq!(page(4), ["job-later"]);
    assert_eq!(page(5), [""; 0]);
    assert_eq!(page(u64::MAX), [""; 0]);
}

#[test]
fn pools_are_counted_in_the_order_of_their_names() {
    let mut scene = one_of_each();
    scene.say(command("1", "a-waiting", TaskAction::Claim(Claim { wait_ms: 9_000, ..any("1") })));
    scene.say(command("2", "z", TaskAction::Create(new_task("t"))));
    let counts = PoolCounts { pool: POOL.into(), ..PoolCounts::default() };
    assert_eq!(
        scene.pools(),
        [
            PoolCounts { pool: "a-waiting".into(), waiting: 1, ..PoolCounts::default() },
            PoolCounts { ready: 1, delayed: 1, claimed: 1, done: 1, failed: 1, ..counts },
            PoolCounts { pool: "z".into(), ready: 1, ..PoolCounts::default() },
        ]
    );
}

#[test]
fn an_empty_pool_leaves_nothing_behind() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.claim("w");
    scene.delete("d", "t", None);
    scene.claim_wait("v", 100);
    scene.at(1_100).tick();
    assert_eq!(scene.pools(), []);
    scene.at(90_000).tick();
    let stats = scene.stats();
    assert_eq!((stats.tasks, stats.task_bytes, stats.claims), (0, 0, 0));
}

#[test]
fn what_is_left_of_a_lease_is_read_as_of_the_time_asked() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.claim_as("w", Claim { lease_ms: 500, ..any("w") });
    scene.at(1_300);
    assert_eq!(scene.entry("t").lease_ms, Some(200));
    scene.at(1_800);
    assert_eq!(scene.entry("t").lease_ms, Some(0));
}

#[test]
fn claims_are_counted_by_how_they_came_out() {
    let mut scene = Scene::new();
    scene.claim("nothing");
    scene.create("t");
    scene.claim("w");
    scene.claim("w");
    scene.claim_wait("late", 100);
    scene.claim_as("told", Claim { wait_ms: 9_000, ..named("told", "x") });
    scene.task("told", TaskAction::Cancel);
    scene.claim_as("long", Claim { lease_ms: u64::MAX, ..any("long") });
    scene.at(90_000).tick();
    scene.finish("t", 2);
    scene.claim_as("done", named("done", "t"));
    let counted = ClaimOutcome::ALL.map(|outcome| scene.table.tally().claims(outcome));
    assert_eq!(counted, [1; 6], "a repeat is no other request");
    assert_eq!(scene.table.tally().lapsed, 1);
}
