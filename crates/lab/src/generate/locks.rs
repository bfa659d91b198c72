//! Lock commands.

use keylatch_table::{
    ANY, Acquire, Command, Detach, Extra, Extras, Field, Keyed, KeyedOp, Mode, Part, Party,
    RequestId, Resource,
};

use super::Generator;
use crate::model::{Model, request::Request};

/// Texts, numbers and booleans that look alike and are not.
const FIELDS: [Field<'static>; 7] = [
    Field::Text("a"),
    Field::Text("b"),
    Field::Text("1"),
    Field::Number("1"),
    Field::Bool(true),
    Field::Text("true"),
    Field::Bool(false),
];

impl Generator {
    pub(super) fn resource(&mut self) -> Resource {
        let name = *self.random.pick(self.world.names);
        let arity = *self.random.pick(self.world.arities);
        let fields = (0..arity).map(|_| {
            if self.random.percent(self.world.wildcard_percent) {
                ANY
            } else {
                *self.random.pick(&FIELDS[..self.world.fields])
            }
        });
        Resource::new(name, &fields.collect::<Vec<_>>()).expect("short names, few fields")
    }

    fn part(&mut self) -> Part {
        let mode = self.random.weighted(self.world.modes);
        Part::new(self.resource(), mode)
    }

    pub(super) fn party(&mut self) -> Party {
        let owner = "o".repeat(1 + self.random.below(self.world.owners) as usize);
        let explicit = self.random.percent(self.world.explicit_percent);
        let principal = self.random.percent(10).then(|| "p".into());
        Party { owner: owner.as_str().into(), explicit, principal }
    }

    pub(super) fn lease_ms(&mut self) -> u64 {
        match self.random.below(20) {
            0..4 => 0,
            4..9 => self.random.between(1, 60),
            9..15 => self.random.between(100, 2_000),
            _ => 10_000,
        }
    }

    pub(super) fn wait_ms(&mut self) -> u64 {
        if !self.random.percent(self.world.wait_percent) {
            return 0;
        }
        if self.random.percent(30) {
            self.random.between(1, 80)
        } else {
            self.random.between(200, 20_000)
        }
    }

    pub(super) fn acquire(&mut self) -> Acquire {
        let party = self.party();
        let id = if self.random.percent(4) {
            self.random.pick_some(&self.asked).map(|asked| asked.id)
        } else {
            None
        };
        let mut asked = Acquire {
            id: id.unwrap_or_else(|| self.new_id()),
            part: self.part(),
            also: Vec::new(),
            detect: party.explicit && self.random.percent(self.world.detect_percent),
            party,
            wait_ms: self.wait_ms(),
            lease_ms: self.lease_ms(),
            extra: Extras::default(),
        };
        if self.random.percent(self.world.several_percent) {
            asked.also = (0..self.random.between(1, 3)).map(|_| self.part()).collect();
            self.make_optimistic_or_not(&mut asked);
        }
        asked.extra = self.extra();
        asked
    }

    /// Mostly all O or none, and no two that overlap, because the rest is refused.
    fn make_optimistic_or_not(&mut self, asked: &mut Acquire) {
        if self.random.percent(5) {
            return;
        }
        for part in &mut asked.also {
            if (part.mode == Mode::Optimistic) != (asked.part.mode == Mode::Optimistic) {
                part.mode = asked.part.mode;
            }
        }
        let drafted = Request::draft(asked, 0);
        let mut kept: Vec<Part> = Vec::new();
        for part in drafted.parts {
            if kept.iter().all(|other| !crate::model::overlap(&other.resource, &part.resource)) {
                kept.push(part);
            }
        }
        asked.also = kept.split_off(1);
    }

    fn extra(&mut self) -> Extras {
        let mut extra = Extra::default();
        if self.random.percent(10) {
            extra.max_hold_ms = self.random.between(1, 150);
        }
        if self.random.percent(4) {
            extra.meta = Some("meta".into());
        }
        if self.random.percent(self.world.value_percent) {
            extra.value = Some(self.value().into());
        }
        if self.random.percent(6) {
            extra.alias = Some(format!("s{}", self.random.below(4)).into());
        }
        extra.into()
    }

