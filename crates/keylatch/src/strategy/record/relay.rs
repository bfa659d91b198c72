//! A lock that goes from one request of this process to the next one of this process is passed on at once,
//! and written afterwards: while the store is told of one hand-over the next ones happen, and all of
//! them are the next write. Nothing is promised by it that the store does not keep.
//!
//! - Whoever it is passed to stands in the store's queue, before all whom the store may know of and we do
//!   not, and wants just what the holder has, alone. So nobody is passed over, and whatever the store keeps
//!   from others for the one it keeps from them for the other.
//! - Until it is written the lease is that of the one who is written as the holder, and counts as its does.
//! - Its token was drawn by the write that made the last one holder, for those who come after it (10).
//! - Whoever gave it up is told so once it is written.
//! - If the one who is written does not hold any more when it is to be written (it was revoked, or the store
//!   has lost it), the one it was passed to has lost it.
//!
//! | a name has | when |
//! |---|---|
//! | a run | the last write left one holder, of this process, with others of this process next in the queue |
//! | passes | what was passed on since the last write that is known to have happened |

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use keylatch_table::{Acquire, RequestId};

use super::format::real;
use super::store::Name;
use super::{Map, Set};
use crate::clock::Moment;

/// So many are next at most: they take numbers, whether it comes to them or not.
pub(super) const NEXT: usize = 32;

#[derive(Default)]
pub(super) struct Relays {
    names: Map<Name, Relay>,
    /// Whoever has passed it on and was not told yet that it is given up.
    gone: Set<RequestId>,
    /// Whoever gives it up, with nobody next, and is not at work yet.
    freed: Set<RequestId>,
    /// They ask anew and may be answered that they wait no more: nothing is passed to them.
    asking: Set<RequestId>,
}

#[derive(Default)]
struct Relay {
    run: Option<Run>,
    passes: VecDeque<Pass>,
}

/// Where a lock goes.
struct Run {
    /// Who has it, and under which token.
    holder: RequestId,
    token: u64,
    /// The lease that is written counts from then, or from later.
    since: Moment,
    /// For those who are next.
    tokens: Range<u64>,
    next: VecDeque<RequestId>,
}

/// One step.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) from: RequestId,
    pub(super) from_token: u64,
    /// Who has it now: what it asked for, where it stood, and its token.
    pub(super) ask: Acquire,
    pub(super) seq: u64,
    pub(super) token: u64,
}

/// What a write leaves, if it can be passed on from there.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) holder: RequestId,
    pub(super) token: u64,
    /// Its lease was set by this write.
    pub(super) leased: bool,
    pub(super) tokens: Range<u64>,
    pub(super) next: Vec<RequestId>,
}

impl Plan {
    /// With the tokens that the write gave.
    pub(super) fn at(self, version: u64) -> Plan {
        let token = real(self.token, version);
        let tokens = version + self.tokens.start..version + self.tokens.end;
        Plan { token, tokens, ..self }
    }
}

/// Who may get it: what it asked for, and where it stands.
pub(super) type Candidate = (Acquire, u64);

impl Run {
    /// There are tokens, and enough is left of the lease to be worth something and to be renewed.
    fn is_good_for(&self, lease_ms: u64) -> bool {
        let half = Duration::from_millis(lease_ms / 2);
        !self.tokens.is_empty() && (lease_ms == 0 || !self.since.after(half).has_passed())
    }
}

impl Relays {
    /// What is to be written of this name. Whoever gives it up now and has nobody next is the store's to
    /// replace.
    pub(super) fn begin(&mut self, name: &Name, is_ours: impl Fn(&RequestId) -> bool) -> Vec<Pass> {
        let Some(relay) = self.names.get_mut(name) else { return Vec::new() };
        relay.run.take_if(|run| !is_ours(&run.holder));
        relay.passes.iter().cloned().collect()
    }

