//! Creating and claiming: which task a claim takes, and in which order.

use crate::common::Scene;
use crate::common::tasks::{POOL, any, command, named, new_task, text_body};
use keylatch_table::{Body, Claim, Create, Party, PutBack, TaskAction, TaskState};

#[test]
fn a_task_is_created_once_and_exists_in_every_state() {
    let mut scene = Scene::new();
    assert_eq!(scene.create("t"), "created 1");
    let again = |scene: &mut Scene, id: &str| scene.task(id, TaskAction::Create(new_task("t")));
    assert_eq!(again(&mut scene, "free"), "exists");
    scene.claim("w");
    assert_eq!(again(&mut scene, "claimed"), "exists");
    scene.finish("t", 2);
    assert_eq!(again(&mut scene, "done"), "exists");
    scene.create_as(Create { attempts: Some(1), ..new_task("f") });
    scene.put_back("f", 4);
    assert_eq!(scene.entry("f").state, TaskState::Failed);
    let failed = TaskAction::Create(new_task("f"));
    assert_eq!(scene.task("failed", failed), "exists");
    assert_eq!(scene.stats().token, 5);
}

#[test]
fn a_claim_takes_a_free_task_and_says_everything_about_it() {
    let mut scene = Scene::new();
    let body = Body { json: true, bytes: b"{}".as_slice().into() };
    scene.create_as(Create { body: Some(body.clone()), priority: 3, ..new_task("t") });
    assert_eq!(
        scene.at(1_500).claim("w"),
        "claimed t version 2 token 2 attempts 0 lease 60000 waited 0 json {}"
    );
    let entry = scene.entry("t");
    assert_eq!((entry.number, &*entry.key, entry.body), (1, "t", Some(body)));
    assert_eq!((entry.state, entry.version, entry.token), (TaskState::Claimed, 2, 2));
    assert_eq!(
        (entry.owner.as_deref(), entry.created, entry.claimed),
        (Some("w"), 1_000, Some(1_500))
    );
    assert_eq!((entry.priority, entry.attempts, entry.due), (3, 0, 1_000));
    assert_eq!((entry.lease_ms, entry.error), (Some(60_000), None));
    assert_eq!(scene.claim("v"), "nothing");
}

#[test]
fn a_claim_without_lease_lives_for_ever() {
    let mut scene = Scene::new();
    scene.create("t");
    assert_eq!(
        scene.claim_as("w", Claim { lease_ms: 0, ..any("w") }),
        "claimed t version 2 token 2 attempts 0 lease none waited 0"
    );
    assert_eq!(scene.table.next_deadline(), None);
    scene.at(1 << 40).tick();
    assert_eq!((scene.entry("t").state, scene.entry("t").lease_ms), (TaskState::Claimed, None));
}

#[test]
fn the_highest_priority_comes_first_then_the_longest_waiting_then_the_lowest_number() {
    let mut scene = Scene::new();
    let create = |scene: &mut Scene, key: &str, priority, delay_ms| {
        scene.create_as(Create { priority, delay_ms, ..new_task(key) })
    };
    create(&mut scene, "low", -1, 0);
    create(&mut scene, "late", 0, 300);
    create(&mut scene, "soon", 0, 200);
    create(&mut scene, "soon2", 0, 200);
    create(&mut scene, "most", i32::MAX, 400);
    create(&mut scene, "least", i32::MIN, 0);
    scene.at(1_200);
    let order: Vec<String> = ["a", "b"].iter().map(|w| taken(&scene.claim(w))).collect();
    assert_eq!(order, ["soon", "soon2"]);
    scene.at(1_400);
    let order: Vec<String> = ["c", "d", "e", "f"].iter().map(|w| taken(&scene.claim(w))).collect();
    assert_eq!(order, ["most", "late", "low", "least"]);
    assert_eq!(scene.claim("g"), "nothing");
}

/// The key in "claimed KEY version ...".
fn taken(reply: &str) -> String {
    reply.split(' ').nth(1).unwrap_or(reply).into()
}

#[test]
fn a_task_that_was_put_back_waits_behind_those_that_are_ready_longer() {
    let mut scene = Scene::new();
    scene.create("a");
    scene.at(1_100).create("b");
    assert_eq!(taken(&scene.at(1_200).claim("w1")), "a");
    scene.put_back("a", 3);
    assert_eq!(taken(&scene.at(1_300).claim("w2")), "b");
    assert_eq!(taken(&scene.claim("w3")), "a");
}

#[test]
fn a_task_whose_lease_ran_out_is_ready_since_that_moment_not_since_it_was_noticed() {
    let mut scene = Scene::new();
    scene.create("a");
    scene.claim_as("w", Claim { lease_ms: 500, ..any("w") });
    scene.at(1_200).create_as(Create { delay_ms: 400, ..new_task("b") });
    scene.create_as(Create { delay_ms: 200, ..new_task("c") });
    // The lease ended at 1500, b became due at 1600, c at 1400; all of it is noticed at 9000.
    scene.at(9_000);
    let order: Vec<String> = ["1", "2", "3"].iter().map(|w| taken(&scene.claim(w))).collect();
    assert_eq!(order, ["c", "a", "b"]);
}

