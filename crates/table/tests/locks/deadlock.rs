//! Deadlock detection, for requests that ask for it.

use crate::common::{Ask, Scene, ask};

/// A request that takes part: it detects and waits 90 s.
fn by(owner: &str, id: &str, wanted: &str) -> Ask {
    ask(id, wanted).owner(owner).detect().wait(90_000)
}

#[test]
fn two_owners_that_wait_for_each_other_are_a_cycle() {
    let mut scene = Scene::new();
    scene.ask(by("ann", "a1", "X a"));
    scene.ask(by("bob", "b1", "X b"));
    assert!(scene.ask(by("ann", "a2", "X b")).starts_with("waiting: bob"));
    let before = scene.table.state_hash();
    assert_eq!(
        scene.ask(by("bob", "b2", "X a")),
        "deadlock bob>ann: ann X held token 1 since 0 left 30000"
    );
    assert_eq!(scene.table.state_hash(), before);
    // It is not an end: the id may ask again once the cycle is gone.
    scene.cancel("a2");
    assert_eq!(scene.ask(by("bob", "b2", "X a")), "waiting: ann X held token 1 since 0 left 30000");
}

#[test]
fn with_wait_zero_it_is_just_busy() {
    let mut scene = Scene::new();
    scene.ask(by("ann", "a1", "X a"));
    scene.ask(by("bob", "b1", "X b"));
    scene.ask(by("ann", "a2", "X b"));
    assert_eq!(
        scene.ask(by("bob", "b2", "X a").wait(0)),
        "busy: ann X held token 1 since 0 left 30000"
    );
}

#[test]
fn a_cycle_can_be_of_one_owner() {
    let mut scene = Scene::new();
    scene.ask(by("ann", "a1", "X k"));
    assert_eq!(
        scene.ask(by("ann", "a2", "X k")),
        "deadlock ann: ann X held token 1 since 0 left 30000"
    );
    // Also if it is another request of its own that waits before it.
    scene.ask(ask("other", "X j"));
    scene.ask(by("ann", "a3", "X j"));
    assert_eq!(
        scene.ask(by("ann", "a4", "S j")),
        "deadlock ann: other X held token 2 since 0 left 30000"
    );
    // What cumulates does not wait.
    scene.ask(by("ann", "e1", "E c"));
    assert_eq!(scene.ask(by("ann", "e2", "E c")), "granted token 4 lease 30000 waited 0");
}

#[test]
fn all_requests_on_the_cycle_must_have_asked_for_it() {
    for plain in ["a1", "b1", "a2", "b2"] {
        let mut scene = Scene::new();
        let mut play = |owner: &str, id: &str, wanted: &str| {
            let mut request = by(owner, id, wanted);
            request.0.detect = id != plain;
            scene.ask(request)
        };
        play("ann", "a1", "X a");
        play("bob", "b1", "X b");
        play("ann", "a2", "X b");
        let last = play("bob", "b2", "X a");
        // b1 and a1 are what is waited for, a2 and b2 are who waits.
        assert!(last.starts_with("waiting: ann"), "{plain}: {last}");
    }
}

#[test]
fn longer_cycles_are_named_in_the_order_of_waiting() {
    let mut scene = Scene::new();
    for (owner, key) in [("ann", "a"), ("bob", "b"), ("cid", "c"), ("dan", "d")] {
        scene.ask(by(owner, key, &format!("X {key}")));
    }
    scene.ask(by("bob", "b-c", "X c"));
    scene.ask(by("cid", "c-d", "X d"));
    scene.ask(by("dan", "d-a", "X a"));
    assert_eq!(
        scene.ask(by("ann", "a-b", "X b")),
        "deadlock ann>bob>cid>dan: bob X held token 2 since 0 left 30000"
    );
}

#[test]
fn the_shortest_cycle_is_named() {
    let mut scene = Scene::new();
    for (owner, key) in [("ann", "a"), ("bob", "b"), ("cid", "c")] {
        scene.ask(by(owner, key, &format!("X {key}")));
    }
    scene.ask(by("bob", "b-c", "X c"));
    scene.ask(by("cid", "c-a", "X a"));
    // ann>bob>cid is found by way of b, ann>cid by way of c.
    assert_eq!(
        scene.ask(by("ann", "x", "X b & X c")),
        "deadlock ann>cid: bob X held token 2 since 0 left 30000"
    );
}

#[test]
fn of_equally_short_cycles_the_first_by_the_seq_of_holders_then_waiters_is_named() {
    let mut scene = Scene::new();
    scene.ask(by("ann", "a", "X a"));
    scene.ask(by("cid", "c", "X c"));
    scene.ask(by("bob", "b", "X b"));
    scene.ask(by("bob", "b-a", "X a"));
    scene.ask(by("cid", "c-a", "X a"));
    assert_eq!(
        scene.ask(by("ann", "x", "X b & X c")),
        "deadlock ann>cid: cid X held token 2 since 0 left 30000"
    );
    // A holder comes before a waiter that arrived earlier.
    let mut scene = Scene::new();
    scene.ask(by("ann", "a", "X a"));
    scene.ask(ask("plain", "X q"));
    scene.ask(by("cid", "c", "X q & X a").wait(90_000));
    scene.ask(by("bob", "b", "X b"));
    scene.ask(by("bob", "b-a", "X a"));
    assert_eq!(
        scene.ask(by("ann", "x", "X q & X b")),
        "deadlock ann>bob: plain X held token 2 since 0 left 30000"
    );
}

