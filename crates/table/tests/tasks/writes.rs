//! Update, finish, put back, delete, retry: all check only the version, and each write changes it.

use crate::common::Scene;
use crate::common::tasks::{any, named, new_task, text_body};
use keylatch_table::{Claim, Create, PutBack, TaskState};

/// A task `t` claimed by `w` for 500 ms, at version 2.
fn claimed() -> Scene {
    let mut scene = Scene::new();
    scene.create_as(Create { body: Some(text_body("old")), ..new_task("t") });
    scene.claim_as("w", Claim { lease_ms: 500, ..any("w") });
    scene
}

fn body(scene: &Scene) -> String {
    String::from_utf8(scene.entry("t").body.unwrap().bytes.to_vec()).unwrap()
}

#[test]
fn an_update_renews_and_may_replace_the_body() {
    let mut scene = claimed();
    assert_eq!(scene.at(1_200).update("t", 2), "updated 3 lease 500");
    assert_eq!((body(&scene).as_str(), scene.entry("t").lease_ms), ("old", Some(500)));
    assert_eq!(scene.update_as("t", 3, Some("new"), Some(2_000)), "updated 4 lease 2000");
    assert_eq!((body(&scene).as_str(), scene.entry("t").lease_ms), ("new", Some(2_000)));
    // The lease of the claim again; this may be shorter than before.
    assert_eq!(scene.at(1_300).update("t", 4), "updated 5 lease 500");
    scene.at(1_799).tick();
    assert!(scene.events().is_empty());
    scene.at(1_800).tick();
    assert_eq!(scene.events(), ["pool: lapsed w t token 2"]);
}

#[test]
fn an_update_to_no_lease_and_back() {
    let mut scene = claimed();
    assert_eq!(scene.update_as("t", 2, None, Some(0)), "updated 3 lease none");
    scene.at(1 << 40).tick();
    assert_eq!(scene.entry("t").state, TaskState::Claimed);
    assert_eq!(scene.update_as("t", 3, None, Some(700)), "updated 4 lease 700");
    assert_eq!(scene.entry("t").token, 2);
}

#[test]
fn an_update_of_what_nobody_claimed_replaces_the_body_and_leaves_the_state() {
    let mut scene = Scene::new();
    scene.create_as(Create { body: Some(text_body("old")), ..new_task("t") });
    assert_eq!(scene.update_as("t", 1, Some("new"), Some(500)), "updated 2 lease none");
    assert_eq!((scene.entry("t").state, body(&scene).as_str()), (TaskState::Free, "new"));
    scene.claim("w");
    scene.put_back("t", 3);
    assert_eq!(scene.update_as("t", 4, Some("newer"), None), "updated 5 lease none");
    assert_eq!((scene.entry("t").state, body(&scene).as_str()), (TaskState::Free, "newer"));
    scene.finish("t", 5);
    assert_eq!(scene.update_as("t", 6, Some("newest"), None), "updated 7 lease none");
    assert_eq!((scene.entry("t").state, body(&scene).as_str()), (TaskState::Done, "newest"));
}

#[test]
fn an_update_leaves_a_delay_as_it_is() {
    let mut scene = Scene::new();
    scene.create_as(Create { delay_ms: 500, ..new_task("t") });
    scene.update("t", 1);
    assert_eq!(scene.at(1_499).claim("w"), "nothing");
    assert_eq!(scene.entry("t").due, 1_500);
    assert!(scene.at(1_500).claim("w").starts_with("claimed t version 3"));
}

#[test]
fn an_update_after_the_lease_ran_out_succeeds_if_nobody_claimed_since() {
    let mut scene = claimed();
    scene.at(1_500).tick();
    let lapsed = scene.entry("t");
    assert_eq!((lapsed.state, lapsed.version), (TaskState::Free, 2));
    assert_eq!(scene.at(2_000).update("t", 2), "updated 3 lease 500");
    let entry = scene.entry("t");
    assert_eq!((entry.state, entry.lease_ms, entry.token), (TaskState::Claimed, Some(500), 2));
    assert_eq!(scene.claim("v"), "nothing");
    // Also in the step in which the lease ends.
    assert_eq!(scene.at(2_500).update("t", 3), "updated 4 lease 500");
    assert_eq!(scene.events(), ["pool: lapsed w t token 2"]);
}

