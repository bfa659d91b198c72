//! The quick worlds of the model checker, explored to their end, and every planted fault found.

use keylatch_lab::check::fault::Rule;
use keylatch_lab::check::world::World;
use keylatch_lab::check::{Plant, Size, explore, explore_planted, worlds};

fn quick(name: &str) -> World {
    let known = worlds(Size::Quick).into_iter().find(|world| world.name == name);
    known.unwrap_or_else(|| panic!("no world {name}"))
}

#[test]
fn every_promise_is_kept_in_every_state_of_the_quick_worlds() {
    let mut states = 0;
    for world in worlds(Size::Quick) {
        let outcome = explore(world, 2);
        println!("{outcome}");
        assert!(outcome.good(), "{outcome}");
        states += outcome.states;
    }
    assert!(states > 5_000, "only {states} states: the worlds have become trivial");
}

#[test]
fn every_planted_fault_is_found() {
    for plant in Plant::ALL {
        let (name, world, rules) = plant.facts();
        let outcome = explore_planted(quick(world), plant);
        for rule in rules {
            let broken = outcome.broke(*rule);
            let broken = broken.unwrap_or_else(|| panic!("{name} does not break {rule:?}"));
            assert!(!broken.steps.is_empty());
        }
    }
}

#[test]
fn every_promise_is_broken_by_some_plant() {
    for rule in Rule::ALL {
        let breaks = |plant: &Plant| plant.facts().2.contains(&rule);
        assert!(Plant::ALL.iter().any(breaks), "nothing shows that {rule:?} is checked at all");
    }
}

#[test]
fn the_full_worlds_have_what_was_asked_for() {
    let worlds = worlds(Size::Full);
    let fields = worlds.iter().find(|world| world.name == "fields").unwrap();
    let mut owners: Vec<&str> = fields.slots.iter().filter_map(|s| s.explicit_owner()).collect();
    owners.dedup();
    assert!(owners.len() >= 3);
    let wild: Vec<String> = fields.areas.iter().map(|area| area.resource.to_string()).collect();
    assert!(["r(A,@)", "r(@,B)", "r(@,@)"].iter().all(|area| wild.iter().any(|w| w == area)));
    assert!(worlds.iter().any(|world| world.verbs.promotes));
    assert!(worlds.iter().any(|world| !world.verbs.ticks.is_empty()));
    assert!(worlds.iter().any(|world| world.settings.ended > 0));
    assert!(worlds.iter().any(|world| world.parking));
}
