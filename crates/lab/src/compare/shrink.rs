//! Delta debugging: leaves out chunks of a failing script, then smaller ones, as long as what is
//! left still fails in some way. Commands name tokens and versions as plain numbers, so a chunk that
//! cannot be left out may still be replaced by a floor that makes later tokens what they were.

use keylatch_table::Command;

use super::{Difference, Start, Step};
use crate::model::Model;

/// Enough to shorten scripts of thousands of steps; a bound, because a replay can be slow.
const ATTEMPTS: usize = 3_000;

/// The shortest script found for which `fails` still gives a difference, and that difference.
pub(super) fn shorten(
    mut script: Vec<Step>,
    mut found: Difference,
    start: &Start,
    fails: impl Fn(&[Step]) -> Option<Difference>,
) -> (Vec<Step>, Difference) {
    script.truncate(found.step + 1);
    let mut attempts = 0;
    let mut chunk = script.len().div_ceil(2).max(1);
    loop {
        let mut shorter = false;
        let mut from = 0;
        while from < script.len() && attempts < ATTEMPTS {
            let to = (from + chunk).min(script.len());
            let without = [&script[..from], &script[to..]].concat();
            let mut candidates =
                std::iter::once(without).chain(with_floor(&script, from, to, start));
            let failing = candidates.find_map(|left| {
                attempts += 1;
                Some((fails(&left)?, left))
            });
            if let Some((difference, left)) = failing {
                script = left;
                script.truncate(difference.step + 1);
                found = difference;
                shorter = true;
            } else {
                from = to;
            }
        }
        if (chunk == 1 && !shorter) || attempts >= ATTEMPTS {
            return (script, found);
        }
        chunk = (chunk / 2).max(1);
    }
}

/// The script with a floor under later tokens instead of the steps `from..to`.
fn with_floor(script: &[Step], from: usize, to: usize, start: &Start) -> Option<Vec<Step>> {
    let mut model = Model::new(start.settings.clone(), start.token);
    let mut before = model.token;
    for (at, step) in script[..to].iter().enumerate() {
        if at == from {
            before = model.token;
        }
        if let Step::Apply(at, command) = step {
            model.apply(*at, command);
        }
    }
    let is_floor = matches!(&script[from..to], [Step::Apply(_, Command::TokenFloor(_))]);
    (model.token > before && !is_floor).then(|| {
        let floor = Step::Apply(0, Command::TokenFloor(model.token));
        [&script[..from], &[floor], &script[to..]].concat()
    })
}

#[cfg(test)]
mod tests {
    use keylatch_table::Settings;

    use super::*;

    #[test]
    fn only_the_steps_that_matter_are_left() {
        let script = (0..500).map(Step::Look).collect::<Vec<_>>();
        let times = |script: &[Step]| {
            let time = |step: &Step| if let Step::Look(at) = step { *at } else { 0 };
            script.iter().map(time).collect::<Vec<_>>()
        };
        let fails = |script: &[Step]| {
            let times = times(script);
            let last = times.iter().position(|at| *at == 400)?;
            let matters = times[..last].contains(&7) && times[..last].contains(&123);
            matters.then(|| Difference { step: last, text: String::new() })
        };
        let found = fails(&script).unwrap();
        let start = Start { settings: Settings::default(), token: 0 };
        assert_eq!(times(&shorten(script, found, &start, fails).0), [7, 123, 400]);
    }
}
