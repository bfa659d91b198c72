//! Locks that are taken and left where nobody else is: those that are wanted at the same time are one script.

use std::collections::VecDeque;
use std::sync::Arc;

use redis::Value;
use tokio::sync::oneshot;

use super::super::gather::{Calls, Gather};
use super::super::store::{Change, StoreError};
use super::link::Link;
use super::{Scripts, nonsense, run, words};

/// How many go together at most: nobody else is served meanwhile.
const TOGETHER: usize = 64;
/// How many scripts are under way: while Redis does one, the next is gathered.
const UNDER_WAY: usize = 2;

/// What a script says of a change.
type Answer = Result<Value, StoreError>;

pub(super) struct Job {
    change: Change,
    answer: oneshot::Sender<(Change, Answer)>,
}

pub(super) struct Plain {
    link: Arc<Link>,
    scripts: Arc<Scripts>,
}

/// Of changes that [`words::is_plain`].
pub(super) struct Lane(Gather<Plain>);

impl Lane {
    pub(super) fn new(link: &Arc<Link>, scripts: &Arc<Scripts>) -> Lane {
        Lane(Gather::new(Plain { link: Arc::clone(link), scripts: Arc::clone(scripts) }))
    }

    pub(super) fn submit(
        &self,
        change: Change,
    ) -> impl Future<Output = Option<(Change, Answer)>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        self.0.submit(Job { change, answer }, answered)
    }
}

impl Calls for Plain {
    type Job = Job;

    fn most(&self) -> usize {
        UNDER_WAY
    }

    fn together(&self, waiting: &mut VecDeque<Job>) -> Vec<Job> {
        waiting.drain(..waiting.len().min(TOGETHER)).collect()
    }

    async fn call(&self, jobs: Vec<Job>) {
        let Plain { link, scripts } = self;
        match <[Job; 1]>::try_from(jobs) {
            Ok([Job { change, answer }]) => {
                let (script, command) = words::commit(scripts, &change);
                let came = run(link, script, command).await;
                drop(answer.send((change, came)));
            }
            Err(jobs) => {
                let command = words::plain(&scripts.plain, jobs.iter().map(|job| &job.change));
                let came = run(link, &scripts.plain, command).await;
                let mut came = came.and_then(|came| match came {
                    Value::Array(all) if all.len() == jobs.len() => Ok(all.into_iter()),
                    _ => Err(nonsense()),
                });
                for Job { change, answer } in jobs {
                    let came = match &mut came {
                        Ok(all) => all.next().ok_or_else(nonsense).and_then(of_one),
                        Err(error) => Err(error.clone()),
                    };
                    drop(answer.send((change, came)));
                }
            }
        }
    }
}

/// What the script says of one of several, which may be that this one has failed.
fn of_one(came: Value) -> Answer {
    match words::text(&came).and_then(|text| text.strip_prefix(b"!")) {
        Some(why) => {
            let text = format!("Redis: {}", String::from_utf8_lossy(why));
            Err(StoreError { text, unknown: false })
        }
        None => Ok(came),
    }
}
