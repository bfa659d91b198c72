//! The bodies of the fuzz targets. They are plain functions, so that the gate replays the corpus of
//! `fuzz/` on stable Rust (`tests/fuzz_replay.rs`), and `scripts/fuzz` runs the same code under a
//! coverage-guided fuzzer. A body panics if it finds something wrong.
//!
//! | target | the bytes are | what must hold |
//! |---|---|---|
//! | [`commands`] | times and encoded commands | one form of bytes; the table does what the model does |
//! | [`script`] | choices among few ids, resources, owners | the table does what the model does |
//! | [`snapshot`] | a snapshot, its checksum repaired | refused, or a sound table with one form of bytes |
//! | [`resp`] | what a client sends | the same requests however it is cut into pieces |
//! | [`reply`] | what a server sends, or choices of values | read when whole; what is written reads back |
//!
//! The targets `enqueue` and `http` have their bodies in `keylatch-server`, whose parsers are private.

mod script;
mod snapshot;
mod wire;

use keylatch_table::{
    Answer, Command, Detach, LocksQuery, Query, Reply, Settings, State, Table, TaskEntry,
    TasksQuery, Text,
    task::{TaskReply, TaskState},
};

use crate::{generate::Profile, model::Model};

pub use script::{script, script_beside};
pub use snapshot::{assert_one_snapshot, head, readings, snapshot};
pub use wire::{reply, resp};

/// Times and counters stay below this: half of where the table itself stops, so that nothing that
/// is added to them gets there.
const LATEST: u64 = 1 << 61;
/// Beyond so many commands the table goes on without the model, whose work grows with the square.
const MODEL_STEPS: usize = 150;
/// No input needs more commands than this to say what it has to say.
const MOST_STEPS: usize = 600;
/// A command with more resources or ids than this is not given to the model.
const MODEL_SIZE: usize = 12;

// ---- the table beside the model ------------------------------------------------------------

/// A table and a model that are given the same commands.
struct Pair {
    table: Table,
    /// Nothing once the input has become too large for it.
    model: Option<Model>,
    at: u64,
    steps: usize,
}

impl Pair {
    fn new(settings: &Settings, model: impl FnOnce(Settings, u64) -> Model) -> Pair {
        let table = Table::new(settings.clone(), 0, 1);
        Pair { table, model: Some(model(settings.clone(), 0)), at: 0, steps: 0 }
    }

    /// One step on both sides; a build with debug assertions checks the table's invariants after it.
    fn apply(&mut self, command: &Command) {
        self.steps += 1;
        if self.steps > MODEL_STEPS || size(command) > MODEL_SIZE {
            self.model = None;
        }
        let given = self.table.apply(self.at, command.clone());
        let Some(model) = &mut self.model else { return };
        let expected = model.apply(self.at, command);
        let as_right = match &given.reply {
            Reply::Error(error) | Reply::Task(TaskReply::Error(error)) => {
                model.would_accept(*error)
            }
            _ => false,
        };
        let alike = expected.events == given.events && (expected.reply == given.reply || as_right);
        assert!(
            alike,
            "at {}: {command:?}\n  model gives {expected:?}\n  table gives {given:?}",
            self.at
        );
    }

    /// Everything that can be read is the same on both sides.
    fn look(&self) {
        let Some(model) = &self.model else { return };
        for query in questions(model) {
            let expected = comparable(model.query(self.at, &query));
            let given = comparable(self.table.query(self.at, &query));
            assert_eq!(expected, given, "model and table differ at {query:?}");
        }
    }

    /// The table is written down and read back, under another hash seed.
    fn restart(&mut self) {
        let bytes = self.table.snapshot();
        self.table = Table::restore(&bytes, self.steps as u64).expect("its own bytes");
        assert_eq!(self.table.snapshot(), bytes, "a restart changed the state");
    }

    fn finish(mut self) {
        self.look();
        self.restart();
        self.table.check();
        self.look();
    }
}

/// How many resources and ids a command names.
fn size(command: &Command) -> usize {
    match command {
        Command::Acquire(ask) => 1 + ask.also.len(),
        Command::AcquireEach(asks) => asks.iter().map(|ask| 1 + ask.also.len()).sum(),
        Command::Keyed(keyed) => keyed.keys.len(),
        Command::Detach(Detach { ids: Some(ids), .. }) => ids.len(),
        _ => 1,
    }
}

