//! The checker's own book of who holds, who waits and until when. `replay` writes it from what the
//! table *tells*; `listing` compares it with what the table *shows*.
//!
//! The book is also where a state's key comes from. Counters and clocks grow for ever, so the key
//! has only what can matter to the future: arrival order, the order of tokens, and times as they
//! are seen from now. That is sound because every step is also checked to move the counters and
//! the clock forwards only. How long something has waited or held is only shown, and left out, but
//! for requests with a longest hold.

use std::collections::VecDeque;

use keylatch_table::Cause;

use super::rule::{Parts, Place};
use super::world::{Ask, World};

/// The end of what has no end.
pub const NEVER: u64 = u64::MAX;

/// A request that holds or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Which of the world's requests.
    pub slot: u8,
    /// Which of the things it may ask for.
    pub ask: u8,
    /// Its arrival number.
    pub seq: u64,
    /// Its token; 0 while it waits.
    pub token: u64,
    /// Whether it has been promoted.
    pub promoted: bool,
    /// Whether it was granted while detached and nobody has confirmed that yet.
    pub unconfirmed: bool,
    /// When it arrived.
    pub arrived: u64,
    /// When it was last asked for.
    pub asked: u64,
    /// When it was granted.
    pub granted: u64,
    /// When its lease ends, or its wait.
    pub end: u64,
    /// While it is detached: the grace and when that ends.
    pub grace: Option<(u64, u64)>,
}

impl Live {
    /// Whether it holds.
    pub fn held(&self) -> bool {
        self.token != 0
    }

    /// What it holds or waits for.
    pub fn parts(&self, world: &World) -> Parts {
        let parts = world.ask_of(self.slot, self.ask).parts;
        if self.promoted { parts.promoted() } else { parts }
    }

    /// Where it stands.
    pub fn place(&self, world: &World) -> Place {
        Place { slot: self.slot, seq: self.seq, held: self.held(), parts: self.parts(world) }
    }

    /// When it is due.
    pub fn deadline(&self) -> u64 {
        self.grace.map_or(self.end, |(_, end)| end.min(self.end))
    }

    /// When a lease that starts now ends; the longest hold counts from the grant.
    pub fn lease_end(&self, ask: &Ask, now: u64, lease_ms: u64) -> u64 {
        let after = |since: u64, ms: u64| if ms == 0 { NEVER } else { since + ms };
        after(now, lease_ms).min(after(self.granted, ask.max_hold_ms))
    }
}

/// How an id ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It was granted and ended so, superseded by that slot's owner.
    Grant(Cause, Option<u8>),
    /// It waited and was released.
    Released,
    /// It waited and was cancelled.
    Cancelled,
}

/// An id that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub slot: u8,
    /// When.
    pub at: u64,
    /// How.
    pub how: How,
}

/// Everything that the checker knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// Table time.
    pub now: u64,
    /// The last token.
    pub token: u64,
    /// The last arrival number.
    pub seq: u64,
    /// Who holds or waits, in arrival order.
    pub live: Vec<Live>,
    /// Ids that are remembered, oldest first.
    pub ended: VecDeque<Ended>,
}

impl Book {
    /// Where everybody stands.
    pub fn places(&self, world: &World) -> Vec<Place> {
        self.live.iter().map(|live| live.place(world)).collect()
    }

    /// The live request of this slot.
    pub fn live(&self, slot: u8) -> Option<&Live> {
        self.live.iter().find(|live| live.slot == slot)
    }

    /// The same, to change it.
    pub fn live_mut(&mut self, slot: u8) -> Option<&mut Live> {
        self.live.iter_mut().find(|live| live.slot == slot)
    }

    /// How the id of this slot ended, if that is remembered.
    pub fn how(&self, slot: u8) -> Option<How> {
        self.ended.iter().find(|ended| ended.slot == slot).map(|ended| ended.how)
    }

    /// Takes a request off, to be remembered as `how`.
    pub fn end(&mut self, world: &World, slot: u8, how: Option<How>) {
        self.live.retain(|live| live.slot != slot);
        if let Some(how) = how {
            self.ended.push_back(Ended { slot, at: self.now, how });
            self.forget(world);
        }
    }

    /// Drops what is too old, and the oldest of too many.
    pub fn forget(&mut self, world: &World) {
        let (keep_ms, most) = (world.settings.ended_ms, world.settings.ended as usize);
        while self.ended.front().is_some_and(|ended| ended.at + keep_ms <= self.now)
            || self.ended.len() > most
        {
            self.ended.pop_front();
        }
    }

    /// When something is due next.
    pub fn next_deadline(&self) -> Option<u64> {
        self.live.iter().map(Live::deadline).min().filter(|at| *at != NEVER)
    }

    /// What makes this state different from others.
    pub fn key(&self, world: &World) -> Vec<u8> {
        let mut key = Vec::with_capacity(64);
        // Durations are tiny or `LONG_MS` or never; all differ in two bytes.
        let push = |key: &mut Vec<u8>, end: u64| {
            let left = if end == NEVER { u16::MAX } else { (end - self.now) as u16 };
            key.extend_from_slice(&left.to_le_bytes());
        };
        for live in &self.live {
            let rank = self.live.iter().filter(|other| other.token < live.token).count() as u8;
            let flags = u8::from(live.held())
                | u8::from(live.promoted) << 1
                | u8::from(live.unconfirmed) << 2
                | u8::from(live.grace.is_some()) << 3;
            key.extend_from_slice(&[live.slot, live.ask, flags, rank]);
            push(&mut key, live.end);
            if let Some((ms, end)) = live.grace {
                key.push(ms as u8);
                push(&mut key, end);
            }
            if live.held() && world.ask_of(live.slot, live.ask).max_hold_ms > 0 {
                key.push((self.now - live.granted) as u8);
            }
        }
        key.push(u8::MAX);
        for ended in &self.ended {
            let (how, by) = match ended.how {
                How::Grant(cause, by) => (cause as u8, by.map_or(u8::MAX, |by| by)),
                How::Released => (10, 0),
                How::Cancelled => (11, 0),
            };
            key.extend_from_slice(&[ended.slot, (self.now - ended.at) as u8, how, by]);
        }
        key
    }
}
