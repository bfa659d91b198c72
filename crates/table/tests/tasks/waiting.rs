//! Claims that wait: who is served with what, and how a wait ends.

use crate::common::Scene;
use crate::common::tasks::{any, command, named, new_task};
use keylatch_table::{Claim, Create, PutBack, TaskAction};

fn wait_any(scene: &mut Scene, id: &str) -> String {
    scene.claim_wait(id, 9_000)
}

fn wait_named(scene: &mut Scene, id: &str, key: &str) -> String {
    scene.claim_as(id, Claim { wait_ms: 9_000, ..named(id, key) })
}

/// "ID KEY" of each claim that the last step served.
fn served(scene: &Scene) -> Vec<String> {
    let events = scene.events();
    let claims = events.iter().filter_map(|event| event.strip_prefix("pool: claimed by "));
    claims.map(|rest| rest.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_wait_with_nothing_free_ends_on_time() {
    let mut scene = Scene::new();
    assert_eq!(scene.claim_wait("w", 1_000), "waiting");
    assert_eq!(scene.table.next_deadline(), Some(2_000));
    scene.at(1_999).tick();
    assert!(scene.events().is_empty());
    scene.at(2_000).tick();
    assert_eq!(scene.events(), ["pool: timed out w"]);
    assert_eq!(scene.pools(), []);
    assert_eq!(scene.stats().claims, 0);
    // It is not an end: the id may ask again.
    assert_eq!(scene.claim_wait("w", 1_000), "waiting");
}

#[test]
fn a_wait_that_is_over_is_not_served_in_the_same_step() {
    let mut scene = Scene::new();
    scene.create_as(Create { delay_ms: 1_000, ..new_task("t") });
    scene.claim_wait("late", 1_000);
    scene.claim_wait("in-time", 1_001);
    scene.at(2_000).tick();
    assert_eq!(
        scene.events(),
        [
            "pool: timed out late",
            "pool: claimed by in-time t version 2 token 2 attempts 0 lease 60000 waited 1000",
        ]
    );
}

#[test]
fn waits_that_end_together_end_in_the_order_of_deadline_then_arrival() {
    let mut scene = Scene::new();
    for (id, wait_ms) in [("c", 300), ("b", 200), ("a", 200)] {
        scene.claim_wait(id, wait_ms);
    }
    scene.at(5_000).tick();
    assert_eq!(scene.events(), ["pool: timed out b", "pool: timed out a", "pool: timed out c"]);
}

#[test]
fn a_new_task_goes_to_the_claim_that_arrived_first() {
    let mut scene = Scene::new();
    wait_any(&mut scene, "w1");
    wait_any(&mut scene, "w2");
    assert_eq!(scene.at(1_250).create("t"), "created 1");
    assert_eq!(
        scene.events(),
        ["pool: claimed by w1 t version 2 token 2 attempts 0 lease 60000 waited 250"]
    );
    scene.create("u");
    assert_eq!(served(&scene), ["w2 u"]);
}

#[test]
fn named_and_any_claims_race_by_arrival() {
    let mut scene = Scene::new();
    wait_any(&mut scene, "any1");
    wait_named(&mut scene, "named", "t");
    wait_any(&mut scene, "any2");
    scene.create("t");
    assert_eq!(served(&scene), ["any1 t"]);
    scene.put_back("t", 2);
    assert_eq!(served(&scene), ["named t"]);
    scene.put_back("t", 4);
    assert_eq!(served(&scene), ["any2 t"]);
}

#[test]
fn a_task_passes_over_named_claims_of_other_keys() {
    let mut scene = Scene::new();
    wait_named(&mut scene, "n", "other");
    wait_any(&mut scene, "a");
    scene.create("t");
    assert_eq!(served(&scene), ["a t"]);
    assert_eq!(scene.counts().waiting, 1);
}

#[test]
fn a_named_claim_waits_for_a_task_that_does_not_exist_yet_or_is_not_due() {
    let mut scene = Scene::new();
    assert_eq!(wait_named(&mut scene, "n1", "t"), "waiting");
    scene.create_as(Create { delay_ms: 500, ..new_task("t") });
    assert!(scene.events().is_empty());
    assert_eq!(wait_named(&mut scene, "n2", "t"), "waiting");
    scene.at(1_500).tick();
    assert_eq!(served(&scene), ["n1 t"]);
    assert_eq!(scene.table.next_deadline(), Some(10_000));
}

#[test]
fn a_claim_of_a_deleted_task_waits_on() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.claim("w");
    wait_named(&mut scene, "n", "t");
    scene.delete("d", "t", None);
    assert!(scene.events().is_empty());
    assert_eq!(scene.counts().waiting, 1);
    scene.task("again", TaskAction::Create(new_task("t")));
    assert_eq!(served(&scene), ["n t"]);
}

#[test]
fn of_several_tasks_that_become_due_each_claim_in_arrival_order_takes_its_best() {
    let mut scene = Scene::new();
    for (key, priority, delay_ms) in [("low", 0, 100), ("high", 5, 300), ("mid", 3, 200)] {
        scene.create_as(Create { priority, delay_ms, ..new_task(key) });
    }
    wait_any(&mut scene, "a");
    wait_named(&mut scene, "n", "mid");
    wait_any(&mut scene, "b");
    wait_any(&mut scene, "c");
    scene.at(2_000).tick();
    assert_eq!(served(&scene), ["a high", "n mid", "b low"]);
    assert_eq!(
        scene.events()[0],
        "pool: claimed by a high version 4 token 4 attempts 0 lease 60000 waited 1000"
    );
    assert_eq!(scene.counts().waiting, 1);
}

#[test]
fn an_any_claim_takes_the_task_that_a_later_named_claim_wants() {
    let mut scene = Scene::new();
    scene.create_as(Create { priority: 9, delay_ms: 100, ..new_task("x") });
    scene.create_as(Create { priority: 1, delay_ms: 100, ..new_task("y") });
    wait_any(&mut scene, "any");
    wait_named(&mut scene, "named", "x");
    scene.at(1_100).tick();
    // `any` asks first and takes the best; y stays, for nobody else wants it.
    assert_eq!(served(&scene), ["any x"]);
    assert_eq!((scene.counts().ready, scene.counts().waiting), (1, 1));
}

#[test]
fn pools_are_served_apart_but_in_one_arrival_order() {
    let mut scene = Scene::new();
    for (id, pool) in [("b1", "b"), ("a1", "a"), ("b2", "b")] {
        let claim = Claim { wait_ms: 9_000, ..any(id) };
        scene.say(command(id, pool, TaskAction::Claim(claim)));
    }
    for (id, pool) in [("1", "a"), ("2", "b"), ("3", "b")] {
        let create = Create { delay_ms: 100, ..new_task(id) };
        scene.say(command(&format!("create-{id}"), pool, TaskAction::Create(create)));
    }
    scene.at(1_100).tick();
    let ids: Vec<String> =
        scene.events().iter().map(|e| e.split(' ').nth(3).unwrap().to_owned()).collect();
    assert_eq!(ids, ["b1", "a1", "b2"]);
}

#[test]
fn whoever_asks_is_not_served_before_those_who_wait() {
    let mut scene = Scene::new();
    scene.create_as(Create { delay_ms: 100, ..new_task("t") });
    wait_any(&mut scene, "first");
    assert_eq!(scene.at(1_100).claim("second"), "nothing");
    assert_eq!(served(&scene), ["first t"]);
}

#[test]
fn a_put_back_with_a_delay_serves_later() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.claim("w");
    wait_any(&mut scene, "v");
    scene.put_back_as("t", 2, PutBack { delay_ms: 300, error: None });
    assert!(scene.events().is_empty());
    scene.at(1_300).tick();
    assert_eq!(
        scene.events(),
        ["pool: claimed by v t version 4 token 4 attempts 1 lease 60000 waited 300"]
    );
}