    /// So many passes are written, and this is what there is now.
    pub(super) fn wrote(&mut self, name: &Name, passes: usize, plan: Option<Plan>, sent: Moment) {
        if plan.is_none() && !self.names.contains_key(name) {
            return;
        }
        let relay = self.names.entry(name.clone()).or_default();
        relay.passes.drain(..passes.min(relay.passes.len()));
        let before = relay.run.take();
        let Some(plan) = plan else { return self.tidy(name) };
        // If it was leased earlier, that is known only if it could be passed on all the time since.
        let since = if plan.leased { Some(sent) } else { before.map(|before| before.since) };
        let Some(since) = since else { return self.tidy(name) };
        let mut next = VecDeque::from(plan.next);
        let (mut holder, mut token) = (plan.holder, plan.token);
        // Meanwhile it has gone on.
        for pass in &relay.passes {
            if pass.from != holder {
                return self.tidy(name);
            }
            (holder, token) = (pass.ask.id.clone(), pass.token);
            next.retain(|id| *id != holder);
        }
        relay.run = Some(Run { holder, token, since, tokens: plan.tokens, next });
    }

    fn tidy(&mut self, name: &Name) {
        if self.names.get(name).is_some_and(|relay| relay.run.is_none() && relay.passes.is_empty())
        {
            self.names.remove(name);
        }
    }

    /// It is given up by this one: who has it next, if somebody does. Else it may be passed on later, as long as
    /// nobody is at work on that.
    pub(super) fn pass(
        &mut self,
        name: &Name,
        from: &RequestId,
        candidate: impl Fn(&RequestId) -> Option<Candidate>,
    ) -> Option<(Pass, Moment)> {
        let passed = self.pass_on(name, from, candidate);
        match passed {
            Some(_) => drop(self.freed.remove(from)),
            None => drop(self.freed.insert(from.clone())),
        }
        passed
    }

    fn pass_on(
        &mut self,
        name: &Name,
        from: &RequestId,
        candidate: impl Fn(&RequestId) -> Option<Candidate>,
    ) -> Option<(Pass, Moment)> {
        let relay = self.names.get_mut(name)?;
        let run = relay.run.as_mut().filter(|run| run.holder == *from)?;
        let (ask, seq) = loop {
            // Whoever is not there any more has given up.
            let next = run.next.pop_front()?;
            let unsure = self.asking.contains(&next);
            match candidate(&next) {
                Some(found) if !unsure && run.is_good_for(found.0.lease_ms) => break found,
                Some(_) => {
                    relay.run = None;
                    return None;
                }
                None => {}
            }
        };
        let token = run.tokens.next()?;
        let pass = Pass {
            from: std::mem::replace(&mut run.holder, ask.id.clone()),
            from_token: std::mem::replace(&mut run.token, token),
            ask,
            seq,
            token,
        };
        self.gone.insert(pass.from.clone());
        relay.passes.push_back(pass.clone());
        Some((pass, run.since))
    }

    /// Whether something may be passed on there, or was.
    pub(super) fn is_at(&self, name: &Name) -> bool {
        self.names.contains_key(name)
    }

    /// Who gave up what can be passed on.
    pub(super) fn free(&self, name: &Name) -> Option<&RequestId> {
        let holder = &self.names.get(name)?.run.as_ref()?.holder;
        self.freed.get(holder)
    }

    /// Whether it was passed to this one, and is still its.
    pub(super) fn has(&self, names: &[Name], id: &RequestId) -> bool {
        let relays = names.iter().filter_map(|name| self.names.get(name));
        relays.filter_map(|relay| relay.passes.back()).any(|pass| pass.ask.id == *id)
    }

    /// Whether this one, whose giving up is at work now, has passed it on.
    pub(super) fn is_gone(&mut self, id: &RequestId) -> bool {
        self.freed.remove(id);
        self.gone.remove(id)
    }

    /// It is at work now that this one gives it up, unless it has passed it on.
    pub(super) fn is_given_up(&mut self, id: &RequestId) -> bool {
        let passed = self.gone.contains(id);
        if !passed {
            self.freed.remove(id);
        }
        !passed
    }

    /// It asks anew.
    pub(super) fn asks(&mut self, id: &RequestId) {
        self.asking.insert(id.clone());
    }

    /// It was answered.
    pub(super) fn answered(&mut self, id: &RequestId) {
        self.asking.remove(id);
    }