fn questions(model: &Model) -> Vec<Query> {
    let mut queries = vec![Query::Stats, Query::Pools, Query::TopOwners(3)];
    let middle = model.requests.get(model.requests.len() / 2).map_or(0, |request| request.seq);
    for (waiters, limit, cursor) in [(true, 0, 0), (false, 0, 0), (true, 2, middle)] {
        queries.push(Query::Locks(LocksQuery { waiters, limit, cursor, ..LocksQuery::default() }));
    }
    for request in &model.requests {
        queries.push(Query::Request(request.asked.id.clone()));
        let keys = request.parts.iter().map(|part| part.resource.clone());
        queries.extend(keys.filter(|key| key.arity() == 0).map(Query::Key));
    }
    for task in &model.tasks.all {
        queries.push(Query::Task(task.pool.clone(), task.key.clone()));
        queries.push(Query::Tasks(all_of(&task.pool)));
    }
    queries
}

fn all_of(pool: &Text) -> TasksQuery {
    TasksQuery { pool: pool.clone(), state: None, prefix: None, limit: 0, cursor: 0 }
}

/// An answer without what means nothing: when a task that is not free will be due, and the wait of
/// a holder without an alias.
fn comparable(mut answer: Answer) -> Answer {
    let settle = |task: &mut TaskEntry| {
        if task.state != TaskState::Free {
            task.due = 0;
        }
    };
    match &mut answer {
        Answer::Entries(entries) => {
            for entry in entries {
                if entry.state == State::Held && entry.alias.is_none() {
                    entry.wait_ms = 0;
                }
            }
        }
        Answer::Tasks(tasks) => tasks.iter_mut().for_each(settle),
        Answer::Task(Some(task)) => settle(task),
        _ => {}
    }
    answer
}

/// Takes choices from the front of the input; when it is used up, every choice is the first.
struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    fn word(&mut self) -> u64 {
        u64::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[usize::from(self.byte()) % items.len()].clone()
    }

    /// As many bytes, or what is left.
    fn take(&mut self, length: u64) -> &'a [u8] {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(self.0.len());
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }
}

// ---- commands ------------------------------------------------------------------------------

/// Where a byte of time stops to go forward, and to go backward; beyond, it scales the next two.
const FORWARD: u8 = 100;
const BACKWARD: u8 = 200;

/// Commands as a log would hold them. The first byte chooses the settings; then each command is
/// a step of time, its length in two bytes, and its bytes.
pub fn commands(data: &[u8]) {
    commands_beside(data, Model::new);
}

/// The same beside any model, for those who want to see that a wrong one is noticed.
pub fn commands_beside(data: &[u8], model: impl FnOnce(Settings, u64) -> Model) {
    let mut choices = Choices(data);
    let settings = match choices.byte() {
        0 => Settings::default(),
        number => Profile::ALL[usize::from(number) % Profile::ALL.len()].settings(),
    };
    let mut pair = Pair::new(&settings, model);
    while pair.steps < MOST_STEPS
        && let Some(step) = choices.next()
    {
        pair.at = match step {
            0..FORWARD => pair.at + u64::from(step),
            FORWARD..BACKWARD => pair.at.saturating_sub(u64::from(step - FORWARD)),
            _ => pair.at.saturating_add(choices.word() << (step - BACKWARD).min(47)),
        }
        .min(LATEST - 1);
        let length = choices.word();
        let bytes = choices.take(length);
        let Ok(command) = Command::decode(bytes) else { continue };
        assert_one_form(bytes, &command);
        pair.apply(&command);
    }
    pair.finish();
}

/// Commands and their times, as [`commands`] reads them.
pub fn log(settings: u8, commands: &[(u64, Command)]) -> Vec<u8> {
    let mut bytes = vec![settings];
    let mut last: u64 = 0;
    for (at, command) in commands {
        let encoded = command.encode();
        let Ok(length) = u16::try_from(encoded.len()) else { continue };
        let (forward, backward) = (at.saturating_sub(last), last.saturating_sub(*at));
        match (u8::try_from(forward), u8::try_from(backward)) {
            (Ok(step), Ok(0)) if step < FORWARD => bytes.push(step),
            (Ok(0), Ok(step)) if step < BACKWARD - FORWARD => bytes.push(FORWARD + step),
            _ => {
                bytes.push(BACKWARD);
                let word = forward.min(u64::from(u16::MAX)) as u16;
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        last = *at;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&encoded);
    }
    bytes
}

/// What was read is written in the same bytes again. Only settings may be given in any order and
/// in part; they read back as the same settings.
fn assert_one_form(bytes: &[u8], command: &Command) {
    let again = command.encode();
    match command {
        Command::Settings(_) => assert_eq!(Command::decode(&again).as_ref(), Ok(command)),
        _ => assert_eq!(again, bytes, "two forms of {command:?}"),
    }
}
