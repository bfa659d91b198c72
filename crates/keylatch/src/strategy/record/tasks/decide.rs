//! From what was read of a task to what is to be written. No I/O: the table decides, and this translates.

use keylatch_table::{
    Answer, Claim, ClaimStanding, Command, Counters, Query, Reply, Settings, Table, TaskAction,
    TaskCommand, TaskReply, TaskStanding,
};

use super::super::format::FRESH;
use super::format;
use super::store::{Seen, Take, TaskRecord, Write};

/// A record that this program did not write.
#[derive(Debug)]
pub(super) struct Nonsense(pub(super) String);

/// What is to be done, and what is to be answered once it is.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) reply: TaskReply,
    /// Nothing, if nothing is to be written.
    pub(super) write: Option<Write>,
}

/// The bounds are the table's own, but for the sum of all tasks: no record store counts it.
fn settings() -> Settings {
    Settings { task_bytes: 1 << 60, ..Settings::default() }
}

pub(super) fn standing(record: &TaskRecord, now: u64) -> Result<TaskStanding, Nonsense> {
    format::decode(record, now).ok_or_else(|| {
        Nonsense(format!(
            "the record of the task '{}' is of another program, or of a newer version",
            record.key
        ))
    })
}

/// A table of these tasks at this time, by when what is due has ended.
pub(super) fn table<'a>(
    now: u64,
    records: impl IntoIterator<Item = &'a TaskRecord>,
) -> Result<Table, Nonsense> {
    let standings = records.into_iter().map(|record| standing(record, now));
    let standings = standings.collect::<Result<Vec<_>, _>>()?;
    let counters = Counters { now, token: FRESH, seq: 0 };
    let mut table = Table::from_tasks(settings(), counters, 0, standings)
        .map_err(|error| Nonsense(format!("the records of tasks cannot be: {error}")))?;
    table.apply(now, Command::Tick);
    Ok(table)
}

fn apply(table: &mut Table, now: u64, command: TaskCommand) -> TaskReply {
    match table.apply(now, Command::Task(command)).reply {
        Reply::Task(reply) => reply,
        other => unreachable!("no task is answered so: {other:?}"),
    }
}

/// What a command does to what was seen of the task with this key.
pub(super) fn decide(seen: &Seen, key: &str, command: &TaskCommand) -> Result<Decision, Nonsense> {
    let Seen { now, record } = seen;
    let mut table = table(*now, record)?;
    let reply = apply(&mut table, *now, command.clone());
    let before = record.as_ref().map(|record| standing(record, *now)).transpose()?;
    let write = match table.task_standing(&command.pool, key) {
        Some(after) if after.version > FRESH => {
            let answer = table.task_answer(&command.id);
            Some(Write::Put(format::encode(before.as_ref(), &after, answer, *now)))
        }
        None if before.is_some() => Some(Write::Delete),
        Some(_) | None => None,
    };
    Ok(Decision { reply, write })
}

/// What is wrong with a claim, whatever there is to claim.
pub(super) fn refusal(command: &TaskCommand) -> Option<keylatch_table::Error> {
    let mut table = table(0, []).expect("a table of nothing");
    match apply(&mut table, 0, command.clone()) {
        TaskReply::Error(error) => Some(error),
        _ => None,
    }
}

/// How a claim is made.
pub(super) fn take(command: &TaskCommand, claim: &Claim, waits: bool, unit_ms: u64) -> Take {
    let lease_ms = claim.lease_ms.next_multiple_of(unit_ms);
    let stamp = ClaimStanding {
        id: command.id.clone(),
        print: command.fingerprint(),
        token: 0,
        owner: claim.party.owner.clone(),
        at: 0,
        lease_ms,
        end: None,
    };
    Take {
        pool: command.pool.clone(),
        key: claim.key.clone(),
        id: command.id.clone(),
        claim: format::encode_claim(&stamp),
        lease_ms,
        waits,
    }
}

/// The answer to a claim that took this, now or before: as the table answers a repeat.
pub(super) fn taken(
    now: u64,
    record: &TaskRecord,
    command: &TaskCommand,
) -> Result<TaskReply, Nonsense> {
    Ok(apply(&mut table(now, [record])?, now, command.clone()))
}

/// The answer to a claim that took nothing.
pub(super) fn nothing(seen: &Seen, command: &TaskCommand) -> Result<TaskReply, Nonsense> {
    let TaskAction::Claim(claim) = &command.action else { return Ok(TaskReply::Nothing) };
    let (mut table, claim) =
        (table(seen.now, &seen.record)?, Claim { wait_ms: 0, ..claim.clone() });
    let asked = TaskCommand { action: TaskAction::Claim(claim), ..command.clone() };
    match apply(&mut table, seen.now, asked) {
        // Its time has come since it was looked at.
        TaskReply::Claimed(_) => Ok(TaskReply::Nothing),
        other => Ok(other),
    }
}

/// What is shown of tasks.
pub(super) fn ask(now: u64, records: &[TaskRecord], query: &Query) -> Result<Answer, Nonsense> {
    Ok(table(now, records)?.query(now, query))
}
