//! The mistakes that systems like this one made (`known-bugs.md`), each as a test. Lines 16 to 27 and
//! 29 are about clusters and clients; their tests are with those.

#![allow(missing_docs)]

mod common;

use common::tasks::{any, named};
use common::{Scene, ask};
use keylatch_table::{Claim, Command, Target};

#[test]
fn bug_01_a_wildcard_checks_every_overlapping_entry() {
    let mut scene = Scene::new();
    scene.ask(ask("ab", "E tab(A,B)").owner("ann"));
    scene.ask(ask("cd", "E tab(C,D)").owner("bob"));
    assert_eq!(
        scene.ask(ask("all", "E tab(@,@)").owner("cid").wait(9_000)),
        "waiting: ann E held token 1 since 0 left 30000"
    );
    scene.release("ab");
    assert!(scene.events().is_empty());
    assert_eq!(scene.holders(), ["cd"]);
    scene.release("cd");
    assert_eq!(scene.events(), ["granted all token 3 lease 30000 waited 0"]);
    assert_eq!(scene.holders(), ["all"]);
}

#[test]
fn bug_02_every_holder_is_checked_not_only_the_head_of_a_queue() {
    let mut scene = Scene::new();
    scene.ask(ask("one", "S tab(1,x)"));
    scene.ask(ask("any", "S tab(@,x)"));
    assert_eq!(scene.ask(ask("two", "X tab(2,x)")), "busy: any S held token 2 since 0 left 30000");
    assert_eq!(scene.holders(), ["one", "any"]);
}

#[test]
fn bug_03_a_release_frees_only_what_was_released() {
    let mut scene = Scene::new();
    scene.ask(ask("one", "X tab(1)"));
    scene.ask(ask("two", "X tab(2)"));
    scene.release("one");
    assert_eq!(scene.ask(ask("late", "X tab(2)")), "busy: two X held token 2 since 0 left 30000");
}

#[test]
fn bug_04_one_of_two_cumulative_locks_is_released_and_the_other_still_holds() {
    let mut scene = Scene::new();
    scene.ask(ask("a1", "E k").owner("ann"));
    scene.ask(ask("a2", "E k").owner("ann"));
    scene.ask(ask("b", "E k").owner("bob").wait(9_000));
    scene.release("a1");
    assert!(scene.events().is_empty());
    assert_eq!(scene.holders(), ["a2"]);
    scene.release("a2");
    assert_eq!(scene.granted(), ["b"]);
}

#[test]
fn bug_05_all_readers_that_became_free_enter() {
    let mut scene = Scene::new();
    scene.ask(ask("e", "E k"));
    scene.ask(ask("s1", "S k").wait(9_000));
    scene.ask(ask("s2", "S k").wait(9_000));
    scene.release("e");
    assert_eq!(
        scene.events(),
        ["granted s1 token 2 lease 30000 waited 0", "granted s2 token 3 lease 30000 waited 0",]
    );
}

#[test]
fn bug_06_after_a_promotion_the_dropped_are_told_and_waiters_are_looked_at_again() {
    let mut scene = Scene::new();
    scene.ask(ask("o1", "O k").owner("ann"));
    scene.ask(ask("o2", "O k & O other").owner("bob"));
    scene.ask(ask("e", "E k").owner("ann").wait(9_000));
    scene.ask(ask("x", "X other").wait(9_000));
    assert_eq!(scene.promote("o1"), "promoted token 3 lease 30000 waited 0");
    assert_eq!(
        scene.events(),
        [
            "lost o2 token 2 superseded (ann) [2 bob: O k & O other]",
            "granted e token 4 lease 30000 waited 0",
            "granted x token 5 lease 30000 waited 0",
        ]
    );
    assert_eq!(scene.promote("o2"), "lost superseded by ann");
}

#[test]
fn bug_07_a_reader_does_not_pass_a_writer_that_already_waits() {
    let mut scene = Scene::new();
    scene.ask(ask("s1", "S k"));
    scene.ask(ask("x", "X k").wait(9_000));
    assert_eq!(scene.ask(ask("try", "S k")), "busy: x X waiting token 0 since 0 left 9000");
    scene.ask(ask("s2", "S k").wait(9_000));
    scene.release("s1");
    assert_eq!(scene.granted(), ["x"]);
    scene.release("x");
    assert_eq!(scene.granted(), ["s2"]);
}

