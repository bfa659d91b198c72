//! Commands as bytes: what a log stores. `docs/table-format.md` has the layout.
//!
//! The first byte says which command it is. New commands get new numbers, and numbers are never
//! used again: a log may be read by any later version.

use crate::codec::{CodecError, Read, Reader, Writer};
use crate::{
    Acquire, Command, Detach, Extra, Extras, Keyed, KeyedOp, Part, Party, Settings, Target,
};

impl Command {
    /// The command's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_to(&mut bytes);
        bytes
    }

    /// Appends the command's bytes.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let mut to = Writer { bytes: std::mem::take(out) };
        write_command(&mut to, self);
        *out = to.bytes;
    }

    /// Reads a command back, refusing bytes that are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Command, CodecError> {
        let mut from = Reader::new(bytes);
        let command = read_command(&mut from)?;
        from.end()?;
        Ok(command)
    }
}

fn write_command(to: &mut Writer, command: &Command) {
    match command {
        Command::Acquire(ask) => {
            to.u8(1);
            write_acquire(to, ask);
        }
        Command::AcquireEach(asks) => {
            to.u8(2);
            to.list(asks.iter(), write_acquire);
        }
        Command::Release(target) => {
            to.u8(3);
            write_target(to, target);
        }
        Command::Renew(target, lease_ms) => {
            to.u8(4);
            write_target(to, target);
            to.option(*lease_ms, Writer::u64);
        }
        Command::Promote(target) => {
            to.u8(5);
            write_target(to, target);
        }
        Command::Cancel(target) => {
            to.u8(6);
            write_target(to, target);
        }
        Command::Detach(detach) => {
            to.u8(7);
            to.option(detach.ids.as_ref(), |to, ids| to.list(ids.iter(), Writer::id));
            to.u64(detach.grace_ms);
        }
        Command::Revoke(token, reason) => {
            to.u8(8);
            to.u64(*token);
            to.text(reason);
        }
        Command::Keyed(keyed) => {
            to.u8(9);
            write_keyed(to, keyed);
        }
        Command::Task(command) => {
            to.u8(10);
            command.write(to);
        }
        Command::Tick => to.u8(11),
        Command::Settings(settings) => {
            to.u8(12);
            write_settings(to, settings);
        }
        Command::Rules(version) => {
            to.u8(13);
            to.u32(*version);
        }
        Command::TokenFloor(token) => {
            to.u8(14);
            to.u64(*token);
        }
    }
}

fn read_command(from: &mut Reader<'_>) -> Read<Command> {
    Ok(match from.u8()? {
        1 => Command::Acquire(read_acquire(from)?),
        2 => Command::AcquireEach(from.list(read_acquire)?),
        3 => Command::Release(read_target(from)?),
        4 => Command::Renew(read_target(from)?, from.option(Reader::u64)?),
        5 => Command::Promote(read_target(from)?),
        6 => Command::Cancel(read_target(from)?),
        7 => Command::Detach(Detach {
            ids: from.option(|from| from.list(Reader::id))?,
            grace_ms: from.u64()?,
        }),
        8 => Command::Revoke(from.u64()?, from.shared()?),
        9 => Command::Keyed(read_keyed(from)?),
        10 => Command::Task(crate::task::TaskCommand::read(from)?),
        11 => Command::Tick,
        12 => Command::Settings(Box::new(read_settings(from)?)),
        13 => Command::Rules(from.u32()?),
        14 => Command::TokenFloor(from.u64()?),
        _ => return Err(CodecError::Bad("command")),
    })
}

fn write_acquire(to: &mut Writer, ask: &Acquire) {
    to.id(&ask.id);
    write_part(to, &ask.part);
    to.list(ask.also.iter(), write_part);
    write_party(to, &ask.party);
    to.u64(ask.wait_ms);
    to.u64(ask.lease_ms);
    to.bool(ask.detect);
    write_extras(to, &ask.extra);
}

fn read_acquire(from: &mut Reader<'_>) -> Read<Acquire> {
    Ok(Acquire {
        id: from.id()?,
        part: read_part(from)?,
        also: from.list(read_part)?,
        party: read_party(from)?,
        wait_ms: from.u64()?,
        lease_ms: from.u64()?,
        detect: from.bool()?,
        extra: read_extras(from)?,
    })
}

