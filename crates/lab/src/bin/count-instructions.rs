//! The main operations of the lock table, a thousand times each, for valgrind to count:
//! `scripts/bench instructions`. Only what runs inside `measured` counts.

use std::hint::black_box;
use std::process::ExitCode;

use keylatch_table::{
    ANY, Acquire, Command, Field, Mode, Part, Party, RequestId, Resource, Settings, Table, Target,
};

/// How often each operation runs.
const TIMES: u64 = 1_000;

/// An operation: the commands that prepare the table, and those that are measured.
type Operation = (&'static str, fn(&mut Table) -> Vec<Command>);

const OPERATIONS: [Operation; 8] = [
    ("acquire", |table| {
        // There is room already, from locks that have ended.
        prepare(table, (0..TIMES).map(|n| acquire(TIMES + n, plain(n), Mode::Exclusive, 0)));
        prepare(table, (0..TIMES).map(|n| release(TIMES + n)));
        (0..TIMES).map(|n| acquire(n, plain(n), Mode::Exclusive, 0)).collect()
    }),
    ("release", |table| {
        prepare(table, (0..TIMES).map(|n| acquire(n, plain(n), Mode::Exclusive, 0)));
        (0..TIMES).map(release).collect()
    }),
    ("refuse", |table| {
        prepare(table, [acquire(TIMES, plain(0), Mode::Exclusive, 0)]);
        (0..TIMES).map(|n| acquire(n, plain(0), Mode::Exclusive, 0)).collect()
    }),
    ("queue", |table| {
        prepare(table, [acquire(TIMES, plain(0), Mode::Exclusive, 0)]);
        (0..TIMES).map(|n| acquire(n, plain(0), Mode::Exclusive, 60_000)).collect()
    }),
    ("hand-over", |table| {
        prepare(table, (0..=TIMES).map(|n| acquire(n, plain(0), Mode::Exclusive, 60_000)));
        (0..TIMES).map(release).collect()
    }),
    ("renew", |table| {
        prepare(table, (0..TIMES).map(|n| acquire(n, plain(n), Mode::Exclusive, 0)));
        (0..TIMES).map(|n| Command::Renew(Target::Id(id(n)), None)).collect()
    }),
    ("exact-beside-wildcard", |table| {
        let wide = Resource::new("cell", &[ANY, Field::Text("b")]).expect("a resource");
        prepare(table, [acquire(TIMES, wide, Mode::Exclusive, 0)]);
        (0..TIMES).map(|n| acquire(n, cell(n), Mode::Exclusive, 0)).collect()
    }),
    ("tick", |_| (0..TIMES).map(|_| Command::Tick).collect()),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if wanted == "--list" {
        for (name, _) in OPERATIONS {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    }
    let Some((_, commands)) = OPERATIONS.iter().find(|(name, _)| *name == wanted) else {
        eprintln!("count-instructions OPERATION, one of those that --list prints");
        return ExitCode::from(2);
    };
    let mut table = Table::new(Settings::default(), 0, 7);
    // A thousand others, so that no index is empty.
    prepare(
        &mut table,
        (0..1_000).map(|n| acquire(10_000 + n, plain(10_000 + n), Mode::Shared, 0)),
    );
    let commands = commands(&mut table);
    measured(&mut table, commands);
    ExitCode::SUCCESS
}

/// What valgrind counts.
#[inline(never)]
fn measured(table: &mut Table, commands: Vec<Command>) {
    for command in commands {
        black_box(table.apply(1, command));
    }
}

fn prepare(table: &mut Table, commands: impl IntoIterator<Item = Command>) {
    commands.into_iter().for_each(|command| drop(table.apply(1, command)));
}

fn acquire(number: u64, resource: Resource, mode: Mode, wait_ms: u64) -> Command {
    let party = Party::owner(if number.is_multiple_of(2) { "ann" } else { "bob" });
    let part = Part::new(resource.clone(), mode);
    Command::Acquire(Acquire { part, wait_ms, ..Acquire::new(id(number), resource, party) })
}

fn release(number: u64) -> Command {
    Command::Release(Target::Id(id(number)))
}

fn id(number: u64) -> RequestId {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    RequestId::from_uuid(bytes)
}

fn plain(number: u64) -> Resource {
    Resource::plain(&format!("key:{number:016}")).expect("a resource")
}

fn cell(number: u64) -> Resource {
    Resource::new("cell", &[Field::Text(&format!("{number}")), Field::Text("c")]).expect("one")
}
