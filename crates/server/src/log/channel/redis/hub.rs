//! A node at a Redis: it is subscribed to its own name, publishes to those of others, and hands what it hears to
//! the session that it belongs to. Nothing here waits for anything but Redis.
//!
//! When the connection is lost, so may be what was on its way; so every session ends, and links are made anew.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use super::frame::{Frame, Kind};
use super::talk::{INBOX, Talk};
use crate::log::channel::hello::{self, HELLO_BYTES};
use crate::log::channel::{Answers, Hello, Refusal};

/// Sessions that others may have with us: some four a member, and what comes and goes. Beyond that the one ends
/// that was not used for longest.
const SESSIONS: usize = 256;
/// How long a connection, and then each call, may take.
const WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked whether what is published arrives, and how long it may not.
const BEAT: Duration = Duration::from_secs(1);
const SILENT: Duration = Duration::from_secs(5);
/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(250);

/// Dropped, it says and hears nothing more.
pub(super) struct Hub {
    pub(super) shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

pub(super) struct Shared {
    client: Client,
    /// What all names begin with.
    channel: String,
    /// The name of this node.
    pub(super) own: String,
    /// There while there is a connection, and we hear what is said to us.
    publisher: watch::Sender<Option<MultiplexedConnection>>,
    /// Why there is none.
    why: Mutex<String>,
    /// Sessions that were opened here.
    calls: Mutex<HashMap<u128, mpsc::Sender<Frame>>>,
    /// Sessions that others have opened.
    attended: Mutex<HashMap<u128, Attended>>,
    /// Who answers, while somebody does.
    answers: Mutex<Option<Arc<dyn Answers>>>,
}

struct Attended {
    inbox: mpsc::Sender<Frame>,
    used: Instant,
    task: AbortHandle,
}

impl Drop for Attended {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Hub {
    pub(super) fn new(client: Client, channel: String, own: String) -> Hub {
        let shared = Shared {
            client,
            channel,
            own,
            publisher: watch::Sender::new(None),
            why: Mutex::new("not connected yet".into()),
            calls: Mutex::default(),
            attended: Mutex::default(),
            answers: Mutex::default(),
        };
        Hub { shared: Arc::new(shared), task: Mutex::default() }
    }

    /// Connects, if that was not begun: on the runtime that it is first needed on.
    pub(super) fn begin(&self) {
        let run = || tokio::spawn(Arc::clone(&self.shared).run());
        self.task.lock().get_or_insert_with(run);
    }

    pub(super) fn answer_by(&self, answers: Option<Arc<dyn Answers>>) {
        if answers.is_none() {
            self.shared.attended.lock().clear();
        }
        *self.shared.answers.lock() = answers;
    }

    /// A new session with whoever has this name, once there is a connection.
    pub(super) async fn open(&self, to: &str) -> io::Result<Talk> {
        self.begin();
        let mut publisher = self.shared.publisher.subscribe();
        let there = publisher.wait_for(Option::is_some).await;
        drop(there.map_err(|_| io::Error::from(io::ErrorKind::NotConnected))?);
        let (tell, inbox) = mpsc::channel(INBOX);
        let session = rand::random();
        self.shared.calls.lock().insert(session, tell);
        Ok(Talk { shared: Arc::clone(&self.shared), to: to.into(), session, inbox })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
        // They keep what is shared, which keeps them.
        self.shared.attended.lock().clear();
    }
}

impl Shared {
    /// Says something to whoever has this name. An error if nobody hears it; that they do is not said.
    pub(super) async fn publish(&self, to: &str, frame: &Frame) -> io::Result<()> {
        let publisher = self.publisher.borrow().clone();
        let mut publisher = publisher.ok_or_else(|| self.not_connected())?;
        let mut command = redis::cmd("PUBLISH");
        command.arg(self.name_of(to)).arg(frame.to_bytes());
        let heard: i64 = command.query_async(&mut publisher).await.map_err(io::Error::other)?;
        if heard == 0 {
            let text = format!("no node is called {to} there");
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
        }
        Ok(())
    }

    /// What is said of it if nothing came of something in time.
    pub(super) fn late(&self) -> io::Error {
        match self.publisher.borrow().is_some() {
            true => io::ErrorKind::TimedOut.into(),
            false => self.not_connected(),
        }
    }

    fn not_connected(&self) -> io::Error {
        let text = format!("there is no connection to Redis: {}", self.why.lock());
        io::Error::new(io::ErrorKind::NotConnected, text)
    }

    pub(super) fn hang_up(&self, session: u128) {
        self.calls.lock().remove(&session);
    }

    fn name_of(&self, node: &str) -> String {
        format!("{}:{node}", self.channel)
    }

