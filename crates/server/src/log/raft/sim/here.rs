//! Where the code that runs just now is: in which world, and in which process of it. Real code asks here for what
//! comes from outside; without a world it gets the real thing.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::disk::Platter;
use super::world::World;

thread_local! {
    static WORLD: RefCell<Option<Arc<World>>> = const { RefCell::new(None) };
    static PROCESS: RefCell<Option<Arc<Process>>> = const { RefCell::new(None) };
}

/// One life of a node: all of its tasks, and its disk.
pub(super) struct Process {
    /// Which node, and which life of it.
    pub(super) name: String,
    pub(super) disk: Arc<Platter>,
    dead: AtomicBool,
    /// Those that wanted to go on while it was stopped.
    stopped: Mutex<Option<Vec<Waker>>>,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Process {
    pub(super) fn new(name: String, disk: Arc<Platter>) -> Arc<Process> {
        let (dead, stopped, tasks) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
        Arc::new(Process { name, disk, dead, stopped, tasks })
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst) || self.disk.is_without_power()
    }

    /// `kill -9`: nothing of it runs any more.
    pub(super) fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
        for task in self.tasks.lock().drain(..) {
            task.abort();
        }
    }

    /// `SIGSTOP`.
    pub(super) fn stop(&self) {
        self.stopped.lock().get_or_insert_default();
    }

    /// `SIGCONT`.
    pub(super) fn go_on(&self) {
        for waker in self.stopped.lock().take().into_iter().flatten() {
            waker.wake();
        }
    }

    pub(super) fn spawn<F>(self: &Arc<Self>, task: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let handle = tokio::spawn(Inside { process: Some(Arc::clone(self)), task: Box::pin(task) });
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(handle.abort_handle());
        handle
    }
}

/// A task of a process.
pub(crate) struct Inside<F> {
    process: Option<Arc<Process>>,
    task: Pin<Box<F>>,
}

impl<F: Future> Future for Inside<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Some(process) = self.process.clone() else { return self.task.as_mut().poll(context) };
        if process.is_dead() {
            return Poll::Pending;
        }
        if let Some(stopped) = &mut *process.stopped.lock() {
            stopped.push(context.waker().clone());
            return Poll::Pending;
        }
        let before = PROCESS.replace(Some(Arc::clone(&process)));
        let polled = catch_unwind(AssertUnwindSafe(|| self.task.as_mut().poll(context)));
        PROCESS.set(before);
        polled.unwrap_or_else(|panic| {
            // Nobody else would notice that a task is gone.
            if let Some(world) = world() {
                let what = panic.downcast_ref::<String>().cloned();
                let what = what.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.into()));
                world.judge.lock().find(format!("{} panics: {what:?}", process.name));
            }
            resume_unwind(panic)
        })
    }
}

/// A task that belongs to the process that begins it, if there is one.
pub(crate) fn of_this_node<F: Future>(task: F) -> Inside<F> {
    Inside { process: process(), task: Box::pin(task) }
}

/// A task of openraft's, which belongs to the process that begins it, too.
pub(crate) fn spawn<F>(task: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match process() {
        Some(process) => process.spawn(task),
        None => tokio::spawn(task),
    }
}

pub(super) fn process() -> Option<Arc<Process>> {
    PROCESS.with_borrow(Clone::clone)
}

pub(super) fn world() -> Option<Arc<World>> {
    WORLD.with_borrow(Clone::clone)
}

/// The world that this thread is in from now on.
pub(super) fn enter(world: Option<Arc<World>>) {
    WORLD.set(world);
}

pub(crate) fn is_here() -> bool {
    WORLD.with_borrow(Option::is_some)
}

pub(crate) fn random() -> Option<u64> {
    world().map(|world| world.bits())
}

/// The wall clock: it begins in 2001, and is the same everywhere.
pub(crate) fn wall() -> Option<Duration> {
    world().map(|world| Duration::from_secs(1_000_000_000) + world.elapsed())
}

pub(crate) fn disk() -> Option<Arc<dyn crate::log::store::disk::Disk>> {
    process().map(|process| Arc::clone(&process.disk) as Arc<_>)
}

/// While a leader's disk works.
pub(crate) async fn while_it_syncs() {
    if let Some(world) = world() {
        world.sleep(world.below(world.sync_ms + 1)).await;
    }
}

/// Long enough for something else to happen.
pub(crate) async fn a_moment() {
    let ms = world().map_or(0, |world| world.below(3));
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
