//! How connections end: by their own will, by silence, or with the server; and those that are told before
//! others lose patience.

use std::time::Instant;

use keylatch_table::{Command, Detach};

use super::Turns;
use crate::config::Config;
use crate::connection::Connection;
use crate::listener::{Speaks, http};

impl Turns {
    /// The other side has nothing more to say. What it is still owed is sent.
    pub(super) fn end(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        if connection.held_back || connection.queued {
            // There is more to take first; the end is read once more then.
            return;
        }
        let last_words = match &connection.speaks {
            Speaks::Enqueue(session) => session.last_words(),
            Speaks::Resp(_) | Speaks::Http(_) => None,
        };
        if let Some(words) = last_words {
            self.say(at, words);
        }
        let connection = &mut self.connections[at];
        if connection.blocked || (connection.open == 0 && !connection.has_unsent()) {
            return self.close(at);
        }
        connection.closing = true;
        self.dirty.push(at);
    }

    pub(super) fn close(&mut self, at: usize) {
        let mut connection = self.connections.remove(at);
        connection.transport.say_goodbye();
        drop(self.registry.deregister(connection.transport.source()));
        let (waiting, held) = (connection.waiting, connection.held);
        let alone = self.outbox.leave(connection.id, waiting, held);
        if !alone.is_empty() {
            let grace_ms = match connection.speaks {
                Speaks::Resp(_) | Speaks::Http(_) => self.config.grace.as_millis() as u64,
                Speaks::Enqueue(_) => 0,
            };
            self.propose(Command::Detach(Detach { ids: Some(alone), grace_ms }));
        }
    }

    /// The server is about to stop. Clients of the enqueue protocol never notice the end of a
    /// connection, and those of HTTP expect an answer, so those that wait are told.
    pub(crate) fn dismiss_waiters(&mut self) {
        // Who has not even agreed on TLS has asked for nothing, and is not waited for.
        self.shaking.clear();
        let waits = |connection: &Connection| {
            connection.blocked && !matches!(connection.speaks, Speaks::Resp(_))
        };
        let waiting: Vec<usize> =
            self.connections.iter().filter(|(_, c)| waits(c)).map(|(at, _)| at).collect();
        for at in waiting {
            let connection = &mut self.connections[at];
            let text = connection.speaks.error("STOPPING", "the server is stopping");
            connection.out().extend_from_slice(&text);
            connection.send();
            self.close(at);
        }
    }

    /// Cuts off those who have been silent for too long. Once a second is often enough.
    pub(crate) fn sweep(&mut self) {
        let now = self.began;
        if now - self.swept < std::time::Duration::from_secs(1) {
            return;
        }
        self.swept = now;
        if let Some(certificates) = &mut self.certificates {
            certificates.read_if_changed();
        }
        let Config { handshake, incomplete, idle, .. } = self.config;
        let silent = |connection: &mut Connection| {
            let since = now - connection.active;
            let busy = connection.open > 0
                || !connection.waiting.is_empty()
                || !connection.held.is_empty()
                || connection.subscribed;
            // It is owed something, and does not even take what it has been answered.
            let stuck = connection.open > 0 && connection.has_unsent() && since > incomplete;
            stuck
                || connection.is_slow(now, incomplete)
                || (!connection.greeted && since > handshake)
                || (!idle.is_zero() && !busy && since > idle)
        };
        let all = self.connections.iter_mut();
        let cut: Vec<usize> =
            all.filter_map(|(at, connection)| silent(connection).then_some(at)).collect();
        for at in cut {
            self.close(at);
        }
        self.lose_patience(now);
        self.answer_before_proxies_give_up(now);
        self.watch_access();
    }

    /// Those who have waited for an answer over HTTP for long are told that they still wait.
    fn answer_before_proxies_give_up(&mut self, now: Instant) {
        let most = self.config.http_answer;
        let long = |connection: &Connection| match &connection.speaks {
            Speaks::Http(http::Session { waiting: Some(waiting), .. }) if connection.blocked => {
                now.saturating_duration_since(waiting.since) >= most
            }
            _ => false,
        };
        let all = self.connections.iter();
        let long: Vec<usize> = all.filter(|(_, one)| long(one)).map(|(at, _)| at).collect();
        for at in long {
            let connection = &mut self.connections[at];
            let Speaks::Http(session) = &mut connection.speaks else { continue };
            let mut answer = Vec::new();
            let meta = http::write_still_waiting(session, &mut answer);
            connection.out().extend_from_slice(&answer);
            connection.blocked = false;
            connection.closing |= meta.close;
            let (id, waiting) = (connection.id, std::mem::take(&mut connection.waiting));
            let alone = self.outbox.leave(id, waiting, []);
            let grace_ms = most.as_millis() as u64;
            self.propose(Command::Detach(Detach { ids: Some(alone), grace_ms }));
            self.dirty.push(at);
            self.again(id);
        }
    }

    /// The server ends here: inside of TLS an end that is not announced looks like an attack.
    pub(crate) fn say_goodbye(&mut self) {
        for (_, connection) in &mut self.connections {
            connection.transport.say_goodbye();
        }
    }
}
