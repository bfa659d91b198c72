//! Who is in whose way: overlap, the table of modes, the queue rule and its one exception.

use keylatch_table::{Blocker, Field, Mode, Part, Party, Resource};

use super::{Bug, Model, request::Request};

/// Same name, same number of fields, each pair of fields equal or with a wildcard.
pub(crate) fn overlap(a: &Resource, b: &Resource) -> bool {
    a.name() == b.name()
        && a.arity() == b.arity()
        && a.fields().zip(b.fields()).all(|(a, b)| a == b || a == Field::Any || b == Field::Any)
}

fn same_owner(a: &Party, b: &Party) -> bool {
    a.explicit && b.explicit && a.owner == b.owner
}

fn together(a: (Mode, &Party), b: (Mode, &Party)) -> bool {
    match (a.0, b.0) {
        (Mode::Shared, Mode::Shared) | (Mode::Optimistic, Mode::Optimistic) => true,
        (Mode::Cumulative, Mode::Cumulative) => same_owner(a.1, b.1),
        _ => false,
    }
}

fn parts_conflict(a: (&Part, &Party), b: (&Part, &Party)) -> bool {
    overlap(&a.0.resource, &b.0.resource) && !together((a.0.mode, a.1), (b.0.mode, b.1))
}

/// The first part of `other` that conflicts with some part of `request`.
pub(crate) fn first_conflict<'a>(other: &'a Request, request: &Request) -> Option<&'a Part> {
    let (theirs, ours) = (&other.asked.party, &request.asked.party);
    other
        .parts
        .iter()
        .find(|their| request.parts.iter().any(|our| parts_conflict((their, theirs), (our, ours))))
}

pub(crate) fn conflicts(a: &Request, b: &Request) -> bool {
    first_conflict(a, b).is_some()
}

/// Whether `waiter` conflicts directly with an E part of `holder`.
fn conflicts_with_held_e(waiter: &Request, holder: &Request) -> bool {
    holder.parts.iter().filter(|held| held.mode == Mode::Cumulative).any(|held| {
        waiter
            .parts
            .iter()
            .any(|asked| parts_conflict((held, &holder.asked.party), (asked, &waiter.asked.party)))
    })
}

impl Model {
    /// Everyone who is in the way of `request`: holders by seq, then earlier waiters by seq.
    pub(crate) fn blockers(&self, request: &Request) -> Vec<&Request> {
        let mut blockers = self
            .holders()
            .filter(|holder| holder.seq != request.seq && conflicts(holder, request))
            .collect::<Vec<_>>();
        if self.has_bug(Bug::QueueHeadsOnly) {
            blockers.retain(|holder| self.heads(request).any(|head| head == holder.seq));
        }
        if !self.has_bug(Bug::PassesTheQueue) {
            blockers.extend(self.waiters().filter(|waiter| {
                waiter.seq < request.seq
                    && conflicts(waiter, request)
                    && !self.may_pass(request, waiter)
            }));
        }
        blockers
    }

    /// A request with an explicit owner may pass a waiter that conflicts with a held E of that owner.
    fn may_pass(&self, request: &Request, waiter: &Request) -> bool {
        self.holders().any(|holder| {
            same_owner(&holder.asked.party, &request.asked.party)
                && conflicts_with_held_e(waiter, holder)
        })
    }

    /// The holders that someone who looks only at the first overlapping one would see.
    fn heads<'a>(&'a self, request: &'a Request) -> impl Iterator<Item = u64> + 'a {
        request.parts.iter().filter_map(|part| {
            self.holders()
                .find(|holder| {
                    holder.parts.iter().any(|held| overlap(&held.resource, &part.resource))
                })
                .map(|holder| holder.seq)
        })
    }

    /// The one that a refusal of `request` names; `None` if it is free.
    pub(crate) fn blocker(&self, request: &Request) -> Option<Blocker> {
        self.blockers(request).first().map(|blocker| self.describe(blocker, request))
    }

    /// `blocker` as `request` is told of it.
    pub(crate) fn describe(&self, blocker: &Request, request: &Request) -> Blocker {
        Blocker {
            owner: blocker.asked.party.owner.clone(),
            explicit: blocker.asked.party.explicit,
            mode: first_conflict(blocker, request).expect("a blocker conflicts").mode,
            state: blocker.state(),
            token: blocker.token(),
            held_ms: blocker.age(self.now),
            lease_ms: blocker.left(self.now),
        }
    }
}
