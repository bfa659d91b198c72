//! What is wanted from a store at the same time goes there together: one call for all that have come while the
//! last ones were under way. Nobody waits for company: alone, one goes alone, and does it himself.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::carried::{Carried, Push};

/// A call that takes longer than this is held up.
const LONG: Duration = Duration::from_millis(20);

/// Calls of a store.
pub(super) trait Calls: Send + Sync + 'static {
    /// What is wanted, with whom to answer.
    type Job: Send + 'static;
    /// How many are under way at once.
    fn most(&self) -> usize;
    /// Whether a call for many costs little more than one for a few: then those who were answered together have a moment
    /// to ask again, so that they go together again, and others wait for company.
    fn gathers(&self) -> bool {
        false
    }
    /// As long as calls for so many are under way, so many have to wait for another to begin. Whoever
    /// [submits](Gather::submit) does not wait for them longer than calls take.
    fn crowd(&self, _under_way: usize) -> usize {
        1
    }
    /// Takes those that go together next; none only if nobody waits.
    fn together(&self, waiting: &mut VecDeque<Self::Job>) -> Vec<Self::Job>;
    /// Calls, and answers each of them.
    fn call(&self, jobs: Vec<Self::Job>) -> impl Future<Output = ()> + Send;
}

pub(super) struct Gather<C: Calls>(Arc<Inner<C>>);

impl<C: Calls> Clone for Gather<C> {
    fn clone(&self) -> Gather<C> {
        Gather(Arc::clone(&self.0))
    }
}

struct Inner<C: Calls> {
    calls: C,
    runtime: Handle,
    state: Mutex<State<C::Job>>,
}

struct State<J> {
    waiting: VecDeque<J>,
    /// How many call at the moment.
    busy: usize,
    /// What they call for.
    under_way: usize,
    /// Those of them who only do while they wait for it.
    carried: Vec<Weak<dyn Push>>,
    /// How many have more to come that is to go together.
    held: usize,
}

impl<C: Calls> Gather<C> {
    /// To be called inside of the runtime that does the work.
    pub(super) fn new(calls: C) -> Gather<C> {
        let state =
            State { waiting: VecDeque::new(), busy: 0, under_way: 0, carried: Vec::new(), held: 0 };
        Gather(Arc::new(Inner { calls, runtime: Handle::current(), state: Mutex::new(state) }))
    }

    /// It goes on, whatever becomes of what is returned: the calling, if it is this one's to do.
    pub(super) fn add(&self, job: C::Job) -> Option<Carried<()>> {
        let mut state = self.0.state.lock();
        state.waiting.push_back(job);
        if state.held > 0 {
            return None;
        }
        let begins = state.busy == 0 || state.waiting.len() >= self.0.calls.crowd(state.under_way);
        if begins && state.busy < self.0.calls.most() {
            state.busy += 1;
            let work = Box::pin(run(Busy::new(&self.0)));
            let work = Carried::new(&self.0.runtime, work);
            state.carried.push(work.pusher());
            return Some(work);
        }
        let before = std::mem::take(&mut state.carried);
        drop(state);
        // It depends on them now.
        before.iter().filter_map(Weak::upgrade).for_each(|before| before.push());
        None
    }

    /// Nothing more begins until this is dropped, which is to be soon.
    pub(super) fn hold(&self) -> Held<C> {
        self.0.state.lock().held += 1;
        Held(Arc::clone(&self.0))
    }

    /// The same; what is answered to it, or nothing if the runtime ends.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        job: C::Job,
        mut answered: oneshot::Receiver<T>,
    ) -> impl Future<Output = Option<T>> + Send + use<C, T> {
        let work = self.add(job);
        let inner = self.0.calls.gathers().then(|| Arc::clone(&self.0));
        async move {
            if let Some(work) = work {
                // Not longer than for its own: others may have come meanwhile.
                return work.or(answered).await;
            }
            if let Some(inner) = inner {
                match tokio::time::timeout(LONG, &mut answered).await {
                    Ok(answer) => return answer.ok(),
                    // What is under way is held up, perhaps by something that does not concern this one.
                    Err(_) => begin(&inner),
                }
            }
            answered.await.ok()
        }
    }
}

impl<J> State<J> {
    /// One of those who call does not any more.
    fn ended(&mut self) {
        self.busy -= 1;
        self.carried.retain(|by| self.busy > 0 && by.strong_count() > 0);
    }
}

/// Somebody has more to come.
pub(super) struct Held<C: Calls>(Arc<Inner<C>>);

