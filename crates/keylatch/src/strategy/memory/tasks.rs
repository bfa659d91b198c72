//! The tasks of the table in this process.

use keylatch_table::{
    Answer, Command, PoolCounts, Query, Reply, TaskAction, TaskCommand, TaskEvent, TaskReply,
    TasksQuery,
};
use tokio::sync::oneshot;

use super::super::{Pending, TaskStrategy};
use super::{Memory, State, ready};
use crate::error::{ListError, TaskError};
use crate::tasks::Task;

impl State {
    pub(super) fn tell_claim(&mut self, event: TaskEvent) {
        let (id, outcome) = match event {
            TaskEvent::Claimed(id, _, claimed) => (id, TaskReply::Claimed(claimed)),
            TaskEvent::TimedOut(id, _) => (id, TaskReply::Nothing),
            TaskEvent::Refused(id, _, state) => (id, TaskReply::Refused(state)),
            TaskEvent::Withdrawn(id, _) => (id, TaskReply::Cancelled(true)),
            // Its worker knew before: its own view of the lease ends first.
            TaskEvent::Lapsed { .. } => return,
        };
        for waiter in self.claims.remove(&id).into_iter().flatten() {
            drop(waiter.send(outcome.clone()));
        }
    }
}

impl TaskStrategy for Memory {
    fn task(&self, command: TaskCommand) -> Pending<Result<TaskReply, TaskError>> {
        let id = command.id.clone();
        let waits = matches!(&command.action, TaskAction::Claim(claim) if claim.wait_ms > 0);
        let mut state = self.0.state.lock();
        let Reply::Task(reply) = self.0.apply_to(&mut state, Command::Task(command)) else {
            unreachable!("a task command was given");
        };
        match reply {
            TaskReply::Waiting if waits => {
                // Under the same lock as the command: nothing can have been told between.
                let (send, outcome) = oneshot::channel();
                state.claims.entry(id).or_default().push(send);
                Box::pin(async move { Ok(outcome.await.unwrap_or(TaskReply::Cancelled(true))) })
            }
            TaskReply::Error(error) => ready(Err(TaskError::Invalid(error.to_string()))),
            reply => ready(Ok(reply)),
        }
    }

    fn tasks(&self, query: TasksQuery) -> Pending<Result<Vec<Task>, ListError>> {
        let now = self.0.now();
        let Answer::Tasks(tasks) = self.0.query(&Query::Tasks(query)) else {
            unreachable!("tasks were asked for");
        };
        ready(Ok(tasks.into_iter().map(|entry| Task::at(now, entry)).collect()))
    }

    fn task_entry(&self, pool: &str, key: &str) -> Pending<Result<Option<Task>, ListError>> {
        let now = self.0.now();
        let Answer::Task(task) = self.0.query(&Query::Task(pool.into(), key.into())) else {
            unreachable!("a task was asked for");
        };
        ready(Ok(task.map(|entry| Task::at(now, *entry))))
    }

    fn pools(&self, pool: Option<&str>) -> Pending<Result<Vec<PoolCounts>, ListError>> {
        let Answer::Pools(mut pools) = self.0.query(&Query::Pools) else {
            unreachable!("pools were asked for");
        };
        pools.retain(|counts| pool.is_none_or(|pool| *counts.pool == *pool));
        ready(Ok(pools))
    }
}