    async fn run(self: Arc<Self>) {
        let mut was_there = true;
        loop {
            let began = Instant::now();
            let error = self.listen().await;
            if self.publisher.send_replace(None).is_some() || was_there {
                tracing::error!(%error, "members are not reached: there is no connection to Redis");
            }
            *self.why.lock() = error.to_string();
            was_there = began.elapsed() > SILENT;
            self.calls.lock().clear();
            self.attended.lock().clear();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Hears what is said until the connection is lost, and says why.
    async fn listen(self: &Arc<Self>) -> RedisError {
        let silent = || RedisError::from((redis::ErrorKind::Io, "Redis does not answer"));
        let connecting = async {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(WITHIN))
                .set_response_timeout(Some(WITHIN));
            let mut publisher =
                self.client.get_multiplexed_async_connection_with_config(&config).await?;
            let mut messages = self.client.get_async_pubsub().await?;
            let own = self.name_of(&self.own);
            messages.subscribe(&own).await?;
            let asked = redis::cmd("PUBSUB").arg("NUMSUB").arg(&own).to_owned();
            let (_, there): (String, i64) = asked.query_async(&mut publisher).await?;
            Ok((publisher, messages.split(), there))
        };
        let connected = tokio::time::timeout(WITHIN, connecting).await;
        // The subscription lasts as long as both of its ends are there.
        let (publisher, (_sink, mut messages), there) =
            match connected.unwrap_or_else(|_| Err(silent())) {
                Ok(connected) => connected,
                Err(error) => return error,
            };
        tracing::info!(node = self.own, "other members are reached over Redis");
        if there > 1 {
            tracing::error!(
                node = self.own,
                "somebody else has this name too: give each node its own"
            );
        }
        self.publisher.send_replace(Some(publisher));
        let (mut heard, mut beat) = (Instant::now(), tokio::time::interval(BEAT));
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(message) => {
                        heard = Instant::now();
                        self.hear(message.get_payload_bytes());
                    }
                    None => return (redis::ErrorKind::Io, "the connection was lost").into(),
                },
                _ = beat.tick() => {
                    if heard.elapsed() > SILENT {
                        return silent();
                    }
                    self.say(self.own.clone(), Kind::Echo, 0);
                }
            }
        }
    }

    /// Something short, for which nobody waits.
    fn say(self: &Arc<Self>, to: String, kind: Kind, session: u128) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let from = shared.own.clone();
            let frame =
                Frame { kind, session, number: 0, piece: 0, last: true, from, bytes: Vec::new() };
            if let Err(error) = shared.publish(&to, &frame).await {
                tracing::debug!(to, %error, "not said");
            }
        });
    }

    fn hear(self: &Arc<Self>, bytes: &[u8]) {
        let Some(frame) = Frame::from_bytes(bytes) else {
            return tracing::debug!("something else was published here, or another version's");
        };
        let session = frame.session;
        match frame.kind {
            Kind::Echo => {}
            Kind::Hello => self.greet(frame),
            Kind::Gone => drop(self.calls.lock().remove(&session)),
            kind if kind.is_for_caller() => {
                let mut calls = self.calls.lock();
                // One that is full gets more than was agreed on.
                if calls.get(&session).is_some_and(|inbox| inbox.try_send(frame).is_err()) {
                    calls.remove(&session);
                }
            }
            kind => {
                let mut attended = self.attended.lock();
                let from = frame.from.clone();
                let taken = attended.get_mut(&session).is_some_and(|attended| {
                    attended.used = Instant::now();
                    attended.inbox.try_send(frame).is_ok()
                });
                if !taken {
                    attended.remove(&session);
                    drop(attended);
                    if kind == Kind::Request {
                        self.say(from, Kind::Gone, session);
                    }
                }
            }
        }
    }

    /// Somebody opens a session.
    fn greet(self: &Arc<Self>, frame: Frame) {
        let (Some(answers), Ok(bytes)) =
            (self.answers.lock().clone(), <[u8; HELLO_BYTES]>::try_from(&frame.bytes[..]))
        else {
            return;
        };
        let hello = match Hello::from_bytes(&bytes) {
            // A stranger is not told what this is.
            Err(Refusal::Stranger) => return,
            other => other,
        };
        let mut attended = self.attended.lock();
        if attended.contains_key(&frame.session) {
            return;
        }
        if attended.len() >= SESSIONS {
            let oldest = attended.iter().min_by_key(|(_, it)| it.used).map(|(session, _)| *session);
            attended.remove(&oldest.expect("there are some"));
        }
        let (tell, inbox) = mpsc::channel(INBOX);
        let session = frame.session;
        let talk = Talk { shared: Arc::clone(self), to: frame.from, session, inbox };
        let task = tokio::spawn(attend(talk, hello, answers)).abort_handle();
        attended.insert(session, Attended { inbox: tell, used: Instant::now(), task });
    }
}

/// Answers one session until it ends. Each request has the next number, so it is answered once.
async fn attend(mut talk: Talk, hello: Result<Hello, Refusal>, answers: Arc<dyn Answers>) {
    let answer = hello.and_then(|hello| answers.welcome(&hello));
    let from = hello.map_or(0, |hello| hello.from);
    let attending = async {
        talk.send(Kind::Welcome, 0, &hello::answer_to_bytes(answer)).await?;
        if let Err(refusal) = answer {
            tracing::warn!(%refusal, from, "a link was refused: this is what its node is told");
            return Ok(());
        }
        for number in 1.. {
            let request = talk.receive(Kind::Request, number).await?;
            let reply = Arc::clone(&answers).answer(from, request).await;
            talk.send(Kind::Reply, number, &reply).await?;
        }
        Ok::<_, io::Error>(())
    };
    if let Err(error) = attending.await {
        tracing::debug!(%error, "a link of a member has ended");
    }
    talk.shared.attended.lock().remove(&talk.session);
}
