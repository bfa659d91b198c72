//! `keylatch watch`: what happens, as it happens.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use keylatch::{ClaimEvent, Event, Subject, TaskEvent};
use serde_json::{Value, json};

use crate::failure::cause;
use crate::place::{Place, block_on};
use crate::time;

const EXAMPLES: &str = "\
Examples:
  keylatch watch
  keylatch watch -o json | jq -r 'select(.event == \"lost\") | .request.owner'

Events: granted (after a wait), timeout, deadlock, cancelled, lost; of tasks claimed (after a wait),
claim_timeout, claim_cancelled, claim_refused, lapsed; and missed, if the connection was away or the
reader too slow. What a request is told at once (a grant without a wait, a release) is
not among them.";

/// Show what happens to those who wait and to those who lose their locks.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) place: Place,
}

impl Watch {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let locks = self.place.connect().await?;
            let mut watch = locks.watch().await?;
            while let Some(event) = watch.next().await {
                self.place.print(&json(&event), text(&event))?;
            }
            bail!("there are no more events");
        })
    }
}

fn text(event: &Event) -> String {
    match event {
        Event::Granted { token, lease_ms, waited_ms, .. } => {
            let lease = lease_ms
                .map_or("no lease".into(), |lease| format!("a lease of {}", time::show(lease)));
            format!("granted    token {token} with {lease}, waited {}", time::show(*waited_ms))
        }
        Event::TimedOut(_, subject) => format!("timeout    {}", about(subject)),
        Event::Deadlocked(_, subject) => format!("deadlock   {}", about(subject)),
        Event::Cancelled(_, subject) => format!("cancelled  {}", about(subject)),
        Event::Lost { token, lost, subject, .. } => {
            let (cause, reason) = cause(lost);
            let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
            format!("lost       {}: token {token} {cause}{reason}", about(subject))
        }
        Event::Task(event) => task_text(event),
        Event::Missed => "missed     some events were not heard".into(),
    }
}

fn task_text(event: &TaskEvent) -> String {
    let pool = &event.pool;
    match &event.what {
        ClaimEvent::Claimed { key, token, waited_ms, .. } => {
            format!("claimed    {pool}: {key}, token {token}, waited {}", time::show(*waited_ms))
        }
        ClaimEvent::TimedOut => format!("timeout    {pool}: nothing became free"),
        ClaimEvent::Cancelled => format!("cancelled  {pool}: a claim that waited"),
        ClaimEvent::Refused(state) => format!("refused    {pool}: the task is {}", state.word()),
        ClaimEvent::Lapsed { key, token } => format!("lapsed     {pool}: {key}, token {token}"),
    }
}

fn task_json(event: &TaskEvent) -> Value {
    let (kind, more) = match &event.what {
        ClaimEvent::Claimed { key, token, attempts, lease_ms, waited_ms } => (
            "claimed",
            json!({
                "key": &**key, "token": token, "attempts": attempts, "lease_ms": lease_ms,
                "waited_ms": waited_ms,
            }),
        ),
        ClaimEvent::TimedOut => ("claim_timeout", json!({})),
        ClaimEvent::Cancelled => ("claim_cancelled", json!({})),
        ClaimEvent::Refused(state) => ("claim_refused", json!({"state": state.word()})),
        ClaimEvent::Lapsed { key, token } => ("lapsed", json!({"key": &**key, "token": token})),
    };
    let mut json = json!({"event": kind, "id": event.id.to_string(), "pool": &*event.pool});
    for (name, value) in more.as_object().into_iter().flatten() {
        json[name] = value.clone();
    }
    json
}

fn about(subject: &Subject) -> String {
    let resources = subject.resources.iter();
    let resources = resources.map(|(resource, mode)| format!("{resource} ({})", mode.letter()));
    format!("{} of {}", resources.collect::<Vec<_>>().join(", "), subject.owner)
}

/// In the words of `SUBSCRIBE keylatch:events`.
fn json(event: &Event) -> Value {
    let request = |subject: &Subject| {
        let resources = subject.resources.iter();
        let resources = resources
            .map(|(resource, mode)| json!({"resource": &**resource, "mode": mode.letter()}));
        json!({
            "seq": subject.seq,
            "owner": &*subject.owner,
            "resources": resources.collect::<Vec<_>>(),
        })
    };
    let ended = |event, id: &keylatch::RequestId, subject| json!({"event": event, "id": id.to_string(), "request": request(subject)});
    match event {
        Event::Granted { id, token, lease_ms, waited_ms } => json!({
            "event": "granted", "id": id.to_string(), "token": token, "lease_ms": lease_ms,
            "waited_ms": waited_ms,
        }),
        Event::TimedOut(id, subject) => ended("timeout", id, subject),
        Event::Deadlocked(id, subject) => ended("deadlock", id, subject),
        Event::Cancelled(id, subject) => ended("cancelled", id, subject),
        Event::Lost { id, token, lost, subject } => {
            let (cause, reason) = cause(lost);
            json!({
                "event": "lost", "id": id.to_string(), "token": token, "cause": cause,
                "reason": reason, "request": request(subject),
            })
        }
        Event::Task(event) => task_json(event),
        Event::Missed => json!({"event": "missed"}),
    }
}
