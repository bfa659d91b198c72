//! A world: the few requests, resources and commands whose every interleaving is explored. Worlds
//! are data; `worlds` has the ones we run.

use keylatch_table::{Acquire, Extra, Field, Mode, Part, Party, RequestId, Resource, Settings};

use super::coverage::Mark;
use super::rule::{PartOf, Parts};

/// A wait that no world's time reaches.
pub const LONG_MS: u64 = 1_000;

/// What can happen.
#[derive(Clone)]
pub struct World {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is for, in a line.
    pub about: &'static str,
    /// The resources that its requests name.
    pub areas: Vec<Area>,
    /// The requests, each with an id of its own.
    pub slots: Vec<Slot>,
    /// Sets of requests that may be asked for in one `AcquireEach`: (slot, ask).
    pub each: Vec<Vec<(u8, u8)>>,
    /// The commands.
    pub verbs: Verbs,
    /// The table's bounds.
    pub settings: Settings,
    /// Whether states that differ only in where a waiter is parked count as different.
    pub parking: bool,
    /// What must have happened somewhere, or the world has shown nothing.
    pub marks: Vec<Mark>,
    overlaps: Vec<Vec<bool>>,
}

/// Which commands a world has besides acquiring and releasing what is held.
#[derive(Clone, Default)]
pub struct Verbs {
    /// Every request may also be asked for with a wait of 0.
    pub tries: bool,
    /// Requests that wait, or hold, may be repeated.
    pub repeats: bool,
    /// Ids may be used for other content, and commands may name requests that are not live.
    pub nonsense: bool,
    /// Waiters may be cancelled.
    pub cancels: bool,
    /// Waiters may be released.
    pub releases_waiting: bool,
    /// Holders may be promoted.
    pub promotes: bool,
    /// Holders may be revoked.
    pub revokes: bool,
    /// Holders may be renewed, each with one of these.
    pub renews: Vec<Option<u64>>,
    /// Single waiters may be detached, each with one of these graces.
    pub detaches: Vec<u64>,
    /// All waiters may be detached at once, with one of these graces.
    pub detaches_all: Vec<u64>,
    /// Time may pass in steps of these.
    pub ticks: Vec<u64>,
}

/// A resource, in the checker's own form: `None` is the wildcard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    name: String,
    fields: Vec<Option<String>>,
    /// The same for the table.
    pub resource: Resource,
}

impl Area {
    /// From text such as `n` or `n(A,@)`.
    fn parse(text: &str) -> Area {
        let (name, rest) = text.split_once('(').unwrap_or((text, ""));
        let fields: Vec<Option<String>> = rest
            .trim_end_matches(')')
            .split(',')
            .filter(|field| !field.is_empty())
            .map(|field| (field != "@").then(|| field.to_owned()))
            .collect();
        let typed: Vec<Field<'_>> =
            fields.iter().map(|field| field.as_deref().map_or(Field::Any, Field::Text)).collect();
        let resource = Resource::new(name, &typed).expect("a world's resources are sound");
        Area { name: name.to_owned(), fields, resource }
    }

    fn overlaps(&self, other: &Area) -> bool {
        let fields = || self.fields.iter().zip(&other.fields);
        self.name == other.name
            && self.fields.len() == other.fields.len()
            && fields().all(|(a, b)| a.is_none() || b.is_none() || a == b)
    }
}

/// A request that comes and goes: an id, an owner, and what it may ask for.
#[derive(Clone)]
pub struct Slot {
    /// Its id.
    pub id: RequestId,
    /// Who asks.
    pub party: Party,
    /// What it may ask for, one at a time.
    pub asks: Vec<Ask>,
}

impl Slot {
    /// The owner, if it is one that cumulates.
    pub fn explicit_owner(&self) -> Option<&str> {
        self.party.explicit.then_some(&*self.party.owner)
    }
}

/// What a request may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The resources and modes.
    pub parts: Parts,
    /// How long it queues.
    pub wait_ms: u64,
    /// The lease; 0 is none.
    pub lease_ms: u64,
    /// The longest hold; 0 is unbounded.
    pub max_hold_ms: u64,
    /// Whether it takes part in deadlock detection.
    pub detect: bool,
}

/// The times of a request, for [`World::slot_with`].
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// How long it queues.
    pub wait_ms: u64,
    /// The lease; 0 is none.
    pub lease_ms: u64,
    /// The longest hold; 0 is unbounded.
    pub max_hold_ms: u64,
}

