//! Claims: taking a free task now, or waiting for one. Whoever has waited longest is served first,
//! and nobody who asks is served before those who wait.

use super::store::{ClaimNode, TaskClaim};
use super::{Claim, Claimed, TaskAction, TaskCommand, TaskEvent, TaskReply, TaskState};
use crate::board::deadlines::NEVER;
use crate::error::{Error, What};
use crate::lock::{left, long_ms};
use crate::{ClaimOutcome, Detach, Event, Party, RequestId, Table, Text};

impl Table {
    pub(super) fn claim(
        &mut self,
        id: RequestId,
        pool: &Text,
        claim: Claim,
        print: u64,
    ) -> TaskReply {
        let wanted = match self.refuse_claim(pool, &claim) {
            Ok(wanted) => wanted,
            Err(reply) => {
                self.count_claim_refusal(&reply);
                return reply;
            }
        };
        let node = ClaimNode {
            id,
            seq: 0,
            pool: pool.clone(),
            key: claim.key,
            party: claim.party,
            lease_ms: claim.lease_ms,
            asked: self.now,
            end: self.now + claim.wait_ms,
            grace: None,
            print,
        };
        if let Some(at) = wanted {
            return TaskReply::Claimed(self.take(at, node));
        }
        let seq = self.next_seq();
        self.tasks.enqueue(ClaimNode { seq, ..node });
        TaskReply::Waiting
    }

    /// The task that a new claim takes, nothing if it is to wait, or why it gets none.
    fn refuse_claim(&self, pool: &str, claim: &Claim) -> Result<Option<u32>, TaskReply> {
        let wanted = self.claimable(pool, claim.key.as_deref()).map_err(TaskReply::Refused)?;
        if wanted.is_some() {
            return Ok(wanted);
        }
        if claim.wait_ms == 0 {
            return Err(TaskReply::Nothing);
        }
        let waiting = self.tasks.pool(pool).map_or(0, |pool| pool.waiting);
        if waiting >= self.settings.claims {
            return Err(TaskReply::Error(Error::TooMany(What::Claims, self.settings.claims)));
        }
        Ok(None)
    }

    /// The answer to a task command if it is a refusal that nobody has to remember: then
    /// [`Table::apply`] at this time would say the same and change nothing, so a driver can answer
    /// without writing to its log. `None` for everything else, and when something has to end first.
    pub fn task_refusal(&self, at: u64, command: &TaskCommand) -> Option<TaskReply> {
        let now = self.now.max(at);
        if self.next_deadline().is_some_and(|due| due <= now) {
            return None;
        }
        if command.action == TaskAction::Cancel {
            let waits = self.tasks.claim_of(&command.id).is_some();
            return (!waits).then_some(TaskReply::Cancelled(false));
        }
        if let Err(error) = self.admit_id(&command.id) {
            return Some(TaskReply::Error(error));
        }
        if self.knows_task(&command.id) {
            return None;
        }
        if let Err(error) = self.admit_task(command) {
            return Some(TaskReply::Error(error));
        }
        match &command.action {
            TaskAction::Claim(claim) => self.refuse_claim(&command.pool, claim).err(),
            _ => None,
        }
    }

    /// A refusal of a claim that was answered without [`Table::apply`] counts too.
    pub fn count_claim_refusal(&mut self, reply: &TaskReply) {
        self.tally.count_claim(match reply {
            TaskReply::Nothing => ClaimOutcome::Nothing,
            TaskReply::Refused(_) => ClaimOutcome::Refused,
            _ => ClaimOutcome::Error,
        });
    }

    /// Whether a task command with this id was answered and that is remembered, or waits.
    pub fn knows_task(&self, id: &RequestId) -> bool {
        self.tasks.answered(id).is_some() || self.tasks.claim_of(id).is_some()
    }

