//! Several resources in one request: all or nothing.

use crate::common::{Scene, ask};

#[test]
fn all_resources_are_granted_under_one_token_and_one_lease() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(ask("a", "X k & S t(1) & E j")), "granted token 1 lease 30000 waited 0");
    let entries = scene.entries_of("a");
    let shown: Vec<String> = entries
        .iter()
        .map(|e| format!("{} {} {} {}", e.seq, e.token, e.mode.letter(), e.resource))
        .collect();
    assert_eq!(shown, ["1 1 X k", "1 1 S t(1)", "1 1 E j"]);
    assert_eq!(scene.stats().held, 1);
    scene.at(31_000).tick();
    assert_eq!(scene.events(), ["lost a token 1 expired [1 a: X k & S t(1) & E j]"]);
    assert_eq!(scene.stats().resources, 0);
}

#[test]
fn no_partial_hold_exists_while_it_waits_but_it_has_its_place_on_all() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X a"));
    assert_eq!(
        scene.ask(ask("both", "X b & X a").wait(9_000)),
        "waiting: h X held token 1 since 0 left 30000"
    );
    assert_eq!(scene.holders(), ["h"]);
    assert_eq!(scene.ask(ask("b", "S b")), "busy: both X waiting token 0 since 0 left 9000");
    scene.ask(ask("b", "S b").wait(9_000));
    scene.release("h");
    assert_eq!(scene.granted(), ["both"]);
    scene.release("both");
    assert_eq!(scene.granted(), ["b"]);
}

#[test]
fn every_resource_must_be_free_before_it_is_granted() {
    let mut scene = Scene::new();
    for key in ["a", "b", "c"] {
        scene.ask(ask(key, &format!("X {key}")));
    }
    scene.ask(ask("all", "X a & X b & X c").wait(9_000));
    scene.release("b");
    scene.release("a");
    assert_eq!(scene.granted(), [""; 0]);
    scene.release("c");
    assert_eq!(scene.granted(), ["all"]);
}

#[test]
fn all_of_them_are_optimistic_or_none_is() {
    let mut scene = Scene::new();
    for wanted in ["O a & S b", "X a & O b", "S a & O b & S c"] {
        assert_eq!(scene.ask(ask("a", wanted)), "error MixedOptimistic", "{wanted}");
    }
    assert_eq!(scene.ask(ask("a", "O a & O b")), "granted token 1 lease 30000 waited 0");
    assert_eq!(scene.ask(ask("b", "S c & E d & X e")), "granted token 2 lease 30000 waited 0");
}

#[test]
fn resources_of_one_request_that_overlap_each_other_are_an_error() {
    let mut scene = Scene::new();
    for wanted in ["X k & X k", "S k & S k", "X t(1,@) & X t(@,2)", "S a & S t(1) & S t(@)"] {
        assert_eq!(scene.ask(ask("a", wanted)), "error PartsOverlap", "{wanted}");
    }
    assert_eq!(
        scene.ask(ask("a", "X t(1,@) & X t(2,@) & X t")),
        "granted token 1 lease 30000 waited 0"
    );
}

#[test]
fn superseding_drops_all_of_it() {
    let mut scene = Scene::new();
    scene.ask(ask("o1", "O a"));
    scene.ask(ask("o2", "O b & O a & O c"));
    scene.ask(ask("x", "X c").wait(9_000));
    scene.promote("o1");
    assert_eq!(
        scene.events(),
        [
            "lost o2 token 2 superseded (o1) [2 o2: O b & O a & O c]",
            "granted x token 4 lease 30000 waited 0",
        ]
    );
    assert_eq!(scene.holders(), ["o1", "x"]);
}

#[test]
fn a_request_never_blocks_itself() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X t(1)"));
    scene.ask(ask("w", "X t(1) & X t(2) & S u").wait(9_000));
    scene.release("h");
    assert_eq!(scene.granted(), ["w"]);
    assert_eq!(
        scene.ask(ask("w", "X t(1) & X t(2) & S u").wait(9_000)),
        "granted token 2 lease 30000 waited 0"
    );
}

#[test]
fn a_token_is_larger_than_those_of_all_earlier_grants_whatever_they_were_for() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(ask("a", "X a")), "granted token 1 lease 30000 waited 0");
    assert_eq!(scene.ask(ask("b", "X b")), "granted token 2 lease 30000 waited 0");
    scene.release("a");
    assert_eq!(scene.ask(ask("c", "X a")), "granted token 3 lease 30000 waited 0");
    assert_eq!(scene.create("t"), "created 4");
    assert_eq!(scene.ask(ask("d", "O d")), "granted token 5 lease 30000 waited 0");
    assert_eq!(scene.promote("d"), "promoted token 6 lease 30000 waited 0");
    assert_eq!(scene.claim("w"), "claimed t version 7 token 7 attempts 0 lease 60000 waited 0");
    assert_eq!(scene.ask(ask("e", "X e")), "granted token 8 lease 30000 waited 0");
}
