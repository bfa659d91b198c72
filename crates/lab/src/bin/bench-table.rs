//! What the lock table costs, as ratios to a plain hash map in the same run.
//!
//! `cargo run --release -p keylatch-lab --bin bench-table` (or `scripts/bench table`). Each line
//! prints what was measured, the ratio or size, the bound it must stay under, and whether it does.
//! Timings are medians of interleaved rounds, so that a noisy machine disturbs both sides alike.

#![allow(clippy::cast_precision_loss)] // counts and times as ratios

use std::hint::black_box;
use std::process::{Command as Process, ExitCode};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use keylatch_lab::random::Random;
use keylatch_table::{
    ANY, Acquire, Command, Field, Mode, Party, Reply, RequestId, Resource, Settings, Table, Target,
};

/// Pairs of acquire and release in one timed round: few enough that the commands are still in the
/// cache, as they are when they have just been read.
const ROUND: usize = 50;
/// Rounds whose median counts.
const ROUNDS: usize = 20_001;

/// A name and what it measures.
type Part = (&'static str, fn(&mut Report));

/// Each part runs in a process of its own, so that none inherits another's memory.
const PARTS: [Part; 9] = [
    ("exact", |report| exact(report, 1_000, 6.0)),
    ("exact-million", |report| exact(report, 1_000_000, 3.0)),
    ("one-name", one_name),
    ("other-queues", other_queues),
    ("wildcard", wildcard),
    ("hot-resource", hot_resource),
    ("size", |report| size(report, true)),
    ("size-text", |report| size(report, false)),
    ("snapshot", snapshot),
];

fn main() -> ExitCode {
    let Some(wanted) = std::env::args().nth(1) else { return run_all() };
    let Some((_, part)) = PARTS.iter().find(|(name, _)| *name == wanted) else {
        let names = PARTS.map(|(name, _)| name).join(", ");
        eprintln!("bench-table [PART], one of: {names}");
        return ExitCode::from(2);
    };
    let mut report = Report::default();
    part(&mut report);
    if report.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run_all() -> ExitCode {
    let this = std::env::current_exe().expect("the path of this program");
    let run = |name| Process::new(&this).arg(name).status().expect("to start itself").success();
    let failed: Vec<&str> =
        PARTS.iter().map(|(name, _)| *name).filter(|name| !run(*name)).collect();
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\nbounds exceeded in: {}", failed.join(", "));
    ExitCode::FAILURE
}

#[derive(Default)]
struct Report {
    failed: bool,
}

impl Report {
    fn line(&mut self, what: &str, value: f64, unit: &str, most: Option<f64>) {
        let verdict = match most {
            None => String::new(),
            Some(most) if value <= most => format!("  (at most {most}: holds)"),
            Some(most) => {
                self.failed = true;
                format!("  (at most {most}: EXCEEDED)")
            }
        };
        println!("{what:<68} {value:>9.2} {unit}{verdict}");
    }
}

/// Owners as a connection keeps them: a request shares their text.
fn owners(count: usize) -> Vec<Party> {
    (0..count).map(|number| Party::owner(&format!("owner-{number}"))).collect()
}

/// A source of requests with ids and keys of their own.
struct Load {
    random: Random,
    next: u64,
    owners: Vec<Party>,
}

impl Load {
    fn new(seed: u64) -> Load {
        Load { random: Random::new(seed), next: 0, owners: owners(100) }
    }

    fn id(&mut self) -> RequestId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.random.bits().to_le_bytes());
        bytes[8..].copy_from_slice(&self.random.bits().to_le_bytes());
        RequestId::from_uuid(bytes)
    }

    /// A plain name of 20 bytes, never the same one.
    fn name(&mut self) -> Resource {
        self.next += 1;
        Resource::plain(&format!("key:{:016}", self.next.wrapping_mul(0x9e37_79b9) % 10u64.pow(16)))
            .expect("a name")
    }

    fn ask(&mut self, resource: Resource) -> Acquire {
        let party = self.random.pick(&self.owners).clone();
        Acquire::new(self.id(), resource, party)
    }
}

fn pairs(asks: Vec<Acquire>) -> Vec<(Command, Command)> {
    asks.into_iter()
        .map(|ask| {
            let release = Command::Release(Target::Id(ask.id.clone()));
            (Command::Acquire(ask), release)
        })
        .collect()
}

fn hold(table: &mut Table, asks: impl Iterator<Item = Acquire>) {
    for ask in asks {
        let applied = table.apply(1, Command::Acquire(ask));
        assert!(matches!(applied.reply, Reply::Granted(_)), "{:?}", applied.reply);
    }
}

