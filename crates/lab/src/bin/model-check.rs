//! Explores the worlds of `keylatch_lab::check` and prints how many states each has.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use keylatch_lab::check::{Outcome, Plant, Size, explore, explore_planted, fault::Rule, worlds};

const HELP: &str = "\
Explores every interleaving of small worlds on the real lock table.

model-check [--quick] [--threads N] [WORLD...]   explore these worlds, or all
model-check --plant BUG | --plant all            plant a fault and see that it is found
model-check --list                               the worlds, the plants and what is promised

Exits with 0 if every promise was kept (or every plant found), with 1 if not.";

struct Options {
    size: Size,
    threads: usize,
    list: bool,
    plant: Option<String>,
    worlds: Vec<String>,
}

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
    let good = match &options.plant {
        _ if options.list => list(options.size),
        Some(name) => plant(name),
        None => explore_all(&options),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `Ok(None)` asks for help.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options =
        Options { size: Size::Full, threads, list: false, plant: None, worlds: Vec::new() };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--quick" => options.size = Size::Quick,
            "--list" => options.list = true,
            "--threads" => {
                let number = args.next().and_then(|number| number.parse().ok());
                options.threads =
                    number.filter(|threads| *threads > 0).ok_or("--threads needs a number")?;
            }
            "--plant" => options.plant = Some(args.next().ok_or("--plant needs a name")?),
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            world if worlds(Size::Quick).iter().any(|known| known.name == world) => {
                options.worlds.push(arg);
            }
            _ => return Err(format!("unknown world {arg}; --list shows them")),
        }
    }
    let known = |name: &String| name == "all" || Plant::named(name).is_some();
    match options.plant.as_ref().filter(|name| !known(name)) {
        Some(name) => Err(format!("unknown plant {name}; --list shows them")),
        None => Ok(Some(options)),
    }
}

fn list(size: Size) -> bool {
    println!("worlds:");
    for world in worlds(size) {
        let asks: usize = world.slots.iter().map(|slot| slot.asks.len()).sum();
        let (slots, areas) = (world.slots.len(), world.areas.len());
        println!(
            "  {:<9} {}; {slots} requests, {asks} asks, {areas} resources",
            world.name, world.about
        );
    }
    println!("plants:");
    for plant in Plant::ALL {
        let (name, world, rules) = plant.facts();
        let rules: Vec<&str> = rules.iter().map(|rule| rule.name()).collect();
        println!("  {name:<24} breaks: {} (in {world})", rules.join(", "));
    }
    println!("promises:");
    for rule in Rule::ALL {
        println!("  {}", rule.name());
    }
    true
}

fn explore_all(options: &Options) -> bool {
    println!("{} promises are checked after every step", Rule::ALL.len());
    let started = Instant::now();
    let (mut good, mut steps, mut states) = (true, 0, 0);
    for world in worlds(options.size) {
        if !options.worlds.is_empty() && !options.worlds.iter().any(|name| name == world.name) {
            continue;
        }
        let outcome = explore(world, options.threads);
        println!("{outcome}");
        print_seen(&outcome);
        good &= outcome.good();
        steps += outcome.steps;
        states += outcome.states;
    }
    let seconds = Duration::as_secs_f64(&started.elapsed());
    println!("total     {steps:>10} steps {states:>9} states            {seconds:>6.1} s");
    good
}

fn print_seen(outcome: &Outcome) {
    let seen: Vec<String> =
        outcome.seen.iter().map(|(mark, count)| format!("{mark:?} {count}")).collect();
    println!("          {}", seen.join(", "));
}

fn plant(name: &str) -> bool {
    let mut all_found = true;
    for plant in Plant::ALL {
        if name != "all" && name != plant.name() {
            continue;
        }
        let (_, world, rules) = plant.facts();
        let mut quick = worlds(Size::Quick).into_iter();
        let world = quick.find(|known| known.name == world).expect("a plant names a world");
        let outcome = explore_planted(world, plant);
        let states = outcome.states;
        let found = rules.iter().all(|rule| outcome.broke(*rule).is_some());
        let verdict = if found { "found" } else { "NOT FOUND" };
        println!("{}: {verdict} in {states} states", plant.name());
        for broken in rules.iter().filter_map(|rule| outcome.broke(*rule)) {
            println!("{broken}");
        }
        all_found &= found;
    }
    all_found
}
