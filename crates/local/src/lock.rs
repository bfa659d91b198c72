//! Asking for a key: the futures behind every way of locking.
//!
//! A future takes its place in the queue when it is first polled ([`KeyedMutex::reserve`]: when it
//! is made) and leaves it when it is dropped. If it was granted in the meantime, dropping it
//! releases the key. So every future here is cancel safe.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::hold::{Access, Guard, Handle, ManyGuard, mode};
use crate::keyed_mutex::Keys;
use crate::many::Many;
use crate::shard::{Mode, Standing};
use crate::timer::{self, Alarm};
use crate::watch::Asking;
use crate::{Key, KeyedMutex};

/// What is asked for and may have to be waited for, by a task or by a thread.
pub(crate) trait Pending: Unpin {
    type Guard;
    /// Asks, if that has not been done yet. Returns the guard if there is nothing to wait for.
    fn start(&mut self) -> Option<Self::Guard>;
    /// The guard if it is there; else `waker` is told when it is.
    fn poll_with(&mut self, waker: &Waker) -> Poll<Self::Guard>;
    /// Leaves the queue. Returns the guard if it was there already.
    fn give_up(&mut self) -> Option<Self::Guard>;
}

/// Waits for a key. Awaiting it gives a [`Guard`]; dropping it leaves the queue.
#[must_use = "nothing is locked until this is awaited"]
pub struct Lock<H: Handle, Q, M> {
    handle: Option<H>,
    step: Step<Q>,
    asking: Asking,
    mode: PhantomData<M>,
}

enum Step<Q> {
    Ask(Q),
    Asked { hash: u64, standing: Standing },
    Done,
}

impl<H: Handle, Q: Key<H::Key>, M: Access> Lock<H, Q, M> {
    #[inline]
    pub(crate) fn new(handle: H, key: Q, asking: Asking) -> Lock<H, Q, M> {
        Lock { handle: Some(handle), step: Step::Ask(key), asking, mode: PhantomData }
    }

    /// Takes its place now.
    pub(crate) fn reserve(mut self) -> Lock<H, Q, M> {
        let (hash, standing, _) = self.ask(None);
        self.step = Step::Asked { hash, standing };
        let handle = self.handle.as_ref().expect("it is new");
        let entry = [(hash, standing.number)];
        self.asking.reserved(handle.mutex(), &entry, mode::<M>(), standing.place().is_none());
        self
    }

    fn mutex(&self) -> &KeyedMutex<H::Key, H::Hasher> {
        self.handle.as_ref().expect("a future is not polled after it was ready").mutex()
    }

    /// Asks, if that has not been done yet (the last part of what it returns). The step is to be set
    /// by the caller then.
    #[inline(always)]
    #[allow(clippy::inline_always)] // half of the time of an uncontended lock is in moving things
    fn ask(&mut self, waker: Option<&Waker>) -> (u64, Standing, bool) {
        match std::mem::replace(&mut self.step, Step::Done) {
            Step::Ask(key) => {
                let mutex = self.mutex();
                let hash = mutex.hash(&key);
                (hash, mutex.ask(hash, key, mode::<M>(), waker), true)
            }
            Step::Asked { hash, standing } => (hash, standing, false),
            Step::Done => panic!("polled after it was ready"),
        }
    }

    #[inline]
    fn guard(&mut self, hash: u64, number: u32, waker: Option<&Waker>) -> Guard<H, M> {
        let handle = self.handle.take().expect("a future is not polled after it was ready");
        let asking = &mut self.asking;
        Guard::new(handle, hash, number)
            .watched(|handle| asking.held(handle.mutex(), &[(hash, number)], mode::<M>(), waker))
    }
}

impl<H: Handle, Q: Key<H::Key>, M: Access> Pending for Lock<H, Q, M> {
    type Guard = Guard<H, M>;

    #[inline]
    fn start(&mut self) -> Option<Guard<H, M>> {
        let (hash, standing, _) = self.ask(None);
        if standing.place().is_none() {
            return Some(self.guard(hash, standing.number, None));
        }
        self.step = Step::Asked { hash, standing };
        None
    }

    #[inline(always)]
    #[allow(clippy::inline_always)] // as above
    fn poll_with(&mut self, waker: &Waker) -> Poll<Guard<H, M>> {
        let (hash, standing, new) = self.ask(Some(waker));
        match standing.place() {
            None => Poll::Ready(self.guard(hash, standing.number, Some(waker))),
            Some(place) => {
                self.step = Step::Asked { hash, standing };
                if new {
                    return self.waits(hash, standing.number, waker);
                }
                self.poll_queued(hash, standing.number, place, waker)
            }
        }
    }

