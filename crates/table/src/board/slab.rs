//! Slots with stable `u32` names, reused last in, first out so that the next one is warm.
//!
//! A slab can keep how it was at one moment, for a snapshot that is written while the table goes on:
//! slots are then copied before they change, some neighbours with them.

/// "No slot".
pub(crate) const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
enum Slot<T> {
    Free(u32),
    Used(T),
}

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// The slot freed last; each free slot names the one freed before it.
    free: u32,
    len: u32,
    past: Option<Box<Past<T>>>,
}

/// Slots are copied in groups of this many.
const GROUP: usize = 32;

/// What has changed since a moment, as it was then.
#[derive(Clone, Debug)]
struct Past<T> {
    /// How many slots there were.
    length: usize,
    /// Group by group; nothing where nothing has changed.
    groups: Vec<Option<Box<[Slot<T>]>>>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: NONE, len: 0, past: None }
    }
}

impl<T: Clone> Slab<T> {
    /// From now on [`Slab::past`] shows everything as it is at this moment.
    pub(crate) fn keep_past(&mut self) {
        let length = self.slots.len();
        let groups = std::iter::repeat_with(|| None).take(length.div_ceil(GROUP)).collect();
        self.past = Some(Box::new(Past { length, groups }));
    }

    pub(crate) fn drop_past(&mut self) {
        self.past = None;
    }

    pub(crate) fn has_past(&self) -> bool {
        self.past.is_some()
    }

    /// A slot as it was when [`Slab::keep_past`] was called.
    pub(crate) fn past(&self, at: u32) -> &T {
        let group = self.past.as_ref().and_then(|past| past.groups.get(at as usize / GROUP));
        let slot = match group {
            Some(Some(group)) => &group[at as usize % GROUP],
            _ => &self.slots[at as usize],
        };
        let Slot::Used(value) = slot else { panic!("reading a slot that was free") };
        value
    }

    /// To be called before a slot changes.
    #[inline(always)]
    #[allow(clippy::inline_always)] // mostly there is no past to keep
    fn about_to_change(&mut self, at: u32) {
        if self.past.is_some() {
            self.copy_group(at as usize / GROUP);
        }
    }

    #[cold]
    fn copy_group(&mut self, group: usize) {
        let Some(past) = &mut self.past else { return };
        if let Some(place @ None) = past.groups.get_mut(group) {
            let end = past.length.min((group + 1) * GROUP);
            *place = Some(self.slots[group * GROUP..end].into());
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free == NONE {
            self.slots.push(Slot::Used(value));
            return self.slots.len() as u32 - 1;
        }
        let at = self.free;
        self.about_to_change(at);
        let slot = &mut self.slots[at as usize];
        let Slot::Free(next) = *slot else { panic!("free list names a used slot") };
        self.free = next;
        *slot = Slot::Used(value);
        at
    }

    /// Drops what is in a slot.
    pub(crate) fn free(&mut self, at: u32) {
        self.about_to_change(at);
        let slot = &mut self.slots[at as usize];
        assert!(matches!(slot, Slot::Used(_)), "freeing a free slot");
        *slot = Slot::Free(self.free);
        self.free = at;
        self.len -= 1;
    }

    pub(crate) fn remove(&mut self, at: u32) -> T {
        self.about_to_change(at);
        let slot = std::mem::replace(&mut self.slots[at as usize], Slot::Free(self.free));
        let Slot::Used(value) = slot else { panic!("removing a free slot") };
        self.free = at;
        self.len -= 1;
        value
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        match self.slots.get(at as usize)? {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(at, slot)| match slot {
            Slot::Used(value) => Some((at as u32, value)),
            Slot::Free(_) => None,
        })
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, at: u32) -> &T {
        match &self.slots[at as usize] {
            Slot::Used(value) => value,
            Slot::Free(_) => panic!("reading a free slot"),
        }
    }
}

impl<T: Clone> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        self.about_to_change(at);
        match &mut self.slots[at as usize] {
            Slot::Used(value) => value,
            Slot::Free(_) => panic!("writing a free slot"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_reused_last_in_first_out() {
        let mut slab = Slab::default();
        let slots: Vec<u32> = (0..4).map(|value| slab.insert(value)).collect();
        assert_eq!(slots, [0, 1, 2, 3]);
        assert_eq!(slab.remove(1), 1);
        assert_eq!(slab.remove(3), 3);
        assert_eq!((slab.get(0), slab.get(1), slab.get(4)), (Some(&0), None, None));
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(0, &0), (2, &2)]);
        assert_eq!([slab.insert(30), slab.insert(10), slab.insert(40)], [3, 1, 4]);
        assert_eq!(slab.len(), 5);
        slab[4] += 1;
        assert_eq!(slab[4], 41);
    }

    #[test]
    fn the_past_stays_as_it_was_whatever_changes() {
        let mut slab = Slab::default();
        let slots: Vec<u32> = (0..100).map(|value| slab.insert(value)).collect();
        slab.remove(50);
        slab.keep_past();
        slab[3] = -3;
        slab.remove(99);
        slab.remove(40);
        assert_eq!([slab.insert(-40), slab.insert(-99), slab.insert(-50)], [40, 99, 50]);
        assert_eq!(slab.insert(-100), 100, "behind the end of the last group");
        for at in slots.into_iter().filter(|at| *at != 50) {
            assert_eq!(i64::from(*slab.past(at)), i64::from(at));
        }
        assert_eq!((slab[3], slab[40], slab[50], slab[99]), (-3, -40, -50, -99));
        slab.keep_past();
        assert_eq!(*slab.past(3), -3, "another moment");
        slab.drop_past();
        slab[3] = 3;
        assert_eq!((*slab.past(3), slab[3]), (3, 3), "nothing is kept any more");
    }

    #[test]
    #[should_panic(expected = "reading a slot that was free")]
    fn a_slot_that_was_free_has_no_past() {
        let mut slab = Slab::default();
        slab.insert(1);
        slab.remove(0);
        slab.keep_past();
        slab.insert(2);
        slab.past(0);
    }
}