    fn value(&mut self) -> Box<[u8]> {
        (*self.random.pick(&[&b"u"[..], b"v", b""])).into()
    }

    /// An earlier request: as it was, with another wait, or with other content.
    pub(super) fn repeat(&mut self, model: &Model) -> Command {
        let live = model.requests.iter().map(|request| request.asked.clone()).collect::<Vec<_>>();
        let known = if self.random.percent(70) { &live } else { &self.asked };
        let Some(mut asked) = self.random.pick_some(known) else {
            return Command::Acquire(self.acquire());
        };
        if self.random.percent(60) {
            asked.wait_ms = self.wait_ms();
        }
        if !asked.party.explicit && self.random.percent(50) {
            asked.party.owner = "other".into();
        }
        if self.random.percent(10) {
            asked.party.principal = Some("q".into());
        }
        if self.random.percent(10) {
            self.change_content(&mut asked);
        }
        Command::Acquire(asked)
    }

    fn change_content(&mut self, asked: &mut Acquire) {
        match self.random.below(8) {
            0 => asked.part.mode = self.random.weighted(self.world.modes),
            1 => asked.part.resource = self.resource(),
            2 => asked.lease_ms += 1,
            3 => asked.detect = !asked.detect,
            4 => asked.party.explicit = !asked.party.explicit,
            5 => asked.party.owner = "changed".into(),
            6 => asked.also = vec![self.part()],
            _ => asked.extra = self.extra(),
        }
    }

    pub(super) fn each(&mut self) -> Command {
        let mut all = (0..self.random.below(4)).map(|_| self.acquire()).collect::<Vec<_>>();
        let party = self.party();
        for asked in &mut all {
            asked.wait_ms = u64::from(self.random.percent(2));
            if self.random.percent(70) {
                asked.party = party.clone();
                asked.detect &= party.explicit;
            }
        }
        if all.len() > 1 && self.random.percent(3) {
            all[1].id = all[0].id.clone();
        }
        Command::AcquireEach(all)
    }

    pub(super) fn detach(&mut self, model: &Model) -> Command {
        let waiting = model.requests.iter().filter(|request| request.wait().is_some());
        let mut ids = waiting
            .map(|request| request.asked.id.clone())
            .chain(model.tasks.claims.iter().map(|claim| claim.id.clone()))
            .filter(|_| self.random.percent(40))
            .collect::<Vec<RequestId>>();
        if self.random.percent(30) {
            ids.push(self.old_id(model));
            ids.extend(model.requests.first().map(|request| request.asked.id.clone()));
        }
        let grace_ms = match self.random.below(4) {
            0 => 0,
            1 => self.random.between(1, 10),
            _ => self.random.between(10, 200),
        };
        Command::Detach(Detach { ids: (!self.random.percent(4)).then_some(ids), grace_ms })
    }

    pub(super) fn revoke(&mut self, model: &Model) -> Command {
        let held = model.requests.iter().map(Request::token).collect::<Vec<_>>();
        let token = self.random.pick_some(&held).filter(|_| self.random.percent(85));
        let token = token.unwrap_or_else(|| self.random.below(model.token + 2));
        Command::Revoke(token, "because".into())
    }

    pub(super) fn keyed(&mut self, model: &Model) -> Command {
        let held = model
            .requests
            .iter()
            .filter(|request| request.value().is_some())
            .map(|request| request.asked.part.resource.clone())
            .filter(|resource| resource.arity() == 0)
            .collect::<Vec<_>>();
        let keys = (0..self.random.between(0, 4))
            .map(|_| match self.random.pick_some(&held) {
                Some(key) if self.random.percent(60) => key,
                _ => Resource::plain(self.random.pick::<&str>(self.world.names))
                    .expect("a short name"),
            })
            .collect();
        let value = self.random.percent(50).then(|| self.value());
        let ms = self.lease_ms();
        let op = match self.random.below(3) {
            0 => KeyedOp::Delete,
            1 => KeyedOp::Expire(ms),
            _ => KeyedOp::Extend(ms),
        };
        Command::Keyed(Keyed { keys, value, all: self.random.percent(30), op })
    }
}
