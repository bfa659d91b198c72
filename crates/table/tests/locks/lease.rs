//! Leases, renewal, and the longest hold.

use keylatch_table::{Command, Event};

use crate::common::{START, Scene, ask, event_words};

#[test]
fn a_lease_ends_exactly_when_its_time_has_come() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(ask("a", "X k").lease(5_000)), "granted token 1 lease 5000 waited 0");
    scene.at(5_999).tick();
    assert!(scene.events().is_empty());
    scene.at(6_000).tick();
    assert_eq!(scene.events(), ["lost a token 1 expired [1 a: X k]"]);
    assert_eq!(scene.release("a"), "not held");
    assert_eq!(scene.renew("a"), "lost expired");
}

#[test]
fn a_lease_that_nobody_asks_about_ends_all_the_same() {
    let mut told = Scene::new();
    told.ask(ask("a", "X k").lease(5_000));
    told.ask(ask("b", "X k").wait(9_000));
    let mut quiet = told.table.clone();
    quiet.tell_expired(false);
    told.at(6_000).tick();
    assert_eq!(told.events().len(), 2, "a lost it, b got it");
    let applied = quiet.apply(6_000, Command::Tick);
    let events: Vec<String> = applied.events.iter().map(event_words).collect();
    assert_eq!(events, told.events()[1..], "only of the grant somebody is told");
    assert_eq!(quiet.snapshot(), told.table.snapshot());
    quiet.tell_expired(true);
    let lost = quiet.apply(60_000, Command::Tick).events;
    assert_eq!(lost.len(), 1, "and again, once somebody wants to know");
}

#[test]
fn the_lease_of_a_waiter_counts_from_its_grant() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.ask(ask("b", "X k").wait(9_000).lease(5_000));
    scene.at(4_000).release("a");
    assert_eq!(scene.events(), ["granted b token 2 lease 5000 waited 3000"]);
    scene.at(8_999).tick();
    assert!(scene.events().is_empty());
    scene.at(9_000).tick();
    assert_eq!(scene.events(), ["lost b token 2 expired [2 b: X k]"]);
}

#[test]
fn a_lease_of_zero_is_for_ever() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(ask("a", "X k").lease(0)), "granted token 1 lease none waited 0");
    assert_eq!(scene.table.next_deadline(), None);
    scene.at(1 << 40).tick();
    assert!(scene.events().is_empty());
    assert_eq!(scene.ask(ask("a", "X k").lease(0)), "granted token 1 lease none waited 0");
    assert_eq!(scene.renew("a"), "renewed none");
    assert_eq!(scene.renew_for("a", 5_000), "renewed none");
}

#[test]
fn renewal_takes_the_lease_first_asked_or_the_one_given() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(5_000));
    assert_eq!(scene.at(3_000).renew("a"), "renewed 5000");
    assert_eq!(scene.at(4_000).renew_for("a", 20_000), "renewed 20000");
    assert_eq!(scene.at(5_000).renew("a"), "renewed 19000");
    assert_eq!(scene.at(23_999).renew("a"), "renewed 5000");
    scene.at(28_998).tick();
    assert!(scene.events().is_empty());
    scene.at(28_999).tick();
    assert_eq!(scene.events(), ["lost a token 1 expired [1 a: X k]"]);
}

#[test]
fn renewal_never_shortens() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(5_000));
    assert_eq!(scene.renew_for("a", 4_999), "renewed 5000");
    assert_eq!(scene.renew_for("a", 1), "renewed 5000");
    assert_eq!(scene.renew_for("a", 5_001), "renewed 5001");
}

#[test]
fn renewal_with_zero_means_no_lease_from_then_on() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(5_000));
    assert_eq!(scene.renew_for("a", 0), "renewed none");
    scene.at(1 << 40).tick();
    assert_eq!(scene.holders(), ["a"]);
    assert_eq!(scene.renew("a"), "renewed none");
    assert_eq!(scene.ask(ask("a", "X k").lease(5_000)), "granted token 1 lease none waited 0");
}

#[test]
fn renewal_at_the_very_end_comes_too_late_and_a_moment_before_does_not() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X a").lease(5_000));
    scene.ask(ask("b", "X b").lease(5_001));
    assert_eq!(scene.at(6_000).renew("a"), "lost expired");
    assert_eq!(scene.events(), ["lost a token 1 expired [1 a: X a]"]);
    assert_eq!(scene.renew("b"), "renewed 5001");
}

#[test]
fn renewal_of_what_is_not_held_is_lost_with_the_cause_if_that_is_known() {
    let mut scene = Scene::new();
    assert_eq!(scene.renew("nobody"), "lost");
    scene.ask(ask("a", "X k"));
    scene.ask(ask("w", "X k").wait(9_000));
    assert_eq!(scene.renew("w"), "lost");
    assert_eq!(scene.everyone(), ["a", "w"]);
    scene.cancel("w");
    assert_eq!(scene.renew("w"), "lost");
    scene.release("a");
    assert_eq!(scene.renew("a"), "lost released");
    scene.ask(ask("r", "X k"));
    scene.revoke(2, "maintenance");
    assert_eq!(scene.renew("r"), "lost revoked");
    scene.at(61_000).tick();
    assert_eq!(scene.renew("a"), "lost");
}

