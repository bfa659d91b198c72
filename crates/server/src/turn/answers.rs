//! The end of a turn: answers to those who asked, and events to those they concern.

use std::time::{Duration, Instant};

use keylatch_table::{
    Applied, Command, Detach, Error, Event, Query, Reply, RequestId, TaskReply, What,
};

use super::{Batch, Turns, Work, lists};
use crate::connection::{Connection, ConnectionId};
use crate::listener::{Answer, Speaks, enqueue, http, resp};
use crate::outbox::{Concerned, Waiter, Wanted, outcome_of};

/// How often it is said that the table is full.
const REPORT_EVERY: Duration = Duration::from_secs(60);

impl Turns {
    /// Everyone gets an answer. The changes have been applied, with these outcomes.
    pub(crate) fn finish(&mut self, mut batch: Batch, applied: impl IntoIterator<Item = Applied>) {
        let mut applied = applied.into_iter();
        for (id, work) in batch.works.drain(..) {
            match work {
                Work::Change(answer) => {
                    let Applied { reply, events } = applied.next().expect("one for each command");
                    if let (Some(id), Some(answer)) = (id, answer) {
                        self.answer(id, &answer, &reply);
                    }
                    for event in events {
                        self.tell(&event);
                    }
                }
                Work::Changes(count, answer) => {
                    let all = applied.by_ref().take(count).collect::<Vec<Applied>>();
                    let (replies, events): (Vec<Reply>, Vec<Vec<Event>>) =
                        all.into_iter().map(|one| (one.reply, one.events)).unzip();
                    if let Some(id) = id.filter(|id| self.is_there(*id)) {
                        let connection = &mut self.connections[id.at];
                        connection.closing |= answer.closes();
                        http::write_answers(&answer, &replies, connection.out());
                        self.answered(id);
                    }
                    for event in events.iter().flatten() {
                        self.tell(event);
                    }
                }
                Work::Recorded(answer, record) => {
                    let Applied { reply, events } = applied.next().expect("one for each command");
                    self.record_revocation(*record, &reply);
                    if let Some(id) = id {
                        self.answer(id, &answer, &reply);
                    }
                    for event in events {
                        self.tell(&event);
                    }
                }
                other => self.finish_unchanged(id, other),
            }
        }
        self.spare = batch.emptied();
    }

    /// The same, when there was no room for the changes: nothing has happened.
    pub(crate) fn finish_without_room(&mut self, batch: Batch) {
        let mut commands = batch.commands.into_iter();
        for (id, work) in batch.works {
            let (count, work) = match work {
                Work::Recorded(answer, _) => (1, Work::Change(Some(answer))),
                Work::Changes(count, answer) => (count, Work::Change(Some(answer))),
                other => (1, other),
            };
            match work {
                Work::Change(answer) => {
                    let command = commands.nth(count - 1).expect("one for each change");
                    match (id, answer) {
                        (Some(id), Some(answer)) if self.is_there(id) => {
                            let connection = &mut self.connections[id.at];
                            let text = no_room(connection, &answer);
                            connection.closing |= answer.closes();
                            connection.out().extend_from_slice(&text);
                            self.answered(id);
                        }
                        // A tick comes anyway. That somebody is gone must not be forgotten.
                        (None, _) if command != Command::Tick => self.later.push(command),
                        _ => {}
                    }
                }
                other => self.finish_unchanged(id, other),
            }
        }
    }

    pub(super) fn finish_unchanged(&mut self, id: Option<ConnectionId>, work: Work) {
        let Some(id) = id.filter(|id| self.is_there(*id)) else { return };
        let Some(work) = self.put_off_list(id, work) else { return };
        match work {
            Work::Question(queries, answer, asker) => {
                let table = self.table.lock();
                let now = self.clock.now().max(table.now());
                let found = self.find(asker.as_deref(), &table, &queries);
                drop(table);
                let most = self.config.unread_bytes;
                let connection = &mut self.connections[id.at];
                let before = connection.out().len();
                match answer {
                    Answer::Resp(answer) => {
                        write(connection, |writer| resp::write_found(&answer, &found, now, writer));
                    }
                    Answer::Enqueue(_) => {
                        enqueue::write_found(&found, &self.clock, connection.out());
                    }
                    Answer::Http(answer) => {
                        connection.closing |= answer.meta.close;
                        http::write_found(&answer, &found, now, connection.out());
                        return self.answered(id);
                    }
                }
                if connection.out().len() - before > most {
                    connection.out().truncate(before);
                    let error = connection.speaks.error("LIMIT", &lists::too_long(most));
                    connection.out().extend_from_slice(&error);
                }
            }
            Work::Say(bytes) => self.connections[id.at].out().extend_from_slice(&bytes),
            Work::Change(_) | Work::Changes(..) | Work::Recorded(..) => {
                unreachable!("changes are answered with their outcome")
            }
        }
        self.answered(id);
    }