#[test]
fn an_update_after_the_lease_ran_out_is_stale_if_somebody_claimed_since() {
    let mut scene = claimed();
    assert!(scene.at(1_500).claim("v").starts_with("claimed t version 3"));
    let before = scene.table.state_hash();
    let stale = scene.update_as("t", 2, Some("mine"), None);
    assert_eq!(stale, "stale 3");
    assert_eq!(body(&scene), "old");
    assert_ne!(scene.table.state_hash(), before, "only the answer is remembered");
    assert_eq!(scene.finish("t", 2), "stale 3");
    assert_eq!(scene.put_back("t", 2), "stale 3");
    assert_eq!(scene.entry("t").state, TaskState::Claimed);
    // Even if that one has put it back, or let its lease run out.
    scene.put_back("t", 3);
    assert_eq!(scene.task_update_again(2), "stale 4");
}

impl Scene {
    /// An update with an id of its own.
    fn task_update_again(&mut self, version: u64) -> String {
        let checked = crate::common::tasks::checked("t", version);
        self.task("again", keylatch_table::TaskAction::Update(checked, None, None))
    }
}

#[test]
fn a_lapsed_claim_that_waits_for_nobody_goes_to_a_waiting_claim_first() {
    let mut scene = claimed();
    scene.claim_wait("v", 9_000);
    assert_eq!(scene.at(1_500).update("t", 2), "stale 3");
    assert_eq!(
        scene.events(),
        [
            "pool: lapsed w t token 2",
            "pool: claimed by v t version 3 token 3 attempts 0 lease 60000 waited 500 bytes old",
        ]
    );
}

#[test]
fn finish_and_put_back_also_succeed_after_the_lease_ran_out() {
    let mut scene = claimed();
    scene.at(1_600).tick();
    assert_eq!(scene.finish("t", 2), "finished 3");
    let mut scene = claimed();
    scene.at(1_600).tick();
    assert_eq!(scene.put_back("t", 2), "put back 3 free attempts 1");
    // Put back, it is nobody's: an update leaves it free.
    assert_eq!(scene.update("t", 3), "updated 4 lease none");
    assert_eq!(scene.entry("t").state, TaskState::Free);
}

#[test]
fn they_check_only_the_version_not_the_state() {
    let mut scene = Scene::new();
    scene.create("t");
    assert_eq!(scene.put_back("t", 1), "put back 2 free attempts 1");
    assert_eq!(scene.finish("t", 2), "finished 3");
    assert_eq!(scene.finish("t", 3), "finished 4");
    assert_eq!(scene.finish("t", 3), "finished 4");
    assert_eq!(scene.counts().done, 1);
    scene.create_as(Create { attempts: Some(1), ..new_task("f") });
    scene.put_back("f", 5);
    assert_eq!(scene.finish("f", 6), "finished 7");
    assert_eq!((scene.counts().done, scene.counts().failed), (2, 0));
}

#[test]
fn what_is_not_there_is_not_found() {
    let mut scene = Scene::new();
    assert_eq!(scene.update("t", 1), "not found");
    assert_eq!(scene.finish("t", 1), "not found");
    assert_eq!(scene.put_back("t", 1), "not found");
    assert_eq!(scene.delete("d", "t", None), "not found");
    assert_eq!(scene.delete("e", "t", Some(1)), "not found");
    assert_eq!(scene.stats().token, 0);
}

