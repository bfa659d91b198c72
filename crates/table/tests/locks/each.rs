//! Several separate requests at once: all are granted now, or none is.

use crate::common::{Scene, ask};

#[test]
fn separate_locks_are_granted_together_in_order() {
    let mut scene = Scene::new();
    assert_eq!(
        scene.ask_each([ask("a", "X k"), ask("b", "S j & S i").lease(5_000), ask("c", "S j")]),
        "granted each [token 1 lease 30000 waited 0; token 2 lease 5000 waited 0; \
         token 3 lease 30000 waited 0]"
    );
    let seqs: Vec<u64> = ["a", "b", "c"].map(|id| scene.entries_of(id)[0].seq).into();
    assert_eq!(seqs, [1, 2, 3]);
    assert_eq!(scene.release("b"), "released");
    assert_eq!(scene.holders(), ["a", "c"]);
}

#[test]
fn if_one_is_not_free_none_is_granted_and_the_first_blocker_is_named() {
    let mut scene = Scene::new();
    scene.ask(ask("h1", "X b"));
    scene.ask(ask("h2", "X c"));
    assert_eq!(
        scene.ask_each([ask("1", "X a"), ask("2", "X c"), ask("3", "X b")]),
        "busy: h2 X held token 2 since 0 left 30000"
    );
    assert_eq!(scene.holders(), ["h1", "h2"]);
    assert_eq!((scene.stats().seq, scene.stats().token), (2, 2));
}

#[test]
fn an_empty_list_is_granted() {
    assert_eq!(Scene::new().ask_each([]), "granted each []");
}

#[test]
fn none_of_them_may_wait() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask_each([ask("1", "X a"), ask("2", "X b").wait(1)]), "error EachCannotWait");
    assert_eq!(scene.stats().held, 0);
}

#[test]
fn a_known_id_is_reused_if_live_and_ended_if_ended() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X a"));
    assert_eq!(scene.ask_each([ask("a", "X a")]), "error IdReused");
    scene.ask(ask("w", "X a").wait(9_000));
    assert_eq!(scene.ask_each([ask("w", "X z")]), "error IdReused");
    scene.cancel("w");
    scene.release("a");
    assert_eq!(scene.ask_each([ask("b", "X b"), ask("a", "X a")]), "ended released");
    // A waiter that was cancelled may ask again at any time, so its id is free here too.
    assert_eq!(scene.ask_each([ask("w", "X z")]), "granted each [token 2 lease 30000 waited 0]");
    assert_eq!(scene.ask_each([ask("d", "X d"), ask("d", "X e")]), "error IdReused");
}

#[test]
fn requests_that_conflict_with_each_other_overlap() {
    let mut scene = Scene::new();
    for (a, b) in [("X k", "X k"), ("S k", "X k"), ("X t(1)", "S t(@)"), ("O k", "S k")] {
        assert_eq!(scene.ask_each([ask("1", a), ask("2", b)]), "error PartsOverlap", "{a}, {b}");
    }
    assert_eq!(scene.ask_each([ask("1", "E k"), ask("2", "E k")]), "error PartsOverlap");
    assert_eq!(
        scene.ask_each([ask("1", "E k").owner("ann"), ask("2", "E k").owner("bob")]),
        "error PartsOverlap"
    );
    assert_eq!(
        scene.ask_each([ask("1", "E k").owner("ann"), ask("2", "E k").owner("ann")]),
        "granted each [token 1 lease 30000 waited 0; token 2 lease 30000 waited 0]"
    );
    assert_eq!(
        scene.ask_each([ask("3", "S j"), ask("4", "S j"), ask("5", "O i"), ask("6", "O i")]),
        "granted each [token 3 lease 30000 waited 0; token 4 lease 30000 waited 0; \
         token 5 lease 30000 waited 0; token 6 lease 30000 waited 0]"
    );
}

#[test]
fn each_is_checked_like_a_single_request() {
    let mut scene = Scene::new();
    let fine = || ask("fine", "X fine");
    let long = "i".repeat(65);
    assert_eq!(scene.ask_each([fine(), ask("", "X k")]), "error Empty(Id)");
    assert_eq!(scene.ask_each([fine(), ask(&long, "X k")]), "error TooLong(Id, 64)");
    assert_eq!(scene.ask_each([fine(), ask("a", "O k & S j")]), "error MixedOptimistic");
    assert_eq!(scene.ask_each([fine(), ask("a", "X k & S k")]), "error PartsOverlap");
    assert_eq!(scene.ask_each([fine(), ask("a", "X k").detect()]), "error DetectNeedsOwner");
    scene.ask(ask("live", "X live").alias("name"));
    assert_eq!(scene.ask_each([fine(), ask("a", "X k").alias("name")]), "error AliasInUse");
    assert_eq!(
        scene.ask_each([ask("a", "X a").alias("new"), ask("b", "X b").alias("new")]),
        "error AliasInUse"
    );
    assert_eq!(scene.holders(), ["live"]);
}

#[test]
fn bounds_count_the_requests_of_the_list_too() {
    let three = |scene: &mut Scene| {
        scene.ask_each(["1", "2", "3"].map(|id| ask(id, &format!("S t({id})")).owner("ann")))
    };
    let mut scene = Scene::with(&[("requests", 2)]);
    assert_eq!(three(&mut scene), "error TooMany(Requests, 2)");
    let mut scene = Scene::with(&[("requests_of_owner", 2)]);
    assert_eq!(three(&mut scene), "error TooMany(RequestsOfOwner, 2)");
    let mut scene = Scene::with(&[("requests_of_name", 2)]);
    assert_eq!(three(&mut scene), "error TooMany(RequestsOfName, 2)");
    let mut scene = Scene::with(&[("requests", 3), ("requests_of_owner", 3)]);
    assert!(three(&mut scene).starts_with("granted each"));
}

#[test]
fn they_obey_the_queue() {
    let mut scene = Scene::new();
    scene.ask(ask("s", "S k"));
    scene.ask(ask("w", "X k").wait(9_000));
    assert_eq!(scene.ask_each([ask("1", "S k")]), "busy: w X waiting token 0 since 0 left 9000");
}