    /// One request less is open; with the last one the connection goes on.
    pub(super) fn answered(&mut self, id: ConnectionId) {
        self.dirty.push(id.at);
        let connection = &mut self.connections[id.at];
        connection.open -= 1;
        if connection.open == 0 {
            connection.asked = false;
            if connection.held_back {
                connection.held_back = false;
                self.go_on(id.at);
            }
        }
    }

    pub(super) fn answer(&mut self, id: ConnectionId, answer: &Answer, reply: &Reply) {
        if let Reply::Error(Error::TooMany(what, most)) = reply {
            self.report_full(*what, *most);
        }
        // A request that may wait, and whether its connection goes on while it does.
        let asked = match answer {
            Answer::Resp(resp::Answer::Lock { id, asynchronous }) => {
                Some((Wanted::Locks, id, *asynchronous))
            }
            Answer::Resp(resp::Answer::Claim { id, asynchronous }) => {
                Some((Wanted::Task, id, *asynchronous))
            }
            Answer::Enqueue(enqueue::Answer::Lock(id))
            | Answer::Http(http::Answer { kind: http::Kind::Lock(id), .. }) => {
                Some((Wanted::Locks, id, false))
            }
            Answer::Http(http::Answer { kind: http::Kind::Claim(id), .. }) => {
                Some((Wanted::Task, id, false))
            }
            _ => None,
        };
        if !self.is_there(id) {
            return self.nobody_there(answer, asked.map(|(_, request, _)| request), reply);
        }
        if let Some((wanted, request, asynchronous)) = asked {
            self.follow(id, (wanted, request), asynchronous, reply);
            if waits(reply) && !asynchronous {
                return self.answered(id);
            }
        }
        let connection = &mut self.connections[id.at];
        if let (Answer::Resp(resp::Answer::Unlock(request)), Reply::Released) = (answer, reply)
            && !connection.held.is_empty()
            && connection.held.remove(request)
        {
            self.outbox.forget_held(request);
        }
        match answer {
            Answer::Resp(answer) => {
                write(connection, |writer| resp::write_answer(answer, reply, writer));
            }
            Answer::Enqueue(answer) => enqueue::write_answer(answer, reply, connection.out()),
            Answer::Http(answer) => {
                connection.closing |= answer.meta.close;
                http::write_answer(answer, reply, connection.out());
            }
        }
        self.answered(id);
    }

