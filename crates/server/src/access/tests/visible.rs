//! What is left out of lists, answers and events.

use keylatch_table::{
    Answer, Claimed, Command, Detach, Entry, Event, LocksQuery, Mode, PoolCounts, Query, Resource,
    Table, TaskEvent, Value,
};

use super::{ask, lock, principal, table};
use crate::access::{Principal, visible_answer, visible_event, visible_locks};

fn entries(table: &Table, query: &LocksQuery) -> Vec<Entry> {
    match table.query(0, &Query::Locks(query.clone())) {
        Answer::Entries(entries) => entries,
        other => panic!("{other:?}"),
    }
}

/// The listing that `who` gets: `name id`, `-` for an id that is not shown.
fn listed(table: &Table, who: &Principal, limit: usize) -> Vec<String> {
    let query = LocksQuery { waiters: true, limit, ..LocksQuery::default() };
    let shown = visible_locks(who, &query, |query| entries(table, query));
    let show = |entry: &Entry| format!("{} {}", entry.resource, shown_id(&entry.id.to_string()));
    shown.iter().map(show).collect()
}

fn shown_id(id: &str) -> &str {
    if id.is_empty() { "-" } else { id }
}

fn crowded() -> Table {
    let mut table = table();
    lock(&mut table, Some("me"), "mine", &[("z:1", Mode::Exclusive)]);
    let parts = [("a:1", Mode::Exclusive), ("b:1", Mode::Exclusive)];
    lock(&mut table, Some("them"), "theirs", &parts);
    lock(&mut table, None, "old", &[("a:2", Mode::Shared)]);
    table
}

#[test]
fn lists_show_names_with_a_right_and_ids_to_their_principal_and_administrators() {
    let table = crowded();
    for (rules, expected) in [
        ("", &["z:1 mine"][..]),
        ("a: observe", &["z:1 mine", "a:1 -", "a:2 -"]),
        ("a: shared", &["z:1 mine", "a:1 -", "a:2 -"]),
        ("b: exclusive", &["z:1 mine", "b:1 -"]),
        ("a:2 revoke", &["z:1 mine", "a:2 -"]),
        ("a: admin; b: observe", &["z:1 mine", "a:1 theirs", "b:1 -", "a:2 old"]),
        (" observe", &["z:1 mine", "a:1 -", "b:1 -", "a:2 -"]),
        (" admin", &["z:1 mine", "a:1 theirs", "b:1 theirs", "a:2 old"]),
    ] {
        for limit in [0, 10] {
            assert_eq!(listed(&table, &principal("me", rules), limit), expected, "{rules}");
        }
    }
    assert_eq!(listed(&table, &principal("other", ""), 0), Vec::<String>::new());
}

#[test]
fn a_page_is_full_although_most_may_not_be_seen() {
    let mut table = table();
    for number in 0..2_000 {
        let name = if number % 500 == 499 { "seen" } else { "hidden" };
        let name = format!("{name}:{number}");
        lock(&mut table, Some("them"), &name, &[(&name, Mode::Shared), ("seen:too", Mode::Shared)]);
    }
    // Both resources of a request are one request.
    let who = principal("me", "seen:4 observe; seen:9 observe; seen:1 observe");
    assert_eq!(listed(&table, &who, 2), ["seen:499 -", "seen:999 -"]);
    assert_eq!(listed(&table, &who, 4), ["seen:499 -", "seen:999 -", "seen:1499 -", "seen:1999 -"]);
    let who = principal("me", "seen: observe");
    assert_eq!(listed(&table, &who, 500).len(), 501, "one of them with two resources");
    let calls = std::cell::Cell::new(0);
    let query = LocksQuery { limit: 1, ..LocksQuery::default() };
    visible_locks(&principal("me", ""), &query, |query| {
        calls.set(calls.get() + 1);
        entries(&table, query)
    });
    assert!(calls.get() < 10, "{} pages", calls.get());
}

#[test]
fn somebody_elses_request_is_not_found_by_its_id() {
    let table = crowded();
    let found = |who: &Principal, id: &str| {
        let query = Query::Request(id.into());
        let mut answer = table.query(0, &query);
        visible_answer(who, &query, &mut answer);
        let Answer::Entries(entries) = answer else { panic!() };
        entries.len()
    };
    let who = principal("me", "a: observe");
    assert_eq!((found(&who, "mine"), found(&who, "theirs"), found(&who, "x")), (1, 0, 0));
    assert_eq!(found(&principal("me", "a: admin; b: admin"), "theirs"), 2);
}

#[test]
fn the_value_of_a_key_is_for_those_who_may_lock_it() {
    let mut table = table();
    let mut set = ask(Some("them"), "r", &[("k", Mode::Exclusive)]);
    set.extra = Value::from(&b"secret"[..]).into();
    table.apply(1, Command::Acquire(set));
    let query = Query::Key(Resource::plain("k").unwrap());
    let value = |rules: &str| {
        let mut answer = table.query(0, &query);
        visible_answer(&principal("me", rules), &query, &mut answer);
        let Answer::Key(Some(holder)) = answer else { panic!() };
        holder.value.is_some()
    };
    assert!(value("k exclusive") && value(" admin"));
    assert!(!value("k observe") && !value("k shared"));
}

