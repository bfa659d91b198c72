//! Reading: lists, pages, single requests, totals.

use crate::common::{Scene, ask, resource};
use keylatch_table::{Answer, Command, Entry, LocksQuery, Mode, Query, State, Stats};

fn seqs(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.seq).collect()
}

fn query() -> LocksQuery {
    LocksQuery::default()
}

#[test]
fn an_entry_says_everything() {
    let mut scene = Scene::new();
    let full = ask("a", "S k & X t(1,@)").owner("ann").principal("pat").wait(7_000).lease(20_000);
    scene.ask(full.meta("m").alias("l").value("v"));
    scene.at(1_600);
    let first = Entry {
        seq: 1,
        token: 1,
        id: "a".into(),
        resource: resource("k"),
        mode: Mode::Shared,
        owner: "ann".into(),
        explicit: true,
        principal: Some("pat".into()),
        state: State::Held,
        held_ms: 600,
        lease_ms: Some(19_400),
        arrived: 1_000,
        wait_ms: 7_000,
        lease_asked_ms: 20_000,
        meta: Some("m".into()),
        alias: Some("l".into()),
    };
    let second = Entry { resource: resource("t(1,@)"), mode: Mode::Exclusive, ..first.clone() };
    assert_eq!(scene.entries_of("a"), [first, second]);
    assert_eq!(scene.entries(query()), scene.entries_of("a"));
    assert_eq!(scene.entries_of("nobody"), []);
}

#[test]
fn a_waiter_is_listed_with_its_wait_and_then_with_its_grant() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X k"));
    scene.ask(ask("w", "X k").wait(7_000).lease(0));
    scene.at(1_600);
    let waiting = Entry {
        seq: 2,
        token: 0,
        id: "w".into(),
        resource: resource("k"),
        mode: Mode::Exclusive,
        owner: "w".into(),
        explicit: false,
        principal: None,
        state: State::Waiting,
        held_ms: 600,
        lease_ms: Some(6_400),
        arrived: 1_000,
        wait_ms: 7_000,
        lease_asked_ms: 0,
        meta: None,
        alias: None,
    };
    assert_eq!(scene.entries_of("w"), std::slice::from_ref(&waiting));
    scene.at(3_000).release("h");
    scene.at(3_100);
    let held =
        Entry { token: 2, state: State::Held, held_ms: 100, lease_ms: None, wait_ms: 0, ..waiting };
    assert_eq!(scene.entries_of("w"), [held]);
}

#[test]
fn the_wait_of_a_holder_is_known_only_if_it_has_an_alias() {
    for (request, wait_ms) in [
        (ask("w", "X k"), 0),
        (ask("w", "X k & X j"), 0),
        (ask("w", "X k").meta("m"), 0),
        (ask("w", "X k").alias("l"), 7_000),
    ] {
        let mut scene = Scene::new();
        scene.ask(request.clone().wait(7_000));
        assert_eq!(scene.entries_of("w")[0].wait_ms, wait_ms, "granted at once");
        let mut scene = Scene::new();
        scene.ask(ask("h", "X k"));
        scene.ask(request.wait(7_000));
        assert_eq!(scene.entries_of("w")[0].wait_ms, 7_000, "waiting");
        scene.release("h");
        assert_eq!(scene.entries_of("w")[0].wait_ms, wait_ms, "granted from the queue");
    }
}

#[test]
fn lists_are_in_the_order_of_arrival_and_waiters_are_added_on_demand() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k"));
    scene.ask(ask("b", "X k").wait(9_000));
    scene.ask(ask("c", "X c"));
    scene.ask(ask("d", "S d"));
    scene.release("a");
    // b holds now, granted last but arrived before c and d.
    assert_eq!(scene.holders(), ["b", "c", "d"]);
    scene.ask(ask("e", "X d").wait(9_000));
    assert_eq!(scene.holders(), ["b", "c", "d"]);
    assert_eq!(scene.everyone(), ["b", "c", "d", "e"]);
}

