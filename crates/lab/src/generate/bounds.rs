//! Settings that change, and commands that are refused: each with one thing wrong.

use keylatch_table::{
    ANY, Acquire, Command, Extra, Extras, Keyed, KeyedOp, Mode, Part, Party, RequestId, Resource,
    Settings,
    task::{Body, Checked, Claim, Create, PutBack, TaskAction, TaskCommand},
};

use super::Generator;
use crate::model::Model;

/// Values at which runs of this size hit the bound.
const TIGHT: [(&str, &[u64]); 19] = [
    ("id_bytes", &[4]),
    ("name_bytes", &[1, 2]),
    ("field_bytes", &[1, 3]),
    ("owner_bytes", &[1, 2, 3]),
    ("meta_bytes", &[1, 3, 6]),
    ("resources", &[1, 2]),
    ("wait_ms", &[30, 1_000]),
    ("lease_ms", &[30, 1_000]),
    ("waiters", &[0, 1, 2]),
    ("requests_of_name", &[1, 4]),
    ("requests_of_owner", &[0, 2, 4]),
    ("requests", &[0, 4, 10]),
    ("ended_ms", &[1, 20]),
    ("ended", &[0, 1, 3]),
    ("task_key_bytes", &[1, 2]),
    ("task_body_bytes", &[0, 4]),
    ("task_bytes", &[0, 420, 830]),
    ("task_attempts", &[0, 1, 2]),
    ("claims", &[0, 1, 2]),
];

/// Values that the table cannot work with.
const IMPOSSIBLE: [(&str, u64); 8] = [
    ("id_bytes", 256),
    ("name_bytes", 65_536),
    ("field_bytes", 65_536),
    ("resources", 256),
    ("wait_ms", 4_294_967_295),
    ("lease_ms", 4_294_967_295),
    ("requests", (1 << 30) + 1),
    ("ended", (1 << 30) + 1),
];

fn long(bytes: u64) -> String {
    "x".repeat(bytes as usize + 1)
}

fn plain(name: &str) -> Resource {
    Resource::plain(name).expect("a short name")
}

impl Generator {
    pub(super) fn settings(&mut self) -> Command {
        let mut settings = self.world.settings.clone();
        if self.random.percent(50) {
            for _ in 0..self.random.between(1, 2) {
                let (name, values) = *self.random.pick(&TIGHT);
                settings.set(name, *self.random.pick(values));
            }
        }
        if self.random.percent(10) {
            let (name, value) = *self.random.pick(&IMPOSSIBLE);
            settings.set(name, value);
        }
        Command::Settings(Box::new(settings))
    }

    pub(super) fn odd(&mut self, model: &Model) -> Command {
        match self.random.below(10) {
            0..5 => Command::Acquire(self.bad_acquire(&model.settings)),
            5..8 => Command::Task(self.bad_task(&model.settings)),
            _ => self.bad_other(model),
        }
    }

    fn bad_acquire(&mut self, bounds: &Settings) -> Acquire {
        let mut asked = self.acquire();
        asked.id = self.new_id();
        asked.also = Vec::new();
        asked.extra = Extras::default();
        match self.random.below(18) {
            0 => asked.id = RequestId::new(""),
            1 => asked.id = RequestId::new(&long(bounds.id_bytes)),
            2 => asked.part.resource = plain(&long(bounds.name_bytes)),
            3 => {
                let field = long(bounds.field_bytes);
                let fields = [ANY, field.as_str().into()];
                asked.part.resource = Resource::new("a", &fields).expect("short enough");
            }
            4 => asked.party.owner = long(bounds.owner_bytes).as_str().into(),
            5 => asked.party.principal = Some(long(bounds.owner_bytes).as_str().into()),
            6 => asked.wait_ms = bounds.wait_ms + 1,
            7 => asked.lease_ms = bounds.lease_ms + 1,
            8 => {
                asked.extra =
                    Extras::from(Extra { max_hold_ms: bounds.lease_ms + 1, ..Extra::default() });
            }
            9 => {
                let meta = Some(long(bounds.meta_bytes).into());
                asked.extra = Extras::from(Extra { meta, ..Extra::default() });
            }
            10 => {
                let value = Some(long(bounds.meta_bytes).into_bytes().as_slice().into());
                asked.extra = Extras::from(Extra { value, ..Extra::default() });
            }
            11 => {
                let alias = Some(long(bounds.meta_bytes).into());
                asked.extra = Extras::from(Extra { alias, ..Extra::default() });
            }
            12 => asked.extra = Extras::from(Extra { alias: Some("".into()), ..Extra::default() }),
            13 => {
                let names = (0..bounds.resources).map(|number| format!("n{number}"));
                asked.also = names.map(|name| Part::new(plain(&name), asked.part.mode)).collect();
            }
            14 => {
                asked.part.mode = Mode::Optimistic;
                asked.also = vec![Part::new(plain("n"), Mode::Shared)];
            }
            15 => asked.also = vec![asked.part.clone()],
            16 => (asked.party, asked.detect) = (Party::client("shown"), true),
            _ => (asked.party, asked.detect) = (Party::owner(""), false),
        }
        asked
    }

