//! Bytes that choose commands from small alphabets: few are wasted on what is refused at once, so the
//! fuzzer gets to states with many requests that stand in each other's way.

use keylatch_table::{
    ANY, Acquire, Answer, Command, Detach, Extra, Extras, Field, Keyed, KeyedOp, Mode, Part, Party,
    Query, RequestId, Resource, Settings, Target, Text,
    task::{Body, Checked, Claim, Create, PutBack, TaskAction, TaskCommand},
};

use super::{Choices, MOST_STEPS, Pair};
use crate::{generate::Profile, model::Model};

/// So few ids that most commands hit one that is live or remembered.
const IDS: u8 = 20;
const OWNERS: [&str; 4] = ["ann", "bob", "cid", "dan"];
const POOLS: [&str; 2] = ["p", "q"];
const KEYS: [&str; 4] = ["k1", "k2", "k3", "m"];
const ALIASES: [&str; 3] = ["s", "t", "u"];
const MODES: [Mode; 4] = [Mode::Cumulative, Mode::Shared, Mode::Exclusive, Mode::Optimistic];
const LENGTHS_MS: [u64; 8] = [0, 1, 10, 50, 200, 1_000, 20_000, 3_000_000];
const VALUES: [&[u8]; 3] = [b"v", b"w", b""];
/// Plain keys; then names with fields that overlap in many ways, equal texts of other types too.
const RESOURCES: [(&str, &[Field<'static>]); 16] = [
    ("a", &[]),
    ("b", &[]),
    ("c", &[]),
    ("a", &[Field::Text("1")]),
    ("a", &[Field::Number("1")]),
    ("a", &[ANY]),
    ("a", &[Field::Text("1"), Field::Text("x")]),
    ("a", &[Field::Text("1"), Field::Bool(true)]),
    ("a", &[Field::Text("2"), Field::Text("x")]),
    ("a", &[Field::Text("1"), ANY]),
    ("a", &[ANY, Field::Text("x")]),
    ("a", &[ANY, ANY]),
    ("b", &[Field::Text("1"), ANY, Field::Text("z")]),
    ("b", &[ANY, Field::Text("y"), Field::Text("z")]),
    ("b", &[ANY, ANY, ANY]),
    ("b", &[Field::Text("1"), Field::Text("y"), Field::Text("z")]),
];
/// Bounds that a script of this size hits.
const TIGHT: [(&str, u64); 19] = [
    ("id_bytes", 3),
    ("name_bytes", 0),
    ("field_bytes", 0),
    ("owner_bytes", 2),
    ("meta_bytes", 1),
    ("resources", 1),
    ("wait_ms", 200),
    ("lease_ms", 200),
    ("waiters", 1),
    ("requests_of_name", 3),
    ("requests_of_owner", 2),
    ("requests", 4),
    ("ended_ms", 10),
    ("ended", 2),
    ("task_key_bytes", 1),
    ("task_body_bytes", 0),
    ("task_bytes", 420),
    ("task_attempts", 1),
    ("claims", 1),
];

/// What the bytes of a script have chosen so far.
struct Script<'a> {
    choices: Choices<'a>,
    pair: Pair,
    /// The last requests and task commands, to be repeated.
    asked: Vec<Acquire>,
    task_asked: Vec<TaskCommand>,
}

/// The choices that the bytes make, carried out beside the model.
pub fn script(data: &[u8]) {
    script_beside(data, Model::new);
}

/// The same beside any model, for those who want to see that a wrong one is noticed.
pub fn script_beside(data: &[u8], model: impl FnOnce(Settings, u64) -> Model) {
    let pair = Pair::new(&Profile::Mixed.settings(), model);
    let mut script =
        Script { choices: Choices(data), pair, asked: Vec::new(), task_asked: Vec::new() };
    while script.pair.steps < MOST_STEPS
        && let Some(first) = script.choices.next()
    {
        script.advance(first >> 5);
        script.step(first & 31);
    }
    script.pair.finish();
}

fn id_of(number: u8) -> RequestId {
    match number % IDS {
        number @ 0..15 => RequestId::new(&format!("r{number}")),
        number => RequestId::from_uuid([number; 16]),
    }
}

impl Script<'_> {
    /// Mostly no time passes, then a little, or up to and around what ends next.
    fn advance(&mut self, choice: u8) {
        let next = self.pair.table.next_deadline().unwrap_or(self.pair.at).max(self.pair.at);
        self.pair.at = match choice {
            0..4 => self.pair.at,
            4 => self.pair.at + u64::from(self.choices.byte()),
            5 => next,
            6 => next.saturating_sub(1).max(self.pair.at),
            _ => self.pair.at.saturating_sub(5),
        };
    }

    fn step(&mut self, choice: u8) {
        let command = match choice {
            0..8 => Command::Acquire(self.acquire()),
            8..11 => Command::Release(self.target()),
            11 => {
                let target = self.target();
                let lease_ms = self.choices.pick(&LENGTHS_MS);
                Command::Renew(target, (lease_ms != 10).then_some(lease_ms))
            }
            12..14 => Command::Promote(self.target()),
            14 => Command::Cancel(self.target()),
            15..17 => self.detach(),
            17 => Command::Revoke(self.number(), "why".into()),
            18 => self.keyed(),
            19 => {
                let count = self.choices.below(4);
                Command::AcquireEach((0..count).map(|_| self.acquire_now()).collect())
            }
            20..22 => self.repeat(),
            22..27 => Command::Task(self.task()),
            27 => self.repeat_task(),
            28 => Command::Tick,
            29 => self.settings(),
            30 => Command::TokenFloor(self.number()),
            _ if self.choices.below(2) == 0 => return self.pair.look(),
            _ => return self.pair.restart(),
        };
        self.pair.apply(&command);
    }

    fn id(&mut self) -> RequestId {
        id_of(self.choices.byte())
    }

    fn target(&mut self) -> Target {
        match self.choices.byte() {
            number @ 0..230 => Target::Id(id_of(number)),
            number => Target::Alias(ALIASES[usize::from(number) % ALIASES.len()].into()),
        }
    }

    fn part(&mut self) -> Part {
        let byte = self.choices.byte();
        let (name, fields) = RESOURCES[usize::from(byte & 15)];
        let resource = Resource::new(name, fields).expect("short names, few fields");
        Part::new(resource, MODES[usize::from(byte >> 4 & 3)])
    }

    fn party(&mut self) -> Party {
        let byte = self.choices.byte();
        let owner = OWNERS[usize::from(byte & 3)].into();
        let principal = (byte & 0x30 == 0x30).then(|| "pat".into());
        Party { owner, explicit: byte & 0x0c != 0, principal }
    }

    fn acquire(&mut self) -> Acquire {
        let (id, part, party, shape) = (self.id(), self.part(), self.party(), self.choices.byte());
        let also = if shape & 3 == 3 { 1 + self.choices.below(3) } else { 0 };
        let ask = Acquire {
            id,
            part,
            also: (0..also).map(|_| self.part()).collect(),
            detect: shape & 4 != 0 && party.explicit,
            party,
            wait_ms: LENGTHS_MS[usize::from(shape >> 5)],
            lease_ms: self.choices.pick(&LENGTHS_MS),
            extra: if shape & 0x18 == 0x18 { self.extra() } else { Extras::default() },
        };
        self.asked.push(ask.clone());
        ask
    }

    fn acquire_now(&mut self) -> Acquire {
        let ask = self.acquire();
        Acquire { wait_ms: u64::from(ask.wait_ms == LENGTHS_MS[7]), ..ask }
    }

    fn extra(&mut self) -> Extras {
        let byte = self.choices.byte();
        let extra = Extra {
            max_hold_ms: LENGTHS_MS[usize::from(byte & 7)],
            meta: (byte & 8 != 0).then(|| "meta".into()),
            value: (byte & 0x10 != 0).then(|| self.choices.pick(&VALUES).into()),
            alias: (byte & 0x20 != 0).then(|| self.choices.pick(&ALIASES).into()),
        };
        extra.into()
    }

    /// A number near the last token: one that is held, was held, or is not given out yet.
    fn number(&mut self) -> u64 {
        let Answer::Stats(stats) = self.pair.table.query(0, &Query::Stats) else { unreachable!() };
        let last = stats.token + 2;
        last.saturating_sub(u64::from(self.choices.below(24)))
    }

    fn detach(&mut self) -> Command {
        let grace_ms = self.choices.pick(&LENGTHS_MS[..7]);
        let count = self.choices.below(4);
        let ids = (count > 0).then(|| (0..count).map(|_| self.id()).collect());
        Command::Detach(Detach { ids, grace_ms })
    }

    fn keyed(&mut self) -> Command {
        let shape = self.choices.byte();
        let key = |script: &mut Self| {
            let (name, fields) = RESOURCES[usize::from(script.choices.below(4))];
            Resource::new(name, fields).expect("short names, few fields")
        };
        let keys = (0..shape & 3).map(|_| key(self)).collect();
        let value = (shape & 4 != 0).then(|| self.choices.pick(&VALUES).into());
        let op = match shape >> 4 & 3 {
            0 => KeyedOp::Delete,
            1 => KeyedOp::Expire(self.choices.pick(&LENGTHS_MS)),
            _ => KeyedOp::Extend(self.choices.pick(&LENGTHS_MS)),
        };
        Command::Keyed(Keyed { keys, value, all: shape & 8 != 0, op })
    }

    /// An earlier request, with another wait or another content.
    fn repeat(&mut self) -> Command {
        let back = usize::from(self.choices.byte());
        let Some(ask) = self.asked.iter().nth_back(back % self.asked.len().max(1)) else {
            return Command::Tick;
        };
        let mut ask = ask.clone();
        match self.choices.byte() {
            number @ 0..8 => ask.wait_ms = LENGTHS_MS[usize::from(number)],
            8 => ask.part = self.part(),
            9 => ask.party = self.party(),
            10 => ask.lease_ms += 1,
            11 => ask.extra = self.extra(),
            _ => {}
        }
        Command::Acquire(ask)
    }

    fn task(&mut self) -> TaskCommand {
        let (id, shape) = (self.id(), self.choices.byte());
        let pool: Text = POOLS[usize::from(shape & 1)].into();
        let key: Text = KEYS[usize::from(shape >> 1 & 3)].into();
        let action = match shape >> 3 & 15 {
            0..4 => TaskAction::Create(Create {
                key,
                body: self.body(),
                priority: i32::from(self.choices.below(3)) - 1,
                delay_ms: self.choices.pick(&LENGTHS_MS),
                attempts: (shape & 0x80 != 0).then(|| u32::from(self.choices.below(3))),
            }),
            4..9 => TaskAction::Claim(Claim {
                key: (shape & 0x80 != 0).then_some(key),
                party: self.party(),
                wait_ms: self.choices.pick(&LENGTHS_MS),
                lease_ms: self.choices.pick(&LENGTHS_MS),
            }),
            9..14 => {
                let version = self.version(&pool, &key);
                self.checked(shape, Checked { key, version })
            }
            14 => TaskAction::Retry((shape & 0x80 != 0).then_some(key)),
            _ => TaskAction::Cancel,
        };
        let command = TaskCommand { id, pool, action };
        self.task_asked.push(command.clone());
        command
    }

    fn checked(&mut self, shape: u8, checked: Checked) -> TaskAction {
        match shape >> 3 & 15 {
            9 | 10 => {
                let error = self.choices.pick(&["no", "né né", ""]);
                let error = (shape & 0x80 != 0).then(|| error.into());
                TaskAction::PutBack(
                    checked,
                    PutBack { delay_ms: self.choices.pick(&LENGTHS_MS), error },
                )
            }
            11 => {
                let lease_ms = (shape & 0x80 != 0).then(|| self.choices.pick(&LENGTHS_MS));
                TaskAction::Update(checked, self.body(), lease_ms)
            }
            12 => TaskAction::Finish(checked),
            _ => TaskAction::Delete(checked.key, (shape & 0x80 != 0).then_some(checked.version)),
        }
    }

    fn body(&mut self) -> Option<Body> {
        let byte = self.choices.byte();
        (byte & 1 == 1)
            .then(|| Body { json: byte & 2 != 0, bytes: vec![b'x'; usize::from(byte >> 3)].into() })
    }

    /// Mostly the task's version.
    fn version(&mut self, pool: &Text, key: &Text) -> u64 {
        let present = self.pair.table.query(self.pair.at, &Query::Task(pool.clone(), key.clone()));
        match (present, self.choices.byte()) {
            (Answer::Task(Some(task)), 0..224) => task.version,
            _ => self.number(),
        }
    }

    fn repeat_task(&mut self) -> Command {
        let back = usize::from(self.choices.byte());
        let Some(command) = self.task_asked.iter().nth_back(back % self.task_asked.len().max(1))
        else {
            return Command::Tick;
        };
        let mut command = command.clone();
        match (&mut command.action, self.choices.byte()) {
            (TaskAction::Claim(claim), number @ 0..8) => {
                claim.wait_ms = LENGTHS_MS[usize::from(number)];
            }
            (TaskAction::Claim(claim), 8) => claim.lease_ms += 1,
            (_, 9) => command.pool = "p".into(),
            _ => {}
        }
        Command::Task(command)
    }

    fn settings(&mut self) -> Command {
        let mut settings = Profile::Mixed.settings();
        for _ in 0..self.choices.below(3) {
            let (name, value) = self.choices.pick(&TIGHT);
            settings.set(name, [value, value + 1, u64::MAX][usize::from(self.choices.below(3))]);
        }
        Command::Settings(Box::new(settings))
    }
}
