//! The holders of a resource and its queue: circular lists of parts in the order of seq.

use super::slab::NONE;
use super::{Board, Crowd, PartNode};

impl Board {
    /// The parts of a circular list from its head, in the order of seq.
    pub(crate) fn list(&self, head: u32) -> impl Iterator<Item = u32> {
        let mut at = head;
        std::iter::from_fn(move || {
            let here = (at != NONE).then_some(at)?;
            let next = self.part(here).next;
            at = if next == head { NONE } else { next };
            Some(here)
        })
    }

    /// The parts before `from`, or from the last one if that is [`NONE`], going back to the head.
    pub(crate) fn list_back(&self, head: u32, from: u32) -> impl Iterator<Item = u32> {
        let mut at = match from {
            NONE => self.part(head).prev,
            _ if from == head => NONE,
            _ => self.part(from).prev,
        };
        std::iter::from_fn(move || {
            let here = (at != NONE).then_some(at)?;
            at = if here == head { NONE } else { self.part(here).prev };
            Some(here)
        })
    }

    pub(crate) fn seq_of(&self, part: u32) -> u64 {
        self.requests[self.part(part).request].seq
    }

    /// Hangs a part on its resource, at its place by seq: nearly always the last.
    pub(super) fn link(&mut self, part: u32, seq: u64, waiting: bool) {
        let PartNode { resource, mode, .. } = *self.part(part);
        let node = self.resources.get_mut(resource);
        if !waiting {
            let head = node.holders;
            let head = self.splice(part, seq, head);
            self.resources.get_mut(resource).holders = head;
            return;
        }
        if node.crowd == NONE {
            node.crowd = self.crowds.insert(Crowd { head: NONE, ..Crowd::default() });
        }
        let at = node.crowd;
        let head = self.splice(part, seq, self.crowds[at].head);
        let crowd = &mut self.crowds[at];
        crowd.head = head;
        crowd.len += 1;
        crowd.modes[usize::from(mode.code())] += 1;
    }

    /// Puts a part into a list and returns the list's head.
    fn splice(&mut self, part: u32, seq: u64, head: u32) -> u32 {
        let (prev, next, new_head) = if head == NONE {
            (part, part, part)
        } else {
            let after = self.list_back(head, NONE).find(|other| self.seq_of(*other) < seq);
            let prev = after.unwrap_or(self.part(head).prev);
            let next = self.part(prev).next;
            self.part_mut(prev).next = part;
            self.part_mut(next).prev = part;
            (prev, next, if after.is_none() { part } else { head })
        };
        let node = self.part_mut(part);
        (node.prev, node.next) = (prev, next);
        new_head
    }

    /// Takes a part off its resource; returns whether nobody is left there.
    pub(super) fn unlink(&mut self, part: u32, waiting: bool) -> bool {
        let PartNode { resource, prev, next, mode, .. } = *self.part(part);
        let alone = next == part;
        if !alone {
            self.part_mut(prev).next = next;
            self.part_mut(next).prev = prev;
        }
        let follow = |head: u32| match head {
            _ if alone => NONE,
            _ if head == part => next,
            _ => head,
        };
        let node = self.resources.get_mut(resource);
        if waiting {
            let crowd = &mut self.crowds[node.crowd];
            crowd.head = follow(crowd.head);
            crowd.len -= 1;
            crowd.modes[usize::from(mode.code())] -= 1;
            if alone {
                self.crowds.remove(std::mem::replace(&mut node.crowd, NONE));
            }
        } else {
            node.holders = follow(node.holders);
        }
        alone && node.holders == NONE && node.crowd == NONE
    }
}
