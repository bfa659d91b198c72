//! Load for an etcd, as `keylatch bench` is for a lock server: pairs of lock and unlock, one at a time a client,
//! each client with a key of its own. `scripts/bench cluster` runs it.

use std::process::ExitCode;
use std::time::Duration;

use keylatch_peers::etcd_load::{What, run};

const HELP: &str = "etcd-load HOST:PORT lock|cas [--clients 64] [--seconds 3]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, what, options @ ..] = &words[..] else { return help() };
    let what = match what.as_str() {
        "lock" => What::Lock,
        "cas" => What::CompareAndPut,
        _ => return help(),
    };
    let (mut clients, mut time) = (64, Duration::from_secs(3));
    for pair in options.chunks(2) {
        let [option, value] = pair else { return help() };
        match (option.as_str(), value.parse::<u32>()) {
            ("--clients", Ok(number @ 1..)) => clients = number as usize,
            ("--seconds", Ok(number @ 1..)) => time = Duration::from_secs(u64::from(number)),
            _ => return help(),
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    println!("{}", runtime.expect("a runtime").block_on(run(address, what, clients, time)));
    ExitCode::SUCCESS
}

fn help() -> ExitCode {
    eprintln!("{HELP}");
    ExitCode::from(2)
}
