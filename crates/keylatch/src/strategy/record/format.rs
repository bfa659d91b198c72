//! Heads and waiters as bytes. What a write grants has that write's number as its token and counts
//! from that write's time, and neither is known beforehand: so it is written relative to them.

use keylatch_table::{Cause, RequestId, Standing, StandingWait};

use super::store::{Head, Waiter};
use crate::guard::Lost;

/// Tokens and seqs above this are not known yet: they are the number of the write, and so many more.
pub(super) const FRESH: u64 = 1 << 60;

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

fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

pub(super) fn encode(holders: &Holders, now: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&(holders.standings.len() as u32).to_le_bytes());
    for standing in &holders.standings {
        let mut standing = standing.clone();
        // Granted by this very write.
        if standing.token > FRESH {
            let left = standing.deadline.map(|deadline| deadline.saturating_sub(now));
            (standing.since, standing.deadline) = (0, left);
        }
        bytes(&mut out, &standing.encode());
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
    out
}

pub(super) fn decode(head: &Head) -> Option<Holders> {
    let mut from = Reader(&head.bytes);
    if from.take(1)? != [VERSION] {
        return None;
    }
    let mut holders = Holders::default();
    for _ in 0..from.u32()? {
        let mut standing = Standing::decode(from.bytes()?).ok()?;
        if standing.token > FRESH {
            let number = |fresh: u64| head.version + (fresh - FRESH - 1);
            if standing.seq > FRESH {
                standing.seq = number(standing.token);
            }
            standing.token = number(standing.token);
            standing.since = head.time;
            standing.deadline = standing.deadline.map(|left| head.time + left);
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
