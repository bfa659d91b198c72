//! On one machine: several processes on an SQLite file, beside `flock`, which keeps nothing.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

const PROCESSES: usize = 8;

/// What a process of ours does: pairs for so long, and says how many.
pub fn child(arguments: &[String]) {
    let [kind, dir, key, ms] = arguments else { panic!("four arguments") };
    let dir = Path::new(dir);
    let time = Duration::from_millis(ms.parse().expect("milliseconds"));
    let count = match kind.as_str() {
        "flock" => pairs_of_flock(&dir.join(format!("flock-{key}")), time),
        _ => pairs_of_keylatch(&format!("sqlite:{}", dir.join("locks").display()), key, time),
    };
    println!("{count}");
}

fn pairs_of_flock(path: &Path, time: Duration) -> u64 {
    let file = File::create(path).expect("a file");
    let (end, mut count) = (Instant::now() + time, 0);
    while Instant::now() < end {
        flock(file.as_fd(), FlockOperation::LockExclusive).expect("flock");
        flock(file.as_fd(), FlockOperation::Unlock).expect("flock");
        count += 1;
    }
    count
}

fn pairs_of_keylatch(url: &str, key: &str, time: Duration) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let locks = keylatch::Locks::connect(url).await.expect("a file");
        let (end, mut count) = (Instant::now() + time, 0);
        while Instant::now() < end {
            locks.lock(key).await.expect("a lock").release().await;
            count += 1;
        }
        count
    })
}

/// Pairs a second of all, and the most that one process did by the least.
fn measure(kind: &str, keys: usize, time: Duration) -> (f64, f64) {
    let dir = tempfile::tempdir().expect("a directory");
    let program = std::env::current_exe().expect("this program");
    let children: Vec<_> = (0..PROCESSES)
        .map(|process| {
            let mut command = Command::new(&program);
            command.arg("child").arg(kind).arg(dir.path());
            command.arg(format!("k{}", process % keys)).arg(time.as_millis().to_string());
            command.stdout(Stdio::piped()).spawn().expect("this program again")
        })
        .collect();
    let counts: Vec<f64> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().expect("an outcome");
            String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
        })
        .collect();
    let least = counts.iter().copied().fold(f64::MAX, f64::min).max(1.0);
    let most = counts.iter().copied().fold(0.0, f64::max);
    (counts.iter().sum::<f64>() / time.as_secs_f64(), most / least)
}

/// Both.
pub fn run(rounds: usize, time: Duration) {
    println!("\n== {PROCESSES} processes on one machine");
    for (load, keys) in [("own keys", PROCESSES), ("one key", 1)] {
        println!("\n{load}\n  {:<34} {:>10} {:>7} {:>7}", "", "pairs/s", "ratio", "spread");
        let mut results: [Vec<(f64, f64)>; 2] = Default::default();
        for _ in 0..rounds {
            results[0].push(measure("keylatch", keys, time));
            results[1].push(measure("flock", keys, time));
        }
        for result in &mut results {
            result.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        let ours = results[0][rounds / 2].0;
        for (name, result) in
            ["keylatch, sqlite (durable)", "flock (keeps nothing)"].iter().zip(&results)
        {
            let (rate, spread) = result[rounds / 2];
            println!("  {name:<34} {rate:>10.0} {:>7.4} {spread:>7.2}", ours / rate);
        }
    }
}
