//! Everything that can change a table. Commands are what a log stores and what replicas apply, so
//! they carry all that the outcome depends on; `command_bytes` gives them their bytes.

use std::sync::Arc;

use crate::{Mode, RequestId, Resource, Settings, Value, task::TaskCommand};

/// Text that many entries share (owners, principals, pools).
pub type Text = Arc<str>;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ask for one or several resources, all or nothing.
    Acquire(Acquire),
    /// Ask for several *separate* locks at once: all are granted now, or none is.
    AcquireEach(Vec<Acquire>),
    /// Give up what is held, or stop waiting.
    Release(Target),
    /// Extend a lease: the first lease again, or this one (0: no lease). Never shortens.
    Renew(Target, Option<u64>),
    /// Turn every O, or every S that nobody shares, of a held request into E under a new token.
    Promote(Target),
    /// Stop waiting; does nothing to what is held.
    Cancel(Target),
    /// The connections of these waiting requests are gone.
    Detach(Detach),
    /// An administrator ends the grant with this token.
    Revoke(u64, Text),
    /// Act on the locks of plain keys that carry a value (the Redis subset).
    Keyed(Keyed),
    /// Tasks and their claims.
    Task(TaskCommand),
    /// Let time pass.
    Tick,
    /// Replace the bounds.
    Settings(Box<Settings>),
    /// Raise the version of the rules.
    Rules(u32),
    /// Tokens from now on are larger than this one.
    TokenFloor(u64),
}

/// One resource of a request and how it is to be locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What.
    pub resource: Resource,
    /// How.
    pub mode: Mode,
}

impl Part {
    /// `resource` in `mode`.
    pub fn new(resource: Resource, mode: Mode) -> Part {
        Part { resource, mode }
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Party {
    /// Shown to others. Two requests have the same owner only if both said so explicitly.
    pub owner: Text,
    /// Whether `owner` was given by the caller; if not, it is the client's name or address.
    pub explicit: bool,
    /// The authenticated principal, to whom the request id may be shown.
    pub principal: Option<Text>,
}

impl Party {
    /// An owner that the caller named.
    pub fn owner(owner: &str) -> Party {
        Party { owner: owner.into(), explicit: true, principal: None }
    }

    /// A client that named no owner: what to show for it.
    pub fn client(shown: &str) -> Party {
        Party { owner: shown.into(), explicit: false, principal: None }
    }
}

/// A request for locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// The request's secret name.
    pub id: RequestId,
    /// The first resource.
    pub part: Part,
    /// More resources, for all-or-nothing requests.
    pub also: Vec<Part>,
    /// Who asks.
    pub party: Party,
    /// How long to queue; 0 never queues.
    pub wait_ms: u64,
    /// How long the grant lives without renewal; 0 is for ever.
    pub lease_ms: u64,
    /// Whether the owner stands for one thread of control and cycles are to be refused.
    pub detect: bool,
    /// What few requests have.
    pub extra: Extras,
}

/// What few requests have, made from an [`Extra`]: kept apart, so that the others do not pay for it, but for a value
/// alone, which is what `SET` makes. It stays in place: a lock by `SET` needs no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extras(Form);

/// Each content has one form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Form {
    #[default]
    Nothing,
    Value(Value),
    /// More than a value, or something else.
    Boxed(Box<Extra>),
}

impl Extras {
    /// Whether there is nothing.
    pub fn is_none(&self) -> bool {
        matches!(self.0, Form::Nothing)
    }

    /// See [`Extra::max_hold_ms`].
    #[inline]
    pub fn max_hold_ms(&self) -> u64 {
        self.boxed().map_or(0, |extra| extra.max_hold_ms)
    }

    /// See [`Extra::meta`].
    pub fn meta(&self) -> Option<&str> {
        self.boxed()?.meta.as_deref()
    }

    /// See [`Extra::value`].
    pub fn value(&self) -> Option<&[u8]> {
        match &self.0 {
            Form::Nothing => None,
            Form::Value(value) => Some(value),
            Form::Boxed(extra) => extra.value.as_deref(),
        }
    }

    /// See [`Extra::alias`].
    #[inline]
    pub fn alias(&self) -> Option<&str> {
        self.boxed()?.alias.as_deref()
    }

    fn boxed(&self) -> Option<&Extra> {
        match &self.0 {
            Form::Boxed(extra) => Some(extra),
            _ => None,
        }
    }
}

impl From<Value> for Extras {
    fn from(value: Value) -> Extras {
        Extras(Form::Value(value))
    }
}

impl From<Extra> for Extras {
    fn from(extra: Extra) -> Extras {
        Extras(match extra {
            Extra { max_hold_ms: 0, meta: None, value: None, alias: None } => Form::Nothing,
            Extra { max_hold_ms: 0, meta: None, value: Some(value), alias: None } => {
                Form::Value(value)
            }
            extra => Form::Boxed(Box::new(extra)),
        })
    }
}

impl From<Extras> for Extra {
    fn from(extras: Extras) -> Extra {
        match extras.0 {
            Form::Nothing => Extra::default(),
            Form::Value(value) => Extra { value: Some(value), ..Extra::default() },
            Form::Boxed(extra) => *extra,
        }
    }
}

/// What an [`Extras`] is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// The longest total hold, renewals included; 0 is unbounded.
    pub max_hold_ms: u64,
    /// Free text of the holder, shown in lists.
    pub meta: Option<Box<str>>,
    /// The value of a lock taken by `SET`; [`Keyed`] commands act only on locks that have one.
    pub value: Option<Value>,
    /// A public name that is free again once the lock has ended (the enqueue protocol's `uuid`).
    pub alias: Option<Box<str>>,
}

impl Acquire {
    /// An exclusive request that does not wait, with a lease of 30 s.
    pub fn new(id: RequestId, resource: Resource, party: Party) -> Acquire {
        Acquire {
            id,
            part: Part::new(resource, Mode::default()),
            also: Vec::new(),
            party,
            wait_ms: 0,
            lease_ms: 30_000,
            detect: false,
            extra: Extras::default(),
        }
    }

    /// Whether both named the same owner.
    pub(crate) fn same_owner(&self, other: &Acquire) -> bool {
        self.party.explicit && other.party.explicit && self.party.owner == other.party.owner
    }

    /// All resources asked for, the first one first.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.part).chain(&self.also)
    }
}

/// How a later command names a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// By its id.
    Id(RequestId),
    /// By the alias it was given; only live requests have one.
    Alias(Box<str>),
}

/// Connections are gone; their waiters leave after a grace unless they come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detach {
    /// Which requests (lock requests and waiting claims); `None` means every waiting one.
    pub ids: Option<Vec<RequestId>>,
    /// How long they may stay away; 0 ends them at once.
    pub grace_ms: u64,
}

/// Act on locks that carry a value, by key. A lock taken by `SET` is an X lock on a plain name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The plain names.
    pub keys: Vec<Resource>,
    /// Act only where the value equals this; `None` takes any value.
    pub value: Option<Box<[u8]>>,
    /// Act on all of them or, if one does not match, on none.
    pub all: bool,
    /// What to do.
    pub op: KeyedOp,
}

/// What a [`Keyed`] command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedOp {
    /// Release.
    Delete,
    /// Set the lease to exactly this from now; 0 releases.
    Expire(u64),
    /// Add to what is left of the lease; a lock without lease stays without.
    Extend(u64),
}
