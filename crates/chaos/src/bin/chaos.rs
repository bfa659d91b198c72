//! `scripts/chaos cluster`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use keylatch_chaos::{Length, Options, Plant, run};

const HELP: &str = "\
A cluster of real processes in trouble, under load, and a judge of what its clients are told.

scripts/chaos cluster [--minutes N] [--seed S] [--nodes 3|5]   faults from a seed, for so long (5 minutes)
scripts/chaos cluster --faults N                               so many faults instead
scripts/chaos cluster --plant old-copy|stranger                make a mistake that must be found

Ctrl-C ends it early and judges all the same; a second one ends it at once.
Exits with 0 if every promise was kept (or the plant was found), 1 if not, 2 if it could not be run.";

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("{why}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = listen(&options.stop) {
        eprintln!("chaos: {error}");
        return ExitCode::from(2);
    }
    println!("seed {}, {} members", options.seed, options.members);
    match run(&options, &|line| println!("{line}")) {
        Err(why) => {
            eprintln!("chaos: {why} (seed {})", options.seed);
            ExitCode::from(2)
        }
        Ok(report) => {
            println!("{report}");
            let good = report.is_good() != options.plant.is_some();
            if options.plant.is_some() {
                println!(
                    "{}",
                    if good { "the plant was found" } else { "THE PLANT WAS NOT FOUND" }
                );
            }
            if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

/// Ctrl-C, and a second one.
fn listen(stop: &Arc<AtomicBool>) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        for _ in &mut signals {
            if stop.swap(true, Ordering::Relaxed) {
                keylatch_chaos::kill_all();
                std::process::exit(130);
            }
            eprintln!("ending: what is under way is judged; again to end at once");
        }
    });
    Ok(())
}

/// `Ok(None)` asks for help.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut options = Options {
        binary: std::env::current_exe()
            .map_err(|error| error.to_string())?
            .with_file_name("keylatch"),
        seed: u64::from(now.subsec_nanos()),
        members: 3,
        length: Length::Time(Duration::from_secs(300)),
        plant: None,
        stop: Arc::new(AtomicBool::new(false)),
    };
    while let Some(word) = words.next() {
        if ["--help", "-h"].contains(&word.as_str()) {
            return Ok(None);
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value, or is not known"))?;
        let number = value.parse::<u64>().map_err(|_| format!("{word}: {value} is not a number"));
        match word.as_str() {
            "--minutes" => options.length = Length::Time(Duration::from_secs(60 * number?)),
            "--faults" => options.length = Length::Faults(number?),
            "--seed" => options.seed = number?,
            "--nodes" => match number? {
                nodes @ (3 | 5) => options.members = nodes as usize,
                _ => return Err("--nodes is 3 or 5".into()),
            },
            "--binary" => options.binary = value.into(),
            "--plant" => {
                options.plant = Some(match value.as_str() {
                    "old-copy" => Plant::OldCopy,
                    "stranger" => Plant::Stranger,
                    _ => return Err("--plant is old-copy or stranger".into()),
                });
            }
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(Some(options))
}
