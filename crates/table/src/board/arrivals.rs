//! All live requests in the order of arrival, and a quick way into the middle of that list.
//!
//! Every 256th arrival is an *anchor*, found by its seq; when an anchor leaves, the one before it
//! takes over, if there is one: it has been there longer and is likely to stay. So a page of a
//! listing starts within 256 steps of its cursor, however many requests there are.

use std::collections::BTreeMap;

use super::slab::NONE;
use super::{Board, Request};

const ANCHOR_EVERY: u64 = 256;

#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) anchors: BTreeMap<u64, u32>,
}

impl Board {
    /// Appends a request: it has the highest seq.
    pub(super) fn arrive(&mut self, at: u32, seq: u64) {
        let last = std::mem::replace(&mut self.arrivals.last, at);
        if last == NONE {
            self.arrivals.first = at;
        } else {
            let before = &mut self.requests[last];
            assert!(before.seq < seq, "T3: seq grows with every arrival");
            before.next = at;
            self.requests[at].prev = last;
        }
        if seq.is_multiple_of(ANCHOR_EVERY) {
            self.anchor(at);
        }
    }

    /// Closes the gap that a request left.
    pub(super) fn depart(&mut self, at: u32) {
        let Request { prev, next, anchor, seq, .. } = self.requests[at];
        match prev {
            NONE => self.arrivals.first = next,
            _ => self.requests[prev].next = next,
        }
        match next {
            NONE => self.arrivals.last = prev,
            _ => self.requests[next].prev = prev,
        }
        if anchor {
            self.arrivals.anchors.remove(&seq);
            if prev != NONE && !self.requests[prev].anchor {
                self.anchor(prev);
            }
        }
    }

    fn anchor(&mut self, at: u32) {
        let request = &mut self.requests[at];
        request.anchor = true;
        self.arrivals.anchors.insert(request.seq, at);
    }

    /// The live requests with a larger seq, in the order of arrival.
    pub(crate) fn after(&self, seq: u64) -> impl Iterator<Item = u32> {
        let anchor = self.arrivals.anchors.range(..=seq).next_back();
        let mut at = anchor.map_or(self.arrivals.first, |(_, at)| *at);
        while at != NONE && self.requests[at].seq <= seq {
            at = self.requests[at].next;
        }
        std::iter::from_fn(move || {
            let here = (at != NONE).then_some(at)?;
            at = self.requests[here].next;
            Some(here)
        })
    }

    /// The oldest request, or [`NONE`].
    pub(crate) fn first_arrival(&self) -> u32 {
        self.arrivals.first
    }

    /// The highest seq on the board; 0 if it is empty.
    pub(crate) fn last_seq(&self) -> u64 {
        if self.arrivals.last == NONE { 0 } else { self.requests[self.arrivals.last].seq }
    }

    /// The youngest first.
    pub(crate) fn youngest_first(&self) -> impl Iterator<Item = u32> {
        let mut at = self.arrivals.last;
        std::iter::from_fn(move || {
            let here = (at != NONE).then_some(at)?;
            at = self.requests[here].prev;
            Some(here)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mode, Party, Resource};

    fn arrive(board: &mut Board, seq: u64) -> u32 {
        let party = Party::client("c");
        let who = board.parties.look_up(&party);
        let resource = Resource::plain(&seq.to_string()).unwrap();
        let resource = board.resources.enter(resource);
        let mut request = Request::new(seq.to_string().as_str().into(), seq, 1, 0);
        request.party = board.parties.enter(party, who);
        let hash = board.hash_id(&request.id);
        board.enter(request, hash, &[(resource, Mode::Exclusive, Mode::Exclusive)])
    }

    /// The most steps from an anchor, or the beginning, to the next one.
    fn longest_gap(board: &Board) -> usize {
        let (mut gap, mut longest) = (0, 0);
        for at in board.after(0) {
            let request = &board.requests[at];
            assert_eq!(board.arrivals.anchors.get(&request.seq), request.anchor.then_some(&at));
            gap = if request.anchor { 0 } else { gap + 1 };
            longest = longest.max(gap);
        }
        longest
    }

    #[test]
    fn an_anchor_is_never_far_whoever_leaves() {
        let mut board = Board::new(1);
        let slots: Vec<u32> = (1..=5_000).map(|seq| arrive(&mut board, seq)).collect();
        assert_eq!(longest_gap(&board), 255);
        // All anchors but the first leave; those before them take over.
        for seq in (512..=5_000u64).step_by(256) {
            board.leave(slots[seq as usize - 1]);
        }
        assert_eq!((longest_gap(&board), board.arrivals.anchors.len()), (255, 19));
        // One that takes over where an anchor stands already changes nothing.
        board.leave(slots[510]);
        assert_eq!(board.arrivals.anchors.len(), 19);
        // Two in three leave: what is left is still close to an anchor.
        for seq in 1..=5_000u64 {
            let gone = seq == 511 || (seq >= 512 && seq.is_multiple_of(256));
            if !seq.is_multiple_of(3) && !gone {
                board.leave(slots[seq as usize - 1]);
            }
        }
        assert!(longest_gap(&board) <= 255);
        let seqs: Vec<u64> = board.after(3_000).map(|at| board.requests[at].seq).collect();
        let expected: Vec<u64> = (3_001..=5_000)
            .filter(|seq: &u64| seq.is_multiple_of(3) && !seq.is_multiple_of(256))
            .collect();
        assert_eq!(seqs, expected);
        assert_eq!(board.last_seq(), 4_998);
        // Those at the front leave in order: nothing to take over, the list begins there.
        for at in board.after(0).collect::<Vec<_>>() {
            board.leave(at);
        }
        assert_eq!((board.arrivals.anchors.len(), board.last_seq()), (0, 0));
    }
}