#[test]
fn a_waiter_that_came_before_is_waited_for_too() {
    let mut scene = Scene::new();
    scene.ask(by("ann", "a", "S k"));
    scene.ask(by("bob", "b", "X j"));
    scene.ask(by("bob", "b-k", "X k"));
    // cid would have to wait for bob, who waits in the queue of k; ann for bob, and bob for ann.
    assert!(scene.ask(by("cid", "c-k", "S k")).starts_with("waiting: bob"));
    assert_eq!(
        scene.ask(by("ann", "a-j", "S j")),
        "deadlock ann>bob: bob X held token 2 since 0 left 30000"
    );
}

#[test]
fn an_owner_with_no_detecting_request_besides_the_new_one_cannot_be_on_a_cycle() {
    let mut scene = Scene::new();
    scene.ask(ask("a1", "X a").owner("ann"));
    scene.ask(by("bob", "b1", "X b"));
    scene.ask(by("bob", "b2", "X a"));
    assert!(scene.ask(by("ann", "a2", "X b")).starts_with("waiting: bob"));
}

#[test]
fn a_grant_to_an_owner_who_also_waits_elsewhere_can_close_a_cycle() {
    let mut scene = Scene::new();
    scene.ask(ask("e", "E k").owner("ann"));
    scene.ask(by("bob", "b", "X b"));
    // Bob waits for ann's E, which takes no part.
    scene.ask(by("bob", "b-k", "X k & X j"));
    assert!(scene.ask(by("ann", "a-b", "X b")).starts_with("waiting: bob"));
    // Ann passes bob on j; now bob waits for that, too.
    assert_eq!(scene.ask(by("ann", "a-j", "X j")), "granted token 3 lease 30000 waited 0");
    assert_eq!(
        scene.events(),
        ["deadlocked a-b [4 ann: X b] ann>bob: bob X held token 2 since 0 left 30000"]
    );
    assert_eq!(scene.everyone(), ["e", "b", "b-k", "a-j"]);
}

#[test]
fn a_promotion_can_close_a_cycle() {
    let mut scene = Scene::new();
    scene.ask(by("ann", "o", "O k"));
    scene.ask(ask("o2", "O k"));
    scene.ask(by("bob", "b", "X b"));
    scene.ask(ask("w", "X k").wait(90_000));
    // Bob's O goes together with ann's; it waits only for the writer before it.
    assert!(scene.ask(by("bob", "b-k", "O k")).starts_with("waiting: w"));
    assert!(scene.ask(by("ann", "a-b", "X b")).starts_with("waiting: bob"));
    assert_eq!(scene.promote("o"), "promoted token 4 lease 30000 waited 0");
    assert_eq!(
        scene.events(),
        [
            "lost o2 token 2 superseded (ann) [2 o2: O k]",
            "deadlocked a-b [6 ann: X b] ann>bob: bob X held token 3 since 0 left 30000",
        ]
    );
}

#[test]
fn a_cycle_that_comes_up_by_the_end_of_an_e_refuses_the_youngest() {
    let mut scene = Scene::new();
    scene.ask(by("ann", "e", "E k").wait(0).lease(5_000));
    scene.ask(by("bob", "b", "S j"));
    // ann may pass bob's request on k while she holds the E: she waits on j only for `h`.
    scene.ask(ask("h", "S i"));
    scene.ask(by("bob", "b-k", "X k & X i"));
    assert!(scene.ask(by("ann", "a", "S h2")).starts_with("granted"));
    assert!(scene.ask(by("ann", "a-i", "X i")).starts_with("waiting: h"));
    assert!(scene.ask(by("bob", "b-h2", "X h2")).starts_with("waiting: ann"));
    // Without the E, ann's a-i waits behind bob's b-k, and bob's b-h2 waits for ann.
    scene.at(6_000).tick();
    assert_eq!(
        scene.events(),
        [
            "lost e token 1 expired [1 ann: E k]",
            "deadlocked b-h2 [7 bob: X h2] bob>ann: ann S held token 4 since 5000 left 25000",
        ]
    );
    assert_eq!(scene.ask(by("bob", "b-h2", "X h2").wait(0)).split(':').next(), Some("busy"));
}

#[test]
fn after_a_deadlocked_waiter_has_left_those_behind_it_are_looked_at() {
    let mut scene = Scene::new();
    scene.ask(by("ann", "e", "E k").wait(0).lease(5_000));
    scene.ask(ask("h", "S i"));
    scene.ask(by("bob", "b-k", "X k & X i"));
    scene.ask(by("ann", "a", "S h2"));
    scene.ask(by("ann", "a-i", "X i"));
    scene.ask(by("bob", "b-h2", "X h2"));
    scene.ask(ask("reader", "S h2").wait(90_000));
    scene.at(6_000).tick();
    assert_eq!(scene.granted(), ["reader"]);
    assert_eq!(scene.events().len(), 3);
    assert!(scene.events()[1].starts_with("deadlocked b-h2"));
}

#[test]
fn detection_needs_an_explicit_owner() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(ask("a", "X k").shown("ann").detect()), "error DetectNeedsOwner");
    assert_eq!(
        scene.ask(ask("a", "X k").owner("ann").detect()),
        "granted token 1 lease 30000 waited 0"
    );
}

#[test]
fn a_waiter_that_did_not_ask_for_detection_is_never_refused_for_a_cycle() {
    let mut scene = Scene::new();
    scene.ask(by("ann", "a1", "X a"));
    scene.ask(by("bob", "b1", "X b"));
    let waits = |reply: String| assert!(reply.starts_with("waiting"), "{reply}");
    waits(scene.ask(ask("a2", "X b").owner("ann").wait(90_000)));
    waits(scene.ask(by("bob", "b2", "X a")));
    // A grant to ann makes the table look for cycles around her.
    assert_eq!(scene.ask(by("ann", "a3", "X c")), "granted token 3 lease 30000 waited 0");
    assert_eq!(scene.events(), [""; 0]);
    assert_eq!(scene.stats().waiting, 2);
}
