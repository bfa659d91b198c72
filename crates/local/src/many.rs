//! A request for several keys at once: all or nothing.
//!
//! It enters the queues of all its keys in one step, while all their shards are locked (in the
//! order of their numbers, so that two such steps never lock each other out). So of two requests
//! that share keys one is before the other in *every* queue they share, and the first of all is
//! never blocked by a later one: there can be no cycle, whatever the order in which callers name
//! their keys. It holds nothing until it is first and free in all of its queues, and then gets all
//! of them in one step.
//!
//! It counts in how many queues its turn has yet to come. Once its turn has come in one, that stays
//! so: nobody passes it. So the one who lets the last turn come grants everything.
//!
//! Invariant **M1**: its places stand in their queues, or it has been granted, or it has left; that
//! changes only while all of its shards are locked.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use crate::sync::{Mutex, lock};

pub(crate) struct Many {
    /// Where it stands; set before its shards are unlocked for the first time.
    pub(crate) parts: OnceLock<Box<[Part]>>,
    /// In how many of its queues it is not first and free yet. So what is released one by one is
    /// counted, instead of all of its queues being looked at each time.
    missing: AtomicUsize,
    outcome: Mutex<Outcome>,
}

/// One of its keys.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) hash: u64,
    /// Of the entry.
    pub(crate) number: u32,
    pub(crate) place: usize,
}

enum Outcome {
    Waiting(Option<Waker>),
    Granted,
    /// It has left its queues.
    Left,
}

impl Many {
    pub(crate) fn new() -> Many {
        Many {
            parts: OnceLock::new(),
            missing: AtomicUsize::new(0),
            outcome: Mutex::new(Outcome::Waiting(None)),
        }
    }

    /// While it enters its queues.
    pub(crate) fn misses_one(&self) {
        self.missing.fetch_add(1, Ordering::Relaxed);
    }

    /// It is first and free in one queue more; true if that was the last.
    pub(crate) fn misses_none_more(&self) -> bool {
        // Whoever counts the last one then locks all shards, and sees all that was done there.
        self.missing.fetch_sub(1, Ordering::Relaxed) == 1
    }

    pub(crate) fn parts(&self) -> &[Part] {
        self.parts.get().expect("set before anyone else sees it")
    }

    /// Call with all of its shards locked, if it waits. Its places are the caller's to remove.
    pub(crate) fn grant(&self) -> Option<Waker> {
        match std::mem::replace(&mut *lock(&self.outcome), Outcome::Granted) {
            Outcome::Waiting(waker) => waker,
            Outcome::Granted | Outcome::Left => unreachable!("M1"),
        }
    }

    /// Call with all of its shards locked. An error if it has been granted. Otherwise its places are
    /// the caller's to remove, and its waker to drop once the shards are unlocked.
    pub(crate) fn leave(&self) -> Result<Option<Waker>, ()> {
        let mut outcome = lock(&self.outcome);
        match std::mem::replace(&mut *outcome, Outcome::Left) {
            Outcome::Waiting(waker) => Ok(waker),
            Outcome::Granted => {
                *outcome = Outcome::Granted;
                Err(())
            }
            Outcome::Left => unreachable!("it leaves once"),
        }
    }

    pub(crate) fn waits(&self) -> bool {
        matches!(*lock(&self.outcome), Outcome::Waiting(_))
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Poll<()> {
        let mut outcome = lock(&self.outcome);
        match &mut *outcome {
            Outcome::Granted => Poll::Ready(()),
            Outcome::Left => unreachable!("who has left does not ask"),
            Outcome::Waiting(waiting) => {
                let old = waiting.replace(waker.clone());
                drop(outcome);
                drop(old);
                Poll::Pending
            }
        }
    }
}
