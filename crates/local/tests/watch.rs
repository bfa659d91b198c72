//! Reports of re-entry, and what an observer is told.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Task, poll, ready, waits};
use keylatch_local::{KeyedMutex, Observed, Observer, Options, Reentry, Traced};

type Reports = Arc<Mutex<Vec<Reentry>>>;

fn watched() -> (Arc<KeyedMutex<u8>>, Reports) {
    let reports = Reports::default();
    let to = Arc::clone(&reports);
    let options = Options::new().on_reentry(move |reentry| to.lock().unwrap().push(*reentry));
    (Arc::new(options.build()), reports)
}

#[test]
fn a_task_that_asks_for_what_it_holds_is_reported_once_with_both_places() {
    let (locks, reports) = watched();
    let task = Task::new();
    let mut first = locks.lock(1);
    let std::task::Poll::Ready(held) = task.poll(&mut first) else { panic!("it is free") };
    let mut again = locks.lock(1);
    let line = line!() - 3;
    for _ in 0..3 {
        assert!(task.poll(&mut again).is_pending());
    }
    let reports = reports.lock().unwrap();
    let [Reentry { held_at, asked_at }] = reports[..] else { panic!("{reports:?}") };
    assert_eq!((held_at.line(), asked_at.line()), (line, line + 2));
    assert!(held_at.file().ends_with("watch.rs"));
    let text = reports[0].to_string();
    assert!(
        text.contains("watch.rs") && text.contains("held by the same task, it seems, since"),
        "{text}"
    );
    drop(held);
}

#[test]
fn a_thread_is_known_too_and_several_keys_and_readers_behind_a_writer() {
    let (locks, reports) = watched();
    let short = Duration::from_millis(5);
    let held = locks.lock_blocking(1);
    assert!(locks.lock_many_blocking_timeout([1, 2], short).is_err());
    assert_eq!(reports.lock().unwrap().len(), 1);
    let reader = held.downgrade();
    let other = Task::new();
    let mut writer = locks.lock(1);
    assert!(other.poll(&mut writer).is_pending());
    assert_eq!(reports.lock().unwrap().len(), 1, "another task's wait is not reported");
    assert!(locks.lock_shared_blocking_timeout(1, short).is_err());
    assert_eq!(reports.lock().unwrap().len(), 2);
    drop((reader, writer));
    let many = locks.lock_many_blocking([1, 2]);
    assert!(locks.lock_blocking_timeout(2, short).is_err());
    assert_eq!(reports.lock().unwrap().len(), 3);
    drop(many);
}

#[test]
fn what_was_released_is_not_reported() {
    let (locks, reports) = watched();
    let mine = locks.lock_blocking(1);
    drop(mine);
    let other = Task::new();
    let mut first = locks.lock(1);
    let std::task::Poll::Ready(held) = other.poll(&mut first) else { panic!("it is free") };
    assert!(locks.lock_blocking_timeout(1, Duration::from_millis(5)).is_err());
    assert!(reports.lock().unwrap().is_empty());
    drop(held);
}

#[test]
fn one_reader_less_is_forgotten_though_the_others_still_read() {
    let (locks, reports) = watched();
    let mine = locks.lock_shared_blocking(1);
    let others = Task::new();
    let mut reader = locks.lock_shared(1);
    let std::task::Poll::Ready(held) = others.poll(&mut reader) else { panic!("readers share") };
    drop(mine);
    assert!(locks.lock_blocking_timeout(1, Duration::from_millis(5)).is_err());
    assert!(reports.lock().unwrap().is_empty(), "it does not hold it any more");
    drop(held);
}

