//! What clients were told, and whether it can be. Clients say so when they know of a grant, and before they
//! give it back: so what two of them held at the same time here, they held at the same time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What happened last, for whoever has to find out why.
const RECENT: usize = 200;
/// More of them say nothing new.
const MOST: usize = 100;
/// Table time has no finer parts than this, and each end of a lease is rounded once.
const ROUNDING: Duration = Duration::from_millis(5);

/// The judge of one run.
#[derive(Debug)]
pub struct Judge(Mutex<History>);

#[derive(Debug)]
struct History {
    began: Instant,
    keys: BTreeMap<String, Key>,
    /// What is held without a lease: token by id.
    kept: BTreeMap<String, i64>,
    violations: Vec<String>,
    recent: VecDeque<String>,
    count: Count,
    last_grant: Instant,
    /// Since the last time it was asked.
    worst_gap: Duration,
}

#[derive(Debug, Default)]
struct Key {
    /// The highest token, of any grant and of exclusive ones.
    highest: i64,
    exclusive: i64,
    holders: Vec<Holder>,
}

#[derive(Debug)]
struct Holder {
    id: String,
    shared: bool,
    /// It holds at least until then; until it says otherwise, if there is no lease to speak of.
    until: Option<Instant>,
}

/// How much there was to judge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Grants.
    pub grants: u64,
    /// Of which the lease was left to end.
    pub lapsed: u64,
    /// Queues whose order was looked at, and waiters in them that were never interrupted.
    pub queues: u64,
    /// See there.
    pub queued: u64,
    /// Releases.
    pub releases: u64,
}

/// A grant, as a client knows it.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// What is held.
    pub key: &'a str,
    /// Under which id.
    pub id: &'a str,
    /// With which token.
    pub token: i64,
    /// Whether others may hold it too, if they are as modest.
    pub shared: bool,
    /// When it was asked for first: its lease has not begun before.
    pub asked: Instant,
    /// How long it is held if nobody gives it back; `None` if that is longer than the run.
    pub lease: Option<Duration>,
}

/// One who waited in a queue of which the order is known.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    /// What it was granted with.
    pub token: i64,
    /// It has not lost its connection: nothing can have cost it its place.
    pub uninterrupted: bool,
}

impl Default for Judge {
    fn default() -> Judge {
        let now = Instant::now();
        Judge(Mutex::new(History {
            began: now,
            keys: BTreeMap::new(),
            kept: BTreeMap::new(),
            violations: Vec::new(),
            recent: VecDeque::new(),
            count: Count::default(),
            last_grant: now,
            worst_gap: Duration::ZERO,
        }))
    }
}

impl Judge {
    fn history(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A client knows that it holds.
    pub fn granted(&self, grant: Grant<'_>) {
        self.history().granted(grant, Instant::now());
    }

    /// A client is about to give it back.
    pub fn releases(&self, key: &str, id: &str) {
        let mut history = self.history();
        history.note(&format!("{key}: {id} is given back"));
        if let Some(key) = history.keys.get_mut(key) {
            key.holders.retain(|holder| holder.id != id);
        }
    }

    /// The answer to that: it was held until then.
    pub fn released(&self, id: &str, was_held: bool) {
        let mut history = self.history();
        history.count.releases += 1;
        history.kept.remove(id);
        if !was_held {
            history.wrong(format!("{id} was granted, and then not held when it was given back"));
        }
    }

    /// A client lets its lease end.
    pub fn lapses(&self, id: &str) {
        let mut history = self.history();
        history.count.lapsed += 1;
        history.note(&format!("{id} is left to end"));
    }

    /// What is kept without a lease.
    pub fn keeps(&self, id: &str, token: i64) {
        self.history().kept.insert(id.into(), token);
    }

    /// Something is kept that clients know of.
    pub fn kept(&self) -> BTreeMap<String, i64> {
        self.history().kept.clone()
    }

    /// A member shows all that is held: what is kept must be there.
    pub fn sees(&self, member: &str, held: &BTreeMap<String, i64>) {
        let mut history = self.history();
        let kept = std::mem::take(&mut history.kept);
        for (id, token) in &kept {
            match held.get(id) {
                Some(found) if found == token => {}
                found => history.wrong(format!(
                    "a grant is lost: {id} with token {token}, {member} has {found:?}"
                )),
            }
        }
        history.kept = kept;
    }

    /// Those who waited for a key in this order were all granted it.
    pub fn order(&self, key: &str, queue: &[Queued]) {
        let mut history = self.history();
        history.count.queues += 1;
        let steady: Vec<i64> =
            queue.iter().filter(|one| one.uninterrupted).map(|one| one.token).collect();
        history.count.queued += steady.len() as u64;
        if !steady.is_sorted() {
            history.wrong(format!("{key}: who came first was not first: tokens {steady:?}"));
        }
    }

    /// Something else that must not be.
    pub fn condemns(&self, what: String) {
        self.history().wrong(what);
    }

    /// Something that may explain what comes.
    pub fn note(&self, what: &str) {
        self.history().note(what);
    }

    /// How much there was so far.
    pub fn count(&self) -> Count {
        self.history().count
    }

    /// The longest time without a grant since this was asked last.
    pub fn worst_gap(&self) -> Duration {
        let mut history = self.history();
        let gap = history.worst_gap.max(history.last_grant.elapsed());
        history.worst_gap = Duration::ZERO;
        gap
    }

    /// Nobody was asking for anything for a while.
    pub fn begins_again(&self) {
        let mut history = self.history();
        history.last_grant = Instant::now();
    }

    /// What was wrong.
    pub fn violations(&self) -> Vec<String> {
        self.history().violations.clone()
    }

    /// What happened last.
    pub fn recent(&self) -> Vec<String> {
        self.history().recent.iter().cloned().collect()
    }
}

impl History {
    fn granted(&mut self, grant: Grant<'_>, now: Instant) {
        let Grant { key: name, id, token, shared, asked, lease } = grant;
        self.note(&format!("{name}: {id} holds, token {token}"));
        self.count.grants += 1;
        self.worst_gap = self.worst_gap.max(now.saturating_duration_since(self.last_grant));
        self.last_grant = now;
        let until = lease.map(|lease| asked + lease.saturating_sub(ROUNDING));
        if until.is_some_and(|until| until <= now) {
            // It was told so late that it may be over: nobody can say that it holds.
            return;
        }
        let key = self.keys.entry(name.into()).or_default();
        key.holders.retain(|other| other.until.is_none_or(|until| until > now));
        let conflict = key.holders.iter().find(|other| !(shared && other.shared));
        let conflict = conflict.map(|other| match other.until {
            None => format!("{id} and {} both hold {name}", other.id),
            Some(until) => format!(
                "{id} and {} both hold {name}: a lease has ended {} ms early",
                other.id,
                until.saturating_duration_since(now).as_millis()
            ),
        });
        let before = if shared { key.exclusive } else { key.highest };
        key.highest = key.highest.max(token);
        if !shared {
            key.exclusive = key.exclusive.max(token);
        }
        key.holders.push(Holder { id: id.into(), shared, until });
        if let Some(what) = conflict {
            self.wrong(what);
        }
        if token <= before {
            self.wrong(format!("{name}: token {token} of {id} comes after {before}"));
        }
    }

