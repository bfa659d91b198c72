//! One part of the table of keys, without any synchronisation: who holds, who waits, who is next.
//!
//! # The algorithm
//! A key has an *entry* while somebody holds it or waits for it. An entry that nobody waits for
//! needs no more than its state. The first waiter gives it a *queue*, which then knows the holders
//! too; the last one to be granted takes the queue away again. Waiters stand in the queue as
//! *places* in the order of arrival.
//!
//! | state of an entry | means |
//! |---|---|
//! | `Exclusive` | held by one, nobody waits |
//! | `Shared(n)` | held by `n` readers, nobody waits |
//! | `Queued(q)` | somebody waits; queue `q` has the holders |
//!
//! Invariants:
//! - **Q1** A queue is never empty, and its first place is blocked: it asks for exclusive access
//!   while there are holders, or for shared access while there is an exclusive holder, or it stands
//!   in several queues and is blocked in another one.
//! - **Q2** Who is granted is a holder from that moment, before it has been polled: nobody can
//!   come in between.
//! - **Q3** The number of an entry is that of no other live entry of the shard. Guards find their
//!   entry by hash and number, so nothing of a key is kept in a guard, and entries may move.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use slab::Slab;

use crate::Key;
use crate::many::Many;
use crate::queue::{Place, Queue, Turn, Wait};
use crate::wakes::Wakes;

/// How a key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Exclusive,
    Shared(u32),
    Queued(usize),
}

/// A [`State`] in 32 bits: 0 is exclusive, up to `QUEUED` that many readers, from there a queue.
#[derive(Clone, Copy)]
struct PackedState(u32);

const QUEUED: u32 = 1 << 31;

impl PackedState {
    fn unpack(self) -> State {
        match self.0 {
            0 => State::Exclusive,
            readers if readers < QUEUED => State::Shared(readers),
            queue => State::Queued((queue - QUEUED) as usize),
        }
    }
}

impl From<State> for PackedState {
    fn from(state: State) -> PackedState {
        PackedState(match state {
            State::Exclusive => 0,
            State::Shared(readers) => {
                assert!(readers < QUEUED, "more than two thousand million readers of one key");
                readers
            }
            State::Queued(queue) => QUEUED + u32::try_from(queue).expect("fewer than 2^31 queues"),
        })
    }
}

impl From<Mode> for State {
    fn from(mode: Mode) -> State {
        match mode {
            Mode::Exclusive => State::Exclusive,
            Mode::Shared => State::Shared(1),
        }
    }
}

struct Entry<K> {
    key: K,
    /// Q3.
    number: u32,
    state: PackedState,
}

/// How one who asked stands: it holds the key, or has a place in the queue. Two words that fit
/// registers, because this is the answer to every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Of the entry.
    pub(crate) number: u32,
    place: u32,
}

/// The place of one who holds.
const NOWHERE: u32 = u32::MAX;

impl Standing {
    pub(crate) fn holds(number: u32) -> Standing {
        Standing { number, place: NOWHERE }
    }

    /// The place of one who waits (or did when this was made).
    #[inline]
    pub(crate) fn place(self) -> Option<usize> {
        (self.place != NOWHERE).then_some(self.place as usize)
    }
}

/// A key that somebody else has: what was asked for, and how the entry stands.
pub(crate) struct Refused<Q> {
    pub(crate) key: Q,
    pub(crate) number: u32,
    pub(crate) state: State,
}

pub(crate) struct Shard<K> {
    entries: HashTable<Entry<K>>,
    pub(crate) queues: Slab<Queue>,
    pub(crate) places: Slab<Place>,
    /// The numbers from `next` up to `stop` belong to no entry.
    next: u32,
    stop: u32,
}

/// A table with more room than this gives some back when it is less than an eighth full.
const KEEP: usize = 224;

impl<K> Shard<K> {
    pub(crate) fn new() -> Shard<K> {
        Shard {
            entries: HashTable::new(),
            queues: Slab::new(),
            places: Slab::new(),
            next: 0,
            stop: u32::MAX,
        }
    }

    /// Keys that are held or waited for.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Holds the key if that is possible at once; changes nothing otherwise.
    #[inline]
    pub(crate) fn try_ask<Q: Key<K>>(
        &mut self,
        hash: u64,
        key: Q,
        mode: Mode,
        rehash: impl Fn(&K) -> u64,
    ) -> Result<u32, Refused<Q>> {
        let number = self.next_number();
        match self.entries.entry(hash, |e| key.is(&e.key), |e| rehash(&e.key)) {
            TableEntry::Vacant(vacant) => {
                vacant.insert(Entry {
                    key: key.into_key(),
                    number,
                    state: State::from(mode).into(),
                });
                self.next += 1;
                Ok(number)
            }
            TableEntry::Occupied(mut occupied) => {
                let entry = occupied.get_mut();
                match (entry.state.unpack(), mode) {
                    (State::Shared(readers), Mode::Shared) => {
                        entry.state = State::Shared(readers + 1).into();
                        Ok(entry.number)
                    }
                    (state, _) => Err(Refused { key, number: entry.number, state }),
                }
            }
        }
    }