#[test]
fn pools_are_those_that_may_be_observed() {
    let pools = ["a", "b"].map(|pool| PoolCounts { pool: pool.into(), ..PoolCounts::default() });
    let mut answer = Answer::Pools(pools.into());
    visible_answer(&principal("me", "a observe; b exclusive"), &Query::Pools, &mut answer);
    let Answer::Pools(left) = answer else { panic!() };
    assert_eq!(left.iter().map(|counts| &*counts.pool).collect::<Vec<_>>(), ["a"]);
}

/// The event as `who` sees it: its id and its names.
fn told(table: &Table, who: &Principal, event: &Event) -> Option<String> {
    let mut event = event.clone();
    if !visible_event(who, &mut event, table) {
        return None;
    }
    let (id, parts) = match &event {
        Event::TimedOut { id, about, .. }
        | Event::Deadlocked { id, about, .. }
        | Event::Withdrawn { id, about }
        | Event::Lost { id, about, .. } => (id, Some(&about.parts)),
        Event::Granted { id, .. }
        | Event::Task(TaskEvent::Lapsed { id, .. } | TaskEvent::Claimed(id, ..)) => (id, None),
        Event::Task(other) => panic!("{other:?}"),
    };
    let names = parts.into_iter().flatten().map(|part| format!(" {}", part.resource));
    Some(format!("{}{}", shown_id(&id.to_string()), names.collect::<String>()))
}

#[test]
fn events_show_what_lists_would() {
    let mut table = crowded();
    let mut waiter =
        ask(Some("them"), "waiter", &[("z:1", Mode::Exclusive), ("b:2", Mode::Shared)]);
    waiter.wait_ms = 1_000;
    table.apply(2, Command::Acquire(waiter));
    let release = |id: &str| Command::Release(keylatch_table::Target::Id(id.into()));
    let granted = table.apply(3, release("mine")).events.remove(0);
    assert!(matches!(granted, Event::Granted { .. }));
    let lost = table.apply(100_000, Command::Tick).events;
    let lost = lost
        .into_iter()
        .find(|event| matches!(event, Event::Lost { id, .. } if id.to_string() == "theirs"));
    let lost = lost.unwrap();
    for (who, rules, of_loss) in [
        ("them", "", Some("theirs a:1 b:1")),
        ("me", "", None),
        ("me", "a: observe", Some("- a:1")),
        ("me", "a: admin", Some("- a:1")),
        ("me", "a: admin; b: shared", Some("- a:1 b:1")),
        ("me", "a: admin; b: admin", Some("theirs a:1 b:1")),
        ("me", " observe", Some("- a:1 b:1")),
        ("me", " admin", Some("theirs a:1 b:1")),
    ] {
        assert_eq!(told(&table, &principal(who, rules), &lost).as_deref(), of_loss, "{rules}");
    }
    // The grant has ended since, so nobody but administrators hears what it was.
    assert_eq!(told(&table, &principal("them", ""), &granted), None);
    assert_eq!(told(&table, &principal("me", " admin"), &granted).as_deref(), Some("waiter"));
}

#[test]
fn a_grant_is_told_to_those_who_may_see_one_of_its_names() {
    let mut table = table();
    lock(&mut table, Some("me"), "mine", &[("z:1", Mode::Exclusive)]);
    let mut waiter =
        ask(Some("them"), "waiter", &[("z:1", Mode::Exclusive), ("b:2", Mode::Shared)]);
    waiter.wait_ms = 1_000;
    table.apply(2, Command::Acquire(waiter));
    let release = Command::Release(keylatch_table::Target::Id("mine".into()));
    let granted = table.apply(3, release).events.remove(0);
    for (who, rules, expected) in [
        ("them", "", Some("waiter")),
        ("me", "", None),
        ("me", "b: observe", Some("-")),
        ("me", "b: admin", Some("-")),
        ("me", "b: admin; z: admin", Some("waiter")),
    ] {
        assert_eq!(told(&table, &principal(who, rules), &granted).as_deref(), expected, "{rules}");
    }
    // A waiter that leaves is an event of its own kind.
    let mut other = ask(Some("me"), "other", &[("z:1", Mode::Exclusive)]);
    other.wait_ms = 1_000;
    table.apply(4, Command::Acquire(other));
    let detach = Detach { ids: Some(vec!["other".into()]), grace_ms: 0 };
    let withdrawn = table.apply(5, Command::Detach(detach)).events.remove(0);
    assert_eq!(told(&table, &principal("them", ""), &withdrawn), None);
    assert_eq!(told(&table, &principal("them", "z: shared"), &withdrawn).as_deref(), Some("- z:1"));
    assert_eq!(told(&table, &principal("me", ""), &withdrawn).as_deref(), Some("other z:1"));
}

#[test]
fn what_happens_to_tasks_is_for_those_who_observe_the_pool() {
    let lapsed = TaskEvent::Lapsed { id: "c".into(), pool: "p".into(), key: "k".into(), token: 1 };
    let claimed = Claimed {
        key: "k".into(),
        body: None,
        version: 1,
        token: 1,
        attempts: 0,
        lease_ms: None,
        waited_ms: 0,
    };
    for event in [lapsed, TaskEvent::Claimed("c".into(), "p".into(), claimed)] {
        let event = Event::Task(event);
        for (rules, expected) in [
            ("p exclusive", None),
            ("p observe", Some("-")),
            ("q admin", None),
            ("p admin", Some("c")),
            (" admin", Some("c")),
        ] {
            let who = principal("me", rules);
            assert_eq!(told(&table(), &who, &event).as_deref(), expected, "{rules}");
        }
    }
}
