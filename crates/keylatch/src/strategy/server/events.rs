//! A connection of its own for events: `SUBSCRIBE keylatch:events`. It comes back after it is lost.

use keylatch_table::{Mode, RequestId};
use keylatch_wire::{Value, read_value};
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};

use super::encode;
use super::way::{BACK_OFF, Stream, Way};
use crate::error::ListError;
use crate::event::{BEHIND, Event, Subject};
use crate::guard::Lost;

type Subscribed = oneshot::Sender<Result<(), ListError>>;

/// Subscribed when it resolves, so nothing that happens later is missed.
pub(super) async fn watch(mut way: Way) -> Result<mpsc::Receiver<Event>, ListError> {
    let (events, receiver) = mpsc::channel(BEHIND);
    let stream = way.connect().await.map_err(|error| ListError::Unreachable(error.to_string()))?;
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
            None => way.connect().await.ok(),
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
            if served {
                back_off = least;
            } else if again {
                tracing::debug!("the events of the server are not heard");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(back_off) => back_off = (back_off * 2).min(most),
            () = events.closed() => return,
        }
    }
}

/// Until the connection is lost. Whether it was subscribed.
async fn serve(
    mut stream: Stream,
    events: &mpsc::Sender<Event>,
    subscribed: &mut Option<Subscribed>,
) -> bool {
    let mut input = Vec::new();
    let mut heard = false;
    let (mut reader, mut writer) = stream.split();
    let subscribe = encode(&["SUBSCRIBE", "keylatch:events"]);
    if writer.write_all(&subscribe).await.is_err() || writer.flush().await.is_err() {
        return false;
    }
    loop {
        let mut taken = 0;
        while let Ok(Some((value, count))) = read_value(&input[taken..]) {
            taken += count;
            if let Value::Error(text) = value {
                if let Some(subscribed) = subscribed.take() {
                    drop(subscribed.send(Err(ListError::Refused(text))));
                }
                return heard;
            }
            let (Value::Array(words) | Value::Push(words)) = value else { continue };
            let told = match words.first() {
                Some(first) if first.is("subscribe") => {
                    heard = true;
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
                    words.get(2).and_then(Value::text).and_then(read)
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
fn read(text: &str) -> Option<Event> {
    let event: Json = serde_json::from_str(text).ok()?;
    let id = RequestId::new(event["id"].as_str()?);
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
                super::read::cause_of(event["cause"].as_str()?)?,
                event["reason"].as_str().map(Into::into),
            ),
            subject: subject(&event)?,
        },
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
