//! Locks that carry a value, found by their key: what the Redis subset needs. Such a lock is an
//! ordinary X lock on a plain name.

use crate::board::deadlines::NEVER;
use crate::board::slab::NONE;
use crate::{Error, Keyed, KeyedCount, KeyedOp, Mode, Reply, RequestId, Resource, Table, Target};

use super::acquire::lease_end;
use super::admit::{long, long_ms};
use crate::error::What;

impl Table {
    pub(crate) fn keyed(&mut self, keyed: &Keyed) -> Reply {
        if let Err(error) = self.admit_keyed(keyed) {
            return Reply::Error(error);
        }
        let mut count = KeyedCount::default();
        let mut matching: Vec<RequestId> = Vec::new();
        for (position, key) in keyed.keys.iter().enumerate() {
            if keyed.keys[..position].contains(key) {
                continue; // each key counts once
            }
            match self.key_holder(key) {
                None => count.absent += 1,
                Some(at) => {
                    let request = &self.board.requests[at];
                    let value = self.value_of(at);
                    let wanted = keyed.value.as_deref();
                    if value.is_none() || (wanted.is_some() && wanted != value) {
                        count.other += 1;
                    } else {
                        count.matched += 1;
                        matching.push(request.id.clone());
                    }
                }
            }
        }
        if !keyed.all || count.other + count.absent == 0 {
            for id in matching {
                self.act(id, keyed.op);
            }
        }
        Reply::Keyed(count)
    }

    /// The holder of a plain key with the lowest seq.
    pub(crate) fn key_holder(&self, key: &Resource) -> Option<u32> {
        let head = self.board.resources.get(self.board.resources.find(key.as_bytes())?).holders;
        (head != NONE).then(|| self.board.part(head).request)
    }

    /// The value of a lock that was taken with one, the way `SET` does: one resource, as X.
    pub(crate) fn value_of(&self, at: u32) -> Option<&[u8]> {
        let request = &self.board.requests[at];
        let single = self.board.part_at(at, 1).is_none() && request.first.mode == Mode::Exclusive;
        request.extra.value().filter(|_| single)
    }

    fn act(&mut self, id: RequestId, op: KeyedOp) {
        let at = self.board.live(&id).expect("matched in this step");
        let request = &self.board.requests[at];
        let (since, max_hold_ms) = (request.since, request.max_hold_ms());
        let end = match op {
            KeyedOp::Delete | KeyedOp::Expire(0) => {
                self.release(&Target::Id(id), &mut Vec::new());
                return;
            }
            KeyedOp::Expire(ms) => lease_end(self.now, ms, since, max_hold_ms),
            KeyedOp::Extend(_) if request.deadline == NEVER => NEVER,
            KeyedOp::Extend(0) => return,
            KeyedOp::Extend(ms) => lease_end(request.deadline, ms, since, max_hold_ms),
        };
        self.board.set_deadline(at, end);
    }

    fn admit_keyed(&self, keyed: &Keyed) -> Result<(), Error> {
        if keyed.keys.iter().any(|key| key.arity() > 0) {
            return Err(Error::KeyWithFields);
        }
        keyed.keys.iter().try_for_each(|key| self.admit_resource(key))?;
        let value = keyed.value.as_ref().map_or(0, |value| value.len());
        long(What::Value, value, self.settings.meta_bytes)?;
        match keyed.op {
            KeyedOp::Delete => Ok(()),
            KeyedOp::Expire(ms) | KeyedOp::Extend(ms) => {
                long_ms(What::Lease, ms, self.settings.lease_ms)
            }
        }
    }
}