    fn bad_task(&mut self, bounds: &Settings) -> TaskCommand {
        let mut create =
            Create { key: "k1".into(), body: None, priority: 0, delay_ms: 0, attempts: None };
        let mut claim =
            Claim { key: None, party: self.party(), wait_ms: self.wait_ms(), lease_ms: 100 };
        let checked = |key: &str| Checked { key: key.into(), version: 0 };
        let body =
            || Body { json: false, bytes: vec![b'x'; bounds.task_body_bytes as usize + 1].into() };
        let mut command =
            TaskCommand { id: self.new_id(), pool: "p".into(), action: TaskAction::Retry(None) };
        let long_key = long(bounds.task_key_bytes);
        command.action = match self.random.below(13) {
            0 => {
                command.id = RequestId::new("");
                TaskAction::Create(create)
            }
            1 => {
                command.pool = "".into();
                TaskAction::Retry(None)
            }
            2 => {
                command.pool = long_key.as_str().into();
                TaskAction::Claim(claim)
            }
            3 => {
                create.key = "".into();
                TaskAction::Create(create)
            }
            4 => TaskAction::Finish(checked(&long_key)),
            5 => {
                create.body = Some(body());
                TaskAction::Create(create)
            }
            6 => TaskAction::Update(checked("k1"), Some(body()), None),
            7 => TaskAction::Update(checked("k1"), None, Some(bounds.lease_ms + 1)),
            8 => {
                create.delay_ms = bounds.wait_ms + 1;
                TaskAction::Create(create)
            }
            9 => {
                let error = Some(long(bounds.meta_bytes).as_str().into());
                TaskAction::PutBack(checked("k1"), PutBack { delay_ms: 0, error })
            }
            10 => {
                claim.wait_ms = bounds.wait_ms + 1;
                TaskAction::Claim(claim)
            }
            11 => {
                claim.lease_ms = bounds.lease_ms + 1;
                TaskAction::Claim(claim)
            }
            _ => {
                claim.party.owner = long(bounds.owner_bytes).as_str().into();
                TaskAction::Claim(claim)
            }
        };
        command
    }

    fn bad_other(&mut self, model: &Model) -> Command {
        let bounds = &model.settings;
        match self.random.below(7) {
            0 => Command::Rules(self.random.below(3) as u32),
            1 => Command::TokenFloor(model.token + self.random.below(50)),
            2 => Command::TokenFloor(model.token.saturating_sub(10)),
            3 => Command::Revoke(model.token, long(bounds.meta_bytes).as_str().into()),
            4 => Command::Renew(self.target(model), Some(bounds.lease_ms + 1)),
            5 => {
                let keys = vec![plain("a"), Resource::new("a", &[ANY]).expect("one field")];
                Command::Keyed(Keyed { keys, value: None, all: false, op: KeyedOp::Delete })
            }
            _ => {
                let op = KeyedOp::Expire(bounds.lease_ms + 1);
                Command::Keyed(Keyed { keys: vec![plain("a")], value: None, all: false, op })
            }
        }
    }
}