    /// Names where something is passed on that is not written.
    pub(super) fn unwritten(&self) -> Vec<Name> {
        let unwritten = self.names.iter().filter(|(_, relay)| !relay.passes.is_empty());
        unwritten.map(|(name, _)| name.clone()).collect()
    }

    /// What is written is not what was thought: all that was passed on there is void. Who had it.
    pub(super) fn broke(&mut self, name: &Name) -> Option<RequestId> {
        Some(self.names.remove(name)?.passes.pop_back()?.ask.id)
    }

    /// Nothing more is passed on there until something is written.
    pub(super) fn stop(&mut self, name: &Name) {
        if let Some(relay) = self.names.get_mut(name) {
            relay.run = None;
        }
        self.tidy(name);
    }

    pub(super) fn stop_all(&mut self) {
        self.names.retain(|_, relay| {
            relay.run = None;
            !relay.passes.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use keylatch_table::{Party, Resource};

    use super::*;

    fn id(text: &str) -> RequestId {
        RequestId::new(text)
    }

    fn ask(text: &str) -> Acquire {
        Acquire::new(id(text), Resource::plain("k").unwrap(), Party::client("c"))
    }

    /// `a` holds, and these are next.
    fn relays(next: &[&str], tokens: Range<u64>) -> (Relays, Name) {
        let (mut relays, name) = (Relays::default(), Name::from("k"));
        let next = next.iter().map(|text| id(text)).collect();
        let plan = Plan { holder: id("a"), token: 5, leased: true, tokens, next };
        relays.wrote(&name, 0, Some(plan), Moment::now());
        (relays, name)
    }

    /// Who has it next, of all who wait.
    fn pass(relays: &mut Relays, name: &Name, from: &str) -> Option<(String, u64)> {
        let passed = relays.pass(name, &id(from), |id| Some((ask(&id.to_string()), 1)));
        passed.map(|(pass, _)| (pass.ask.id.to_string(), pass.token))
    }

    #[tokio::test]
    async fn it_goes_on_in_order_with_tokens_of_its_own() {
        let (mut relays, name) = relays(&["b", "c", "d"], 6..8);
        assert_eq!(pass(&mut relays, &name, "b"), None, "it is not b's");
        assert_eq!(pass(&mut relays, &name, "a"), Some(("b".into(), 6)));
        assert_eq!(pass(&mut relays, &name, "a"), None, "it was given up already");
        assert_eq!(pass(&mut relays, &name, "b"), Some(("c".into(), 7)));
        assert_eq!(pass(&mut relays, &name, "c"), None, "there are no more tokens");
        assert!(relays.is_gone(&id("a")) && !relays.is_gone(&id("c")));
    }

    #[tokio::test]
    async fn nobody_gets_it_who_may_be_told_to_go() {
        let (mut relays, name) = relays(&["b", "c"], 6..9);
        relays.asks(&id("b"));
        assert_eq!(pass(&mut relays, &name, "a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_half_over_is_not_passed_on() {
        let (mut relays, name) = relays(&["b", "c"], 6..9);
        tokio::time::advance(Duration::from_secs(14)).await;
        assert!(pass(&mut relays, &name, "a").is_some());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(pass(&mut relays, &name, "b"), None);
    }

    #[tokio::test]
    async fn what_is_given_up_while_it_is_written_goes_on_from_there() {
        let (mut relays, name) = relays(&["b"], 6..7);
        assert!(pass(&mut relays, &name, "a").is_some());
        assert_eq!(relays.begin(&name, |_| true).len(), 1);
        // While that is under way b gives it up too, and nobody is known to be next.
        assert_eq!(pass(&mut relays, &name, "b"), None);
        let next = vec![id("c")];
        let plan = Plan { holder: id("b"), token: 6, leased: true, tokens: 9..10, next };
        relays.wrote(&name, 1, Some(plan), Moment::now());
        assert_eq!(relays.free(&name), Some(&id("b")));
        assert_eq!(pass(&mut relays, &name, "b"), Some(("c".into(), 9)));
        assert_eq!(relays.broke(&name), Some(id("c")));
    }
}
