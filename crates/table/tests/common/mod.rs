//! The scene that every scenario test plays on: a table, a clock that the test moves, and words for
//! what is asked and what is answered, so that a test reads like a transcript.
//!
//! ```text
//! let mut scene = Scene::new();                                  // table time is 1000
//! scene.ask(ask("a", "X tab(A,@)"));                             // "granted token 1 ..."
//! scene.at(1_500).ask(ask("b", "S tab(A,B)").wait(9_000));       // "waiting: a X held ..."
//! scene.release("a");                                            // "released"
//! scene.events();                                                // ["granted b token 2 ..."]
//! ```
//!
//! Every step is also a test of the bytes: the command is encoded and decoded, and a table restored
//! from a snapshot under another hash seed must answer the same and end in the same state. What is refused without the log
//! (`Table::refusal`) must be what is refused.

#![allow(dead_code, unused_imports)] // each test binary uses its part of it

pub(crate) mod asks;
pub(crate) mod tasks;
pub(crate) mod words;

use keylatch_table::{
    Answer, Applied, Command, Detach, Entry, Event, LocksQuery, Query, Reply, Settings, Stats,
    Table, Target,
};

pub(crate) use asks::{Ask, ask, resource};
pub(crate) use words::{event_words, reply_words};

/// When every scene begins. Not 0, so that a time is never mistaken for a length.
pub(crate) const START: u64 = 1_000;

pub(crate) struct Scene {
    pub(crate) table: Table,
    now: u64,
    events: Vec<Event>,
    /// Whether every step is repeated on a table restored from bytes.
    twins: bool,
}

impl Scene {
    pub(crate) fn new() -> Scene {
        Scene::with(&[])
    }

    /// With some settings changed.
    pub(crate) fn with(settings: &[(&str, u64)]) -> Scene {
        let table = Table::new(settings_with(settings), 0, 1);
        Scene { table, now: START, events: Vec::new(), twins: true }
    }

    /// For scenes with so many requests that checking every step would take too long.
    pub(crate) fn crowded() -> Scene {
        Scene { twins: false, ..Scene::new() }
    }

    /// Moves the clock. The table learns of it with the next command.
    pub(crate) fn at(&mut self, now: u64) -> &mut Scene {
        self.now = now;
        self
    }

    /// Carries out a command; the events can be asked for until the next one.
    pub(crate) fn apply(&mut self, command: Command) -> Applied {
        assert_eq!(Command::decode(&command.encode()).as_ref(), Ok(&command));
        let twin = self.twins.then(|| {
            let mut twin = Table::restore(&self.table.snapshot(), 99).expect("its own snapshot");
            (twin.apply(self.now, command.clone()), twin)
        });
        let told = self.is_told_ahead(&command);
        let refused = match &command {
            Command::Acquire(ask) => self.table.refusal(self.now, ask),
            _ => None,
        };
        let applied = self.table.apply(self.now, command);
        let is_refusal =
            matches!(applied.reply, Reply::Busy(_) | Reply::Deadlock(_) | Reply::Error(_));
        let expected = (told && is_refusal).then(|| applied.reply.clone());
        assert_eq!(refused, expected, "what is refused is told ahead, and nothing else");
        if let Some((answer, twin)) = twin {
            assert_eq!(answer, applied, "a restored table answers the same");
            assert_eq!(twin.snapshot(), self.table.snapshot(), "and ends in the same state");
        }
        self.events.clone_from(&applied.events);
        applied
    }

    /// Whether a refusal of this must be known before it is carried out: not if something ends before it, or it is a repeat.
    fn is_told_ahead(&self, command: &Command) -> bool {
        let Command::Acquire(ask) = command else { return false };
        let live = self.table.query(0, &Query::Request(ask.id.clone()));
        let is_repeat = matches!(live, Answer::Entries(entries) if !entries.is_empty());
        let is_due = self.table.next_deadline().is_some_and(|due| due <= self.now);
        !is_repeat && !is_due
    }

    /// Carries out a command and puts the answer in words.
    pub(crate) fn say(&mut self, command: Command) -> String {
        reply_words(&self.apply(command).reply)
    }