/// Time for each pair of commands.
fn time_pairs(table: &mut Table, pairs: Vec<(Command, Command)>) -> f64 {
    let count = pairs.len();
    let start = Instant::now();
    for (acquire, release) in pairs {
        black_box(table.apply(1, acquire));
        black_box(table.apply(1, release));
    }
    nanos(start.elapsed()) / count as f64
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Fills the memory of ended ids, so that what follows also pays for forgetting.
fn fill_memory(table: &mut Table, load: &mut Load, mut ask: impl FnMut(&mut Load) -> Acquire) {
    for _ in 0..=table.settings().ended / ROUND as u64 {
        let asks = (0..ROUND).map(|_| ask(load)).collect();
        time_pairs(table, pairs(asks));
    }
}

fn exact(report: &mut Report, held: usize, most: f64) {
    let mut load = Load::new(1);
    let mut table = Table::new(Settings::default(), 0, 7);
    let mut map: HashMap<String, [u8; 64], FixedState> =
        HashMap::with_hasher(FixedState::with_seed(7));
    for _ in 0..held {
        let key = load.name();
        map.insert(key.name().into(), [1; 64]);
        let ask = load.ask(key);
        hold(&mut table, std::iter::once(ask));
    }
    let new = |load: &mut Load| {
        let key = load.name();
        load.ask(key)
    };
    fill_memory(&mut table, &mut load, new);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let asks: Vec<Acquire> = (0..ROUND).map(|_| new(&mut load)).collect();
        let keys: Vec<String> = asks.iter().map(|ask| ask.part.resource.name().into()).collect();
        let table_time = time_pairs(&mut table, pairs(asks));
        let spare = keys.clone();
        let start = Instant::now();
        for (key, spare) in keys.iter().zip(spare) {
            black_box(map.insert(spare, [2; 64]));
            black_box(map.remove(key));
        }
        let map_time = nanos(start.elapsed()) / ROUND as f64;
        ours.push(table_time);
        theirs.push(map_time);
    }
    let what = format!("acquire + release, {held} held");
    let (ours, theirs) = (median(ours), median(theirs));
    report.line(&what, ours, "ns", None);
    report.line(
        "  insert + remove of the name in a hashbrown map of that size",
        theirs,
        "ns",
        None,
    );
    report.line("  ratio", ours / theirs, "x", Some(most));
}

fn argument(number: u64) -> Resource {
    Resource::new("order", &[Field::Text(&format!("{number:012}"))]).expect("a resource")
}

fn one_name(report: &mut Report) {
    let mut times = Vec::new();
    for held in [1_000u64, 1_000_000] {
        let mut load = Load::new(2);
        let mut table = Table::new(Settings::default(), 0, 7);
        for number in 0..held {
            let ask = load.ask(argument(number));
            hold(&mut table, std::iter::once(ask));
        }
        let mut number = held;
        let mut new = |load: &mut Load| {
            number += 1;
            load.ask(argument(number))
        };
        fill_memory(&mut table, &mut load, &mut new);
        let rounds = (0..ROUNDS).map(|_| {
            let asks = (0..ROUND).map(|_| new(&mut load)).collect();
            time_pairs(&mut table, pairs(asks))
        });
        times.push(median(rounds.collect()));
        report.line(
            &format!("one name, {held} arguments: acquire + release"),
            times[times.len() - 1],
            "ns",
            None,
        );
    }
    // Four times is what leaving the cache costs; a cost that grew with the name would be 1,000x.
    report.line("  ratio of the two", times[1] / times[0], "x", Some(4.0));
}

fn other_queues(report: &mut Report) {
    let mut load = Load::new(3);
    let mut table = Table::new(Settings::default(), 0, 7);
    let mut rounds = (Vec::new(), Vec::new());
    for (waiters, times) in [(false, &mut rounds.0), (true, &mut rounds.1)] {
        if waiters {
            for queue in 0..100 {
                let ask = load.ask(argument(queue));
                hold(&mut table, std::iter::once(ask));
                for _ in 0..1_000 {
                    let ask = Acquire { wait_ms: 1_000_000, ..load.ask(argument(queue)) };
                    table.apply(1, Command::Acquire(ask));
                }
            }
        }
        for _ in 0..ROUNDS {
            let asks = (0..ROUND).map(|_| {
                load.next += 1;
                let number = 1_000_000 + load.next;
                load.ask(argument(number))
            });
            let pairs = pairs(asks.collect());
            times.push(time_pairs(&mut table, pairs));
        }
    }
    let ratio = median(rounds.1) / median(rounds.0);
    report.line(
        "the same name with 100,000 waiters on other arguments: ratio",
        ratio,
        "x",
        Some(2.0),
    );
}