#[test]
fn a_put_back_frees_at_once_or_after_a_delay_and_keeps_the_last_error() {
    let mut scene = claimed();
    let failed = PutBack { delay_ms: 0, error: Some("first".into()) };
    assert_eq!(scene.put_back_as("t", 2, failed), "put back 3 free attempts 1");
    let entry = scene.entry("t");
    assert_eq!((entry.due, entry.error.as_deref(), entry.attempts), (1_000, Some("first"), 1));
    let later = PutBack { delay_ms: 500, error: None };
    assert_eq!(scene.at(1_100).put_back_as("t", 3, later), "put back 4 free attempts 2");
    let entry = scene.entry("t");
    assert_eq!((entry.due, entry.error.as_deref(), entry.attempts), (1_600, Some("first"), 2));
    assert_eq!(scene.at(1_599).claim("v"), "nothing");
    assert!(scene.at(1_600).claim("v").starts_with("claimed t version 5 token 5 attempts 2"));
    let empty = PutBack { delay_ms: 0, error: Some("".into()) };
    scene.put_back_as("t", 5, empty);
    assert_eq!(scene.entry("t").error.as_deref(), Some(""));
}

#[test]
fn at_the_maximum_of_attempts_a_task_is_failed() {
    let mut scene = Scene::with(&[("task_attempts", 2)]);
    scene.create("t");
    assert_eq!(scene.put_back("t", 1), "put back 2 free attempts 1");
    assert_eq!(scene.put_back("t", 2), "put back 3 failed attempts 2");
    assert_eq!(scene.entry("t").state, TaskState::Failed);
    assert_eq!(scene.claim("w"), "nothing");
    // A number of its own goes before the setting; 0 is never, in either.
    scene.create_as(Create { attempts: Some(1), ..new_task("one") });
    assert_eq!(scene.put_back("one", 4), "put back 5 failed attempts 1");
    scene.create_as(Create { attempts: Some(0), ..new_task("ever") });
    for version in 6..10 {
        let attempts = version - 5;
        let back = format!("put back {} free attempts {attempts}", version + 1);
        assert_eq!(scene.put_back("ever", version), back);
    }
    let mut scene = Scene::with(&[("task_attempts", 0)]);
    scene.create("t");
    for version in 1..30 {
        assert!(scene.put_back("t", version).contains("free"));
    }
}

#[test]
fn a_failed_task_is_not_put_back() {
    let mut scene = Scene::with(&[("task_attempts", 1)]);
    scene.create("t");
    scene.put_back("t", 1);
    assert_eq!(scene.put_back("t", 1), "put back 2 failed attempts 1");
    assert_eq!(scene.put_back("t", 2), "refused failed");
    let entry = scene.entry("t");
    assert_eq!((entry.version, entry.attempts, scene.stats().token), (2, 1, 2));
}

#[test]
fn the_default_maximum_is_twenty_five() {
    let mut scene = Scene::new();
    scene.create("t");
    for version in 1..25 {
        assert!(scene.put_back("t", version).contains("free"));
    }
    assert_eq!(scene.put_back("t", 25), "put back 26 failed attempts 25");
}

#[test]
fn only_a_put_back_counts_an_attempt() {
    let mut scene = claimed();
    scene.at(1_600).tick();
    scene.claim("v");
    scene.update("t", 3);
    assert_eq!(scene.entry("t").attempts, 0);
}

#[test]
fn retry_frees_failed_tasks_with_their_attempts_at_zero_in_the_order_of_their_numbers() {
    let mut scene = Scene::with(&[("task_attempts", 1)]);
    for key in ["c", "a", "b", "free"] {
        scene.create(key);
    }
    for (key, version) in [("b", 3), ("a", 2), ("c", 1)] {
        let back = PutBack { delay_ms: 9_000, error: Some("no".into()) };
        scene.put_back_as(key, version, back);
    }
    assert_eq!(scene.at(2_000).retry("one", Some("a")), "retried 1");
    let a = scene.entry("a");
    assert_eq!((a.state, a.version, a.attempts, a.due), (TaskState::Free, 8, 0, 2_000));
    assert_eq!(a.error.as_deref(), Some("no"));
    assert_eq!(scene.retry("all", None), "retried 2");
    assert_eq!((scene.entry("c").version, scene.entry("b").version), (9, 10));
    assert_eq!(scene.entry("free").version, 4);
    assert_eq!(scene.retry("none", None), "retried 0");
    assert_eq!(scene.retry("unknown", Some("z")), "retried 0");
    assert_eq!((scene.counts().ready, scene.counts().failed), (4, 0));
}

