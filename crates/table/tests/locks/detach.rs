//! Waiters whose connection is gone.

use crate::common::{Scene, ask};

/// `a` holds `k` for ever, `w` waits for it for 10 s.
fn scene() -> Scene {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(0));
    scene.ask(ask("w", "X k").wait(10_000));
    scene
}

#[test]
fn a_detached_waiter_leaves_when_its_grace_ends() {
    let mut scene = scene();
    assert_eq!(scene.detach(&["w"], 2_000), "done");
    assert!(scene.events().is_empty());
    scene.at(2_999).tick();
    assert!(scene.events().is_empty());
    scene.at(3_000).tick();
    assert_eq!(scene.events(), ["withdrawn w [2 w: X k]"]);
    // It is not an end: nothing is remembered, and the id may ask again.
    assert_eq!(scene.cancel("w"), "cancelled false");
    assert_eq!(scene.release("w"), "not held");
    assert!(scene.ask(ask("w", "X k").wait(10_000)).starts_with("waiting"));
}

#[test]
fn it_times_out_if_its_wait_ends_sooner_or_at_the_same_moment() {
    for grace_ms in [10_000, 10_001] {
        let mut scene = scene();
        scene.detach(&["w"], grace_ms);
        scene.at(10_999).tick();
        assert!(scene.events().is_empty());
        scene.at(11_000).tick();
        assert_eq!(
            scene.events(),
            ["timed out w [2 w: X k]: a X held token 1 since 10000 left none"]
        );
    }
    let mut scene = scene();
    scene.detach(&["w"], 9_999);
    scene.at(11_000).tick();
    assert_eq!(scene.events(), ["withdrawn w [2 w: X k]"]);
}

#[test]
fn without_a_grace_it_leaves_at_once_and_those_behind_it_are_looked_at() {
    let mut scene = Scene::new();
    scene.ask(ask("s", "S k"));
    scene.ask(ask("w", "X k").wait(10_000));
    scene.ask(ask("r", "S k").wait(10_000));
    assert_eq!(scene.detach(&["w", "w"], 0), "done");
    assert_eq!(
        scene.events(),
        ["withdrawn w [2 w: X k]", "granted r token 2 lease 30000 waited 0"]
    );
}

#[test]
fn holders_and_unknown_ids_are_passed_over() {
    let mut scene = scene();
    let before = scene.table.state_hash();
    assert_eq!(scene.detach(&["a", "unknown"], 2_000), "done");
    assert_eq!(scene.detach(&["a", "unknown"], 0), "done");
    assert!(scene.events().is_empty());
    assert_eq!(scene.table.state_hash(), before);
}

#[test]
fn all_waiters_can_be_detached_at_once_and_claims_with_them() {
    let mut scene = scene();
    scene.ask(ask("v", "S k").wait(10_000));
    scene.claim_wait("worker", 10_000);
    scene.detach_all(2_000);
    scene.at(3_000).tick();
    assert_eq!(
        scene.events(),
        ["withdrawn w [2 w: X k]", "withdrawn v [3 v: S k]", "pool: withdrawn worker"]
    );
    assert_eq!(scene.everyone(), ["a"]);
    let mut scene = self::scene();
    scene.claim_wait("worker", 10_000);
    scene.detach_all(0);
    assert_eq!(scene.events(), ["withdrawn w [2 w: X k]", "pool: withdrawn worker"]);
    assert_eq!(scene.detach_all(0), "done");
}

#[test]
fn they_leave_in_the_order_of_arrival_however_they_are_named() {
    let mut scene = scene();
    scene.ask(ask("v", "S k").wait(10_000));
    scene.claim_wait("c1", 10_000);
    scene.claim_wait("c2", 10_000);
    scene.detach(&["c2", "v", "c1", "w", "v", "c2"], 0);
    assert_eq!(
        scene.events(),
        [
            "withdrawn w [2 w: X k]",
            "withdrawn v [3 v: S k]",
            "pool: withdrawn c1",
            "pool: withdrawn c2",
        ]
    );
}

#[test]
fn a_second_detach_starts_the_grace_anew() {
    let mut scene = scene();
    scene.detach(&["w"], 2_000);
    scene.at(2_500).detach(&["w"], 1_000);
    scene.at(3_499).tick();
    assert!(scene.events().is_empty());
    scene.at(3_499).detach(&["w"], 3_000);
    scene.at(6_498).tick();
    assert!(scene.events().is_empty());
    scene.at(6_499).tick();
    assert_eq!(scene.events(), ["withdrawn w [2 w: X k]"]);
}

