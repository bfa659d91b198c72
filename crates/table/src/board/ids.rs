//! Which ids are known: live ones by their slot, ended ones by their number in the memory.

use super::ended::{End, EndedId, NUMBERS};
use super::{Board, Known};
use crate::RequestId;

impl Board {
    pub(crate) fn known(&self, id: &RequestId) -> Option<Known> {
        self.known_by(self.hash_id(id), id)
    }

    /// The same for a caller that needs the hash again.
    pub(crate) fn known_by(&self, hash: u64, id: &RequestId) -> Option<Known> {
        let found = self.ids.find(hash, |at| self.id_at(at) == id)?;
        Some(if found < NUMBERS { Known::Live(found) } else { Known::Ended(found - NUMBERS) })
    }

    pub(crate) fn live(&self, id: &RequestId) -> Option<u32> {
        match self.known(id) {
            Some(Known::Live(at)) => Some(at),
            _ => None,
        }
    }

    /// Moves the id of a request that has left the board to the ended ones, or forgets it.
    pub(crate) fn end_id(&mut self, at: u32, id: &RequestId, end: Option<End>, now: u64) {
        let hash = self.hash_id(id);
        match end {
            Some(end) => {
                let number = self.ended.push(now, EndedId { id: id.clone(), end });
                self.ids.replace(hash, at, NUMBERS + number);
            }
            None => self.ids.remove(hash, at),
        }
    }

    /// Remembers an id that has ended, which the board does not know (restoring).
    pub(crate) fn remember(&mut self, at: u64, ended: EndedId) {
        let hash = self.hash_id(&ended.id);
        let number = self.ended.push(at, ended);
        self.index_id(hash, NUMBERS + number);
    }

    /// Forgets ended ids that are too old or too many.
    pub(crate) fn forget(&mut self, now: u64, keep_ms: u64, most: u64) {
        while let Some((number, ended)) = self.ended.stale(now, keep_ms, most) {
            let hash = self.hash.of(ended.id.hash_bytes());
            self.ids.remove(hash, NUMBERS + number);
            self.ended.pop();
        }
    }

    pub(crate) fn hash_id(&self, id: &RequestId) -> u64 {
        self.hash.of(id.hash_bytes())
    }

    fn id_at(&self, at: u32) -> &RequestId {
        if at < NUMBERS { &self.requests[at].id } else { &self.ended.get(at - NUMBERS).id }
    }

    pub(super) fn index_id(&mut self, hash: u64, at: u32) {
        let (requests, ended, hasher) = (&self.requests, &self.ended, &self.hash);
        self.ids.insert(hash, at, |at| {
            let id = if at < NUMBERS { &requests[at].id } else { &ended.get(at - NUMBERS).id };
            hasher.of(id.hash_bytes())
        });
    }

    /// Forgets an ended id that asks again.
    pub(crate) fn revive(&mut self, number: u32) {
        let hash = self.hash_id(&self.ended.get(number).id);
        self.ids.remove(hash, NUMBERS + number);
        self.ended.take(number);
    }
}
