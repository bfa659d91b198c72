//! Task commands.

use keylatch_table::{
    Command, RequestId, Text,
    task::{Body, Checked, Claim, Create, PutBack, TaskAction, TaskCommand},
};

use super::Generator;
use crate::model::{Model, tasks::Task};

const POOLS: [&str; 2] = ["p", "q"];
const KEYS: [&str; 5] = ["k1", "k2", "k3", "k33", "m"];

impl Generator {
    fn pool(&mut self) -> Text {
        (*self.random.pick(&POOLS)).into()
    }

    fn key(&mut self) -> Text {
        (*self.random.pick(&KEYS)).into()
    }

    fn body(&mut self) -> Option<Body> {
        self.random.percent(60).then(|| Body {
            json: self.random.percent(50),
            bytes: vec![b'x'; self.random.below(9) as usize].into(),
        })
    }

    fn delay_ms(&mut self) -> u64 {
        if self.random.percent(60) { 0 } else { self.random.between(1, 100) }
    }

    fn task_id(&mut self) -> RequestId {
        // Ids of tasks are of their own kind: that of a lock request does not count.
        if self.random.percent(5)
            && let Some(asked) = self.random.pick_some(&self.asked)
        {
            return asked.id;
        }
        self.new_id()
    }

    pub(super) fn task(&mut self, model: &Model) -> TaskCommand {
        let mut command =
            TaskCommand { id: self.task_id(), pool: self.pool(), action: TaskAction::Cancel };
        match self.random.below(100) {
            0..25 => command.action = TaskAction::Create(self.create()),
            25..58 => command.action = TaskAction::Claim(self.claim()),
            58..62 => {
                command.action = TaskAction::Retry(self.random.percent(50).then(|| self.key()));
            }
            62..66 => {
                let waiting = model.tasks.claims.iter().map(|claim| claim.id.clone());
                let id = self.random.pick_some(&waiting.collect::<Vec<_>>());
                command.id = id.unwrap_or(command.id);
            }
            _ => {
                let (pool, checked) = self.checked(model);
                command.pool = pool;
                command.action = self.checked_action(checked);
            }
        }
        command
    }

    fn create(&mut self) -> Create {
        Create {
            key: self.key(),
            body: self.body(),
            priority: *self.random.pick(&[0, 0, 0, 1, -1]),
            delay_ms: self.delay_ms(),
            attempts: self.random.percent(20).then(|| self.random.below(3) as u32),
        }
    }

    fn claim(&mut self) -> Claim {
        Claim {
            key: self.random.percent(40).then(|| self.key()),
            party: self.party(),
            wait_ms: self.wait_ms(),
            lease_ms: self.lease_ms(),
        }
    }

    /// A task that exists, mostly at its version; claimed ones more often than others.
    fn checked(&mut self, model: &Model) -> (Text, Checked) {
        let claimed = |task: &&Task| task.claim.is_some();
        let tasks = model.tasks.all.iter().chain(model.tasks.all.iter().filter(claimed));
        let Some(task) = self.random.pick_some(&tasks.collect::<Vec<_>>()) else {
            return (self.pool(), Checked { key: self.key(), version: self.random.below(100) });
        };
        let version = match self.random.below(20) {
            0 => task.version - 1,
            1 => self.random.below(model.token + 2),
            _ => task.version,
        };
        (task.pool.clone(), Checked { key: task.key.clone(), version })
    }

    fn checked_action(&mut self, checked: Checked) -> TaskAction {
        match self.random.below(10) {
            0..3 => {
                let lease_ms = self.random.percent(50).then(|| self.lease_ms());
                TaskAction::Update(checked, self.body(), lease_ms)
            }
            3..5 => TaskAction::Finish(checked),
            5..8 => {
                let error = *self.random.pick(&["no", "not now", "né né", ""]);
                let error = self.random.percent(50).then(|| error.into());
                TaskAction::PutBack(checked, PutBack { delay_ms: self.delay_ms(), error })
            }
            _ => {
                let version = self.random.percent(60).then_some(checked.version);
                TaskAction::Delete(checked.key, version)
            }
        }
    }

    /// An earlier task command: as it was, with another wait, or with other content.
    pub(super) fn repeat_task(&mut self, model: &Model) -> Command {
        let waiting = model.tasks.claims.iter().map(|claim| TaskCommand {
            id: claim.id.clone(),
            pool: claim.pool.clone(),
            action: TaskAction::Claim(claim.claim.clone()),
        });
        let answered = model.tasks.answers.iter().map(|answer| answer.command.clone());
        let known = match self.random.below(4) {
            0..2 => answered.collect::<Vec<_>>(),
            2 => waiting.collect(),
            _ => self.task_asked.clone(),
        };
        let Some(mut command) = self.random.pick_some(&known) else {
            return Command::Task(self.task(model));
        };
        if self.random.percent(8) {
            let other = self.task(model);
            command.action = other.action;
        } else if let TaskAction::Claim(claim) = &mut command.action
            && self.random.percent(60)
        {
            claim.wait_ms = self.wait_ms();
        }
        Command::Task(command)
    }
}