    fn note(&mut self, what: &str) {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let at = self.began.elapsed().as_secs_f64();
        self.recent.push_back(format!("{at:9.3} {what}"));
    }

    fn wrong(&mut self, what: String) {
        self.note(&format!("WRONG: {what}"));
        if self.violations.len() < MOST {
            self.violations.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(key: &'static str, id: &'static str, token: i64) -> Grant<'static> {
        Grant { key, id, token, shared: false, asked: Instant::now(), lease: None }
    }

    fn said(judge: &Judge) -> String {
        judge.violations().join("; ")
    }

    #[test]
    fn two_holders_are_seen() {
        let judge = Judge::default();
        judge.granted(grant("k", "a", 1));
        judge.granted(grant("other", "b", 2));
        assert_eq!(said(&judge), "");
        judge.granted(grant("k", "c", 3));
        assert_eq!(said(&judge), "c and a both hold k");
    }

    #[test]
    fn readers_hold_together_and_writers_with_nobody() {
        let shared = |id, token| Grant { shared: true, ..grant("k", id, token) };
        let judge = Judge::default();
        judge.granted(shared("a", 2));
        // The answers of two readers may overtake each other.
        judge.granted(shared("b", 1));
        assert_eq!(said(&judge), "");
        judge.releases("k", "a");
        judge.granted(grant("k", "w", 3));
        assert_eq!(said(&judge), "w and b both hold k");
    }

    #[test]
    fn a_lease_may_end_late_and_not_early() {
        let hour = Duration::from_secs(3_600);
        let judge = Judge::default();
        let long_ago = Instant::now().checked_sub(2 * hour).unwrap();
        judge.granted(Grant { lease: Some(hour), ..grant("k", "b", 2) });
        // Whose answer was on its way for longer than its lease does not know what it holds.
        judge.granted(Grant { asked: long_ago, lease: Some(hour), ..grant("k", "a", 1) });
        assert_eq!(said(&judge), "");
        judge.granted(grant("k", "c", 3));
        assert!(said(&judge).contains("a lease has ended 359"), "{}", said(&judge));
    }

    #[test]
    fn tokens_that_do_not_grow_are_seen() {
        let judge = Judge::default();
        for (id, token) in [("a", 5), ("b", 5)] {
            judge.granted(grant("k", id, token));
            judge.releases("k", id);
        }
        assert_eq!(said(&judge), "k: token 5 of b comes after 5");
    }

    #[test]
    fn a_lost_grant_is_seen_by_looking_and_by_giving_it_back() {
        let judge = Judge::default();
        judge.keeps("a", 7);
        judge.sees("one", &BTreeMap::from([("a".into(), 7)]));
        assert_eq!(said(&judge), "");
        judge.sees("two", &BTreeMap::from([("a".into(), 8)]));
        assert!(said(&judge).contains("a grant is lost: a with token 7"), "{}", said(&judge));
        judge.released("a", true);
        judge.released("b", false);
        assert!(said(&judge).contains("b was granted, and then not held"), "{}", said(&judge));
        assert!(judge.kept().is_empty());
    }

    #[test]
    fn an_order_that_was_not_kept_is_seen_unless_somebody_was_interrupted() {
        let judge = Judge::default();
        let one = |token, uninterrupted| Queued { token, uninterrupted };
        judge.order("k", &[one(1, true), one(9, false), one(3, true)]);
        assert_eq!(said(&judge), "");
        judge.order("k", &[one(2, true), one(1, true)]);
        assert!(said(&judge).contains("was not first"), "{}", said(&judge));
    }
}
