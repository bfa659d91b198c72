//! Waiting: arrival order, who may pass whom, and who is granted when something ends.

use crate::common::{Scene, ask};

#[test]
fn wait_zero_never_queues_and_leaves_nothing_behind() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    let before = scene.table.state_hash();
    assert_eq!(
        scene.ask(ask("b", "X k & S j").owner("bob")),
        "busy: a X held token 1 since 0 left 30000"
    );
    assert_eq!(scene.table.state_hash(), before);
    assert_eq!(scene.stats().seq, 1);
}

#[test]
fn a_free_request_is_granted_at_once_also_with_a_wait_and_past_a_queue_it_does_not_meet() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(ask("a", "S k").wait(9_000)), "granted token 1 lease 30000 waited 0");
    scene.ask(ask("w", "X k").wait(9_000));
    assert_eq!(scene.ask(ask("b", "S j").wait(9_000)), "granted token 2 lease 30000 waited 0");
    assert_eq!(scene.ask(ask("c", "X k(1)")), "granted token 3 lease 30000 waited 0");
}

#[test]
fn waiting_says_who_is_in_the_way_and_takes_the_next_seq() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    assert_eq!(
        scene.at(1_400).ask(ask("b", "S k").wait(3_000)),
        "waiting: a X held token 1 since 400 left 29600"
    );
    let entry = &scene.entries_of("b")[0];
    assert_eq!((entry.seq, entry.token, entry.lease_ms), (2, 0, Some(3_000)));
}

#[test]
fn writers_are_served_in_the_order_of_arrival() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    for id in ["b", "c", "d"] {
        scene.ask(ask(id, "X k").wait(90_000));
    }
    for (time, id, next) in [(2_000, "a", "b"), (3_000, "b", "c"), (4_000, "c", "d")] {
        scene.at(time).release(id);
        assert_eq!(scene.granted(), [next]);
    }
    assert_eq!(scene.events(), ["granted d token 4 lease 30000 waited 3000"]);
}

#[test]
fn readers_that_arrived_together_enter_together_and_stop_at_the_next_writer() {
    let mut scene = Scene::new();
    scene.ask(ask("w1", "X k"));
    for (id, wanted) in [("r1", "S k"), ("r2", "S k"), ("w2", "X k"), ("r3", "S k")] {
        scene.ask(ask(id, wanted).wait(90_000));
    }
    scene.release("w1");
    assert_eq!(scene.granted(), ["r1", "r2"]);
    scene.release("r2");
    assert_eq!(scene.granted(), [""; 0]);
    scene.release("r1");
    assert_eq!(scene.granted(), ["w2"]);
    scene.release("w2");
    assert_eq!(scene.granted(), ["r3"]);
}

#[test]
fn a_waiter_keeps_later_requests_out_on_every_overlapping_resource() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X t(1,1)"));
    scene.ask(ask("all", "X t(@,1)").wait(9_000));
    assert_eq!(scene.ask(ask("two", "S t(2,1)")), "busy: all X waiting token 0 since 0 left 9000");
    assert_eq!(scene.ask(ask("far", "S t(2,2)")), "granted token 2 lease 30000 waited 0");
    scene.cancel("all");
    assert_eq!(scene.ask(ask("two", "S t(2,1)")), "granted token 3 lease 30000 waited 0");
}

#[test]
fn everyone_behind_a_waiter_that_leaves_is_looked_at() {
    for leave in ["cancel", "release", "timeout", "repeat"] {
        let mut scene = Scene::new();
        scene.ask(ask("s", "S k"));
        scene.ask(ask("w", "X k").wait(500));
        scene.ask(ask("r1", "S k").wait(9_000));
        scene.ask(ask("r2", "S k").wait(9_000));
        scene.at(1_499).tick();
        assert!(scene.events().is_empty());
        match leave {
            "cancel" => scene.cancel("w"),
            "release" => scene.release("w"),
            "timeout" => scene.at(1_500).tick(),
            _ => scene.ask(ask("w", "X k")),
        };
        assert_eq!(scene.granted(), ["r1", "r2"], "{leave}");
        assert_eq!(scene.holders(), ["s", "r1", "r2"], "{leave}");
    }
}

#[test]
fn a_chain_across_resources_is_granted_as_far_as_it_is_free() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X a"));
    scene.ask(ask("ab", "X a & X b").wait(9_000));
    scene.ask(ask("bc", "X b & X c").wait(9_000));
    scene.ask(ask("c", "X c").wait(9_000));
    assert_eq!(scene.holders(), ["h"]);
    scene.cancel("ab");
    assert_eq!(scene.granted(), ["bc"]);
    scene.release("bc");
    assert_eq!(scene.granted(), ["c"]);
}

