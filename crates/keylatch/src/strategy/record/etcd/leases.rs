//! What of this process lives in etcd, and on which leases. A lease of etcd costs a round trip and a log
//! entry to make and more to keep, so a process has one for each length of time, shared by all its holders
//! and waiters that live so long, and keeps it alive while it is used. It is there for the case that this
//! process dies or is cut off: then all of it ends. While the process lives it ends each by itself, on its
//! own monotonic clock, when its time is over.
//!
//! | a lease is | until | then |
//! |---|---|---|
//! | in use | nothing was put on it for a while; an outcome on it is unknown; etcd has lost it | retired; retired; lost |
//! | retired: nothing new is put on it, all on it runs on | the last of these must have ended | revoked |
//! | lost | | all on it is gone |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use keylatch_table::{RequestId, Text};
use tokio::time::Instant;

use super::super::store::{Change, Name, Write};
use super::change::keep_ms;
use super::link::CALL;

/// Seconds. Longer ones are rounded up more, so that there are few leases whatever times are asked for.
pub(super) type Class = u64;

/// A lease that nobody has used for so long is given back.
const IDLE: Duration = Duration::from_secs(600);
/// How late a sign of life may be before a new lease is made.
const LATE_S: u64 = 2;

/// Times of so many milliseconds share a lease.
pub(super) fn class(ms: u64) -> Class {
    let seconds = ms.div_ceil(1_000).max(1);
    let step = match seconds {
        0..=10 => 1,
        11..=60 => 5,
        61..=600 => 30,
        _ => 300,
    };
    // etcd refuses leases of more than 285 years.
    seconds.div_ceil(step).saturating_mul(step).min(1_000_000_000)
}

/// How often it is kept alive.
fn beat(class: Class) -> Duration {
    Duration::from_secs((class / 6).clamp(1, 10))
}

/// For so long etcd is asked to let it live without a sign of life: whatever is put on it shortly before
/// the next one still has its full time.
pub(super) fn ttl(class: Class) -> i64 {
    (class + beat(class).as_secs() + LATE_S).cast_signed()
}

struct Lease {
    id: i64,
    class: Class,
    /// It lives at least until then: counted from before the last sign of life was sent.
    good_until: Instant,
    /// Something on it may live until then.
    needed_until: Instant,
    used: Instant,
    next_beat: Instant,
    retired: bool,
}

/// Something that ends at its time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    /// A holder, or that a head without holders is kept.
    Hold(Name, Option<RequestId>),
    /// A waiter, by its seq.
    Wait(u64, RequestId),
    /// That we have swept.
    Swept,
    /// A task is claimed or delayed: the key that says so, its pool and its key.
    Task(Vec<u8>, Text, Text),
    /// Somebody waits for a task of a pool: the key that says so.
    Noted(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) until: Instant,
    /// When it was written: what was written since is not ours to end.
    pub(super) revision: i64,
    pub(super) lease: i64,
    /// Where a waiter stands.
    pub(super) names: Vec<Name>,
    /// It is being ended, and nothing can prolong it.
    ending: bool,
}

impl Kept {
    pub(super) fn new(until: Instant, revision: i64, lease: i64, names: Vec<Name>) -> Kept {
        Kept { until, revision, lease, names, ending: false }
    }
}

#[derive(Default)]
pub(super) struct Table {
    leases: Vec<Lease>,
    kept: BTreeMap<Label, Kept>,
    /// The same, by time.
    due: BTreeSet<(Instant, Label)>,
}

/// What is to be done with leases.
#[derive(Default)]
pub(super) struct Beats {
    pub(super) keep: Vec<i64>,
    pub(super) revoke: Vec<i64>,
}

impl Table {
    /// A lease on which something can be put that is to live for so long from now.
    pub(super) fn lease(&mut self, class: Class, ms: u64, now: Instant) -> Option<i64> {
        let life = Duration::from_millis(ms);
        let good = |lease: &&mut Lease| {
            lease.class == class && !lease.retired && lease.good_until >= now + life
        };
        let lease = self.leases.iter_mut().find(good)?;
        lease.used = now;
        // Its time begins when the answer is here.
        lease.needed_until = lease.needed_until.max(now + CALL + life);
        Some(lease.id)
    }