    fn give_up(&mut self) -> Option<Guard<H, M>> {
        let (hash, number) = match self.leave() {
            Left::Held { hash, number } => (hash, number),
            Left::Queue => {
                let handle = self.handle.as_ref().expect("who waited has a handle");
                self.asking.gave_up(handle.mutex());
                return None;
            }
            Left::Nothing => return None,
        };
        Some(self.guard(hash, number, None))
    }
}

impl<H: Handle, Q: Key<H::Key>, M: Access> Lock<H, Q, M> {
    #[inline(never)]
    fn poll_queued(
        &mut self,
        hash: u64,
        number: u32,
        place: usize,
        waker: &Waker,
    ) -> Poll<Guard<H, M>> {
        let asked = self.mutex().shard(hash).is_granted(place, waker);
        match asked {
            Ok(()) => {
                self.step = Step::Done;
                Poll::Ready(self.guard(hash, number, Some(waker)))
            }
            Err(replaced) => {
                drop(replaced);
                self.waits(hash, number, waker)
            }
        }
    }

    fn waits(&mut self, hash: u64, number: u32, waker: &Waker) -> Poll<Guard<H, M>> {
        let handle = self.handle.as_ref().expect("who waits has a handle");
        self.asking.waits(handle.mutex(), &[(hash, number)], mode::<M>(), waker);
        Poll::Pending
    }
}

/// What was left of a request that gave up.
enum Left {
    /// It had been granted, and the caller holds the key now.
    Held {
        hash: u64,
        number: u32,
    },
    /// Its place in the queue, which is free now.
    Queue,
    Nothing,
}

impl<H: Handle, Q, M> Lock<H, Q, M> {
    fn leave(&mut self) -> Left {
        let Step::Asked { hash, standing } = std::mem::replace(&mut self.step, Step::Done) else {
            return Left::Nothing;
        };
        let mutex = self.handle.as_ref().expect("who asked has a handle").mutex();
        match standing.place() {
            Some(place) if !mutex.leave(hash, place) => Left::Queue,
            _ => Left::Held { hash, number: standing.number },
        }
    }
}

impl<H: Handle, Q, M> Unpin for Lock<H, Q, M> {}

impl<H: Handle, Q: Key<H::Key>, M: Access> Future for Lock<H, Q, M> {
    type Output = Guard<H, M>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Guard<H, M>> {
        self.poll_with(context.waker())
    }
}

impl<H: Handle, Q, M> Drop for Lock<H, Q, M> {
    #[inline]
    fn drop(&mut self) {
        let Step::Asked { .. } = self.step else { return };
        let left = self.leave();
        let mutex = self.handle.as_ref().expect("who asked has a handle").mutex();
        match left {
            Left::Held { hash, number } => {
                mutex.release(hash, number);
                self.asking.gave_up(mutex);
            }
            Left::Queue => self.asking.gave_up(mutex),
            Left::Nothing => {}
        }
    }
}

impl<H: Handle, Q, M> fmt::Debug for Lock<H, Q, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Ask(_) => "new",
            Step::Asked { standing, .. } if standing.place().is_some() => "queued",
            Step::Asked { .. } => "granted",
            Step::Done => "done",
        };
        f.debug_tuple("Lock").field(&step).finish()
    }
}

/// Waits for several keys. Awaiting it gives a [`ManyGuard`]; dropping it leaves all queues.
#[must_use = "nothing is locked until this is awaited"]
pub struct LockMany<H: Handle> {
    handle: Option<H>,
    step: ManyStep<H::Key>,
    asking: Asking,
}

enum ManyStep<K> {
    Ask(Keys<K>),
    Queued(Arc<Many>),
    Done,
}

impl<H: Handle> LockMany<H> {
    pub(crate) fn new(handle: H, keys: Keys<H::Key>, asking: Asking) -> LockMany<H> {
        LockMany { handle: Some(handle), step: ManyStep::Ask(keys), asking }
    }

    fn mutex(&self) -> &KeyedMutex<H::Key, H::Hasher> {
        self.handle.as_ref().expect("a future is not polled after it was ready").mutex()
    }

