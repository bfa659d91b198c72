//! A table as bytes and back.

use crate::common::tasks::{command, new_task};
use crate::common::{ask, target};
use crate::rich::{probes, rich};
use keylatch_table::{Answer, CodecError, Command, LocksQuery, Query, Settings, Table, TaskAction};

#[test]
fn a_rich_table_has_something_of_everything() {
    let scene = rich();
    let stats = scene.stats();
    assert!(stats.held >= 9 && stats.waiting >= 6 && stats.ended >= 6, "{stats:?}");
    assert!(stats.tasks >= 8 && stats.claims >= 3, "{stats:?}");
    let counts = scene.counts();
    for count in [counts.ready, counts.delayed, counts.claimed, counts.done, counts.failed] {
        assert!(count > 0, "{counts:?}");
    }
}

#[test]
fn a_restored_table_equals_the_one_it_was_made_of_whatever_the_hash_seed() {
    let scene = rich();
    let bytes = scene.table.snapshot();
    for seed in [0, 1, 2, u64::MAX] {
        let restored = Table::restore(&bytes, seed).unwrap();
        restored.check();
        assert_eq!(restored.state_hash(), scene.table.state_hash());
        assert_eq!(restored.snapshot(), bytes);
        assert_eq!(restored.now(), scene.table.now());
        assert_eq!(restored.settings(), scene.table.settings());
        assert_eq!(restored.rules(), scene.table.rules());
        for query in queries() {
            assert_eq!(restored.query(0, &query), scene.table.query(0, &query));
        }
    }
}

fn queries() -> Vec<Query> {
    let task = |state| {
        let query = keylatch_table::TasksQuery {
            pool: "pool".into(),
            state,
            prefix: None,
            limit: 0,
            cursor: 0,
        };
        Query::Tasks(query)
    };
    vec![
        Query::Locks(LocksQuery { waiters: true, ..LocksQuery::default() }),
        Query::Locks(LocksQuery { cursor: 12, limit: 3, ..LocksQuery::default() }),
        Query::Request("full".into()),
        Query::Key(crate::common::resource("key")),
        task(None),
        task(Some(keylatch_table::TaskState::Failed)),
        Query::Pools,
        Query::Stats,
        Query::TopOwners(10),
    ]
}

#[test]
fn a_restored_table_behaves_as_the_original_does() {
    let mut original = rich().table;
    let mut restored = Table::restore(&original.snapshot(), 12_345).unwrap();
    for (at, command) in probes() {
        let answer = original.apply(at, command.clone());
        assert_eq!(restored.apply(at, command.clone()), answer, "{command:?}");
        assert_eq!(restored.state_hash(), original.state_hash(), "{command:?}");
        restored.check();
    }
    assert!(original.now() == 200_000);
}

#[test]
fn every_repeat_gets_the_same_answer_from_a_restored_table() {
    let mut restored = rich();
    restored.table = Table::restore(&restored.table.snapshot(), 5).unwrap();
    for (id, reply) in [
        ("released", "released"),
        ("revoked", "not held"),
        ("expired", "not held"),
        ("superseded", "not held"),
        ("cancelled", "not held"),
        ("released-waiter", "released"),
    ] {
        assert_eq!(restored.release(id), reply, "{id}");
    }
    assert_eq!(restored.cancel("cancelled"), "cancelled true");
    assert_eq!(restored.renew("superseded"), "lost superseded by ann");
    assert_eq!(restored.renew("revoked"), "lost revoked");
    assert!(restored.promote("promoted").starts_with("promoted token 306 "));
    assert_eq!(restored.retry("retry", Some("retried")), "retried 1");
    assert_eq!(restored.delete("delete", "nothing", None), "not found");
    let again = TaskAction::Create(new_task("elsewhere"));
    assert!(restored.say(command("create-elsewhere", "other", again)).starts_with("created"));
}

#[test]
fn an_empty_table_reads_back() {
    let table = Table::new(Settings::default(), 77, 1);
    let restored = Table::restore(&table.snapshot(), 2).unwrap();
    assert_eq!(restored.state_hash(), table.state_hash());
    assert_eq!(
        restored.query(0, &Query::Stats),
        Answer::Stats(keylatch_table::Stats { token: 77, ..Default::default() })
    );
}

#[test]
fn equal_tables_have_equal_bytes_whatever_the_history_of_their_slots() {
    let play = |detour: bool, seed| {
        let mut table = Table::new(Settings::default(), 0, seed);
        let mut apply = |command| drop(table.apply(1_000, command));
        let first = if detour { ["b", "a"] } else { ["a", "b"] };
        for id in first {
            let key = format!("X tmp-{id}");
            apply(Command::Acquire(ask(&format!("tmp-{id}"), &key).owner(id).0));
        }
        for id in if detour { ["a", "b"] } else { ["b", "a"] } {
            apply(Command::Release(target(&format!("tmp-{id}"))));
        }
        // All that was different is forgotten.
        let mut apply = |command| drop(table.apply(100_000, command));
        for id in ["x", "y", "z"] {
            apply(Command::Acquire(ask(id, "S t(1) & S u").owner(id).0));
        }
        apply(Command::Acquire(ask("w", "X t(@)").wait(500).0));
        table.snapshot()
    };
    assert_eq!(play(false, 1), play(true, 2));
}

#[test]
fn any_difference_gives_another_state_hash() {
    let base = rich();
    let hash = base.table.state_hash();
    for (what, change) in [
        ("time", Command::Tick),
        ("token", Command::TokenFloor(100_000)),
        ("lease", Command::Renew(target("e1"), Some(60_000))),
        ("no lease", Command::Renew(target("e1"), Some(0))),
        (
            "detached",
            Command::Detach(keylatch_table::Detach {
                ids: Some(vec!["w1".into()]),
                grace_ms: 90_000,
            }),
        ),
        ("setting", Command::Settings(Box::default())),
        ("ended", Command::Release(target("s1"))),
        ("answer", command("other", "pool", TaskAction::Delete("none".into(), None))),
    ] {
        let mut table = base.table.clone();
        let at = if what == "time" { 1_901 } else { 1_900 };
        table.apply(at, change);
        assert_ne!(table.state_hash(), hash, "{what}");
    }
}

#[test]
fn the_magic_and_the_version_are_checked_before_the_checksum() {
    let bytes = rich().table.snapshot();
    for at in 0..4 {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x20;
        let error = Table::restore(&wrong, 1).unwrap_err();
        assert!(matches!(error, CodecError::Bad(what) if what.starts_with("magic")), "{error}");
    }
    for version in [0, 2, 100] {
        let mut wrong = bytes.clone();
        wrong[4] = version;
        let error = Table::restore(&wrong, 1).unwrap_err();
        assert_eq!(error, CodecError::Version(version.into()));
    }
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(Table::restore(&damaged, 1).unwrap_err(), CodecError::Checksum);
    let mut damaged = bytes;
    damaged[100] ^= 1;
    assert_eq!(Table::restore(&damaged, 1).unwrap_err(), CodecError::Checksum);
}

#[test]
fn a_table_reads_back_also_after_the_largest_token_floor_and_the_latest_time() {
    for (at, command) in [(1_000, Command::TokenFloor(u64::MAX)), (u64::MAX, Command::Tick)] {
        let mut table = Table::new(Settings::default(), 0, 1);
        table.apply(at, command.clone());
        let restored = Table::restore(&table.snapshot(), 2).map(|table| table.state_hash());
        assert_eq!(restored, Ok(table.state_hash()), "{command:?} at {at}");
    }
}
