//! Claims: taking a task now, waiting for one, and what ends a claim.

use keylatch_table::{
    Error, Event, RequestId, Text, What,
    task::{Claim, Claimed, TaskAction, TaskCommand, TaskEvent, TaskReply, TaskState},
};

use super::{LastClaim, Task, WaitingClaim};
use crate::model::{
    Model,
    request::{Grace, Wait, end_after},
};

/// What a claim would get if it asked now.
enum Outcome {
    /// The task at this position.
    Take(usize),
    /// The one it wants is done or failed.
    Refused(TaskState),
    Nothing,
}

impl Model {
    /// Claims whose wait or grace is over leave, in the order of (deadline, seq).
    pub(crate) fn end_due_claims(&mut self, events: &mut Vec<Event>) {
        let mut due = self
            .tasks
            .claims
            .iter()
            .filter(|claim| claim.wait.deadline() <= self.now)
            .cloned()
            .collect::<Vec<_>>();
        due.sort_by_key(|claim| (claim.wait.deadline(), claim.seq));
        for claim in due {
            self.tasks.claims.retain(|other| other.seq != claim.seq);
            let by_grace = claim.wait.grace.is_some_and(|grace| grace.until < claim.wait.until);
            events.push(Event::Task(if by_grace {
                TaskEvent::Withdrawn(claim.id, claim.pool)
            } else {
                TaskEvent::TimedOut(claim.id, claim.pool)
            }));
        }
    }

    /// Claimed tasks whose lease is over are free from the moment it ended.
    pub(crate) fn end_due_tasks(&mut self, events: &mut Vec<Event>) {
        let until = |task: &Task| task.claim.as_ref().and_then(|claim| claim.until);
        let mut due = self
            .tasks
            .all
            .iter()
            .filter(|task| task.state == TaskState::Claimed)
            .filter_map(|task| Some((until(task)?, task.number)))
            .filter(|(until, _)| *until <= self.now)
            .collect::<Vec<_>>();
        due.sort_unstable();
        for (until, number) in due {
            let found = self.tasks.all.iter_mut().find(|task| task.number == number);
            let task = found.expect("it was just seen");
            task.state = TaskState::Free;
            task.ready = until;
            let claim = task.claim.as_mut().expect("claimed by someone");
            claim.lapsed = true;
            events.push(Event::Task(TaskEvent::Lapsed {
                id: claim.id.clone(),
                pool: task.pool.clone(),
                key: task.key.clone(),
                token: claim.token,
            }));
        }
    }

    /// Gives each waiting claim, in arrival order, what it would get if it asked now.
    pub(crate) fn serve_claims(&mut self, events: &mut Vec<Event>) {
        for waiting in self.tasks.claims.clone() {
            let event = match self.outcome(&waiting.pool, waiting.claim.key.as_ref()) {
                Outcome::Nothing => continue,
                Outcome::Refused(state) => {
                    TaskEvent::Refused(waiting.id.clone(), waiting.pool.clone(), state)
                }
                Outcome::Take(at) => {
                    let command = TaskCommand {
                        id: waiting.id.clone(),
                        pool: waiting.pool.clone(),
                        action: TaskAction::Claim(waiting.claim.clone()),
                    };
                    let waited_ms = self.now - waiting.asked_at;
                    let claimed =
                        self.take_task(at, &command, &waiting.claim, waiting.wait.grace, waited_ms);
                    TaskEvent::Claimed(waiting.id.clone(), waiting.pool.clone(), claimed)
                }
            };
            self.tasks.claims.retain(|other| other.seq != waiting.seq);
            events.push(Event::Task(event));
        }
    }

    pub(crate) fn claim(&mut self, command: &TaskCommand, claim: &Claim) -> TaskReply {
        match self.outcome(&command.pool, claim.key.as_ref()) {
            Outcome::Take(at) => {
                return TaskReply::Claimed(self.take_task(at, command, claim, None, 0));
            }
            Outcome::Refused(state) => return TaskReply::Refused(state),
            Outcome::Nothing if claim.wait_ms == 0 => return TaskReply::Nothing,
            Outcome::Nothing => {}
        }
        let waiting = self.tasks.claims.iter().filter(|other| other.pool == command.pool).count();
        if waiting as u64 >= self.settings.claims {
            return TaskReply::Error(Error::TooMany(What::Claims, self.settings.claims));
        }
        let seq = self.next_seq();
        self.tasks.claims.push(WaitingClaim {
            id: command.id.clone(),
            pool: command.pool.clone(),
            claim: claim.clone(),
            seq,
            asked_at: self.now,
            wait: Wait { until: self.now.saturating_add(claim.wait_ms), grace: None },
        });
        TaskReply::Waiting
    }

    fn outcome(&self, pool: &Text, key: Option<&Text>) -> Outcome {
        let mut in_pool = self.tasks.all.iter().enumerate().filter(|(_, task)| task.pool == *pool);
        let Some(key) = key else {
            let best = in_pool.filter(|(_, task)| task.is_due(self.now)).min_by_key(|(_, task)| {
                (std::cmp::Reverse(task.priority), task.ready, task.number)
            });
            return best.map_or(Outcome::Nothing, |(at, _)| Outcome::Take(at));
        };
        match in_pool.find(|(_, task)| task.key == *key) {
            Some((at, task)) if task.is_due(self.now) => Outcome::Take(at),
            Some((_, Task { state: state @ (TaskState::Done | TaskState::Failed), .. })) => {
                Outcome::Refused(*state)
            }
            _ => Outcome::Nothing,
        }
    }

    fn take_task(
        &mut self,
        at: usize,
        command: &TaskCommand,
        claim: &Claim,
        grace: Option<Grace>,
        waited_ms: u64,
    ) -> Claimed {
        let token = self.next_token();
        let until = match grace {
            Some(grace) => Some(self.now.saturating_add(grace.length_ms)),
            None => end_after(self.now, claim.lease_ms),
        };
        let task = &mut self.tasks.all[at];
        task.state = TaskState::Claimed;
        task.version = token;
        task.claim = Some(LastClaim {
            id: command.id.clone(),
            owner: claim.party.owner.clone(),
            token,
            since: self.now,
            lease_ms: claim.lease_ms,
            until,
            unconfirmed: grace.is_some(),
            lapsed: false,
        });
        let claimed = Claimed {
            key: task.key.clone(),
            body: task.body.clone(),
            version: token,
            token,
            attempts: task.attempts,
            lease_ms: task.left(self.now),
            waited_ms,
        };
        self.remember_answer(command.clone(), TaskReply::Claimed(claimed.clone()));
        claimed
    }

    pub(crate) fn cancel_claim(&mut self, id: &RequestId, events: &mut Vec<Event>) -> TaskReply {
        let before = events.len();
        self.withdraw_claims(|waiting| waiting == id, events);
        TaskReply::Cancelled(events.len() > before)
    }

    pub(crate) fn withdraw_claims(
        &mut self,
        meant: impl Fn(&RequestId) -> bool,
        events: &mut Vec<Event>,
    ) {
        for claim in self.tasks.claims.clone() {
            if meant(&claim.id) {
                self.tasks.claims.retain(|other| other.seq != claim.seq);
                events.push(Event::Task(TaskEvent::Withdrawn(claim.id, claim.pool)));
            }
        }
    }
}
