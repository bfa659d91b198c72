//! The locks behind a URL.

use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{Entry, LocksQuery, PoolCounts, RequestId, Text};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::ask::{Ask, ms};
use crate::capabilities::Capabilities;
use crate::clock::Moment;
use crate::error::{ConnectError, ListError, PromoteError, RenewError, RunError};
use crate::event::Watch;
use crate::guard::{Hold, Released};
use crate::keeper::{self, Keeper};
use crate::key::IntoKey;
use crate::releasing::{Counted, Releasing};
use crate::strategy::{self, Loss, Opened, Pending, Renewed, Strategy, TaskStrategy};
use crate::tasks::{Later, Tasks};

/// Locks of one place. Clones share everything; a program needs one.
#[derive(Clone)]
pub struct Locks(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) strategy: Arc<dyn Strategy>,
    tasks: Arc<dyn TaskStrategy>,
    pub(crate) keeper: Arc<Keeper>,
    /// Claims of tasks, until they are to be renewed.
    pub(crate) claims: Arc<Later>,
    pub(crate) capabilities: &'static Capabilities,
    /// What is shown of requests that name no owner.
    pub(crate) shown: Text,
    releasing: Arc<Releasing>,
    /// Where strategies do their work. A guard may be dropped anywhere: in another runtime, in a
    /// thread without one, or after the runtime has ended (then nothing is done any more).
    pub(crate) runtime: Handle,
}

impl Locks {
    /// Opens the locks that the environment (`KEYLATCH_URL`) or the user's configuration file names,
    /// or else those in a file of the user's, for which nothing has to run: see [`crate::place`].
    ///
    /// To be called inside of a tokio runtime, which then also renews what is held.
    pub async fn open() -> Result<Locks, ConnectError> {
        Locks::connect(&crate::place::url()?).await
    }

    /// Opens what a URL names: `memory:`, `sqlite:PATH`, `redis://HOST:PORT`, `postgres://..`,
    /// `etcd://HOST:PORT` or `keylatch://[:TOKEN@]HOST:PORT[,HOST:PORT...]`. A lock server whose URL has no token is shown that
    /// of the variable `KEYLATCH_AUTH`, if there is one.
    ///
    /// To be called inside of a tokio runtime, which then also renews what is held.
    pub async fn connect(url: &str) -> Result<Locks, ConnectError> {
        let capabilities = Capabilities::of(url).ok_or_else(|| strategy::unknown(url))?;
        let (losses, lost) = mpsc::unbounded_channel();
        let opened = strategy::connect(url, losses).await?;
        Ok(Locks::over(opened, lost, capabilities))
    }

    /// Those of a member of a cluster in this process.
    #[cfg(feature = "cluster")]
    pub(crate) async fn inside(door: keylatch_server::Door) -> Result<Locks, ConnectError> {
        let (losses, lost) = mpsc::unbounded_channel();
        let opened = strategy::enter(door, losses).await?;
        Ok(Locks::over(opened, lost, &Capabilities::CLUSTER))
    }

    fn over(
        opened: Opened,
        mut lost: mpsc::UnboundedReceiver<Loss>,
        capabilities: &'static Capabilities,
    ) -> Locks {
        let Opened { locks: strategy, tasks } = opened;
        let keeper = Arc::new(Keeper::default());
        let told = Arc::downgrade(&keeper);
        tokio::spawn(async move {
            while let Some((id, lost)) = lost.recv().await {
                let Some(keeper) = told.upgrade() else { return };
                keeper.lose(&id, lost);
            }
        });
        tokio::spawn(keeper::run(Arc::downgrade(&keeper), Arc::downgrade(&strategy)));
        let shown = format!("process {}", std::process::id()).into();
        let (claims, releasing) = (Arc::default(), Arc::default());
        let runtime = Handle::current();
        Locks(Arc::new(Inner {
            strategy,
            tasks,
            keeper,
            claims,
            capabilities,
            shown,
            releasing,
            runtime,
        }))
    }

