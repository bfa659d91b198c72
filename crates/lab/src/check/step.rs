//! A world as a stateright model: the state is a whole table and the book about it, and a step is
//! one command.
//!
//! Every step is checked when it is made, not when its outcome is visited: stateright visits only
//! one of the steps that lead to the same key. What a step breaks is part of the key, so that it
//! is visited, and nothing is explored beyond it.

use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use keylatch_table::Command;
use stateright::{Model, Property};

use super::action::{self, Action};
use super::book::Book;
use super::coverage::Coverage;
use super::drain;
use super::fault::{Faults, Rule};
use super::plant::Plant;
use super::subject::Subject;
use super::world::World;
use super::{listing, parking, replay};

/// A world and what it is tried on.
pub struct Exploration {
    /// The world.
    pub world: World,
    /// The planted fault, if any.
    pub plant: Option<Plant>,
    /// What has been seen.
    pub coverage: Arc<Coverage>,
    /// Which promises were found broken, as bits. Stateright keeps the way to the last find; only
    /// the first is shown to it, which is the nearest.
    found: AtomicU16,
}

/// Where a run is.
#[derive(Clone)]
pub struct Moment {
    subject: Subject,
    book: Book,
    faults: Faults,
    key: Vec<u8>,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Moment) -> bool {
        self.key == other.key
    }
}

impl Hash for Moment {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl Moment {
    fn new(world: &World, subject: Subject, book: Book, faults: Faults) -> Moment {
        let mut key = book.key(world);
        key.extend_from_slice(&faults.bits().to_le_bytes());
        if world.parking {
            parking::push(&subject.table, &mut key);
        }
        Moment { subject, book, faults, key }
    }

    /// What the step that led here broke.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Who holds and who waits.
    pub fn book(&self) -> &Book {
        &self.book
    }
}

impl Exploration {
    /// Nothing explored yet.
    pub fn new(world: World, plant: Option<Plant>) -> Exploration {
        let coverage = Arc::new(Coverage::default());
        Exploration { world, plant, coverage, found: AtomicU16::new(0) }
    }

    /// Forgets what was found. Exploring is over, and the way to a find is about to be walked
    /// again: that must meet the same actions as before.
    pub fn rewind(&self) {
        self.found.store(0, Ordering::Relaxed);
    }

    /// Whether a promise is broken for the first time.
    fn first(&self, rule: usize) -> bool {
        self.found.fetch_or(1 << rule, Ordering::Relaxed) & 1 << rule == 0
    }

    /// Whether all that a plant should break was seen to break; the rest is of no interest.
    fn found_plant(&self) -> bool {
        let found = self.found.load(Ordering::Relaxed);
        let broke = |rule: &Rule| found & 1 << *rule as u16 != 0;
        self.plant.is_some_and(|plant| plant.facts().2.iter().all(broke))
    }

    fn step(&self, from: &Moment, action: Action) -> Moment {
        let world = &self.world;
        let mut faults = Faults::default();
        let mut subject = from.subject.clone();
        let command = action.command(world, &from.book);
        self.one_step_or_two(from, &command, &mut faults);
        let at = from.book.now + action.ms();
        let applied = catch_unwind(AssertUnwindSafe(|| {
            let applied = subject.apply(at, command);
            if !cfg!(debug_assertions) {
                subject.table.check(); // a debug build has just done so by itself
            }
            applied
        }));
        let Ok(applied) = applied else {
            faults.add(Rule::OwnInvariants, "the table panicked");
            return Moment::new(world, from.subject.clone(), from.book.clone(), faults);
        };
        let coverage = &self.coverage;
        let book = replay::replay(world, coverage, &from.book, action, &applied, &mut faults);
        listing::check(world, &book, &subject.entries(), &mut faults);
        listing::check_stats(world, &book, &subject.stats(), &mut faults);
        // It may be early, never late, and a table without requests waits for nothing.
        let next = subject.table.next_deadline();
        let due = book.next_deadline();
        let early = due.is_none_or(|due| next.is_some_and(|next| next <= due));
        let idle = !book.live.is_empty() || next.is_none();
        faults.expect(early && idle, Rule::DeadlinesAreKept, || {
            format!("next is {next:?}, not {due:?}")
        });
        if book.live.is_empty() && book.ended.is_empty() {
            let new = drain::as_good_as_new(world, &subject);
            faults.expect(new, Rule::NothingLeft, || "an empty table is not as new".into());
        }
        Moment::new(world, subject, book, faults)
    }

    /// The same command, at the time when something is due.
    fn one_step_or_two(&self, from: &Moment, command: &Command, faults: &mut Faults) {
        let Some(at) = from.book.next_deadline() else { return };
        if self.world.verbs.ticks.is_empty() || *command == Command::Tick {
            return;
        }
        let (mut one, mut two) = (from.subject.clone(), from.subject.clone());
        let at_once = one.apply(at, command.clone());
        let mut first = two.apply(at, Command::Tick);
        let then = two.apply(at, command.clone());
        first.events.extend(then.events);
        let same = at_once.reply == then.reply
            && at_once.events == first.events
            && one.table.snapshot() == two.table.snapshot();
        faults.expect(same, Rule::OneStepOrTwo, || {
            format!("{at_once:?} and not {:?} {:?}", then.reply, first.events)
        });
    }
}

impl Model for Exploration {
    type State = Moment;
    type Action = Action;

    fn init_states(&self) -> Vec<Moment> {
        let subject = Subject::new(&self.world.settings, self.plant);
        vec![Moment::new(&self.world, subject, Book::default(), Faults::default())]
    }

    fn actions(&self, state: &Moment, out: &mut Vec<Action>) {
        if state.faults.none() && !self.found_plant() {
            action::actions(&self.world, &state.book, out);
        }
    }

    fn next_state(&self, from: &Moment, action: Action) -> Option<Moment> {
        Some(self.step(from, action))
    }

    fn format_action(&self, action: &Action) -> String {
        action.words(&self.world)
    }

    fn properties(&self) -> Vec<Property<Exploration>> {
        Rule::ALL.iter().map(|rule| Property::always(rule.name(), KEPT[*rule as usize])).collect()
    }
}

type Condition = fn(&Exploration, &Moment) -> bool;

/// One function a rule, because a property cannot capture which one it is about.
const KEPT: [Condition; Rule::ALL.len()] = [
    kept::<0>,
    kept::<1>,
    kept::<2>,
    kept::<3>,
    kept::<4>,
    kept::<5>,
    kept::<6>,
    kept::<7>,
    kept::<8>,
    kept::<9>,
    kept::<10>,
    kept::<11>,
    kept::<12>,
    gets_a_turn::<13>,
    kept::<14>,
];

fn kept<const RULE: usize>(exploration: &Exploration, state: &Moment) -> bool {
    !state.faults.broke(Rule::ALL[RULE]) || !exploration.first(RULE)
}

fn gets_a_turn<const RULE: usize>(exploration: &Exploration, state: &Moment) -> bool {
    drain::everybody_gets_a_turn(&exploration.world, &state.subject) || !exploration.first(RULE)
}
