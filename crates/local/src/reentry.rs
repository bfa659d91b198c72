//! A task that asks for a key which it holds itself waits for ever. This notices it: it remembers
//! where each key was taken and by which task, and compares when somebody has to wait.
//!
//! A task is known by its waker, a thread by the waker that unparks it. That is right for most code,
//! but not for all: branches of one task that run side by side (`join!`, `select!`) have the same
//! waker, and a guard may have moved to another task. So this reports, once for each pair of places,
//! and never panics. And a task that locks in both ways, awaiting and blocking, is taken for two.
//!
//! It is used in builds with debug assertions or the feature `reentry`; see `watch`.
#![cfg_attr(not(any(debug_assertions, feature = "reentry")), allow(dead_code))]

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::panic::Location;
use std::task::Waker;

use crate::sync::{Mutex, lock};
use crate::watch::Entry;
use crate::{Options, park};

/// A task has to wait for a key that it seems to hold itself, so it may wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reentry {
    /// Where it took the key.
    pub held_at: &'static Location<'static>,
    /// Where it asks for it again.
    pub asked_at: &'static Location<'static>,
}

impl fmt::Display for Reentry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the lock asked for at {} is held by the same task, it seems, since {}: it may wait for ever",
            self.asked_at, self.held_at
        )
    }
}

impl<K, S> Options<K, S> {
    /// What is done when a task has to wait for a key that it holds itself. The default writes the
    /// [`Reentry`] to standard error.
    ///
    /// It is looked for in builds with debug assertions, and in all builds with the feature
    /// `reentry`; in others this has no effect. Each pair of places is reported once. Branches of one
    /// task that run side by side (`join!`), and guards that were moved to another task, can be
    /// reported wrongly; [`Options::ignore_reentry`] is for programs that do so on purpose. A task
    /// that both awaits and blocks is not recognised.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylatch_local::{KeyedMutex, Options, Reentry};
    ///
    /// # if cfg!(any(debug_assertions, feature = "reentry")) {
    /// let (report, reports) = std::sync::mpsc::channel();
    /// let options = Options::new().on_reentry(move |reentry| report.send(*reentry).unwrap());
    /// let locks: KeyedMutex<&str> = options.build();
    /// let held = locks.lock_blocking("account");
    /// let again = locks.lock_blocking_timeout("account", Duration::from_millis(10));
    /// assert!(again.is_err());
    /// let Reentry { held_at, asked_at } = reports.recv().unwrap();
    /// assert_eq!(asked_at.line(), held_at.line() + 1);
    /// # drop(held);
    /// # }
    /// ```
    pub fn on_reentry(
        mut self,
        report: impl Fn(&Reentry) + Send + Sync + 'static,
    ) -> Options<K, S> {
        self.watcher.reentries.report = Some(Box::new(report));
        self
    }

    /// Does not look for tasks that ask for what they hold, in any build. It costs a debug build
    /// some time and memory for every lock.
    pub fn ignore_reentry(mut self) -> Options<K, S> {
        self.watcher.reentries.report = None;
        self
    }
}

/// Where something was asked for.
pub(crate) struct Place {
    location: &'static Location<'static>,
    reported: bool,
}

impl Place {
    #[track_caller]
    pub(crate) fn here() -> Place {
        Place { location: Location::caller(), reported: false }
    }
}

pub(crate) struct Reentries {
    holders: Mutex<Holders>,
    /// `None`: it is not looked for.
    report: Option<Report>,
}

type Report = Box<dyn Fn(&Reentry) + Send + Sync>;

#[derive(Default)]
struct Holders {
    /// By entry and holder.
    all: BTreeMap<(Entry, u64), Holder>,
    last: u64,
    /// Where it was held and asked for.
    reported: HashSet<Reentry>,
}

struct Holder {
    task: Task,
    held_at: &'static Location<'static>,
}

/// Which task a waker wakes. Not the waker itself: that may own the task, with the guard in it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Task(usize, usize);

impl Task {
    fn of(waker: &Waker) -> Task {
        let vtable: *const _ = waker.vtable();
        Task(waker.data() as usize, vtable as usize)
    }
}

impl Reentries {
    pub(crate) fn new() -> Reentries {
        Reentries {
            holders: Mutex::new(Holders::default()),
            report: Some(Box::new(|reentry| eprintln!("keylatch-local: {reentry}"))),
        }
    }

    /// Returns the holder's number, for [`Reentries::released`].
    pub(crate) fn held(&self, place: &Place, entries: &[Entry], waker: Option<&Waker>) -> u64 {
        if self.report.is_none() {
            return 0;
        }
        let task = waker.map_or_else(|| Task::of(&park::waker()), Task::of);
        let mut holders = lock(&self.holders);
        holders.last += 1;
        let id = holders.last;
        for entry in entries {
            let holder = Holder { task, held_at: place.location };
            holders.all.insert((*entry, id), holder);
        }
        id
    }

    pub(crate) fn released(&self, id: u64, entries: &[Entry]) {
        if self.report.is_none() {
            return;
        }
        let mut holders = lock(&self.holders);
        for entry in entries {
            holders.all.remove(&(*entry, id));
        }
    }

    pub(crate) fn waits(&self, place: &mut Place, entries: &[Entry], waker: &Waker) {
        let Some(report) = self.report.as_ref().filter(|_| !place.reported) else { return };
        place.reported = true;
        let task = Task::of(waker);
        let mut holders = lock(&self.holders);
        let of_entry = |entry: &Entry| holders.all.range((*entry, 0)..=(*entry, u64::MAX));
        let mut holding = entries.iter().flat_map(of_entry);
        let own = holding.find(|(_, holder)| holder.task == task);
        let found =
            own.map(|(_, holder)| Reentry { held_at: holder.held_at, asked_at: place.location });
        let new = found.filter(|reentry| holders.reported.insert(*reentry));
        drop(holders);
        if let Some(reentry) = new {
            report(&reentry);
        }
    }
}
