//! The worlds. Each is small enough to be explored to its end and puts one group of rules under
//! pressure; the quick ones are cut to what a gate can wait for.

use keylatch_table::Settings;

use super::coverage::Mark;
use super::world::{Times, Verbs, World};

/// How much to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Seconds: for every change.
    Quick,
    /// Minutes: for a release.
    Full,
}

/// All worlds of a size.
pub fn worlds(size: Size) -> Vec<World> {
    vec![
        fields(size),
        crowd(size),
        promote(size),
        pairs(size),
        time(size),
        hold(size),
        pass(size),
        cycles(size),
        ended(size),
    ]
}

/// Every mode on every shape of a resource with two fields.
fn every_mode(areas: &[&str], modes: &str) -> Vec<String> {
    let all = areas.iter().flat_map(|area| modes.chars().map(move |mode| format!("{mode} {area}")));
    all.collect()
}

fn texts(asks: &[String]) -> Vec<&str> {
    asks.iter().map(String::as_str).collect()
}

fn fields(size: Size) -> World {
    let areas: &[&str] = match size {
        Size::Quick => &["r(A,B)", "r(A,@)", "r(@,B)"],
        Size::Full => &["r(A,B)", "r(A,@)", "r(@,B)", "r(@,@)", "r(C,D)"],
    };
    let modes = if size == Size::Quick { "SEX" } else { "SEXO" };
    let asks = every_mode(areas, modes);
    let world = World::new("fields", "3 owners, every mode on fields with wildcards")
        .slot("ann", &texts(&asks))
        .slot("bob", &texts(&asks));
    let world = match size {
        Size::Quick => world.slot("cid", &["S r(A,B)", "E r(A,@)", "X r(@,B)"]),
        Size::Full => world.slot("cid", &texts(&asks)).slot("cid", &["E r(A,B)", "S r(A,@)"]),
    };
    world
        .verbs(Verbs { tries: true, cancels: true, ..Verbs::default() })
        .marks(&[Mark::BehindWaiter, Mark::WokenTogether])
}

fn crowd(size: Size) -> World {
    let quick = ["S r(A,B)", "X r(A,@)", "S r(@,B)"];
    let full = ["S r(A,B)", "X r(A,B)", "S r(A,@)", "X r(@,B)"];
    let asks: &[&str] = if size == Size::Quick { &quick } else { &full };
    let world = World::new("crowd", "more requests, some without an owner: longer queues")
        .slot("ann", asks)
        .slot("bob", asks)
        .slot("[c]", asks)
        .slot("[c]", asks);
    let world = match size {
        Size::Quick => world,
        Size::Full => world.slot("[d]", asks),
    };
    let mut world = world
        .verbs(Verbs { tries: size == Size::Full, cancels: true, ..Verbs::default() })
        .marks(&[Mark::BehindWaiter, Mark::WokenTogether]);
    world.parking = true;
    world
}

fn promote(size: Size) -> World {
    let quick = ["O r(A,B)", "S r(A,@)", "E r(@,B)"];
    let full = ["O r(A,B)", "O r(A,@)", "S r(A,@)", "S r(@,B)", "E r(@,B)"];
    let asks: &[&str] = if size == Size::Quick { &quick } else { &full };
    let world = World::new("promote", "O and S become E, past those who wait")
        .slot("ann", asks)
        .slot("ann", &["O r(A,B)", "E r(A,@)"])
        .slot("bob", asks)
        .slot("[c]", &["O r(@,@)", "X r(A,B)"]);
    let world = match size {
        Size::Quick => world,
        Size::Full => world.slot("bob", &["O r(@,B)", "S r(A,B)", "E r(A,B)"]),
    };
    world.verbs(Verbs { promotes: true, cancels: true, ..Verbs::default() }).marks(&[
        Mark::Promoted,
        Mark::Superseded,
        Mark::PromotionRefused,
        Mark::Passed,
    ])
}

fn pairs(size: Size) -> World {
    let quick = ["X m & X n", "S m & E n", "S n"];
    let full = ["X m(A) & X n(B)", "S m(@) & E n(B)", "E n(@) & S m(A)", "X n(B)", "S m(A)"];
    let asks: &[&str] = if size == Size::Quick { &quick } else { &full };
    let mut world = World::new("pairs", "two resources, all or nothing; several requests at once")
        .slot("ann", asks)
        .slot("bob", asks)
        .slot("cid", asks)
        .slot("bob", if size == Size::Quick { &asks[2..] } else { &asks[1..] })
        .verbs(Verbs {
            tries: true,
            cancels: true,
            nonsense: true,
            promotes: true,
            ..Verbs::default()
        })
        .marks(&[Mark::PairWoken, Mark::BehindWaiter, Mark::GrantedEach, Mark::RefusedEach]);
    let last = asks.len() as u8 - 1;
    world.each = vec![vec![(0, last), (1, last)], vec![(1, 1), (3, 0)], vec![(2, 0)], vec![]];
    if size == Size::Full {
        world.each.push(vec![(0, 3), (2, 4), (3, 3)]);
    }
    world
}

