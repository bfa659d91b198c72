//! What is neither file nor message nor clock and still comes from outside: chance, and threads for what takes
//! long. In the simulation (`sim`) both follow from a seed, and a task belongs to the node that began it.

use rand::RngCore;

/// Bits that nobody can foresee.
pub(crate) fn random() -> u64 {
    #[cfg(test)]
    if let Some(bits) = super::sim::random() {
        return bits;
    }
    rand::rng().next_u64()
}

/// Does what blocks on a thread where it may.
pub(crate) fn spawn_blocking(work: impl FnOnce() + Send + 'static) {
    #[cfg(test)]
    if super::sim::is_here() {
        return work();
    }
    drop(tokio::task::spawn_blocking(work));
}

/// A task that ends, or stops for a while, with the node that begins it.
#[cfg(not(test))]
pub(crate) fn of_this_node<F: Future>(task: F) -> F {
    task
}

#[cfg(test)]
pub(crate) use super::sim::{of_this_node, spawn};
#[cfg(not(test))]
pub(crate) use tokio::spawn;
