//! Runs everything, interleaved, and says how it compares.

#![allow(clippy::format_push_string)] // a few hundred of them, once

use std::process::Command;

use super::measure;
use super::subjects::{
    Dash, KeyLock, KeyMutex, KeyRwLock, KeyedLock, Keylatch, KeylatchBlocking, KeylatchOwned,
    LockMap, Map, NoKey, Pool, Readers, Sharded, Subject, Traits,
};

/// The subjects take turns, so that a noisy machine disturbs all alike. The median of the rounds is
/// shown; a ratio is the median of the ratios of the rounds, because a machine that is slow for
/// some seconds then still gives the same ratio.
const ROUNDS: usize = 41;
/// A subject that is slower than this, in ns, gets fewer rounds.
const SLOW: f64 = 1_000.0;

/// A measurement, made again and again.
type Cell = Box<dyn FnMut() -> f64>;

/// What a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// One thread, a thousand keys.
    Thousand,
    /// One thread, a million keys.
    Million,
    /// Two threads, a thousand keys.
    TwoThousand,
    /// Two threads, a million keys.
    TwoMillion,
    /// One thread, while a million other keys are held.
    AmongMillion,
    /// Sixty-four tasks, one key.
    HandOver,
    /// Readers of one key in one thread.
    Reader,
    /// Readers of one key in two threads.
    Readers,
    /// Bytes a held key.
    Memory,
}

impl Column {
    /// In the order in which they are measured.
    pub const ALL: [Column; 9] = [
        Column::Thousand,
        Column::Million,
        Column::TwoThousand,
        Column::TwoMillion,
        Column::AmongMillion,
        Column::HandOver,
        Column::Reader,
        Column::Readers,
        Column::Memory,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Column::Thousand => "1 k keys",
            Column::Million => "1 M keys",
            Column::TwoThousand => "2 threads, 1 k",
            Column::TwoMillion => "2 threads, 1 M",
            Column::AmongMillion => "1 M held",
            Column::HandOver => "64 tasks, 1 key",
            Column::Reader => "reader",
            Column::Readers => "2 readers",
            Column::Memory => "bytes a key",
        }
    }
}

/// A library and its figures.
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it promises.
    pub traits: Traits,
    cells: fn(Column) -> Option<Cell>,
    memory: fn() -> f64,
    /// What was measured, round by round.
    figures: Vec<(Column, Vec<f64>)>,
}

impl Row {
    /// The figure of a column, if there is one.
    pub fn figure(&self, column: Column) -> Option<f64> {
        self.rounds(column).map(|rounds| median(rounds.to_vec()))
    }

    fn rounds(&self, column: Column) -> Option<&[f64]> {
        self.figures.iter().find(|(other, _)| *other == column).map(|(_, rounds)| &rounds[..])
    }

    /// How many times larger the figure is than the other's.
    fn ratio_to(&self, other: &Row, column: Column) -> f64 {
        let rounds = |row: &Row| row.rounds(column).expect("measured").to_vec();
        let pairs = rounds(self).into_iter().zip(rounds(other));
        median(pairs.map(|(a, b)| a / b).collect())
    }
}

fn cell<S: Subject>(column: Column) -> Option<Cell> {
    let waits = S::TRAITS.asynchronous;
    let no_key = S::NAME == NoKey::NAME;
    Some(match column {
        Column::Thousand => Box::new(measure::uncontended::<S>(1_000)),
        Column::Million => Box::new(measure::uncontended::<S>(1_000_000)),
        Column::TwoThousand if !no_key => Box::new(measure::two_threads::<S>(1_000)),
        Column::TwoMillion if !no_key => Box::new(measure::two_threads::<S>(1_000_000)),
        Column::AmongMillion if !no_key => Box::new(measure::among_a_million::<S>()),
        Column::HandOver if waits => Box::new(measure::hand_over::<S>()),
        _ => return None,
    })
}

fn cell_with_readers<S: Readers>(column: Column) -> Option<Cell> {
    Some(match column {
        Column::Reader => Box::new(measure::readers::<S>(1)),
        Column::Readers => Box::new(measure::readers::<S>(2)),
        _ => return cell::<S>(column),
    })
}

fn row<S: Subject>(cells: fn(Column) -> Option<Cell>) -> Row {
    let memory = || measure::memory::<S>().0;
    Row { name: S::NAME, traits: S::TRAITS, cells, memory, figures: Vec::new() }
}