    /// Takes the last place in the queue of a key that may be nobody's yet, for a request that
    /// stands in several. A key that is not needed comes back, to be dropped outside.
    pub(crate) fn stand_many<Q: Key<K>>(
        &mut self,
        hash: u64,
        key: Q,
        rehash: impl Fn(&K) -> u64,
        many: &Arc<Many>,
    ) -> (Standing, Option<Q>) {
        match self.try_ask(hash, key, Mode::Exclusive, rehash) {
            Ok(number) => {
                // Nobody has it: a queue without holders, in which it is first and free.
                let wait = Wait::Many(Arc::clone(many), Turn::Come);
                let standing = self.stand(hash, number, State::Exclusive, Mode::Exclusive, wait);
                let queue = self.places[standing.place as usize].queue;
                self.queues[queue].holders = 0;
                (standing, None)
            }
            Err(Refused { key, number, state }) => {
                many.misses_one();
                let wait = Wait::Many(Arc::clone(many), Turn::ToCome);
                (self.stand(hash, number, state, Mode::Exclusive, wait), Some(key))
            }
        }
    }

    /// Takes the last place in the queue of an entry in that state.
    pub(crate) fn stand(
        &mut self,
        hash: u64,
        number: u32,
        state: State,
        mode: Mode,
        wait: Wait,
    ) -> Standing {
        let queue = match state {
            State::Queued(queue) => queue,
            held => {
                let queue = self.queues.insert(Queue::new(hash, number, held));
                self.set_state(hash, number, State::Queued(queue));
                queue
            }
        };
        let place = self.enqueue(queue, mode, wait);
        let place = u32::try_from(place).ok().filter(|place| *place != NOWHERE);
        Standing { number, place: place.expect("fewer than 2^32 waiters") }
    }

    /// Whether nobody holds the key or waits for it.
    pub(crate) fn is_vacant(&self, hash: u64, key: &K) -> bool
    where
        K: Eq,
    {
        self.entries.find(hash, |e| e.key == *key).is_none()
    }

    /// How many hold the key and how many wait for it.
    pub(crate) fn count(&self, hash: u64, key: &impl Key<K>) -> (usize, usize) {
        let Some(entry) = self.entries.find(hash, |e| key.is(&e.key)) else { return (0, 0) };
        match entry.state.unpack() {
            State::Exclusive => (1, 0),
            State::Shared(readers) => (readers as usize, 0),
            State::Queued(queue) => {
                let queue = &self.queues[queue];
                (queue.holder_count(), queue.len)
            }
        }
    }

    /// How many wait for the key of an entry.
    #[cfg(feature = "observe")]
    pub(crate) fn queue_len(&self, hash: u64, number: u32) -> usize {
        match self.state(hash, number) {
            State::Queued(queue) => self.queues[queue].len,
            _ => 0,
        }
    }

    /// One holder less. Of the last one this returns the key, to be dropped once the shard is
    /// unlocked. If somebody waits nothing is done yet: the caller goes on with
    /// [`Shard::release_queued`] for the queue that this returns as an error.
    #[inline]
    pub(crate) fn release(
        &mut self,
        hash: u64,
        number: u32,
        rehash: impl Fn(&K) -> u64,
    ) -> Result<Option<K>, usize> {
        let Ok(mut found) = self.entries.find_entry(hash, |e| e.number == number) else {
            unreachable!("a holder has an entry");
        };
        let state = &mut found.get_mut().state;
        match state.0 {
            0 | 1 => {
                let (entry, _) = found.remove();
                self.give_back(rehash);
                Ok(Some(entry.key))
            }
            readers if readers < QUEUED => {
                state.0 -= 1;
                Ok(None)
            }
            queue => Err((queue - QUEUED) as usize),
        }
    }

    pub(crate) fn release_queued(
        &mut self,
        queue: usize,
        rehash: impl Fn(&K) -> u64,
        wakes: &mut Wakes<K>,
    ) {
        self.queues[queue].release();
        self.advance(queue, rehash, wakes);
    }

    /// From exclusive to shared, in one step; readers at the front of the queue come in too.
    pub(crate) fn downgrade(
        &mut self,
        hash: u64,
        number: u32,
        rehash: impl Fn(&K) -> u64,
        wakes: &mut Wakes<K>,
    ) {
        match self.state(hash, number) {
            State::Queued(queue) => {
                self.queues[queue].holders = 1;
                self.advance(queue, rehash, wakes);
            }
            _ => self.set_state(hash, number, State::Shared(1)),
        }
    }