#[test]
fn bug_08_a_holder_is_granted_once_and_its_lease_is_not_restarted() {
    let mut scene = Scene::new();
    scene.ask(ask("s1", "S k"));
    scene.ask(ask("s2", "S k").lease(10_000));
    scene.ask(ask("x", "X k").wait(99_000));
    scene.at(5_000).release("s1");
    assert!(scene.events().is_empty());
    assert_eq!(scene.entries_of("s2")[0].lease_ms, Some(6_000));
    scene.cancel("x");
    assert_eq!(scene.granted(), [""; 0]);
    scene.at(11_000).tick();
    assert_eq!(scene.events(), ["lost s2 token 2 expired [2 s2: S k]"]);
}

#[test]
fn bug_09_the_lease_of_a_released_lock_does_not_hit_its_successor() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(10_000));
    scene.at(2_000).release("a");
    scene.ask(ask("b", "X k").lease(60_000));
    scene.at(11_000).tick();
    assert!(scene.events().is_empty());
    assert_eq!(scene.holders(), ["b"]);
    scene.at(61_999).tick();
    assert_eq!(scene.holders(), ["b"]);
    scene.at(62_000).tick();
    assert_eq!(scene.events(), ["lost b token 2 expired [2 b: X k]"]);
}

#[test]
fn bug_10_a_thousand_overlapping_readers_leave_nothing_behind() {
    let mut scene = Scene::crowded();
    for number in 0..1_000 {
        let wanted = if number % 2 == 0 { "S tab(1,@)" } else { "S tab(@,2)" };
        scene.ask(ask(&format!("r{number}"), wanted).owner(&format!("o{number}")));
    }
    assert_eq!((scene.stats().held, scene.stats().resources), (1_000, 2));
    for number in 0..1_000 {
        assert_eq!(scene.release(&format!("r{number}")), "released");
    }
    scene.at(61_000).tick();
    let stats = scene.stats();
    assert_eq!((stats.held, stats.waiting), (0, 0));
    assert_eq!((stats.resources, stats.owners, stats.ended), (0, 0, 0));
    assert_eq!(scene.table.next_deadline(), None);
    let fresh = Scene::new();
    // All that is left are the counters and the clock: a few bytes of numbers.
    assert!(scene.table.snapshot().len() <= fresh.table.snapshot().len() + 6);
}

#[test]
fn bug_11_a_waiter_that_disconnected_is_skipped_or_holds_no_longer_than_its_grace() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.ask(ask("gone", "X k").wait(60_000));
    scene.ask(ask("lost", "X k").wait(60_000));
    scene.ask(ask("here", "X k").wait(60_000));
    scene.detach(&["gone"], 0);
    assert_eq!(scene.events(), ["withdrawn gone [2 gone: X k]"]);
    scene.detach(&["lost"], 2_000);
    scene.at(1_500).release("a");
    assert_eq!(scene.events(), ["granted lost token 2 lease 2000 waited 500"]);
    scene.at(3_499).tick();
    assert!(scene.events().is_empty());
    scene.at(3_500).tick();
    assert_eq!(
        scene.events(),
        ["lost lost token 2 expired [3 lost: X k]", "granted here token 3 lease 30000 waited 2500",]
    );
}

#[test]
fn bug_12_a_wait_that_is_over_is_not_granted() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(5_000));
    scene.ask(ask("b", "X k").wait(5_000));
    // The lease and the wait end at the same moment, and only then does anyone look.
    scene.at(6_000).tick();
    assert_eq!(
        scene.events(),
        [
            "timed out b [2 b: X k]: a X held token 1 since 5000 left 0",
            "lost a token 1 expired [1 a: X k]",
        ]
    );
    assert_eq!(scene.holders(), [""; 0]);
    // The same if the lock is released by the very command that comes too late.
    scene.ask(ask("c", "X k"));
    scene.ask(ask("d", "X k").wait(100));
    assert_eq!(scene.at(6_100).release("c"), "released");
    assert_eq!(scene.events(), ["timed out d [4 d: X k]: c X held token 2 since 100 left 29900"]);
}