#[test]
fn one_end_grants_every_waiter_it_frees_in_arrival_order_across_resources() {
    let mut scene = Scene::new();
    scene.ask(ask("all", "X t(@)"));
    for (id, wanted) in [("b", "X t(2)"), ("a", "X t(1)"), ("b2", "X t(2)"), ("c", "S t(3)")] {
        scene.ask(ask(id, wanted).wait(9_000));
    }
    scene.at(1_250).release("all");
    assert_eq!(
        scene.events(),
        [
            "granted b token 2 lease 30000 waited 250",
            "granted a token 3 lease 30000 waited 250",
            "granted c token 4 lease 30000 waited 250",
        ]
    );
}

#[test]
fn an_owner_passes_those_who_wait_behind_its_own_e_with_any_mode() {
    // `passer` asks on `j`, where `queued` waits only because of ann's E on `k`.
    for mode in ["S", "E", "X"] {
        let mut scene = Scene::new();
        scene.ask(ask("e", "E k").owner("ann"));
        scene.ask(ask("queued", "X k & X j").wait(9_000));
        let wanted = format!("{mode} j");
        assert_eq!(
            scene.ask(ask("bob", &wanted).owner("bob")),
            "busy: queued X waiting token 0 since 0 left 9000"
        );
        assert_eq!(
            scene.ask(ask("ann", &wanted).owner("ann")),
            "granted token 2 lease 30000 waited 0",
            "{mode}"
        );
        assert!(scene.ask(ask("shown", &wanted).shown("ann")).starts_with("busy"));
    }
    let mut scene = Scene::new();
    scene.ask(ask("e", "E k").owner("ann"));
    scene.ask(ask("queued", "X k & X j").wait(9_000));
    assert_eq!(scene.ask(ask("o", "O j").owner("ann")), "granted token 2 lease 30000 waited 0");
}

#[test]
fn an_owner_cumulates_past_those_who_wait_behind_its_e() {
    let mut scene = Scene::new();
    scene.ask(ask("e1", "E k").owner("ann"));
    scene.ask(ask("bob", "E k").owner("bob").wait(9_000));
    scene.ask(ask("s", "S k").wait(9_000));
    assert_eq!(scene.ask(ask("e2", "E k").owner("ann")), "granted token 2 lease 30000 waited 0");
    scene.release("e1");
    assert_eq!(scene.granted(), [""; 0]);
    scene.release("e2");
    assert_eq!(scene.granted(), ["bob"]);
    // Without a held E of its own, ann queues behind everyone.
    assert_eq!(
        scene.ask(ask("e3", "E k").owner("ann")),
        "busy: bob E held token 3 since 0 left 30000"
    );
}

#[test]
fn only_a_held_e_lets_its_owner_pass() {
    for held in ["S", "X"] {
        let mut scene = Scene::new();
        scene.ask(ask("h", &format!("{held} k")).owner("ann"));
        scene.ask(ask("queued", "X k & X j").wait(9_000));
        assert_eq!(
            scene.ask(ask("p", "S j").owner("ann")),
            "busy: queued X waiting token 0 since 0 left 9000",
            "{held}"
        );
    }
    // An O that was promoted is an E.
    let mut scene = Scene::new();
    scene.ask(ask("o", "O k").owner("ann"));
    scene.ask(ask("queued", "X k & X j").wait(9_000));
    assert!(scene.ask(ask("p", "S j").owner("ann")).starts_with("busy"));
    scene.promote("o");
    assert_eq!(scene.ask(ask("p", "S j").owner("ann")), "granted token 3 lease 30000 waited 0");
}

#[test]
fn a_waiter_that_does_not_conflict_with_the_e_itself_is_not_passed() {
    let mut scene = Scene::new();
    scene.ask(ask("e", "E k").owner("ann"));
    scene.ask(ask("h", "S j"));
    // Blocked by `h`, not by ann's E.
    scene.ask(ask("queued", "X j").wait(9_000));
    assert_eq!(
        scene.ask(ask("p", "S j").owner("ann")),
        "busy: queued X waiting token 0 since 0 left 9000"
    );
    // Blocked only indirectly: it waits for one who waits for the E.
    let mut scene = Scene::new();
    scene.ask(ask("e", "E k").owner("ann"));
    scene.ask(ask("w1", "X k & X i").wait(9_000));
    scene.ask(ask("w2", "X i & X j").wait(8_000));
    assert_eq!(
        scene.ask(ask("p", "S j").owner("ann")),
        "busy: w2 X waiting token 0 since 0 left 8000"
    );
}