impl<C: Calls> Drop for Held<C> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.held -= 1;
        let begins = state.held == 0
            && (state.busy == 0 || state.waiting.len() >= self.0.calls.crowd(state.under_way));
        drop(state);
        if begins {
            begin(&self.0);
        }
    }
}

/// Somebody who calls for all. If it ends early, with its runtime, nobody is left waiting for it.
struct Busy<C: Calls> {
    inner: Arc<Inner<C>>,
    /// How many it calls for.
    jobs: usize,
    done: bool,
}

impl<C: Calls> Busy<C> {
    fn new(inner: &Arc<Inner<C>>) -> Busy<C> {
        Busy { inner: Arc::clone(inner), jobs: 0, done: false }
    }
}

impl<C: Calls> Drop for Busy<C> {
    fn drop(&mut self) {
        if !self.done {
            let mut state = self.inner.state.lock();
            state.under_way -= self.jobs;
            state.ended();
            let left =
                if state.busy == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
            // Not while it is locked: who knows what they do when they are dropped.
            drop(state);
            drop(left);
        }
    }
}

/// One more calls, if somebody waits.
fn begin<C: Calls>(inner: &Arc<Inner<C>>) {
    let mut state = inner.state.lock();
    if state.busy < inner.calls.most() && !state.waiting.is_empty() {
        state.busy += 1;
        drop(state);
        inner.runtime.spawn(run(Busy::new(inner)));
    }
}