#[test]
fn cancel_ends_a_waiting_claim_in_any_pool() {
    let mut scene = Scene::new();
    wait_any(&mut scene, "w");
    assert_eq!(scene.say(command("w", "elsewhere", TaskAction::Cancel)), "cancelled true");
    assert_eq!(scene.events(), ["pool: withdrawn w"]);
    // It is not remembered.
    assert_eq!(scene.task("w", TaskAction::Cancel), "cancelled false");
    scene.create("t");
    assert!(scene.events().is_empty());
    // Of a claim that has its task it does nothing.
    scene.claim("v");
    assert_eq!(scene.task("v", TaskAction::Cancel), "cancelled false");
    assert_eq!(scene.counts().claimed, 1);
    assert_eq!(scene.task("", TaskAction::Cancel), "cancelled false");
}

#[test]
fn a_repeated_claim_that_still_waits_keeps_its_place_and_starts_its_wait_anew() {
    let mut scene = Scene::new();
    scene.claim_wait("w", 1_000);
    scene.claim_wait("v", 9_000);
    assert_eq!(scene.at(1_900).claim_wait("w", 2_000), "waiting");
    assert_eq!(scene.stats().seq, 2);
    scene.at(3_899).tick();
    assert!(scene.events().is_empty());
    scene.create("t");
    // It waited since it last asked.
    assert_eq!(
        scene.events(),
        ["pool: claimed by w t version 2 token 2 attempts 0 lease 60000 waited 1999"]
    );
}

