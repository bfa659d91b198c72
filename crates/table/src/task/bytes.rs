//! Task commands and answers as bytes, and the fingerprint by which a repeat is known.

use twox_hash::XxHash3_64;

use super::{
    Body, Checked, Claim, Claimed, Create, PutBack, TaskAction, TaskCommand, TaskReply, TaskState,
};
use crate::Party;
use crate::codec::{CodecError, Read, Reader, Writer};
use crate::command_bytes::{read_party, write_party};

impl TaskCommand {
    /// Stands for the content of the command: all but the wait of a claim, and what is shown for a
    /// worker that named no owner.
    pub(crate) fn print(&self) -> u64 {
        let mut to = Writer::default();
        match &self.action {
            TaskAction::Claim(claim) => {
                let shown = if claim.party.explicit { &*claim.party.owner } else { "" };
                let party = Party { principal: None, owner: shown.into(), ..claim.party };
                let claim = Claim { wait_ms: 0, party, ..claim.clone() };
                TaskCommand { action: TaskAction::Claim(claim), ..self.clone() }.write(&mut to);
            }
            _ => self.write(&mut to),
        }
        XxHash3_64::oneshot(&to.bytes)
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.id(&self.id);
        to.text(&self.pool);
        match &self.action {
            TaskAction::Create(create) => {
                to.u8(0);
                to.text(&create.key);
                write_body(to, create.body.as_ref());
                to.i32(create.priority);
                to.u64(create.delay_ms);
                to.option(create.attempts, Writer::u32);
            }
            TaskAction::Claim(claim) => {
                to.u8(1);
                to.option(claim.key.as_deref(), Writer::text);
                write_party(to, &claim.party);
                to.u64(claim.wait_ms);
                to.u64(claim.lease_ms);
            }
            TaskAction::Update(checked, body, lease_ms) => {
                to.u8(2);
                write_checked(to, checked);
                write_body(to, body.as_ref());
                to.option(*lease_ms, Writer::u64);
            }
            TaskAction::Finish(checked) => {
                to.u8(3);
                write_checked(to, checked);
            }
            TaskAction::PutBack(checked, back) => {
                to.u8(4);
                write_checked(to, checked);
                to.u64(back.delay_ms);
                to.option(back.error.as_deref(), Writer::text);
            }
            TaskAction::Delete(key, version) => {
                to.u8(5);
                to.text(key);
                to.option(*version, Writer::u64);
            }
            TaskAction::Retry(key) => {
                to.u8(6);
                to.option(key.as_deref(), Writer::text);
            }
            TaskAction::Cancel => to.u8(7),
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Read<TaskCommand> {
        let (id, pool) = (from.id()?, from.shared()?);
        let action = match from.u8()? {
            0 => TaskAction::Create(Create {
                key: from.shared()?,
                body: read_body(from)?,
                priority: from.i32()?,
                delay_ms: from.u64()?,
                attempts: from.option(Reader::u32)?,
            }),
            1 => TaskAction::Claim(Claim {
                key: from.option(Reader::shared)?,
                party: read_party(from)?,
                wait_ms: from.u64()?,
                lease_ms: from.u64()?,
            }),
            2 => {
                TaskAction::Update(read_checked(from)?, read_body(from)?, from.option(Reader::u64)?)
            }
            3 => TaskAction::Finish(read_checked(from)?),
            4 => {
                let checked = read_checked(from)?;
                let delay_ms = from.u64()?;
                let error = from.option(Reader::shared)?;
                TaskAction::PutBack(checked, PutBack { delay_ms, error })
            }
            5 => TaskAction::Delete(from.shared()?, from.option(Reader::u64)?),
            6 => TaskAction::Retry(from.option(Reader::shared)?),
            7 => TaskAction::Cancel,
            _ => return Err(CodecError::Bad("action")),
        };
        Ok(TaskCommand { id, pool, action })
    }
}

fn write_checked(to: &mut Writer, checked: &Checked) {
    to.text(&checked.key);
    to.u64(checked.version);
}

fn read_checked(from: &mut Reader<'_>) -> Read<Checked> {
    Ok(Checked { key: from.shared()?, version: from.u64()? })
}

pub(crate) fn write_body(to: &mut Writer, body: Option<&Body>) {
    to.option(body, |to, body| {
        to.bool(body.json);
        to.bytes(&body.bytes);
    });
}

pub(crate) fn read_body(from: &mut Reader<'_>) -> Read<Option<Body>> {
    from.option(|from| Ok(Body { json: from.bool()?, bytes: from.bytes()?.into() }))
}

pub(crate) fn write_state(to: &mut Writer, state: TaskState) {
    to.u8(match state {
        TaskState::Free => 0,
        TaskState::Claimed => 1,
        TaskState::Done => 2,
        TaskState::Failed => 3,
    });
}

pub(crate) fn read_state(from: &mut Reader<'_>) -> Read<TaskState> {
    Ok(match from.u8()? {
        0 => TaskState::Free,
        1 => TaskState::Claimed,
        2 => TaskState::Done,
        3 => TaskState::Failed,
        _ => return Err(CodecError::Bad("task state")),
    })
}

/// Only answers that are remembered have bytes.
pub(crate) fn write_reply(to: &mut Writer, reply: &TaskReply) {
    match reply {
        TaskReply::Created(version) => {
            to.u8(0);
            to.u64(*version);
        }
        TaskReply::Exists => to.u8(1),
        TaskReply::Claimed(claimed) => {
            to.u8(2);
            to.text(&claimed.key);
            to.u64(claimed.version);
            to.u64(claimed.token);
            to.u32(claimed.attempts);
            to.option(claimed.lease_ms, Writer::u64);
            to.u64(claimed.waited_ms);
        }
        TaskReply::Refused(state) => {
            to.u8(3);
            write_state(to, *state);
        }
        TaskReply::Updated { version, lease_ms } => {
            to.u8(4);
            to.u64(*version);
            to.option(*lease_ms, Writer::u64);
        }
        TaskReply::Finished(version) => {
            to.u8(5);
            to.u64(*version);
        }
        TaskReply::PutBack { version, state, attempts } => {
            to.u8(6);
            to.u64(*version);
            write_state(to, *state);
            to.u32(*attempts);
        }
        TaskReply::Deleted => to.u8(7),
        TaskReply::Stale(version) => {
            to.u8(8);
            to.u64(*version);
        }
        TaskReply::NotFound => to.u8(9),
        TaskReply::Retried(count) => {
            to.u8(10);
            to.u64(*count);
        }
        TaskReply::Nothing
        | TaskReply::Waiting
        | TaskReply::Cancelled(_)
        | TaskReply::Ended
        | TaskReply::Error(_) => panic!("K4: never remembered"),
    }
}

pub(crate) fn read_reply(from: &mut Reader<'_>) -> Read<TaskReply> {
    Ok(match from.u8()? {
        0 => TaskReply::Created(from.u64()?),
        1 => TaskReply::Exists,
        2 => TaskReply::Claimed(Claimed {
            key: from.shared()?,
            body: None,
            version: from.u64()?,
            token: from.u64()?,
            attempts: from.u32()?,
            lease_ms: from.option(Reader::u64)?,
            waited_ms: from.u64()?,
        }),
        3 => TaskReply::Refused(read_state(from)?),
        4 => TaskReply::Updated { version: from.u64()?, lease_ms: from.option(Reader::u64)? },
        5 => TaskReply::Finished(from.u64()?),
        6 => TaskReply::PutBack {
            version: from.u64()?,
            state: read_state(from)?,
            attempts: from.u32()?,
        },
        7 => TaskReply::Deleted,
        8 => TaskReply::Stale(from.u64()?),
        9 => TaskReply::NotFound,
        10 => TaskReply::Retried(from.u64()?),
        _ => return Err(CodecError::Bad("answer")),
    })
}
