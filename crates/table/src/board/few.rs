//! A set of requests in the order of arrival: mostly none or one, sometimes thousands. Whoever waits for a key that
//! goes from one to the next is alone in two of these on the way, and a tree would be made and given back for each.

use std::collections::BTreeSet;

/// Its seq, and its slot.
type Place = (u64, u32);

#[derive(Clone, Debug, Default)]
pub(crate) enum Few {
    #[default]
    None,
    One(Place),
    /// Never fewer than two.
    Many(BTreeSet<Place>),
}

impl Few {
    pub(crate) fn len(&self) -> usize {
        match self {
            Few::None => 0,
            Few::One(_) => 1,
            Few::Many(places) => places.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Few::None)
    }

    /// Adds a place that is not in it.
    pub(crate) fn insert(&mut self, place: Place) {
        match self {
            Few::None => *self = Few::One(place),
            Few::One(other) => *self = Few::Many(BTreeSet::from([*other, place])),
            Few::Many(places) => drop(places.insert(place)),
        }
    }

    /// Takes a place out, if it is in it.
    pub(crate) fn remove(&mut self, place: Place) {
        match self {
            Few::One(other) if *other == place => *self = Few::None,
            Few::None | Few::One(_) => {}
            Few::Many(places) => {
                places.remove(&place);
                self.keep_few();
            }
        }
    }

    /// Takes out the one that arrived first.
    pub(crate) fn pop_first(&mut self) -> Option<Place> {
        match self {
            Few::None => None,
            Few::One(place) => {
                let place = *place;
                *self = Few::None;
                Some(place)
            }
            Few::Many(places) => {
                let first = places.pop_first();
                self.keep_few();
                first
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Place> {
        let (one, many) = match self {
            Few::None => (None, None),
            Few::One(place) => (Some(place), None),
            Few::Many(places) => (None, Some(places)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    fn keep_few(&mut self) {
        if let Few::Many(places) = self
            && places.len() == 1
            && let Some(place) = places.first()
        {
            *self = Few::One(*place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_set_in_the_order_of_seq_whatever_its_size() {
        // Every way to put three in and to take three out again, beside a set.
        let places = [(5, 1), (2, 9), (7, 0)];
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        for (inwards, outwards) in orders.iter().flat_map(|a| orders.map(|b| (a, b))) {
            let (mut few, mut set) = (Few::default(), BTreeSet::new());
            let same = |few: &Few, set: &BTreeSet<Place>| {
                assert!(few.iter().eq(set.iter()), "{few:?} {set:?}");
                assert_eq!((few.len(), few.is_empty()), (set.len(), set.is_empty()));
            };
            for at in inwards {
                few.insert(places[*at]);
                set.insert(places[*at]);
                same(&few, &set);
            }
            let mut popped = few.clone();
            let first = std::iter::from_fn(|| popped.pop_first());
            assert!(first.eq(set.iter().copied()));
            for at in outwards {
                few.remove((99, 99));
                few.remove(places[at]);
                set.remove(&places[at]);
                same(&few, &set);
            }
        }
    }
}
