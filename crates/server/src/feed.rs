//! Events for many: a thread of its own writes them as server-sent events, so that a hundred who
//! listen cost the locks nothing but the sending of a message. It is started for the first of them: with a second thread in a
//! process each call for a socket costs more.
//!
//! Whoever comes back with the id of the last event that it saw gets those behind it, if they are
//! still kept; if not, it is told that it has missed some (`event: missed`).

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use crate::transport::{Incoming, Transport};

/// Events that are kept for those who come back.
const KEPT: usize = 4_096;
/// Events on their way to the thread; beyond that they are missed, and it says so.
const ON_THEIR_WAY: usize = 16_384;
/// Proxies take a silent connection for a dead one.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long events are kept when nobody listens any more.
const LINGER: Duration = Duration::from_secs(300);
/// Bytes that may wait for one who does not read; beyond that it is cut off.
const UNREAD: usize = 4 << 20;

/// The way to those who listen.
#[derive(Default)]
pub(crate) struct Feed {
    /// None before somebody has listened.
    tell: Option<SyncSender<Message>>,
    /// Somebody listens, or did so a short while ago.
    listened_to: Arc<AtomicBool>,
    /// How often all who listen were sent away.
    dismissals: Arc<AtomicU64>,
    missed: bool,
}

enum Message {
    /// What happened: its kind and its JSON.
    Event(&'static str, String),
    Missed,
    Listener(Listener),
}

struct Listener {
    transport: Transport,
    out: VecDeque<u8>,
    from: Option<String>,
    /// Those that there were when it came; with the next one it is sent away.
    dismissals: u64,
}

impl Feed {
    /// Starts the thread; it ends when this is dropped.
    fn start(&self) -> io::Result<SyncSender<Message>> {
        let (tell, told) = mpsc::sync_channel(ON_THEIR_WAY);
        let (flag, dismissals) = (Arc::clone(&self.listened_to), Arc::clone(&self.dismissals));
        // So that nobody takes an id of an earlier life for one of this.
        let life = crate::clock::wall().as_micros() as u64;
        std::thread::Builder::new().name("events".into()).spawn(move || {
            Writer { told, flag, dismissals, life, ..Writer::new() }.run();
        })?;
        Ok(tell)
    }

    /// Whether it is worth making events.
    pub(crate) fn is_listened_to(&self) -> bool {
        self.listened_to.load(Ordering::Relaxed)
    }

    /// Never waits.
    pub(crate) fn tell(&mut self, kind: &'static str, json: String) {
        let Some(tell) = &self.tell else { return };
        if self.missed {
            self.missed = tell.try_send(Message::Missed).is_err();
        }
        self.missed |= tell.try_send(Message::Event(kind, json)).is_err();
    }

    /// Everyone who listens now is sent away, within a second. Clients of server-sent events come
    /// again by themselves, with the id of the last event that they saw.
    pub(crate) fn dismiss(&self) {
        self.dismissals.fetch_add(1, Ordering::Relaxed);
    }

    /// One more, who has not been sent these bytes yet. If there is no room it is simply closed.
    pub(crate) fn listen(&mut self, transport: Transport, out: &[u8], from: Option<String>) {
        let tell = match &self.tell {
            Some(tell) => tell,
            None => match self.start() {
                Ok(tell) => self.tell.insert(tell),
                Err(error) => {
                    return tracing::warn!(%error, "one who wanted to listen was turned away");
                }
            },
        };
        self.listened_to.store(true, Ordering::Relaxed);
        let out = out.iter().copied().collect();
        let dismissals = self.dismissals.load(Ordering::Relaxed);
        let listener = Listener { transport, out, from, dismissals };
        if let Err(TrySendError::Full(_)) = tell.try_send(Message::Listener(listener)) {
            tracing::warn!("too many events: one who wanted to listen was turned away");
        }
    }
}

struct Writer {
    told: Receiver<Message>,
    flag: Arc<AtomicBool>,
    dismissals: Arc<AtomicU64>,
    life: u64,
    listeners: Vec<Listener>,
    /// The last ones, each as it is sent; the last one has the number `last`.
    kept: VecDeque<Arc<str>>,
    last: u64,
    alone_since: Instant,
}

impl Writer {
    fn new() -> Writer {
        Writer {
            told: mpsc::channel().1,
            flag: Arc::default(),
            dismissals: Arc::default(),
            life: 0,
            listeners: Vec::new(),
            kept: VecDeque::new(),
            last: 0,
            alone_since: Instant::now(),
        }
    }