/// Waits as long as it takes and holds for ever.
const TIMELESS: Times = Times { wait_ms: LONG_MS, lease_ms: 0, max_hold_ms: 0 };

impl World {
    /// An empty world, which remembers no ended ids.
    pub fn new(name: &'static str, about: &'static str) -> World {
        World {
            name,
            about,
            areas: Vec::new(),
            slots: Vec::new(),
            each: Vec::new(),
            verbs: Verbs::default(),
            settings: Settings { ended: 0, ..Settings::default() },
            parking: false,
            marks: vec![Mark::Granted, Mark::Woken],
            overlaps: Vec::new(),
        }
    }

    /// Adds a request that may ask for any of these: `"S n(A,@)"`, or `"S m & X n"` for two. An
    /// owner in brackets is not an explicit one.
    pub fn slot(self, owner: &str, asks: &[&str]) -> World {
        self.slot_with(owner, TIMELESS, asks)
    }

    /// The same with other times.
    pub fn slot_with(mut self, owner: &str, times: Times, asks: &[&str]) -> World {
        let asks = asks.iter().map(|text| self.ask(text, times)).collect();
        let mut id = [0; 16];
        id[15] = self.slots.len() as u8 + 1;
        let party = match owner.strip_prefix('[') {
            Some(shown) => Party::client(shown.trim_end_matches(']')),
            None => Party::owner(owner),
        };
        self.slots.push(Slot { id: RequestId::from_uuid(id), party, asks });
        self
    }

    /// The commands.
    pub fn verbs(mut self, verbs: Verbs) -> World {
        self.verbs = verbs;
        self
    }

    /// What must have happened, besides grants.
    pub fn marks(mut self, marks: &[Mark]) -> World {
        self.marks.extend(marks);
        self
    }

    /// Makes every request of the world take part in deadlock detection.
    pub fn detect(mut self) -> World {
        let asks = self.slots.iter_mut().flat_map(|slot| &mut slot.asks);
        asks.for_each(|ask| ask.detect = true);
        self
    }

    fn ask(&mut self, text: &str, times: Times) -> Ask {
        let parts: Vec<PartOf> = text
            .split(" & ")
            .map(|part| {
                let (mode, area) = part.split_once(' ').expect("a mode and a resource");
                (self.area(area), Mode::from_letter(mode).expect("a mode"))
            })
            .collect();
        let Times { wait_ms, lease_ms, max_hold_ms } = times;
        Ask { parts: Parts::new(&parts), wait_ms, lease_ms, max_hold_ms, detect: false }
    }

    fn area(&mut self, text: &str) -> u8 {
        let area = Area::parse(text);
        let known = self.areas.iter().position(|other| *other == area);
        known.unwrap_or_else(|| {
            self.areas.push(area);
            let overlap = |a: &Area| self.areas.iter().map(|b| a.overlaps(b)).collect();
            self.overlaps = self.areas.iter().map(overlap).collect();
            self.areas.len() - 1
        }) as u8
    }

    /// Whether two resources overlap.
    pub fn overlap(&self, a: u8, b: u8) -> bool {
        self.overlaps[usize::from(a)][usize::from(b)]
    }

    /// One of the things that a request may ask for.
    pub fn ask_of(&self, slot: u8, ask: u8) -> &Ask {
        &self.slots[usize::from(slot)].asks[usize::from(ask)]
    }

    /// Which request has this id.
    pub fn slot_of(&self, id: &RequestId) -> Option<u8> {
        self.slots.iter().position(|slot| slot.id == *id).map(|slot| slot as u8)
    }

    /// Which resource this is.
    pub fn area_of(&self, resource: &Resource) -> Option<u8> {
        self.areas.iter().position(|area| area.resource == *resource).map(|area| area as u8)
    }

    /// The command that asks.
    pub fn acquire(&self, slot: u8, ask: u8, wait_ms: u64) -> Acquire {
        let asked = self.ask_of(slot, ask);
        let slot = &self.slots[usize::from(slot)];
        let mut parts =
            asked.parts.list().iter().map(|(area, mode)| {
                Part::new(self.areas[usize::from(*area)].resource.clone(), *mode)
            });
        let max_hold_ms = asked.max_hold_ms;
        let extra = Extra { max_hold_ms, ..Extra::default() }.into();
        Acquire {
            id: slot.id.clone(),
            part: parts.next().expect("a request has a resource"),
            also: parts.collect(),
            party: slot.party.clone(),
            wait_ms,
            lease_ms: asked.lease_ms,
            detect: asked.detect,
            extra,
        }
    }
}
