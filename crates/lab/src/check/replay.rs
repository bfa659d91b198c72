//! Follows one step through what the table told: the reply and the events, in their order. Each
//! thing told is held against the checker's own rules at the very moment it is said to have
//! happened, and then written into the book. What was *not* told shows when `listing` compares the
//! book with the table.
//!
//! Only `Tick` moves time here, so a step has one part that is due or one command, never both;
//! that both together are the same as one after the other is checked apart (`step`).

mod command;
mod tell;

use std::slice::Iter;

use keylatch_table::{Applied, Cause, Event, Reply};

use super::action::Action;
use super::book::{Book, How, Live};
use super::coverage::{Coverage, Mark};
use super::cycle;
use super::fault::{Faults, Rule};
use super::rule::{Place, conflict, first_blocker, may_pass};
use super::world::World;

/// The state of following one step.
pub(super) struct Replay<'a> {
    world: &'a World,
    coverage: &'a Coverage,
    book: Book,
    events: Iter<'a, Event>,
    faults: &'a mut Faults,
}

/// The book after a step that was told so.
pub(super) fn replay(
    world: &World,
    coverage: &Coverage,
    before: &Book,
    action: Action,
    applied: &Applied,
    faults: &mut Faults,
) -> Book {
    let mut book = before.clone();
    book.now += action.ms();
    book.forget(world);
    let mut replay = Replay { world, coverage, book, events: applied.events.iter(), faults };
    replay.due();
    replay.command(action, &applied.reply);
    replay.woken();
    replay.book
}

impl Replay<'_> {
    /// What is due leaves: waiters first, then holders, each by (deadline, seq).
    fn due(&mut self) {
        let now = self.book.now;
        let mut due: Vec<Live> = self.book.live.clone();
        due.retain(|live| live.deadline() <= now);
        due.sort_by_key(|live| (live.held(), live.deadline(), live.seq));
        let before = self.book.clone();
        for live in due {
            let event = self.events.next();
            let kept = match event {
                Some(Event::Lost { token, cause: Cause::Expired, reason: None, .. }) => {
                    live.held() && *token == live.token
                }
                Some(Event::TimedOut { blocker, .. }) => {
                    self.named(&before, blocker, &live.place(self.world));
                    !live.held() && live.end == live.deadline()
                }
                Some(Event::Withdrawn { .. }) => !live.held() && live.end > live.deadline(),
                _ => false,
            };
            self.faults.expect(kept, Rule::DeadlinesAreKept, || {
                format!("{event:?} where {live:?} was due")
            });
            self.about(&live, event);
            self.coverage.mark(match (live.held(), live.end == live.deadline()) {
                (true, _) => Mark::Expired,
                (false, true) => Mark::TimedOut,
                (false, false) => Mark::GraceOver,
            });
            let how = live.held().then_some(How::Grant(Cause::Expired, None));
            self.book.end(self.world, live.slot, how);
        }
    }

    /// What follows: waiters are granted in arrival order, each one only if it is free there and
    /// then; and those on a cycle are refused, the youngest first.
    fn woken(&mut self) {
        let mut last_seq = 0;
        let mut woken = 0;
        while let Some(event) = self.events.next() {
            match event {
                Event::Granted { id, grant } => {
                    let live = self.world.slot_of(id).and_then(|slot| self.book.live(slot));
                    let Some(&live) = live.filter(|live| !live.held()) else {
                        self.faults.add(Rule::EveryChangeIsTold, format_args!("{event:?}"));
                        continue;
                    };
                    self.faults.expect(live.seq > last_seq, Rule::ArrivalOrder, || {
                        format!("{live:?} was granted after seq {last_seq}")
                    });
                    last_seq = live.seq;
                    woken += 1;
                    self.may_have(&live.place(self.world));
                    let live = self.hold(live, grant.token);
                    self.grant(&live, grant, self.book.now - live.asked);
                }
                Event::Deadlocked { id, .. } => {
                    let youngest = cycle::youngest(self.world, &self.book.places(self.world));
                    let slot = self.world.slot_of(id);
                    self.faults.expect(
                        slot.is_some() && slot == youngest,
                        Rule::NoCycleIsLeft,
                        || format!("{slot:?} was refused and not {youngest:?}"),
                    );
                    if let Some(&live) = slot.and_then(|slot| self.book.live(slot)) {
                        self.about(&live, Some(event));
                        self.book.end(self.world, live.slot, None);
                    }
                    last_seq = 0; // the grants start anew
                    self.coverage.mark(Mark::CycleBroken);
                }
                _ => self.faults.add(Rule::EveryChangeIsTold, format_args!("{event:?}")),
            }
        }
        self.coverage.mark_if(woken > 1, Mark::WokenTogether);
    }

    /// A waiter holds from now on.
    fn hold(&mut self, mut live: Live, token: u64) -> Live {
        let ask = self.world.ask_of(live.slot, live.ask);
        self.coverage.mark(Mark::Woken);
        self.coverage.mark_if(ask.parts.list().len() > 1, Mark::PairWoken);
        self.coverage.mark_if(live.grace.is_some(), Mark::WokenDetached);
        self.token(token);
        live.granted = self.book.now;
        live.token = token;
        live.unconfirmed = live.grace.is_some();
        let lease_ms = live.grace.map_or(ask.lease_ms, |(ms, _)| ms);
        live.grace = None;
        live.end = live.lease_end(ask, self.book.now, lease_ms);
        *self.book.live_mut(live.slot).expect("it waited") = live;
        live
    }

    /// A request was granted: it must be free at this moment.
    fn may_have(&mut self, asker: &Place) {
        let places = self.book.places(self.world);
        if let Some(blocker) = first_blocker(self.world, &places, asker) {
            let rule = match blocker.held {
                true => Rule::MutualExclusion,
                false => Rule::ArrivalOrder,
            };
            self.faults.add(rule, format_args!("{asker:?} was granted in spite of {blocker:?}"));
        }
        let passes = |other: &&Place| {
            !other.held && other.seq < asker.seq && conflict(self.world, other, asker)
        };
        if let Some(waiter) = places.iter().find(passes) {
            let may = may_pass(self.world, &places, asker, waiter);
            self.coverage.mark_if(may, Mark::Passed);
        }
    }

    /// A new token was given out.
    fn token(&mut self, token: u64) {
        let last = self.book.token;
        self.faults.expect(token > last, Rule::TokenOrder, || format!("{token} after {last}"));
        self.book.token = last.max(token);
    }

    /// A reply that does not go with the command.
    fn odd(&mut self, rule: Rule, reply: &Reply) {
        self.faults.add(rule, format_args!("the reply {reply:?}"));
    }
}
