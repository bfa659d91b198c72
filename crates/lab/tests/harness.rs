//! The comparison itself: a model agrees with itself, and every planted mistake is found.

use keylatch_lab::{
    compare::run,
    generate::Profile,
    model::{Bug, Model},
};

/// Enough for every planted mistake to show in one of the profiles.
const SEEDS: u64 = 12;
const STEPS: usize = 400;

#[test]
fn a_model_agrees_with_itself_in_every_profile() {
    for profile in Profile::ALL {
        for seed in 0..4 {
            if let Err(failure) = run(seed, profile, STEPS, Model::new) {
                panic!("{failure}");
            }
        }
    }
}

#[test]
fn every_planted_mistake_is_found_and_shown_in_few_steps() {
    for bug in Bug::ALL {
        let mut seeds = (0..SEEDS).flat_map(|seed| Profile::ALL.map(|profile| (seed, profile)));
        let found = seeds.find_map(|(seed, profile)| {
            let planted = |settings, token| Model::new(settings, token).with_bug(bug);
            run(seed, profile, STEPS, planted).err()
        });
        let failure = found.unwrap_or_else(|| panic!("{bug:?} was not noticed"));
        assert!(failure.script.len() <= 12, "{bug:?}: {failure}");
        println!("{bug:?}: {failure}\n");
    }
}
