//! Runs the model and a table side by side. A script is made from a seed (by looking at the model
//! alone), then replayed on both; every reply, every event, and every few steps everything that can
//! be read must be equal. A script that fails is made as short as possible before it is shown.

mod questions;
mod shrink;

use std::{
    cell::Cell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use keylatch_table::{
    Answer, Applied, Command, Entry, Event, Query, Reply, Settings, State,
    task::{TaskEvent, TaskReply, TaskState},
};

use crate::{
    generate::{Generator, Profile},
    model::Model,
    random::Random,
};

/// A table that claims to follow the same rules as the model.
pub trait Subject {
    /// One step.
    fn apply(&mut self, at: u64, command: Command) -> Applied;
    /// One question.
    fn query(&self, at: u64, query: &Query) -> Answer;
    /// Writes everything down, forgets it and reads it back.
    fn restart(&mut self);
    /// Panics if its own bookkeeping is broken.
    fn check(&self);
}

impl Subject for Model {
    fn apply(&mut self, at: u64, command: Command) -> Applied {
        Model::apply(self, at, &command)
    }

    fn query(&self, at: u64, query: &Query) -> Answer {
        Model::query(self, at, query)
    }

    fn restart(&mut self) {}

    fn check(&self) {}
}

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// Apply a command.
    Apply(u64, Command),
    /// Restart the subject.
    Restart,
    /// Compare everything that can be read at this time.
    Look(u64),
}

/// Where a run begins.
#[derive(Clone, Debug)]
struct Start {
    settings: Settings,
    token: u64,
}

/// Why a run failed, with the shortest script found that fails.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// Its profile.
    pub profile: Profile,
    /// The last token given out before the script begins.
    pub token: u64,
    /// What fails.
    pub script: Vec<Step>,
    /// How.
    pub difference: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, profile, token, script, difference } = self;
        writeln!(f, "seed {seed}, profile {profile:?}, first token after {token}:")?;
        for step in script {
            writeln!(f, "  {step:?}")?;
        }
        write!(f, "{difference}")
    }
}

/// A step at which the two sides differ.
#[derive(Clone, Debug)]
struct Difference {
    step: usize,
    text: String,
}

/// Compares the model with a subject over a random script of `steps` commands. The subject is made
/// anew for each attempt to shorten a script that fails.
///
/// # Errors
/// The shortest failing script that was found, and how it fails.
pub fn run<S: Subject>(
    seed: u64,
    profile: Profile,
    steps: usize,
    make: impl Fn(Settings, u64) -> S,
) -> Result<(), Box<Failure>> {
    let mut random = Random::new(seed ^ 0xc0ff_ee00);
    let token = if random.percent(50) { 0 } else { random.below(1 << 52) };
    let start = Start { settings: profile.settings(), token };
    let script = script(seed, profile, steps, &start, &mut random);
    let Err(found) = replay(&script, &start, &make) else { return Ok(()) };
    let fails = |script: &[Step]| replay(script, &start, &make).err();
    let (script, difference) = shrink::shorten(script, found, &start, fails);
    Err(Box::new(Failure { seed, profile, token, script, difference: difference.text }))
}

/// The script of a seed. The model checks itself along the way.
fn script(
    seed: u64,
    profile: Profile,
    steps: usize,
    start: &Start,
    random: &mut Random,
) -> Vec<Step> {
    let mut model = Model::new(start.settings.clone(), start.token);
    let mut generator = Generator::new(seed, profile);
    let mut script = Vec::new();
    for _ in 0..steps {
        let (at, command) = generator.next(&model);
        model.apply(at, &command);
        script.push(Step::Apply(at, command));
        if random.percent(1) {
            script.push(Step::Restart);
        }
        if random.percent(12) {
            model.assert_sane();
            let later = if random.percent(50) { 0 } else { random.below(100) };
            script.push(Step::Look((model.now + later).saturating_sub(20)));
        }
    }
    script
}

