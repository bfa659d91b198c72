//! Locks that carry a value, by key.

use keylatch_table::{Cause, Error, Keyed, KeyedCount, KeyedOp, Loss, Mode, Reply, Resource, What};

use super::{
    Model,
    check::Lengths,
    request::{Request, end_after},
};

/// Whether `holder` has the one shape that a lock taken by `SET` has.
pub(crate) fn is_value_lock(holder: &Request) -> bool {
    holder.value().is_some()
        && holder.asked.also.is_empty()
        && holder.asked.part.mode == Mode::Exclusive
        && holder.asked.part.resource.arity() == 0
}

impl Model {
    pub(crate) fn holders_of(&self, key: &Resource) -> impl Iterator<Item = &Request> {
        self.holders().filter(move |holder| holder.parts.iter().any(|part| part.resource == *key))
    }

    pub(crate) fn keyed(&mut self, keyed: &Keyed) -> Reply {
        if keyed.keys.iter().any(|key| key.arity() > 0) {
            return Reply::Error(Error::KeyWithFields);
        }
        let mut lengths = Lengths::default();
        if let KeyedOp::Expire(ms) | KeyedOp::Extend(ms) = keyed.op {
            lengths.most_ms(What::Lease, ms, self.settings.lease_ms);
        }
        for key in &keyed.keys {
            lengths.most(What::Name, key.name().len(), self.settings.name_bytes);
        }
        let value = keyed.value.as_ref().map_or(0, |value| value.len());
        lengths.most(What::Value, value, self.settings.meta_bytes);
        if let Err(error) = self.refuse_lengths(lengths) {
            return Reply::Error(error);
        }
        let mut keys: Vec<&Resource> = Vec::new();
        for key in &keyed.keys {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let mut count = KeyedCount::default();
        let mut matching = Vec::new();
        for key in &keys {
            let holder = self.holders_of(key).find(|holder| {
                is_value_lock(holder)
                    && keyed.value.as_ref().is_none_or(|value| holder.value() == Some(value))
            });
            if let Some(holder) = holder {
                count.matched += 1;
                matching.push(holder.seq);
            } else if self.holders_of(key).next().is_none() {
                count.absent += 1;
            } else {
                count.other += 1;
            }
        }
        if !keyed.all || matching.len() == keys.len() {
            for seq in matching {
                self.act(seq, keyed.op);
            }
        }
        Reply::Keyed(count)
    }

    fn act(&mut self, seq: u64, op: KeyedOp) {
        let (at, now) = (self.at(seq), self.now);
        match op {
            KeyedOp::Delete | KeyedOp::Expire(0) => {
                self.end_hold(at, Loss { cause: Cause::Released, by: None });
            }
            KeyedOp::Expire(ms) => {
                self.requests[at].hold_mut().expect("a holder").lease = end_after(now, ms);
            }
            KeyedOp::Extend(ms) => {
                let hold = self.requests[at].hold_mut().expect("a holder");
                hold.lease = hold.lease.map(|end| end.saturating_add(ms));
            }
        }
    }
}
