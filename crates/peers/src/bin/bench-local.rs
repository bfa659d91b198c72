//! In-process keyed locks, Keylatch's beside others: `scripts/bench local`.
//!
//! Prints a table, what was promised, and whether it holds. With `--write` it also writes
//! `docs/local-benchmarks.md` and `.svg`.

use std::process::ExitCode;

use keylatch_peers::local::{plot, report};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["memory", name] => match report::memory_of(name) {
            Some(bytes) => println!("{bytes}"),
            None => return ExitCode::from(2),
        },
        [] => return compare(false),
        ["--write"] => return compare(true),
        _ => {
            eprintln!("bench-local [--write]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn compare(write: bool) -> ExitCode {
    let rows = report::measure_all();
    let table = report::table(&rows);
    println!("{table}");
    let verdicts = report::verdicts(&rows);
    for (what, holds) in &verdicts {
        println!("{} {what}", if *holds { "holds " } else { "MISSED" });
    }
    if write {
        let lines: Vec<String> = verdicts.iter().map(|(what, _)| format!("- {what}\n")).collect();
        let lines = lines.concat();
        let page = format!(
            "# In-process locks beside others\n\nWritten by `scripts/bench local --write`, medians of \
             interleaved rounds on two shared virtual cores. Absolute figures move from machine to \
             machine; the ratios below say more.\n\n![the same as bars](local-benchmarks.svg)\n\n{table}\n\
             \"DashMap of tokio RwLock\" never frees its keys, \"lockmap\" is for threads only, and the \
             floors are no keyed locks: a sharded map without queues, and one lock for everything.\n\n{lines}"
        );
        std::fs::write("docs/local-benchmarks.md", page).expect("to write docs/");
        std::fs::write("docs/local-benchmarks.svg", plot::svg(&rows)).expect("to write docs/");
    }
    if verdicts.iter().all(|(_, holds)| *holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