    /// The pool and the worker of a claim that waits.
    pub fn waiting_claim(&self, id: &RequestId) -> Option<(&Text, &Party)> {
        let claim = self.tasks.claim(self.tasks.claim_of(id)?);
        Some((&claim.pool, &claim.party))
    }

    /// The ready task that a claim would take; an error if it asks for one that is done or failed.
    pub(crate) fn claimable(
        &self,
        pool: &str,
        key: Option<&str>,
    ) -> Result<Option<u32>, TaskState> {
        let Some(key) = key else {
            let first = self.tasks.pool(pool).and_then(|pool| pool.ready.values().next());
            return Ok(first.copied());
        };
        let Some(at) = self.tasks.find(pool, key) else { return Ok(None) };
        let task = self.tasks.task(at);
        match task.state {
            TaskState::Free => Ok((task.ready <= self.now).then_some(at)),
            TaskState::Claimed => Ok(None),
            TaskState::Done | TaskState::Failed => Err(task.state),
        }
    }

    /// Gives a ready task to a claim.
    fn take(&mut self, at: u32, node: ClaimNode) -> Claimed {
        self.tally.count_claim(ClaimOutcome::Claimed);
        let (token, now) = (self.next_token(), self.now);
        let lease_ms = node.grace.map_or(node.lease_ms, |(grace_ms, _)| grace_ms);
        let end = if lease_ms == 0 { NEVER } else { now + lease_ms };
        let id = node.id.clone();
        self.tasks.change(at, now, |task| {
            (task.state, task.version, task.lapsed) = (TaskState::Claimed, token, false);
            task.claim = Some(TaskClaim {
                id,
                token,
                owner: node.party.owner,
                at: now,
                lease_ms: node.lease_ms,
                end,
                detached: node.grace.is_some(),
            });
        });
        let claimed = self.claimed(at, now - node.asked);
        // The body stays with the task: a repeat finds it there as long as the claim is good.
        let reply = TaskReply::Claimed(Claimed { body: None, ..claimed.clone() });
        self.remember_answer(node.id, node.print, node.pool, reply);
        claimed
    }

    fn claimed(&self, at: u32, waited_ms: u64) -> Claimed {
        let task = self.tasks.task(at);
        let claim = task.claim.as_ref().expect("claimed");
        Claimed {
            key: task.key.clone(),
            body: task.body.clone(),
            version: task.version,
            token: claim.token,
            attempts: task.attempts,
            lease_ms: left(claim.end, self.now),
            waited_ms,
        }
    }

    /// The remembered answer to a command that is repeated.
    pub(super) fn answer_again(&mut self, id: &RequestId) -> TaskReply {
        let answered = self.tasks.answered(id).expect("the caller has looked");
        let TaskReply::Claimed(before) = &answered.reply else { return answered.reply.clone() };
        let version = before.version;
        let Some(at) = self.tasks.find(&answered.pool, &before.key) else {
            return TaskReply::Ended;
        };
        let task = self.tasks.task(at);
        if task.version != version || task.state != TaskState::Claimed {
            return TaskReply::Ended;
        }
        let now = self.now;
        if task.claim.as_ref().is_some_and(|claim| claim.detached) {
            self.tasks.change(at, now, |task| {
                let claim = task.claim.as_mut().expect("just seen");
                claim.detached = false;
                claim.end = if claim.lease_ms == 0 { NEVER } else { now + claim.lease_ms };
            });
        }
        TaskReply::Claimed(self.claimed(at, 0))
    }

    pub(super) fn repeat_claim(
        &mut self,
        at: u32,
        claim: &Claim,
        events: &mut Vec<Event>,
    ) -> TaskReply {
        if let Err(error) = long_ms(What::Wait, claim.wait_ms, self.settings.wait_ms) {
            return TaskReply::Error(error);
        }
        if claim.wait_ms == 0 {
            self.withdraw_claim(at, events);
            return TaskReply::Nothing;
        }
        self.tasks.ask_again(at, self.now, self.now + claim.wait_ms);
        TaskReply::Waiting
    }

