//! For strategies that have locks only: every question about tasks is refused clearly.

use keylatch_table::{PoolCounts, TaskCommand, TaskReply, TasksQuery};

use super::{Pending, TaskStrategy};
use crate::error::{ListError, TaskError};
use crate::tasks::Task;

pub(super) struct NoTasks {
    text: String,
}

impl NoTasks {
    pub(super) fn new(scheme: &str) -> NoTasks {
        NoTasks { text: format!("{scheme}: does not have tasks") }
    }

    fn refused<T: Send + 'static>(&self) -> Pending<Result<T, ListError>> {
        Box::pin(std::future::ready(Err(ListError::Refused(self.text.clone()))))
    }
}

impl TaskStrategy for NoTasks {
    fn task(&self, _: TaskCommand) -> Pending<Result<TaskReply, TaskError>> {
        Box::pin(std::future::ready(Err(TaskError::Invalid(self.text.clone()))))
    }

    fn tasks(&self, _: TasksQuery) -> Pending<Result<Vec<Task>, ListError>> {
        self.refused()
    }

    fn task_entry(&self, _: &str, _: &str) -> Pending<Result<Option<Task>, ListError>> {
        self.refused()
    }

    fn pools(&self, _: Option<&str>) -> Pending<Result<Vec<PoolCounts>, ListError>> {
        self.refused()
    }
}