#[test]
fn filters_must_all_match() {
    let mut scene = Scene::new();
    scene.ask(ask("1", "S a & S t(1)").owner("ann"));
    scene.ask(ask("2", "S a").owner("bob"));
    scene.ask(ask("3", "S t(2) & S t(3) & S b").owner("ann"));
    scene.ask(ask("4", "S a").shown("ann"));
    let by = |name: Option<&str>, owner: Option<&str>| {
        let (name, owner) = (name.map(Into::into), owner.map(Into::into));
        let entries = scene.entries(LocksQuery { name, owner, ..query() });
        let shown = |entry: &Entry| format!("{} {}", entry.id, entry.resource);
        entries.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(by(Some("a"), None), ["1 a", "2 a", "4 a"]);
    assert_eq!(by(Some("t"), None), ["1 t(1)", "3 t(2)", "3 t(3)"]);
    assert_eq!(by(Some("t"), Some("ann")), ["1 t(1)", "3 t(2)", "3 t(3)"]);
    assert_eq!(by(Some("a"), Some("ann")), ["1 a", "4 a"]);
    assert_eq!(by(None, Some("bob")), ["2 a"]);
    assert_eq!(by(None, Some("nobody")), [""; 0]);
    assert_eq!(by(Some("A"), None), [""; 0]);
}

#[test]
fn pages_follow_each_other_without_gap_and_count_requests_not_entries() {
    let mut scene = Scene::new();
    for id in ["1", "2", "3", "4", "5"] {
        scene.ask(ask(id, "S a & S b"));
    }
    scene.release("3");
    let page = |cursor| scene.entries(LocksQuery { limit: 2, cursor, ..query() });
    assert_eq!(seqs(&page(0)), [1, 1, 2, 2]);
    assert_eq!(seqs(&page(2)), [4, 4, 5, 5]);
    assert_eq!(seqs(&page(1)), [2, 2, 4, 4]);
    assert_eq!(seqs(&page(3)), [4, 4, 5, 5]);
    assert_eq!(seqs(&page(4)), [5, 5]);
    assert_eq!(seqs(&page(5)), []);
    assert_eq!(seqs(&page(u64::MAX)), []);
    assert_eq!(seqs(&scene.entries(LocksQuery { limit: 3, ..query() })).len(), 6);
    assert_eq!(seqs(&scene.entries(LocksQuery { limit: 0, ..query() })).len(), 8);
}

#[test]
fn a_limit_counts_only_requests_that_match() {
    let mut scene = Scene::new();
    for (id, wanted) in [("1", "S a"), ("2", "S b"), ("3", "S b"), ("4", "S a"), ("5", "S a")] {
        scene.ask(ask(id, wanted));
    }
    let a = LocksQuery { name: Some("a".into()), limit: 2, ..query() };
    assert_eq!(seqs(&scene.entries(a.clone())), [1, 4]);
    assert_eq!(seqs(&scene.entries(LocksQuery { cursor: 4, ..a })), [5]);
}

#[test]
fn pages_through_many_requests_find_every_one_of_them() {
    let mut scene = Scene::crowded();
    for at in 0..1_000 {
        scene.ask(ask(&format!("r{at}"), &format!("X k{at}")));
    }
    for at in (0..1_000).filter(|at| at % 3 != 0) {
        scene.release(&format!("r{at}"));
    }
    let (mut cursor, mut found) = (0, Vec::new());
    loop {
        let page = scene.entries(LocksQuery { limit: 7, cursor, ..query() });
        let Some(last) = page.last() else { break };
        cursor = last.seq;
        found.extend(seqs(&page));
    }
    assert_eq!(found, (0..1_000).filter(|at| at % 3 == 0).map(|at| at + 1).collect::<Vec<u64>>());
}

#[test]
fn reading_between_two_commands_shows_what_is_left_then_and_changes_nothing() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").lease(5_000));
    let before = scene.table.state_hash();
    scene.at(5_999);
    assert_eq!(scene.entries_of("a")[0].lease_ms, Some(1));
    scene.at(7_000);
    assert_eq!(scene.entries_of("a")[0].lease_ms, Some(0));
    assert_eq!(scene.entries_of("a")[0].held_ms, 6_000);
    // A time in the past reads as table time.
    scene.at(500);
    assert_eq!(scene.entries_of("a")[0].lease_ms, Some(5_000));
    assert_eq!(scene.table.state_hash(), before);
    assert_eq!(scene.table.now(), 1_000);
}

#[test]
fn totals_count_everything_there_is() {
    let mut scene = Scene::new();
    assert_eq!(scene.stats(), Stats::default());
    scene.ask(ask("a", "X k & X j").owner("ann"));
    scene.ask(ask("b", "X k").owner("ann").wait(9_000));
    scene.ask(ask("c", "S s").owner("bob"));
    scene.ask(ask("d", "S s").shown("cid"));
    scene.release("d");
    scene.create("task");
    scene.claim_as(
        "named",
        keylatch_table::Claim { wait_ms: 5_000, ..crate::common::tasks::named("named", "other") },
    );
    scene.at(1_250).tick();
    let stats = Stats {
        now: 1_250,
        token: 4,
        seq: 5,
        held: 2,
        waiting: 1,
        resources: 3,
        owners: 2,
        ended: 1,
        tasks: 1,
        task_bytes: 208,
        claims: 1,
    };
    assert_eq!(scene.stats(), stats);
}

#[test]
fn the_owners_with_most_requests_come_first_and_ties_go_by_name() {
    let mut scene = Scene::new();
    for (id, owner) in [("1", "bob"), ("2", "ann"), ("3", "cid"), ("4", "cid"), ("5", "cid")] {
        scene.ask(ask(id, &format!("X k{id}")).owner(owner));
    }
    scene.ask(ask("6", "X k1").owner("dan").principal("p").wait(9_000));
    scene.ask(ask("7", "X k1").owner("dan").principal("q").wait(9_000));
    scene.ask(ask("8", "X other").shown("eve"));
    let top = |most| match scene.query(&Query::TopOwners(most)) {
        Answer::Owners(owners) => {
            owners.iter().map(|(owner, count)| format!("{owner} {count}")).collect::<Vec<_>>()
        }
        other => panic!("not owners: {other:?}"),
    };
    assert_eq!(top(9), ["cid 3", "dan 2", "ann 1", "bob 1"]);
    assert_eq!(top(2), ["cid 3", "dan 2"]);
    assert_eq!(top(0), [""; 0]);
}

#[test]
fn the_same_seq_stands_for_a_request_through_promotion_and_renewal() {
    let mut scene = Scene::new();
    scene.ask(ask("o", "O k"));
    scene.promote("o");
    scene.renew("o");
    scene.say(Command::Tick);
    assert_eq!(seqs(&scene.entries_of("o")), [1]);
}
