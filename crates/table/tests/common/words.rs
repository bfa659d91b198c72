//! Answers and events in words. Every value that the table says is in them, so comparing words
//! compares everything.

use keylatch_table::{
    About, Blocker, Cause, Claimed, Deadlock, Event, Grant, Loss, Reply, State, TaskEvent,
    TaskReply, TaskState,
};

pub(crate) fn reply_words(reply: &Reply) -> String {
    match reply {
        Reply::Granted(grant) => format!("granted {}", grant_words(grant)),
        Reply::GrantedEach(grants) => {
            let grants: Vec<String> = grants.iter().map(grant_words).collect();
            format!("granted each [{}]", grants.join("; "))
        }
        Reply::Busy(blocker) => format!("busy: {}", blocker_words(blocker)),
        Reply::Waiting(blocker) => format!("waiting: {}", blocker_words(blocker)),
        Reply::Deadlock(deadlock) => format!("deadlock {}", deadlock_words(deadlock)),
        Reply::Ended(cause) => format!("ended {}", cause_word(*cause)),
        Reply::Released => "released".into(),
        Reply::NotHeld => "not held".into(),
        Reply::Cancelled(done) => format!("cancelled {done}"),
        Reply::Renewed(left) => format!("renewed {}", length(*left)),
        Reply::Promoted(grant) => format!("promoted {}", grant_words(grant)),
        Reply::Lost(None) => "lost".into(),
        Reply::Lost(Some(Loss { cause, by: None })) => format!("lost {}", cause_word(*cause)),
        Reply::Lost(Some(Loss { cause, by: Some(by) })) => {
            format!("lost {} by {by}", cause_word(*cause))
        }
        Reply::Revoked(done) => format!("revoked {done}"),
        Reply::Keyed(count) => {
            format!("matched {} other {} absent {}", count.matched, count.other, count.absent)
        }
        Reply::Task(reply) => task_words(reply),
        Reply::Done => "done".into(),
        Reply::Error(error) => format!("error {error:?}"),
    }
}

pub(crate) fn event_words(event: &Event) -> String {
    match event {
        Event::Granted { id, grant } => format!("granted {id} {}", grant_words(grant)),
        Event::TimedOut { id, blocker, about } => {
            format!("timed out {id} {}: {}", about_words(about), blocker_words(blocker))
        }
        Event::Deadlocked { id, deadlock, about } => {
            format!("deadlocked {id} {} {}", about_words(about), deadlock_words(deadlock))
        }
        Event::Withdrawn { id, about } => format!("withdrawn {id} {}", about_words(about)),
        Event::Lost { id, token, cause, reason, about } => {
            let reason = reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
            let cause = cause_word(*cause);
            format!("lost {id} token {token} {cause}{reason} {}", about_words(about))
        }
        Event::Task(event) => task_event_words(event),
    }
}

fn task_words(reply: &TaskReply) -> String {
    match reply {
        TaskReply::Created(version) => format!("created {version}"),
        TaskReply::Exists => "exists".into(),
        TaskReply::Claimed(claimed) => format!("claimed {}", claimed_words(claimed)),
        TaskReply::Nothing => "nothing".into(),
        TaskReply::Waiting => "waiting".into(),
        TaskReply::Refused(state) => format!("refused {}", state_word(*state)),
        TaskReply::Updated { version, lease_ms } => {
            format!("updated {version} lease {}", length(*lease_ms))
        }
        TaskReply::Finished(version) => format!("finished {version}"),
        TaskReply::PutBack { version, state, attempts } => {
            format!("put back {version} {} attempts {attempts}", state_word(*state))
        }
        TaskReply::Deleted => "deleted".into(),
        TaskReply::Stale(version) => format!("stale {version}"),
        TaskReply::NotFound => "not found".into(),
        TaskReply::Retried(count) => format!("retried {count}"),
        TaskReply::Cancelled(done) => format!("cancelled {done}"),
        TaskReply::Ended => "ended".into(),
        TaskReply::Error(error) => format!("error {error:?}"),
    }
}

fn task_event_words(event: &TaskEvent) -> String {
    match event {
        TaskEvent::Claimed(id, pool, claimed) => {
            format!("{pool}: claimed by {id} {}", claimed_words(claimed))
        }
        TaskEvent::TimedOut(id, pool) => format!("{pool}: timed out {id}"),
        TaskEvent::Refused(id, pool, state) => {
            format!("{pool}: refused {id} {}", state_word(*state))
        }
        TaskEvent::Withdrawn(id, pool) => format!("{pool}: withdrawn {id}"),
        TaskEvent::Lapsed { id, pool, key, token } => {
            format!("{pool}: lapsed {id} {key} token {token}")
        }
    }
}

fn grant_words(grant: &Grant) -> String {
    format!("token {} lease {} waited {}", grant.token, length(grant.lease_ms), grant.waited_ms)
}

fn blocker_words(blocker: &Blocker) -> String {
    let state = match blocker.state {
        State::Held => "held",
        State::Waiting => "waiting",
    };
    format!(
        "{} {} {state} token {} since {} left {}",
        blocker.owner,
        blocker.mode.letter(),
        blocker.token,
        blocker.held_ms,
        length(blocker.lease_ms)
    )
}

fn deadlock_words(deadlock: &Deadlock) -> String {
    format!("{}: {}", deadlock.cycle.join(">"), blocker_words(&deadlock.blocker))
}

fn about_words(about: &About) -> String {
    let part = |part: &keylatch_table::Part| format!("{} {}", part.mode.letter(), part.resource);
    let parts: Vec<String> = about.parts.iter().map(part).collect();
    let principal = about.principal.as_ref().map_or(String::new(), |who| format!(" for {who}"));
    format!("[{} {}{principal}: {}]", about.seq, about.owner, parts.join(" & "))
}

fn claimed_words(claimed: &Claimed) -> String {
    let Claimed { key, body, version, token, attempts, lease_ms, waited_ms } = claimed;
    let lease = length(*lease_ms);
    let body = body.as_ref().map_or(String::new(), |body| {
        let kind = if body.json { "json" } else { "bytes" };
        format!(" {kind} {}", String::from_utf8_lossy(&body.bytes))
    });
    format!(
        "{key} version {version} token {token} attempts {attempts} lease {lease} waited {waited_ms}{body}"
    )
}

pub(crate) fn state_word(state: TaskState) -> &'static str {
    match state {
        TaskState::Free => "free",
        TaskState::Claimed => "claimed",
        TaskState::Done => "done",
        TaskState::Failed => "failed",
    }
}

fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Released => "released",
        Cause::Expired => "expired",
        Cause::Superseded => "superseded",
        Cause::Revoked => "revoked",
    }
}

fn length(ms: Option<u64>) -> String {
    ms.map_or("none".into(), |ms| ms.to_string())
}
