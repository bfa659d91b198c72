//! The state of one request, and what is remembered of it after its end.
//!
//! | stage | entered by | left by |
//! |---|---|---|
//! | `Waiting` | acquire that is not free, with a wait | grant, time-out, grace, cancel, release, deadlock |
//! | `Held` | grant | release, expiry, superseding, revocation |

use keylatch_table::{About, Acquire, Entry, Grant, Loss, Mode, Part, RequestId, State, Text};

/// A live request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// What was asked first; only `wait_ms` follows later repeats.
    pub(crate) asked: Acquire,
    /// The resources as they are held or asked for now: promotion changes their modes.
    pub(crate) parts: Vec<Part>,
    pub(crate) seq: u64,
    pub(crate) arrived: u64,
    /// When it was asked for last: repeats count their wait from there.
    pub(crate) asked_at: u64,
    pub(crate) stage: Stage,
}

#[derive(Clone, Debug)]
pub(crate) enum Stage {
    Waiting(Wait),
    Held(Hold),
}

#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) until: u64,
    /// Set while its connection is gone.
    pub(crate) grace: Option<Grace>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Grace {
    pub(crate) length_ms: u64,
    pub(crate) until: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) token: u64,
    pub(crate) since: u64,
    /// When the lease ends, the longest hold aside.
    pub(crate) lease: Option<u64>,
    /// Granted while detached, and neither repeated nor renewed since.
    pub(crate) unconfirmed: bool,
    pub(crate) promoted: bool,
}

/// What is remembered of an id.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) id: RequestId,
    pub(crate) at: u64,
    pub(crate) end: End,
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    /// It was granted; this is how that ended.
    Grant(Loss),
    /// It waited and was released.
    WaiterReleased,
    /// It waited and was cancelled.
    WaiterCancelled,
}

/// The end of something that begins at `now` and lasts `ms`, where 0 is for ever.
pub(crate) fn end_after(now: u64, ms: u64) -> Option<u64> {
    (ms > 0).then(|| now.saturating_add(ms))
}

impl Wait {
    /// When it leaves the queue: the wait, or the grace if that is sooner.
    pub(crate) fn deadline(&self) -> u64 {
        self.grace.map_or(self.until, |grace| grace.until.min(self.until))
    }
}

impl Request {
    /// A request that has only been asked: it stands behind everyone.
    pub(crate) fn draft(asked: &Acquire, now: u64) -> Request {
        Request {
            asked: asked.clone(),
            parts: asked.parts().cloned().collect(),
            seq: u64::MAX,
            arrived: now,
            asked_at: now,
            stage: Stage::Waiting(Wait { until: now.saturating_add(asked.wait_ms), grace: None }),
        }
    }

    pub(crate) fn hold(&self) -> Option<&Hold> {
        match &self.stage {
            Stage::Held(hold) => Some(hold),
            Stage::Waiting(_) => None,
        }
    }

    pub(crate) fn hold_mut(&mut self) -> Option<&mut Hold> {
        match &mut self.stage {
            Stage::Held(hold) => Some(hold),
            Stage::Waiting(_) => None,
        }
    }

    pub(crate) fn wait(&self) -> Option<&Wait> {
        match &self.stage {
            Stage::Waiting(wait) => Some(wait),
            Stage::Held(_) => None,
        }
    }

    pub(crate) fn owner(&self) -> Option<&Text> {
        self.asked.party.explicit.then_some(&self.asked.party.owner)
    }

    pub(crate) fn max_hold_ms(&self) -> u64 {
        self.asked.extra.max_hold_ms()
    }

    pub(crate) fn alias(&self) -> Option<&str> {
        self.asked.extra.alias()
    }

    pub(crate) fn value(&self) -> Option<&[u8]> {
        self.asked.extra.value()
    }

    /// When it ends by itself: of a holder the lease or the longest hold, of a waiter its wait or
    /// its grace.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match &self.stage {
            Stage::Waiting(wait) => Some(wait.deadline()),
            Stage::Held(hold) => {
                let longest = end_after(hold.since, self.max_hold_ms());
                hold.lease.into_iter().chain(longest).min()
            }
        }
    }

    /// What is left at `now`; `None` is no lease.
    pub(crate) fn left(&self, now: u64) -> Option<u64> {
        self.deadline().map(|deadline| deadline.saturating_sub(now))
    }

    /// How long it has held, or waited.
    pub(crate) fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.hold().map_or(self.arrived, |hold| hold.since))
    }

    pub(crate) fn state(&self) -> State {
        if self.hold().is_some() { State::Held } else { State::Waiting }
    }

    pub(crate) fn token(&self) -> u64 {
        self.hold().map_or(0, |hold| hold.token)
    }

    /// Its grant, as told at `now` to a holder that did not wait for the answer.
    pub(crate) fn grant(&self, now: u64) -> Grant {
        let hold = self.hold().expect("only holders have a grant");
        Grant { token: hold.token, lease_ms: self.left(now), waited_ms: 0 }
    }

    pub(crate) fn about(&self) -> About {
        About {
            seq: self.seq,
            parts: self.parts.clone(),
            owner: self.asked.party.owner.clone(),
            principal: self.asked.party.principal.clone(),
        }
    }

    /// Whether it was asked for with an O or an S, promoted since or not.
    pub(crate) fn promotable(&self) -> bool {
        self.asked.parts().any(|part| matches!(part.mode, Mode::Optimistic | Mode::Shared))
    }

    /// One entry a resource, in the order asked.
    pub(crate) fn entries(&self, now: u64) -> Vec<Entry> {
        let wait_known = self.wait().is_some() || self.alias().is_some();
        let extra = &self.asked.extra;
        self.parts
            .iter()
            .map(|part| Entry {
                seq: self.seq,
                token: self.token(),
                id: self.asked.id.clone(),
                resource: part.resource.clone(),
                mode: part.mode,
                owner: self.asked.party.owner.clone(),
                explicit: self.asked.party.explicit,
                principal: self.asked.party.principal.clone(),
                state: self.state(),
                held_ms: self.age(now),
                lease_ms: self.left(now),
                arrived: self.arrived,
                wait_ms: if wait_known { self.asked.wait_ms } else { 0 },
                lease_asked_ms: self.asked.lease_ms,
                meta: extra.meta().map(Into::into),
                alias: extra.alias().map(Into::into),
            })
            .collect()
    }
}
