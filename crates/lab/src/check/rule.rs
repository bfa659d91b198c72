//! The lock rules written down a second time, from `docs/semantics.md` and not from the
//! crate under test: what overlaps, which modes go together, who is in the way of whom. Slow and
//! obvious on purpose; the checker believes this file and nothing else.

use std::fmt;

use keylatch_table::Mode;

use super::world::World;

/// One resource of a request (its number in the world) and how it is locked.
pub type PartOf = (u8, Mode);

/// The most resources a request of a world has.
pub const MOST_PARTS: usize = 2;

/// The resources of a request, in the order asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parts {
    list: [PartOf; MOST_PARTS],
    count: u8,
}

impl Parts {
    /// These, at most [`MOST_PARTS`].
    pub fn new(parts: &[PartOf]) -> Parts {
        let mut list = [(0, Mode::Shared); MOST_PARTS];
        list[..parts.len()].copy_from_slice(parts);
        Parts { list, count: parts.len() as u8 }
    }

    /// As a slice.
    pub fn list(&self) -> &[PartOf] {
        &self.list[..usize::from(self.count)]
    }

    /// With every S and O turned into E.
    pub fn promoted(mut self) -> Parts {
        for (_, mode) in &mut self.list[..usize::from(self.count)] {
            if promotable(*mode) {
                *mode = Mode::Cumulative;
            }
        }
        self
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list().fmt(f)
    }
}

/// A request that holds or waits, or that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which of the world's requests.
    pub slot: u8,
    /// Its arrival number; `u64::MAX` for one that only asks.
    pub seq: u64,
    /// Whether it holds.
    pub held: bool,
    /// What.
    pub parts: Parts,
}

/// Whether a mode can be promoted.
pub fn promotable(mode: Mode) -> bool {
    matches!(mode, Mode::Shared | Mode::Optimistic)
}

/// Rows are held, columns asked, in the order S E X O.
/// `y` granted, `-` not, `o` only with the same explicit owner.
const TOGETHER: [&[u8; 4]; 4] = [b"y---", b"-o--", b"----", b"---y"];

/// Whether `asked` may join `held`.
pub fn together(held: Mode, asked: Mode, same_owner: bool) -> bool {
    let column = |mode| match mode {
        Mode::Shared => 0,
        Mode::Cumulative => 1,
        Mode::Exclusive => 2,
        Mode::Optimistic => 3,
    };
    match TOGETHER[column(held)][column(asked)] {
        b'y' => true,
        b'o' => same_owner,
        _ => false,
    }
}

/// Whether two requests have the same explicit owner.
pub fn same_owner(world: &World, a: u8, b: u8) -> bool {
    let owner = |slot: u8| world.slots[usize::from(slot)].explicit_owner();
    owner(a).is_some() && owner(a) == owner(b)
}

/// Whether one resource of `before` gets in the way of one of `asked`.
fn parts_conflict(world: &World, before: PartOf, asked: PartOf, same_owner: bool) -> bool {
    world.overlap(before.0, asked.0) && !together(before.1, asked.1, same_owner)
}

/// The first resource of `before`, in its order, that gets in the way of `asked`.
pub fn conflicting_part(world: &World, before: &Place, asked: &Place) -> Option<PartOf> {
    let same = same_owner(world, before.slot, asked.slot);
    let parts = before.parts.list().iter().copied();
    let mut parts = parts.filter(|theirs| {
        asked.parts.list().iter().any(|ours| parts_conflict(world, *theirs, *ours, same))
    });
    parts.next()
}

/// Whether two requests conflict.
pub fn conflict(world: &World, before: &Place, asked: &Place) -> bool {
    conflicting_part(world, before, asked).is_some()
}

/// Whether `asker` may pass `waiter`: that one conflicts directly with an E which the asker's own
/// explicit owner holds.
pub fn may_pass(world: &World, places: &[Place], asker: &Place, waiter: &Place) -> bool {
    places.iter().filter(|place| place.held).any(|holder| {
        let same = same_owner(world, holder.slot, waiter.slot);
        same_owner(world, holder.slot, asker.slot)
            && holder.parts.list().iter().any(|e| {
                e.1 == Mode::Cumulative
                    && waiter.parts.list().iter().any(|w| parts_conflict(world, *e, *w, same))
            })
    })
}

/// Everyone who blocks `asker`, in the order of `places`.
pub fn blockers<'a>(
    world: &'a World,
    places: &'a [Place],
    asker: &'a Place,
) -> impl Iterator<Item = &'a Place> {
    places.iter().filter(move |other| {
        other.slot != asker.slot
            && conflict(world, other, asker)
            && (other.held || (other.seq < asker.seq && !may_pass(world, places, asker, other)))
    })
}

/// The one that a refusal names: the holder with the lowest seq, else the waiter with the lowest.
pub fn first_blocker(world: &World, places: &[Place], asker: &Place) -> Option<Place> {
    blockers(world, places, asker).min_by_key(|place| (!place.held, place.seq)).copied()
}
