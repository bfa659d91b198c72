//! Changes wait here until a connection is free, and then all that wait go together: one round trip, one
//! transaction and one sync of the disk for all of them. Nobody waits for company: alone, one goes alone.
//!
//! There are two lanes, so that a change which need not survive a crash does not wait for the disk.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::super::gather::{Calls, Gather};
use super::super::store::{Change, Committed, StoreError, Write};
use super::LIMIT;
use super::call::{Call, CallOne, nonsense};
use super::pool::Pool;

/// How many changes go together at most: they also wait for each other's locks.
const MOST_CHANGES: usize = 64;
/// And how many names they have: PostgreSQL has room for some thousand locks.
const MOST_NAMES: usize = 256;
/// And how large they are.
const MOST_BYTES: usize = 1 << 20;

pub(super) type Outcome = Result<Committed, StoreError>;

pub(super) struct Job {
    change: Change,
    since: Instant,
    answer: oneshot::Sender<Outcome>,
}

#[derive(Clone)]
pub(super) struct Lane(Gather<Changes>);

struct Changes {
    pool: Arc<Pool>,
    /// How many connections it uses at once.
    most: usize,
}

impl Lane {
    pub(super) fn new(pool: &Arc<Pool>, most: usize) -> Lane {
        Lane(Gather::new(Changes { pool: Arc::clone(pool), most }))
    }

    /// It goes on, whatever becomes of what is returned.
    pub(super) fn submit(
        &self,
        change: Change,
    ) -> impl Future<Output = Option<Outcome>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        self.0.submit(Job { change, since: Instant::now(), answer }, answered)
    }
}

impl Calls for Changes {
    type Job = Job;

    fn most(&self) -> usize {
        self.most
    }

    fn together(&self, waiting: &mut VecDeque<Job>) -> Vec<Job> {
        let (mut jobs, mut names, mut bytes) = (Vec::new(), 0, 0);
        while let Some(next) = waiting.front() {
            names += next.change.names.len();
            bytes += size(&next.change);
            if !jobs.is_empty()
                && (jobs.len() == MOST_CHANGES || names > MOST_NAMES || bytes > MOST_BYTES)
            {
                break;
            }
            jobs.extend(waiting.pop_front());
        }
        jobs
    }

    async fn call(&self, jobs: Vec<Job>) {
        // Whoever waited for too long has been given up, or is about to be.
        let (jobs, late): (Vec<Job>, Vec<Job>) =
            jobs.into_iter().partition(|job| job.since.elapsed() < LIMIT);
        for job in late {
            let text = format!("PostgreSQL was busy for {} s", LIMIT.as_secs());
            drop(job.answer.send(Err(StoreError { text, unknown: false })));
        }
        send(&self.pool, jobs).await;
    }
}

fn size(change: &Change) -> usize {
    let heads = change.names.values().map(|one| match &one.head {
        Write::Put(put) => put.bytes.len(),
        Write::Keep | Write::Delete => 0,
    });
    heads.chain(change.appends.iter().map(|append| append.bytes.len())).sum()
}

async fn send(pool: &Pool, mut jobs: Vec<Job>) {
    if jobs.len() == 1
        && let Some(job) = jobs.pop()
    {
        drop(job.answer.send(alone(pool, &job.change).await));
        return;
    }
    match together(pool, jobs.iter().map(|job| &job.change)).await {
        Ok(all) => {
            for (job, committed) in jobs.into_iter().zip(all) {
                drop(job.answer.send(Ok(committed)));
            }
        }
        // One of them is not as PostgreSQL likes it, and the others are not to blame.
        Err(error) if !error.unknown => {
            for job in jobs {
                drop(job.answer.send(alone(pool, &job.change).await));
            }
        }
        Err(error) => {
            for job in jobs {
                drop(job.answer.send(Err(error.clone())));
            }
        }
    }
}

async fn alone(pool: &Pool, change: &Change) -> Outcome {
    if let Some(call) = CallOne::new(change) {
        let rows = pool.query(CallOne::text(), &call.params()).await?;
        let answer = call.answer(rows.first().ok_or_else(nothing)?);
        if let Some(committed) = answer.map_err(|error| nonsense(&error))? {
            return Ok(committed);
        }
    }
    together(pool, [change]).await?.pop().ok_or_else(nothing)
}

async fn together<'a>(
    pool: &Pool,
    changes: impl IntoIterator<Item = &'a Change>,
) -> Result<Vec<Committed>, StoreError> {
    let call = Call::new(changes);
    let rows = pool.query(Call::text(), &call.params()).await?;
    call.answer(rows.first().ok_or_else(nothing)?).map_err(|error| nonsense(&error))
}

fn nothing() -> StoreError {
    StoreError { text: "PostgreSQL answers nothing".into(), unknown: true }
}
