//! One step: time, forgetting, ends, grants, the command; and the commands that set the table up.

use crate::common::{Scene, ask, settings_with};
use keylatch_table::{Command, Error, Reply, Settings, Table, rules};

#[test]
fn table_time_is_the_largest_time_seen() {
    let mut scene = Scene::new();
    scene.at(5_000).ask(ask("a", "X k").lease(1_000));
    scene.at(4_000).tick();
    assert_eq!(scene.table.now(), 5_000);
    assert_eq!(
        scene.at(3_000).ask(ask("a", "X k").lease(1_000)),
        "granted token 1 lease 1000 waited 0"
    );
    assert_eq!(scene.at(1).ask(ask("b", "X b").lease(500)), "granted token 2 lease 500 waited 0");
    scene.at(5_499).tick();
    assert!(scene.events().is_empty());
    scene.at(5_500).tick();
    assert_eq!(scene.events(), ["lost b token 2 expired [2 b: X b]"]);
}

#[test]
fn waiters_that_are_due_leave_before_holders_even_if_their_deadline_is_later() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(2_000));
    scene.ask(ask("w2", "X k").wait(4_000));
    scene.ask(ask("w1", "X k").wait(3_000));
    scene.ask(ask("w3", "X k").wait(4_000));
    scene.ask(ask("w4", "X k").wait(4_001));
    scene.at(5_000).tick();
    assert_eq!(
        scene.events(),
        [
            "timed out w1 [3 w1: X k]: a X held token 1 since 4000 left 0",
            "timed out w2 [2 w2: X k]: a X held token 1 since 4000 left 0",
            "timed out w3 [4 w3: X k]: a X held token 1 since 4000 left 0",
            "lost a token 1 expired [1 a: X k]",
            "granted w4 token 2 lease 30000 waited 4000",
        ]
    );
}

#[test]
fn ends_and_grants_come_before_the_command() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(2_000));
    scene.ask(ask("w", "X k").wait(90_000).lease(1_000));
    // What is asked at that moment meets the waiter that has just been granted.
    assert_eq!(scene.at(3_000).ask(ask("b", "X k")), "busy: w X held token 2 since 0 left 1000");
    assert_eq!(
        scene.events(),
        ["lost a token 1 expired [1 a: X k]", "granted w token 2 lease 1000 waited 2000"]
    );
    // And a lock whose lease has just ended is free for it.
    assert_eq!(scene.at(4_000).ask(ask("b", "X k")), "granted token 3 lease 30000 waited 0");
    assert_eq!(scene.events(), ["lost w token 2 expired [2 w: X k]"]);
}

#[test]
fn a_refused_command_has_let_time_pass_and_nothing_else() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(2_000));
    scene.ask(ask("w", "X k").wait(90_000));
    let mut other = Scene::new();
    other.ask(ask("a", "X k").lease(2_000));
    other.ask(ask("w", "X k").wait(90_000));
    assert_eq!(scene.at(3_000).ask(ask("", "X k")), "error Empty(Id)");
    other.at(3_000).tick();
    assert_eq!(scene.events(), other.events());
    assert_eq!(scene.events().len(), 2);
    assert_eq!(scene.table.state_hash(), other.table.state_hash());
}

#[test]
fn tasks_come_after_locks_in_a_step() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.ask(ask("a", "X k").lease(60_000));
    scene.claim("w");
    scene.ask(ask("b", "X k").wait(90_000));
    scene.claim_wait("v1", 60_000);
    scene.claim_wait("v2", 90_000);
    scene.at(61_000).tick();
    assert_eq!(
        scene.events(),
        [
            "lost a token 2 expired [1 a: X k]",
            "granted b token 4 lease 30000 waited 60000",
            "pool: timed out v1",
            "pool: lapsed w t token 3",
            "pool: claimed by v2 t version 5 token 5 attempts 0 lease 60000 waited 60000",
        ]
    );
}

#[test]
fn settings_are_replaced_as_a_whole_and_bad_ones_are_refused() {
    let mut scene = Scene::new();
    assert_eq!(scene.table.settings(), &Settings::default());
    assert_eq!(scene.set(&[("waiters", 7)]), "done");
    assert_eq!(scene.table.settings().waiters, 7);
    assert_eq!(scene.set(&[("claims", 8)]), "done");
    assert_eq!(*scene.table.settings(), settings_with(&[("claims", 8)]));
    for (name, most) in [
        ("id_bytes", 255),
        ("name_bytes", 65_535),
        ("field_bytes", 65_535),
        ("resources", 255),
        ("wait_ms", 4_294_967_294),
        ("lease_ms", 4_294_967_294),
        ("requests", 1_073_741_824),
        ("ended", 1_073_741_824),
    ] {
        let refused = scene.set(&[(name, most + 1)]);
        assert!(refused.starts_with("error BadSetting(") && refused.contains(name), "{refused}");
        assert_eq!(*scene.table.settings(), settings_with(&[("claims", 8)]));
    }
    for (name, most) in [("id_bytes", 255), ("lease_ms", 4_294_967_294)] {
        assert_eq!(scene.set(&[(name, most)]), "done");
    }
}