/// Replays a script on both sides; a panic is a difference too.
fn replay<S: Subject>(
    script: &[Step],
    start: &Start,
    make: &impl Fn(Settings, u64) -> S,
) -> Result<(), Difference> {
    let reached = Cell::new(0);
    let replayed = catch_unwind(AssertUnwindSafe(|| {
        let mut model = Model::new(start.settings.clone(), start.token);
        let mut subject = make(start.settings.clone(), start.token);
        let mut newest = start.token;
        script.iter().enumerate().try_for_each(|(at, step)| {
            reached.set(at);
            take_step(step, &mut model, &mut subject, &mut newest)
        })
    }));
    let text = match replayed {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(text)) => text,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panicked: {}", said.unwrap_or("with something else than text"))
        }
    };
    Err(Difference { step: reached.get(), text })
}

fn take_step<S: Subject>(
    step: &Step,
    model: &mut Model,
    subject: &mut S,
    newest: &mut u64,
) -> Result<(), String> {
    match step {
        Step::Apply(at, command) => {
            let expected = model.apply(*at, command);
            let given = subject.apply(*at, command.clone());
            tokens_grow(&expected, newest)?;
            let alike = expected.events == given.events
                && (expected.reply == given.reply || is_as_right(model, &given.reply));
            if !alike {
                return Err(format!(
                    "at {command:?}\n  model gives   {expected:?}\n  subject gives {given:?}"
                ));
            }
        }
        Step::Restart => {
            subject.restart();
            subject.check();
        }
        Step::Look(at) => {
            subject.check();
            for query in questions::about(model) {
                let expected = comparable(model.query(*at, &query));
                let given = comparable(subject.query(*at, &query));
                if expected != given {
                    return Err(format!(
                        "at {query:?}\n  model gives   {expected:?}\n  subject gives {given:?}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Whether the subject names another of several things that are wrong.
fn is_as_right(model: &Model, reply: &Reply) -> bool {
    match reply {
        Reply::Error(error) | Reply::Task(TaskReply::Error(error)) => model.would_accept(*error),
        _ => false,
    }
}

/// Every grant from a queue has a larger token than anything before.
fn tokens_grow(applied: &Applied, newest: &mut u64) -> Result<(), String> {
    let before = *newest;
    let granted = applied.events.iter().filter_map(|event| match event {
        Event::Granted { grant, .. } => Some(grant.token),
        Event::Task(TaskEvent::Claimed(_, _, claimed)) => Some(claimed.token),
        _ => None,
    });
    let mut tokens = granted.collect::<Vec<_>>();
    match &applied.reply {
        Reply::GrantedEach(grants) => tokens.extend(grants.iter().map(|grant| grant.token)),
        // What is granted already is no new grant, be it since earlier or by this very step.
        Reply::Granted(grant) | Reply::Promoted(grant)
            if grant.token > before && !tokens.contains(&grant.token) =>
        {
            tokens.push(grant.token);
        }
        _ => {}
    }
    // Grants of the queue come before and after the command's own: their order is not told here.
    tokens.sort_unstable();
    let grow = tokens.first().is_none_or(|first| *first > before)
        && tokens.is_sorted_by(|earlier, later| earlier < later);
    *newest = tokens.last().copied().unwrap_or(before);
    if grow { Ok(()) } else { Err(format!("tokens {tokens:?} do not grow beyond {before}")) }
}

/// An answer without what means nothing: when a task that is not free will be due, and the wait of
/// a holder without an alias.
fn comparable(mut answer: Answer) -> Answer {
    if let Answer::Entries(entries) = &mut answer {
        let unknown = |entry: &&mut Entry| entry.state == State::Held && entry.alias.is_none();
        entries.iter_mut().filter(unknown).for_each(|entry| entry.wait_ms = 0);
    }
    let entries = match &mut answer {
        Answer::Tasks(entries) => entries.as_mut_slice(),
        Answer::Task(Some(entry)) => std::slice::from_mut(&mut **entry),
        _ => &mut [],
    };
    for entry in entries.iter_mut().filter(|entry| entry.state != TaskState::Free) {
        entry.due = 0;
    }
    answer
}