#[test]
fn it_can_be_ignored() {
    let locks: KeyedMutex<u8> = Options::new().on_reentry(|_| panic!()).ignore_reentry().build();
    let held = locks.lock_blocking(1);
    assert!(locks.lock_blocking_timeout(1, Duration::from_millis(5)).is_err());
    drop(held);
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn note(&self, what: &str, observed: &Observed, rest: &str) {
        let Observed { class, shared, keys, .. } = *observed;
        let mode = if shared { "shared" } else { "exclusive" };
        self.0.lock().unwrap().push(format!("{what} {class} {mode} {keys}{rest}"));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer<u8> for Notes {
    fn class(&self, key: &u8) -> &'static str {
        if *key < 10 { "small" } else { "large" }
    }
    fn acquired(&self, observed: &Observed, waited: Duration, queue: usize) {
        let waited = if waited.is_zero() { "at once" } else { "later" };
        self.note("acquired", observed, &format!(" {waited} {queue}"));
    }
    fn released(&self, observed: &Observed, held: Duration) {
        self.note("released", observed, if held.is_zero() { " ?" } else { "" });
    }
    fn gave_up(&self, observed: &Observed, waited: Duration) {
        self.note("gave up", observed, if waited.is_zero() { " ?" } else { "" });
    }
}

#[test]
fn an_observer_is_told_of_waits_holds_and_queues_by_class() {
    let notes = Notes::default();
    let locks: KeyedMutex<u8> = Options::new().observer(notes.clone()).build();
    let held = ready(locks.lock(1));
    let large = locks.try_lock_shared(20).unwrap();
    assert_eq!(
        notes.take(),
        ["acquired small exclusive 1 at once 0", "acquired large shared 1 at once 0"]
    );
    let mut waiter = waits(locks.lock_shared(1));
    let leaver = waits(locks.lock(1));
    assert!(poll(&mut waiter).is_pending());
    let mut many = waits(locks.lock_many([2, 1]));
    assert_eq!(notes.take(), [""; 0]);
    drop(leaver);
    assert_eq!(notes.take(), ["gave up small exclusive 1"]);
    drop(held);
    drop(ready(&mut waiter));
    assert_eq!(
        notes.take(),
        [
            "released small exclusive 1",
            "acquired small shared 1 later 1",
            "released small shared 1"
        ]
    );
    drop(ready(&mut many));
    assert_eq!(notes.take(), ["acquired small exclusive 2 later 3", "released small exclusive 2"]);
    assert!(locks.lock_many_blocking_timeout([20, 1], Duration::from_millis(5)).is_err());
    assert_eq!(notes.take(), ["gave up large exclusive 2"]);
    drop(large);
}

/// Notes the messages and fields of events.
#[derive(Clone, Default)]
struct Subscriber(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Subscriber {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "keylatch_local"
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn events_are_traced() {
    let subscriber = Subscriber::default();
    let seen = Arc::clone(&subscriber.0);
    tracing::subscriber::with_default(subscriber, || {
        let locks: KeyedMutex<u8> = Options::new().observer(Traced::by(|_| "small")).build();
        let held = ready(locks.lock(1));
        drop(waits(locks.lock_shared(1)));
        drop(held);
    });
    let seen = seen.lock().unwrap();
    for message in ["acquired", "gave up", "released"] {
        assert!(seen.contains(&format!("message={message}")), "{seen:?}");
    }
    for field in ["shared=true", "queue=0", "class=\"small\""] {
        assert!(seen.contains(&field.into()), "{seen:?}");
    }
    let all_alike: KeyedMutex<u8> = Options::new().observer(Traced::new()).build();
    drop(ready(all_alike.lock(1)));
}

#[test]
fn reservations_and_changes_of_mode_are_observed() {
    let notes = Notes::default();
    let locks: KeyedMutex<u8> = Options::new().observer(notes.clone()).build();
    let reserved = locks.reserve(1);
    assert_eq!(notes.take(), ["acquired small exclusive 1 at once 0"]);
    let (queued, dropped) = (locks.reserve(1), locks.reserve_shared(1));
    drop(dropped);
    assert_eq!(notes.take(), ["gave up small shared 1"]);
    let shared = ready(reserved).downgrade();
    assert_eq!(notes.take(), ["released small exclusive 1", "acquired small shared 1 at once 0"]);
    drop(shared);
    assert_eq!(notes.take(), ["released small shared 1"]);
    drop(ready(queued));
    assert_eq!(notes.take(), ["acquired small exclusive 1 later 1", "released small exclusive 1"]);
    drop(locks.reserve(1));
    assert_eq!(
        notes.take(),
        ["acquired small exclusive 1 at once 0", "released small exclusive 1"]
    );
    // Granted after it waited, and dropped before it knew.
    let held = ready(locks.lock(1));
    let granted = waits(locks.lock(1));
    drop(held);
    notes.take();
    drop(granted);
    assert_eq!(notes.take(), ["gave up small exclusive 1"]);
    assert!(locks.is_empty());
}

#[test]
fn an_observer_that_panics_does_not_keep_a_key() {
    struct Panics;
    impl Observer<u8> for Panics {
        fn acquired(&self, _: &Observed, waited: Duration, _: usize) {
            assert!(!waited.is_zero(), "on purpose");
        }
        fn released(&self, _: &Observed, _: Duration) {
            panic!("on purpose");
        }
        fn gave_up(&self, _: &Observed, _: Duration) {}
    }
    let locks: KeyedMutex<u8> = Options::new().observer(Panics).build();
    let panics = |work: &dyn Fn()| {
        let work = std::panic::AssertUnwindSafe(work);
        assert!(std::panic::catch_unwind(work).is_err());
        assert!(locks.is_empty());
    };
    panics(&|| drop(locks.lock_blocking(1)));
    panics(&|| drop(locks.lock_many_blocking([1, 2])));
}

#[test]
fn looking_for_reentry_keeps_no_task_alive() {
    struct Owner(Mutex<Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>>);
    impl std::task::Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }
    let locks = Arc::new(KeyedMutex::<u8>::new());
    let held = Arc::clone(&locks);
    let future = async move {
        let _guard = held.lock_owned(1).await;
        std::future::pending::<()>().await;
    };
    let task = Arc::new(Owner(Mutex::new(Some(Box::pin(future)))));
    let waker = std::task::Waker::from(Arc::clone(&task));
    let context = &mut std::task::Context::from_waker(&waker);
    let poll = task.0.lock().unwrap().as_mut().unwrap().as_mut().poll(context);
    assert!(poll.is_pending());
    assert_eq!(locks.len(), 1);
    drop((task, waker));
    assert!(locks.is_empty(), "the task is gone, and what it held");
}