#[test]
fn settings_take_effect_with_the_next_command() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.release("a");
    scene.set(&[("ended", 0)]);
    scene.tick();
    assert_eq!(scene.release("a"), "not held");
    scene.set(&[("lease_ms", 500)]);
    assert_eq!(scene.ask(ask("b", "X k")), "error TooLong(Lease, 500)");
}

#[test]
fn rules_are_never_lowered_nor_raised_beyond_what_is_known() {
    let mut scene = Scene::new();
    assert_eq!(scene.table.rules(), rules::RULES);
    assert_eq!(scene.say(Command::Rules(rules::RULES)), "done");
    let refused = |version| Reply::Error(Error::RulesVersion(version));
    let (newer, older) = (rules::RULES + 1, rules::RULES - 1);
    assert_eq!(scene.apply(Command::Rules(newer)).reply, refused(newer));
    assert_eq!(scene.apply(Command::Rules(older)).reply, refused(older));
    assert_eq!(scene.table.rules(), rules::RULES);
}

#[test]
fn a_token_floor_lifts_tokens_and_never_lowers_them() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X a"));
    assert_eq!(scene.say(Command::TokenFloor(100)), "done");
    assert_eq!(scene.ask(ask("b", "X b")), "granted token 101 lease 30000 waited 0");
    assert_eq!(scene.say(Command::TokenFloor(101)), "done");
    assert_eq!(scene.say(Command::TokenFloor(5)), "done");
    assert_eq!(scene.ask(ask("c", "X c")), "granted token 102 lease 30000 waited 0");
    assert_eq!(scene.create("t"), "created 103");
    // What was granted before keeps its token.
    assert_eq!(scene.ask(ask("a", "X a")), "granted token 1 lease 30000 waited 0");
}

#[test]
fn a_new_table_starts_behind_the_token_it_is_given() {
    let mut table = Table::new(Settings::default(), 1_000_000, 7);
    let granted = table.apply(0, Command::Acquire(ask("a", "X k").0));
    assert!(matches!(granted.reply, Reply::Granted(grant) if grant.token == 1_000_001));
}

#[test]
fn nothing_that_the_table_says_depends_on_its_hash_seed() {
    let play = |seed| {
        let mut table = Table::new(Settings::default(), 0, seed);
        let mut said = Vec::new();
        for at in 0..40u64 {
            let modes = ["S", "X", "E", "O"];
            let wanted = format!("{} t({})", modes[at as usize % 4], at % 3);
            let request = ask(&format!("r{at}"), &wanted).wait(50 + at).lease(20);
            said.push(table.apply(at * 10, Command::Acquire(request.0)));
            said.push(table.apply(at * 10 + 5, Command::Acquire(ask("r1", "X t(@)").0)));
        }
        (said, table.state_hash())
    };
    assert_eq!(play(1), play(u64::MAX));
}

#[test]
fn no_time_and_no_token_floor_makes_a_later_step_panic() {
    for (at, command) in [(1_000, Command::TokenFloor(u64::MAX)), (u64::MAX, Command::Tick)] {
        let mut table = Table::new(Settings::default(), 0, 7);
        table.apply(at, command);
        table.apply(at, Command::Acquire(ask("a", "X k").0));
        table.apply(at, Command::Acquire(ask("w", "X k").wait(5).0));
        table.check();
    }
}

#[test]
fn a_token_floor_is_at_most_two_to_the_sixty_first_and_tokens_grow_beyond_it() {
    let mut table = Table::new(Settings::default(), 0, 1);
    let floor = 1 << 61;
    let refused = table.apply(0, Command::TokenFloor(floor + 1)).reply;
    assert_eq!(refused, Reply::Error(Error::BadSetting("a token floor is at most 2^61")));
    assert_eq!(table.apply(0, Command::TokenFloor(floor)).reply, Reply::Done);
    let resource = keylatch_table::Resource::plain("k").unwrap();
    let party = keylatch_table::Party::client("c");
    let ask = keylatch_table::Acquire::new("a".into(), resource, party);
    let Reply::Granted(grant) = table.apply(0, Command::Acquire(ask)).reply else {
        panic!("it is free")
    };
    assert_eq!(grant.token, floor + 1);
    assert!(Table::restore(&table.snapshot(), 2).is_ok());
}

#[test]
#[should_panic(expected = "lease_ms is at most")]
fn a_table_is_not_made_with_settings_that_cannot_work() {
    let _ = Table::new(Settings { lease_ms: u64::MAX, ..Settings::default() }, 0, 1);
}
