//! Keys with a value: the Redis subset.

use crate::common::{Ask, Scene, ask, resource};
use keylatch_table::{Answer, Command, KeyHolder, Keyed, KeyedOp, Query};

/// What `SET key value NX` asks for.
fn set(id: &str, key: &str, value: &str) -> Ask {
    ask(id, &format!("X {key}")).value(value)
}

fn keyed(keys: &[&str], value: Option<&str>, all: bool, op: KeyedOp) -> Command {
    Command::Keyed(Keyed {
        keys: keys.iter().map(|key| resource(key)).collect(),
        value: value.map(|value| value.as_bytes().into()),
        all,
        op,
    })
}

/// On any keys with any value.
fn on(keys: &[&str], op: KeyedOp) -> Command {
    keyed(keys, None, false, op)
}

fn left(scene: &Scene, key: &str) -> Option<u64> {
    match scene.query(&Query::Key(resource(key))) {
        Answer::Key(Some(holder)) => holder.lease_ms,
        other => panic!("not held: {other:?}"),
    }
}

#[test]
fn a_key_matches_is_other_or_is_absent() {
    let mut scene = Scene::new();
    scene.ask(set("a", "a", "v"));
    scene.ask(set("b", "b", "w"));
    scene.ask(ask("native", "X n"));
    scene.ask(ask("shared", "S s").value("v"));
    scene.ask(ask("two", "X t & X u").value("v"));
    let keys = ["a", "b", "n", "s", "t", "z"];
    let check = |value| keyed(&keys, value, true, KeyedOp::Delete);
    assert_eq!(scene.say(check(Some("v"))), "matched 1 other 4 absent 1");
    assert_eq!(scene.say(check(None)), "matched 2 other 3 absent 1");
    assert_eq!(scene.stats().held, 5);
    assert_eq!(
        scene.say(keyed(&keys, Some("v"), false, KeyedOp::Delete)),
        "matched 1 other 4 absent 1"
    );
    assert_eq!(scene.holders(), ["b", "native", "shared", "two"]);
}

#[test]
fn each_key_counts_once() {
    let mut scene = Scene::new();
    scene.ask(set("a", "a", "v"));
    scene.ask(ask("n", "X n"));
    let keys = ["a", "n", "z", "z", "n", "a"];
    assert_eq!(scene.say(keyed(&keys, None, true, KeyedOp::Delete)), "matched 1 other 1 absent 1");
}

#[test]
fn a_waiter_with_a_value_does_not_match() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X k"));
    scene.ask(set("w", "k", "v").wait(9_000));
    assert_eq!(scene.say(on(&["k"], KeyedOp::Delete)), "matched 0 other 1 absent 0");
    assert_eq!(scene.everyone(), ["h", "w"]);
}

#[test]
fn with_all_nothing_is_done_unless_every_key_matches() {
    let mut scene = Scene::new();
    scene.ask(set("a", "a", "v"));
    scene.ask(set("b", "b", "v"));
    let delete = |keys: &[&str]| keyed(keys, Some("v"), true, KeyedOp::Delete);
    assert_eq!(scene.say(delete(&["a", "b", "c"])), "matched 2 other 0 absent 1");
    scene.ask(ask("c", "S c"));
    assert_eq!(scene.say(delete(&["a", "b", "c"])), "matched 2 other 1 absent 0");
    assert_eq!(scene.holders(), ["a", "b", "c"]);
    assert_eq!(scene.say(delete(&["a", "b"])), "matched 2 other 0 absent 0");
    assert_eq!(scene.holders(), ["c"]);
    assert_eq!(scene.say(delete(&[])), "matched 0 other 0 absent 0");
}

#[test]
fn delete_releases_and_hands_over() {
    let mut scene = Scene::new();
    scene.ask(set("a", "k", "v"));
    scene.ask(ask("w", "X k").wait(9_000));
    assert_eq!(scene.at(1_200).say(on(&["k", "k"], KeyedOp::Delete)), "matched 1 other 0 absent 0");
    assert_eq!(scene.events(), ["granted w token 2 lease 30000 waited 200"]);
    assert_eq!(scene.release("a"), "released");
    assert_eq!(scene.ask(set("a", "k", "v")), "ended released");
}

#[test]
fn expire_sets_the_lease_exactly_and_zero_releases() {
    let mut scene = Scene::new();
    scene.ask(set("a", "k", "v"));
    scene.at(2_000).say(on(&["k"], KeyedOp::Expire(500)));
    assert_eq!(left(&scene, "k"), Some(500));
    scene.say(on(&["k"], KeyedOp::Expire(90_000)));
    assert_eq!(left(&scene, "k"), Some(90_000));
    scene.ask(set("b", "j", "v").lease(0));
    scene.say(on(&["j"], KeyedOp::Expire(500)));
    assert_eq!(left(&scene, "j"), Some(500));
    assert_eq!(scene.say(on(&["k"], KeyedOp::Expire(0))), "matched 1 other 0 absent 0");
    assert_eq!(scene.holders(), ["b"]);
    assert_eq!(scene.release("a"), "released");
    scene.at(2_500).tick();
    assert_eq!(scene.events(), ["lost b token 2 expired [2 b: X j]"]);
}