    /// What the strategy behind the URL can do and promises.
    pub fn capabilities(&self) -> &'static Capabilities {
        self.0.capabilities
    }

    /// A lock on a key: text, or what [`crate::resource`] makes. Nothing happens before it is
    /// awaited.
    pub fn lock(&self, key: impl IntoKey) -> Ask {
        self.ask(key)
    }

    /// The same, for whoever asks.
    pub(crate) fn ask<For>(&self, key: impl IntoKey) -> Ask<For> {
        Ask::new(Arc::clone(&self.0), key.into_key())
    }

    /// Holds a lock around a task. Errors and panics release it; if it is lost, the task is dropped.
    pub async fn run<T, F>(&self, key: impl IntoKey, task: F) -> Result<T, RunError>
    where
        F: AsyncFnOnce() -> T,
    {
        self.lock(key).run(task).await
    }

    /// Who holds, and with `waiters` who waits, in the order of arrival.
    pub async fn list(&self, query: LocksQuery) -> Result<Vec<Entry>, ListError> {
        self.0.submit(|strategy| strategy.list(query)).await
    }

    /// Ends the grant with this token; its holder is told why. Whether there was one.
    pub async fn revoke(&self, token: u64, reason: &str) -> Result<bool, ListError> {
        self.0.submit(|strategy| strategy.revoke(token, reason)).await
    }

    /// Gives up what is held or waited for under this id, also by another process. For one that is
    /// held by a guard of this process there is [`crate::Guard::release`].
    pub async fn release(&self, id: &RequestId) -> Released {
        self.0.end(id).await
    }

    /// Leases anew what is held under this id, for so long or as first asked for, never shorter. How
    /// long is left then; `None` is no lease.
    pub async fn renew(
        &self,
        id: &RequestId,
        lease: Option<Duration>,
    ) -> Result<Option<Duration>, RenewError> {
        let lease_ms = lease.map(|lease| ms(self.0.capabilities.lease(lease)));
        match self.0.submit(|strategy| strategy.renew(id, lease_ms)).await {
            Some(Renewed::Until(end)) => Ok(end.map(Moment::left)),
            Some(Renewed::Lost(lost)) => Err(RenewError::Lost(lost)),
            Some(Renewed::NotHeld) => Err(RenewError::NotHeld),
            Some(Renewed::Refused(reason)) => Err(RenewError::Invalid(reason)),
            Some(Renewed::Denied(reason)) => Err(RenewError::Denied(reason)),
            None => Err(RenewError::Unknown("no answer came in time".into())),
        }
    }

    /// Promotes what is held under this id; its new token. For one that is held by a guard of this
    /// process there is [`crate::Guard::promote`].
    pub async fn promote(&self, id: &RequestId) -> Result<u64, PromoteError> {
        Ok(self.0.submit(|strategy| strategy.promote(id)).await?.grant.token)
    }

    /// The tasks of a pool, which needs not exist: it does as long as it has tasks.
    pub fn tasks(&self, pool: impl Into<Text>) -> Tasks {
        self.tasks_of(pool.into())
    }

    /// The same, for whoever asks.
    pub(crate) fn tasks_of<For>(&self, pool: Text) -> Tasks<For> {
        Tasks::new(Arc::clone(&self.0), pool)
    }

    /// The pools that have tasks or waiting claims, with their counts.
    pub async fn pools(&self) -> Result<Vec<PoolCounts>, ListError> {
        self.0.submit_task(|tasks| tasks.pools(None)).await
    }

    /// What happens from now on to those who wait, and to those who lose what they hold; also to claims
    /// of tasks.
    pub async fn watch(&self) -> Result<Watch, ListError> {
        Ok(Watch::new(self.0.submit(|strategy| strategy.watch()).await?, None))
    }

    /// Waits until every release so far has been answered. Dropped guards release in the background,
    /// so a program calls this before it ends.
    pub async fn close(&self) {
        self.0.releasing.close(|| self.0.submit(|strategy| strategy.hurry())).await;
    }
}

impl Inner {
    /// Hands something to the strategy, which may start tasks for it.
    pub(crate) fn submit<T>(&self, call: impl FnOnce(&dyn Strategy) -> T) -> T {
        let _entered = self.runtime.enter();
        call(&*self.strategy)
    }

    /// The same, about tasks.
    pub(crate) fn submit_task<T>(&self, call: impl FnOnce(&dyn TaskStrategy) -> T) -> T {
        let _entered = self.runtime.enter();
        call(&*self.tasks)
    }

    /// Submitted now, whatever becomes of the future.
    pub(crate) fn release(&self, hold: &Hold) -> Pending<Released> {
        self.keeper.drop_hold(&hold.id);
        self.end(&hold.id)
    }

    /// In a task of its own, for which [`Locks::close`] waits.
    pub(crate) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        let counted = Counted::new(&self.releasing);
        self.runtime.spawn(async move {
            work.await;
            drop(counted);
        });
    }

    /// Ends a request, held or waiting.
    pub(crate) fn end(&self, id: &RequestId) -> Pending<Released> {
        let counted = Counted::new(&self.releasing);
        self.submit(|strategy| strategy.release(id, counted))
    }
}