    fn guard(&mut self, held: Box<[(u64, u32)]>, waker: Option<&Waker>) -> ManyGuard<H> {
        self.step = ManyStep::Done;
        let handle = self.handle.take().expect("a future is not polled after it was ready");
        let asking = &mut self.asking;
        ManyGuard::new(handle, held)
            .watched(|handle, held| asking.held(handle.mutex(), held, Mode::Exclusive, waker))
    }

    fn ask(&mut self, waker: Option<&Waker>) -> Option<ManyGuard<H>> {
        let ManyStep::Ask(keys) = std::mem::replace(&mut self.step, ManyStep::Done) else {
            panic!("polled after it was ready");
        };
        match self.mutex().ask_many(keys) {
            Ok(held) => Some(self.guard(held, waker)),
            Err(many) => {
                self.step = ManyStep::Queued(many);
                None
            }
        }
    }
}

impl<H: Handle> Pending for LockMany<H> {
    type Guard = ManyGuard<H>;

    fn start(&mut self) -> Option<ManyGuard<H>> {
        self.ask(None)
    }

    fn poll_with(&mut self, waker: &Waker) -> Poll<ManyGuard<H>> {
        let many = match &self.step {
            ManyStep::Queued(many) => Arc::clone(many),
            _ => match self.ask(Some(waker)) {
                Some(guard) => return Poll::Ready(guard),
                None => return self.poll_with(waker),
            },
        };
        if many.poll(waker).is_ready() {
            return Poll::Ready(self.guard(numbers(&many), Some(waker)));
        }
        let handle = self.handle.as_ref().expect("who waits has a handle");
        self.asking.waits(handle.mutex(), &numbers(&many), Mode::Exclusive, waker);
        Poll::Pending
    }

    fn give_up(&mut self) -> Option<ManyGuard<H>> {
        let ManyStep::Queued(many) = std::mem::replace(&mut self.step, ManyStep::Done) else {
            return None;
        };
        if self.mutex().leave_many(&many) {
            return Some(self.guard(numbers(&many), None));
        }
        let handle = self.handle.take().expect("who waits has a handle");
        self.asking.gave_up(handle.mutex());
        None
    }
}

fn numbers(many: &Many) -> Box<[(u64, u32)]> {
    many.parts().iter().map(|part| (part.hash, part.number)).collect()
}

impl<H: Handle> Unpin for LockMany<H> {}

impl<H: Handle> Future for LockMany<H> {
    type Output = ManyGuard<H>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ManyGuard<H>> {
        self.poll_with(context.waker())
    }
}

impl<H: Handle> Drop for LockMany<H> {
    fn drop(&mut self) {
        drop(self.give_up());
    }
}

impl<H: Handle> fmt::Debug for LockMany<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockMany(..)")
    }
}

/// The time was over before the key was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lock was not free in time")
    }
}

impl std::error::Error for TimedOut {}

/// Waits with a deadline. It asks at least once, so what is free is granted even when the deadline
/// has passed.
#[must_use = "nothing is locked until this is awaited"]
pub struct Timeout<L> {
    lock: L,
    /// `None`: too far away to matter.
    deadline: Option<Instant>,
    alarm: Option<(Alarm, Waker)>,
}

impl<L> Timeout<L> {
    pub(crate) fn new(lock: L, deadline: Option<Instant>) -> Timeout<L> {
        Timeout { lock, deadline, alarm: None }
    }
}

impl<L: PendingFuture> Future for Timeout<L> {
    type Output = Result<L::Output, TimedOut>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let waker = context.waker();
        if let Poll::Ready(guard) = this.lock.poll_with(waker) {
            this.alarm = None;
            return Poll::Ready(Ok(guard));
        }
        let Some(deadline) = this.deadline else { return Poll::Pending };
        if timer::is_past(deadline) {
            this.alarm = None;
            return Poll::Ready(this.lock.give_up().ok_or(TimedOut));
        }
        if !this.alarm.as_ref().is_some_and(|(_, set)| set.will_wake(waker)) {
            this.alarm = Some((Alarm::set(deadline, waker), waker.clone()));
        }
        Poll::Pending
    }
}

impl<L> fmt::Debug for Timeout<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// What a [`Timeout`] can wait for: a [`Lock`] or a [`LockMany`].
#[allow(private_bounds)] // only this crate's futures are such
pub trait PendingFuture: Pending<Guard = Self::Output> + Future {}

impl<L: Pending<Guard = L::Output> + Future> PendingFuture for L {}