#[test]
fn a_longest_hold_bounds_the_first_lease() {
    let mut scene = Scene::new();
    let longer = ask("a", "X a").lease(10_000).max_hold(8_000);
    assert_eq!(scene.ask(longer), "granted token 1 lease 8000 waited 0");
    let shorter = ask("b", "X b").lease(5_000).max_hold(8_000);
    assert_eq!(scene.ask(shorter), "granted token 2 lease 5000 waited 0");
    let none = ask("c", "X c").lease(0).max_hold(8_000);
    assert_eq!(scene.ask(none), "granted token 3 lease 8000 waited 0");
    let unbounded = ask("d", "X d").lease(0).max_hold(0);
    assert_eq!(scene.ask(unbounded), "granted token 4 lease none waited 0");
}

#[test]
fn a_longest_hold_bounds_every_renewal() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X a").lease(5_000).max_hold(8_000));
    assert_eq!(scene.at(3_000).renew("a"), "renewed 5000");
    assert_eq!(scene.at(5_000).renew("a"), "renewed 4000");
    assert_eq!(scene.renew_for("a", 0), "renewed 4000");
    assert_eq!(scene.renew_for("a", 60_000), "renewed 4000");
    scene.at(8_999).tick();
    assert!(scene.events().is_empty());
    scene.at(9_000).tick();
    assert_eq!(scene.events(), ["lost a token 1 expired [1 a: X a]"]);
}

#[test]
fn a_longest_hold_counts_from_the_grant_not_from_the_arrival_or_a_promotion() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.ask(ask("b", "O k").wait(90_000).lease(5_000).max_hold(8_000));
    scene.at(7_000).release("a");
    assert_eq!(scene.events(), ["granted b token 2 lease 5000 waited 6000"]);
    assert_eq!(scene.at(11_000).promote("b"), "promoted token 3 lease 1000 waited 0");
    assert_eq!(scene.renew("b"), "renewed 4000");
}

#[test]
fn leases_that_end_together_end_in_the_order_of_deadline_then_seq() {
    let mut scene = Scene::new();
    scene.ask(ask("c", "X c").lease(3_000));
    scene.ask(ask("b", "X b").lease(2_000));
    scene.ask(ask("a", "X a").lease(2_000));
    scene.ask(ask("d", "X d").lease(2_001));
    scene.at(50_000).tick();
    let order: Vec<String> =
        scene.events().iter().map(|event| event[..event.find(" token").unwrap()].into()).collect();
    assert_eq!(order, ["lost b", "lost a", "lost d", "lost c"]);
}

#[test]
fn an_expired_lock_is_handed_to_the_next_in_the_same_step() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(5_000));
    scene.ask(ask("b", "X k").wait(90_000));
    scene.ask(ask("c", "X k").wait(90_000));
    scene.at(8_000).tick();
    assert_eq!(
        scene.events(),
        ["lost a token 1 expired [1 a: X k]", "granted b token 2 lease 30000 waited 7000"]
    );
}

#[test]
fn the_next_deadline_is_the_earliest_of_all() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X a").lease(50_000));
    assert_eq!(scene.table.next_deadline(), Some(51_000));
    scene.ask(ask("b", "X a").wait(20_000));
    assert_eq!(scene.table.next_deadline(), Some(21_000));
    scene.detach(&["b"], 2_000);
    assert_eq!(scene.table.next_deadline(), Some(3_000));
    scene.at(3_000).tick();
    // It may be early, never late.
    assert!(scene.table.next_deadline().is_some_and(|next| next > 3_000 && next <= 51_000));
}

/// More than a few, so that what will be needed is fetched ahead.
#[test]
fn many_leases_end_in_the_order_of_their_deadlines_and_fetching_ahead_changes_nothing() {
    let mut scene = Scene::crowded();
    let count = 15_000;
    for n in 0..count {
        // Deadlines that are not in the order of arrival, some the same, in several buckets.
        let one = ask(&format!("r{n}"), &format!("X k{n}")).value("v").lease(1_000 + n * 7 % 100);
        let command = Command::Acquire(one.0);
        let before = (n % 1_000 == 0).then(|| scene.table.state_hash());
        scene.table.go_ahead(&[command.clone(), command.clone()]);
        assert!(before.is_none_or(|before| before == scene.table.state_hash()));
        scene.apply(command);
    }
    // Some end early, and leave the places of others to fill.
    let early = count / 3;
    for n in 0..early {
        assert_eq!(scene.release(&format!("r{}", 3 * n)), "released");
    }
    let mut lost = Vec::new();
    for at in [2_010, 2_017, 2_040, 2_098, 2_099] {
        let applied = scene.at(at).apply(Command::Tick);
        lost.extend(applied.events.iter().map(|event| match event {
            Event::Lost { about, .. } => (1_000 + (about.seq - 1) * 7 % 100, about.seq),
            other => panic!("nothing else ends: {other:?}"),
        }));
        assert!(lost.last().is_some_and(|(lease, _)| START + lease <= at));
    }
    assert_eq!(lost.len() as u64, count - early);
    assert!(lost.is_sorted(), "by deadline, then by arrival");
    assert_eq!(scene.table.next_deadline(), None);
}