#[test]
fn a_repeated_claim_with_wait_zero_leaves() {
    let mut scene = Scene::new();
    wait_any(&mut scene, "w");
    assert_eq!(scene.claim("w"), "nothing");
    assert_eq!(scene.events(), ["pool: withdrawn w"]);
    assert_eq!(scene.counts().waiting, 0);
    assert_eq!(scene.claim_wait("w", 5), "waiting");
}

#[test]
fn a_waiting_claim_with_other_content_is_an_error() {
    let mut scene = Scene::new();
    wait_any(&mut scene, "w");
    assert_eq!(wait_named(&mut scene, "w", "t"), "error IdReused");
    let longer = Claim { lease_ms: 60_001, wait_ms: 9_000, ..any("w") };
    assert_eq!(scene.claim_as("w", longer), "error IdReused");
    let claim = TaskAction::Claim(Claim { wait_ms: 9_000, ..any("w") });
    assert_eq!(scene.say(command("w", "elsewhere", claim)), "error IdReused");
    assert_eq!(scene.task("w", TaskAction::Create(new_task("t"))), "error IdReused");
    // What is shown for a worker without owner, and the principal, are not content.
    let mut shown = Claim { wait_ms: 9_000, ..any("other address") };
    shown.party.principal = Some("pat".into());
    assert_eq!(scene.claim_as("w", shown), "waiting");
}

#[test]
fn a_detached_claim_leaves_when_its_grace_or_its_wait_ends() {
    let mut scene = Scene::new();
    scene.claim_wait("w", 5_000);
    scene.detach(&["w"], 2_000);
    scene.at(2_999).tick();
    assert!(scene.events().is_empty());
    scene.at(3_000).tick();
    assert_eq!(scene.events(), ["pool: withdrawn w"]);
    for grace_ms in [5_000, 5_001] {
        let mut scene = Scene::new();
        scene.claim_wait("w", 5_000);
        scene.detach(&["w"], grace_ms);
        scene.at(6_000).tick();
        assert_eq!(scene.events(), ["pool: timed out w"]);
    }
    let mut scene = Scene::new();
    scene.claim_wait("w", 5_000);
    scene.detach(&["w", "w"], 0);
    assert_eq!(scene.events(), ["pool: withdrawn w"]);
}

#[test]
fn a_repeat_attaches_a_claim_again_and_a_second_detach_starts_the_grace_anew() {
    let mut scene = Scene::new();
    scene.claim_wait("w", 5_000);
    scene.detach(&["w"], 2_000);
    scene.at(2_500).detach(&["w"], 2_000);
    scene.at(4_499).tick();
    assert!(scene.events().is_empty());
    assert_eq!(scene.claim_wait("w", 5_000), "waiting");
    scene.at(9_498).tick();
    assert!(scene.events().is_empty());
    scene.at(9_499).tick();
    assert_eq!(scene.events(), ["pool: timed out w"]);
}

#[test]
fn a_claim_granted_while_detached_has_the_grace_as_its_lease_until_repeated_or_updated() {
    let granted = || {
        let mut scene = Scene::new();
        scene.claim_wait("w", 5_000);
        scene.detach(&["w"], 2_000);
        scene.at(1_500).create("t");
        assert_eq!(
            scene.events(),
            ["pool: claimed by w t version 2 token 2 attempts 0 lease 2000 waited 500"]
        );
        scene
    };
    let mut scene = granted();
    scene.at(3_499).tick();
    assert!(scene.events().is_empty());
    scene.at(3_500).tick();
    assert_eq!(scene.events(), ["pool: lapsed w t token 2"]);
    assert_eq!(scene.claim_wait("w", 5_000), "ended");
    let mut scene = granted();
    assert_eq!(
        scene.at(3_000).claim_wait("w", 5_000),
        "claimed t version 2 token 2 attempts 0 lease 60000 waited 0"
    );
    // Only once.
    assert_eq!(
        scene.at(4_000).claim_wait("w", 5_000),
        "claimed t version 2 token 2 attempts 0 lease 59000 waited 0"
    );
    let mut scene = granted();
    assert_eq!(scene.at(3_000).update("t", 2), "updated 3 lease 60000");
}

#[test]
fn waiting_claims_take_a_seq_from_the_counter_of_locks() {
    let mut scene = Scene::new();
    scene.ask(crate::common::ask("lock", "X k"));
    wait_any(&mut scene, "w");
    scene.create("t");
    assert_eq!(scene.stats().seq, 2);
    // Those that are served at once take none.
    scene.create("u");
    scene.claim("v");
    assert_eq!(scene.stats().seq, 2);
}
