//! Tasks beside plain workers on PostgreSQL and on Redis: `scripts/bench tasks`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut rounds, mut sizes, mut workers) = (3, vec![1_000, 100_000], vec![1, 16, 64]);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--million" => sizes.push(1_000_000),
            "--smoke" => (rounds, sizes, workers) = (1, vec![1_000], vec![4, 32]),
            "--rounds" => match words.next().and_then(|text| text.parse().ok()) {
                Some(number) if number > 0 => rounds = number,
                _ => return usage(),
            },
            _ => return usage(),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let run = keylatch_peers::tasks::run(rounds, &sizes, &workers);
    runtime.expect("a runtime").block_on(run);
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("bench-tasks [--rounds 3] [--million] [--smoke]");
    ExitCode::from(2)
}