#[test]
fn a_repeat_attaches_it_again_and_keeps_its_place() {
    let mut scene = scene();
    scene.ask(ask("later", "X k").wait(90_000));
    scene.detach(&["w"], 2_000);
    assert_eq!(
        scene.at(2_000).ask(ask("w", "X k").wait(10_000)),
        "waiting: a X held token 1 since 1000 left none"
    );
    scene.at(11_999).tick();
    assert!(scene.events().is_empty());
    scene.release("a");
    // The wait counts from when it last asked.
    assert_eq!(scene.events(), ["granted w token 2 lease 30000 waited 9999"]);
}

#[test]
fn the_grace_is_the_lease_of_a_detached_grant() {
    let mut scene = scene();
    scene.detach(&["w"], 2_000);
    scene.at(2_500).release("a");
    assert_eq!(scene.events(), ["granted w token 2 lease 2000 waited 1500"]);
    scene.at(4_499).tick();
    assert!(scene.events().is_empty());
    scene.at(4_500).tick();
    assert_eq!(scene.events(), ["lost w token 2 expired [2 w: X k]"]);
    assert_eq!(scene.ask(ask("w", "X k").wait(10_000)), "ended expired");
}

#[test]
fn a_repeat_of_a_detached_grant_starts_the_lease_it_asked_for() {
    let mut scene = scene();
    scene.detach(&["w"], 2_000);
    scene.release("a");
    assert_eq!(
        scene.at(2_900).ask(ask("w", "X k").wait(10_000)),
        "granted token 2 lease 30000 waited 0"
    );
    // Only once: the next repeat gives what is left.
    assert_eq!(
        scene.at(3_900).ask(ask("w", "X k").wait(10_000)),
        "granted token 2 lease 29000 waited 0"
    );
    // Also where it asked for a shorter lease than the grace, for none, or has a longest hold.
    for (request, lease) in [
        (ask("w", "X k").lease(500), "500"),
        (ask("w", "X k").lease(0), "none"),
        (ask("w", "X k").max_hold(5_000), "4100"),
    ] {
        let mut scene = Scene::new();
        scene.ask(ask("a", "X k"));
        scene.ask(request.clone().wait(10_000));
        scene.detach(&["w"], 2_000);
        scene.release("a");
        assert_eq!(scene.events(), ["granted w token 2 lease 2000 waited 0"]);
        let granted = format!("granted token 2 lease {lease} waited 0");
        assert_eq!(scene.at(1_900).ask(request), granted);
    }
}

#[test]
fn a_longest_hold_bounds_the_grace_too() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.ask(ask("w", "X k").wait(10_000).max_hold(1_500));
    scene.detach(&["w"], 2_000);
    scene.release("a");
    assert_eq!(scene.events(), ["granted w token 2 lease 1500 waited 0"]);
}

#[test]
fn a_renewal_confirms_a_detached_grant() {
    let mut scene = scene();
    scene.detach(&["w"], 2_000);
    scene.release("a");
    assert_eq!(scene.at(2_000).renew("w"), "renewed 30000");
    assert_eq!(scene.at(3_000).ask(ask("w", "X k")), "granted token 2 lease 29000 waited 0");
    // A renewal never shortens, so a short one confirms and leaves the rest of the grace.
    let mut scene = self::scene();
    scene.detach(&["w"], 2_000);
    scene.release("a");
    assert_eq!(scene.at(1_500).renew_for("w", 100), "renewed 1500");
    assert_eq!(scene.ask(ask("w", "X k")), "granted token 2 lease 1500 waited 0");
}

#[test]
fn a_waiter_that_was_attached_again_is_granted_its_own_lease() {
    let mut scene = scene();
    scene.detach(&["w"], 2_000);
    scene.ask(ask("w", "X k").wait(10_000));
    scene.release("a");
    assert_eq!(scene.events(), ["granted w token 2 lease 30000 waited 0"]);
}

#[test]
fn a_grace_is_bounded_like_a_lease() {
    let mut scene = Scene::with(&[("lease_ms", 30_000)]);
    scene.ask(ask("a", "X k"));
    scene.ask(ask("w", "X k").wait(60_000));
    assert_eq!(scene.detach(&["w"], 30_001), "error TooLong(Lease, 30000)");
    assert_eq!(scene.detach(&["w"], 30_000), "done");
}
