//! What came of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::fault::Kind;
use crate::judge::Count;

/// Violations that are shown; the first ones say most.
const SHOWN: usize = 20;

/// All that is worth knowing.
#[derive(Debug)]
pub struct Report {
    /// The plan.
    pub seed: u64,
    /// Members, at rest.
    pub members: usize,
    /// How long it took.
    pub took: Duration,
    /// Faults by kind, and the longest time without a grant during one.
    pub faults: BTreeMap<Kind, (u64, Duration)>,
    /// What there was to judge.
    pub count: Count,
    /// What was wrong; empty if nothing was.
    pub violations: Vec<String>,
    /// What happened before it was.
    pub recent: Vec<String>,
}

impl Report {
    /// Whether all promises were kept.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, members, took, faults, count, violations, recent } = self;
        writeln!(f, "\n{:<22}{:>6}  {:>22}", "fault", "times", "longest without a grant")?;
        for (kind, (times, gap)) in faults {
            writeln!(f, "{kind:<22}{times:>6}  {:>19.2} s", gap.as_secs_f64())?;
        }
        let Count { grants, lapsed, queues, queued, releases } = count;
        writeln!(
            f,
            "\n{members} members, seed {seed}, {:.0} s: {grants} grants, {releases} releases, {lapsed} leases left to \
             end,\n{queues} queues with {queued} waiters whose order was judged",
            took.as_secs_f64()
        )?;
        if violations.is_empty() {
            return write!(f, "every promise was kept");
        }
        writeln!(f, "\nwhat happened last:")?;
        for line in recent {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "\nBROKEN, with seed {seed} and {members} members:")?;
        for violation in violations.iter().take(SHOWN) {
            writeln!(f, "  {violation}")?;
        }
        match violations.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}
