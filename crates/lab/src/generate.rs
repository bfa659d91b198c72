//! Random command sequences. The generator looks at the model to aim: at ids that live, tokens that
//! are held, versions that are current, deadlines that are near. Few names, fields and owners, so
//! that things collide. The profiles say what a run is mostly about.

mod aim;
mod bounds;
mod locks;
mod profile;
mod tasks;

use keylatch_table::{Acquire, Command, RequestId, task::TaskCommand};

use crate::{model::Model, random::Random};

pub use profile::Profile;
use profile::{Kind, World};

/// How many earlier commands can be repeated: enough that some of them have long ended.
const HISTORY: usize = 60;

/// Makes one command after another.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Random,
    world: World,
    /// Ids given out so far.
    ids: u64,
    /// Earlier requests, to be repeated as they were or changed.
    asked: Vec<Acquire>,
    /// Earlier task commands, likewise.
    task_asked: Vec<TaskCommand>,
}

impl Generator {
    /// The sequence of this seed.
    pub fn new(seed: u64, profile: Profile) -> Generator {
        Generator {
            random: Random::new(seed),
            world: profile.world(),
            ids: 0,
            asked: Vec::new(),
            task_asked: Vec::new(),
        }
    }

    /// The next command and its time.
    pub fn next(&mut self, model: &Model) -> (u64, Command) {
        let at = self.time(model);
        let command = self.command(model);
        match &command {
            Command::Acquire(asked) => self.asked.push(asked.clone()),
            Command::AcquireEach(all) => self.asked.extend(all.iter().cloned()),
            Command::Task(command) => self.task_asked.push(command.clone()),
            _ => {}
        }
        let old = self.asked.len().saturating_sub(HISTORY);
        self.asked.drain(..old);
        let old = self.task_asked.len().saturating_sub(HISTORY);
        self.task_asked.drain(..old);
        (at, command)
    }

    fn command(&mut self, model: &Model) -> Command {
        let kinds = self.world.kinds;
        let kind = match self.random.weighted(kinds) {
            Kind::Acquire if self.is_crowded(model) => Kind::Release,
            kind => kind,
        };
        match kind {
            Kind::Acquire => Command::Acquire(self.acquire()),
            Kind::Repeat => self.repeat(model),
            Kind::Each => self.each(),
            Kind::Release => Command::Release(self.target(model)),
            Kind::Renew => {
                let target = self.target(model);
                let lease_ms = self.random.percent(60).then(|| self.lease_ms());
                Command::Renew(target, lease_ms)
            }
            Kind::Promote => Command::Promote(self.promotable(model)),
            Kind::Cancel => Command::Cancel(self.target(model)),
            Kind::Detach => self.detach(model),
            Kind::Revoke => self.revoke(model),
            Kind::Keyed => self.keyed(model),
            Kind::Task => Command::Task(self.task(model)),
            Kind::RepeatTask => self.repeat_task(model),
            Kind::Tick => Command::Tick,
            Kind::Settings => self.settings(),
            Kind::Odd => self.odd(model),
        }
    }

    /// Whether there are so many requests that most new ones would only queue.
    fn is_crowded(&mut self, model: &Model) -> bool {
        model.requests.len() > self.world.crowd && self.random.percent(80)
    }

    fn new_id(&mut self) -> RequestId {
        self.ids += 1;
        if self.random.percent(20) {
            return RequestId::from_uuid(u128::from(self.ids).to_be_bytes());
        }
        RequestId::new(&format!("r{}", self.ids))
    }
}
