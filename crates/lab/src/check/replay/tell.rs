//! Whether what a reply or an event says of a request is what the book has.

use keylatch_table::{Blocker, Event, Grant, Mode, Part, Reply, State};

use super::Replay;
use crate::check::book::{Book, Live, NEVER};
use crate::check::coverage::Mark;
use crate::check::fault::Rule;
use crate::check::rule::{Place, conflicting_part, first_blocker};

impl Replay<'_> {
    /// A refusal names the first that is in the way, and says the truth about it.
    pub(super) fn named(&mut self, book: &Book, blocker: &Blocker, asker: &Place) {
        let places = book.places(self.world);
        match first_blocker(self.world, &places, asker) {
            Some(first) => {
                self.coverage.mark_if(!first.held, Mark::BehindWaiter);
                let part = conflicting_part(self.world, &first, asker);
                self.described(book, blocker, &first, part.expect("a blocker conflicts").1);
            }
            None => self.faults.add(
                Rule::RefusalsAreTrue,
                format_args!("{asker:?} is free and was refused because of {blocker:?}"),
            ),
        }
    }

    /// What is said of one that is in the way with a resource in this mode.
    pub(super) fn described(&mut self, book: &Book, said: &Blocker, first: &Place, mode: Mode) {
        let live = book.live(first.slot).expect("who is in the way is live");
        let since = if live.held() { live.granted } else { live.arrived };
        let party = &self.world.slots[usize::from(first.slot)].party;
        let right = Blocker {
            owner: party.owner.clone(),
            explicit: party.explicit,
            mode,
            state: if first.held { State::Held } else { State::Waiting },
            token: live.token,
            held_ms: book.now - since,
            lease_ms: left(live, book.now),
        };
        self.faults.expect(*said == right, Rule::RefusalsAreTrue, || {
            format!("{said:?} instead of {right:?}")
        });
    }

    /// A grant says what the book has of the holder, who waited so long since it last asked.
    pub(super) fn grant(&mut self, live: &Live, grant: &Grant, waited_ms: u64) {
        let now = self.book.now;
        self.faults.expect(grant.token == live.token, Rule::TokenOrder, || {
            format!("{grant:?} of {live:?}")
        });
        let times = grant.lease_ms == left(live, now) && grant.waited_ms == waited_ms;
        self.faults
            .expect(times, Rule::DeadlinesAreKept, || format!("{grant:?} of {live:?} at {now}"));
    }

    /// The next event says that this request left.
    pub(super) fn leaves(&mut self, live: &Live, right: impl Fn(&Event) -> bool, rule: Rule) {
        let event = self.events.next();
        self.faults
            .expect(event.is_some_and(right), rule, || format!("{event:?} where {live:?} left"));
        self.about(live, event);
    }

    /// An event about a request that left says which one and what it was.
    pub(super) fn about(&mut self, live: &Live, event: Option<&Event>) {
        let Some(
            Event::TimedOut { id, about, .. }
            | Event::Withdrawn { id, about }
            | Event::Deadlocked { id, about, .. }
            | Event::Lost { id, about, .. },
        ) = event
        else {
            return self.faults.add(Rule::EveryChangeIsTold, "no event of an end");
        };
        let slot = &self.world.slots[usize::from(live.slot)];
        let parts = live.parts(self.world);
        let parts: Vec<Part> = parts
            .list()
            .iter()
            .map(|(area, mode)| {
                Part::new(self.world.areas[usize::from(*area)].resource.clone(), *mode)
            })
            .collect();
        let right = *id == slot.id
            && about.seq == live.seq
            && about.owner == slot.party.owner
            && about.principal == slot.party.principal
            && about.parts == parts;
        self.faults
            .expect(right, Rule::EveryChangeIsTold, || format!("{id:?} {about:?} of {live:?}"));
    }

    /// A reply that must be exactly this.
    pub(super) fn exactly(&mut self, reply: &Reply, right: &Reply, rule: Rule) {
        self.faults.expect(reply == right, rule, || format!("{reply:?} instead of {right:?}"));
    }
}

/// What is left of a lease or a wait.
pub(super) fn left(live: &Live, now: u64) -> Option<u64> {
    let deadline = live.deadline();
    (deadline != NEVER).then(|| deadline.saturating_sub(now))
}
