//! A cluster in a deterministic world: several members (our log on its files, our table, our network layer, what
//! leads and carries) in one thread, with virtual time, a network and disks that fail, nodes that are killed, stopped
//! and replaced, and clients that ask anywhere. Everything follows from a seed, and the same seed gives the same
//! trace; the judge says what must hold whatever happens.
//!
//! Time and tasks are tokio's: a current-thread runtime whose clock stands still while there is something to do.
//! openraft's chance comes from the seed, and so does ours.
//!
//! - `here`: which world and which process the running code is in.
//! - `world`: chance, time, the trace. `net`, `disk`: what carries messages and keeps files.
//! - `nodes`, `server`: processes and what serves in them. `client`, `operator`: who asks.
//! - `faults`: what goes wrong. `judge`: what must hold. `run`: one world from beginning to end.

mod client;
mod disk;
mod faults;
mod here;
mod judge;
mod net;
mod nodes;
mod operator;
mod run;
mod server;
mod tests;
mod world;

pub(crate) use here::{a_moment, disk, is_here, of_this_node, random, spawn, wall, while_it_syncs};

use super::types::{Entry, LogId};
use world::{Plant, note};

/// Whether this mistake is made here.
fn is_planted(plant: Plant) -> bool {
    here::world().is_some_and(|world| world.plant == plant)
}

/// An entry was applied.
pub(crate) fn applied(entry: &Entry, state: impl FnOnce() -> (u64, u32)) {
    let (Some(world), Some(process)) = (here::world(), here::process()) else { return };
    let state = state();
    let (id, name, now) = (entry.log_id, &process.name, world.now());
    let what = judge::describe(entry);
    note!(world, "{name} applies {id}: {:016x} {:08x} {what}", state.0, state.1);
    world.judge.lock().applied(name, entry, state, now);
}

/// A node begins with its own snapshot, if there is one.
pub(crate) fn opened(last: Option<LogId>, state: impl FnOnce() -> (u64, u32)) {
    let (Some(world), Some(process)) = (here::world(), here::process()) else { return };
    note!(world, "{} has a snapshot of {last:?}", process.name);
    world.judge.lock().installed(&process.name, last, state());
}

/// A node was sent a snapshot.
pub(crate) fn installed(last: Option<LogId>, state: impl FnOnce() -> (u64, u32)) {
    if let Some(world) = here::world() {
        world.judge.lock().counts.installed += 1;
    }
    opened(last, state);
}

/// Whether votes are not written down.
pub(crate) fn forgets_votes() -> bool {
    is_planted(Plant::ForgottenVotes)
}

/// Whether a leader's entries count as synced before they are.
pub(crate) fn counts_unsynced() -> bool {
    is_planted(Plant::UnsyncedEntries)
}

/// Whether a batch counts as often as it was sent.
pub(crate) fn counts_twice() -> bool {
    is_planted(Plant::TwiceCounted)
}

/// Whether a leader does not ask the log what time it is.
pub(crate) fn has_own_time() -> bool {
    is_planted(Plant::OwnTime)
}

/// Whether questions are answered by whatever a node knows.
pub(crate) fn reads_stale() -> bool {
    is_planted(Plant::StaleReads)
}

/// Whether snapshots do not say who waits where.
pub(crate) fn forgets_origins() -> bool {
    is_planted(Plant::ForgetfulSnapshots)
}
