//! Release, cancel and revoke.

use crate::common::{Scene, ask};

#[test]
fn release_of_a_holder_tells_nobody_but_those_who_get_it() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    assert_eq!(scene.release("a"), "released");
    assert!(scene.events().is_empty());
    assert_eq!(scene.holders(), [""; 0]);
}

#[test]
fn release_of_a_waiter_ends_it_and_tells_whoever_listens() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.ask(ask("w", "X k & S j").owner("bob").principal("pat").wait(9_000));
    assert_eq!(scene.release("w"), "released");
    assert_eq!(scene.events(), ["withdrawn w [2 bob for pat: X k & S j]"]);
    assert_eq!(scene.release("w"), "released");
    assert!(scene.events().is_empty());
    assert_eq!(scene.everyone(), ["a"]);
}

#[test]
fn release_repeated_says_released_only_if_a_release_ended_it() {
    let mut scene = Scene::new();
    scene.ask(ask("released", "X a"));
    scene.ask(ask("expired", "X b").lease(1_000));
    scene.ask(ask("revoked", "X c"));
    scene.ask(ask("o", "O d"));
    scene.ask(ask("superseded", "O d"));
    scene.ask(ask("cancelled", "X c").wait(9_000));
    scene.ask(ask("timed-out", "X d").wait(900));
    scene.release("released");
    scene.cancel("cancelled");
    scene.promote("o");
    scene.revoke(3, "");
    scene.at(2_000).tick();
    for (id, reply) in [
        ("released", "released"),
        ("expired", "not held"),
        ("revoked", "not held"),
        ("superseded", "not held"),
        ("cancelled", "not held"),
        ("timed-out", "not held"),
        ("unknown", "not held"),
    ] {
        assert_eq!(scene.release(id), reply, "{id}");
    }
    scene.at(60_999).tick();
    assert_eq!(scene.release("released"), "released");
    scene.at(61_000).tick();
    assert_eq!(scene.release("released"), "not held");
}

#[test]
fn cancel_of_a_waiter_ends_it_and_a_repeat_says_the_same() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.ask(ask("w", "X k").wait(9_000));
    assert_eq!(scene.cancel("w"), "cancelled true");
    assert_eq!(scene.events(), ["withdrawn w [2 w: X k]"]);
    assert_eq!(scene.at(60_999).cancel("w"), "cancelled true");
    assert_eq!(scene.events(), ["lost a token 1 expired [1 a: X k]"]);
    assert_eq!(scene.at(61_000).cancel("w"), "cancelled false");
}

#[test]
fn cancel_of_anything_else_does_nothing() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    assert_eq!(scene.cancel("a"), "cancelled false");
    assert_eq!(scene.holders(), ["a"]);
    assert_eq!(scene.cancel("unknown"), "cancelled false");
    scene.ask(ask("w", "X k").wait(9_000));
    scene.release("w");
    assert_eq!(scene.cancel("w"), "cancelled false");
    scene.release("a");
    assert_eq!(scene.cancel("a"), "cancelled false");
}

#[test]
fn a_waiter_that_was_ended_may_ask_again_at_any_time_and_gets_a_new_seq() {
    for end in ["cancel", "release"] {
        let mut scene = Scene::new();
        scene.ask(ask("a", "X k"));
        scene.ask(ask("w", "X k").wait(9_000));
        scene.ask(ask("v", "X k").wait(9_000));
        if end == "cancel" {
            scene.cancel("w")
        } else {
            scene.release("w")
        };
        // With other content, too: nothing is compared.
        assert_eq!(
            scene.ask(ask("w", "S k").wait(8_000)),
            "waiting: a X held token 1 since 0 left 30000"
        );
        assert_eq!(scene.entries_of("w")[0].seq, 4);
        scene.release("a");
        assert_eq!(scene.granted(), ["v"]);
        scene.release("v");
        assert_eq!(scene.granted(), ["w"]);
        assert_eq!(scene.cancel("w"), "cancelled false");
        assert_eq!(scene.release("w"), "released");
    }
}

#[test]
fn revoke_ends_the_holder_with_that_token_and_gives_the_reason() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").owner("ann").principal("pat"));
    scene.ask(ask("w", "X k").wait(9_000));
    assert_eq!(scene.revoke(2, "why"), "revoked false");
    assert_eq!(scene.revoke(0, "why"), "revoked false");
    assert_eq!(scene.revoke(1, "stuck"), "revoked true");
    assert_eq!(
        scene.events(),
        [
            "lost a token 1 revoked (stuck) [1 ann for pat: X k]",
            "granted w token 2 lease 30000 waited 0",
        ]
    );
    assert_eq!(scene.revoke(1, "stuck"), "revoked false");
    assert_eq!(scene.ask(ask("a", "X k").owner("ann")), "ended revoked");
}

#[test]
fn after_a_promotion_only_the_new_token_revokes() {
    let mut scene = Scene::new();
    scene.ask(ask("o", "O k"));
    scene.promote("o");
    assert_eq!(scene.revoke(1, ""), "revoked false");
    assert_eq!(scene.revoke(2, ""), "revoked true");
    assert_eq!(scene.events(), ["lost o token 2 revoked () [1 o: E k]"]);
}