#[test]
fn a_retried_task_goes_to_whoever_waits() {
    let mut scene = Scene::with(&[("task_attempts", 1)]);
    scene.create("t");
    scene.put_back("t", 1);
    scene.claim_wait("w", 9_000);
    scene.at(1_100).retry("r", None);
    assert_eq!(
        scene.events(),
        ["pool: claimed by w t version 4 token 4 attempts 0 lease 60000 waited 100"]
    );
}

#[test]
fn delete_removes_in_any_state_if_the_version_matches_or_none_is_given() {
    let mut scene = claimed();
    assert_eq!(scene.delete("1", "t", Some(1)), "stale 2");
    assert_eq!(scene.delete("2", "t", Some(2)), "deleted");
    assert!(scene.events().is_empty());
    assert_eq!(scene.update("t", 2), "not found");
    scene.at(9_000).tick();
    assert!(scene.events().is_empty());
    for state in ["free", "delayed", "claimed", "done", "failed"] {
        let mut scene = Scene::with(&[("task_attempts", 1)]);
        let delay_ms = if state == "delayed" { 500 } else { 0 };
        scene.create_as(Create { delay_ms, ..new_task("t") });
        match state {
            "claimed" => scene.claim("w"),
            "done" => scene.finish("t", 1),
            "failed" => scene.put_back("t", 1),
            _ => String::new(),
        };
        assert_eq!(scene.delete("d", "t", None), "deleted", "{state}");
        assert_eq!((scene.stats().tasks, scene.stats().task_bytes), (0, 0), "{state}");
        assert_eq!(scene.pools(), []);
        // The next deadline may be early; once that time has come there is none.
        scene.at(scene.table.next_deadline().unwrap_or(1_000)).tick();
        assert!(scene.events().is_empty(), "{state}");
        assert_eq!(scene.table.next_deadline(), None, "{state}");
    }
}

#[test]
fn a_version_never_repeats_also_after_delete_and_create() {
    let mut scene = Scene::new();
    assert_eq!(scene.create("t"), "created 1");
    scene.claim("w");
    assert_eq!(scene.delete("d", "t", None), "deleted");
    assert_eq!(scene.stats().token, 2);
    let again = keylatch_table::TaskAction::Create(new_task("t"));
    assert_eq!(scene.task("again", again), "created 3");
    assert_eq!(scene.entry("t").number, 2);
    for version in [1, 2] {
        assert_eq!(scene.finish("t", version), "stale 3");
    }
    // And not after a table of locks in between.
    scene.ask(crate::common::ask("lock", "X k"));
    assert_eq!(scene.finish("t", 3), "finished 5");
}

#[test]
fn the_lapse_of_a_claim_is_not_a_write() {
    let mut scene = claimed();
    scene.at(1_500).tick();
    assert_eq!(scene.events(), ["pool: lapsed w t token 2"]);
    let entry = scene.entry("t");
    assert_eq!((entry.state, entry.version, entry.due), (TaskState::Free, 2, 1_500));
    assert_eq!((entry.owner.as_deref(), entry.token), (Some("w"), 2));
    assert_eq!((entry.attempts, entry.lease_ms), (0, None));
    assert_eq!(scene.stats().token, 2);
}

#[test]
fn finish_refuses_those_who_wait_for_that_task_and_so_does_failing() {
    let mut scene = Scene::with(&[("task_attempts", 1)]);
    scene.create("d");
    scene.create("f");
    scene.claim("w1");
    scene.claim("w2");
    for (id, key) in [("d1", "d"), ("f1", "f"), ("d2", "d")] {
        scene.claim_as(id, Claim { wait_ms: 9_000, ..named(id, key) });
    }
    scene.claim_wait("any", 9_000);
    scene.finish("d", 3);
    assert_eq!(scene.events(), ["pool: refused d1 done", "pool: refused d2 done"]);
    scene.put_back("f", 4);
    assert_eq!(scene.events(), ["pool: refused f1 failed"]);
    assert_eq!(scene.counts().waiting, 1);
}
