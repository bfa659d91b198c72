//! Heads and waiters as bytes. What a write grants has that write's number as its token and counts
//! from that write's time, and neither is known beforehand: so it is written relative to them. A lease
//! that a write sets anew counts from its time too.

use keylatch_table::{Cause, RequestId, Standing, StandingWait};

use super::store::{Head, Holder, Waiter};
use crate::guard::Lost;

/// Tokens and seqs above this are not known yet: they are the number of the write, and so many more.
pub(super) const FRESH: u64 = 1 << 60;

/// The token that the write of this version gave.
pub(super) fn real(token: u64, version: u64) -> u64 {
    if token > FRESH { version + (token - FRESH - 1) } else { token }
}

/// What a head says.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    pub(super) standings: Vec<Standing>,
    pub(super) notes: Vec<Note>,
}

/// That a holder lost its lock, for it to read: superseded or revoked.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) id: RequestId,
    pub(super) cause: Cause,
    pub(super) detail: Option<String>,
    /// When it may be forgotten.
    pub(super) until: u64,
}

impl Note {
    pub(super) fn as_lost(&self) -> Lost {
        Lost::from_cause(self.cause, self.detail.as_deref().map(Into::into))
    }
}

const VERSION: u8 = 1;

/// How the times of a holder are to be read.
const AS_WRITTEN: u8 = 0;
/// Its lease counts from this write.
const LEASED: u8 = 1;
/// This write granted it.
const GRANTED: u8 = 2;

/// The bytes of most holders.
const USUAL: usize = 128;

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The bytes of a head, and its holders for a store with leases of its own. `before` is who held.
pub(super) fn encode(holders: Holders, before: &[Standing], now: u64) -> (Vec<u8>, Vec<Holder>) {
    let mut out = Vec::with_capacity(64 + holders.standings.len() * USUAL);
    out.push(VERSION);
    let mut list = Vec::with_capacity(holders.standings.len());
    out.extend_from_slice(&(holders.standings.len() as u32).to_le_bytes());
    for mut standing in holders.standings {
        let left_ms = standing.deadline.map(|deadline| deadline.saturating_sub(now));
        let same =
            |before: &Standing| before.id == standing.id && before.deadline == standing.deadline;
        let how = if standing.token > FRESH {
            GRANTED
        } else if before.iter().any(same) {
            AS_WRITTEN
        } else {
            LEASED
        };
        if how != AS_WRITTEN {
            standing.deadline = left_ms;
        }
        if how == GRANTED {
            standing.since = 0;
        }
        out.push(how);
        bytes(&mut out, &standing.encode());
        list.push(Holder { id: standing.id, left_ms, leased: how != AS_WRITTEN });
    }
    out.extend_from_slice(&(holders.notes.len() as u32).to_le_bytes());
    for note in &holders.notes {
        bytes(&mut out, note.id.to_string().as_bytes());
        out.push(match note.cause {
            Cause::Superseded => 1,
            Cause::Revoked => 2,
            Cause::Released | Cause::Expired => 0,
        });
        bytes(&mut out, note.detail.as_deref().unwrap_or_default().as_bytes());
        out.extend_from_slice(&note.until.to_le_bytes());
    }
    (out, list)
}

pub(super) fn decode(head: &Head, now: u64) -> Option<Holders> {
    let mut from = Reader(&head.bytes);
    if from.take(1)? != [VERSION] {
        return None;
    }
    let mut holders = Holders::default();
    for _ in 0..from.u32()? {
        let how = from.take(1)?[0];
        let mut standing = Standing::decode(from.bytes()?).ok()?;
        if standing.token > FRESH {
            let number = |fresh: u64| head.version + (fresh - FRESH - 1);
            if standing.seq > FRESH {
                standing.seq = number(standing.token);
            }
            standing.token = number(standing.token);
        }
        if how == GRANTED {
            standing.since = head.time;
        }
        if how != AS_WRITTEN {
            standing.deadline = standing.deadline.map(|left| head.time + left);
        }
        if let Some(alive) = &head.alive {
            // The store ends leases, and its times are only to be shown: another's clock made them.
            let lives = alive.contains(&standing.id);
            let shown = standing.deadline;
            standing.deadline = shown.map(|shown| if lives { shown.max(now + 1) } else { now });
            standing.since = standing.since.min(now);
            if standing.extra.max_hold_ms() > 0 {
                let earliest = (now + 1).saturating_sub(standing.extra.max_hold_ms());
                standing.since = standing.since.max(earliest).min(now);
            }
            standing.waited_ms = standing.waited_ms.min(standing.since);
        }
        if standing.extra.max_hold_ms() > 0 {
            let longest = standing.since + standing.extra.max_hold_ms();
            standing.deadline = Some(standing.deadline.map_or(longest, |end| end.min(longest)));
        }
        holders.standings.push(standing);
    }
    for _ in 0..from.u32()? {
        let id = RequestId::new(std::str::from_utf8(from.bytes()?).ok()?);
        let cause = match from.take(1)? {
            [1] => Cause::Superseded,
            [2] => Cause::Revoked,
            _ => Cause::Expired,
        };
        let detail = std::str::from_utf8(from.bytes()?).ok()?;
        let detail = (!detail.is_empty()).then(|| detail.into());
        let until = u64::from_le_bytes(from.take(8)?.try_into().ok()?);
        holders.notes.push(Note { id, cause, detail, until });
    }
    from.0.is_empty().then_some(holders)
}

/// A waiter: when it came, how long it waits and lives, and its seq are the store's to say.
pub(super) fn decode_waiter(waiter: &Waiter, live_ms: u64) -> Option<Standing> {
    let mut standing = Standing::decode(&waiter.bytes).ok()?;
    let end = waiter.time + standing.wait_ms;
    (standing.seq, standing.since) = (waiter.seq, waiter.time);
    standing.deadline = Some(end.min(waiter.alive_until));
    let grace = Some((live_ms, waiter.alive_until));
    standing.wait = Some(StandingWait { asked: waiter.time, end, grace });
    Some(standing)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        self.take(length)
    }
}
