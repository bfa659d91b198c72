//! Strategies beside what people use on the same database: `scripts/bench strategies`.

use std::process::ExitCode;
use std::time::Duration;

use keylatch_peers::strategies::measure::How;
use keylatch_peers::strategies::{etcd, files, postgres, redis};

const ALL: [&str; 4] = ["redis", "postgres", "etcd", "sqlite"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "child") {
        files::child(&arguments[1..]);
        return ExitCode::SUCCESS;
    }
    let mut only = None;
    let mut how =
        How { rounds: 3, time: Duration::from_secs(3), load: String::new(), alone: false };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--alone" {
            how.alone = true;
            continue;
        }
        let value = words.next().map(String::as_str);
        let number = value.and_then(|value| value.parse::<u32>().ok());
        match (word.as_str(), value, number) {
            ("--only", Some(one), _) if ALL.contains(&one) => only = Some(one.to_string()),
            ("--load", Some(load), _) => how.load = load.to_string(),
            ("--rounds", _, Some(number)) if number > 0 => how.rounds = number as usize,
            ("--seconds", _, Some(number)) if number > 0 => {
                how.time = Duration::from_secs(u64::from(number));
            }
            _ => {
                let all = ALL.join("|");
                eprintln!(
                    "bench-strategies [--only {all}] [--load contended] [--alone] [--rounds 3] [--seconds 3]"
                );
                return ExitCode::from(2);
            }
        }
    }
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        if wanted("redis") {
            redis::run(&how).await;
        }
        if wanted("postgres") {
            postgres::run(&how).await;
        }
        if wanted("etcd") {
            etcd::run(&how).await;
        }
    });
    if wanted("sqlite") {
        files::run(how.rounds, how.time);
    }
    ExitCode::SUCCESS
}
