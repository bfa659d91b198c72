//! All live requests in the order of arrival, and a quick way into the middle of that list.
//!
//! Every 256th arrival is an *anchor*, found by its seq; when an anchor leaves, the next in the
//! list takes over. So a page of a listing starts within 256 steps of its cursor, however many
//! requests there are.

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
        if last == NONE || seq.is_multiple_of(ANCHOR_EVERY) {
            self.anchor(at);
        }
    }

    /// Closes the gap that a request left.
    pub(super) fn depart(&mut self, request: &Request) {
        let Request { prev, next, .. } = *request;
        match prev {
            NONE => self.arrivals.first = next,
            _ => self.requests[prev].next = next,
        }
        match next {
            NONE => self.arrivals.last = prev,
            _ => self.requests[next].prev = prev,
        }
        if request.anchor {
            self.arrivals.anchors.remove(&request.seq);
            if next != NONE && !self.requests[next].anchor {
                self.anchor(next);
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
