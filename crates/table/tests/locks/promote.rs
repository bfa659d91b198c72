//! Promote: an O, or a sole S, becomes an E under a new token.

use crate::common::{Scene, ask};

/// The modes of a request, in its order.
fn modes(scene: &Scene, id: &str) -> String {
    scene.entries_of(id).iter().map(|entry| entry.mode.letter()).collect()
}

#[test]
fn an_optimistic_lock_becomes_an_e_under_the_next_token_and_keeps_its_lease() {
    let mut scene = Scene::new();
    scene.ask(ask("o", "O k").owner("ann").lease(10_000));
    assert_eq!(scene.at(3_000).promote("o"), "promoted token 2 lease 8000 waited 0");
    assert!(scene.events().is_empty());
    let entry = &scene.entries_of("o")[0];
    assert_eq!((entry.seq, entry.token, entry.mode.letter()), (1, 2, "E"));
    assert_eq!((entry.held_ms, entry.lease_ms), (2_000, Some(8_000)));
    // It is an E like any other: its owner cumulates, others do not.
    assert_eq!(scene.ask(ask("e", "E k").owner("ann")), "granted token 3 lease 30000 waited 0");
    assert_eq!(
        scene.ask(ask("b", "E k").owner("bob")),
        "busy: ann E held token 2 since 2000 left 8000"
    );
}

#[test]
fn every_other_overlapping_o_is_superseded_in_the_order_of_seq() {
    let mut scene = Scene::new();
    scene.ask(ask("x", "X t(9)"));
    scene.ask(ask("late", "O t(1) & O t(9)").owner("bob").principal("pat").wait(9_000));
    scene.ask(ask("o", "O t(@)").owner("ann").wait(9_000));
    scene.ask(ask("c", "O t(2)"));
    scene.ask(ask("far", "O u(2)"));
    scene.release("x");
    assert_eq!(scene.granted(), ["late", "o"]);
    assert_eq!(scene.promote("o"), "promoted token 6 lease 30000 waited 0");
    assert_eq!(
        scene.events(),
        [
            "lost late token 4 superseded (ann) [2 bob for pat: O t(1) & O t(9)]",
            "lost c token 2 superseded (ann) [4 c: O t(2)]",
        ]
    );
    assert_eq!(scene.holders(), ["o", "far"]);
    assert_eq!(scene.promote("c"), "lost superseded by ann");
    assert_eq!(scene.renew("late"), "lost superseded by ann");
    assert_eq!(scene.release("c"), "not held");
    assert_eq!(scene.ask(ask("c", "O t(2)")), "ended superseded");
}

#[test]
fn an_o_of_the_same_owner_is_superseded_like_any_other() {
    let mut scene = Scene::new();
    scene.ask(ask("o1", "O k").owner("ann"));
    scene.ask(ask("o2", "O k").owner("ann"));
    assert_eq!(scene.promote("o2"), "promoted token 3 lease 30000 waited 0");
    assert_eq!(scene.events(), ["lost o1 token 1 superseded (ann) [1 ann: O k]"]);
}

#[test]
fn a_sole_s_is_promoted_and_one_of_several_is_not() {
    let mut scene = Scene::new();
    scene.ask(ask("s1", "S k").owner("ann"));
    scene.ask(ask("s2", "S k").owner("ann").lease(9_000));
    assert_eq!(scene.promote("s1"), "busy: ann S held token 2 since 0 left 9000");
    assert_eq!((modes(&scene, "s1"), scene.stats().token), ("S".into(), 2));
    scene.release("s2");
    assert_eq!(scene.promote("s1"), "promoted token 3 lease 30000 waited 0");
    assert_eq!(modes(&scene, "s1"), "E");
}

#[test]
fn an_overlapping_holder_elsewhere_refuses_a_promotion_and_nobody_is_superseded() {
    let mut scene = Scene::new();
    scene.ask(ask("o", "O t(1,@)"));
    scene.ask(ask("o2", "O t(1,1)"));
    scene.ask(ask("s", "S u(1)"));
    scene.ask(ask("s2", "S u(@)"));
    assert_eq!(scene.promote("s"), "busy: s2 S held token 4 since 0 left 30000");
    assert_eq!(scene.promote("s2"), "busy: s S held token 3 since 0 left 30000");
    assert!(scene.events().is_empty());
    assert_eq!(scene.holders(), ["o", "o2", "s", "s2"]);
}

#[test]
fn the_blocker_of_a_promotion_is_the_holder_with_the_lowest_seq_and_its_conflicting_mode() {
    let mut scene = Scene::new();
    scene.ask(ask("x", "X u"));
    scene.ask(ask("early", "E z & S u").wait(9_000));
    scene.ask(ask("me", "S t & S u").wait(9_000));
    scene.ask(ask("late", "S t"));
    scene.at(1_100).release("x");
    // Granted later but arrived earlier: `early` is named, with the mode of the part that conflicts.
    assert_eq!(scene.at(1_300).promote("me"), "busy: early S held token 3 since 200 left 29800");
    scene.release("early");
    assert_eq!(scene.promote("me"), "busy: late S held token 2 since 300 left 29700");
    scene.release("late");
    assert_eq!(scene.promote("me"), "promoted token 5 lease 29800 waited 0");
}

