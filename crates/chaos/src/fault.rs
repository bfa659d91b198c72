//! What can go wrong, and a plan of it: the same seed gives the same faults in the same order. Who leads when
//! one strikes, and what was under way, is another matter on every run.

use std::fmt;
use std::time::Duration;

use crate::random::Random;

/// Which kind a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `kill -9`, and started again.
    Kill,
    /// All at once, as when the power fails.
    KillAll,
    /// SIGSTOP, and SIGCONT.
    Pause,
    /// Nobody hears one member, and it hears nobody.
    Isolate,
    /// Two members do not hear each other.
    Cut,
    /// One hears the others, and is not heard; or the other way round.
    OneWay,
    /// What one says, and what is said to it, takes its time.
    Slow,
    /// The wall clock of one jumps.
    Clock,
    /// No room on its disk.
    Full,
    /// It comes back without its data, as another member.
    Lost,
    /// Two more members join, and two others leave.
    Resize,
    /// All are stopped and started, one after the other.
    Rolling,
    /// Another one is told to lead.
    Transfer,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 13] = [
        Kind::Kill,
        Kind::KillAll,
        Kind::Pause,
        Kind::Isolate,
        Kind::Cut,
        Kind::OneWay,
        Kind::Slow,
        Kind::Clock,
        Kind::Full,
        Kind::Lost,
        Kind::Resize,
        Kind::Rolling,
        Kind::Transfer,
    ];

    /// Whether it can strike while another one lasts. The others change who is a member, or all members.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Kind::Isolate | Kind::Cut | Kind::OneWay | Kind::Slow | Kind::Pause)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Kill => "kill -9",
            Kind::KillAll => "kill -9 of all",
            Kind::Pause => "SIGSTOP",
            Kind::Isolate => "isolated",
            Kind::Cut => "a link cut",
            Kind::OneWay => "cut one way",
            Kind::Slow => "slow links",
            Kind::Clock => "clock jump",
            Kind::Full => "full disk",
            Kind::Lost => "lost disk",
            Kind::Resize => "members come and go",
            Kind::Rolling => "rolling restart",
            Kind::Transfer => "leader transfer",
        })
    }
}

/// Whom it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Whoever leads then.
    Leader,
    /// The one at this place, as often as there are members.
    At(u64),
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// To whom.
    pub whom: Whom,
    /// How long it lasts.
    pub lasts: Duration,
    /// Another choice that the kind has.
    pub choice: u64,
}

/// One after the other, for ever. Each kind once, in some order, before any of them comes again.
#[derive(Clone, Debug)]
pub struct Plan {
    random: Random,
    deck: Vec<Kind>,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Plan {
        Plan { random: Random(seed), deck: Vec::new() }
    }

    fn fault(&mut self, kind: Kind) -> Fault {
        let random = &mut self.random;
        let whom = if random.percent(50) { Whom::Leader } else { Whom::At(random.bits()) };
        let lasts = Duration::from_millis(random.between(200, 4_000));
        Fault { kind, whom, lasts, choice: random.bits() }
    }
}

impl Iterator for Plan {
    type Item = (Fault, Option<Fault>);

    /// A fault, and sometimes another one that lasts while it strikes.
    fn next(&mut self) -> Option<(Fault, Option<Fault>)> {
        if self.deck.is_empty() {
            self.deck = Kind::ALL.to_vec();
            for at in (1..self.deck.len()).rev() {
                self.deck.swap(at, self.random.below(at as u64 + 1) as usize);
            }
        }
        let kind = self.deck.pop().expect("just filled");
        let fault = self.fault(kind);
        let under = Kind::ALL[self.random.below(Kind::ALL.len() as u64) as usize];
        let both = under.lasts() && under != kind && self.random.percent(50);
        // A member that is cut off cannot be caught up with, nor taken out.
        let alone = matches!(kind, Kind::Lost | Kind::Resize | Kind::Rolling);
        let under = (both && !alone).then(|| self.fault(under));
        Some((fault, under))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_plan_and_each_kind_comes_before_any_comes_again() {
        let shown = |seed| Plan::new(seed).take(26).map(|step| format!("{step:?}"));
        assert!(shown(1).eq(shown(1)));
        assert!(!shown(1).eq(shown(2)));
        let mut kinds: Vec<Kind> = Plan::new(7).take(13).map(|(fault, _)| fault.kind).collect();
        kinds.sort();
        assert_eq!(kinds, Kind::ALL);
        assert!(Plan::new(7).take(100).any(|(_, under)| under.is_some()));
    }
}
