//! Bounds of tasks: what is just allowed, and what is one too many.

use crate::common::Scene;
use crate::common::tasks::{any, checked, command, named, new_task, text_body};
use keylatch_table::{Claim, Create, Party, PutBack, TaskAction, TaskState};

#[test]
fn a_pool_and_a_key_must_be_there_and_not_too_long() {
    let mut scene = Scene::with(&[("task_key_bytes", 4)]);
    for (pool, key, reply) in [
        ("", "k", "error Empty(Pool)"),
        ("pool5", "k", "error TooLong(Pool, 4)"),
        ("pool", "", "error Empty(TaskKey)"),
        ("pool", "keyed", "error TooLong(TaskKey, 4)"),
    ] {
        for (id, action) in [
            ("1", TaskAction::Create(new_task(key))),
            ("2", TaskAction::Claim(named("w", key))),
            ("3", TaskAction::Update(checked(key, 1), None, None)),
            ("4", TaskAction::Finish(checked(key, 1))),
            ("5", TaskAction::PutBack(checked(key, 1), PutBack::default())),
            ("6", TaskAction::Delete(key.into(), None)),
            ("7", TaskAction::Retry(Some(key.into()))),
        ] {
            assert_eq!(scene.say(command(id, pool, action)), reply);
        }
    }
    assert_eq!(scene.say(command("8", "pool5", TaskAction::Retry(None))), "error TooLong(Pool, 4)");
    assert_eq!(scene.say(command("9", "pool", TaskAction::Create(new_task("keys")))), "created 1");
}

#[test]
fn ids_are_bounded_like_those_of_locks() {
    let mut scene = Scene::with(&[("id_bytes", 3)]);
    let create = || TaskAction::Create(new_task("t"));
    assert_eq!(scene.task("", create()), "error Empty(Id)");
    assert_eq!(scene.task("abcd", create()), "error TooLong(Id, 3)");
    assert_eq!(scene.task("abc", create()), "created 1");
}

#[test]
fn a_body_has_a_bound_in_create_and_update() {
    let mut scene = Scene::with(&[("task_body_bytes", 3)]);
    let create = |body: &str| Create { body: Some(text_body(body)), ..new_task("t") };
    assert_eq!(scene.create_as(create("abcd")), "error TooLong(TaskBody, 3)");
    assert_eq!(scene.create_as(create("abc")), "created 1");
    assert_eq!(scene.update_as("t", 1, Some("abcd"), None), "error TooLong(TaskBody, 3)");
    assert_eq!(scene.update_as("t", 1, Some("xyz"), None), "updated 2 lease none");
}

#[test]
fn an_error_text_has_a_bound() {
    let mut scene = Scene::with(&[("meta_bytes", 3)]);
    scene.create("t");
    let back = |error: &str| PutBack { delay_ms: 0, error: Some(error.into()) };
    assert_eq!(scene.put_back_as("t", 1, back("abcd")), "error TooLong(TaskError, 3)");
    assert_eq!(scene.entry("t").attempts, 0);
    assert_eq!(scene.put_back_as("t", 1, back("abc")), "put back 2 free attempts 1");
}

#[test]
fn lease_wait_and_delay_have_bounds() {
    let mut scene = Scene::with(&[("lease_ms", 3_000), ("wait_ms", 2_000)]);
    let create = |delay_ms| Create { delay_ms, ..new_task("t") };
    assert_eq!(scene.create_as(create(3_001)), "error TooLong(TaskDelay, 3000)");
    assert_eq!(scene.create_as(create(3_000)), "created 1");
    let claim = |wait_ms, lease_ms| Claim { wait_ms, lease_ms, ..any("w") };
    assert_eq!(scene.claim_as("w", claim(2_001, 3_000)), "error TooLong(Wait, 2000)");
    assert_eq!(scene.claim_as("w", claim(2_000, 3_001)), "error TooLong(Lease, 3000)");
    assert_eq!(scene.claim_as("w", claim(2_000, 3_000)), "waiting");
    assert_eq!(scene.claim_as("w", claim(2_001, 3_000)), "error TooLong(Wait, 2000)");
    assert_eq!(scene.update_as("t", 1, None, Some(3_001)), "error TooLong(Lease, 3000)");
    assert_eq!(scene.update_as("t", 1, None, Some(3_000)), "updated 2 lease none");
    let back = |delay_ms| PutBack { delay_ms, error: None };
    assert_eq!(scene.put_back_as("t", 2, back(3_001)), "error TooLong(TaskDelay, 3000)");
    assert_eq!(scene.put_back_as("t", 2, back(3_000)), "put back 3 free attempts 1");
    assert_eq!(scene.entry("t").due, 4_000);
}

#[test]
fn a_worker_is_bounded_like_an_owner() {
    let mut scene = Scene::with(&[("owner_bytes", 3)]);
    let claim = |party| Claim { party, ..any("") };
    assert_eq!(scene.claim_as("w", claim(Party::client("abcd"))), "error TooLong(Owner, 3)");
    assert_eq!(scene.claim_as("w", claim(Party::owner("abcd"))), "error TooLong(Owner, 3)");
    let principal = Party { principal: Some("abcd".into()), ..Party::owner("abc") };
    assert_eq!(scene.claim_as("w", claim(principal)), "error TooLong(Principal, 3)");
    assert_eq!(scene.claim_as("w", claim(Party::owner("abc"))), "nothing");
    assert_eq!(scene.claim_as("w", claim(Party::owner(""))), "error Empty(Owner)");
}

