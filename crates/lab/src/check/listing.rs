//! What the table shows after a step: its listing and its totals, held against the rules by
//! themselves, and against the book of what was told.

use std::collections::BTreeSet;

use keylatch_table::{Entry, State, Stats};

use super::book::{Book, Live, NEVER};
use super::cycle;
use super::fault::{Faults, Rule};
use super::rule::{Parts, Place, conflict, first_blocker};
use super::world::World;

/// A request as the table lists it.
struct Listed {
    place: Place,
    token: u64,
    lease_ms: Option<u64>,
    arrived: u64,
    held_ms: u64,
}

/// Checks what a table shows.
pub(super) fn check(world: &World, book: &Book, entries: &[Entry], faults: &mut Faults) {
    let listed = read(world, entries, faults);
    let places: Vec<Place> = listed.iter().map(|listed| listed.place).collect();
    by_itself(world, &places, faults);
    let tokens: BTreeSet<u64> = listed.iter().map(|listed| listed.token).collect();
    let waiting = places.iter().filter(|place| !place.held).count();
    let distinct = tokens.len() + waiting.saturating_sub(1) == listed.len();
    faults.expect(distinct, Rule::TokenOrder, || format!("tokens {tokens:?} of {places:?}"));
    against(world, book, &listed, faults);
}

/// The rules that any listing keeps, whatever was told.
fn by_itself(world: &World, places: &[Place], faults: &mut Faults) {
    for (at, place) in places.iter().enumerate() {
        if place.held {
            for other in places[..at].iter().filter(|other| other.held) {
                faults.expect(!conflict(world, other, place), Rule::MutualExclusion, || {
                    format!("{other:?} and {place:?} both hold")
                });
            }
        } else {
            let blocked = first_blocker(world, places, place).is_some();
            faults.expect(blocked, Rule::NoLostWaiter, || format!("{place:?} is free"));
        }
    }
    faults.expect(places.is_sorted_by(|a, b| a.seq < b.seq), Rule::ArrivalOrder, || {
        format!("the listing is out of order: {places:?}")
    });
    let youngest = cycle::youngest(world, places);
    faults.expect(youngest.is_none(), Rule::NoCycleIsLeft, || {
        format!("slot {youngest:?} stands on a cycle")
    });
}

/// The listing says what was told.
fn against(world: &World, book: &Book, listed: &[Listed], faults: &mut Faults) {
    let same = |listed: &Listed| book.live(listed.place.slot).is_some();
    let complete = listed.len() == book.live.len() && listed.iter().all(same);
    faults.expect(complete, Rule::EveryChangeIsTold, || {
        let slots: Vec<u8> = listed.iter().map(|listed| listed.place.slot).collect();
        format!("listed are {slots:?}, told were {:?}", book.live)
    });
    for listed in listed {
        let Some(live) = book.live(listed.place.slot) else { continue };
        let place = listed.place;
        faults.expect(place.seq == live.seq, Rule::ArrivalOrder, || {
            format!("seq {} of {live:?}", place.seq)
        });
        faults.expect(place.parts == live.parts(world), Rule::AllOrNothing, || {
            format!("{place:?} of {live:?}")
        });
        faults.expect(place.held == live.held(), Rule::EveryChangeIsTold, || {
            format!("{place:?} of {live:?}")
        });
        faults.expect(listed.token == live.token, Rule::TokenOrder, || {
            format!("token {} of {live:?}", listed.token)
        });
        let deadline = listed.lease_ms.map_or(NEVER, |left| book.now + left);
        let since = if live.held() { live.granted } else { live.arrived };
        let times = deadline == live.deadline()
            && listed.arrived == live.arrived
            && listed.held_ms == book.now - since;
        faults.expect(times, Rule::DeadlinesAreKept, || {
            format!("until {deadline}, arrived {}, of {live:?}", listed.arrived)
        });
        faults.expect(live.deadline() > book.now, Rule::DeadlinesAreKept, || {
            format!("{live:?} is due")
        });
    }
}

/// The totals are those of the book, so nothing is kept that nobody holds or waits for.
pub(super) fn check_stats(world: &World, book: &Book, stats: &Stats, faults: &mut Faults) {
    let held = book.live.iter().filter(|live| live.held()).count() as u64;
    let parts = |live: &Live| live.parts(world).list().to_vec();
    let areas: BTreeSet<u8> = book.live.iter().flat_map(parts).map(|(area, _)| area).collect();
    let slot = |live: &Live| &world.slots[usize::from(live.slot)];
    let owners: BTreeSet<&str> =
        book.live.iter().filter_map(|live| slot(live).explicit_owner()).collect();
    faults.expect(stats.token == book.token, Rule::TokenOrder, || {
        format!("the counter is at {}, and {} was given out", stats.token, book.token)
    });
    faults.expect(stats.seq == book.seq, Rule::ArrivalOrder, || {
        format!("the counter is at {}, and {} have arrived", stats.seq, book.seq)
    });
    faults.expect(stats.ended == book.ended.len() as u64, Rule::EndsAreRemembered, || {
        format!("{} are remembered instead of {:?}", stats.ended, book.ended)
    });
    let right = Stats {
        now: book.now,
        token: stats.token,
        seq: stats.seq,
        held,
        waiting: book.live.len() as u64 - held,
        resources: areas.len() as u64,
        owners: owners.len() as u64,
        ended: stats.ended,
        ..Stats::default()
    };
    faults.expect(*stats == right, Rule::NothingLeft, || format!("{stats:?}, not {right:?}"));
}

/// Puts the entries of each request together again.
fn read(world: &World, entries: &[Entry], faults: &mut Faults) -> Vec<Listed> {
    let mut listed = Vec::new();
    for group in entries.chunk_by(|a, b| a.id == b.id) {
        let first = &group[0];
        let area = |entry: &Entry| world.area_of(&entry.resource);
        let parts: Option<Vec<_>> =
            group.iter().map(|entry| Some((area(entry)?, entry.mode))).collect();
        let (Some(slot), Some(parts)) = (world.slot_of(&first.id), parts) else {
            faults.add(Rule::NothingLeft, format_args!("nobody asked for {group:?}"));
            continue;
        };
        let asks = &world.slots[usize::from(slot)].asks;
        let whole = asks
            .iter()
            .any(|ask| ask.parts.list() == parts || ask.parts.promoted().list() == parts);
        let alike = |entry: &Entry| {
            (entry.seq, entry.token, entry.state, entry.lease_ms)
                == (first.seq, first.token, first.state, first.lease_ms)
        };
        if !whole
            || !group.iter().all(alike)
            || (first.token == 0) != (first.state == State::Waiting)
        {
            faults.add(Rule::AllOrNothing, format_args!("{group:?}"));
            continue;
        }
        let held = first.state == State::Held;
        listed.push(Listed {
            place: Place { slot, seq: first.seq, held, parts: Parts::new(&parts) },
            token: first.token,
            lease_ms: first.lease_ms,
            arrived: first.arrived,
            held_ms: first.held_ms,
        });
    }
    listed
}