    /// A new one takes the place of others for the same time.
    pub(super) fn add(&mut self, id: i64, class: Class, sent: Instant, ttl: i64) {
        for old in self.leases.iter_mut().filter(|old| old.class == class) {
            old.retired = true;
        }
        let good_until = sent + Duration::from_secs(ttl.max(0).cast_unsigned());
        let next_beat = sent + beat(class);
        let (needed_until, used, retired) = (sent, sent, false);
        let lease = Lease { id, class, good_until, needed_until, used, next_beat, retired };
        self.leases.push(lease);
    }

    /// Something unknown may have been put on it: it is not used any more, and so ends when all that
    /// is known has ended, and the unknown with it.
    pub(super) fn retire(&mut self, id: i64) {
        self.leases
            .iter_mut()
            .filter(|lease| lease.id == id)
            .for_each(|lease| lease.retired = true);
    }

    /// It has ended, and all that was on it.
    pub(super) fn lose(&mut self, id: i64) {
        self.leases.retain(|lease| lease.id != id);
        let gone = self.kept.iter().filter(|(_, kept)| kept.lease == id);
        let gone: Vec<Label> = gone.map(|(label, _)| label.clone()).collect();
        for label in gone {
            self.remove(&label);
        }
    }

    /// etcd has forgotten everything.
    pub(super) fn clear(&mut self) {
        *self = Table::default();
    }

    pub(super) fn is_ours(&self, lease: i64) -> bool {
        self.leases.iter().any(|ours| ours.id == lease)
    }

