//! Two things that are run to their end on a copy: everybody gets a turn, and an empty table is as
//! good as new.

use keylatch_table::{Acquire, Command, Event, Party, Resource, State, Table, Target};

use super::subject::Subject;
use super::world::World;

/// Lets all holders release, in arrival order, until nobody is left. Returns whether everyone who
/// waited was told an outcome and the table ended up empty, and whether a copy restored from a
/// snapshot did the same in the same order.
pub(super) fn everybody_gets_a_turn(world: &World, subject: &Subject) -> bool {
    let waiting = subject.entries().into_iter().filter(|entry| entry.state == State::Waiting);
    let mut left: Vec<_> = waiting.map(|entry| entry.id).collect();
    left.dedup(); // a request has an entry a resource, one behind the other
    let mut first = subject.clone();
    let Some(events) = drain(world, &mut first) else { return false };
    for event in &events {
        if let Event::Granted { id, .. } | Event::Deadlocked { id, .. } = event {
            left.retain(|waiting| waiting != id);
        }
    }
    let bytes = subject.table.snapshot();
    let Ok(restored) = Table::restore(&bytes, 0) else { return false };
    let mut second = Subject::around(restored);
    left.is_empty()
        && second.table.snapshot() == bytes
        && drain(world, &mut second).as_ref() == Some(&events)
        && first.table.snapshot() == second.table.snapshot()
}

/// The events until the table is empty; `None` if it never is.
fn drain(world: &World, subject: &mut Subject) -> Option<Vec<Event>> {
    let mut events = Vec::new();
    // Each round ends at least one request.
    for _ in 0..=world.slots.len() {
        let mut entries = subject.entries();
        if entries.is_empty() {
            let stats = subject.stats();
            return (stats.resources + stats.owners + stats.waiting == 0).then_some(events);
        }
        entries.retain(|entry| entry.state == State::Held);
        entries.dedup_by(|a, b| a.id == b.id);
        for entry in entries {
            let release = Command::Release(Target::Id(entry.id));
            events.extend(subject.apply(0, release).events);
        }
    }
    None
}

/// Whether a table without requests has the same bytes as one that did nothing with its life but
/// count and wait as far as this one.
pub(super) fn as_good_as_new(world: &World, subject: &Subject) -> bool {
    let stats = subject.stats();
    let forgetful = keylatch_table::Settings { ended: 0, ..world.settings.clone() };
    let mut fresh = Table::new(forgetful, stats.token.saturating_sub(1), 0);
    if stats.seq > 0 {
        // One holder takes the one token, and waiters that give up take the arrival numbers.
        let resource = Resource::plain("n").expect("a sound name");
        let ask = |id: &str, wait_ms| Acquire {
            wait_ms,
            lease_ms: 0,
            ..Acquire::new(id.into(), resource.clone(), Party::client("c"))
        };
        fresh.apply(0, Command::Acquire(ask("h", 0)));
        for _ in 1..stats.seq {
            fresh.apply(0, Command::Acquire(ask("w", 1)));
            fresh.apply(0, Command::Cancel(Target::Id("w".into())));
        }
        fresh.apply(stats.now, Command::Release(Target::Id("h".into())));
    }
    fresh.apply(stats.now, Command::Settings(Box::new(world.settings.clone())));
    fresh.snapshot() == subject.table.snapshot()
}
