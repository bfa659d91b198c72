//! Records as bytes. What a write makes has that write's version and counts from its time, and neither is
//! known beforehand: so it is written relative to them. The bytes of a record count from the last write that
//! was not a take, its claim from the last write at all, which made it or knew it.

use std::sync::Arc;

use keylatch_table::{ClaimStanding, TaskAnswer, TaskReply, TaskStanding, TaskState};

use super::super::format::FRESH;
use super::store::{Put, Ready, TaskRecord};

/// The claim that a take is to write.
pub(super) fn encode_claim(claim: &ClaimStanding) -> Arc<[u8]> {
    ClaimStanding { token: FRESH, at: FRESH, end: None, ..claim.clone() }.encode().into()
}

/// What is to be written so that a task stands like this, and what was answered to whoever wrote it.
pub(super) fn encode(
    before: Option<&TaskStanding>,
    after: &TaskStanding,
    answer: Option<TaskAnswer>,
    now: u64,
) -> Put {
    let relative = |time: u64| FRESH + (time - now);
    // One whose lease ran out was ready when that was. One that is put back is ready by that, also if it was claimed in the
    // millisecond in which it became ready and the two times look the same.
    let ready = after.ready >= now
        && before.is_none_or(|before| {
            let put_back = after.state == TaskState::Free && before.state != TaskState::Free;
            put_back || before.ready != after.ready
        });
    // The creation is remembered, and the last write.
    let created = before.into_iter().flat_map(|before| before.answers.iter());
    let created = created.filter(|answer| matches!(answer.reply, TaskReply::Created(_)));
    let standing = TaskStanding {
        created: if before.is_none() { relative(after.created) } else { after.created },
        ready: if ready { relative(after.ready) } else { after.ready },
        answers: created.cloned().chain(answer).collect(),
        claim: None,
        ..after.clone()
    };
    let claim = after.claim.as_ref();
    let claim_bytes = claim.map(|claim| ClaimStanding { end: None, ..claim.clone() }.encode());
    Put {
        state: after.state,
        priority: after.priority,
        ready: match after.state {
            TaskState::Free if ready => Ready::After(after.ready - now),
            TaskState::Free => Ready::At(after.ready),
            TaskState::Claimed => match claim.and_then(|claim| claim.end) {
                // Whoever writes a claimed task leases it anew.
                Some(end) => Ready::After(end.saturating_sub(now)),
                None => Ready::Never,
            },
            TaskState::Done | TaskState::Failed => Ready::Never,
        },
        bytes: standing.encode().into(),
        claim: claim_bytes.unwrap_or_default().into(),
    }
}

/// The task that a record is. Nothing, if it makes no sense.
pub(super) fn decode(record: &TaskRecord, now: u64) -> Option<TaskStanding> {
    let TaskRecord { pool, key, last, written, .. } = record;
    let mut standing = TaskStanding::decode(pool.clone(), key.clone(), &record.bytes).ok()?;
    let time = |time: u64| match time {
        FRESH.. => written.time + (time - FRESH),
        known => known,
    };
    standing.number = record.number;
    standing.version = last.version;
    (standing.state, standing.priority) = (record.state, record.priority);
    // Clocks of some stores are other people's, and only shown.
    standing.created = time(standing.created).min(now);
    standing.ready = time(standing.ready);
    for answer in &mut standing.answers {
        answer.reply = real(answer.reply.clone(), written.version);
    }
    if !record.claim.is_empty() {
        let mut claim = ClaimStanding::decode(&record.claim).ok()?;
        if claim.token == FRESH {
            (claim.token, claim.at) = (last.version, last.time);
        }
        claim.at = claim.at.min(now);
        standing.claim = Some(claim);
    }
    // Where the store ends leases, its times are only to be shown: another's clock made them.
    let ready = record.ready.map(|ready| match record.alive {
        Some(true) => ready.max(now + 1),
        Some(false) => ready.min(now),
        None => ready,
    });
    match (record.state, &mut standing.claim) {
        (TaskState::Free, _) => standing.ready = ready?,
        (TaskState::Claimed, claim) => claim.as_mut()?.end = ready,
        (TaskState::Done | TaskState::Failed, _) => {}
    }
    Some(standing)
}

/// The reply as it is to be given, if this was the version.
pub(super) fn real(reply: TaskReply, written: u64) -> TaskReply {
    let real = |version: u64| if version > FRESH { written } else { version };
    match reply {
        TaskReply::Created(version) => TaskReply::Created(real(version)),
        TaskReply::Updated { version, lease_ms } => {
            TaskReply::Updated { version: real(version), lease_ms }
        }
        TaskReply::Finished(version) => TaskReply::Finished(real(version)),
        TaskReply::PutBack { version, state, attempts } => {
            TaskReply::PutBack { version: real(version), state, attempts }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(state: TaskState, ready: u64) -> TaskStanding {
        TaskStanding {
            pool: "pool".into(),
            key: "a".into(),
            number: 1,
            body: None,
            state,
            version: 1,
            priority: 0,
            attempts: 0,
            attempts_most: None,
            created: 5,
            ready,
            error: None,
            claim: None,
            lapsed: false,
            answers: Vec::new(),
        }
    }

    #[test]
    fn a_task_that_is_put_back_stands_behind_those_that_were_free_meanwhile() {
        // What is known of it is as old as its claim, which may be of the millisecond in which it was made.
        let before = standing(TaskState::Claimed, 5);
        for (claimed, ready) in [(5, 5), (6, 6)] {
            let after = standing(TaskState::Free, ready);
            let put = encode(Some(&before), &after, None, claimed);
            assert_eq!(put.ready, Ready::After(0), "claimed at {claimed}");
        }
        // What only changes something else of a free one leaves it where it is.
        let free = standing(TaskState::Free, 5);
        assert_eq!(encode(Some(&free), &free, None, 5).ready, Ready::At(5));
    }
}