    pub(crate) fn ask(&mut self, ask: Ask) -> String {
        self.say(Command::Acquire(ask.0))
    }

    pub(crate) fn ask_each(&mut self, asks: impl IntoIterator<Item = Ask>) -> String {
        self.say(Command::AcquireEach(asks.into_iter().map(|ask| ask.0).collect()))
    }

    pub(crate) fn release(&mut self, id: &str) -> String {
        self.say(Command::Release(target(id)))
    }

    pub(crate) fn renew(&mut self, id: &str) -> String {
        self.say(Command::Renew(target(id), None))
    }

    pub(crate) fn renew_for(&mut self, id: &str, lease_ms: u64) -> String {
        self.say(Command::Renew(target(id), Some(lease_ms)))
    }

    pub(crate) fn promote(&mut self, id: &str) -> String {
        self.say(Command::Promote(target(id)))
    }

    pub(crate) fn cancel(&mut self, id: &str) -> String {
        self.say(Command::Cancel(target(id)))
    }

    pub(crate) fn revoke(&mut self, token: u64, reason: &str) -> String {
        self.say(Command::Revoke(token, reason.into()))
    }

    pub(crate) fn detach(&mut self, ids: &[&str], grace_ms: u64) -> String {
        let ids = Some(ids.iter().map(|id| (*id).into()).collect());
        self.say(Command::Detach(Detach { ids, grace_ms }))
    }

    pub(crate) fn detach_all(&mut self, grace_ms: u64) -> String {
        self.say(Command::Detach(Detach { ids: None, grace_ms }))
    }

    pub(crate) fn tick(&mut self) -> String {
        self.say(Command::Tick)
    }

    pub(crate) fn set(&mut self, settings: &[(&str, u64)]) -> String {
        self.say(Command::Settings(Box::new(settings_with(settings))))
    }

    /// What the last step told others, in words.
    pub(crate) fn events(&self) -> Vec<String> {
        self.events.iter().map(event_words).collect()
    }

    /// Whom the last step granted, in order.
    pub(crate) fn granted(&self) -> Vec<String> {
        let granted = self.events.iter().filter_map(|event| match event {
            Event::Granted { id, .. } => Some(id.to_string()),
            _ => None,
        });
        granted.collect()
    }

    pub(crate) fn query(&self, query: &Query) -> Answer {
        self.table.query(self.now, query)
    }

    pub(crate) fn entries(&self, query: LocksQuery) -> Vec<Entry> {
        match self.query(&Query::Locks(query)) {
            Answer::Entries(entries) => entries,
            other => panic!("not entries: {other:?}"),
        }
    }

    /// The ids of those who hold, in the order of arrival.
    pub(crate) fn holders(&self) -> Vec<String> {
        ids(&self.entries(LocksQuery::default()))
    }

    /// The ids of all, in the order of arrival.
    pub(crate) fn everyone(&self) -> Vec<String> {
        ids(&self.entries(LocksQuery { waiters: true, ..LocksQuery::default() }))
    }

    /// The entries of one request.
    pub(crate) fn entries_of(&self, id: &str) -> Vec<Entry> {
        match self.query(&Query::Request(id.into())) {
            Answer::Entries(entries) => entries,
            other => panic!("not entries: {other:?}"),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        match self.query(&Query::Stats) {
            Answer::Stats(stats) => stats,
            other => panic!("not stats: {other:?}"),
        }
    }
}

/// The id of each request once.
fn ids(entries: &[Entry]) -> Vec<String> {
    let mut ids: Vec<String> = entries.iter().map(|entry| entry.id.to_string()).collect();
    ids.dedup();
    ids
}

/// A request by its id, or as `alias:NAME` by its alias.
pub(crate) fn target(id: &str) -> Target {
    match id.strip_prefix("alias:") {
        Some(alias) => Target::Alias(alias.into()),
        None => Target::Id(id.into()),
    }
}

pub(crate) fn settings_with(changes: &[(&str, u64)]) -> Settings {
    let mut settings = Settings::default();
    for (name, value) in changes {
        assert!(settings.set(name, *value), "no setting {name}");
    }
    settings
}
