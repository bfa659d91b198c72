//! A small table, built from the requests on just the names concerned, answers as the big one does:
//! what record stores rely on.

use std::collections::BTreeSet;

use keylatch_lab::{
    generate::{Generator, Profile},
    model::Model,
};
use keylatch_table::{
    Acquire, Answer, Applied, Command, Counters, Query, Settings, Standing, Stats, Table, Target,
};

/// Ended ids are not part of records, so none are remembered here.
fn settings(profile: Profile) -> Settings {
    Settings { ended: 0, ..profile.settings() }
}

fn names(standing: &Standing) -> impl Iterator<Item = &str> {
    standing.parts.iter().map(|part| part.resource.name())
}

/// The names that a command concerns: its own, and those that requests on them also stand on.
fn concerned(big: &Table, command: &Command) -> Option<BTreeSet<String>> {
    let mut found: BTreeSet<String> = match command {
        Command::Acquire(Acquire { part, also, .. }) => {
            let parts = std::iter::once(part).chain(also);
            parts.map(|part| part.resource.name().to_string()).collect()
        }
        Command::Release(Target::Id(id))
        | Command::Renew(Target::Id(id), _)
        | Command::Promote(Target::Id(id))
        | Command::Cancel(Target::Id(id)) => {
            let standing = big.standings().find(|standing| standing.id == *id)?;
            names(&standing).map(String::from).collect()
        }
        _ => return None,
    };
    if let Command::Acquire(ask) = command {
        let known = big.standings().find(|standing| standing.id == ask.id);
        found.extend(known.iter().flat_map(names).map(String::from));
    }
    loop {
        let more: BTreeSet<String> = big
            .standings()
            .filter(|standing| names(standing).any(|name| found.contains(name)))
            .flat_map(|standing| names(&standing).map(String::from).collect::<Vec<_>>())
            .collect();
        if more.is_subset(&found) {
            return Some(found);
        }
        found.extend(more);
    }
}

/// What stands on the names concerned.
fn on<'a>(table: &'a Table, names_of: &'a BTreeSet<String>) -> impl Iterator<Item = Standing> + 'a {
    table.standings().filter(|standing| names(standing).any(|name| names_of.contains(name)))
}

fn counters(table: &Table) -> Counters {
    let Answer::Stats(Stats { now, token, seq, .. }) = table.query(0, &Query::Stats) else {
        panic!("not the totals")
    };
    Counters { now, token, seq }
}

/// Commands without what only a big table knows: cycles and aliases beyond the names concerned.
fn plain(command: Command) -> Command {
    match command {
        Command::Acquire(mut ask) => {
            ask.detect = false;
            ask.extra = keylatch_table::Extra { alias: None, ..ask.extra.into() }.into();
            Command::Acquire(ask)
        }
        other => other,
    }
}

fn compare(seed: u64, profile: Profile) -> usize {
    let bounds = settings(profile);
    let mut model = Model::new(bounds.clone(), 0);
    let mut big = Table::new(bounds.clone(), 0, 1);
    let mut generator = Generator::new(seed, profile);
    let mut compared = 0;
    for _ in 0..400 {
        let (at, command) = generator.next(&model);
        if matches!(command, Command::Settings(_) | Command::Task(_)) {
            continue;
        }
        let command = plain(command);
        // Time passes in the big table first: a store's records are of its last write.
        model.apply(at, &Command::Tick);
        big.apply(at, Command::Tick);
        let Some(names_of) = concerned(&big, &command) else {
            model.apply(at, &command);
            big.apply(at, command);
            continue;
        };
        let mut small =
            Table::from_standings(bounds.clone(), counters(&big), seed, on(&big, &names_of))
                .expect("what stands can stand");
        let expected: Applied = big.apply(at, command.clone());
        assert_eq!(small.apply(at, command.clone()), expected, "seed {seed}, {command:?}");
        model.apply(at, &command);
        small.check();
        // The request may have been new: then it stands on the names it asked for.
        let after: Vec<Standing> = on(&big, &names_of).collect();
        assert_eq!(small.standings().collect::<Vec<_>>(), after, "seed {seed}, {command:?}");
        compared += 1;
    }
    compared
}

#[test]
fn a_small_table_answers_as_the_big_one_does() {
    for profile in [Profile::Wildcards, Profile::HotKey, Profile::Optimistic, Profile::Detached] {
        let compared: usize = (0..8).map(|seed| compare(seed, profile)).sum();
        assert!(compared > 500, "only {compared} commands were compared");
    }
}

#[test]
fn what_fell_due_and_who_became_free_since_the_records_were_written_comes_first() {
    use keylatch_table::{Event, Part, Party, Reply, Resource};
    let mut table = Table::new(Settings::default(), 0, 1);
    let ask = |id: &str, wait_ms, lease_ms| {
        let resource = Resource::plain("k").expect("a name");
        let part = Part::new(resource.clone(), keylatch_table::Mode::Exclusive);
        Acquire { part, wait_ms, lease_ms, ..Acquire::new(id.into(), resource, Party::owner(id)) }
    };
    table.apply(0, Command::Acquire(ask("a", 0, 1_000)));
    table.apply(0, Command::Acquire(ask("b", 60_000, 5_000)));
    // Read back at 1,000, when a's lease has just ended: the next command hands over to b first.
    let read = |standings: Vec<Standing>| {
        let counters = Counters { now: 1_000, token: 1, seq: 2 };
        Table::from_standings(Settings::default(), counters, 2, standings).expect("records")
    };
    let mut small = read(table.standings().collect());
    let applied = small.apply(1_000, Command::Acquire(ask("c", 0, 1_000)));
    assert!(matches!(&applied.reply, Reply::Busy(blocker) if &*blocker.owner == "b"));
    assert!(matches!(applied.events[..], [Event::Lost { .. }, Event::Granted { .. }]));
    // Without a's record b is free at once.
    let mut small = read(table.standings().skip(1).collect());
    let applied = small.apply(1_000, Command::Tick);
    assert!(matches!(applied.events[..], [Event::Granted { .. }]));
    // Two holders of one exclusive lock are no records at all.
    let mut both: Vec<Standing> = table.standings().collect();
    both[1] = Standing { id: "z".into(), seq: 2, token: 2, ..both[0].clone() };
    let counters = Counters { now: 0, token: 2, seq: 2 };
    assert!(Table::from_standings(Settings::default(), counters, 2, both).is_err());
    // Nor is a token that was never given out.
    let early = Counters { now: 0, token: 0, seq: 2 };
    let first: Vec<Standing> = table.standings().take(1).collect();
    assert!(Table::from_standings(Settings::default(), early, 2, first).is_err());
    let late = Counters { now: u64::MAX, token: 0, seq: 0 };
    assert!(Table::from_standings(Settings::default(), late, 2, []).is_err());
}
