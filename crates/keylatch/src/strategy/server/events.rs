//! A connection of its own for events: `SUBSCRIBE keylatch:events`. It comes back after it is lost.

use keylatch_table::{Mode, RequestId, TaskState};
use keylatch_wire::{Value, read_value};
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use super::way::{BACK_OFF, Stream, Way};
use super::{encode, read};
use crate::error::{ConnectError, ListError};
use crate::event::{BEHIND, ClaimEvent, Event, Subject, TaskEvent};
use crate::guard::Lost;

type Subscribed = oneshot::Sender<Result<(), ListError>>;

/// Subscribed when it resolves, so nothing that happens later is missed.
pub(super) async fn watch(mut way: Way) -> Result<mpsc::Receiver<Event>, ListError> {
    let (events, receiver) = mpsc::channel(BEHIND);
    let stream = way.connect().await.map_err(|error| match error {
        ConnectError::Denied(reason) => ListError::Denied(reason),
        other => ListError::Unreachable(other.to_string()),
    })?;
    let (subscribed, answer) = oneshot::channel();
    tokio::spawn(run(way, stream, events, subscribed));
    let ended = || Err(ListError::Unreachable("the connection was closed".into()));
    answer.await.unwrap_or_else(|_| ended())?;
    Ok(receiver)
}

async fn run(mut way: Way, first: Stream, events: mpsc::Sender<Event>, subscribed: Subscribed) {
    let (least, most) = BACK_OFF;
    let (mut subscribed, mut back_off) = (Some(subscribed), least);
    let mut stream = Some(first);
    loop {
        let connected = match stream.take() {
            Some(stream) => Some(stream),
            None => match way.connect().await {
                Ok(stream) => Some(stream),
                // Whoever watches is told by the end of the events.
                Err(ConnectError::Denied(reason)) => return not_any_more(&reason),
                Err(_) => None,
            },
        };
        if let Some(stream) = connected {
            let again = subscribed.is_none();
            let served = tokio::select! {
                served = serve(stream, &events, &mut subscribed) => served,
                () = events.closed() => return,
            };
            // Without an answer the first time, whoever asked is told by the dropped sender.
            if subscribed.take().is_some() {
                return;
            }
            match served {
                Served::Subscribed => back_off = least,
                Served::Denied(reason) => return not_any_more(&reason),
                Served::Nothing if again => {
                    tracing::debug!("the events of the server are not heard");
                }
                Served::Nothing => {}
            }
        }
        tokio::select! {
            () = tokio::time::sleep(back_off) => back_off = (back_off * 2).min(most),
            () = events.closed() => return,
        }
    }
}

/// How a connection went.
enum Served {
    Subscribed,
    Nothing,
    /// It may not be subscribed.
    Denied(String),
}

fn not_any_more(reason: &str) {
    tracing::warn!(reason, "the events of the server may not be heard any more");
}

/// Until the connection is lost.
async fn serve(
    mut stream: Stream,
    events: &mpsc::Sender<Event>,
    subscribed: &mut Option<Subscribed>,
) -> Served {
    let mut input = Vec::new();
    let mut heard = Served::Nothing;
    let (mut reader, mut writer) = stream.split();
    let subscribe = encode(&["SUBSCRIBE", "keylatch:events"]);
    if writer.write_all(&subscribe).await.is_err() || writer.flush().await.is_err() {
        return heard;
    }
    loop {
        let mut taken = 0;
        while let Ok(Some((value, count))) = read_value(&input[taken..]) {
            taken += count;
            if let Value::Error(text) = value {
                let denied = read::denied(&text);
                if let Some(subscribed) = subscribed.take() {
                    drop(subscribed.send(Err(read::refused(text))));
                }
                return denied.map_or(heard, Served::Denied);
            }
            let (Value::Array(words) | Value::Push(words)) = value else { continue };
            let told = match words.first() {
                Some(first) if first.is("subscribe") => {
                    heard = Served::Subscribed;
                    // What happened while nobody listened is not told again.
                    match subscribed.take() {
                        Some(subscribed) => {
                            drop(subscribed.send(Ok(())));
                            None
                        }
                        None => Some(Event::Missed),
                    }
                }
                Some(first) if first.is("message") => {
                    words.get(2).and_then(Value::text).and_then(event)
                }
                _ => None,
            };
            if let Some(event) = told
                && events.send(event).await.is_err()
            {
                return heard;
            }
        }
        input.drain(..taken);
        match reader.read_buf(&mut input).await {
            Ok(count) if count > 0 => {}
            _ => return heard,
        }
    }
}

/// `None` for an event that is not known here.
fn event(text: &str) -> Option<Event> {
    let event: Json = serde_json::from_str(text).ok()?;
    let id = RequestId::new(event["id"].as_str()?);
    if let Some(pool) = event["pool"].as_str() {
        return Some(Event::Task(TaskEvent { id, pool: pool.into(), what: of_claim(&event)? }));
    }
    Some(match event["event"].as_str()? {
        "granted" => Event::Granted {
            id,
            token: event["token"].as_u64()?,
            lease_ms: event["lease_ms"].as_u64(),
            waited_ms: event["waited_ms"].as_u64().unwrap_or(0),
        },
        "timeout" => Event::TimedOut(id, subject(&event)?),
        "deadlock" => Event::Deadlocked(id, subject(&event)?),
        "cancelled" => Event::Cancelled(id, subject(&event)?),
        "lost" => Event::Lost {
            id,
            token: event["token"].as_u64()?,
            lost: Lost::from_cause(
                read::cause_of(event["cause"].as_str()?)?,
                event["reason"].as_str().map(Into::into),
            ),
            subject: subject(&event)?,
        },
        _ => return None,
    })
}

fn of_claim(event: &Json) -> Option<ClaimEvent> {
    let key = || Some(event["key"].as_str()?.into());
    Some(match event["event"].as_str()? {
        "claimed" => ClaimEvent::Claimed {
            key: key()?,
            token: event["token"].as_u64()?,
            attempts: event["attempts"].as_u64()?.try_into().ok()?,
            lease_ms: event["lease_ms"].as_u64(),
            waited_ms: event["waited_ms"].as_u64().unwrap_or(0),
        },
        "claim_timeout" => ClaimEvent::TimedOut,
        "claim_cancelled" => ClaimEvent::Cancelled,
        "claim_refused" => ClaimEvent::Refused(TaskState::from_word(event["state"].as_str()?)?),
        "lapsed" => ClaimEvent::Lapsed { key: key()?, token: event["token"].as_u64()? },
        _ => return None,
    })
}

fn subject(event: &Json) -> Option<Subject> {
    let request = &event["request"];
    let resource = |json: &Json| {
        Some((json["resource"].as_str()?.into(), Mode::from_letter(json["mode"].as_str()?)?))
    };
    Some(Subject {
        seq: request["seq"].as_u64()?,
        owner: request["owner"].as_str()?.into(),
        resources: request["resources"].as_array()?.iter().map(resource).collect::<Option<_>>()?,
    })
}
