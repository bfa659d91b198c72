//! Slots with stable `u32` names, reused last in, first out so that the next one is warm.

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
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: NONE, len: 0 }
    }
}

impl<T> Slab<T> {
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
        let slot = &mut self.slots[at as usize];
        let Slot::Free(next) = *slot else { panic!("free list names a used slot") };
        self.free = next;
        *slot = Slot::Used(value);
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> T {
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

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
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
}
