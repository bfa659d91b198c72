//! A lock where nobody else stands, which is what most locks are: what comes of it is known without a board.

use crate::{Acquire, Counters, Grant, RequestId, Standing, StandingPart, Table};

use super::acquire::lease_end;
use crate::board::deadlines::NEVER;

impl Table {
    /// How a request stands that is granted here, and its grant: what [`Table::apply`] would leave and say on
    /// a table that goes on from these counters. Nothing unless this table is empty and the request is granted as
    /// simply as that; then it has to be applied.
    pub fn alone(&self, counters: Counters, ask: &Acquire) -> Option<(Standing, Grant)> {
        let simple = ask.also.is_empty() && ask.extra.is_none() && !ask.detect;
        if !simple || self.board.after(0).next().is_some() {
            return None;
        }
        self.admit_id(&ask.id).and_then(|()| self.admit_content(ask)).ok()?;
        let Counters { now, token, seq } = counters;
        let (token, seq) = (token + 1, seq + 1);
        let deadline = lease_end(now, ask.lease_ms, now, 0);
        let deadline = (deadline != NEVER).then_some(deadline);
        let part = &ask.part;
        let parts = vec![StandingPart {
            resource: part.resource.clone(),
            mode: part.mode,
            asked: part.mode,
        }];
        let standing = Standing {
            id: ask.id.clone(),
            seq,
            token,
            since: now,
            deadline,
            waited_ms: 0,
            lease_ms: ask.lease_ms,
            party: ask.party.clone(),
            detect: false,
            detached: false,
            parts,
            extra: crate::Extras::default(),
            wait_ms: 0,
            wait: None,
        };
        let lease_ms = deadline.map(|deadline| deadline - now);
        Some((standing, Grant { token, lease_ms, waited_ms: 0 }))
    }
}

/// A request that holds where nobody else stands, as far as its release is concerned.
#[derive(Clone, Debug)]
pub struct Alone {
    /// Who holds.
    pub id: RequestId,
    /// When its lease ends, if it does.
    pub deadline: Option<u64>,
}

impl Alone {
    /// Whether a release by this id, as of then, is what ends it: [`Table::apply`] would say
    /// [`Reply::Released`](crate::Reply::Released), and leave nobody.
    pub fn is_released_by(&self, id: &RequestId, now: u64) -> bool {
        self.id == *id && self.deadline.is_none_or(|deadline| now < deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Mode, Part, Party, Reply, Resource, Settings, Target};

    fn ask(name: &str, party: Party) -> Acquire {
        Acquire::new(RequestId::new("a"), Resource::plain(name).unwrap(), party)
    }

    /// What is said beforehand, and what a table then does.
    fn both(ask: &Acquire, now: u64) -> [Option<(Standing, Grant)>; 2] {
        let settings = Settings { name_bytes: 8, lease_ms: 60_000, ..Settings::default() };
        let counters = Counters { now, token: 70, seq: 7 };
        let mut table = Table::from_standings(settings, counters, 0, []).unwrap();
        let said = table.alone(counters, ask);
        let done = match table.apply(now, Command::Acquire(ask.clone())).reply {
            Reply::Granted(grant) => table.standings().next().map(|standing| (standing, grant)),
            _ => None,
        };
        if done.is_some() {
            assert_eq!(table.alone(counters, ask), None, "somebody stands there");
        }
        [said, done]
    }

    #[test]
    fn what_is_said_is_what_happens() {
        for mode in Mode::ALL {
            for (lease_ms, wait_ms) in [(0, 0), (1, 5), (30_000, 0), (60_000, 1_000), (60_001, 0)] {
                for party in [Party::client("c"), Party::owner("o"), Party::owner("")] {
                    let mut ask = ask("a:b", party);
                    (ask.part.mode, ask.lease_ms, ask.wait_ms) = (mode, lease_ms, wait_ms);
                    for now in [0, 1_000_000] {
                        let [said, done] = both(&ask, now);
                        assert_eq!(said, done, "{ask:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_said_of_a_release_is_what_happens() {
        let settings = Settings::default();
        for lease_ms in [0, 1, 1_000] {
            for (now, id) in [(5, "a"), (6, "a"), (1_004, "a"), (1_005, "a"), (6, "b")] {
                let mut ask = ask("k", Party::client("c"));
                ask.lease_ms = lease_ms;
                let counters = Counters { now: 5, token: 70, seq: 7 };
                let mut table = Table::from_standings(settings.clone(), counters, 0, []).unwrap();
                let (standing, _) = table.alone(counters, &ask).unwrap();
                let alone = Alone { id: standing.id, deadline: standing.deadline };
                table.apply(5, Command::Acquire(ask));
                let id = RequestId::new(id);
                let said = alone.is_released_by(&id, now);
                let release = Command::Release(Target::Id(id));
                let done = table.apply(now, release).reply == Reply::Released;
                assert_eq!(said, done, "{lease_ms} {now}");
                assert!(!done || table.standings().next().is_none());
            }
        }
    }

    #[test]
    fn what_is_refused_or_less_simple_is_not_said() {
        let [said, done] = both(&ask("name-is-long", Party::client("c")), 0);
        assert_eq!((said, done), (None, None));
        let mut several = ask("a", Party::client("c"));
        several.also.push(Part::new(Resource::plain("b").unwrap(), Mode::Shared));
        let mut detects = ask("a", Party::owner("o"));
        detects.detect = true;
        let mut more = ask("a", Party::client("c"));
        more.extra = crate::Extra { max_hold_ms: 5, ..crate::Extra::default() }.into();
        for ask in [several, detects, more] {
            let [said, done] = both(&ask, 0);
            assert!(said.is_none() && done.is_some(), "{ask:?}");
        }
    }
}
