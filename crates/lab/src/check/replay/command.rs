//! What a command may be answered, and what it then changes.

use keylatch_table::{Cause, Error, Event, Loss, Mode, Reply};

use super::Replay;
use super::tell::left;
use crate::check::action::{Action, REASON};
use crate::check::book::{How, Live};
use crate::check::coverage::Mark;
use crate::check::cycle;
use crate::check::fault::Rule;
use crate::check::rule::{Place, conflict, conflicting_part, first_blocker, promotable};

/// A request for one of the things it may ask for.
#[derive(Clone, Copy)]
struct Asking {
    slot: u8,
    ask: u8,
    wait: bool,
}

impl Replay<'_> {
    pub(super) fn command(&mut self, action: Action, reply: &Reply) {
        match action {
            Action::Ask { slot, ask, wait } => self.ask(Asking { slot, ask, wait }, reply),
            Action::Each(each) => self.each(usize::from(each), reply),
            Action::Release(slot) => self.release(slot, reply),
            Action::Cancel(slot) => self.cancel(slot, reply),
            Action::Promote(slot) => self.promote(slot, reply),
            Action::Renew(slot, lease_ms) => self.renew(slot, lease_ms, reply),
            Action::Detach(slot, grace_ms) => self.detach(&[slot], grace_ms, reply),
            Action::DetachAll(grace_ms) => {
                let slots: Vec<u8> = self.book.live.iter().map(|live| live.slot).collect();
                self.detach(&slots, grace_ms, reply);
            }
            Action::Revoke(slot) => self.revoke(slot, reply),
            Action::Tick(_) => self.exactly(reply, &Reply::Done, Rule::EveryChangeIsTold),
        }
    }

    fn ask(&mut self, asking: Asking, reply: &Reply) {
        match self.book.live(asking.slot).copied() {
            Some(live) if live.ask != asking.ask => {
                self.exactly(reply, &Reply::Error(Error::IdReused), Rule::EndsAreRemembered);
            }
            Some(live) => self.repeat(live, asking, reply),
            None => match self.book.how(asking.slot) {
                Some(How::Grant(cause, _)) => {
                    self.coverage.mark(Mark::Remembered);
                    self.exactly(reply, &Reply::Ended(cause), Rule::EndsAreRemembered);
                }
                _ => self.new_request(asking, reply),
            },
        }
    }

    fn new_request(&mut self, asking: Asking, reply: &Reply) {
        let asker = self.asker(asking.slot, asking.ask);
        let detects = self.world.ask_of(asking.slot, asking.ask).detect && asking.wait;
        let places = self.book.places(self.world);
        let on_cycle = detects && cycle::stands_on(self.world, &places, &asker);
        match reply {
            Reply::Granted(grant) => {
                self.may_have(&asker);
                let live = self.enter(asking.slot, asking.ask, grant.token);
                self.grant(&live, grant, 0);
            }
            Reply::Busy(blocker) if !asking.wait => {
                self.named(&self.book.clone(), blocker, &asker);
            }
            Reply::Waiting(blocker) if asking.wait => {
                self.named(&self.book.clone(), blocker, &asker);
                self.faults.expect(!on_cycle, Rule::NoCycleIsLeft, || {
                    format!("{asker:?} waits on a cycle")
                });
                self.enter(asking.slot, asking.ask, 0);
            }
            Reply::Deadlock(deadlock) if detects => {
                self.coverage.mark(Mark::CycleRefused);
                self.named(&self.book.clone(), &deadlock.blocker, &asker);
                let right = on_cycle && cycle::is_one(self.world, &places, &asker, &deadlock.cycle);
                self.faults.expect(right, Rule::NoCycleIsLeft, || {
                    format!("{asker:?} was refused for {deadlock:?}")
                });
            }
            _ => self.odd(Rule::RefusalsAreTrue, reply),
        }
    }

    /// A new request takes its place; token 0 is a waiter's.
    fn enter(&mut self, slot: u8, ask: u8, token: u64) -> Live {
        let now = self.book.now;
        let asked = self.world.ask_of(slot, ask);
        self.book.ended.retain(|ended| ended.slot != slot);
        self.book.seq += 1;
        let mut live = Live {
            slot,
            ask,
            seq: self.book.seq,
            token,
            promoted: false,
            unconfirmed: false,
            arrived: now,
            asked: now,
            granted: now,
            end: now + asked.wait_ms,
            grace: None,
        };
        if live.held() {
            self.coverage.mark(Mark::Granted);
            self.token(token);
            live.end = live.lease_end(asked, now, asked.lease_ms);
        }
        self.book.live.push(live);
        live
    }

    fn repeat(&mut self, mut live: Live, asking: Asking, reply: &Reply) {
        let asked = self.world.ask_of(live.slot, live.ask);
        let now = self.book.now;
        let asker = live.place(self.world);
        match reply {
            Reply::Granted(grant) if live.held() => {
                if live.unconfirmed {
                    self.coverage.mark(Mark::Confirmed);
                    live.unconfirmed = false;
                    live.end = live.lease_end(asked, now, asked.lease_ms);
                }
                self.grant(&live, grant, 0);
            }
            Reply::Waiting(blocker) if !live.held() && asking.wait => {
                self.named(&self.book.clone(), blocker, &asker);
                live.grace = None;
                live.asked = now;
                live.end = now + asked.wait_ms;
            }
            Reply::Busy(blocker) if !live.held() && !asking.wait => {
                self.named(&self.book.clone(), blocker, &asker);
                let withdrawn = |event: &Event| matches!(event, Event::Withdrawn { .. });
                self.leaves(&live, withdrawn, Rule::EveryChangeIsTold);
                return self.book.end(self.world, live.slot, None);
            }
            _ => return self.odd(Rule::EveryChangeIsTold, reply),
        }
        *self.book.live_mut(live.slot).expect("it is live") = live;
    }

    fn each(&mut self, each: usize, reply: &Reply) {
        let asks = &self.world.each[each];
        let mut before: Vec<Place> = Vec::new();
        for (slot, ask) in asks {
            let asker = self.asker(*slot, *ask);
            let refusal = match self.book.how(*slot) {
                _ if self.book.live(*slot).is_some() => Some(Reply::Error(Error::IdReused)),
                Some(How::Grant(cause, _)) => Some(Reply::Ended(cause)),
                _ if before.iter().any(|other| conflict(self.world, other, &asker)) => {
                    Some(Reply::Error(Error::PartsOverlap))
                }
                _ => None,
            };
            if let Some(refusal) = refusal {
                return self.exactly(reply, &refusal, Rule::EndsAreRemembered);
            }
            before.push(asker);
        }
        let places = self.book.places(self.world);
        let blocked = |asker: &&Place| first_blocker(self.world, &places, asker).is_some();
        match (reply, before.iter().find(blocked)) {
            (Reply::GrantedEach(grants), None) if grants.len() == asks.len() => {
                self.coverage.mark(Mark::GrantedEach);
                for ((slot, ask), grant) in asks.iter().zip(grants) {
                    let live = self.enter(*slot, *ask, grant.token);
                    self.grant(&live, grant, 0);
                }
            }
            (Reply::Busy(blocker), Some(asker)) => {
                self.coverage.mark(Mark::RefusedEach);
                self.named(&self.book.clone(), blocker, asker);
            }
            _ => self.odd(Rule::RefusalsAreTrue, reply),
        }
    }

    fn release(&mut self, slot: u8, reply: &Reply) {
        let right = match (self.book.live(slot).copied(), self.book.how(slot)) {
            (Some(live), _) => {
                if !live.held() {
                    let withdrawn = |event: &Event| matches!(event, Event::Withdrawn { .. });
                    self.leaves(&live, withdrawn, Rule::EveryChangeIsTold);
                }
                let how = match live.held() {
                    true => How::Grant(Cause::Released, None),
                    false => How::Released,
                };
                self.book.end(self.world, slot, Some(how));
                Reply::Released
            }
            (None, Some(How::Grant(Cause::Released, _) | How::Released)) => Reply::Released,
            (None, _) => Reply::NotHeld,
        };
        self.exactly(reply, &right, Rule::EndsAreRemembered);
    }

    fn cancel(&mut self, slot: u8, reply: &Reply) {
        let right = match (self.book.live(slot).copied(), self.book.how(slot)) {
            (Some(live), _) if !live.held() => {
                let withdrawn = |event: &Event| matches!(event, Event::Withdrawn { .. });
                self.leaves(&live, withdrawn, Rule::EveryChangeIsTold);
                self.book.end(self.world, slot, Some(How::Cancelled));
                true
            }
            (Some(_), _) => false,
            (None, how) => how == Some(How::Cancelled),
        };
        self.exactly(reply, &Reply::Cancelled(right), Rule::EndsAreRemembered);
    }

    fn renew(&mut self, slot: u8, lease_ms: Option<u64>, reply: &Reply) {
        let now = self.book.now;
        let Some(&live) = self.book.live(slot).filter(|live| live.held()) else {
            return self.lost(slot, reply);
        };
        let asked = self.world.ask_of(slot, live.ask);
        let mut renewed = Live { unconfirmed: false, ..live };
        renewed.end = live.end.max(live.lease_end(asked, now, lease_ms.unwrap_or(asked.lease_ms)));
        *self.book.live_mut(slot).expect("it is live") = renewed;
        self.exactly(reply, &Reply::Renewed(left(&renewed, now)), Rule::DeadlinesAreKept);
    }

    /// The answer to a command that only a holder may give.
    fn lost(&mut self, slot: u8, reply: &Reply) {
        let loss = match self.book.how(slot) {
            Some(How::Grant(cause, by)) => {
                let by = by.map(|by| self.world.slots[usize::from(by)].party.owner.clone());
                Some(Loss { cause, by })
            }
            _ => None,
        };
        self.exactly(reply, &Reply::Lost(loss), Rule::EndsAreRemembered);
    }

    fn detach(&mut self, slots: &[u8], grace_ms: u64, reply: &Reply) {
        self.exactly(reply, &Reply::Done, Rule::EveryChangeIsTold);
        for slot in slots {
            let Some(&live) = self.book.live(*slot).filter(|live| !live.held()) else { continue };
            if grace_ms == 0 {
                let withdrawn = |event: &Event| matches!(event, Event::Withdrawn { .. });
                self.leaves(&live, withdrawn, Rule::EveryChangeIsTold);
                self.book.end(self.world, *slot, None);
            } else {
                let grace = Some((grace_ms, self.book.now + grace_ms));
                self.book.live_mut(*slot).expect("it is live").grace = grace;
            }
        }
    }

    fn revoke(&mut self, slot: u8, reply: &Reply) {
        self.exactly(reply, &Reply::Revoked(true), Rule::EveryChangeIsTold);
        let Some(&live) = self.book.live(slot) else { return };
        let lost = |event: &Event| {
            matches!(event, Event::Lost { token, cause: Cause::Revoked, reason: Some(reason), .. }
                if *token == live.token && **reason == *REASON)
        };
        self.leaves(&live, lost, Rule::EveryChangeIsTold);
        self.coverage.mark(Mark::Revoked);
        self.book.end(self.world, slot, Some(How::Grant(Cause::Revoked, None)));
    }

    fn promote(&mut self, slot: u8, reply: &Reply) {
        let Some(&live) = self.book.live(slot).filter(|live| live.held()) else {
            return self.lost(slot, reply);
        };
        let asked = self.world.ask_of(slot, live.ask).parts;
        if !asked.list().iter().any(|(_, mode)| promotable(*mode)) {
            let never = Reply::Error(Error::NeverPromotable);
            return self.exactly(reply, &never, Rule::PromoteSupersedes);
        }
        if live.promoted {
            return match reply {
                Reply::Promoted(grant) => self.grant(&live, grant, 0),
                _ => self.odd(Rule::PromoteSupersedes, reply),
            };
        }
        let wanted = Place { parts: asked.promoted(), ..live.place(self.world) };
        let (optimistic, others): (Vec<Place>, Vec<Place>) = self
            .book
            .places(self.world)
            .into_iter()
            .filter(|other| {
                other.held && other.slot != slot && conflict(self.world, other, &wanted)
            })
            .partition(|other| other.parts.list().iter().any(|part| part.1 == Mode::Optimistic));
        match (reply, others.first()) {
            (Reply::Busy(blocker), Some(first)) => {
                self.coverage.mark(Mark::PromotionRefused);
                let part = conflicting_part(self.world, first, &wanted);
                let book = self.book.clone();
                self.described(&book, blocker, first, part.expect("it conflicts").1);
            }
            (Reply::Promoted(grant), None) => {
                self.supersede(slot, &optimistic);
                self.coverage.mark(Mark::Promoted);
                self.token(grant.token);
                let promoted = Live { promoted: true, token: grant.token, ..live };
                *self.book.live_mut(slot).expect("it is live") = promoted;
                self.grant(&promoted, grant, 0);
            }
            _ => self.odd(Rule::PromoteSupersedes, reply),
        }
    }

    /// Each of these lost all it held, in arrival order, and was told by whom.
    fn supersede(&mut self, by: u8, others: &[Place]) {
        let owner = &self.world.slots[usize::from(by)].party.owner;
        for other in others {
            let live = *self.book.live(other.slot).expect("a holder is live");
            let lost = |event: &Event| {
                matches!(event, Event::Lost { token, cause: Cause::Superseded, reason, .. }
                    if *token == live.token && reason.as_ref() == Some(owner))
            };
            self.leaves(&live, lost, Rule::PromoteSupersedes);
            self.coverage.mark(Mark::Superseded);
            let how = How::Grant(Cause::Superseded, Some(by));
            self.book.end(self.world, other.slot, Some(how));
        }
    }

    /// A request as one that only asks.
    fn asker(&self, slot: u8, ask: u8) -> Place {
        let parts = self.world.ask_of(slot, ask).parts;
        Place { slot, seq: u64::MAX, held: false, parts }
    }
}
