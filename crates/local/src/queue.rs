//! The queue of a key: places in the order of arrival, in a circular list.

use std::sync::Arc;
use std::task::Waker;

use crate::many::Many;
use crate::shard::{Mode, Shard, State};
use crate::wakes::Wakes;

const NONE: usize = usize::MAX;
const EXCLUSIVE: u32 = u32::MAX;

pub(crate) struct Queue {
    /// Of the entry that it belongs to.
    pub(crate) hash: u64,
    pub(crate) number: u32,
    /// How many hold the key; `EXCLUSIVE` for one that does so alone. 0 only while the first place
    /// waits for other keys too.
    pub(crate) holders: u32,
    head: usize,
    /// Q1: never 0 between steps.
    pub(crate) len: usize,
}

impl Queue {
    pub(crate) fn new(hash: u64, number: u32, held: State) -> Queue {
        let holders = match held {
            State::Shared(readers) => readers,
            _ => EXCLUSIVE,
        };
        Queue { hash, number, holders, head: NONE, len: 0 }
    }

    pub(crate) fn holder_count(&self) -> usize {
        if self.holders == EXCLUSIVE { 1 } else { self.holders as usize }
    }

    /// The state of an entry with these holders and without a queue; `None` without holders.
    pub(crate) fn held(&self) -> Option<State> {
        match self.holders {
            0 => None,
            EXCLUSIVE => Some(State::Exclusive),
            readers => Some(State::Shared(readers)),
        }
    }

    pub(crate) fn release(&mut self) {
        self.holders = if self.holders == EXCLUSIVE { 0 } else { self.holders - 1 };
    }

    /// From one reader to exclusive.
    pub(crate) fn upgrade(&mut self) -> bool {
        let sole = self.holders == 1;
        if sole {
            self.holders = EXCLUSIVE;
        }
        sole
    }

    fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.holders == 0,
            Mode::Shared => self.holders != EXCLUSIVE,
        }
    }

    fn admit(&mut self, mode: Mode) {
        self.holders = match mode {
            Mode::Exclusive => EXCLUSIVE,
            Mode::Shared => self.holders + 1,
        };
    }
}

/// Somebody in a queue, or just granted and not aware of it yet.
pub(crate) struct Place {
    pub(crate) queue: usize,
    prev: usize,
    next: usize,
    mode: Mode,
    wait: Wait,
}

pub(crate) enum Wait {
    /// Nobody has asked how it stands.
    New,
    Task(Waker),
    /// Out of the queue, and a holder (Q2).
    Granted,
    /// One of the places of a request for several keys.
    Many(Arc<Many>, Turn),
}

/// Whether a request for several keys is first and free in one of its queues. Once it is, it stays
/// so until it has all of them or leaves: nobody passes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    ToCome,
    Come,
}

/// With less room than this the list of places is not worth giving back.
const KEEP: usize = 64;

impl<K> Shard<K> {
    /// The last place.
    pub(crate) fn enqueue(&mut self, queue: usize, mode: Mode, wait: Wait) -> usize {
        let at = self.places.vacant_key();
        let head = &mut self.queues[queue];
        head.len += 1;
        let (prev, next) = match head.head {
            NONE => {
                head.head = at;
                (at, at)
            }
            first => {
                let last = std::mem::replace(&mut self.places[first].prev, at);
                self.places[last].next = at;
                (last, first)
            }
        };
        self.places.insert(Place { queue, prev, next, mode, wait })
    }

    /// Takes a place out of its queue; it stays in the list of places.
    #[inline]
    fn unlink(&mut self, at: usize) {
        let Place { queue, prev, next, .. } = self.places[at];
        self.places[prev].next = next;
        self.places[next].prev = prev;
        let queue = &mut self.queues[queue];
        queue.len -= 1;
        if queue.len == 0 {
            queue.head = NONE;
        } else if queue.head == at {
            queue.head = next;
        }
    }

    #[inline]
    pub(crate) fn grant_front(&mut self, queue: usize, wakes: &mut Wakes<K>) {
        while self.queues[queue].len > 0 {
            let at = self.queues[queue].head;
            let mode = self.places[at].mode;
            if !self.queues[queue].admits(mode) {
                return;
            }
            if let Wait::Many(many, turn) = &mut self.places[at].wait {
                if *turn == Turn::ToCome {
                    *turn = Turn::Come;
                    if many.misses_none_more() {
                        wakes.push_ready(Arc::clone(many));
                    }
                }
                return;
            }
            self.unlink(at);
            self.queues[queue].admit(mode);
            if let Wait::Task(waker) = std::mem::replace(&mut self.places[at].wait, Wait::Granted) {
                wakes.push(waker);
            }
        }
    }

    /// Whether the place has been granted; if so it is gone, and the caller holds the key. If not,
    /// `waker` is told when it is; the waker that it replaces is returned, to be dropped outside.
    #[inline]
    pub(crate) fn is_granted(&mut self, at: usize, waker: &Waker) -> Result<(), Option<Waker>> {
        let wait = &mut self.places[at].wait;
        match wait {
            Wait::Granted => {
                self.remove_place(at);
                Ok(())
            }
            Wait::Task(old) if old.will_wake(waker) => Err(None),
            Wait::Task(old) => Err(Some(std::mem::replace(old, waker.clone()))),
            Wait::New => {
                *wait = Wait::Task(waker.clone());
                Err(None)
            }
            Wait::Many(..) => unreachable!("a request for several keys asks elsewhere"),
        }
    }

    /// Leaves the queue. If the place has been granted already it is gone, and the caller holds the
    /// key: then this returns true.
    pub(crate) fn leave(
        &mut self,
        at: usize,
        rehash: impl Fn(&K) -> u64,
        wakes: &mut Wakes<K>,
    ) -> bool {
        let granted = matches!(self.places[at].wait, Wait::Granted);
        if !granted {
            let queue = self.places[at].queue;
            self.unlink(at);
            self.advance(queue, rehash, wakes);
        }
        if let Wait::Task(waker) = self.remove_place(at) {
            wakes.push_stale(waker);
        }
        granted
    }

    /// Whether the place is the first in its queue and the key is free.
    pub(crate) fn is_ready(&self, at: usize) -> bool {
        let place = &self.places[at];
        let queue = &self.queues[place.queue];
        queue.head == at && queue.admits(place.mode)
    }

    /// Grants a place that [`Shard::is_ready`] and stands in several queues.
    pub(crate) fn grant_many(
        &mut self,
        at: usize,
        rehash: impl Fn(&K) -> u64,
        wakes: &mut Wakes<K>,
    ) {
        let Place { queue, mode, .. } = self.places[at];
        self.unlink(at);
        self.queues[queue].admit(mode);
        self.advance(queue, rehash, wakes);
        self.remove_place(at);
    }

    #[inline]
    fn remove_place(&mut self, at: usize) -> Wait {
        let place = self.places.remove(at);
        if self.places.is_empty() && self.places.capacity() > KEEP {
            self.places.shrink_to_fit();
            self.queues.shrink_to_fit();
        }
        place.wait
    }
}
