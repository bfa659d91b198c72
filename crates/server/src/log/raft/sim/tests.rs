//! Worlds that must end well, and worlds with a planted mistake, which must not.

use super::judge::Counts;
use super::run::run;
use super::world::Plant;

/// Which seeds: one, or so many, or from one to another (`300..600`), or the few of every day.
fn seeds() -> std::ops::Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let said = |name: &str| std::env::var(name).ok();
    if let Some(seed) = said("KEYLATCH_SEED") {
        return number(&seed)..number(&seed) + 1;
    }
    let Some(seeds) = said("KEYLATCH_SEEDS") else { return 0..15 };
    match seeds.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&seeds),
    }
}

#[test]
fn a_cluster_keeps_its_promises_whatever_happens() {
    let (mut all, mut wrong) = (Counts::default(), Vec::new());
    for seed in seeds() {
        let ended = run(seed, Plant::Nothing);
        let (sum, lines) = ended.sum;
        println!("seed {seed}: trace {sum:016x} of {lines} lines, {} ms", ended.ms);
        println!("    {:?}", ended.counts);
        all.add(&ended.counts);
        if let Some(what) = ended.wrong {
            println!("    WRONG: {what}");
            wrong.push(seed);
        }
    }
    println!("together: {all:?}");
    assert!(
        wrong.is_empty(),
        "seeds {wrong:?} end badly. Each is the same again, with all that happens: \
         KEYLATCH_SEED=N KEYLATCH_TRACE=1 cargo test -p keylatch-server --lib a_cluster_keeps -- --nocapture"
    );
    let few = all.waited.min(all.reads).min(all.installed).min(all.repeated).min(all.no_leader);
    assert!(seeds().count() < 20 || few.min(all.detached) > 5, "too little happens: {all:?}");
}

#[test]
fn a_seed_gives_the_same_trace_again() {
    for seed in 100..102 {
        let (one, other) = (run(seed, Plant::Nothing), run(seed, Plant::Nothing));
        assert_eq!(one.sum, other.sum, "seed {seed}");
        assert!(one.sum.1 > 500, "seed {seed}: nothing happens");
    }
}

/// A planted mistake is found in one of the first worlds.
fn is_found(plant: Plant) {
    for seed in 0..200 {
        if let Some(wrong) = run(seed, plant).wrong {
            println!("{plant:?} is found by seed {seed}: {wrong}");
            return;
        }
    }
    panic!("nobody notices {plant:?}");
}

#[test]
fn disks_that_lie_are_found() {
    is_found(Plant::LyingDisks);
}

#[test]
fn entries_that_count_before_the_leader_has_synced_them_are_found() {
    is_found(Plant::UnsyncedEntries);
}

#[test]
fn votes_that_are_forgotten_are_found() {
    is_found(Plant::ForgottenVotes);
}

#[test]
fn entries_that_count_as_stored_and_are_not_are_found() {
    is_found(Plant::UnheardEntries);
}

#[test]
fn batches_that_count_twice_are_found() {
    is_found(Plant::TwiceCounted);
}

#[test]
fn leaders_that_charge_the_time_without_one_are_found() {
    is_found(Plant::OwnTime);
}

#[test]
fn answers_from_the_past_are_found() {
    is_found(Plant::StaleReads);
}

#[test]
fn snapshots_that_forget_who_waits_are_found() {
    is_found(Plant::ForgetfulSnapshots);
}
