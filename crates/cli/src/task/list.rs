//! `keylatch task ls` and `counts`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use keylatch::{PoolCounts, Task, TaskState};
use serde_json::{Value, json};

use super::{state, with_body};
use crate::place::{Place, block_on};
use crate::time;

const LS: &str = "\
Examples:
  keylatch task ls emails                      all, in the order of creation
  keylatch task ls emails --state failed       what went wrong
  keylatch task ls emails -o json | jq -r 'select(.attempts > 3) | .key'";

/// Tasks asked for at a time.
const PAGE: usize = 1_000;

/// List the tasks of a pool.
#[derive(Args, Debug)]
#[command(after_help = LS)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The pool.
    pool: String,
    /// Only those that are free, claimed, done or failed.
    #[arg(long, value_parser = state)]
    state: Option<TaskState>,
    /// Only keys that begin so.
    #[arg(long)]
    prefix: Option<String>,
    /// At most so many. [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl Ls {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let tasks = self.place.connect().await?.tasks(self.pool.as_str());
            let (mut rows, mut after) = (Vec::new(), 0);
            let mut left = self.limit.unwrap_or(usize::MAX);
            while left > 0 {
                let mut list = tasks.list().after(after).limit(left.min(PAGE));
                if let Some(state) = self.state {
                    list = list.state(state);
                }
                if let Some(prefix) = &self.prefix {
                    list = list.prefix(prefix.as_str());
                }
                let page = list.await?;
                let Some(last) = page.last() else { break };
                (after, left) = (last.number, left - page.len());
                for task in &page {
                    match self.place.is_json() {
                        true => self.place.print(&task_json(task), "")?,
                        false => rows.push(row(task)),
                    }
                }
            }
            if !self.place.is_json() {
                self.place.print(&Value::Null, crate::table::lay_out(&HEAD, &rows))?;
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

const HEAD: [&str; 8] =
    ["KEY", "STATE", "VERSION", "PRIORITY", "ATTEMPTS", "AGE", "OWNER", "ERROR"];

fn row(task: &Task) -> [String; 8] {
    let state = match (task.state, task.lease) {
        (TaskState::Free, _) if !task.due.is_zero() => {
            format!("free in {}", time::show(ms(task.due)))
        }
        (TaskState::Claimed, Some(lease)) => format!("claimed for {}", time::show(ms(lease))),
        (state, _) => state.word().into(),
    };
    let owner = task.owner.as_ref().filter(|_| task.state == TaskState::Claimed);
    // The last line usually says it.
    let error = task.error.as_deref().and_then(|error| error.trim().lines().last());
    [
        (*task.key).into(),
        state,
        task.version.to_string(),
        task.priority.to_string(),
        task.attempts.to_string(),
        time::show(ms(task.age)),
        owner.map_or("-".into(), |owner| (**owner).into()),
        error.unwrap_or("-").into(),
    ]
}

fn ms(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

/// In the words of `TASK LIST`.
fn task_json(task: &Task) -> Value {
    let json = json!({
        "number": task.number,
        "key": &*task.key,
        "state": task.state.word(),
        "version": task.version,
        "owner": task.owner.as_deref(),
        "token": task.token,
        "created_ms": ms(task.age),
        "claimed_ms": task.claimed.map(ms),
        "priority": task.priority,
        "attempts": task.attempts,
        "due_ms": ms(task.due),
        "lease_ms": task.lease.map(ms),
        "error": task.error.as_deref(),
    });
    with_body(json, task.body.as_ref())
}

/// Show how many tasks are in each state, of one pool or of all.
#[derive(Args, Debug)]
pub(crate) struct Counts {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The pool. [default: all that have tasks]
    pool: Option<String>,
}

impl Counts {
    pub(crate) fn run(self) -> Result<ExitCode> {
        block_on(async {
            let locks = self.place.connect().await?;
            let pools = match &self.pool {
                Some(pool) => vec![locks.tasks(pool.as_str()).counts().await?],
                None => locks.pools().await?,
            };
            if self.place.is_json() {
                for counts in &pools {
                    self.place.print(&counts_json(counts), "")?;
                }
                return Ok(ExitCode::SUCCESS);
            }
            let head = ["POOL", "READY", "DELAYED", "CLAIMED", "DONE", "FAILED", "WAITING"];
            let row = |counts: &PoolCounts| {
                let PoolCounts { ready, delayed, claimed, done, failed, waiting, .. } = counts;
                let states = [ready, delayed, claimed, done, failed, waiting];
                let mut cells = states.into_iter().map(ToString::to_string);
                let pool = counts.pool.to_string();
                std::array::from_fn(|at| match at {
                    0 => pool.clone(),
                    _ => cells.next().unwrap_or_default(),
                })
            };
            let rows: Vec<_> = pools.iter().map(row).collect();
            self.place.print(&Value::Null, crate::table::lay_out(&head, &rows))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn counts_json(counts: &PoolCounts) -> Value {
    json!({
        "pool": &*counts.pool,
        "ready": counts.ready,
        "delayed": counts.delayed,
        "claimed": counts.claimed,
        "done": counts.done,
        "failed": counts.failed,
        "waiting": counts.waiting,
    })
}
