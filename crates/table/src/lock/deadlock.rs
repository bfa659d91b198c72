//! Cycles of owners that wait for each other, among requests that asked for detection.
//!
//! A cycle comes up when a request would queue, and that is checked before it does. It can also
//! come up while everyone in it waits already, though only around an owner who just got something
//! (others now wait for that) or just lost an E (it may have to wait for those it could pass). Such
//! owners are *troubled*; `settle` looks at them.

use std::collections::{BTreeSet, VecDeque};

use super::Asker;
use crate::board::Board;
use crate::board::slab::NONE;
use crate::{Acquire, Text};

impl Board {
    /// The cycle that a new request would close by waiting.
    pub(crate) fn cycle_of_new(&self, ask: &Acquire, owner: u32) -> Option<Vec<Text>> {
        // Without another request of its owner that takes part, nobody can be waiting for it.
        if owner == NONE || self.parties.owner(owner).detecting == 0 {
            return None;
        }
        self.cycle(Asker::new(ask, owner), owner)
    }

    pub(crate) fn owner_on_cycle(&self, owner: u32) -> bool {
        let Some(node) = self.parties.live_owner(owner) else { return false };
        node.waiting.iter().any(|(_, at)| self.cycle_of(*at).is_some())
    }

    pub(crate) fn youngest_on_cycle(&self) -> Option<(u32, Vec<Text>)> {
        self.youngest_first().find_map(|at| Some((at, self.cycle_of(at)?)))
    }

    fn cycle_of(&self, at: u32) -> Option<Vec<Text>> {
        let takes_part = self.requests[at].waiting() && self.requests[at].detect;
        takes_part.then(|| self.cycle(Asker::live(self, at), self.owner_of(at)))?
    }

    /// Breadth first from the asker through those it waits for, back to its own owner.
    fn cycle(&self, asker: Asker<'_>, owner: u32) -> Option<Vec<Text>> {
        // Each step: an owner reached, and the step it was reached from.
        let mut steps: Vec<(u32, usize)> = vec![(owner, 0)];
        let mut seen = BTreeSet::from([owner]);
        let mut queue = VecDeque::from([(asker, 0)]);
        while let Some((asker, from)) = queue.pop_front() {
            for blocker in self.blockers(asker) {
                if !self.requests[blocker].detect {
                    continue;
                }
                let reached = self.owner_of(blocker);
                if reached == owner {
                    return Some(self.path(&steps, from));
                }
                if seen.insert(reached) {
                    steps.push((reached, from));
                    let waiting = self.parties.owner(reached).waiting.iter();
                    let waiting = waiting.filter(|(_, at)| self.requests[*at].detect);
                    queue.extend(waiting.map(|(_, at)| (Asker::live(self, *at), steps.len() - 1)));
                }
            }
        }
        None
    }

    fn path(&self, steps: &[(u32, usize)], mut at: usize) -> Vec<Text> {
        let mut path = vec![self.parties.owner(steps[at].0).name.clone()];
        while at != 0 {
            at = steps[at].1;
            path.push(self.parties.owner(steps[at].0).name.clone());
        }
        path.reverse();
        path
    }
}
