//! What is promised, one name a promise, and which promises a step has broken. The names are those
//! of the properties that the run prints; the numbers beside them are those of `keylatch_table`'s
//! own list of invariants, where there is one.

use std::fmt;
use std::sync::Arc;

/// A promise that every step keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Rule {
    /// L1: no two holders conflict.
    MutualExclusion,
    /// T1, L3: every grant has a larger token than all before it.
    TokenOrder,
    /// T3: nobody is granted past an earlier waiter in conflict, but for the one exception.
    ArrivalOrder,
    /// L4: no waiter is free.
    NoLostWaiter,
    /// L2: a request holds all of its resources or waits for all of them.
    AllOrNothing,
    /// L5: what has ended leaves nothing.
    NothingLeft,
    /// The reply and the events tell everything that changed, and nothing else.
    EveryChangeIsTold,
    /// Promote supersedes exactly the overlapping O, tells them, and is refused exactly if a
    /// holder other than O is in conflict.
    PromoteSupersedes,
    /// T2: leases, waits and graces end at their time, neither sooner nor later.
    DeadlinesAreKept,
    /// A free request is not refused, and a refusal names the blocker.
    RefusalsAreTrue,
    /// L6: an ended id is answered as what it was, for as long as it is remembered.
    EndsAreRemembered,
    /// No cycle of participating owners is left, and only those on one are refused for it.
    NoCycleIsLeft,
    /// A command that finds something due does the same as a tick and then the command.
    OneStepOrTwo,
    /// If every holder releases, and again, all who wait get their turn and the table is empty; a
    /// table restored from a snapshot does so in the same order.
    EverybodyGetsATurn,
    /// The table's own check of its invariants passes, and it does not panic.
    OwnInvariants,
}

impl Rule {
    /// All of them, in the order of their bits.
    pub const ALL: [Rule; 15] = [
        Rule::MutualExclusion,
        Rule::TokenOrder,
        Rule::ArrivalOrder,
        Rule::NoLostWaiter,
        Rule::AllOrNothing,
        Rule::NothingLeft,
        Rule::EveryChangeIsTold,
        Rule::PromoteSupersedes,
        Rule::DeadlinesAreKept,
        Rule::RefusalsAreTrue,
        Rule::EndsAreRemembered,
        Rule::NoCycleIsLeft,
        Rule::OneStepOrTwo,
        Rule::EverybodyGetsATurn,
        Rule::OwnInvariants,
    ];

    /// The property's name.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::MutualExclusion => "mutual exclusion",
            Rule::TokenOrder => "token order",
            Rule::ArrivalOrder => "arrival order",
            Rule::NoLostWaiter => "no lost waiter",
            Rule::AllOrNothing => "all or nothing",
            Rule::NothingLeft => "nothing left behind",
            Rule::EveryChangeIsTold => "every change is told",
            Rule::PromoteSupersedes => "promote supersedes",
            Rule::DeadlinesAreKept => "deadlines are kept",
            Rule::RefusalsAreTrue => "refusals are true",
            Rule::EndsAreRemembered => "ends are remembered",
            Rule::NoCycleIsLeft => "no cycle is left",
            Rule::OneStepOrTwo => "one step or two",
            Rule::EverybodyGetsATurn => "everybody gets a turn",
            Rule::OwnInvariants => "own invariants",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// The promises that a step has broken. Nearly always none, so the words are made only then.
#[derive(Clone, Default)]
pub struct Faults {
    broken: u16,
    words: Option<Arc<Vec<String>>>,
}

impl Faults {
    /// Notes a broken promise, with what was seen.
    pub fn add(&mut self, rule: Rule, words: impl fmt::Display) {
        self.broken |= rule.bit();
        let list = Arc::make_mut(self.words.get_or_insert_default());
        list.push(format!("{}: {words}", rule.name()));
    }

    /// Notes it unless `kept`.
    pub fn expect(&mut self, kept: bool, rule: Rule, words: impl FnOnce() -> String) {
        if !kept {
            self.add(rule, words());
        }
    }

    /// Whether this promise is broken.
    pub fn broke(&self, rule: Rule) -> bool {
        self.broken & rule.bit() != 0
    }

    /// Whether none is.
    pub fn none(&self) -> bool {
        self.broken == 0
    }

    /// As a number, for a state's key.
    pub fn bits(&self) -> u16 {
        self.broken
    }

    /// What was seen.
    pub fn words(&self) -> &[String] {
        self.words.as_deref().map_or(&[], Vec::as_slice)
    }
}
