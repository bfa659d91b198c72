//! Commands that cannot be carried out as they are. Each text says what to do.

use std::fmt;

/// Why nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Something is longer than its bound.
    TooLong(What, u64),
    /// There are as many of something as the settings allow.
    TooMany(What, u64),
    /// Something that must not be empty is.
    Empty(What),
    /// The id was used for a request with other content.
    IdReused,
    /// The alias belongs to another live request.
    AliasInUse,
    /// Resources of one request overlap each other.
    PartsOverlap,
    /// Some of the resources are asked for as O, and some not.
    MixedOptimistic,
    /// Deadlock detection needs an explicit owner.
    DetectNeedsOwner,
    /// A lock that was taken as E or X cannot be promoted.
    NeverPromotable,
    /// Requests of an [`crate::Command::AcquireEach`] cannot wait.
    EachCannotWait,
    /// A key of a [`crate::Keyed`] command has fields.
    KeyWithFields,
    /// These rules are older than the present ones, or newer than this build knows.
    RulesVersion(u32),
    /// A settings value that cannot work.
    BadSetting(&'static str),
}

/// What a bound is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum What {
    Id,
    Name,
    Field,
    Owner,
    Principal,
    Meta,
    Value,
    Alias,
    Reason,
    Resources,
    Wait,
    Lease,
    MaxHold,
    Waiters,
    RequestsOfName,
    RequestsOfOwner,
    Requests,
    Pool,
    TaskKey,
    TaskBody,
    TaskError,
    TaskBytes,
    TaskDelay,
    Claims,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Id => "request id",
            What::Name => "name",
            What::Field => "field",
            What::Owner => "owner",
            What::Principal => "principal",
            What::Meta => "meta",
            What::Value => "value",
            What::Alias => "alias",
            What::Reason => "reason",
            What::Resources => "resources of one request",
            What::Wait => "wait",
            What::Lease => "lease",
            What::MaxHold => "max hold",
            What::Waiters => "waiters on one resource",
            What::RequestsOfName => "requests on one name",
            What::RequestsOfOwner => "requests of one owner",
            What::Requests => "requests",
            What::Pool => "pool",
            What::TaskKey => "task key",
            What::TaskBody => "task body",
            What::TaskError => "task error",
            What::TaskBytes => "bytes of tasks",
            What::TaskDelay => "task delay",
            What::Claims => "claims waiting on one pool",
        })
    }
}

impl What {
    fn unit(self) -> &'static str {
        match self {
            What::Wait | What::Lease | What::MaxHold | What::TaskDelay => "ms",
            _ => "bytes",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooLong(what, most) => {
                write!(f, "the {what} is longer than {most} {}; use a shorter one", what.unit())
            }
            Error::TooMany(What::Resources, most) => {
                write!(f, "at most {most} resources of one request are allowed; ask for fewer at once")
            }
            Error::TooMany(what, most) => {
                write!(f, "at most {most} {what} are allowed; release some or raise the bound")
            }
            Error::Empty(what) => write!(f, "the {what} is empty; give one"),
            Error::IdReused => f.write_str(
                "this request id was used for something else; use a new id for each request",
            ),
            Error::AliasInUse => {
                f.write_str("a live lock has this alias; release it first or use another alias")
            }
            Error::PartsOverlap => {
                f.write_str("two resources of the request overlap; ask for each of them once")
            }
            Error::MixedOptimistic => f.write_str(
                "optimistic and other modes cannot be mixed in one request; ask for all or none as O",
            ),
            Error::DetectNeedsOwner => {
                f.write_str("deadlock detection needs an owner; name one or leave detection off")
            }
            Error::NeverPromotable => {
                f.write_str("only a lock taken as O or S can be promoted; this one was not")
            }
            Error::EachCannotWait => {
                f.write_str("separate locks taken together cannot wait; use wait 0")
            }
            Error::KeyWithFields => f.write_str("a key is a plain name; leave the fields off"),
            Error::RulesVersion(version) => write!(
                f,
                "rules version {version} is not between the present one and the newest this build \
                 knows; raise it in steps, after upgrading every member"
            ),
            Error::BadSetting(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}
