//! What happens by itself as time passes: forgetting, waits that end, leases that end.

use keylatch_table::{Blocker, Cause, Event, Loss};

use super::{
    Model,
    request::{End, Ended, Request},
};

impl Model {
    /// Drops what was remembered long enough, and the oldest beyond the bound.
    pub(crate) fn forget(&mut self) {
        let (now, for_ms) = (self.now, self.settings.ended_ms);
        self.ended.retain(|ended| now - ended.at < for_ms);
        self.tasks.answers.retain(|answer| now - answer.at < for_ms);
        self.forget_beyond_bound();
    }

    pub(crate) fn forget_beyond_bound(&mut self) {
        let most = self.settings.ended;
        while self.ended.len() as u64 > most {
            self.ended.remove(0);
        }
        while self.tasks.answers.len() as u64 > most {
            self.tasks.answers.remove(0);
        }
    }

    pub(crate) fn remember(&mut self, request: &Request, end: End) {
        self.ended.push(Ended { id: request.asked.id.clone(), at: self.now, end });
        self.forget_beyond_bound();
    }

    /// Takes a holder out and remembers how it ended.
    pub(crate) fn end_hold(&mut self, at: usize, loss: Loss) -> Request {
        let request = self.requests.remove(at);
        self.remember(&request, End::Grant(loss));
        request
    }

    /// Every waiter whose wait or grace is over leaves. Who was in its way is judged before the
    /// first of them leaves: afterwards there may be nobody left to name.
    pub(crate) fn end_due_waiters(&mut self, events: &mut Vec<Event>) {
        let mut due = self
            .waiters()
            .filter(|waiter| waiter.deadline().is_some_and(|deadline| deadline <= self.now))
            .map(|waiter| {
                let blocker = self.blocker(waiter).expect("a free waiter was not granted");
                (waiter.deadline(), waiter.seq, blocker)
            })
            .collect::<Vec<_>>();
        due.sort_by_key(|(deadline, seq, _)| (*deadline, *seq));
        for (_, seq, blocker) in due {
            let request = self.take(seq);
            events.push(leaving(&request, blocker));
        }
    }

    /// Every holder whose lease or longest hold is over loses what it holds.
    pub(crate) fn end_due_holders(&mut self, events: &mut Vec<Event>) {
        let mut due = self
            .holders()
            .filter(|holder| holder.deadline().is_some_and(|deadline| deadline <= self.now))
            .map(|holder| (holder.deadline(), holder.seq))
            .collect::<Vec<_>>();
        due.sort_unstable();
        for (_, seq) in due {
            let at = self.at(seq);
            let request = self.end_hold(at, Loss { cause: Cause::Expired, by: None });
            events.push(lost(&request, Cause::Expired, None));
        }
    }

    pub(crate) fn at(&self, seq: u64) -> usize {
        self.requests.iter().position(|request| request.seq == seq).expect("a live seq")
    }

    pub(crate) fn take(&mut self, seq: u64) -> Request {
        let at = self.at(seq);
        self.requests.remove(at)
    }
}

/// The end of a waiter by time: its wait ended it, or its grace did.
fn leaving(request: &Request, blocker: Blocker) -> Event {
    let wait = request.wait().expect("only waiters leave a queue");
    if wait.grace.is_some_and(|grace| grace.until < wait.until) {
        withdrawn(request)
    } else {
        Event::TimedOut { id: request.asked.id.clone(), blocker, about: Box::new(request.about()) }
    }
}

pub(crate) fn withdrawn(request: &Request) -> Event {
    Event::Withdrawn { id: request.asked.id.clone(), about: Box::new(request.about()) }
}

pub(crate) fn lost(request: &Request, cause: Cause, reason: Option<keylatch_table::Text>) -> Event {
    Event::Lost {
        id: request.asked.id.clone(),
        token: request.token(),
        cause,
        reason,
        about: Box::new(request.about()),
    }
}