    pub(super) fn cancel_claim(&mut self, id: &RequestId, events: &mut Vec<Event>) -> TaskReply {
        let waiting = self.tasks.claim_of(id);
        if let Some(at) = waiting {
            self.withdraw_claim(at, events);
        }
        TaskReply::Cancelled(waiting.is_some())
    }

    pub(crate) fn detach_claims(&mut self, detach: &Detach, events: &mut Vec<Event>) {
        let mut claims: Vec<u32> = match &detach.ids {
            Some(ids) => ids.iter().filter_map(|id| self.tasks.claim_of(id)).collect(),
            None => self.tasks.claims().map(|(at, _)| at).collect(),
        };
        claims.sort_unstable_by_key(|at| self.tasks.claim(*at).seq);
        claims.dedup();
        for at in claims {
            match detach.grace_ms {
                0 => self.withdraw_claim(at, events),
                grace_ms => {
                    let end = self.tasks.claim(at).end;
                    self.tasks.set_wait(at, end, Some((grace_ms, self.now + grace_ms)));
                }
            }
        }
    }

    fn withdraw_claim(&mut self, at: u32, events: &mut Vec<Event>) {
        let claim = self.tasks.dequeue(at);
        self.tally.count_claim(ClaimOutcome::Cancelled);
        events.push(Event::Task(TaskEvent::Withdrawn(claim.id, claim.pool)));
    }

    /// Ends what is due: first waits, then leases and delays.
    pub(crate) fn expire_tasks(&mut self, events: &mut Vec<Event>) {
        while let Some(at) = self.tasks.due_claim(self.now) {
            let claim = self.tasks.claim(at);
            if claim.deadline() < claim.end {
                self.withdraw_claim(at, events);
                continue;
            }
            let claim = self.tasks.dequeue(at);
            self.tally.count_claim(ClaimOutcome::TimedOut);
            events.push(Event::Task(TaskEvent::TimedOut(claim.id, claim.pool)));
        }
        while let Some(at) = self.tasks.due(self.now) {
            let task = self.tasks.task(at);
            let Some(claim) = task.claim.as_ref().filter(|_| task.state == TaskState::Claimed)
            else {
                self.tasks.wake(at, self.now);
                continue;
            };
            events.push(Event::Task(TaskEvent::Lapsed {
                id: claim.id.clone(),
                pool: task.pool.clone(),
                key: task.key.clone(),
                token: claim.token,
            }));
            self.tally.lapsed += 1;
            let end = claim.end;
            self.tasks.change(at, self.now, |task| {
                (task.state, task.ready, task.lapsed) = (TaskState::Free, end, true);
            });
        }
        self.tasks.find_next();
    }

    /// Serves waiting claims with the tasks that became ready, in the order of their arrival.
    pub(crate) fn serve_claims(&mut self, events: &mut Vec<Event>) {
        while let Some((claim, at)) = self.next_served() {
            let node = self.tasks.dequeue(claim);
            let (id, pool) = (node.id.clone(), node.pool.clone());
            let claimed = self.take(at, node);
            events.push(Event::Task(TaskEvent::Claimed(id, pool, claimed)));
        }
        self.tasks.fresh.clear();
    }

    /// Of the claims that some fresh task could serve, the one that arrived first, and its task.
    fn next_served(&self) -> Option<(u32, u32)> {
        let first = self.tasks.fresh.iter().filter_map(|at| {
            let task = self.tasks.task(*at);
            let pool = self.tasks.pool(&task.pool)?;
            let any = pool.any.first_key_value();
            let named = pool.named.get(&task.key).and_then(|named| named.first_key_value());
            any.into_iter().chain(named).min()
        });
        let (_, claim) = first.min()?;
        let node = self.tasks.claim(*claim);
        let at = self.claimable(&node.pool, node.key.as_deref());
        Some((*claim, at.ok()?.expect("a fresh task is ready")))
    }
}
