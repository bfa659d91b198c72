//! The planted faults: what each is, where it should show, and which promise it breaks.

use keylatch_table::{Acquire, Field, Part, Party, RequestId, Resource};

use super::fault::Rule;

/// A mistake that a lock table could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The wildcard is a field like any other.
    WildcardIsText,
    /// E cumulates for everybody.
    OwnersAreAlike,
    /// A new request looks only at holders, not at those who wait already.
    BargesIn,
    /// When one end frees two waiters, the second is forgotten.
    ForgetsTheSecond,
    /// An idle table forgets its counters.
    TokensStartAgain,
    /// A refused pair keeps its first resource.
    HoldsAPart,
    /// Promote does not drop the other O.
    KeepsSuperseded,
    /// Promote drops the other O and does not tell them.
    SupersedesInSilence,
    /// Leases end a millisecond late.
    LeasesRunLate,
    /// Released resources with wildcards leave something behind.
    LeaksWildcards,
    /// A repeated request loses its place in the queue.
    RepeatGoesToTheTail,
    /// Ended ids are not remembered.
    RemembersNothing,
    /// Cycles of owners are not looked for.
    DetectsNothing,
    /// A command is carried out before what is due at its time.
    CommandBeforeTheDue,
    /// A refusal names somebody else.
    BlamesAnother,
    /// Promoting what waits makes the table panic.
    Panics,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 16] = [
        Plant::WildcardIsText,
        Plant::OwnersAreAlike,
        Plant::BargesIn,
        Plant::ForgetsTheSecond,
        Plant::TokensStartAgain,
        Plant::HoldsAPart,
        Plant::KeepsSuperseded,
        Plant::SupersedesInSilence,
        Plant::LeasesRunLate,
        Plant::LeaksWildcards,
        Plant::RepeatGoesToTheTail,
        Plant::RemembersNothing,
        Plant::DetectsNothing,
        Plant::CommandBeforeTheDue,
        Plant::BlamesAnother,
        Plant::Panics,
    ];

    /// Its name on the command line, the (quick) world that shows it, and the promises it breaks.
    /// Every promise is broken by some plant; a test sees to that.
    pub fn facts(self) -> (&'static str, &'static str, &'static [Rule]) {
        match self {
            Plant::WildcardIsText => ("wildcard-is-text", "fields", &[Rule::MutualExclusion]),
            Plant::OwnersAreAlike => ("owners-are-alike", "fields", &[Rule::MutualExclusion]),
            Plant::BargesIn => ("barges-in", "fields", &[Rule::ArrivalOrder]),
            Plant::ForgetsTheSecond => {
                ("forgets-the-second", "fields", &[Rule::NoLostWaiter, Rule::EverybodyGetsATurn])
            }
            Plant::TokensStartAgain => ("tokens-start-again", "fields", &[Rule::TokenOrder]),
            Plant::HoldsAPart => ("holds-a-part", "pairs", &[Rule::AllOrNothing]),
            Plant::KeepsSuperseded => {
                ("keeps-superseded", "promote", &[Rule::MutualExclusion, Rule::PromoteSupersedes])
            }
            Plant::SupersedesInSilence => {
                let broken = &[Rule::PromoteSupersedes, Rule::EveryChangeIsTold];
                ("supersedes-in-silence", "promote", broken)
            }
            Plant::LeasesRunLate => ("leases-run-late", "time", &[Rule::DeadlinesAreKept]),
            Plant::LeaksWildcards => ("leaks-wildcards", "fields", &[Rule::NothingLeft]),
            Plant::RepeatGoesToTheTail => {
                ("repeat-goes-to-the-tail", "time", &[Rule::ArrivalOrder])
            }
            Plant::RemembersNothing => ("remembers-nothing", "ended", &[Rule::EndsAreRemembered]),
            Plant::DetectsNothing => ("detects-nothing", "cycles", &[Rule::NoCycleIsLeft]),
            Plant::CommandBeforeTheDue => ("command-before-the-due", "time", &[Rule::OneStepOrTwo]),
            Plant::BlamesAnother => ("blames-another", "fields", &[Rule::RefusalsAreTrue]),
            Plant::Panics => ("panics", "pairs", &[Rule::OwnInvariants]),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// The plant of this name.
    pub fn named(name: &str) -> Option<Plant> {
        Plant::ALL.into_iter().find(|plant| plant.name() == name)
    }
}

/// What stands for the wildcard when it is taken for text.
const TEXT: &str = "@";

fn with_fields(resource: &Resource, change: impl Fn(Field<'_>) -> Field<'_>) -> Resource {
    let fields: Vec<Field<'_>> = resource.fields().map(change).collect();
    Resource::new(resource.name(), &fields).expect("as sound as it was")
}

/// The request with text in the place of wildcards.
pub(super) fn wildcards_as_text(mut ask: Acquire) -> Acquire {
    let change = |part: &mut Part| {
        part.resource = with_fields(&part.resource, |field| match field {
            Field::Any => Field::Text(TEXT),
            other => other,
        });
    };
    change(&mut ask.part);
    ask.also.iter_mut().for_each(change);
    ask
}

/// The resource as it was before [`wildcards_as_text`].
pub(super) fn wildcards_back(resource: &Resource) -> Resource {
    with_fields(resource, |field| if field == Field::Text(TEXT) { Field::Any } else { field })
}

pub(super) fn has_wildcard(resource: &Resource) -> bool {
    resource.fields().any(|field| field == Field::Any)
}

/// The id of what is left behind; no request of a world has it.
pub(super) fn leaked() -> RequestId {
    RequestId::from_uuid([0xff; 16])
}

/// What is left behind.
pub(super) fn leak() -> Acquire {
    let resource = Resource::plain("left behind").expect("a sound name");
    Acquire { lease_ms: 0, ..Acquire::new(leaked(), resource, Party::client("nobody")) }
}
