//! A repeat after a lost reply returns the same result.

use crate::common::Scene;
use crate::common::tasks::{any, checked, command, named, new_task, text_body};
use keylatch_table::{Claim, Create, Party, PutBack, TaskAction};

#[test]
fn every_write_repeated_by_its_id_gives_the_same_answer_and_writes_once() {
    let mut scene = Scene::with(&[("task_attempts", 3)]);
    for (id, action, reply) in [
        ("create", TaskAction::Create(new_task("t")), "created 1"),
        ("exists", TaskAction::Create(new_task("t")), "exists"),
        (
            "update",
            TaskAction::Update(checked("t", 1), Some(text_body("b")), None),
            "updated 2 lease none",
        ),
        (
            "back",
            TaskAction::PutBack(checked("t", 2), PutBack::default()),
            "put back 3 free attempts 1",
        ),
        ("stale", TaskAction::Finish(checked("t", 2)), "stale 3"),
        ("finish", TaskAction::Finish(checked("t", 3)), "finished 4"),
        ("refused", TaskAction::Claim(named("w", "t")), "refused done"),
        ("delete", TaskAction::Delete("t".into(), Some(4)), "deleted"),
        ("missing", TaskAction::Delete("t".into(), None), "not found"),
        ("retry", TaskAction::Retry(None), "retried 0"),
    ] {
        assert_eq!(scene.task(id, action.clone()), reply);
        let token = scene.stats().token;
        assert_eq!(scene.task(id, action), reply, "{id} again");
        assert_eq!(scene.stats().token, token, "{id} writes once");
    }
    // Also after everything else has happened since.
    assert_eq!(scene.task("create", TaskAction::Create(new_task("t"))), "created 1");
    assert_eq!(scene.stats().tasks, 0);
}

#[test]
fn the_same_id_with_other_content_is_an_error() {
    let mut scene = Scene::new();
    scene.task("id", TaskAction::Create(new_task("t")));
    for action in [
        TaskAction::Create(new_task("u")),
        TaskAction::Create(Create { priority: 1, ..new_task("t") }),
        TaskAction::Create(Create { body: Some(text_body("")), ..new_task("t") }),
        TaskAction::Create(Create { delay_ms: 1, ..new_task("t") }),
        TaskAction::Create(Create { attempts: Some(1), ..new_task("t") }),
        TaskAction::Claim(any("w")),
        TaskAction::Finish(checked("t", 1)),
        TaskAction::Delete("t".into(), None),
        TaskAction::Retry(None),
    ] {
        assert_eq!(scene.task("id", action), "error IdReused");
    }
    let elsewhere = command("id", "elsewhere", TaskAction::Create(new_task("t")));
    assert_eq!(scene.say(elsewhere), "error IdReused");
    assert_eq!(scene.task("id", TaskAction::Create(new_task("t"))), "created 1");
}

#[test]
fn answers_are_remembered_for_a_time() {
    let mut scene = Scene::new();
    scene.create("t");
    assert_eq!(scene.at(60_999).create("t"), "created 1");
    assert_eq!(scene.at(61_000).create("t"), "exists");
}

#[test]
fn answers_are_remembered_in_a_bounded_number_and_the_oldest_go_first() {
    let mut scene = Scene::with(&[("ended", 2)]);
    for key in ["a", "b", "c"] {
        scene.create(key);
    }
    assert_eq!(scene.create("c"), "created 3");
    assert_eq!(scene.create("b"), "created 2");
    assert_eq!(scene.create("a"), "exists");
    assert_eq!(scene.create("b"), "exists");
    // Ended ids of locks are counted apart.
    assert_eq!(scene.stats().ended, 0);
}

#[test]
fn a_repeated_claim_gives_the_same_claim_with_the_lease_that_is_left() {
    let mut scene = Scene::new();
    scene.create_as(Create { body: Some(text_body("b")), ..new_task("t") });
    scene.create("u");
    let first = "claimed t version 3 token 3 attempts 0 lease 60000 waited 0 bytes b";
    assert_eq!(scene.claim("w"), first);
    assert_eq!(
        scene.at(2_000).claim("w"),
        "claimed t version 3 token 3 attempts 0 lease 59000 waited 0 bytes b"
    );
    // The wait is not content.
    assert_eq!(
        scene.claim_wait("w", 9_000),
        "claimed t version 3 token 3 attempts 0 lease 59000 waited 0 bytes b"
    );
    assert_eq!(scene.claim_as("w", named("w", "t")), "error IdReused");
    assert_eq!(scene.counts().ready, 1);
}

#[test]
fn a_repeated_claim_has_ended_once_the_task_was_written_freed_or_deleted() {
    let play = |what: &str| {
        let mut scene = Scene::new();
        scene.create("t");
        scene.claim_as("w", Claim { lease_ms: 5_000, ..any("w") });
        match what {
            "update" => scene.update("t", 2),
            "finish" => scene.finish("t", 2),
            "put back" => scene.put_back("t", 2),
            "delete" => scene.delete("d", "t", None),
            "lapse" => scene.at(6_000).tick(),
            "claimed by another" => scene.at(6_000).claim("v"),
            _ => unreachable!(),
        };
        scene.claim_as("w", Claim { lease_ms: 5_000, ..any("w") })
    };
    for what in ["update", "finish", "put back", "delete", "lapse", "claimed by another"] {
        assert_eq!(play(what), "ended", "{what}");
    }
}

#[test]
fn claims_that_got_nothing_are_not_remembered() {
    let mut scene = Scene::new();
    assert_eq!(scene.claim("w"), "nothing");
    scene.create("t");
    assert!(scene.claim("w").starts_with("claimed t"));
    // Nor those that were refused with an error.
    assert_eq!(scene.task("e", TaskAction::Create(new_task(""))), "error Empty(TaskKey)");
    assert_eq!(scene.task("e", TaskAction::Create(new_task("u"))), "created 3");
}

#[test]
fn a_claim_served_from_the_queue_is_remembered_like_one_served_at_once() {
    let mut scene = Scene::new();
    scene.claim_wait("w", 9_000);
    scene.at(1_500).create("t");
    assert_eq!(
        scene.at(2_500).claim_wait("w", 9_000),
        "claimed t version 2 token 2 attempts 0 lease 59000 waited 0"
    );
    scene.finish("t", 2);
    assert_eq!(scene.claim_wait("w", 9_000), "ended");
}

#[test]
fn what_is_shown_and_the_principal_are_not_content_but_an_explicit_owner_is() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.claim_as("w", Claim { party: Party::client("10.0.0.1"), ..any("w") });
    let again = |party| Claim { party, ..any("w") };
    assert!(scene.claim_as("w", again(Party::client("10.0.0.2"))).starts_with("claimed"));
    let principal = Party { principal: Some("pat".into()), ..Party::client("x") };
    assert!(scene.claim_as("w", again(principal)).starts_with("claimed"));
    assert_eq!(scene.claim_as("w", again(Party::owner("10.0.0.1"))), "error IdReused");
    scene.create("u");
    scene.claim_as("v", Claim { party: Party::owner("ann"), ..any("v") });
    assert_eq!(
        scene.claim_as("v", Claim { party: Party::owner("bob"), ..any("v") }),
        "error IdReused"
    );
}