/// Leases, waits, graces and detached waiters, in steps of a millisecond and in leaps.
fn time(size: Size) -> World {
    let times = |wait_ms, lease_ms| Times { wait_ms, lease_ms, max_hold_ms: 0 };
    let world = World::new("time", "leases, waits, graces: what ends when")
        .slot_with("ann", times(1, 2), &["S r(A,@)", "X r(A,B)"])
        .slot_with("cid", times(3, 0), &["E r(A,B)"]);
    let world = match size {
        Size::Quick => world.slot_with("bob", times(2, 1), &["S r(@,B)"]),
        Size::Full => world.slot_with("bob", times(2, 1), &["S r(@,B)", "X r(A,B)"]).slot_with(
            "cid",
            times(2, 2),
            &["S r(A,B)", "E r(@,B)"],
        ),
    };
    let (renews, detaches): (Vec<Option<u64>>, Vec<u64>) = match size {
        Size::Quick => (vec![None], vec![0, 2]),
        Size::Full => (vec![None, Some(3)], vec![0, 2]),
    };
    world
        .verbs(Verbs {
            repeats: true,
            cancels: size == Size::Quick,
            renews,
            detaches,
            detaches_all: vec![1],
            ticks: vec![1, 3],
            ..Verbs::default()
        })
        .marks(&[
            Mark::Expired,
            Mark::TimedOut,
            Mark::GraceOver,
            Mark::WokenDetached,
            Mark::Confirmed,
        ])
}

/// The longest hold, which renewals do not move.
fn hold(size: Size) -> World {
    let times = |wait_ms, lease_ms, max_hold_ms| Times { wait_ms, lease_ms, max_hold_ms };
    let world = World::new("hold", "the longest hold, renewed and detached")
        .slot_with("ann", times(3, 2, 3), &["O r(A,B)", "X r(A,@)"])
        .slot_with("bob", times(2, 0, 3), &["O r(A,B)", "E r(@,B)"]);
    let world = match size {
        Size::Quick => world,
        Size::Full => world.slot_with("cid", times(3, 1, 2), &["O r(A,@)", "S r(A,B)"]),
    };
    world
        .verbs(Verbs {
            repeats: true,
            renews: vec![None, Some(0), Some(4)],
            detaches: vec![1, 4],
            revokes: true,
            promotes: true,
            ticks: vec![1, 2],
            ..Verbs::default()
        })
        .marks(&[
            Mark::Expired,
            Mark::TimedOut,
            Mark::WokenDetached,
            Mark::Confirmed,
            Mark::Revoked,
            Mark::Superseded,
        ])
}

/// One owner goes on while others queue behind its E.
fn pass(size: Size) -> World {
    let own = ["E r(A,B)", "E r(A,@)", "S r(@,B)"];
    let other = ["X r(A,B)", "S r(A,@)", "E r(@,B)"];
    let (own, other) = match size {
        Size::Quick => (&own[..2], &other[..]),
        Size::Full => (&own[..], &other[..]),
    };
    let world = World::new("pass", "cumulative E, and passing those who wait behind it")
        .slot("ann", own)
        .slot("ann", own)
        .slot("ann", &["X r(C,B)", "S r(A,B)", "E r(@,@)"])
        .slot("bob", other);
    let mut world = match size {
        Size::Quick => world,
        Size::Full => world.slot("bob", &["E r(A,B)", "S r(@,B)"]),
    };
    world.parking = true;
    world.verbs(Verbs { cancels: true, tries: size == Size::Quick, ..Verbs::default() }).marks(&[
        Mark::Passed,
        Mark::BehindWaiter,
        Mark::WokenTogether,
    ])
}

/// Owners that stand for one thread of control each.
fn cycles(size: Size) -> World {
    // With these a cycle can also come up by itself: while ann holds E n it passes bob's n & k, and
    // once it releases, it waits behind it.
    let asks: [&[&str]; 5] = match size {
        Size::Quick => [&["E n"], &["E n & X m"], &["X n & X k"], &["X m", "E n"], &["X m & X k"]],
        Size::Full => [
            &["E n", "S n", "X m"],
            &["E n & X m", "S n & E k"],
            &["X n & X k", "X m", "E n"],
            &["X m", "E n", "S n"],
            &["X m & X k", "E n & S k"],
        ],
    };
    World::new("cycles", "owners that wait for each other")
        .slot("ann", asks[0])
        .slot("ann", asks[1])
        .slot("bob", asks[2])
        .slot("bob", asks[3])
        .slot("cid", asks[4])
        .detect()
        .verbs(Verbs { cancels: true, promotes: true, ..Verbs::default() })
        .marks(&[Mark::CycleRefused, Mark::CycleBroken])
}

/// Ids that have ended and are remembered for a while, in a bounded number.
fn ended(size: Size) -> World {
    let times = Times { wait_ms: 2, lease_ms: 2, max_hold_ms: 0 };
    let mut world = World::new("ended", "ids that ended are remembered, some time and so many")
        .slot_with("ann", times, &["O r(A,B)", "X r(A,@)"])
        .slot_with("bob", times, &["O r(A,B)"]);
    world.settings = Settings { ended: 2, ended_ms: 2, ..Settings::default() };
    if size == Size::Full {
        world = world.slot_with("[c]", times, &["E r(@,B)"]).slot_with(
            "ann",
            times,
            &["E r(A,B)", "S r(@,B)"],
        );
        world.settings.ended = 3;
    }
    world.each = vec![vec![(0, 0), (1, 0)]];
    world
        .verbs(Verbs {
            nonsense: true,
            repeats: true,
            cancels: true,
            releases_waiting: true,
            promotes: true,
            ticks: vec![1],
            ..Verbs::default()
        })
        .marks(&[Mark::Remembered, Mark::Superseded, Mark::Expired, Mark::TimedOut])
}
