//! A world: chance and time, the trace of what happens, and what is planted in it to be found.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keylatch_lab::random::Random;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::judge::Judge;
use super::net::Net;
use super::nodes::Door;

/// A mistake that is made on purpose, to see it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plant {
    Nothing,
    /// Disks say that they have synced, and have not.
    LyingDisks,
    /// A leader counts its own entries as synced when it has sent them.
    UnsyncedEntries,
    /// A vote is not written down.
    ForgottenVotes,
    /// The network says that entries are stored that nobody got: what is not committed counts as it.
    UnheardEntries,
    /// A batch that was sent twice counts twice.
    TwiceCounted,
    /// A new leader counts time on from its own clock, and not from the log.
    OwnTime,
    /// Questions are answered by whatever the node knows.
    StaleReads,
    /// A snapshot does not say who waits where and what was sent.
    ForgetfulSnapshots,
}

pub(super) struct World {
    pub(super) plant: Plant,
    /// How long a leader's disk takes at most, while others get what it writes.
    pub(super) sync_ms: u64,
    random: Mutex<Random>,
    start: Instant,
    trace: Mutex<Trace>,
    pub(super) net: Mutex<Net>,
    pub(super) judge: Mutex<Judge>,
    /// By address: where clients ask, while somebody is there.
    pub(super) doors: Mutex<BTreeMap<String, Door>>,
}

/// What has happened: a sum of it, and the end of it in words.
struct Trace {
    sum: u64,
    lines: u64,
    shown: bool,
}

impl World {
    pub(super) fn new(seed: u64, plant: Plant) -> Arc<World> {
        let mut random = Random::new(seed);
        let sync_ms = *random.pick(&[0, 2, 2, 30, 300]);
        let shown = std::env::var_os("KEYLATCH_TRACE").is_some();
        Arc::new(World {
            plant,
            sync_ms,
            random: Mutex::new(random),
            start: Instant::now(),
            trace: Mutex::new(Trace { sum: 0xcbf2_9ce4_8422_2325, lines: 0, shown }),
            net: Mutex::default(),
            judge: Mutex::new(Judge::new()),
            doors: Mutex::default(),
        })
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Milliseconds since it began.
    pub(super) fn now(&self) -> u64 {
        self.elapsed().as_millis() as u64
    }

    pub(super) fn bits(&self) -> u64 {
        self.random.lock().bits()
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.random.lock().below(bound)
    }

    pub(super) fn between(&self, low: u64, high: u64) -> u64 {
        self.random.lock().between(low, high)
    }

    pub(super) fn percent(&self, percent: u64) -> bool {
        self.random.lock().percent(percent)
    }

    pub(super) fn pick<T: Clone>(&self, items: &[T]) -> T {
        self.random.lock().pick(items).clone()
    }

    pub(super) fn with_random<T>(&self, act: impl FnOnce(&mut Random) -> T) -> T {
        act(&mut self.random.lock())
    }

    /// Something has happened.
    pub(super) fn note(&self, what: fmt::Arguments<'_>) {
        let line = format!("{:>7} {what}", self.now());
        let mut trace = self.trace.lock();
        for byte in line.bytes() {
            trace.sum = (trace.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        trace.lines += 1;
        if trace.shown {
            eprintln!("{line}");
        }
    }

    /// The sum of everything that has happened, and how much that was.
    pub(super) fn sum(&self) -> (u64, u64) {
        let trace = self.trace.lock();
        (trace.sum, trace.lines)
    }

    pub(super) async fn sleep(&self, ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// Notes something in the trace of a world.
macro_rules! note {
    ($world:expr, $($text:tt)*) => { $world.note(format_args!($($text)*)) };
}
pub(super) use note;