    /// From shared to exclusive, if there is no other holder. It does not look at waiters.
    pub(crate) fn try_upgrade(&mut self, hash: u64, number: u32) -> bool {
        match self.state(hash, number) {
            State::Shared(1) => {
                self.set_state(hash, number, State::Exclusive);
                true
            }
            State::Queued(queue) => self.queues[queue].upgrade(),
            _ => false,
        }
    }

    /// The key of an entry.
    pub(crate) fn key(&self, hash: u64, number: u32) -> &K {
        let entry = self.entries.find(hash, |e| e.number == number);
        &entry.expect("a holder has an entry").key
    }

    /// Grants everyone at the front of a queue who has become free; ends the queue if it is empty
    /// then, and the entry if nobody holds it either.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        queue: usize,
        rehash: impl Fn(&K) -> u64,
        wakes: &mut Wakes<K>,
    ) {
        self.grant_front(queue, wakes);
        if self.queues[queue].len == 0 {
            self.end_queue(queue, rehash, wakes);
        }
    }

    #[inline(never)]
    fn end_queue(&mut self, queue: usize, rehash: impl Fn(&K) -> u64, wakes: &mut Wakes<K>) {
        let ended = self.queues.remove(queue);
        if let Some(held) = ended.held() {
            self.set_state(ended.hash, ended.number, held);
            return;
        }
        let found = self.entries.find_entry(ended.hash, |e| e.number == ended.number);
        let (entry, _) = found.ok().expect("a queue has an entry").remove();
        wakes.push_key(entry.key);
        self.give_back(rehash);
    }

    fn state(&self, hash: u64, number: u32) -> State {
        let entry = self.entries.find(hash, |e| e.number == number);
        entry.expect("who holds or waits has an entry").state.unpack()
    }

    fn set_state(&mut self, hash: u64, number: u32, state: State) {
        let entry = self.entries.find_mut(hash, |e| e.number == number);
        entry.expect("who holds or waits has an entry").state = state.into();
    }

    #[inline]
    fn next_number(&mut self) -> u32 {
        if self.next == self.stop {
            self.find_numbers();
        }
        self.next
    }

    /// The widest range of numbers that no entry has. Needed once in thousands of millions of keys.
    #[cold]
    fn find_numbers(&mut self) {
        let mut used: Vec<u32> = self.entries.iter().map(|entry| entry.number).collect();
        used.push(u32::MAX);
        used.sort_unstable();
        let mut start = 0;
        let mut widest = (0, 0);
        for number in used {
            if number - start > widest.1 - widest.0 {
                widest = (start, number);
            }
            start = number.saturating_add(1);
        }
        assert!(widest.0 < widest.1, "fewer than 2^32 keys are held at once");
        (self.next, self.stop) = widest;
    }

    /// Room that was needed once and is not any more goes back to the allocator.
    #[inline]
    fn give_back(&mut self, rehash: impl Fn(&K) -> u64) {
        let (used, room) = (self.entries.len(), self.entries.capacity());
        if room > KEEP && used * 8 < room {
            self.shrink(rehash);
        }
    }

    #[cold]
    fn shrink(&mut self, rehash: impl Fn(&K) -> u64) {
        self.entries.shrink_to(self.entries.len() * 2, |entry| rehash(&entry.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(shard: &mut Shard<u64>, key: u64) -> u32 {
        shard.try_ask(key, key, Mode::Exclusive, |key| *key).ok().expect("nobody has it")
    }

    #[test]
    fn numbers_are_given_out_again_only_when_they_are_free() {
        let mut shard = Shard::new();
        shard.stop = 3;
        assert_eq!([0, 1, 2].map(|key| ask(&mut shard, key)), [0, 1, 2]);
        assert_eq!(shard.release(1, 1, |key| *key), Ok(Some(1)));
        // As if everything above 5 had been given out and is still held.
        for (key, number) in [(10, 5), (11, u32::MAX - 1)] {
            (shard.next, shard.stop) = (number, number + 1);
            assert_eq!(ask(&mut shard, key), number);
        }
        assert_eq!(ask(&mut shard, 20), 6, "the widest gap");
        (shard.next, shard.stop) = (7, 7);
        assert_eq!(shard.release(10, 5, |key| *key), Ok(Some(10)));
        assert_eq!(ask(&mut shard, 21), 7);
    }

    #[test]
    fn room_is_given_back() {
        let mut shard = Shard::new();
        let numbers: Vec<u32> = (0..10_000).map(|key| ask(&mut shard, key)).collect();
        assert!(shard.entries.capacity() >= 10_000);
        for (key, number) in numbers.into_iter().enumerate() {
            assert_eq!(shard.release(key as u64, number, |key| *key), Ok(Some(key as u64)));
        }
        assert_eq!(shard.len(), 0);
        assert!(shard.entries.capacity() <= KEEP, "{}", shard.entries.capacity());
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry<u64>>(), 16);
    }
}
