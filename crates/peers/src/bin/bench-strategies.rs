//! Strategies beside what people use on the same database: `scripts/bench strategies`.

use std::process::ExitCode;
use std::time::Duration;

use keylatch_peers::strategies::{etcd, files, postgres, redis};

const ALL: [&str; 4] = ["redis", "postgres", "etcd", "sqlite"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "child") {
        files::child(&arguments[1..]);
        return ExitCode::SUCCESS;
    }
    let (mut only, mut rounds, mut time) = (None, 3, Duration::from_secs(3));
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words.next().map(String::as_str);
        let number = value.and_then(|value| value.parse::<u32>().ok());
        match (word.as_str(), value, number) {
            ("--only", Some(one), _) if ALL.contains(&one) => only = Some(one.to_string()),
            ("--rounds", _, Some(number)) if number > 0 => rounds = number as usize,
            ("--seconds", _, Some(number)) if number > 0 => {
                time = Duration::from_secs(u64::from(number));
            }
            _ => {
                eprintln!("bench-strategies [--only {}] [--rounds 3] [--seconds 3]", ALL.join("|"));
                return ExitCode::from(2);
            }
        }
    }
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        if wanted("redis") {
            redis::run(rounds, time).await;
        }
        if wanted("postgres") {
            postgres::run(rounds, time).await;
        }
        if wanted("etcd") {
            etcd::run(rounds, time).await;
        }
    });
    if wanted("sqlite") {
        files::run(rounds, time);
    }
    ExitCode::SUCCESS
}
