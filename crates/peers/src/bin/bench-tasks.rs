//! Tasks beside plain workers on PostgreSQL and on Redis: `scripts/bench tasks`.

use std::process::ExitCode;

use keylatch_peers::tasks::{Plan, run};

fn main() -> ExitCode {
    let mut plan = Plan::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse().ok().filter(|number| *number > 0);
        match word.as_str() {
            "--million" => plan.sizes.push(1_000_000),
            "--smoke" => (plan.rounds, plan.sizes, plan.workers) = (1, vec![1_000], vec![4, 32]),
            "--rounds" | "--tasks" | "--workers" => match (word.as_str(), number()) {
                (_, None) => return usage(),
                ("--rounds", Some(rounds)) => plan.rounds = rounds,
                ("--tasks", Some(size)) => plan.sizes = vec![size],
                (_, Some(workers)) => plan.workers = vec![workers],
            },
            "--only" => match words.next().as_deref() {
                Some("server") => plan.postgres = false,
                Some("postgres") => plan.server = false,
                _ => return usage(),
            },
            _ => return usage(),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(run(&plan));
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "bench-tasks [--only server|postgres] [--rounds 3] [--tasks N] [--workers N] [--million] [--smoke]"
    );
    ExitCode::from(2)
}
