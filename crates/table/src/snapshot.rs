//! The whole table as bytes, and back. `docs/table-format.md` has the layout.
//!
//! A snapshot is canonical: equal tables give equal bytes, whatever their hash seeds and the
//! history of their slots, so its checksum is also the state hash. Reading trusts nothing: every
//! record is checked on its own, then the table as a whole, and anything else is refused.

mod write;

use twox_hash::XxHash3_64;

use crate::board::deadlines::NEVER;
use crate::board::ended::{End, EndedId};
use crate::codec::{CodecError, Read, Reader, Writer};
use crate::command_bytes::{read_extras, read_party, read_settings};
use crate::standing::{Standing, StandingPart, StandingWait};
use crate::{Cause, Party, Table, Text, rules};

pub use write::{Progress, SnapshotWriter};

/// "Keylatch table".
const MAGIC: &[u8; 4] = b"KLTT";
/// The version of this format.
const VERSION: u32 = 1;

impl Table {
    /// A number that is equal for equal tables and, all but certainly, different for others.
    pub fn state_hash(&self) -> u64 {
        let bytes = self.snapshot();
        let checksum = bytes.last_chunk::<8>().expect("a snapshot ends in its checksum");
        u64::from_le_bytes(*checksum)
    }

    /// The table that a snapshot was made of: it behaves exactly as that one did.
    pub fn restore(bytes: &[u8], hash_seed: u64) -> Result<Table, CodecError> {
        let (content, checksum) = bytes.split_last_chunk::<8>().ok_or(CodecError::Short)?;
        let mut from = Reader::new(content);
        if from.take(4)? != MAGIC {
            return Err(CodecError::Bad("magic: this is not a snapshot of a lock table"));
        }
        let version = from.u32()?;
        if version != VERSION {
            return Err(CodecError::Version(version));
        }
        if XxHash3_64::oneshot(content) != u64::from_le_bytes(*checksum) {
            return Err(CodecError::Checksum);
        }
        let rules = from.u32()?;
        if rules != rules::RULES {
            return Err(CodecError::Version(rules));
        }
        let settings = read_settings(&mut from)?;
        settings.validate().map_err(|_| CodecError::Bad("setting"))?;
        let now = from.u64()?;
        let token = from.u64()?;
        let mut table = Table::new(settings, token, hash_seed);
        (table.now, table.token) = (now, token);
        table.seq = from.u64()?;
        if now > LATEST || token > LATEST || table.seq > LATEST {
            return Err(CodecError::Bad("counter"));
        }
        let parties = from.list(read_party)?;
        let count = from.u64()?;
        for _ in 0..count {
            table.read_request(&mut from, &parties)?;
        }
        for (at, ended) in from.list(read_ended)? {
            if at > now || table.board.known(&ended.id).is_some() {
                return Err(CodecError::Bad("ended id"));
            }
            table.board.remember(at, ended);
        }
        table.read_tasks(&mut from)?;
        from.end()?;
        table.park_restored()?;
        if let Some(fault) = table.find_fault() {
            return Err(CodecError::Bad(fault));
        }
        if table.snapshot() != bytes {
            return Err(CodecError::Bad("form: not the bytes that this table would write"));
        }
        Ok(table)
    }

    fn read_request(&mut self, from: &mut Reader<'_>, parties: &[Party]) -> Read<()> {
        let id = from.id()?;
        let (seq, token, since) = (from.u64()?, from.u64()?, from.u64()?);
        let deadline = read_time(from)?;
        let (waited_ms, lease_ms) = (from.u64()?, from.u64()?);
        let party = usize::try_from(from.u64()?).ok().and_then(|party| parties.get(party));
        let standing = Standing {
            id,
            seq,
            token,
            since,
            deadline: (deadline != NEVER).then_some(deadline),
            waited_ms,
            lease_ms,
            party: party.ok_or(CodecError::Bad("party"))?.clone(),
            detect: from.bool()?,
            detached: from.bool()?,
            parts: from.list(|from| {
                Ok(StandingPart {
                    resource: from.resource()?,
                    mode: from.mode()?,
                    asked: from.mode()?,
                })
            })?,
            extra: read_extras(from)?,
            wait_ms: from.u64()?,
            wait: match token {
                0 => Some(StandingWait {
                    asked: from.u64()?,
                    end: from.u64()?,
                    grace: from.option(|from| Ok((from.u64()?, from.u64()?)))?,
                }),
                _ => None,
            },
        };
        if standing.deadline.is_some_and(|deadline| deadline <= self.now) || !self.seat(standing) {
            return Err(CodecError::Bad("request"));
        }
        Ok(())
    }

    /// Where everyone is parked is not in a snapshot: it follows from the rest, and shows nowhere.
    fn park_restored(&mut self) -> Read<()> {
        for at in self.waiters() {
            let blocker = self.board.parking(at);
            self.board.park(at, blocker.ok_or(CodecError::Bad("waiter: nothing blocks it"))?);
        }
        Ok(())
    }
}

/// Times and counters stay below this, so that adding a lease can never overflow.
pub(crate) const LATEST: u64 = 1 << 62;

/// A time, or none.
pub(crate) fn write_time(to: &mut Writer, time: u64) {
    to.u64(if time == NEVER { 0 } else { time + 1 });
}

pub(crate) fn read_time(from: &mut Reader<'_>) -> Read<u64> {
    match from.u64()? {
        0 => Ok(NEVER),
        time if time <= LATEST => Ok(time - 1),
        _ => Err(CodecError::Bad("time")),
    }
}

fn read_ended(from: &mut Reader<'_>) -> Read<(u64, EndedId)> {
    let (id, at, code) = (from.id()?, from.u64()?, from.u8()?);
    let by: Option<Text> = from.option(Reader::shared)?;
    let by = by.map(Box::new);
    let end = match (code, by) {
        (0, None) => End::Grant(Cause::Released, None),
        (1, None) => End::Grant(Cause::Expired, None),
        (2, by) => End::Grant(Cause::Superseded, by),
        (3, None) => End::Grant(Cause::Revoked, None),
        (4, None) => End::Released,
        (5, None) => End::Cancelled,
        _ => return Err(CodecError::Bad("ended id")),
    };
    Ok((at, EndedId { id, end }))
}
