//! The same locks for threads without a runtime: every call waits in its thread for its outcome.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use keylatch::blocking::Locks;
//!
//! let locks = Locks::connect("memory:")?; // or Locks::open()
//! let guard = locks.lock("user:42").wait(Duration::from_secs(5)).acquire()?;
//! println!("token {}", guard.token());
//! guard.release(); // so does dropping it, in the background
//!
//! let counted = locks.run("report", |_guard| 7)?;
//! # assert_eq!(counted, 7);
//! # Ok(())
//! # }
//! ```
//!
//! One thread for the whole program does the work behind it and renews what is held. Inside of an
//! async runtime this works too, but blocks one of its threads as long as it waits: use
//! [`crate::Locks`] there.

mod background;
mod guard;
mod tasks;

use std::fmt;
use std::time::Duration;

use crate::capabilities::Capabilities;
use crate::error::{ConnectError, ListError, LockError, PromoteError, RenewError, RunError};
use crate::event::Event;
use crate::guard::Released;
use crate::key::IntoKey;
use crate::{Entry, LocksQuery, RequestId};
use background::wait;
pub use guard::Guard;
pub use tasks::{Claim, ClaimTask, CreateTask, ListTasks, PutBackTask, Tasks, UpdateTask};

/// Locks of one place, for threads. Clones share everything; a program needs one.
#[derive(Clone)]
pub struct Locks(crate::Locks);

/// Marks an [`Ask`] that a thread waits for.
#[derive(Debug)]
pub enum Threads {}

/// A lock, before it is asked for: with the options of [`crate::Ask`], and then [`Ask::acquire`].
pub type Ask = crate::Ask<Threads>;

impl Locks {
    /// Opens the locks that the environment (`KEYLATCH_URL`) or the user's configuration file names,
    /// or else those in a file of the user's, for which nothing has to run: see [`crate::place`].
    pub fn open() -> Result<Locks, ConnectError> {
        Locks::connect(&crate::place::url()?)
    }

    /// Opens what a URL names; see [`crate::Locks::connect`].
    pub fn connect(url: &str) -> Result<Locks, ConnectError> {
        background::start()?;
        wait(crate::Locks::connect(url)).map(Locks)
    }

    /// What the strategy behind the URL can do and promises.
    pub fn capabilities(&self) -> &'static Capabilities {
        self.0.capabilities()
    }

    /// A lock on a key: text, or what [`crate::resource`] makes. Nothing happens before
    /// [`Ask::acquire`].
    pub fn lock(&self, key: impl IntoKey) -> Ask {
        self.0.ask(key)
    }

    /// Holds a lock around a function; see [`Ask::run`].
    pub fn run<T>(&self, key: impl IntoKey, task: impl FnOnce(&Guard) -> T) -> Result<T, RunError> {
        self.lock(key).run(task)
    }

    /// Who holds, and with `waiters` who waits, in the order of arrival.
    pub fn list(&self, query: LocksQuery) -> Result<Vec<Entry>, ListError> {
        wait(self.0.list(query))
    }

    /// Ends the grant with this token; its holder is told why. Whether there was one.
    pub fn revoke(&self, token: u64, reason: &str) -> Result<bool, ListError> {
        wait(self.0.revoke(token, reason))
    }

    /// Gives up what is held or waited for under this id, also by another process. For one that is
    /// held by a guard of this process there is [`Guard::release`].
    pub fn release(&self, id: &RequestId) -> Released {
        wait(self.0.release(id))
    }

    /// Leases anew what is held under this id, for so long or as first asked for, never shorter. How
    /// long is left then; `None` is no lease.
    pub fn renew(
        &self,
        id: &RequestId,
        lease: Option<Duration>,
    ) -> Result<Option<Duration>, RenewError> {
        wait(self.0.renew(id, lease))
    }

    /// Promotes what is held under this id; its new token. For one that is held by a guard of this
    /// process there is [`Guard::promote`].
    pub fn promote(&self, id: &RequestId) -> Result<u64, PromoteError> {
        wait(self.0.promote(id))
    }

    /// What happens from now on to those who wait, and to those who lose what they hold.
    pub fn watch(&self) -> Result<Watch, ListError> {
        wait(self.0.watch()).map(Watch::new)
    }

    /// Waits until every release so far has been answered. Dropped guards release in the background,
    /// so a program calls this before it ends.
    pub fn close(&self) {
        wait(self.0.close());
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").finish_non_exhaustive()
    }
}

impl Ask {
    /// Asks, and waits as long as was said.
    pub fn acquire(self) -> Result<Guard, LockError> {
        wait(self.ask()).map(Guard::new)
    }

    /// Holds the lock around a function. Errors and panics release it. A thread cannot be stopped
    /// from outside: if the lock is lost, the function goes on, can find out from the guard, and the
    /// result is an error.
    pub fn run<T>(self, task: impl FnOnce(&Guard) -> T) -> Result<T, RunError> {
        let guard = self.acquire()?;
        let done = task(&guard);
        let lost = guard.is_lost();
        guard.release();
        lost.map_or(Ok(done), |lost| Err(RunError::Lost(lost)))
    }
}

/// Events as they happen; see [`Locks::watch`]. As an iterator it waits for the next one, and ends if
/// there will be none.
pub struct Watch(crate::Watch);

impl Watch {
    fn new(watch: crate::Watch) -> Watch {
        Watch(watch)
    }

    /// The next event, if one comes in time.
    pub fn next_within(&mut self, time: Duration) -> Option<Event> {
        wait(async { tokio::time::timeout(time, self.0.next()).await.ok().flatten() })
    }
}

impl Iterator for Watch {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        wait(self.0.next())
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
