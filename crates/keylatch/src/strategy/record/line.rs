//! Requests of one process on one name keep the order of their calls: a lock that is asked for after
//! a guard was dropped finds it released.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::store::Name;

#[derive(Default)]
pub(super) struct Line {
    /// The last one of each name.
    last: Mutex<HashMap<Name, watch::Receiver<()>>>,
}

/// A place. Those behind it go on when it is dropped.
pub(super) struct Place {
    before: Vec<watch::Receiver<()>>,
    _here: watch::Sender<()>,
}

impl Line {
    pub(super) fn enter(&self, names: &[Name]) -> Place {
        let (here, behind) = watch::channel(());
        let mut last = self.last.lock();
        // Names that nobody stands at are not kept.
        last.retain(|_, one| one.has_changed().is_ok());
        let before =
            names.iter().filter_map(|name| last.insert(name.clone(), behind.clone())).collect();
        Place { before, _here: here }
    }
}

impl Place {
    /// Until all those before are done.
    pub(super) async fn turn(&mut self) {
        for mut one in self.before.drain(..) {
            // An error is what is waited for: its sender has been dropped.
            while one.changed().await.is_ok() {}
        }
    }
}