#[test]
fn waiting_claims_of_a_pool_have_a_bound() {
    let mut scene = Scene::with(&[("claims", 2)]);
    scene.claim_wait("1", 9_000);
    scene.claim_as("2", Claim { wait_ms: 9_000, ..named("2", "k") });
    assert_eq!(scene.claim_wait("3", 9_000), "error TooMany(Claims, 2)");
    assert_eq!(scene.claim("3"), "nothing");
    let elsewhere = Claim { wait_ms: 9_000, ..any("3") };
    assert_eq!(scene.say(command("4", "other", TaskAction::Claim(elsewhere))), "waiting");
    scene.task("1", TaskAction::Cancel);
    assert_eq!(scene.claim_wait("3", 9_000), "waiting");
}

#[test]
fn the_bytes_of_a_task_are_its_texts_and_two_hundred() {
    let mut scene = Scene::new();
    scene.create_as(Create { body: Some(text_body("body!")), ..new_task("key") });
    assert_eq!(scene.stats().task_bytes, 200 + 4 + 3 + 5);
    scene.put_back_as("key", 1, PutBack { delay_ms: 0, error: Some("error.".into()) });
    assert_eq!(scene.stats().task_bytes, 200 + 4 + 3 + 5 + 6);
    scene.update_as("key", 2, Some("b"), None);
    assert_eq!(scene.stats().task_bytes, 200 + 4 + 3 + 1 + 6);
    scene.delete("d", "key", None);
    assert_eq!(scene.stats().task_bytes, 0);
}

#[test]
fn a_create_that_would_exceed_the_bytes_of_all_is_refused_and_takes_no_number() {
    let mut scene = Scene::with(&[("task_bytes", 415)]);
    let create = |key: &str, body: &str| Create { body: Some(text_body(body)), ..new_task(key) };
    assert_eq!(scene.create_as(create("a", "12")), "created 1");
    assert_eq!(scene.create_as(create("b", "1234")), "error TooMany(TaskBytes, 415)");
    assert_eq!((scene.stats().tasks, scene.stats().token), (1, 1));
    assert_eq!(scene.create_as(create("b", "123")), "created 2");
    assert_eq!((scene.stats().task_bytes, scene.entry("b").number), (415, 2));
}

#[test]
fn an_update_that_would_exceed_them_is_refused_and_a_smaller_body_never_is() {
    let mut scene = Scene::with(&[("task_bytes", 210)]);
    scene.create_as(Create { body: Some(text_body("123")), ..new_task("t") });
    assert_eq!(scene.stats().task_bytes, 208);
    assert_eq!(scene.update_as("t", 1, Some("123456"), None), "error TooMany(TaskBytes, 210)");
    assert_eq!(scene.entry("t").version, 1);
    assert_eq!(scene.update_as("t", 1, Some("12345"), None), "updated 2 lease none");
    scene.set(&[("task_bytes", 1)]);
    assert_eq!(scene.update_as("t", 2, Some("54321"), None), "updated 3 lease none");
    assert_eq!(scene.update_as("t", 3, Some("1234"), None), "updated 4 lease none");
    assert_eq!(scene.update_as("t", 4, None, None), "updated 5 lease none");
    assert_eq!(scene.update_as("t", 5, Some("54321"), None), "error TooMany(TaskBytes, 1)");
}

#[test]
fn a_put_back_keeps_as_much_of_the_error_as_fits() {
    let mut scene = Scene::with(&[("task_bytes", 208)]);
    scene.create("t");
    let back = |error: &str| PutBack { delay_ms: 0, error: Some(error.into()) };
    assert_eq!(scene.put_back_as("t", 1, back("abcdef")), "put back 2 free attempts 1");
    assert_eq!(scene.entry("t").error.as_deref(), Some("abc"));
    assert_eq!(scene.stats().task_bytes, 208);
    // The error that it replaces makes room; a character is kept whole or not at all.
    scene.put_back_as("t", 2, back("xéz"));
    assert_eq!(scene.entry("t").error.as_deref(), Some("xé"));
    scene.put_back_as("t", 3, back("xyé"));
    assert_eq!(scene.entry("t").error.as_deref(), Some("xy"));
    // Nothing fits, and it is put back all the same.
    scene.set(&[("task_bytes", 1)]);
    assert_eq!(scene.put_back_as("t", 4, back("long")), "put back 5 free attempts 4");
    assert_eq!(scene.entry("t").error.as_deref(), Some(""));
}

#[test]
fn an_unbounded_number_of_bytes_is_no_trouble() {
    let mut scene = Scene::with(&[("task_bytes", u64::MAX)]);
    scene.create("t");
    let back = |error: &str| PutBack { delay_ms: 0, error: Some(error.into()) };
    scene.put_back_as("t", 1, back("first"));
    assert_eq!(scene.put_back_as("t", 2, back("second")), "put back 3 free attempts 2");
    assert_eq!(scene.entry("t").state, TaskState::Free);
    assert_eq!(scene.entry("t").error.as_deref(), Some("second"));
}