#[test]
fn an_owner_does_not_pass_its_own_waiting_e_that_goes_together_with_its_held_one() {
    let mut scene = Scene::new();
    scene.ask(ask("e", "E k").owner("ann"));
    scene.ask(ask("h", "S j"));
    // Ann's own E on k goes together with the held one; what blocks it is `h`.
    scene.ask(ask("own", "E k & E j").owner("ann").wait(9_000));
    assert_eq!(
        scene.ask(ask("p", "S j").owner("ann")),
        "busy: ann E waiting token 0 since 0 left 9000"
    );
    // Ann's own X on k conflicts with it, so that one she may pass.
    scene.cancel("own");
    scene.ask(ask("own2", "X k & X j").owner("ann").wait(9_000));
    assert_eq!(scene.ask(ask("p", "S j").owner("ann")), "granted token 3 lease 30000 waited 0");
}

#[test]
fn a_grant_of_an_e_frees_waiters_of_its_owner_that_came_later() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X k"));
    scene.ask(ask("e", "E k").owner("ann").wait(9_000));
    scene.ask(ask("queued", "X k & X j").wait(9_000));
    assert!(scene.ask(ask("p", "X j").owner("ann").wait(9_000)).starts_with("waiting: queued"));
    scene.release("h");
    assert_eq!(scene.granted(), ["e", "p"]);
}

#[test]
fn overlapping_wildcards_with_different_holders_are_all_waited_for() {
    let mut scene = Scene::new();
    for (id, wanted) in [("a", "S t(1,1)"), ("b", "S t(1,2)"), ("c", "S t(2,1)")] {
        scene.ask(ask(id, wanted));
    }
    scene.ask(ask("row", "X t(1,@)").wait(90_000));
    scene.ask(ask("column", "X t(@,1)").wait(90_000));
    scene.release("a");
    scene.release("c");
    assert_eq!(scene.granted(), [""; 0]);
    scene.release("b");
    assert_eq!(scene.granted(), ["row"]);
    scene.release("row");
    assert_eq!(scene.granted(), ["column"]);
}

#[test]
fn a_cancelled_writer_in_a_long_queue_joins_the_readers_on_both_sides() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X k"));
    for (id, mode) in [("r1", "S"), ("r2", "S"), ("w", "X"), ("r3", "S"), ("r4", "S")] {
        scene.ask(ask(id, &format!("{mode} k")).wait(90_000));
    }
    scene.cancel("w");
    assert_eq!(scene.granted(), [""; 0]);
    scene.release("h");
    assert_eq!(scene.granted(), ["r1", "r2", "r3", "r4"]);
}

#[test]
fn an_owner_passes_a_writer_that_readers_in_between_wait_for() {
    let mut scene = Scene::new();
    scene.ask(ask("e", "E k").owner("ann"));
    scene.ask(ask("h", "X z"));
    scene.ask(ask("w", "X k & X j").wait(9_000));
    scene.ask(ask("r", "S j").wait(9_000));
    // Only `h` is in her way: she may pass `w`, and goes together with `r`.
    assert_eq!(
        scene.ask(ask("p", "S j & X z").owner("ann").wait(9_000)),
        "waiting: h X held token 2 since 0 left 30000"
    );
    scene.release("h");
    assert_eq!(scene.granted(), ["p"]);
}

#[test]
fn an_e_without_owner_is_granted_while_others_wait_behind_waiters() {
    use keylatch_table::{
        Acquire, Command, Event, Mode, Part, Party, Resource, Settings, Table, Target,
    };
    let mut table = Table::new(Settings::default(), 0, 1);
    for (id, mode) in [
        ("a", Mode::Exclusive),
        ("b", Mode::Cumulative),
        ("c", Mode::Exclusive),
        ("d", Mode::Exclusive),
    ] {
        let resource = Resource::plain("k").unwrap();
        let part = Part::new(resource.clone(), mode);
        let ask = Acquire::new(id.into(), resource, Party::client("host"));
        table.apply(0, Command::Acquire(Acquire { part, wait_ms: 9_000, ..ask }));
    }
    let applied = table.apply(0, Command::Release(Target::Id("a".into())));
    assert!(matches!(&applied.events[..], [Event::Granted { id, .. }] if *id == "b".into()));
}
