//! A known id asks again: the same answer, or `IdReused`.

use crate::common::{Ask, Scene, ask};

fn full() -> Ask {
    ask("a", "S k & X j")
        .owner("ann")
        .principal("pat")
        .lease(20_000)
        .detect()
        .max_hold(15_000)
        .meta("m")
        .value("v")
        .alias("l")
}

/// Every way in which the content can differ from that of [`full`].
fn others() -> Vec<(&'static str, Ask)> {
    let mut swapped = full();
    std::mem::swap(&mut swapped.0.part, &mut swapped.0.also[0]);
    let mut fewer = full();
    fewer.0.also.clear();
    let mut more = full();
    more.0.also.extend(ask("", "X i").0.parts().cloned());
    let mut mode = full();
    mode.0.part.mode = keylatch_table::Mode::Cumulative;
    let mut plain = full();
    plain.0.extra = keylatch_table::Extras::default();
    let mut undetected = full();
    undetected.0.detect = false;
    let with = |change: fn(&mut keylatch_table::Extra)| {
        let mut ask = full();
        ask.extra(change);
        ask
    };
    vec![
        ("order of parts", swapped),
        ("fewer parts", fewer),
        ("more parts", more),
        ("mode", mode),
        ("another owner", full().owner("bob")),
        ("no explicit owner", full().shown("ann")),
        ("lease", full().lease(20_001)),
        ("no lease", full().lease(0)),
        ("no extras", plain),
        ("detect", undetected),
        ("max hold", with(|extra| extra.max_hold_ms = 1)),
        ("meta", with(|extra| extra.meta = None)),
        ("value", with(|extra| extra.value = Some(b"w".as_slice().into()))),
        ("alias", with(|extra| extra.alias = Some("z".into()))),
    ]
}

#[test]
fn a_repeat_of_a_holder_gives_the_current_token_and_the_lease_that_is_left() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(full()), "granted token 1 lease 15000 waited 0");
    assert_eq!(scene.at(5_000).ask(full()), "granted token 1 lease 11000 waited 0");
    // Wait, what is shown, and the principal are not part of the content.
    assert_eq!(scene.ask(full().wait(9_000)), "granted token 1 lease 11000 waited 0");
    assert_eq!(scene.ask(full().principal("eve")), "granted token 1 lease 11000 waited 0");
    assert!(scene.events().is_empty());
    assert_eq!(scene.entries_of("a")[0].principal.as_deref(), Some("pat"));
}

#[test]
fn other_content_is_an_error_while_it_holds_and_while_it_waits() {
    for waits in [false, true] {
        let mut scene = Scene::new();
        if waits {
            scene.ask(ask("h", "X j"));
        }
        scene.ask(full().wait(9_000));
        for (what, other) in others() {
            let before = scene.table.state_hash();
            assert_eq!(scene.ask(other.wait(9_000)), "error IdReused", "{what}");
            assert_eq!(scene.table.state_hash(), before, "{what}");
        }
        assert_eq!(scene.ask(full().wait(9_000)).starts_with("waiting"), waits);
    }
}

#[test]
fn what_is_shown_for_a_caller_without_owner_is_not_compared() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").shown("10.0.0.1"));
    assert_eq!(
        scene.ask(ask("a", "X k").shown("10.0.0.2")),
        "granted token 1 lease 30000 waited 0"
    );
    assert_eq!(&*scene.entries_of("a")[0].owner, "10.0.0.1");
    assert_eq!(scene.ask(ask("a", "X k").owner("10.0.0.1")), "error IdReused");
}

#[test]
fn extras_that_say_nothing_are_the_same_as_none() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    assert_eq!(scene.ask(ask("a", "X k").max_hold(0)), "granted token 1 lease 30000 waited 0");
}

#[test]
fn promotion_and_renewal_do_not_change_the_content() {
    let mut scene = Scene::new();
    scene.ask(ask("o", "O k").lease(5_000));
    scene.promote("o");
    scene.renew_for("o", 50_000);
    assert_eq!(scene.ask(ask("o", "O k").lease(5_000)), "granted token 2 lease 50000 waited 0");
    assert_eq!(scene.ask(ask("o", "E k").lease(5_000)), "error IdReused");
    assert_eq!(scene.ask(ask("o", "O k").lease(50_000)), "error IdReused");
}

#[test]
fn a_repeat_of_a_waiter_keeps_its_seq_and_starts_its_wait_anew() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X k").lease(0));
    scene.ask(ask("w", "X k").wait(5_000));
    scene.ask(ask("v", "X k").wait(90_000));
    assert_eq!(
        scene.at(4_000).ask(ask("w", "X k").wait(3_000)),
        "waiting: h X held token 1 since 3000 left none"
    );
    let entry = &scene.entries_of("w")[0];
    assert_eq!((entry.seq, entry.held_ms, entry.lease_ms), (2, 3_000, Some(3_000)));
    assert_eq!((entry.arrived, entry.wait_ms), (1_000, 3_000));
    scene.at(6_999).tick();
    assert!(scene.events().is_empty());
    assert_eq!(
        scene.ask(ask("w", "X k").wait(1)),
        "waiting: h X held token 1 since 5999 left none"
    );
    scene.at(7_000).tick();
    assert_eq!(scene.events(), ["timed out w [2 w: X k]: h X held token 1 since 6000 left none"]);
}

#[test]
fn a_repeat_with_wait_zero_leaves_the_queue() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "S k"));
    scene.ask(ask("w", "X k").wait(5_000));
    scene.ask(ask("r", "S k").wait(5_000));
    assert_eq!(scene.at(1_200).ask(ask("w", "X k")), "busy: h S held token 1 since 200 left 29800");
    assert_eq!(
        scene.events(),
        ["withdrawn w [2 w: X k]", "granted r token 2 lease 30000 waited 200"]
    );
    assert_eq!(scene.cancel("w"), "cancelled false");
    assert_eq!(scene.ask(ask("w", "S k")), "granted token 3 lease 30000 waited 0");
}

#[test]
fn a_repeat_whose_wait_is_too_long_is_refused_and_changes_nothing() {
    let mut scene = Scene::with(&[("wait_ms", 5_000)]);
    scene.ask(ask("h", "X k"));
    scene.ask(ask("w", "X k").wait(5_000));
    scene.at(2_000).tick();
    let before = scene.table.state_hash();
    assert_eq!(scene.ask(ask("w", "X k").wait(5_001)), "error TooLong(Wait, 5000)");
    assert_eq!(scene.table.state_hash(), before);
}

#[test]
fn a_grant_says_how_long_it_waited_since_it_last_asked_and_a_repeat_of_it_says_0() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X k"));
    scene.ask(ask("w", "X k").wait(5_000));
    scene.at(2_500).ask(ask("w", "X k").wait(5_000));
    scene.at(3_000).release("h");
    assert_eq!(scene.events(), ["granted w token 2 lease 30000 waited 500"]);
    assert_eq!(
        scene.at(4_000).ask(ask("w", "X k").wait(5_000)),
        "granted token 2 lease 29000 waited 0"
    );
    // A list still knows when it arrived.
    assert_eq!(scene.entries_of("w")[0].arrived, 1_000);
}
