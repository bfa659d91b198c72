//! What is said to a change without asking the log: a refusal changes nothing, and a full disk takes
//! nothing new.

use keylatch_table::{Command, Query, Reply, RequestId, Table, TaskAction, TaskCommand};

use super::Turns;
use super::answers::no_room;
use crate::clock::Clock;
use crate::listener::Answer;

pub(super) enum Shortcut {
    Refused(Reply),
    /// There is none for this on the disk.
    NoRoom,
}

impl Turns {
    /// What becomes of changes that need not, or cannot, be logged. `first` if the connection has not
    /// asked for anything else in this turn: only then need it not wait for anyone.
    pub(super) fn shortcut(&self, first: bool, commands: &[Command]) -> Option<Shortcut> {
        self.config.data.as_ref()?;
        // What another member has granted or ended may not be known here yet, so in a cluster the log
        // says who is refused.
        let alone = match commands {
            [command] if first && !self.config.is_member() && can_be_refused(command) => {
                Some(command)
            }
            _ => None,
        };
        if alone.is_none() && !self.full {
            return None;
        }
        let mut table = self.table.lock();
        if let Some(reply) = alone.and_then(|command| refusal(&mut table, &self.clock, command)) {
            return Some(Shortcut::Refused(reply));
        }
        (self.full && commands.iter().any(|command| takes_room(&table, command)))
            .then_some(Shortcut::NoRoom)
    }

    pub(super) fn say_no_room(&mut self, at: usize, answer: &Answer) {
        let connection = &mut self.connections[at];
        let text = no_room(connection, answer);
        connection.closing |= answer.closes();
        self.say(at, text);
    }
}

fn can_be_refused(command: &Command) -> bool {
    matches!(command, Command::Acquire(_) | Command::Task(_))
}

fn refusal(table: &mut Table, clock: &Clock, command: &Command) -> Option<Reply> {
    match command {
        Command::Acquire(ask) => {
            let reply = table.refusal(clock.now(), ask)?;
            table.count_refusal(ask, &reply);
            Some(reply)
        }
        Command::Task(task) => {
            let reply = table.task_refusal(clock.now(), task)?;
            if let TaskAction::Claim(_) = task.action {
                table.count_claim_refusal(&reply);
            }
            Some(Reply::Task(reply))
        }
        _ => None,
    }
}

/// Whether this is something new, and not what has to go on: ends, renewals, repeats.
fn takes_room(table: &Table, command: &Command) -> bool {
    match command {
        Command::Acquire(ask) => !is_live(table, &ask.id),
        Command::Task(TaskCommand { id, action, .. }) => {
            matches!(action, TaskAction::Create(_) | TaskAction::Claim(_)) && !table.knows_task(id)
        }
        _ => false,
    }
}

/// Whether a request holds or waits.
fn is_live(table: &Table, id: &RequestId) -> bool {
    let found = table.query(0, &Query::Request(id.clone()));
    matches!(found, keylatch_table::Answer::Entries(entries) if !entries.is_empty())
}