fn write_part(to: &mut Writer, part: &Part) {
    to.resource(&part.resource);
    to.mode(part.mode);
}

fn read_part(from: &mut Reader<'_>) -> Read<Part> {
    Ok(Part { resource: from.resource()?, mode: from.mode()? })
}

pub(crate) fn write_party(to: &mut Writer, party: &Party) {
    to.text(&party.owner);
    to.bool(party.explicit);
    to.option(party.principal.as_deref(), Writer::text);
}

pub(crate) fn read_party(from: &mut Reader<'_>) -> Read<Party> {
    Ok(Party {
        owner: from.shared()?,
        explicit: from.bool()?,
        principal: from.option(Reader::shared)?,
    })
}

pub(crate) fn write_extras(to: &mut Writer, extra: &Extras) {
    to.option((!extra.is_none()).then_some(extra), write_extra);
}

pub(crate) fn read_extras(from: &mut Reader<'_>) -> Read<Extras> {
    match from.option(read_extra)? {
        None => Ok(Extras::default()),
        // Nothing has one form.
        Some(extra) if extra.is_none() => Err(CodecError::Bad("extra")),
        Some(extra) => Ok(extra),
    }
}

pub(crate) fn write_extra(to: &mut Writer, extra: &Extras) {
    to.u64(extra.max_hold_ms());
    to.option(extra.meta(), Writer::text);
    to.option(extra.value(), Writer::bytes);
    to.option(extra.alias(), Writer::text);
}

pub(crate) fn read_extra(from: &mut Reader<'_>) -> Read<Extras> {
    let extra = Extra {
        max_hold_ms: from.u64()?,
        meta: from.option(Reader::text)?.map(Into::into),
        value: from.option(Reader::bytes)?.map(Into::into),
        alias: from.option(Reader::text)?.map(Into::into),
    };
    Ok(extra.into())
}

fn write_target(to: &mut Writer, target: &Target) {
    match target {
        Target::Id(id) => {
            to.u8(0);
            to.id(id);
        }
        Target::Alias(alias) => {
            to.u8(1);
            to.text(alias);
        }
    }
}

fn read_target(from: &mut Reader<'_>) -> Read<Target> {
    Ok(match from.u8()? {
        0 => Target::Id(from.id()?),
        1 => Target::Alias(from.text()?.into()),
        _ => return Err(CodecError::Bad("target")),
    })
}

fn write_keyed(to: &mut Writer, keyed: &Keyed) {
    to.list(keyed.keys.iter(), Writer::resource);
    to.option(keyed.value.as_deref(), Writer::bytes);
    to.bool(keyed.all);
    let (op, ms) = match keyed.op {
        KeyedOp::Delete => (0, 0),
        KeyedOp::Expire(ms) => (1, ms),
        KeyedOp::Extend(ms) => (2, ms),
    };
    to.u8(op);
    to.u64(ms);
}

fn read_keyed(from: &mut Reader<'_>) -> Read<Keyed> {
    Ok(Keyed {
        keys: from.list(Reader::resource)?,
        value: from.option(Reader::bytes)?.map(Into::into),
        all: from.bool()?,
        op: match (from.u8()?, from.u64()?) {
            (0, 0) => KeyedOp::Delete,
            (1, ms) => KeyedOp::Expire(ms),
            (2, ms) => KeyedOp::Extend(ms),
            _ => return Err(CodecError::Bad("operation")),
        },
    })
}

/// By name, so that a later version may add some.
pub(crate) fn write_settings(to: &mut Writer, settings: &Settings) {
    let entries: Vec<(&str, u64)> = settings.entries().collect();
    to.list(entries.into_iter(), |to, (name, value)| {
        to.text(name);
        to.u64(value);
    });
}

pub(crate) fn read_settings(from: &mut Reader<'_>) -> Read<Settings> {
    let mut settings = Settings::default();
    for (name, value) in from.list(|from| Ok((from.text()?, from.u64()?)))? {
        if !settings.set(name, value) {
            return Err(CodecError::Bad("setting"));
        }
    }
    Ok(settings)
}
