//! What a table has done since it was made: counts and times for whoever watches it. Not part of its
//! state: it is in no snapshot, and nothing is decided by it.

use crate::{Cause, Mode, Text};

/// How a request for locks came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the replies
pub enum Outcome {
    Granted,
    Busy,
    TimedOut,
    Deadlock,
    Cancelled,
    Refused,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Outcome; 6] = [
        Outcome::Granted,
        Outcome::Busy,
        Outcome::TimedOut,
        Outcome::Deadlock,
        Outcome::Cancelled,
        Outcome::Refused,
    ];

    /// As it is called everywhere.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Granted => "granted",
            Outcome::Busy => "busy",
            Outcome::TimedOut => "timeout",
            Outcome::Deadlock => "deadlock",
            Outcome::Cancelled => "cancelled",
            Outcome::Refused => "refused",
        }
    }
}

/// How a request for a task came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the words of the replies
pub enum ClaimOutcome {
    Claimed,
    Nothing,
    TimedOut,
    Refused,
    Cancelled,
    Error,
}

impl ClaimOutcome {
    /// All of them.
    pub const ALL: [ClaimOutcome; 6] = [
        ClaimOutcome::Claimed,
        ClaimOutcome::Nothing,
        ClaimOutcome::TimedOut,
        ClaimOutcome::Refused,
        ClaimOutcome::Cancelled,
        ClaimOutcome::Error,
    ];

    /// As it is called everywhere.
    pub fn word(self) -> &'static str {
        match self {
            ClaimOutcome::Claimed => "claimed",
            ClaimOutcome::Nothing => "nothing",
            ClaimOutcome::TimedOut => "timeout",
            ClaimOutcome::Refused => "refused",
            ClaimOutcome::Cancelled => "cancelled",
            ClaimOutcome::Error => "error",
        }
    }
}

/// Times, by upper bounds.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// How many were not longer than the bound of the same place; behind the last one, how many were.
    pub counts: [u64; Times::BOUNDS_MS.len() + 1],
    /// All together.
    pub sum_ms: u64,
}

impl Times {
    /// From what a machine takes to what a person does.
    pub const BOUNDS_MS: [u64; 13] =
        [1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000];

    fn add(&mut self, ms: u64) {
        self.counts[Times::BOUNDS_MS.partition_point(|bound| *bound < ms)] += 1;
        self.sum_ms += ms;
    }
}

/// One of the longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Long {
    /// How long.
    pub ms: u64,
    /// The name of its first resource.
    pub name: Text,
    /// What it showed as its owner.
    pub owner: Text,
}

/// The longest ones so far, the longest first.
#[derive(Clone, Debug, Default)]
pub struct Longest(Vec<Long>);

impl Longest {
    /// So many are kept.
    const KEPT: usize = 16;

    /// All that are kept.
    pub fn iter(&self) -> impl Iterator<Item = &Long> {
        self.0.iter()
    }

    /// Described only if it is one of them.
    fn add(&mut self, ms: u64, describe: impl FnOnce() -> (Text, Text)) {
        if ms == 0 || (self.0.len() == Longest::KEPT && ms <= self.0[Longest::KEPT - 1].ms) {
            return;
        }
        self.0.truncate(Longest::KEPT - 1);
        let (name, owner) = describe();
        let place = self.0.partition_point(|other| other.ms >= ms);
        self.0.insert(place, Long { ms, name, owner });
    }
}

/// Counts and times since the table was made.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    outcomes: [[u64; Outcome::ALL.len()]; Mode::ALL.len()],
    claims: [u64; ClaimOutcome::ALL.len()],
    /// Claims whose lease ran out.
    pub lapsed: u64,
    /// How long those waited that were granted, those that did not have to included.
    pub waits: Times,
    /// How long those held that have ended.
    pub holds: Times,
    /// Grants that ended, in the order of [`Tally::CAUSES`].
    pub ended: [u64; Tally::CAUSES.len()],
    /// The longest waits that were granted.
    pub longest_waits: Longest,
    /// The longest holds that have ended.
    pub longest_holds: Longest,
}

impl Tally {
    /// Why grants end.
    pub const CAUSES: [Cause; 4] =
        [Cause::Released, Cause::Expired, Cause::Superseded, Cause::Revoked];

    /// How many requests whose first resource was asked for in this mode came out so.
    pub fn outcomes(&self, mode: Mode, outcome: Outcome) -> u64 {
        self.outcomes[mode as usize][outcome as usize]
    }

    /// How many requests for a task came out so; a repeat is no other request.
    pub fn claims(&self, outcome: ClaimOutcome) -> u64 {
        self.claims[outcome as usize]
    }

    pub(crate) fn count_claim(&mut self, outcome: ClaimOutcome) {
        self.claims[outcome as usize] += 1;
    }

    pub(crate) fn count(&mut self, mode: Mode, outcome: Outcome) {
        self.outcomes[mode as usize][outcome as usize] += 1;
    }

    pub(crate) fn waited(&mut self, ms: u64, describe: impl FnOnce() -> (Text, Text)) {
        self.waits.add(ms);
        self.longest_waits.add(ms, describe);
    }

    pub(crate) fn held(&mut self, ms: u64, cause: Cause, describe: impl FnOnce() -> (Text, Text)) {
        self.ended[cause as usize] += 1;
        self.holds.add(ms);
        self.longest_holds.add(ms, describe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_kept_in_order() {
        let mut longest = Longest::default();
        for ms in (0..40).chain([7, 7]) {
            longest.add(ms, || ("n".into(), "o".into()));
        }
        let kept: Vec<u64> = longest.iter().map(|long| long.ms).collect();
        assert_eq!(kept, (24..40).rev().collect::<Vec<_>>());
    }

    #[test]
    fn a_time_counts_at_the_first_bound_that_it_does_not_exceed() {
        let mut times = Times::default();
        for ms in [0, 1, 2, 5, 3_600_000, 3_600_001] {
            times.add(ms);
        }
        assert_eq!(times.counts, [2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(times.sum_ms, 7_200_009);
    }
}
