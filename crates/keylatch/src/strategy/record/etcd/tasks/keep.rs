//! A task as etcd keeps it, and what is told of one.

use std::sync::Arc;

use keylatch_table::{TaskState, Text};

use super::super::super::tasks::store::{Change, Put, Stamp, TaskRecord, Told};
use super::super::keys::Base;
use super::super::wire::KeyValue;

/// The revision of the write itself, which is not known while it is written.
const THIS: u64 = 0;
const NEVER: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) record: TaskRecord,
    /// In which it was last written.
    pub(super) revision: i64,
    /// Empty, if it was never claimed.
    pub(super) claim_id: String,
}

impl Kept {
    /// As a change makes it.
    pub(super) fn new(
        change: &Change,
        put: &Put,
        before: Option<&Kept>,
        now: u64,
        ready: Option<u64>,
    ) -> Kept {
        let stamp = Stamp { version: THIS, time: now };
        let record = TaskRecord {
            pool: change.pool.clone(),
            key: change.key.clone(),
            last: stamp,
            written: stamp,
            number: 0,
            state: put.state,
            priority: put.priority,
            ready,
            alive: None,
            bytes: Arc::clone(&put.bytes),
            claim: Arc::clone(&put.claim),
        };
        let claim_id = before.map(|before| before.claim_id.clone()).unwrap_or_default();
        Kept { record, revision: 0, claim_id }
    }

    pub(super) fn value(&self) -> Vec<u8> {
        let TaskRecord { last, written, state, priority, ready, bytes, claim, .. } = &self.record;
        let mut value = Vec::with_capacity(64 + bytes.len() + claim.len());
        for number in [last.time, written.version, written.time, ready.unwrap_or(NEVER)] {
            value.extend(number.to_le_bytes());
        }
        value.extend(priority.to_le_bytes());
        value.push(match state {
            TaskState::Free => 0,
            TaskState::Claimed => 1,
            TaskState::Done => 2,
            TaskState::Failed => 3,
        });
        for part in [self.claim_id.as_bytes(), claim] {
            value.extend((part.len() as u32).to_le_bytes());
            value.extend(part);
        }
        value.extend(&**bytes);
        value
    }

    pub(super) fn parse(base: Base, pool: Text, key: Text, kv: &KeyValue) -> Option<Kept> {
        let mut rest = &kv.value[..];
        let mut number = || {
            let (number, behind) = rest.split_first_chunk::<8>()?;
            rest = behind;
            Some(u64::from_le_bytes(*number))
        };
        let (time, wrote, wrote_time, ready) = (number()?, number()?, number()?, number()?);
        let (priority, behind) = rest.split_first_chunk::<4>()?;
        let (state, mut behind) = behind.split_first()?;
        let mut part = || {
            let (length, after) = behind.split_first_chunk::<4>()?;
            let (part, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            behind = after;
            Some(part)
        };
        let (claim_id, claim) = (part()?, part()?);
        let version = base.number(kv.mod_revision);
        let record = TaskRecord {
            pool,
            key,
            last: Stamp { version, time },
            written: Stamp {
                version: if wrote == THIS { version } else { wrote },
                time: wrote_time,
            },
            number: base.number(kv.create_revision),
            state: match state {
                0 => TaskState::Free,
                1 => TaskState::Claimed,
                2 => TaskState::Done,
                3 => TaskState::Failed,
                _ => return None,
            },
            priority: i32::from_le_bytes(*priority),
            ready: (ready != NEVER).then_some(ready),
            alive: None,
            bytes: behind.into(),
            claim: claim.into(),
        };
        let claim_id = String::from_utf8(claim_id.to_vec()).ok()?;
        Some(Kept { record, revision: kv.mod_revision, claim_id })
    }
}

/// In how long it is due, and which one.
pub(in super::super) fn news(pool: &str, key: &str, due_ms: Option<u64>) -> Vec<u8> {
    let due = due_ms.map_or("never".into(), |ms| ms.to_string());
    format!("task {due} {} {pool}{key}", pool.len()).into_bytes()
}

pub(in super::super) fn hear(value: &[u8]) -> Option<Told> {
    let text = std::str::from_utf8(value).ok()?.strip_prefix("task ")?;
    let (due, rest) = text.split_once(' ')?;
    let (length, rest) = rest.split_once(' ')?;
    let (pool, key) = rest.split_at_checked(length.parse().ok()?)?;
    let due_ms = if due == "never" { None } else { Some(due.parse().ok()?) };
    Some(Told::Changed { pool: pool.into(), key: key.into(), due_ms })
}
