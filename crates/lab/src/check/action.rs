//! What can be done next, and the command that does it.

use keylatch_table::{Command, Detach, Target};

use super::book::Book;
use super::world::World;

/// One step of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A request asks, or repeats itself.
    Ask {
        /// Which request.
        slot: u8,
        /// For what.
        ask: u8,
        /// Whether it would wait.
        wait: bool,
    },
    /// Several requests ask at once.
    Each(u8),
    /// A request is given up.
    Release(u8),
    /// A request stops waiting.
    Cancel(u8),
    /// A request becomes E.
    Promote(u8),
    /// A lease is extended.
    Renew(u8, Option<u64>),
    /// A waiter's connection is gone for at most this long.
    Detach(u8, u64),
    /// All connections are.
    DetachAll(u64),
    /// An administrator ends a grant.
    Revoke(u8),
    /// Time passes.
    Tick(u64),
}

/// The reason that [`Action::Revoke`] gives.
pub const REASON: &str = "because";

/// Everything that can be done next.
pub fn actions(world: &World, book: &Book, out: &mut Vec<Action>) {
    for slot in 0..world.slots.len() as u8 {
        match book.live(slot) {
            None => of_absent(world, slot, out),
            Some(live) if live.held() => of_holder(world, slot, live.ask, out),
            Some(live) => of_waiter(world, slot, live.ask, out),
        }
    }
    let verbs = &world.verbs;
    for (each, asks) in world.each.iter().enumerate() {
        if verbs.nonsense || asks.iter().all(|(slot, _)| book.live(*slot).is_none()) {
            out.push(Action::Each(each as u8));
        }
    }
    if book.live.iter().any(|live| !live.held()) {
        out.extend(verbs.detaches_all.iter().map(|grace| Action::DetachAll(*grace)));
    }
    if book.next_deadline().is_some() || !book.ended.is_empty() {
        out.extend(verbs.ticks.iter().map(|ms| Action::Tick(*ms)));
    }
}

fn of_absent(world: &World, slot: u8, out: &mut Vec<Action>) {
    for ask in 0..world.slots[usize::from(slot)].asks.len() as u8 {
        out.push(Action::Ask { slot, ask, wait: true });
        if world.verbs.tries {
            out.push(Action::Ask { slot, ask, wait: false });
        }
    }
    if world.verbs.nonsense {
        out.extend([
            Action::Release(slot),
            Action::Cancel(slot),
            Action::Promote(slot),
            Action::Renew(slot, None),
        ]);
    }
}

fn of_holder(world: &World, slot: u8, ask: u8, out: &mut Vec<Action>) {
    let verbs = &world.verbs;
    out.push(Action::Release(slot));
    if verbs.promotes {
        out.push(Action::Promote(slot));
    }
    if verbs.revokes {
        out.push(Action::Revoke(slot));
    }
    if verbs.repeats {
        out.push(Action::Ask { slot, ask, wait: true });
    }
    out.extend(verbs.renews.iter().map(|lease_ms| Action::Renew(slot, *lease_ms)));
    if verbs.nonsense {
        out.push(Action::Cancel(slot));
        out.extend(other_content(world, slot, ask));
    }
}

fn of_waiter(world: &World, slot: u8, ask: u8, out: &mut Vec<Action>) {
    let verbs = &world.verbs;
    if verbs.cancels {
        out.push(Action::Cancel(slot));
    }
    if verbs.releases_waiting {
        out.push(Action::Release(slot));
    }
    if verbs.repeats {
        out.push(Action::Ask { slot, ask, wait: true });
        out.push(Action::Ask { slot, ask, wait: false });
    }
    out.extend(verbs.detaches.iter().map(|grace| Action::Detach(slot, *grace)));
    if verbs.nonsense {
        out.extend([Action::Promote(slot), Action::Renew(slot, None)]);
        out.extend(other_content(world, slot, ask));
    }
}

/// The same id for something else.
fn other_content(world: &World, slot: u8, ask: u8) -> Option<Action> {
    let asks = world.slots[usize::from(slot)].asks.len() as u8;
    (asks > 1).then_some(Action::Ask { slot, ask: (ask + 1) % asks, wait: true })
}

impl Action {
    /// How far time moves.
    pub fn ms(self) -> u64 {
        if let Action::Tick(ms) = self { ms } else { 0 }
    }

    /// The command.
    pub fn command(self, world: &World, book: &Book) -> Command {
        let id = |slot: u8| world.slots[usize::from(slot)].id.clone();
        let target = |slot: u8| Target::Id(id(slot));
        match self {
            Action::Ask { slot, ask, wait } => {
                let wait_ms = if wait { world.ask_of(slot, ask).wait_ms } else { 0 };
                Command::Acquire(world.acquire(slot, ask, wait_ms))
            }
            Action::Each(each) => {
                let asks = world.each[usize::from(each)].iter();
                Command::AcquireEach(
                    asks.map(|(slot, ask)| world.acquire(*slot, *ask, 0)).collect(),
                )
            }
            Action::Release(slot) => Command::Release(target(slot)),
            Action::Cancel(slot) => Command::Cancel(target(slot)),
            Action::Promote(slot) => Command::Promote(target(slot)),
            Action::Renew(slot, lease_ms) => Command::Renew(target(slot), lease_ms),
            Action::Detach(slot, grace_ms) => {
                Command::Detach(Detach { ids: Some(vec![id(slot)]), grace_ms })
            }
            Action::DetachAll(grace_ms) => Command::Detach(Detach { ids: None, grace_ms }),
            Action::Revoke(slot) => {
                Command::Revoke(book.live(slot).map_or(0, |live| live.token), REASON.into())
            }
            Action::Tick(_) => Command::Tick,
        }
    }

    /// In words, with the names of the world.
    pub fn words(self, world: &World) -> String {
        let who = |slot: u8| format!("{}#{slot}", world.slots[usize::from(slot)].party.owner);
        let what = |slot: u8, ask: u8| {
            let parts = world.ask_of(slot, ask).parts;
            let parts = parts.list().iter().map(|(area, mode)| {
                format!("{} {}", mode.letter(), world.areas[usize::from(*area)].resource)
            });
            parts.collect::<Vec<_>>().join(" & ")
        };
        match self {
            Action::Ask { slot, ask, wait } => {
                let verb = if wait { "asks for" } else { "tries" };
                format!("{} {verb} {}", who(slot), what(slot, ask))
            }
            Action::Each(each) => {
                let asks = world.each[usize::from(each)].iter();
                let asks: Vec<_> = asks
                    .map(|(slot, ask)| format!("{} {}", who(*slot), what(*slot, *ask)))
                    .collect();
                format!("at once: {}", asks.join(", "))
            }
            Action::Release(slot) => format!("{} releases", who(slot)),
            Action::Cancel(slot) => format!("{} cancels", who(slot)),
            Action::Promote(slot) => format!("{} promotes", who(slot)),
            Action::Renew(slot, None) => format!("{} renews", who(slot)),
            Action::Renew(slot, Some(ms)) => format!("{} renews for {ms} ms", who(slot)),
            Action::Detach(slot, ms) => format!("{} is detached for {ms} ms", who(slot)),
            Action::DetachAll(ms) => format!("all are detached for {ms} ms"),
            Action::Revoke(slot) => format!("{} is revoked", who(slot)),
            Action::Tick(ms) => format!("{ms} ms pass"),
        }
    }
}
