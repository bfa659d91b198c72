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

/// Show how many tasks are in each state, of one pool or of all; and how many claims wait, where that is
/// known: on the lock server.
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
            // Elsewhere those of each process are known to itself alone, and this one has none.
            let waiting = locks.capabilities().counts_waiting;
            if self.place.is_json() {
                for counts in &pools {
                    self.place.print(&counts_json(counts, waiting), "")?;
                }
                return Ok(ExitCode::SUCCESS);
            }
            let table = if waiting { counts_table::<7> } else { counts_table::<6> };
            self.place.print(&Value::Null, table(&pools))?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

type Column = (&'static str, fn(&PoolCounts) -> String);

const COUNTS: [Column; 7] = [
    ("POOL", |counts| counts.pool.to_string()),
    ("READY", |counts| counts.ready.to_string()),
    ("DELAYED", |counts| counts.delayed.to_string()),
    ("CLAIMED", |counts| counts.claimed.to_string()),
    ("DONE", |counts| counts.done.to_string()),
    ("FAILED", |counts| counts.failed.to_string()),
    ("WAITING", |counts| counts.waiting.to_string()),
];

/// The first so many columns.
fn counts_table<const N: usize>(pools: &[PoolCounts]) -> String {
    let head: [&str; N] = std::array::from_fn(|at| COUNTS[at].0);
    let row = |counts: &PoolCounts| std::array::from_fn(|at| COUNTS[at].1(counts));
    let rows: Vec<[String; N]> = pools.iter().map(row).collect();
    crate::table::lay_out(&head, &rows)
}

fn counts_json(counts: &PoolCounts, waiting: bool) -> Value {
    let mut json = json!({
        "pool": &*counts.pool,
        "ready": counts.ready,
        "delayed": counts.delayed,
        "claimed": counts.claimed,
        "done": counts.done,
        "failed": counts.failed,
    });
    if waiting {
        json["waiting"] = counts.waiting.into();
    }
    json
}