fn wildcard(report: &mut Report) {
    let mut load = Load::new(4);
    let mut table = Table::new(Settings::default(), 0, 7);
    for number in 0..1_000_000u64 {
        let (a, b) = (format!("{:05}", number / 100), format!("{:03}", number % 100));
        let resource = Resource::new("cell", &[Field::Text(&a), Field::Text(&b)]).expect("one");
        let ask = Acquire { lease_ms: 0, ..load.ask(resource) };
        let ask = Acquire { part: keylatch_table::Part { mode: Mode::Shared, ..ask.part }, ..ask };
        hold(&mut table, std::iter::once(ask));
    }
    let mut times = Vec::new();
    for round in 0..1_000u64 {
        let a = format!("{:05}", round * 7 % 10_000);
        let resource = Resource::new("cell", &[Field::Text(&a), ANY]).expect("one");
        let mut ask = load.ask(resource);
        ask.part.mode = Mode::Shared;
        let pair = pairs(vec![ask]);
        times.push(time_pairs(&mut table, pair) / 1_000.0);
    }
    report.line(
        "wildcard (A,@), 100 of 1,000,000 entries match: acquire + release",
        median(times),
        "us",
        Some(50.0),
    );
}

fn hot_resource(report: &mut Report) {
    let mut times = Vec::new();
    for waiters in [100u64, 10_000] {
        let mut load = Load::new(5);
        let mut table = Table::new(Settings::default(), 0, 7);
        let ids: Vec<RequestId> = (0..=waiters)
            .map(|_| {
                let ask = Acquire { wait_ms: 1_000_000, ..load.ask(argument(0)) };
                let id = ask.id.clone();
                table.apply(1, Command::Acquire(ask));
                id
            })
            .collect();
        let start = Instant::now();
        for id in &ids[..waiters as usize] {
            let applied = table.apply(1, Command::Release(Target::Id(id.clone())));
            assert_eq!(applied.events.len(), 1, "one grant a release");
        }
        times.push(nanos(start.elapsed()) / waiters as f64);
        report.line(
            &format!("hot resource, {waiters} waiters: release with grant of the next"),
            times[times.len() - 1],
            "ns",
            None,
        );
    }
    report.line("  ratio of the two", times[1] / times[0], "x", Some(4.0));
}

/// Resident memory, which counts what the allocator adds and what growing tables keep in reserve.
fn size(report: &mut Report, uuids: bool) {
    let count = 1_000_000;
    let mut load = Load { owners: owners(1_000), ..Load::new(6) };
    let before = resident();
    let mut table = Table::new(Settings::default(), 0, 7);
    for at in 0..count {
        let key = load.name();
        let mut ask = load.ask(key);
        if !uuids {
            ask.id = RequestId::new(&format!("request:{:028}", load.random.bits()));
        }
        // Thirty-three a millisecond, as if they were taken over half a minute.
        let ask = Acquire { lease_ms: 300_000, ..ask };
        let applied = table.apply(at / 33, Command::Acquire(ask));
        assert!(matches!(applied.reply, Reply::Granted(_)));
    }
    let each = (resident() - before) as f64 / count as f64;
    let shape = if uuids { "UUIDs" } else { "other text" };
    let what = format!("1,000,000 held, 20-byte names, 36-byte ids ({shape}): memory");
    report.line(&what, each, "bytes each", Some(250.0));
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize =
        status.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}

fn snapshot(report: &mut Report) {
    let mut load = Load::new(8);
    let mut table = Table::new(Settings::default(), 0, 7);
    for _ in 0..1_000_000 {
        let key = load.name();
        let ask = load.ask(key);
        hold(&mut table, std::iter::once(ask));
    }
    let start = Instant::now();
    let bytes = table.snapshot();
    report.line("snapshot of 1,000,000 held", nanos(start.elapsed()) / 1e6, "ms", None);
    report.line("  its size", bytes.len() as f64 / 1e6, "MB", None);
    let start = Instant::now();
    let restored = Table::restore(&bytes, 8).expect("a good snapshot");
    report.line("  restored", nanos(start.elapsed()) / 1e6, "ms", None);
    black_box(restored);
}
