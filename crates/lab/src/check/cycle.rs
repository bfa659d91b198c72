//! Deadlock detection written down a second time: who stands on a cycle of owners, and whether a
//! cycle that the table names is one.

use keylatch_table::Text;

use super::rule::{Place, blockers};
use super::world::World;

/// The youngest waiter that stands on a cycle.
pub(super) fn youngest(world: &World, places: &[Place]) -> Option<u8> {
    let mut waiters = places.iter().rev().filter(|place| !place.held);
    waiters
        .find(|place| takes_part(world, place) && stands_on(world, places, place))
        .map(|p| p.slot)
}

/// Whether `asker`, waiting, stands (or would stand) on a cycle: whether its owner is reached from
/// the owners it waits for, through all that those wait for.
pub(super) fn stands_on(world: &World, places: &[Place], asker: &Place) -> bool {
    let own = owner(world, asker);
    let mut reached = waits_for(world, places, asker);
    let mut looked = 0;
    while looked < reached.len() {
        let next = reached[looked];
        looked += 1;
        for waiter in waiting_of(world, places, next) {
            for owner in waits_for(world, places, waiter) {
                if !reached.contains(&owner) {
                    reached.push(owner);
                }
            }
        }
    }
    reached.contains(&own)
}

/// Whether `cycle` is one that `asker` would close: each waits for the next, the last for the
/// first, and the first is the asker's owner.
pub(super) fn is_one(world: &World, places: &[Place], asker: &Place, cycle: &[Text]) -> bool {
    let own = owner(world, asker);
    let names: Vec<&str> = cycle.iter().map(|name| &**name).collect();
    let edge = |from: &str, to: &str, first: bool| {
        let asks = first.then_some(asker).into_iter();
        let mut from = asks.chain(waiting_of(world, places, from).into_iter().filter(|_| !first));
        from.any(|waiter| waits_for(world, places, waiter).contains(&to))
    };
    names.first() == Some(&own)
        && (0..names.len()).all(|at| edge(names[at], names[(at + 1) % names.len()], at == 0))
}

fn takes_part(world: &World, place: &Place) -> bool {
    // A world's requests take part or not whatever they ask for.
    world.slots[usize::from(place.slot)].asks.iter().all(|ask| ask.detect)
}

fn owner<'a>(world: &'a World, place: &Place) -> &'a str {
    &world.slots[usize::from(place.slot)].party.owner
}

fn waiting_of<'a>(world: &World, places: &'a [Place], name: &str) -> Vec<&'a Place> {
    let waiting = places.iter().filter(|place| !place.held && takes_part(world, place));
    waiting.filter(|place| owner(world, place) == name).collect()
}

fn waits_for<'a>(world: &'a World, places: &[Place], waiter: &Place) -> Vec<&'a str> {
    blockers(world, places, waiter)
        .filter(|blocker| takes_part(world, blocker))
        .map(|blocker| owner(world, blocker))
        .collect()
}