    /// Somebody has to know who fills the table; once a minute is enough.
    fn report_full(&mut self, what: What, most: u64) {
        if !matches!(
            what,
            What::Requests | What::RequestsOfOwner | What::RequestsOfName | What::Waiters
        ) || self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY)
        {
            return;
        }
        self.reported = Some(Instant::now());
        let found = self.table.lock().query(self.clock.now(), &Query::TopOwners(5));
        let keylatch_table::Answer::Owners(owners) = found else { return };
        let owners: Vec<String> =
            owners.iter().map(|(owner, requests)| format!("{owner}: {requests}")).collect();
        let owners = owners.join(", ");
        tracing::warn!(%what, most, owners, "the table is full; these have the most requests");
    }

    /// Keeps in mind who is to be told what becomes of a request.
    fn follow(
        &mut self,
        id: ConnectionId,
        (wanted, request): (Wanted, &RequestId),
        asynchronous: bool,
        reply: &Reply,
    ) {
        let connection = &mut self.connections[id.at];
        match reply {
            Reply::Waiting(_) | Reply::Task(TaskReply::Waiting) => {
                connection.waiting.push((wanted, request.clone()));
                connection.blocked = !asynchronous;
                let waiter = Waiter { connection: id, blocks: !asynchronous };
                self.outbox.wait(wanted, request, waiter);
            }
            Reply::Granted(_) if connection.wants_pushes() => {
                connection.held.insert(request.clone());
                self.outbox.hold(request, id);
            }
            _ => {}
        }
    }

    /// A request whose connection went away before it was answered.
    fn nobody_there(&mut self, answer: &Answer, asked: Option<&RequestId>, reply: &Reply) {
        if let Some(id) = asked.filter(|_| waits(reply)) {
            let grace_ms = match answer {
                Answer::Resp(_) | Answer::Http(_) => self.config.grace.as_millis() as u64,
                Answer::Enqueue(_) => 0,
            };
            self.propose(Command::Detach(Detach { ids: Some(vec![id.clone()]), grace_ms }));
        }
    }

    /// Tells everyone whom an event concerns.
    pub(crate) fn tell(&mut self, event: &Event) {
        match self.outbox.concerned(event) {
            Concerned::Waiters(waiters) => {
                for waiter in waiters {
                    self.tell_waiter(waiter, event);
                }
            }
            Concerned::Holder(id) if self.is_there(id) => {
                let connection = &mut self.connections[id.at];
                if let Event::Lost { id, .. } = event {
                    connection.held.remove(id);
                }
                write(connection, |writer| resp::write_push(event, writer));
                self.dirty.push(id.at);
            }
            Concerned::Holder(_) | Concerned::Nobody => {}
        }
        let fed = self.feed.is_listened_to();
        if !self.outbox.subscribers.is_empty() || fed {
            self.tell_subscribers(event, fed);
        }
    }

    fn tell_waiter(&mut self, waiter: Waiter, event: &Event) {
        let Waiter { connection: id, blocks } = waiter;
        if !self.is_there(id) {
            return;
        }
        let connection = &mut self.connections[id.at];
        let (wanted, request) =
            outcome_of(event).expect("only outcomes are told to those who wait");
        connection.waiting.retain(|(kind, other)| (*kind, other) != (wanted, request));
        let pushes = connection.wants_pushes();
        if blocks {
            connection.blocked = false;
            match &mut connection.speaks {
                Speaks::Resp(_) => {
                    write(connection, |writer| resp::write_outcome_of(event, writer));
                }
                Speaks::Enqueue(_) => enqueue::write_outcome_of(event, connection.out()),
                Speaks::Http(session) => {
                    let mut answer = Vec::new();
                    let meta = http::write_outcome_of(event, session, &mut answer);
                    connection.closing |= meta.close;
                    connection.out().extend_from_slice(&answer);
                }
            }
        } else if pushes {
            write(connection, |writer| resp::write_push(event, writer));
        }
        if pushes && matches!(event, Event::Granted { .. }) {
            connection.held.insert(request.clone());
            self.outbox.hold(request, id);
        }
        self.awaited.push(id.at);
        if blocks {
            self.go_on(id.at);
        }
    }

    fn tell_subscribers(&mut self, event: &Event, fed: bool) {
        let Some(event) = self.public(event) else { return };
        let (kind, text) = resp::event_as_json(&event);
        for id in self.outbox.subscribers.clone() {
            if self.is_there(id) {
                write(&mut self.connections[id.at], |writer| {
                    writer.push(3);
                    writer.bulk(b"message");
                    writer.bulk(resp::EVENTS.as_bytes());
                    writer.bulk(text.as_bytes());
                });
                self.dirty.push(id.at);
            }
        }
        if fed {
            self.feed.tell(kind, text);
        }
    }
}

impl Connection {
    fn wants_pushes(&self) -> bool {
        match &self.speaks {
            Speaks::Resp(session) => session.protocol == keylatch_wire::Protocol::Resp3,
            Speaks::Enqueue(_) | Speaks::Http(_) => false,
        }
    }
}

/// Whether the outcome comes later.
fn waits(reply: &Reply) -> bool {
    matches!(reply, Reply::Waiting(_) | Reply::Task(TaskReply::Waiting))
}

fn write(connection: &mut Connection, write: impl FnOnce(&mut keylatch_wire::Writer<'_>)) {
    let Speaks::Resp(session) = &connection.speaks else {
        unreachable!("only RESP is written so");
    };
    let protocol = session.protocol;
    write(&mut keylatch_wire::Writer { out: connection.out(), protocol });
}

/// The answer to a change that the log has no room for.
pub(super) fn no_room(connection: &Connection, answer: &Answer) -> Vec<u8> {
    let text = match answer {
        Answer::Resp(resp::Answer::Lock { .. } | resp::Answer::Set)
        | Answer::Http(http::Answer { kind: http::Kind::Lock(_), .. })
        | Answer::Enqueue(enqueue::Answer::Lock(_)) => {
            "the disk of the log is full: no new locks until there is room; releasing and renewing go on"
        }
        Answer::Resp(resp::Answer::Claim { .. } | resp::Answer::Create)
        | Answer::Http(http::Answer {
            kind: http::Kind::Claim(_) | http::Kind::Create { .. } | http::Kind::CreateMany(_),
            ..
        }) => {
            "the disk of the log is full: no new tasks and no claims until there is room; updating, finishing and putting back go on"
        }
        _ => "the disk of the log is full, and so is its reserve: try again when there is room",
    };
    match answer {
        Answer::Http(answer) => http::unavailable("full", text, answer.meta),
        Answer::Resp(_) | Answer::Enqueue(_) => connection.speaks.error("FULL", text),
    }
}