#[test]
fn a_delayed_task_is_not_claimed_before_its_time() {
    let mut scene = Scene::new();
    scene.create_as(Create { delay_ms: 500, ..new_task("t") });
    assert_eq!(scene.table.next_deadline(), Some(1_500));
    assert_eq!(scene.at(1_499).claim("w"), "nothing");
    assert_eq!(scene.claim_as("n", named("n", "t")), "nothing");
    assert_eq!((scene.counts().delayed, scene.counts().ready), (1, 0));
    assert_eq!(scene.entry("t").due, 1_500);
    assert_eq!(
        scene.at(1_500).claim_as("n", named("n", "t")),
        "claimed t version 2 token 2 attempts 0 lease 60000 waited 0"
    );
}

#[test]
fn a_named_claim_takes_that_task_or_nothing() {
    let mut scene = Scene::new();
    scene.create_as(Create { priority: 9, ..new_task("other") });
    scene.create("mine");
    assert_eq!(
        scene.claim_as("w", named("w", "mine")),
        "claimed mine version 3 token 3 attempts 0 lease 60000 waited 0"
    );
    assert_eq!(scene.claim_as("v", named("v", "mine")), "nothing");
    assert_eq!(scene.claim_as("u", named("u", "unknown")), "nothing");
    assert_eq!(scene.entry("other").state, TaskState::Free);
}

#[test]
fn a_claim_of_a_task_that_is_done_or_failed_is_refused_also_with_a_wait() {
    let mut scene = Scene::new();
    scene.create("d");
    scene.finish("d", 1);
    scene.create_as(Create { attempts: Some(1), ..new_task("f") });
    scene.put_back("f", 3);
    for wait_ms in [0, 5_000] {
        let ask = |key| Claim { wait_ms, ..named("w", key) };
        assert_eq!(scene.claim_as("w", ask("d")), "refused done");
        assert_eq!(scene.claim_as("w", ask("f")), "refused failed");
    }
    assert_eq!(scene.claim("w"), "nothing");
    assert_eq!(scene.counts().waiting, 0);
}

#[test]
fn a_done_task_never_comes_back() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.claim_as("w", Claim { lease_ms: 500, ..any("w") });
    assert_eq!(scene.finish("t", 2), "finished 3");
    // Not when its lease would have ended, not by an update, not by a put back, not by a retry.
    scene.at(2_000).tick();
    assert!(scene.events().is_empty());
    assert_eq!(scene.update("t", 3), "updated 4 lease none");
    assert_eq!(scene.entry("t").state, TaskState::Done);
    assert_eq!(scene.put_back("t", 4), "refused done");
    let entry = scene.entry("t");
    assert_eq!((entry.state, entry.version, entry.attempts), (TaskState::Done, 4, 0));
    assert_eq!(scene.retry("r", None), "retried 0");
    assert_eq!(scene.retry("r2", Some("t")), "retried 0");
    assert_eq!(scene.claim("v"), "nothing");
    scene.at(1 << 40).tick();
    assert_eq!(scene.entry("t").state, TaskState::Done);
    assert_eq!((scene.counts().done, scene.counts().ready), (1, 0));
}

#[test]
fn pools_and_their_keys_are_apart() {
    let mut scene = Scene::new();
    let create = |key: &str| TaskAction::Create(new_task(key));
    assert_eq!(scene.say(command("1", "a", create("t"))), "created 1");
    assert_eq!(scene.say(command("2", "b", create("t"))), "created 2");
    assert_eq!(scene.say(command("3", "c", TaskAction::Claim(any("w")))), "nothing");
    assert_eq!(
        scene.say(command("4", "b", TaskAction::Claim(any("w")))),
        "claimed t version 3 token 3 attempts 0 lease 60000 waited 0"
    );
    let delete = |id, pool| command(id, pool, TaskAction::Delete("t".into(), None));
    assert_eq!(scene.say(delete("5", "c")), "not found");
    assert_eq!(scene.say(delete("6", "a")), "deleted");
    assert!(scene.find_task("a", "t").is_none());
    assert!(scene.find_task("b", "t").is_some());
    // A pool and a key are not run together.
    assert!(scene.find_task("bt", "").is_none());
}

#[test]
fn the_worker_that_is_shown_is_the_last_one_who_claimed() {
    let mut scene = Scene::new();
    scene.create("t");
    assert_eq!((scene.entry("t").owner, scene.entry("t").claimed), (None, None));
    scene.claim_as("w", Claim { party: Party::owner("ann"), ..any("w") });
    scene.put_back("t", 2);
    let entry = scene.entry("t");
    assert_eq!((entry.owner.as_deref(), entry.token), (Some("ann"), 2));
    assert_eq!((entry.state, entry.lease_ms), (TaskState::Free, None));
    scene.at(2_000).claim_as("v", Claim { party: Party::owner("bob"), ..any("v") });
    let entry = scene.entry("t");
    assert_eq!((entry.owner.as_deref(), entry.token), (Some("bob"), 4));
    assert_eq!(entry.claimed, Some(2_000));
}

#[test]
fn the_attempts_are_told_with_the_claim() {
    let mut scene = Scene::new();
    scene.create_as(Create { body: Some(text_body("x")), ..new_task("t") });
    scene.put_back_as("t", 1, PutBack { delay_ms: 0, error: Some("bad".into()) });
    assert_eq!(
        scene.claim("w"),
        "claimed t version 3 token 3 attempts 1 lease 60000 waited 0 bytes x"
    );
    assert_eq!(scene.find_task(POOL, "t").unwrap().error.as_deref(), Some("bad"));
}