#[test]
fn every_o_and_s_of_a_request_becomes_e_and_the_rest_stays() {
    let mut scene = Scene::new();
    scene.ask(ask("m", "S a & X b & E c"));
    assert_eq!(scene.promote("m"), "promoted token 2 lease 30000 waited 0");
    assert_eq!(modes(&scene, "m"), "EXE");
    scene.ask(ask("o", "O t(1) & O t(2)"));
    assert_eq!(scene.promote("o"), "promoted token 4 lease 30000 waited 0");
    assert_eq!(modes(&scene, "o"), "EE");
}

#[test]
fn a_repeat_gives_the_same_token() {
    let mut scene = Scene::new();
    scene.ask(ask("o", "O k"));
    assert_eq!(scene.promote("o"), "promoted token 2 lease 30000 waited 0");
    assert_eq!(scene.at(2_000).promote("o"), "promoted token 2 lease 29000 waited 0");
    assert_eq!(scene.stats().token, 2);
    // Asking again gives the current token: what was asked first is what is compared.
    assert_eq!(scene.ask(ask("o", "O k")), "granted token 2 lease 29000 waited 0");
    assert_eq!(scene.ask(ask("o", "E k")), "error IdReused");
}

#[test]
fn waiters_play_no_part_in_the_decision() {
    let mut scene = Scene::new();
    scene.ask(ask("o", "O k"));
    scene.ask(ask("w", "X k").wait(9_000));
    assert_eq!(scene.promote("o"), "promoted token 2 lease 30000 waited 0");
    assert!(scene.events().is_empty());
    scene.release("o");
    assert_eq!(scene.granted(), ["w"]);
}

#[test]
fn waiters_are_looked_at_again_after_a_promotion() {
    let mut scene = Scene::new();
    scene.ask(ask("s", "S k").owner("ann"));
    scene.ask(ask("mine", "E k").owner("ann").wait(9_000));
    scene.ask(ask("other", "E k").owner("bob").wait(9_000));
    scene.promote("s");
    assert_eq!(scene.events(), ["granted mine token 3 lease 30000 waited 0"]);
    // And those of its owner may now pass whoever its E blocks.
    let mut scene = Scene::new();
    scene.ask(ask("s", "S k").owner("ann"));
    scene.ask(ask("queued", "X k & X j").wait(9_000));
    scene.ask(ask("mine", "X j").owner("ann").wait(9_000));
    scene.promote("s");
    assert_eq!(scene.events(), ["granted mine token 3 lease 30000 waited 0"]);
}

#[test]
fn what_never_was_o_or_s_is_never_promotable() {
    let mut scene = Scene::new();
    for wanted in ["E k", "X k", "E k & X j"] {
        scene.ask(ask("a", wanted));
        assert_eq!(scene.promote("a"), "error NeverPromotable", "{wanted}");
        scene.release("a");
        scene.at(100_000 + scene.table.now()).tick();
    }
}

#[test]
fn of_a_waiter_or_an_unknown_or_ended_id_it_is_lost() {
    let mut scene = Scene::new();
    scene.ask(ask("x", "X k").lease(5_000));
    scene.ask(ask("w", "O k").wait(9_000));
    assert_eq!(scene.promote("w"), "lost");
    assert_eq!(scene.promote("nobody"), "lost");
    scene.cancel("w");
    assert_eq!(scene.promote("w"), "lost");
    scene.at(6_000).tick();
    assert_eq!(scene.promote("x"), "lost expired");
    scene.ask(ask("o", "O k"));
    scene.release("o");
    assert_eq!(scene.promote("o"), "lost released");
    scene.ask(ask("r", "O k"));
    scene.revoke(3, "why");
    assert_eq!(scene.promote("r"), "lost revoked");
}

#[test]
fn a_promotion_does_not_confirm_a_detached_grant() {
    let mut scene = Scene::new();
    scene.ask(ask("x", "X k"));
    scene.ask(ask("o", "O k").wait(9_000));
    scene.detach(&["o"], 2_000);
    scene.release("x");
    assert_eq!(scene.promote("o"), "promoted token 3 lease 2000 waited 0");
    assert_eq!(scene.at(2_000).ask(ask("o", "O k")), "granted token 3 lease 30000 waited 0");
}

#[test]
fn the_blocker_of_a_promotion_is_named_by_the_resource_that_conflicts_also_to_its_own_owner() {
    use keylatch_table::{
        Acquire, Command, Mode, Part, Party, Reply, Resource, Settings, Table, Target,
    };
    let part = |name: &str, mode| Part::new(Resource::plain(name).unwrap(), mode);
    let ask = |id: &str, first: Part, second: Part| Acquire {
        also: vec![second],
        ..Acquire::new(id.into(), first.resource.clone(), Party::owner("o"))
    };
    let mut table = Table::new(Settings::default(), 0, 1);
    for (id, first, second) in [
        ("a", part("k", Mode::Shared), part("m", Mode::Cumulative)),
        ("b", part("m", Mode::Cumulative), part("k", Mode::Shared)),
    ] {
        let ask = Acquire { part: first.clone(), ..ask(id, first, second) };
        assert!(matches!(table.apply(0, Command::Acquire(ask)).reply, Reply::Granted(_)));
    }
    let Reply::Busy(blocker) = table.apply(0, Command::Promote(Target::Id("a".into()))).reply
    else {
        panic!("b shares k")
    };
    assert_eq!((blocker.mode, blocker.token), (Mode::Shared, 2));
}