#[test]
fn extend_adds_to_the_end_of_the_lease() {
    let mut scene = Scene::new();
    scene.ask(set("a", "k", "v").lease(5_000));
    scene.at(3_000).say(on(&["k"], KeyedOp::Extend(1_000)));
    assert_eq!(left(&scene, "k"), Some(4_000));
    // A key named twice is acted on once.
    scene.say(on(&["k", "k"], KeyedOp::Extend(1_000)));
    assert_eq!(left(&scene, "k"), Some(5_000));
    scene.say(on(&["k"], KeyedOp::Extend(0)));
    assert_eq!(left(&scene, "k"), Some(5_000));
    scene.ask(set("b", "j", "v").lease(0));
    assert_eq!(scene.say(on(&["j"], KeyedOp::Extend(1_000))), "matched 1 other 0 absent 0");
    assert_eq!(left(&scene, "j"), None);
}

#[test]
fn neither_goes_beyond_the_longest_hold() {
    let mut scene = Scene::new();
    scene.ask(set("a", "k", "v").lease(5_000).max_hold(8_000));
    scene.at(2_000).say(on(&["k"], KeyedOp::Expire(9_000)));
    assert_eq!(left(&scene, "k"), Some(7_000));
    scene.say(on(&["k"], KeyedOp::Expire(6_999)));
    assert_eq!(left(&scene, "k"), Some(6_999));
    scene.say(on(&["k"], KeyedOp::Extend(2)));
    assert_eq!(left(&scene, "k"), Some(7_000));
}

#[test]
fn only_the_keys_that_match_are_acted_on() {
    let mut scene = Scene::new();
    scene.ask(set("a", "a", "v"));
    scene.ask(set("b", "b", "w"));
    scene.ask(ask("n", "X n"));
    let expire = keyed(&["a", "b", "n"], Some("v"), false, KeyedOp::Expire(100));
    assert_eq!(scene.say(expire), "matched 1 other 2 absent 0");
    assert_eq!((left(&scene, "a"), left(&scene, "b")), (Some(100), Some(30_000)));
    assert_eq!(left(&scene, "n"), Some(30_000));
}

#[test]
fn a_key_has_no_fields_and_bounds_hold() {
    let mut scene = Scene::new();
    assert_eq!(scene.say(on(&["k(1)"], KeyedOp::Delete)), "error KeyWithFields");
    assert_eq!(scene.say(on(&["a", "k(@)"], KeyedOp::Expire(1))), "error KeyWithFields");
    let long = "k".repeat(513);
    assert_eq!(scene.say(on(&[&long], KeyedOp::Delete)), "error TooLong(Name, 512)");
    let value = "v".repeat(1_025);
    let with = |value: &str| keyed(&["k"], Some(value), false, KeyedOp::Delete);
    assert_eq!(scene.say(with(&value)), "error TooLong(Value, 1024)");
    assert_eq!(scene.say(with(&value[1..])), "matched 0 other 0 absent 1");
    let most = 2_419_200_000;
    for op in [KeyedOp::Expire, KeyedOp::Extend] {
        let error = format!("error TooLong(Lease, {most})");
        assert_eq!(scene.say(on(&["k"], op(most + 1))), error);
        assert_eq!(scene.say(on(&["k"], op(most))), "matched 0 other 0 absent 1");
    }
}

#[test]
fn the_holder_of_a_key_can_be_read() {
    let mut scene = Scene::new();
    let read = |scene: &Scene, key: &str| scene.query(&Query::Key(resource(key)));
    assert_eq!(read(&scene, "k"), Answer::Key(None));
    scene.ask(set("a", "k", "v"));
    let holder = |token, lease_ms, value: Option<&str>| {
        let value = value.map(|value| value.as_bytes().into());
        Answer::Key(Some(KeyHolder { token, lease_ms, value }))
    };
    scene.at(1_500);
    assert_eq!(read(&scene, "k"), holder(1, Some(29_500), Some("v")));
    scene.ask(ask("n", "S n").lease(0).value("not shown: it is no X lock"));
    scene.ask(ask("n2", "S n"));
    assert_eq!(read(&scene, "n"), holder(2, None, None));
}

#[test]
fn a_lock_on_the_same_name_with_fields_is_not_the_key() {
    let mut scene = Scene::new();
    scene.ask(set("a", "k(1)", "v"));
    assert_eq!(scene.say(on(&["k"], KeyedOp::Delete)), "matched 0 other 0 absent 1");
}
