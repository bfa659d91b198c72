//! `sqlite:PATH`: one file, several processes on one machine. A thread of its own does all the work,
//! and looks for what other processes have told.
//!
//! - `file`: the open file: reading, and one transaction for all changes that are asked for at once.
//! - `schema`: its tables, its clock, and files of earlier versions.
//! - `news`: what is told across processes.
//! - `sweep`: what nobody needs any more goes.
//! - `tasks`: tasks, beside the locks.

mod file;
mod news;
mod schema;
mod sweep;
mod tasks;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use self::file::{Failed, File};
use self::tasks::{SqliteTasks, TaskWork};
use super::super::Pending;
use super::store::{Change, Committed, Name, Stand, Store, StoreError, Told, View};
use super::tasks::store::TaskStore;
use crate::error::ConnectError;

/// How often it is looked what other processes have told, while somebody waits.
const LOOK: Duration = Duration::from_millis(4);
/// The same while nobody does: only who holds something has anything to hear, and seldom.
const LOOK_IDLE: Duration = Duration::from_millis(40);
/// So many changes share a transaction, and with it a sync of the disk. Others wait for its end: it is
/// not to take longer than the sync itself.
const TOGETHER: usize = 64;

type Answer<T> = oneshot::Sender<Result<T, Failed>>;

enum Work {
    Commit(Change, Answer<Committed>),
    Task(TaskWork),
    Other(Box<dyn FnOnce(&mut File) + Send>),
    /// Only to look at once.
    Look,
}

pub(crate) struct Sqlite {
    work: mpsc::Sender<Work>,
    told: Mutex<Option<UnboundedReceiver<Told>>>,
    somebody_waits: Arc<AtomicBool>,
}

impl Sqlite {
    pub(crate) async fn open(path: &str) -> Result<Sqlite, ConnectError> {
        let refused = |text: String| ConnectError::Refused(format!("{path}: {text}"));
        if let Some(dir) = Path::new(path).parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir).map_err(|error| refused(error.to_string()))?;
        }
        let (tell, told) = unbounded_channel();
        let (work, to_do) = mpsc::channel();
        let (opened, file) = oneshot::channel();
        let somebody_waits = Arc::new(AtomicBool::new(false));
        let (owned, waits) = (path.to_string(), Arc::clone(&somebody_waits));
        let thread = std::thread::Builder::new().name("keylatch-sqlite".into());
        let started = thread.spawn(move || match File::open(&owned, tell) {
            Ok(file) => {
                drop(opened.send(Ok(())));
                run(file, &to_do, &waits);
            }
            Err(error) => drop(opened.send(Err(error.to_string()))),
        });
        started.map_err(|error| refused(error.to_string()))?;
        let opened = file.await.unwrap_or_else(|_| Err("the thread ended".into()));
        opened.map_err(refused)?;
        Ok(Sqlite { work, told: Mutex::new(Some(told)), somebody_waits })
    }

    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut File) -> Result<T, Failed> + Send + 'static,
    ) -> Pending<Result<T, StoreError>> {
        let (send, answer) = oneshot::channel();
        let work = Work::Other(Box::new(move |file| drop(send.send(work(file)))));
        self.submit(work, answer)
    }

    fn submit<T: Send + 'static>(
        &self,
        work: Work,
        answer: oneshot::Receiver<Result<T, Failed>>,
    ) -> Pending<Result<T, StoreError>> {
        drop(self.work.send(work));
        answered(answer)
    }
}

fn answered<T: Send + 'static>(
    answer: oneshot::Receiver<Result<T, Failed>>,
) -> Pending<Result<T, StoreError>> {
    Box::pin(async move {
        match answer.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Failed { text, unknown })) => Err(StoreError { text, unknown }),
            Err(_) => Err(StoreError { text: "the file was closed".into(), unknown: true }),
        }
    })
}

/// Works until nobody can ask for anything any more.
fn run(mut file: File, to_do: &mpsc::Receiver<Work>, somebody_waits: &AtomicBool) {
    let mut looked = Instant::now();
    let mut next = None;
    loop {
        let often = if somebody_waits.load(Ordering::Relaxed) { LOOK } else { LOOK_IDLE };
        let work = match next.take() {
            Some(work) => Ok(work),
            None => to_do.recv_timeout(often.saturating_sub(looked.elapsed())),
        };
        let idle = match work {
            Ok(Work::Commit(change, answer)) => {
                next = commit(&mut file, change, answer, to_do);
                false
            }
            Ok(Work::Task(work)) => {
                next = tasks(&mut file, work, to_do);
                false
            }
            Ok(Work::Other(work)) => {
                work(&mut file);
                false
            }
            Ok(Work::Look) => false,
            Err(mpsc::RecvTimeoutError::Timeout) => true,
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        };
        // Also if there is always something to do.
        if looked.elapsed() >= often {
            file.hear();
            file.hear_tasks();
            file.sweep_if_due(idle);
            looked = Instant::now();
        }
    }
}

/// Carries out a change, and those that wait behind it. Returns what waits then and is none.
fn commit(
    file: &mut File,
    change: Change,
    answer: Answer<Committed>,
    to_do: &mpsc::Receiver<Work>,
) -> Option<Work> {
    let (mut changes, mut answers) = (vec![change], vec![answer]);
    let mut next = None;
    while changes.len() < TOGETHER
        && let Ok(work) = to_do.try_recv()
    {
        match work {
            Work::Commit(change, answer) => {
                changes.push(change);
                answers.push(answer);
            }
            other => {
                next = Some(other);
                break;
            }
        }
    }
    match file.commit(&changes) {
        Ok(committed) => {
            for (answer, committed) in answers.into_iter().zip(committed) {
                drop(answer.send(Ok(committed)));
            }
        }
        Err(failed) => {
            for answer in answers {
                drop(answer.send(Err(failed.clone())));
            }
        }
    }
    next
}

/// The same for tasks.
fn tasks(file: &mut File, work: TaskWork, to_do: &mpsc::Receiver<Work>) -> Option<Work> {
    let mut works = vec![work];
    let mut next = None;
    while works.len() < TOGETHER
        && let Ok(work) = to_do.try_recv()
    {
        match work {
            Work::Task(work) => works.push(work),
            other => {
                next = Some(other);
                break;
            }
        }
    }
    file.tasks(works);
    next
}

impl Store for Sqlite {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>> {
        self.ask(move |file| file.read(Some(names)))
    }

    fn read_all(&self) -> Pending<Result<View, StoreError>> {
        self.ask(|file| file.read(None))
    }

    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>> {
        let (send, answer) = oneshot::channel();
        self.submit(Work::Commit(change, send), answer)
    }

    fn touch(
        &self,
        waiters: Vec<(Stand, Vec<Name>)>,
        live_ms: u64,
    ) -> Pending<Result<Vec<bool>, StoreError>> {
        self.ask(move |file| file.touch(&waiters, live_ms))
    }

    fn told(&self) -> UnboundedReceiver<Told> {
        self.told.lock().take().unwrap_or_else(|| unbounded_channel().1)
    }

    fn somebody_waits(&self, waits: bool) {
        if !self.somebody_waits.swap(waits, Ordering::Relaxed) && waits {
            drop(self.work.send(Work::Look));
        }
    }

    fn tasks(&self) -> Option<Arc<dyn TaskStore>> {
        Some(Arc::new(SqliteTasks::new(&self.work)))
    }
}
