//! The table against the model: every reply, every event and everything that can be read, over
//! random scripts. `KEYLATCH_SEEDS=from..to` and `KEYLATCH_STEPS` make it longer.

use keylatch_lab::{
    compare::{Subject, run},
    generate::Profile,
};
use keylatch_table::{Answer, Applied, Command, Query, Settings, Table};

/// A table that comes back from each restart with another hash seed.
struct Restarting {
    table: Table,
    hash_seed: u64,
}

impl Restarting {
    fn new(settings: Settings, token: u64) -> Restarting {
        Restarting { table: Table::new(settings, token, 1), hash_seed: 1 }
    }
}

impl Subject for Restarting {
    fn apply(&mut self, at: u64, command: Command) -> Applied {
        self.table.apply(at, command)
    }

    fn query(&self, at: u64, query: &Query) -> Answer {
        self.table.query(at, query)
    }

    fn restart(&mut self) {
        self.hash_seed += 1;
        let before = self.table.state_hash();
        self.table = Table::restore(&self.table.snapshot(), self.hash_seed).expect("its own bytes");
        assert_eq!(self.table.state_hash(), before, "a restart changed the state");
    }

    fn check(&self) {
        self.table.check();
    }
}

fn from_environment() -> (std::ops::Range<u64>, usize) {
    let seeds = std::env::var("KEYLATCH_SEEDS").unwrap_or_else(|_| "0..20".into());
    let (from, to) = seeds.split_once("..").expect("KEYLATCH_SEEDS is from..to");
    let number = |text: &str| text.parse().expect("KEYLATCH_SEEDS has numbers");
    let steps = std::env::var("KEYLATCH_STEPS").unwrap_or_else(|_| "600".into());
    (number(from)..number(to), steps.parse().expect("KEYLATCH_STEPS is a number"))
}

fn agrees(profile: Profile) {
    let (seeds, steps) = from_environment();
    for seed in seeds {
        if let Err(failure) = run(seed, profile, steps, Restarting::new) {
            panic!("{failure}");
        }
    }
}

macro_rules! agrees {
    ($($name:ident: $profile:ident,)*) => {
        $(#[test]
        fn $name() {
            agrees(Profile::$profile);
        })*
    };
}

agrees! {
    agrees_on_some_of_everything: Mixed,
    agrees_on_wildcards: Wildcards,
    agrees_on_deadlocks: Deadlocks,
    agrees_on_a_hot_key: HotKey,
    agrees_on_promotions: Optimistic,
    agrees_on_keys_with_values: Keys,
    agrees_on_detached_waiters: Detached,
    agrees_on_bounds: Bounds,
    agrees_on_tasks: Tasks,
}