    fn run(mut self) {
        let mut beat = Instant::now() + HEARTBEAT;
        loop {
            let behind = self.listeners.iter().any(Listener::is_behind);
            let wait = if behind { Duration::from_millis(20) } else { Duration::from_secs(1) };
            match self.told.recv_timeout(wait) {
                Ok(first) => {
                    self.hear(first);
                    while let Ok(more) = self.told.try_recv() {
                        self.hear(more);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= beat {
                beat = Instant::now() + HEARTBEAT;
                self.listeners.iter_mut().for_each(|listener| listener.out.extend(b":\n\n"));
            }
            let dismissals = self.dismissals.load(Ordering::Relaxed);
            self.listeners.retain_mut(|one| one.dismissals == dismissals && one.flush());
            if !self.listeners.is_empty() {
                self.alone_since = Instant::now();
            } else if self.alone_since.elapsed() > LINGER
                && self.flag.swap(false, Ordering::Relaxed)
            {
                self.forget();
            }
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Event(kind, json) => {
                self.last += 1;
                let text: Arc<str> =
                    format!("id: {}-{}\nevent: {kind}\ndata: {json}\n\n", self.life, self.last)
                        .into();
                for listener in &mut self.listeners {
                    listener.out.extend(text.as_bytes());
                }
                if self.kept.len() == KEPT {
                    self.kept.pop_front();
                }
                self.kept.push_back(text);
            }
            Message::Missed => {
                self.forget();
                self.listeners.iter_mut().for_each(Listener::missed);
            }
            Message::Listener(mut listener) => {
                self.flag.store(true, Ordering::Relaxed);
                if let Some(from) = listener.from.take() {
                    self.catch_up(&mut listener, &from);
                }
                self.listeners.push(listener);
            }
        }
    }

    /// Some events are not here, and nobody may take what comes next for what came next: a number
    /// is left out.
    fn forget(&mut self) {
        self.kept.clear();
        self.last += 1;
    }

    /// How many there are behind this one; nothing if some of those are not here.
    fn behind(&self, from: &str) -> Option<usize> {
        let (life, number) = from.split_once('-')?;
        let number = number.parse().ok().filter(|_| life == self.life.to_string())?;
        let behind = self.last.checked_sub(number)? as usize;
        (behind <= self.kept.len()).then_some(behind)
    }

    fn catch_up(&self, listener: &mut Listener, from: &str) {
        let Some(behind) = self.behind(from) else { return listener.missed() };
        for text in self.kept.iter().skip(self.kept.len() - behind) {
            listener.out.extend(text.as_bytes());
        }
    }
}

impl Listener {
    fn missed(&mut self) {
        self.out.extend(b"event: missed\ndata: {}\n\n");
    }

    fn is_behind(&self) -> bool {
        !self.out.is_empty() || self.transport.has_unsent()
    }

    /// Sends what can be sent. False if it is gone or does not read.
    fn flush(&mut self) -> bool {
        // It has nothing to say; all there can be is its end.
        let mut room = [0; 512];
        if let Incoming::End = self.transport.read(&mut room) {
            return false;
        }
        while !self.out.is_empty() {
            let (front, _) = self.out.as_slices();
            match self.transport.write(front) {
                Ok(0) => return false,
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.transport.flush().is_ok() && self.out.len() <= UNREAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_up_to_date_before_a_gap_is_not_after_it() {
        let mut writer = Writer { life: 7, ..Writer::new() };
        writer.hear(Message::Event("lost", "{}".into()));
        writer.hear(Message::Event("lost", "{}".into()));
        assert_eq!(writer.behind("7-2"), Some(0));
        assert_eq!(writer.behind("7-1"), Some(1));
        assert_eq!(writer.behind("7-3"), None, "it has not happened");
        assert_eq!(writer.behind("6-2"), None, "another life");
        writer.hear(Message::Missed);
        assert_eq!(writer.behind("7-2"), None, "something may have happened since");
        writer.hear(Message::Event("lost", "{}".into()));
        assert_eq!(writer.behind("7-4"), Some(0));
        assert_eq!(writer.behind("7-2"), None);
    }
}
