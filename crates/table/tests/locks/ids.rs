//! Ids: what is remembered of them, for how long, and how many.

use crate::common::{Scene, ask};

#[test]
fn an_id_that_was_granted_and_has_ended_is_not_granted_again_while_it_is_remembered() {
    let mut scene = Scene::new();
    scene.ask(ask("released", "X a"));
    scene.ask(ask("expired", "X b").lease(1_000));
    scene.ask(ask("revoked", "X c"));
    scene.ask(ask("o", "O d"));
    scene.ask(ask("superseded", "O d"));
    scene.release("released");
    scene.revoke(3, "");
    scene.promote("o");
    scene.at(2_000).tick();
    for (id, cause) in [
        ("released", "released"),
        ("expired", "expired"),
        ("revoked", "revoked"),
        ("superseded", "superseded"),
    ] {
        assert_eq!(scene.ask(ask(id, "X free")), format!("ended {cause}"));
    }
    assert_eq!(scene.stats().ended, 4);
}

#[test]
fn of_an_ended_id_nothing_else_is_compared() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.release("a");
    assert_eq!(scene.ask(ask("a", "O x & S y").owner("new").wait(1)), "ended released");
}

#[test]
fn it_is_forgotten_exactly_when_its_time_is_over() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.at(2_000).release("a");
    assert_eq!(scene.at(61_999).ask(ask("a", "X k")), "ended released");
    assert_eq!(scene.stats().ended, 1);
    assert_eq!(scene.at(62_000).ask(ask("a", "X k")), "granted token 2 lease 30000 waited 0");
    assert_eq!(scene.stats().ended, 0);
}

#[test]
fn ids_are_remembered_in_a_bounded_number_and_the_oldest_go_first() {
    let mut scene = Scene::with(&[("ended", 2)]);
    for id in ["a", "b", "c"] {
        scene.ask(ask(id, "X k"));
        scene.release(id);
    }
    assert_eq!(scene.stats().ended, 2);
    assert_eq!(scene.ask(ask("b", "X k")), "ended released");
    assert_eq!(scene.ask(ask("c", "X k")), "ended released");
    assert_eq!(scene.ask(ask("a", "X k")), "granted token 4 lease 30000 waited 0");
}

#[test]
fn with_none_remembered_an_id_may_come_again_at_once() {
    for setting in ["ended", "ended_ms"] {
        let mut scene = Scene::with(&[(setting, 0)]);
        scene.ask(ask("a", "X k"));
        assert_eq!(scene.release("a"), "released");
        assert_eq!(scene.release("a"), "not held", "{setting}");
        assert_eq!(scene.ask(ask("a", "X k")), "granted token 2 lease 30000 waited 0");
    }
}

#[test]
fn busy_timeout_and_withdrawal_are_not_ends() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(0));
    scene.ask(ask("w", "X k"));
    scene.ask(ask("w", "X k").wait(500));
    scene.at(1_500).tick();
    assert_eq!(scene.events(), ["timed out w [2 w: X k]: a X held token 1 since 500 left none"]);
    scene.ask(ask("w", "S k").wait(500));
    scene.detach(&["w"], 0);
    assert_eq!(scene.stats().ended, 0);
    scene.ask(ask("v", "X k").wait(900));
    scene.ask(ask("w", "X k").wait(900));
    // At the tail, and with a new seq: the refused ones took none.
    assert_eq!(scene.everyone(), ["a", "v", "w"]);
    let seqs = ["a", "v", "w"].map(|id| scene.entries_of(id)[0].seq);
    assert_eq!(seqs, [1, 4, 5]);
}

#[test]
fn a_refused_request_takes_neither_seq_nor_token() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.ask(ask("b", "X k"));
    scene.ask(ask("c", "X k & S k"));
    scene.ask(ask("", "X z"));
    assert_eq!((scene.stats().seq, scene.stats().token), (1, 1));
    scene.ask(ask("d", "X d"));
    assert_eq!((scene.stats().seq, scene.stats().token), (2, 2));
    // A waiter takes a seq, and its token only when it is granted.
    scene.ask(ask("e", "X d").wait(9_000));
    assert_eq!((scene.stats().seq, scene.stats().token), (3, 2));
    // A claim takes a seq from the same counter when it is queued.
    scene.claim("now");
    scene.claim_wait("queued", 9_000);
    assert_eq!((scene.stats().seq, scene.stats().token), (4, 2));
}

#[test]
fn an_id_is_checked_before_anything_else() {
    let mut scene = Scene::new();
    let longest = "i".repeat(64);
    assert_eq!(scene.ask(ask("", "O a & S a")), "error Empty(Id)");
    assert_eq!(scene.ask(ask(&format!("{longest}i"), "O a & S a")), "error TooLong(Id, 64)");
    assert_eq!(scene.ask(ask(&longest, "X a")), "granted token 1 lease 30000 waited 0");
    // What is known of the id comes before what it asks for.
    assert_eq!(scene.ask(ask(&longest, "O a & S a")), "error IdReused");
    scene.release(&longest);
    assert_eq!(scene.ask(ask(&longest, "O a & S a")), "ended released");
}

#[test]
fn a_uuid_counts_as_its_text() {
    let uuid = "0189abcd-ef01-7234-8567-89abcdef0123";
    let mut scene = Scene::with(&[("id_bytes", 35)]);
    assert_eq!(scene.ask(ask(uuid, "X a")), "error TooLong(Id, 35)");
    let mut scene = Scene::with(&[("id_bytes", 36)]);
    assert_eq!(scene.ask(ask(uuid, "X a")), "granted token 1 lease 30000 waited 0");
    assert_eq!(scene.release(&uuid.to_uppercase()), "not held");
    assert_eq!(scene.release(uuid), "released");
}

#[test]
fn ids_of_locks_and_of_tasks_are_apart() {
    let mut scene = Scene::new();
    scene.ask(ask("same", "X k"));
    assert_eq!(scene.claim_wait("same", 9_000), "waiting");
    assert_eq!(scene.release("same"), "released");
    assert_eq!(scene.counts().waiting, 1);
}

#[test]
fn a_reused_id_of_a_cancelled_waiter_does_not_count_among_the_remembered() {
    let mut scene = Scene::with(&[("ended", 2)]);
    scene.ask(ask("a", "X k"));
    scene.ask(ask("c", "X c"));
    scene.ask(ask("d", "X d"));
    scene.release("c");
    scene.ask(ask("w", "X k").wait(9_000));
    scene.cancel("w");
    scene.ask(ask("w", "X k").wait(9_000));
    // Remembered are c and d; w is live again.
    scene.release("d");
    assert_eq!(scene.release("d"), "released");
    assert_eq!(scene.release("c"), "released");
}