    /// It has given a sign of life, which was sent then; it has so many seconds now.
    pub(super) fn lives(&mut self, id: i64, sent: Instant, ttl: i64) {
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == id) {
            lease.good_until = sent + Duration::from_secs(ttl.max(0).cast_unsigned());
            lease.next_beat = sent + beat(lease.class);
        }
    }

    pub(super) fn beats(&mut self, now: Instant) -> Beats {
        let mut beats = Beats::default();
        let lost: Vec<i64> =
            self.leases.iter().filter(|one| one.good_until <= now).map(|one| one.id).collect();
        for id in lost {
            self.lose(id);
        }
        self.leases.retain(|lease| {
            let unused = lease.retired || lease.used + IDLE < now;
            let over = unused && lease.needed_until < now;
            if over {
                beats.revoke.push(lease.id);
            } else if lease.next_beat <= now {
                beats.keep.push(lease.id);
            }
            !over
        });
        beats
    }

    pub(super) fn next_beat(&self) -> Option<Instant> {
        self.leases.iter().map(|lease| lease.next_beat).min()
    }

    /// A change has happened in this revision, with these leases.
    pub(super) fn wrote(
        &mut self,
        change: &Change,
        revision: i64,
        leases: &BTreeMap<Class, i64>,
        now: Instant,
    ) {
        let on = |ms: u64| leases.get(&class(ms)).copied().unwrap_or_default();
        for (name, one) in &change.names {
            match &one.head {
                Write::Keep => {}
                Write::Delete => self.leave(name, revision, |_| true),
                Write::Put(put) => {
                    self.leave(name, revision, |id| {
                        let still = |id: &RequestId| {
                            put.holders.iter().any(|it| it.id == *id && !it.leased)
                        };
                        !id.is_some_and(still)
                    });
                    for holder in put.holders.iter().filter(|holder| holder.leased) {
                        if let Some(ms) = holder.left_ms {
                            let label = Label::Hold(name.clone(), Some(holder.id.clone()));
                            self.begin(label, revision, on(ms), ms, now, Vec::new());
                        }
                    }
                    if let Some(ms) = keep_ms(put) {
                        let label = Label::Hold(name.clone(), None);
                        self.begin(label, revision, on(ms), ms, now, Vec::new());
                    }
                }
            }
            for stand in &one.remove {
                self.remove_from(&Label::Wait(stand.seq, stand.id.clone()), name);
            }
        }
    }

    /// These waiters were appended, with these seqs.
    pub(super) fn appended(
        &mut self,
        change: &Change,
        version: u64,
        revision: i64,
        leases: &BTreeMap<Class, i64>,
        now: Instant,
    ) {
        for (number, append) in change.appends.iter().enumerate() {
            let label = Label::Wait(change.seq_of(version, number), append.id.clone());
            let lease = leases.get(&class(append.live_ms)).copied().unwrap_or_default();
            self.begin(label, revision, lease, append.live_ms, now, append.to.clone());
        }
    }

    pub(super) fn begin(
        &mut self,
        label: Label,
        revision: i64,
        lease: i64,
        ms: u64,
        now: Instant,
        names: Vec<Name>,
    ) {
        // Answers may come in another order than changes were made.
        if self.kept.get(&label).is_some_and(|known| known.revision > revision) {
            return;
        }
        let until = now + Duration::from_millis(ms);
        self.need(lease, until);
        self.set(label, Kept::new(until, revision, lease, names));
    }

    /// All of a name that were written before and of which this is so.
    fn leave(&mut self, name: &Name, revision: i64, which: impl Fn(Option<&RequestId>) -> bool) {
        let first = Label::Hold(name.clone(), None);
        let all = self
            .kept
            .range(first..)
            .take_while(|(label, _)| matches!(label, Label::Hold(one, _) if one == name));
        let gone = all.filter(|(label, kept)| match label {
            Label::Hold(_, id) => kept.revision < revision && which(id.as_ref()),
            _ => false,
        });
        let gone: Vec<Label> = gone.map(|(label, _)| label.clone()).collect();
        for label in gone {
            self.remove(&label);
        }
    }

    /// A waiter has left one queue.
    fn remove_from(&mut self, label: &Label, name: &Name) {
        let Some(kept) = self.kept.get_mut(label) else { return };
        kept.names.retain(|one| one != name);
        if kept.names.is_empty() {
            self.remove(label);
        }
    }

    /// Others have taken a waiter with this seq out of this queue.
    pub(super) fn was_removed(&mut self, name: &Name, seq: u64) {
        // No id is before this one.
        let first = Label::Wait(seq, RequestId::from_uuid([0; 16]));
        let found = self.kept.range(first..).next().map(|(label, _)| label.clone());
        if let Some(label @ Label::Wait(found, _)) = &found
            && *found == seq
        {
            self.remove_from(label, name);
        }
    }

    /// It lives on for so long at least. Nothing, if it is not known here; false, if its time is over.
    pub(super) fn prolong(&mut self, label: &Label, ms: u64, now: Instant) -> Option<bool> {
        let kept = self.kept.get(label)?;
        if kept.ending || kept.until <= now {
            return Some(false);
        }
        let mut kept = kept.clone();
        kept.until = kept.until.max(now + Duration::from_millis(ms));
        self.need(kept.lease, kept.until);
        self.set(label.clone(), kept);
        Some(true)
    }

    fn need(&mut self, lease: i64, until: Instant) {
        if let Some(lease) = self.leases.iter_mut().find(|one| one.id == lease) {
            lease.needed_until = lease.needed_until.max(until);
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until)
    }

    /// Those whose time is over, at most so many.
    pub(super) fn take_due(&mut self, now: Instant, most: usize) -> Vec<(Label, Kept)> {
        let due = self.due.iter().take_while(|(until, _)| *until <= now).take(most);
        let due: Vec<Label> = due.map(|(_, label)| label.clone()).collect();
        let mut taken = Vec::with_capacity(due.len());
        for label in due {
            if let Some(kept) = self.kept.get_mut(&label) {
                kept.ending = true;
                taken.push((label, kept.clone()));
            }
        }
        taken
    }

    /// It has been ended, unless it was written anew meanwhile.
    pub(super) fn ended(&mut self, label: &Label, revision: i64) {
        if self.kept.get(label).is_some_and(|kept| kept.revision == revision) {
            self.remove(label);
        }
    }

    /// It could not be ended: once more, later.
    pub(super) fn put_off(&mut self, label: &Label, revision: i64, until: Instant) {
        let known = self.kept.get(label).filter(|kept| kept.revision == revision).cloned();
        if let Some(kept) = known {
            self.set(label.clone(), Kept { until, ..kept });
        }
    }

    fn set(&mut self, label: Label, kept: Kept) {
        self.remove(&label);
        self.due.insert((kept.until, label.clone()));
        self.kept.insert(label, kept);
    }

    fn remove(&mut self, label: &Label) {
        if let Some(kept) = self.kept.remove(label) {
            self.due.remove(&(kept.until, label.clone()));
        }
    }
}
