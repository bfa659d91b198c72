//! Conflicts: which modes go together, what overlaps, and whom a refusal names.

use crate::common::{Scene, ask, resource};
use keylatch_table::{Field, Resource, rules};

/// Whether `asked` by `asker` is granted beside `held` by `holder`.
fn together(held: &str, holder: &str, asked: &str, asker: &str) -> bool {
    let mut scene = Scene::new();
    scene.ask(ask("held", held).owner(holder));
    scene.ask(ask("asked", asked).owner(asker)).starts_with("granted")
}

#[test]
fn modes_go_together_as_the_table_says() {
    for held in ["S", "E", "X", "O"] {
        for asked in ["S", "E", "X", "O"] {
            let always = held == asked && matches!(held, "S" | "O");
            let same_owner = always || (held == "E" && asked == "E");
            let (held, asked) = (format!("{held} k"), format!("{asked} k"));
            assert_eq!(together(&held, "ann", &asked, "bob"), always, "{held}, {asked}");
            assert_eq!(together(&held, "ann", &asked, "ann"), same_owner, "{held}, {asked}");
        }
    }
}

#[test]
fn the_same_modes_decide_against_one_who_waits() {
    for queued in ["S", "E", "X", "O"] {
        for asked in ["S", "E", "X", "O"] {
            let mut scene = Scene::new();
            // Everyone conflicts with the X, but only the queued request is asked for `k` too.
            scene.ask(ask("x", "X j"));
            let queued_parts = match queued {
                "O" => "O j & O k".to_owned(),
                mode => format!("S j & {mode} k"),
            };
            scene.ask(ask("queued", &queued_parts).wait(9_000));
            let reply = scene.ask(ask("asked", &format!("{asked} k")));
            let free = queued == asked && matches!(queued, "S" | "O");
            assert_eq!(reply.starts_with("granted"), free, "{queued}, {asked}: {reply}");
            let named = format!("busy: queued {queued} waiting token 0 since 0 left 9000");
            assert!(free || reply == named, "{reply}");
        }
    }
}

#[test]
fn only_explicit_owners_cumulate() {
    let mut scene = Scene::new();
    scene.ask(ask("a1", "E k").shown("ann"));
    let busy = "busy: ann E held token 1 since 0 left 30000";
    assert_eq!(scene.ask(ask("a2", "E k").shown("ann")), busy);
    assert_eq!(scene.ask(ask("a3", "E k").owner("ann")), busy);
    scene.release("a1");
    scene.ask(ask("a4", "E k").owner("ann"));
    assert!(scene.ask(ask("a5", "E k").shown("ann")).starts_with("busy"));
    assert!(scene.ask(ask("a6", "E k").owner("Ann")).starts_with("busy"));
    assert_eq!(scene.ask(ask("a7", "E k").owner("ann")), "granted token 3 lease 30000 waited 0");
    assert_eq!(
        scene.ask(ask("a8", "E k").owner("ann").principal("root")),
        "granted token 4 lease 30000 waited 0"
    );
}

#[test]
fn each_cumulative_lock_has_its_own_id_token_and_end() {
    let mut scene = Scene::new();
    scene.ask(ask("a1", "E k").owner("ann"));
    scene.ask(ask("a2", "E k").owner("ann").lease(5_000));
    assert_eq!(scene.at(6_000).tick(), "done");
    assert_eq!(scene.events(), ["lost a2 token 2 expired [2 ann: E k]"]);
    assert_eq!(scene.renew("a1"), "renewed 30000");
    assert_eq!(scene.release("a1"), "released");
    assert_eq!(scene.release("a2"), "not held");
}

#[test]
fn the_default_mode_is_x() {
    assert_eq!(keylatch_table::Mode::default().letter(), "X");
}

#[test]
fn overlap_needs_the_same_name_the_same_number_of_fields_and_every_field() {
    for (held, asked, expected) in [
        ("t(A,B)", "t(A,B)", true),
        ("t(A,B)", "t(A,@)", true),
        ("t(A,B)", "t(@,B)", true),
        ("t(A,B)", "t(@,@)", true),
        ("t(A,@)", "t(@,B)", true),
        ("t(@,@)", "t(@,@)", true),
        ("t(A,B)", "t(A,C)", false),
        ("t(A,B)", "t(C,B)", false),
        ("t(A,@)", "t(C,@)", false),
        ("t(A,@)", "t(@,@,@)", false),
        ("t(A)", "t", false),
        ("t(@)", "t", false),
        ("t(A,B)", "u(A,B)", false),
        ("t", "t", true),
        ("t", "tt", false),
        ("t(A,B,C,D)", "t(@,B,@,D)", true),
        ("t(A,B,C,D)", "t(@,B,@,E)", false),
        ("t(AB,C)", "t(A,BC)", false),
    ] {
        for (held, asked) in [(held, asked), (asked, held)] {
            let granted = together(&format!("X {held}"), "ann", &format!("X {asked}"), "bob");
            assert_eq!(granted, !expected, "{held}, {asked}");
            assert_eq!(rules::overlap(&resource(held), &resource(asked)), expected);
        }
    }
}

