//! A lock that is asked for.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{Acquire, Mode, Part, Party, RequestId, Resource, ResourceError};
use rand::RngCore;

use crate::error::{LockError, RunError};
use crate::guard::{Guard, Hold};
use crate::key::IntoKey;
use crate::locks::Inner;

/// Without a limit a request waits this long: the longest that a table allows.
pub(crate) const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The lease of a request that names none.
const LEASE: Duration = Duration::from_secs(30);

/// A lock, before it is asked for. Awaiting it asks, and gives a [`Guard`]; in a thread without a
/// runtime it is [`crate::blocking::Ask`], and `acquire()` does that.
///
/// Dropping the future withdraws the request, also if it was granted meanwhile.
#[must_use = "nothing is asked for before it is awaited (or, in a thread, acquired)"]
pub struct Ask<For = Futures> {
    locks: Arc<Inner>,
    /// Who asks: the options are the same for all of them.
    asks: PhantomData<fn() -> For>,
    key: Result<Resource, ResourceError>,
    mode: Mode,
    also: Vec<(Result<Resource, ResourceError>, Mode)>,
    owner: Option<String>,
    wait: Duration,
    lease: Duration,
    max_hold: Duration,
    renew: bool,
    id: Option<RequestId>,
    meta: Option<String>,
    detect: bool,
}

/// Marks an [`Ask`], and everything else that is asked for, that is awaited.
#[derive(Debug)]
pub enum Futures {}

impl<For> Ask<For> {
    pub(crate) fn new(locks: Arc<Inner>, key: Result<Resource, ResourceError>) -> Self {
        Ask {
            locks,
            asks: PhantomData,
            key,
            mode: Mode::default(),
            also: Vec::new(),
            owner: None,
            wait: WEEK,
            lease: LEASE,
            max_hold: Duration::ZERO,
            renew: true,
            id: None,
            meta: None,
            detect: false,
        }
    }

    /// Shared with other shared ones.
    pub fn shared(self) -> Self {
        self.mode(Mode::Shared)
    }

    /// Optimistic: held beside others until one of them is promoted.
    pub fn optimistic(self) -> Self {
        self.mode(Mode::Optimistic)
    }

    /// In this mode; without it, exclusive.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Who holds it. Locks of one owner in mode E go together.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Waits at most so long; without it, until it is granted.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Does not wait: now or not at all.
    pub fn try_now(self) -> Self {
        self.wait(Duration::ZERO)
    }

    /// How long it is held without being renewed (30 s); zero is for ever. One shorter than the strategy can
    /// keep is made as long: see [`crate::Capabilities::shortest_lease`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long it is held at most, renewals included.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = max_hold;
        self
    }

    /// Does not renew: it is lost when its lease is over.
    pub fn no_renew(mut self) -> Self {
        self.renew = false;
        self
    }

    /// An id that cannot be guessed, to ask again after a crash for what is held already.
    pub fn id(mut self, id: RequestId) -> Self {
        self.id = Some(id);
        self
    }

    /// Free text, shown in lists.
    pub fn meta(mut self, meta: impl Into<String>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// Refuses to wait in a cycle of owners; needs an owner, who stands for one thread of control.
    pub fn detect(mut self) -> Self {
        self.detect = true;
        self
    }

    /// One more key in the same mode as the ones so far: all or none.
    pub fn also(mut self, key: impl IntoKey) -> Self {
        self.also.push((key.into_key(), self.mode));
        self
    }

    pub(crate) async fn ask(self) -> Result<Guard, LockError> {
        let (locks, renew, max_hold) = (Arc::clone(&self.locks), self.renew, self.max_hold);
        let lease = locks.capabilities.lease(self.lease);
        let ask = self.into_acquire()?;
        let id = ask.id.clone();
        // Submitted before the first await, and withdrawn if this future is dropped.
        let pending = locks.submit(|strategy| strategy.acquire(ask));
        let mut withdraw = Withdraw { locks: &locks, id: &id, armed: true };
        let granted = pending.await;
        withdraw.armed = matches!(granted, Err(LockError::Unknown(_)));
        drop(withdraw);
        let granted = granted?;
        let hold = Hold::new(id, &granted, lease, renew).at_most(&granted, max_hold);
        let hold = Arc::new(hold);
        locks.keeper.keep(&hold);
        Ok(Guard::new(locks, hold))
    }

    fn into_acquire(self) -> Result<Acquire, LockError> {
        let invalid = |error: ResourceError| LockError::Invalid(error.to_string());
        let party = match &self.owner {
            Some(owner) => Party::owner(owner),
            None => Party::client(&self.locks.shown),
        };
        let id = self.id.unwrap_or_else(new_id);
        let mut ask = Acquire::new(id, self.key.map_err(invalid)?, party);
        ask.part.mode = self.mode;
        for (key, mode) in self.also {
            ask.also.push(Part::new(key.map_err(invalid)?, mode));
        }
        ask.wait_ms = ms(self.wait);
        ask.lease_ms = ms(self.locks.capabilities.lease(self.lease));
        ask.detect = self.detect;
        let extra = keylatch_table::Extra {
            max_hold_ms: ms(self.max_hold),
            meta: self.meta.map(Into::into),
            ..keylatch_table::Extra::default()
        };
        ask.extra = extra.into();
        Ok(ask)
    }
}

impl Ask {
    /// Holds the lock around a task. Errors and panics release it; if it is lost, the task is
    /// dropped.
    pub async fn run<T>(self, task: impl AsyncFnOnce() -> T) -> Result<T, RunError> {
        let guard = self.await?;
        let done = tokio::select! {
            done = task() => Ok(done),
            lost = guard.lost() => Err(RunError::Lost(lost)),
        };
        guard.release().await;
        done
    }
}

impl IntoFuture for Ask {
    type Output = Result<Guard, LockError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}

/// Ends a request whose outcome nobody waits for any more.
struct Withdraw<'a> {
    locks: &'a Inner,
    id: &'a RequestId,
    armed: bool,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        if self.armed {
            drop(self.locks.end(self.id));
        }
    }
}

/// Rounded up, so that a lease is not none by being short.
pub(crate) fn ms(duration: Duration) -> u64 {
    duration.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u64::MAX)
}

/// A random UUID.
pub(crate) fn new_id() -> RequestId {
    let mut bytes = [0; 16];
    rand::rng().fill_bytes(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    RequestId::from_uuid(bytes)
}
