//! A channel that has only the last value. openraft says with every batch on seven of them how far it is, and mostly
//! nobody listens. tokio's keeps those who listen in eight lists, so that many threads do not meet, and goes through all
//! of them for each value: for one batch a hundred locks, in as many places of the memory. This one has one list.
//! Whoever waits is woken in the order in which it began to: in the simulation nothing is left to chance.
//!
//! The value and the list have locks of their own. A value is replaced first and counted then, so whoever has seen the
//! count sees that value or a later one.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use openraft::async_runtime::watch::{RecvError, SendError};
use openraft::async_runtime::{Watch, WatchReceiver, WatchSender};
use openraft::{OptionalSend, OptionalSync};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

/// As openraft knows the kind.
#[derive(Debug)]
pub(crate) struct Watches;

struct Shared<T> {
    value: RwLock<T>,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// How many values there were behind the first.
    count: u64,
    senders: usize,
    receivers: usize,
    /// Who waits for the next one, under which number.
    waiting: Vec<(u64, Waker)>,
    /// The last of those numbers.
    last: u64,
}

impl<T> Shared<T> {
    fn count(&self) {
        let mut list = self.list.lock();
        list.count += 1;
        let waiting = std::mem::take(&mut list.waiting);
        drop(list);
        wake(waiting);
    }
}

fn wake(waiting: Vec<(u64, Waker)>) {
    for (_, waker) in waiting {
        waker.wake();
    }
}

pub(crate) struct Sender<T>(Arc<Shared<T>>);

pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The count of what it has seen.
    seen: u64,
}

/// The value, which nobody replaces meanwhile. One who has it may ask for it again.
pub(crate) struct Ref<'a, T>(RwLockReadGuard<'a, T>);

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl Watch for Watches {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = Ref<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(first: T) -> (Sender<T>, Receiver<T>) {
        let list = List { senders: 1, receivers: 1, ..List::default() };
        let shared = Arc::new(Shared { value: RwLock::new(first), list: Mutex::new(list) });
        (Sender(Arc::clone(&shared)), Receiver { shared, seen: 0 })
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<Watches, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.0.list.lock().receivers == 0 {
            return Err(SendError(value));
        }
        let before = std::mem::replace(&mut *self.0.value.write(), value);
        self.0.count();
        // Not under the lock: that may take a while.
        drop(before);
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        let modified = modify(&mut self.0.value.write());
        if modified {
            self.0.count();
        }
        modified
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        Ref(self.0.value.read_recursive())
    }

    fn subscribe(&self) -> Receiver<T> {
        let shared = Arc::clone(&self.0);
        let mut list = self.0.list.lock();
        list.receivers += 1;
        Receiver { shared, seen: list.count }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.list.lock().senders += 1;
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut list = self.0.list.lock();
        list.senders -= 1;
        if list.senders == 0 {
            let waiting = std::mem::take(&mut list.waiting);
            drop(list);
            wake(waiting);
        }
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<Watches, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        Changed { receiver: self, number: None }.await
    }

    fn borrow_watched(&self) -> Ref<'_, T> {
        Ref(self.shared.value.read_recursive())
    }

    fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.seen = self.shared.list.lock().count;
        Ref(self.shared.value.read_recursive())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.list.lock().receivers += 1;
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.list.lock().receivers -= 1;
    }
}

/// Until there is a value that was not seen.
struct Changed<'a, T> {
    receiver: &'a mut Receiver<T>,
    /// Under which it is in the list, if it is.
    number: Option<u64>,
}

impl<T> Future for Changed<'_, T> {
    type Output = Result<(), RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = Arc::clone(&self.receiver.shared);
        let mut list = shared.list.lock();
        if list.count != self.receiver.seen {
            self.receiver.seen = list.count;
            return Poll::Ready(Ok(()));
        }
        if list.senders == 0 {
            return Poll::Ready(Err(RecvError(())));
        }
        let waker = context.waker();
        let mine = list.waiting.iter_mut().find(|(number, _)| Some(*number) == self.number);
        if let Some((_, known)) = mine {
            known.clone_from(waker);
        } else {
            list.last += 1;
            let number = list.last;
            list.waiting.push((number, waker.clone()));
            self.number = Some(number);
        }
        Poll::Pending
    }
}

impl<T> Drop for Changed<'_, T> {
    fn drop(&mut self) {
        if let Some(mine) = self.number {
            self.receiver.shared.list.lock().waiting.retain(|(number, _)| *number != mine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_began_to_wait_first_is_woken_first_and_who_has_gone_is_not() {
        let (sender, receiver) = Watches::channel(0);
        let order = Arc::new(Mutex::new(Vec::new()));
        let wait = |nth: usize| {
            let (mut receiver, order) = (receiver.clone(), Arc::clone(&order));
            tokio::spawn(async move {
                receiver.changed().await.expect("there is a sender");
                order.lock().push((nth, *receiver.borrow_watched()));
            })
        };
        let mut tasks: Vec<_> = (0..10).map(wait).collect();
        tokio::task::yield_now().await;
        assert_eq!(sender.0.list.lock().waiting.len(), 10);
        tasks.remove(3).abort();
        tokio::task::yield_now().await;
        assert_eq!(sender.0.list.lock().waiting.len(), 9);
        sender.send(7).expect("there are receivers");
        for task in tasks {
            task.await.expect("no panic");
        }
        let expected = [0, 1, 2, 4, 5, 6, 7, 8, 9].map(|nth| (nth, 7));
        assert_eq!(*order.lock(), expected);
    }

    #[tokio::test]
    async fn who_waits_hears_that_nobody_can_send_any_more() {
        let (sender, mut receiver) = Watches::channel(0);
        let other = sender.clone();
        let waits = tokio::spawn(async move { receiver.changed().await });
        tokio::task::yield_now().await;
        drop(sender);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(other);
        assert!(waits.await.expect("no panic").is_err());
    }
}
