//! Locks that are taken and left where nobody else is: those that are wanted at the same time are one script.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::gather::{Calls, Gather};
use super::super::store::{Landed, Landing, Name, Plain, StoreError};
use super::link::Link;
use super::{Scripts, nonsense, run, words};
use crate::carried::Carried;

/// How many go together at most: nobody else is served meanwhile.
const TOGETHER: usize = 64;
/// How many scripts are under way: while Redis does one, what came of another is told, and the next is gathered.
const UNDER_WAY: usize = 3;

pub(super) struct Job {
    pub(super) name: Name,
    pub(super) plain: Plain,
    landing: Landing,
}

impl Job {
    fn land(self, came: Result<Landed, StoreError>) {
        (self.landing)(self.plain, came);
    }
}

pub(super) struct Changes {
    link: Arc<Link>,
    scripts: Arc<Scripts>,
}

pub(super) struct Lane(Gather<Changes>);

impl Lane {
    pub(super) fn new(link: &Arc<Link>, scripts: &Arc<Scripts>) -> Lane {
        let (link, scripts) = (Arc::clone(link), Arc::clone(scripts));
        Lane(Gather::new(Changes { link, scripts }))
    }

    pub(super) fn land(&self, name: Name, plain: Plain, landing: Landing) -> Option<Carried<()>> {
        self.0.add(Job { name, plain, landing })
    }
}

impl Calls for Changes {
    type Job = Job;

    fn most(&self) -> usize {
        UNDER_WAY
    }

    fn gathers(&self) -> bool {
        true
    }

    /// Not much fewer than those who are under way: a script for a few costs nearly as much, and takes the place
    /// of one for all of those who are about to ask.
    fn crowd(&self, under_way: usize) -> usize {
        (under_way * 3 / 4).max(1)
    }

    fn together(&self, waiting: &mut VecDeque<Job>) -> Vec<Job> {
        waiting.drain(..waiting.len().min(TOGETHER)).collect()
    }

    async fn call(&self, mut jobs: Vec<Job>) {
        let Changes { link, scripts } = self;
        // They are on different names, so their order means nothing.
        jobs.sort_by_key(|job| matches!(job.plain, Plain::Leave(_)));
        let (script, command) = match &jobs[..] {
            [job] => words::one(scripts, job),
            _ => (&scripts.plain, words::plain(&scripts.plain, &jobs)),
        };
        let landed = run(link, script, command).await.and_then(|came| {
            let landed = match &jobs[..] {
                [job] => words::landed_one(job, came).map(|landed| vec![Ok(landed)]),
                _ => words::landed(&jobs, came),
            };
            landed.ok_or_else(nonsense)
        });
        match landed {
            Ok(landed) => {
                for (job, came) in jobs.into_iter().zip(landed) {
                    job.land(came);
                }
            }
            Err(error) => jobs.into_iter().for_each(|job| job.land(Err(error.clone()))),
        }
    }
}