/// Calls as long as somebody waits.
async fn run<C: Calls>(mut busy: Busy<C>) {
    loop {
        let jobs = {
            let mut state = busy.inner.state.lock();
            state.under_way -= std::mem::take(&mut busy.jobs);
            let jobs = busy.inner.calls.together(&mut state.waiting);
            if jobs.is_empty() {
                state.ended();
                drop(state);
                busy.done = true;
                return;
            }
            state.under_way += jobs.len();
            busy.jobs = jobs.len();
            jobs
        };
        busy.inner.calls.call(jobs).await;
        if busy.jobs > 1 && busy.inner.calls.gathers() {
            // They have their answers, and mostly want the next thing at once: then all of them go together again.
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, mpsc};
    use tokio::time::timeout;

    use super::*;

    /// Answers how many went together, once it may.
    struct Counts {
        most: usize,
        crowd: fn(usize) -> usize,
        may: Arc<Semaphore>,
        calls: mpsc::UnboundedSender<usize>,
    }

    impl Calls for Counts {
        type Job = oneshot::Sender<usize>;

        fn most(&self) -> usize {
            self.most
        }

        fn gathers(&self) -> bool {
            true
        }

        fn crowd(&self, under_way: usize) -> usize {
            (self.crowd)(under_way)
        }

        fn together(&self, waiting: &mut VecDeque<Self::Job>) -> Vec<Self::Job> {
            waiting.drain(..).collect()
        }

        async fn call(&self, jobs: Vec<Self::Job>) {
            let count = jobs.len();
            self.calls.send(count).unwrap();
            self.may.acquire().await.unwrap().forget();
            for job in jobs {
                _ = job.send(count);
            }
        }
    }

    struct Scene {
        gather: Gather<Counts>,
        may: Arc<Semaphore>,
        calls: mpsc::UnboundedReceiver<usize>,
    }

    fn scene() -> Scene {
        scene_of(1, |_| 1)
    }

    fn scene_of(most: usize, crowd: fn(usize) -> usize) -> Scene {
        let may = Arc::new(Semaphore::new(0));
        let (tell, calls) = mpsc::unbounded_channel();
        let gather = Gather::new(Counts { most, crowd, may: Arc::clone(&may), calls: tell });
        Scene { gather, may, calls }
    }

    impl Scene {
        fn submit(&self) -> impl Future<Output = Option<usize>> + Send + use<> {
            let (job, answered) = oneshot::channel();
            self.gather.submit(job, answered)
        }
    }

    #[tokio::test]
    async fn alone_one_goes_alone_and_those_who_come_meanwhile_go_together() {
        let mut scene = scene();
        let first = tokio::spawn(scene.submit());
        assert_eq!(scene.calls.recv().await, Some(1));
        let others = [scene.submit(), scene.submit(), scene.submit()].map(tokio::spawn);
        scene.may.add_permits(2);
        assert_eq!(first.await.unwrap(), Some(1));
        for other in others {
            assert_eq!(other.await.unwrap(), Some(3));
        }
        // Nobody is left who calls, and the next one does.
        scene.may.add_permits(1);
        assert_eq!(scene.submit().await, Some(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_call_begins_when_a_crowd_waits_or_the_first_is_held_up() {
        let mut scene = scene_of(3, |_| 3);
        let mut calls = vec![tokio::spawn(scene.submit())];
        assert_eq!(scene.calls.recv().await, Some(1));
        calls.extend([scene.submit(), scene.submit()].map(tokio::spawn));
        tokio::task::yield_now().await;
        assert!(scene.calls.try_recv().is_err(), "two are no crowd");
        calls.push(tokio::spawn(scene.submit()));
        assert_eq!(scene.calls.recv().await, Some(3));
        calls.push(tokio::spawn(scene.submit()));
        assert_eq!(scene.calls.recv().await, Some(1), "nobody answers it for long");
        scene.may.add_permits(3);
        let mut counts = Vec::new();
        for call in calls {
            counts.push(call.await.unwrap().unwrap());
        }
        assert_eq!(counts, [1, 3, 3, 3, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_more_are_under_way_the_more_company_is_waited_for() {
        let mut scene = scene_of(2, |under_way| under_way / 2);
        let mut first = Vec::new();
        for _ in 0..2 {
            first.push(tokio::spawn(scene.submit()));
            assert_eq!(scene.calls.recv().await, Some(1), "one is enough beside one");
        }
        let together = [(); 6].map(|()| tokio::spawn(scene.submit()));
        scene.may.add_permits(1);
        assert_eq!(scene.calls.recv().await, Some(6), "no more than two calls at once");
        scene.may.add_permits(1);
        for one in first {
            assert_eq!(one.await.unwrap(), Some(1));
        }
        let mut others = vec![tokio::spawn(scene.submit()), tokio::spawn(scene.submit())];
        tokio::task::yield_now().await;
        assert!(scene.calls.try_recv().is_err(), "two are no company beside six");
        others.push(tokio::spawn(scene.submit()));
        assert_eq!(scene.calls.recv().await, Some(3));
        scene.may.add_permits(2);
        for one in together {
            assert_eq!(one.await.unwrap(), Some(6));
        }
        for one in others {
            assert_eq!(one.await.unwrap(), Some(3));
        }
    }

    #[tokio::test]
    async fn those_who_are_answered_together_go_together_again() {
        let mut scene = scene_of(1, |_| 2);
        let first = tokio::spawn(scene.submit());
        assert_eq!(scene.calls.recv().await, Some(1));
        let twice = [(); 3].map(|()| {
            let (gather, one) = (scene.gather.clone(), scene.submit());
            tokio::spawn(async move {
                let (job, answered) = oneshot::channel();
                [one.await, gather.submit(job, answered).await]
            })
        });
        scene.may.add_permits(3);
        assert_eq!(first.await.unwrap(), Some(1));
        for both in twice {
            assert_eq!(both.await.unwrap(), [Some(3); 2]);
        }
    }

    #[tokio::test]
    async fn what_is_asked_for_while_it_is_held_goes_together() {
        let mut scene = scene();
        let held = [scene.gather.hold(), scene.gather.hold()];
        let both = [scene.submit(), scene.submit()].map(tokio::spawn);
        tokio::task::yield_now().await;
        for held in held {
            assert!(scene.calls.try_recv().is_err(), "there is more to come");
            drop(held);
        }
        assert_eq!(scene.calls.recv().await, Some(2));
        scene.may.add_permits(2);
        for one in both {
            assert_eq!(one.await.unwrap(), Some(2));
        }
        assert_eq!(scene.submit().await, Some(1), "and it goes on as before");
    }

    #[tokio::test]
    async fn it_is_done_also_if_nobody_waits_for_it() {
        let mut scene = scene();
        drop(scene.submit());
        assert_eq!(scene.calls.recv().await, Some(1));
        drop(scene.submit());
        scene.may.add_permits(2);
        assert_eq!(scene.calls.recv().await, Some(1));
    }

    #[tokio::test]
    async fn nobody_waits_for_one_who_does_not_look() {
        let scene = scene();
        let mut first = Box::pin(scene.submit());
        assert!(timeout(Duration::ZERO, &mut first).await.is_err(), "it may not yet");
        scene.may.add_permits(2);
        // The first one is not polled meanwhile.
        assert_eq!(scene.submit().await, Some(1));
        assert_eq!(first.await, Some(1));
    }

    #[tokio::test]
    async fn whoever_has_an_answer_does_not_work_for_others() {
        let mut scene = scene();
        let first = tokio::spawn(scene.submit());
        assert_eq!(scene.calls.recv().await, Some(1));
        let second = tokio::spawn(scene.submit());
        tokio::task::yield_now().await;
        scene.may.add_permits(1);
        assert_eq!(first.await.unwrap(), Some(1), "while the second is under way");
        scene.may.add_permits(1);
        assert_eq!(second.await.unwrap(), Some(1));
    }
}