#[test]
fn bug_13_only_the_id_releases_and_no_list_or_token_stands_in_for_it() {
    let mut scene = Scene::new();
    let secret = "0189abcd-ef01-7234-8567-89abcdef0123";
    scene.ask(ask(secret, "X k").owner("ann").alias("public"));
    for guess in ["1", "k", "ann", "public", "", "0189abcd-ef01-7234-8567-89abcdef0124"] {
        assert_eq!(scene.release(guess), "not held", "{guess}");
        assert_eq!(scene.renew(guess), "lost", "{guess}");
        assert_eq!(scene.promote(guess), "lost", "{guess}");
        assert_eq!(scene.cancel(guess), "cancelled false", "{guess}");
    }
    // A refusal names the owner, never the id.
    assert!(!scene.ask(ask("other", "X k")).contains(secret));
    assert_eq!(scene.holders(), [secret]);
    assert_eq!(scene.say(Command::Release(Target::Id(secret.into()))), "released");
}

#[test]
fn bug_14_a_wait_with_nothing_free_sleeps_until_its_end_and_ends_on_time() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(0));
    scene.ask(ask("b", "X k").wait(1_000));
    // The driver sleeps until then: nothing ends before.
    assert_eq!(scene.table.next_deadline(), Some(2_000));
    scene.at(1_999).tick();
    assert!(scene.events().is_empty());
    assert_eq!(scene.table.next_deadline(), Some(2_000));
    scene.at(2_000).tick();
    assert_eq!(scene.events(), ["timed out b [2 b: X k]: a X held token 1 since 1000 left none"]);
    assert_eq!(scene.table.next_deadline(), None);
    // And the same of a claim.
    assert_eq!(scene.claim_as("w", Claim { wait_ms: 1_000, ..any("w") }), "waiting");
    assert_eq!(scene.table.next_deadline(), Some(3_000));
    scene.at(3_000).tick();
    assert_eq!(scene.events(), ["pool: timed out w"]);
    assert_eq!(scene.table.next_deadline(), None);
}

#[test]
fn bug_15_asking_for_one_key_never_gives_another() {
    let mut scene = Scene::new();
    scene.create("other");
    assert_eq!(scene.claim_as("w", named("w", "mine")), "nothing");
    let wait = Claim { wait_ms: 5_000, ..named("v", "mine") };
    assert_eq!(scene.claim_as("v", wait), "waiting");
    scene.create("another");
    assert!(scene.events().is_empty());
    scene.create("mine");
    assert_eq!(
        scene.events(),
        ["pool: claimed by v mine version 4 token 4 attempts 0 lease 60000 waited 0"]
    );
    // The same of locks: a plain key beside one with fields of the same name.
    scene.ask(ask("plain", "X k"));
    assert_eq!(scene.ask(ask("field", "X k(a)")), "granted token 6 lease 30000 waited 0");
}

#[test]
fn bug_28_idle_keys_leave_no_fence_behind_and_tokens_grow_all_the_same() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(ask("a", "X k")), "granted token 1 lease 30000 waited 0");
    scene.release("a");
    scene.ask(ask("other", "X j"));
    scene.release("other");
    scene.at(61_000).tick();
    let stats = scene.stats();
    assert_eq!((stats.resources, stats.ended, stats.token), (0, 0, 2));
    assert_eq!(scene.ask(ask("b", "X k")), "granted token 3 lease 30000 waited 0");
}

#[test]
fn bug_30_a_retry_neither_takes_the_lock_twice_nor_is_refused_by_its_first_try() {
    let mut scene = Scene::new();
    let first = ask("a", "X k");
    assert_eq!(scene.ask(first.clone()), "granted token 1 lease 30000 waited 0");
    assert_eq!(scene.at(3_000).ask(first.clone()), "granted token 1 lease 28000 waited 0");
    assert_eq!(scene.stats().held, 1);
    assert_eq!(scene.release("a"), "released");
    assert_eq!(scene.release("a"), "released");
    assert_eq!(scene.ask(first), "ended released");
    assert_eq!(scene.stats().held, 0);
    // A claim and a create, too.
    assert_eq!(scene.create("t"), "created 2");
    assert_eq!(scene.create("t"), "created 2");
    let claimed = "claimed t version 3 token 3 attempts 0 lease 60000 waited 0";
    assert_eq!(scene.claim("w"), claimed);
    assert_eq!(scene.claim("w"), claimed);
    assert_eq!(scene.counts().claimed, 1);
}
