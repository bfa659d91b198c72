//! How many refusals are written down: a flood of them must neither fill a disk nor hide what
//! others do. Time goes in windows of a minute, in each of which
//!
//! - the same refusal is written once, and its repetitions are counted;
//! - one caller has [`OF_CALLER`] lines, all together have [`OF_ALL`], and the rest is counted.
//!
//! At the end of a window the counts are written, within the same bounds. So a minute has at most
//! twice `OF_ALL` lines and one more.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::audit::Record;

/// As long as somebody who looks at the file may wait for a count.
const WINDOW: Duration = Duration::from_secs(60);
/// Enough to see what a caller is up to.
const OF_CALLER: usize = 60;
/// Lines have some hundred bytes, and 8 KiB at worst: 10 MB a minute under the worst of floods.
const OF_ALL: usize = 600;

/// What is counted in this window.
#[derive(Default)]
pub(super) struct Throttle {
    began: Option<Instant>,
    /// Refusals that were written, and how often they came again. At most [`OF_ALL`].
    written: HashMap<Record, u64>,
    /// Lines of a caller, and those that it had too many. At most [`OF_ALL`].
    callers: HashMap<Caller, (usize, u64)>,
    /// Refusals that fit nowhere.
    others: u64,
}

/// An authenticated caller by its name, another by its address without the port.
type Caller = (Option<keylatch_table::Text>, Option<std::net::IpAddr>);

/// What a window has not written, and how often.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// This refusal came again.
    Again(Record, u64),
    /// This caller was refused in other ways.
    More(Caller, u64),
    /// Others were refused.
    Others(u64),
}

impl Throttle {
    /// Whether this refusal is written; if not, it is counted.
    pub(super) fn takes(&mut self, now: Instant, record: &Record) -> bool {
        self.began.get_or_insert(now);
        if let Some(count) = self.written.get_mut(record) {
            *count += 1;
            return false;
        }
        let caller = match &record.principal {
            Some(name) => (Some(name.clone()), None),
            None => (None, record.address),
        };
        if self.written.len() < OF_ALL {
            let (lines, more) = self.callers.entry(caller).or_default();
            if *lines == OF_CALLER {
                *more += 1;
                return false;
            }
            *lines += 1;
            self.written.insert(record.clone(), 0);
            return true;
        }
        match self.callers.get_mut(&caller) {
            Some((_, more)) => *more += 1,
            None => self.others += 1,
        }
        false
    }

    /// When the window ends, if there is one.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.began.map(|began| began + WINDOW)
    }

    /// The counts of the window, if it has ended. The next one begins with the next refusal.
    pub(super) fn ended(&mut self, now: Instant) -> Vec<Counted> {
        match self.ends() {
            Some(end) if end <= now => self.end(),
            _ => Vec::new(),
        }
    }

    /// The counts of the window, which ends now.
    pub(super) fn end(&mut self) -> Vec<Counted> {
        let Throttle { written, callers, others, .. } = std::mem::take(self);
        let again = written.into_iter().filter(|(_, count)| *count > 0);
        let again = again.map(|(record, count)| Counted::Again(record, count));
        let more = callers.into_iter().filter(|(_, (_, more))| *more > 0);
        let more = more.map(|(caller, (_, more))| Counted::More(caller, more));
        // Those who were too many first: they are what is worth knowing if lines are short.
        let mut counted: Vec<Counted> = more.chain(again).take(OF_ALL).collect();
        if others > 0 {
            counted.push(Counted::Others(others));
        }
        counted
    }
}