#[test]
fn texts_numbers_and_booleans_are_never_equal_to_each_other() {
    let fields = [
        Field::Text("1"),
        Field::Number("1"),
        Field::Text("true"),
        Field::Bool(true),
        Field::Bool(false),
        Field::Text("@"),
        Field::Text(""),
    ];
    for (at, a) in fields.iter().enumerate() {
        for (other, b) in fields.iter().enumerate() {
            let (x, y) = (Resource::new("n", &[*a]), Resource::new("n", &[*b]));
            assert_eq!(rules::overlap(&x.unwrap(), &y.unwrap()), at == other, "{a:?}, {b:?}");
        }
        let (x, any) = (Resource::new("n", &[*a]).unwrap(), resource("n(@)"));
        assert!(rules::overlap(&x, &any) && rules::overlap(&any, &x), "{a:?}");
    }
    let mut scene = Scene::new();
    scene.ask(ask("number", "X t(#1)"));
    scene.ask(ask("text", "X t(1)"));
    scene.ask(ask("flag", "X t(true)"));
    assert_eq!(scene.holders(), ["number", "text", "flag"]);
    assert!(scene.ask(ask("again", "X t(#1)")).starts_with("busy: number"));
    assert!(scene.ask(ask("all", "X t(@)")).starts_with("busy: number"));
}

#[test]
fn sixteen_fields_with_wildcards_anywhere_find_each_other() {
    let all = |fields: [&str; 16]| format!("X t({})", fields.join(","));
    let mut wide = ["a"; 16];
    (wide[0], wide[7], wide[15]) = ("@", "@", "@");
    let mut narrow = ["a"; 16];
    (narrow[0], narrow[7], narrow[15]) = ("b", "c", "d");
    assert!(!together(&all(wide), "ann", &all(narrow), "bob"));
    assert!(!together(&all(narrow), "ann", &all(wide), "bob"));
    narrow[8] = "e";
    assert!(together(&all(wide), "ann", &all(narrow), "bob"));
    assert!(together(&all(narrow), "ann", &all(wide), "bob"));
}

#[test]
fn the_blocker_is_the_holder_with_the_lowest_seq() {
    let mut scene = Scene::new();
    // Arrival order is not token order: `late` is granted before `early`.
    scene.ask(ask("x", "X t(1)"));
    scene.ask(ask("early", "S t(1)").wait(9_000));
    scene.ask(ask("late", "S t(2)"));
    scene.at(1_500).release("x");
    assert_eq!(scene.events(), ["granted early token 3 lease 30000 waited 500"]);
    assert_eq!(
        scene.at(1_700).ask(ask("all", "X t(@)")),
        "busy: early S held token 3 since 200 left 29800"
    );
    scene.release("early");
    assert_eq!(scene.ask(ask("all", "X t(@)")), "busy: late S held token 2 since 700 left 29300");
}

#[test]
fn a_holder_is_named_before_a_waiter_that_came_earlier() {
    let mut scene = Scene::new();
    scene.ask(ask("x", "X t(1)"));
    scene.ask(ask("early", "X t(1)").wait(9_000));
    scene.ask(ask("late", "X t(2)"));
    scene.release("x");
    scene.ask(ask("behind", "X t(1)").wait(8_000));
    scene.release("late");
    // Now `early` holds t(1), `behind` waits for it, and somebody wants t(2) and t(1).
    assert_eq!(
        scene.ask(ask("both", "S t(2) & S t(1)")),
        "busy: early X held token 3 since 0 left 30000"
    );
    scene.ask(ask("r", "S u"));
    scene.ask(ask("w", "X u").wait(7_000));
    // The holder `r` does not conflict; the waiter does.
    assert_eq!(scene.ask(ask("s", "S u")), "busy: w X waiting token 0 since 0 left 7000");
    // With both in the way the holder is named, though the waiter came first.
    scene.ask(ask("h", "X v"));
    assert_eq!(scene.ask(ask("uv", "S u & S v")), "busy: h X held token 5 since 0 left 30000");
}

#[test]
fn of_several_blocking_waiters_the_earliest_is_named() {
    let mut scene = Scene::new();
    scene.ask(ask("s", "S t(1) & S t(2)"));
    scene.at(1_100).ask(ask("w1", "X t(2)").wait(9_000));
    scene.at(1_200).ask(ask("w2", "X t(1)").wait(5_000));
    assert_eq!(
        scene.at(1_300).ask(ask("r", "S t(1) & S t(2)")),
        "busy: w1 X waiting token 0 since 200 left 8800"
    );
    assert_eq!(scene.ask(ask("r", "S t(1)")), "busy: w2 X waiting token 0 since 100 left 4900");
}

#[test]
fn the_mode_named_is_that_of_the_blockers_first_conflicting_resource_in_its_own_order() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "S a & X b & E c"));
    assert_eq!(scene.ask(ask("1", "S c & S b")), "busy: h X held token 1 since 0 left 30000");
    assert_eq!(scene.ask(ask("2", "S a & S c")), "busy: h E held token 1 since 0 left 30000");
    assert_eq!(scene.ask(ask("3", "X c & X a")), "busy: h S held token 1 since 0 left 30000");
    assert_eq!(scene.ask(ask("4", "S a")), "granted token 2 lease 30000 waited 0");
}

#[test]
fn what_is_left_of_a_blocker_is_its_lease_its_wait_or_its_shorter_grace() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "S k").lease(0));
    assert_eq!(scene.ask(ask("x", "X k")), "busy: h S held token 1 since 0 left none");
    scene.ask(ask("w", "X k").wait(5_000));
    scene.at(1_500).detach(&["w"], 2_000);
    assert_eq!(
        scene.at(1_600).ask(ask("r", "S k")),
        "busy: w X waiting token 0 since 600 left 1900"
    );
    scene.detach(&["w"], 20_000);
    assert_eq!(scene.ask(ask("r", "S k")), "busy: w X waiting token 0 since 600 left 4400");
}
