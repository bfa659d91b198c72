//! Exploring a world to its end, and what came of it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use super::coverage::Mark;
use super::fault::Rule;
use super::plant::Plant;
use super::step::Exploration;
use super::world::World;

/// What came of exploring a world.
pub struct Outcome {
    /// The world's name.
    pub world: &'static str,
    /// How many steps were made and checked.
    pub steps: usize,
    /// How many different states they led to.
    pub states: usize,
    /// How many states the longest way that was followed has.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The promises that were broken, with a way there.
    pub broken: Vec<Broken>,
    /// What should have happened somewhere and did not.
    pub unseen: Vec<Mark>,
    /// What happened, and how often, where a mark is asked for.
    pub seen: Vec<(Mark, u64)>,
}

/// A promise that was broken.
pub struct Broken {
    /// Which.
    pub rule: Rule,
    /// The steps that led to it.
    pub steps: Vec<String>,
    /// What was seen then.
    pub words: Vec<String>,
}

impl Outcome {
    /// Whether all promises were kept, and put to the test.
    pub fn good(&self) -> bool {
        self.broken.is_empty() && self.unseen.is_empty()
    }

    /// The broken promise of this name.
    pub fn broke(&self, rule: Rule) -> Option<&Broken> {
        self.broken.iter().find(|broken| broken.rule == rule)
    }
}

/// Explores all of a world, on the real table.
pub fn explore(world: World, threads: usize) -> Outcome {
    run(world, None, threads)
}

/// Explores a world on a table with a planted fault, until the promises that it breaks are broken.
pub fn explore_planted(world: World, plant: Plant) -> Outcome {
    // One thread: then the way to the fault is a shortest one.
    run(world, Some(plant), 1)
}

fn run(world: World, plant: Option<Plant>, threads: usize) -> Outcome {
    let started = Instant::now();
    let (name, marks) = (world.name, world.marks.clone());
    let exploration = Exploration::new(world, plant);
    let coverage = Arc::clone(&exploration.coverage);
    let finish = match plant {
        Some(plant) => {
            HasDiscoveries::AllOf(plant.facts().2.iter().map(|rule| rule.name()).collect())
        }
        None => HasDiscoveries::AnyFailures,
    };
    let checker = exploration.checker().threads(threads).finish_when(finish).spawn_bfs().join();
    checker.model().rewind();
    let mut broken = Vec::new();
    let discoveries = checker.discoveries();
    for rule in Rule::ALL {
        if let Some(path) = discoveries.get(rule.name()) {
            let words = path.last_state().faults().words().to_vec();
            let actions = path.clone().into_actions();
            let world = &checker.model().world;
            let steps = actions.into_iter().map(|action| action.words(world)).collect();
            broken.push(Broken { rule, steps, words });
        }
    }
    Outcome {
        world: name,
        steps: checker.state_count(),
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: started.elapsed(),
        broken,
        unseen: marks.iter().copied().filter(|mark| coverage.count(*mark) == 0).collect(),
        seen: marks.into_iter().map(|mark| (mark, coverage.count(mark))).collect(),
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<9} {:>10} steps {:>9} states  depth {:>2}  {:>6.1} s  {}",
            self.world,
            self.steps,
            self.states,
            self.depth,
            self.took.as_secs_f64(),
            if self.good() { "ok" } else { "BROKEN" },
        )?;
        for mark in &self.unseen {
            write!(f, "\n  never happened: {mark:?}")?;
        }
        for broken in &self.broken {
            write!(f, "\n{broken}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  broken: {}", self.rule.name())?;
        for (number, step) in self.steps.iter().enumerate() {
            write!(f, "\n    {}. {step}", number + 1)?;
        }
        for words in &self.words {
            write!(f, "\n    -> {words}")?;
        }
        Ok(())
    }
}