/// All of them; ours first.
pub fn rows() -> Vec<Row> {
    let run: fn(Column) -> Option<Cell> = |column| {
        Some(match column {
            Column::Thousand => Box::new(measure::uncontended_run(1_000)),
            Column::Million => Box::new(measure::uncontended_run(1_000_000)),
            Column::HandOver => Box::new(measure::hand_over_run()),
            _ => return None,
        })
    };
    vec![
        row::<Keylatch>(cell_with_readers::<Keylatch>),
        Row { name: "keylatch-local, run(key, task)", ..row::<Keylatch>(run) },
        row::<KeylatchOwned>(cell::<KeylatchOwned>),
        row::<KeylatchBlocking>(cell::<KeylatchBlocking>),
        row::<Map>(cell::<Map>),
        row::<Pool>(cell::<Pool>),
        row::<KeyedLock>(cell::<KeyedLock>),
        row::<KeyMutex>(cell_with_readers::<KeyMutex>),
        row::<KeyLock>(cell::<KeyLock>),
        row::<KeyRwLock>(cell_with_readers::<KeyRwLock>),
        row::<LockMap>(cell::<LockMap>),
        row::<Dash>(cell_with_readers::<Dash>),
        row::<Sharded>(cell::<Sharded>),
        row::<NoKey>(cell_with_readers::<NoKey>),
    ]
}

/// Bytes a held key of the library with this name; in a process of its own.
pub fn memory_of(name: &str) -> Option<f64> {
    rows().into_iter().find(|row| row.name == name).map(|row| (row.memory)())
}

/// Measures everything.
pub fn measure_all() -> Vec<Row> {
    let mut rows = rows();
    for column in Column::ALL {
        eprintln!("measuring: {}", column.title());
        if column == Column::Memory {
            for row in &mut rows {
                row.figures.extend(memory_in_child(row.name).map(|bytes| (column, vec![bytes])));
            }
            continue;
        }
        let mut cells: Vec<(usize, Cell, Vec<f64>)> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let cell = (row.cells)(column).map(|cell| (at, cell, Vec::new()));
            cells.extend(cell);
        }
        for round in 0..ROUNDS {
            for (_, cell, values) in &mut cells {
                let slow = values.first().is_some_and(|nanos| *nanos > SLOW);
                if !slow || round < 3 {
                    values.push(cell());
                }
            }
        }
        for (at, _, values) in cells {
            rows[at].figures.push((column, values));
        }
    }
    rows
}

fn memory_in_child(name: &str) -> Option<f64> {
    if name == NoKey::NAME || name.contains("run(") {
        return None;
    }
    let this = std::env::current_exe().expect("the path of this program");
    let output = Command::new(this).args(["memory", name]).output().expect("to start itself");
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The table, in Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from("| ns for a lock and unlock |");
    for column in Column::ALL {
        text += &format!(" {} |", column.title());
    }
    text += "\n|---|";
    text += &"---|".repeat(Column::ALL.len());
    for row in rows {
        text += &format!("\n| {} |", row.name);
        for column in Column::ALL {
            let figure =
                row.figure(column).map_or_else(String::new, |figure| format!("{figure:.0}"));
            text += &format!(" {figure} |");
        }
    }
    text + "\n"
}

/// What was promised, and whether it holds.
pub fn verdicts(rows: &[Row]) -> Vec<(String, bool)> {
    let ours = &rows[0];
    let named = |name| rows.iter().find(|row| row.name == name).expect("a row");
    let (blocking, floor) = (named(KeylatchBlocking::NAME), named(Sharded::NAME));
    let (dash, wanted) = (named(Dash::NAME), |row: &&Row| !row.traits.ours && !row.traits.floor);
    // The quickest of those peers, and how many times longer it takes than we do.
    let best = |ours: &Row, column, which: fn(&Traits) -> bool| {
        let peers = rows.iter().filter(wanted).filter(|row| which(&row.traits));
        let peers = peers.filter(|row| row.rounds(column).is_some());
        let ratios = peers.map(|row| (row.ratio_to(ours, column), row.name));
        ratios.min_by(|a, b| a.0.total_cmp(&b.0)).expect("a peer")
    };
    let mut verdicts = Vec::new();
    let mut say = |what: String, ratio: f64, least: f64| {
        verdicts.push((format!("{what}: {ratio:.2}x (at least {least:.2}x)"), ratio >= least));
    };
    for column in [Column::Thousand, Column::Million, Column::TwoThousand, Column::TwoMillion] {
        let title = column.title();
        let (ratio, name) = best(ours, column, |traits| traits.frees && traits.asynchronous);
        say(format!("{title}: quicker than the quickest asynchronous one, {name}"), ratio, 2.5);
        let (ratio, name) = best(blocking, column, |traits| traits.frees && !traits.asynchronous);
        say(format!("{title}: blocking, quicker than the one for threads, {name}"), ratio, 1.0);
        let ratio = floor.ratio_to(ours, column);
        say(format!("{title}: of the floor's speed"), ratio, 1.0 / 1.5);
    }
    let (ratio, name) = best(ours, Column::HandOver, |traits| traits.asynchronous && traits.fair);
    say(format!("64 tasks, 1 key: quicker than the quickest fair one, {name}"), ratio, 1.0);
    let ratio = dash.ratio_to(ours, Column::Readers);
    say("2 readers: quicker than the DashMap".into(), ratio, 1.0);
    let scaling = ratio / dash.ratio_to(ours, Column::Reader);
    say("2 readers: scaling, against that of the DashMap".into(), scaling, 1.0);
    let (ratio, name) = best(ours, Column::Memory, |_| true);
    say(format!("bytes a key: fewer than the smallest, {name}"), ratio, 1.0);
    verdicts
}
