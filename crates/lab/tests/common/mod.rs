//! Short words for scenarios: who asks for what, and what came of it.

use keylatch_lab::model::Model;
use keylatch_table::{
    Acquire, Applied, Command, Event, Field, Mode, Part, Party, Reply, Resource, Settings, Target,
};

/// A table under test, at the time of its last command.
pub(crate) struct Scene {
    /// The table.
    pub(crate) model: Model,
    /// The time of the next command.
    pub(crate) at: u64,
    last: Vec<Event>,
}

/// `name` or `name(a,@)`.
pub(crate) fn resource(text: &str) -> Resource {
    let Some((name, fields)) = text.trim_end_matches(')').split_once('(') else {
        return Resource::plain(text).unwrap();
    };
    let field = |field| if field == "@" { Field::Any } else { Field::Text(field) };
    Resource::new(name, &fields.split(',').map(field).collect::<Vec<_>>()).unwrap()
}

/// A request of `owner` (none if empty) for parts such as `S a(1,@)`; it waits a minute.
pub(crate) fn asks(id: &str, owner: &str, parts: &[&str]) -> Acquire {
    let mut parts = parts.iter().map(|part| {
        let (mode, text) = part.split_once(' ').unwrap();
        Part::new(resource(text), Mode::from_letter(mode).unwrap())
    });
    let party = if owner.is_empty() { Party::client("someone") } else { Party::owner(owner) };
    let part = parts.next().unwrap();
    Acquire {
        part: part.clone(),
        also: parts.collect(),
        wait_ms: 60_000,
        ..Acquire::new(id.into(), part.resource, party)
    }
}

impl Scene {
    /// An empty table.
    pub(crate) fn new() -> Scene {
        Scene { model: Model::new(Settings::default(), 0), at: 1_000, last: Vec::new() }
    }

    /// One command; what it gives, after checking that the table is sane.
    pub(crate) fn apply(&mut self, command: &Command) -> Applied {
        let applied = self.model.apply(self.at, command);
        self.model.assert_sane();
        self.last.clone_from(&applied.events);
        applied
    }

    /// Asks, and says in one word what came of it.
    pub(crate) fn ask(&mut self, id: &str, owner: &str, parts: &[&str]) -> &'static str {
        self.ask_with(asks(id, owner, parts))
    }

    /// Asks with more than the usual, and says in one word what came of it.
    pub(crate) fn ask_with(&mut self, asked: Acquire) -> &'static str {
        match self.apply(&Command::Acquire(asked)).reply {
            Reply::Granted(_) => "granted",
            Reply::Waiting(_) => "waiting",
            Reply::Busy(_) => "busy",
            Reply::Deadlock(_) => "deadlock",
            Reply::Ended(_) => "ended",
            other => panic!("{other:?}"),
        }
    }

    /// Releases `id` and says who was granted by it, in order.
    pub(crate) fn release(&mut self, id: &str) -> Vec<String> {
        assert_eq!(self.apply(&Command::Release(Target::Id(id.into()))).reply, Reply::Released);
        self.granted()
    }

    /// Whom the last command granted from the queue, in order.
    pub(crate) fn granted(&self) -> Vec<String> {
        let granted = self.last.iter().filter_map(|event| match event {
            Event::Granted { id, .. } => Some(id.to_string()),
            _ => None,
        });
        granted.collect()
    }
}
