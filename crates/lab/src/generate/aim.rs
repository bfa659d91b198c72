//! Aiming: times near a deadline, targets that exist.

use keylatch_table::{RequestId, Target, task::TaskState};

use super::Generator;
use crate::model::{Model, request::Request};

impl Generator {
    /// The time of the next command: mostly soon, often right at a deadline, now and then before the
    /// last one. Long jumps are rare, because each of them empties the table.
    pub(super) fn time(&mut self, model: &Model) -> u64 {
        let now = model.now.max(1_000);
        match self.random.below(1_000) {
            0..550 => now,
            550..800 => now + self.random.between(1, 3),
            800..830 => now + self.random.between(4, 60),
            830..930 => {
                let next = deadlines(model).into_iter().min().unwrap_or(now);
                (next + 1).saturating_sub(self.random.below(3)).max(now)
            }
            930..985 => now.saturating_sub(self.random.below(100)),
            985..994 => now + self.random.between(100, 1_000),
            994..998 => self.random.pick_some(&deadlines(model)).unwrap_or(now),
            _ => now + self.random.between(4_000, 20_000),
        }
    }

    /// A request, mostly a live one, by its id or its alias.
    pub(super) fn target(&mut self, model: &Model) -> Target {
        let live = model.requests.iter().collect::<Vec<_>>();
        self.target_among(model, &live)
    }

    /// Mostly a holder that can be promoted.
    pub(super) fn promotable(&mut self, model: &Model) -> Target {
        if self.random.percent(15) {
            return self.target(model);
        }
        let held = model.requests.iter().filter(|request| request.hold().is_some());
        let promotable = held.filter(|request| request.promotable()).collect::<Vec<_>>();
        self.target_among(model, &promotable)
    }

    fn target_among(&mut self, model: &Model, requests: &[&Request]) -> Target {
        if self.random.percent(3) {
            return Target::Alias(format!("s{}", self.random.below(4)).into());
        }
        if self.random.percent(88)
            && let Some(request) = self.random.pick_some(requests)
        {
            return match request.alias() {
                Some(alias) if self.random.percent(50) => Target::Alias(alias.into()),
                _ => Target::Id(request.asked.id.clone()),
            };
        }
        Target::Id(self.old_id(model))
    }

    /// An id that is remembered, or was asked with some time ago, or nobody knows.
    pub(super) fn old_id(&mut self, model: &Model) -> RequestId {
        let ended = model.ended.iter().map(|ended| ended.id.clone()).collect::<Vec<_>>();
        if self.random.percent(60)
            && let Some(id) = self.random.pick_some(&ended)
        {
            return id;
        }
        self.random.pick_some(&self.asked).map_or_else(|| "nobody".into(), |asked| asked.id)
    }
}

/// Every time at which something ends or begins by itself.
fn deadlines(model: &Model) -> Vec<u64> {
    let requests = model.requests.iter().filter_map(Request::deadline);
    let ended = model.ended.iter().map(|ended| ended.at + model.settings.ended_ms);
    let claims = model.tasks.claims.iter().map(|claim| claim.wait.deadline());
    let tasks = model.tasks.all.iter().filter_map(|task| match task.state {
        TaskState::Claimed => task.claim.as_ref().and_then(|claim| claim.until),
        TaskState::Free if task.ready > model.now => Some(task.ready),
        TaskState::Free | TaskState::Done | TaskState::Failed => None,
    });
    requests.chain(ended).chain(claims).chain(tasks).collect()
}
