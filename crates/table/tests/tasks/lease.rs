//! Leases of claims.

use crate::common::Scene;
use crate::common::tasks::{any, new_task};
use keylatch_table::{Claim, Create, TaskState};

#[test]
fn a_claim_lapses_exactly_when_its_lease_ends() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.claim_as("w", Claim { lease_ms: 500, ..any("w") });
    assert_eq!(scene.table.next_deadline(), Some(1_500));
    scene.at(1_499).tick();
    assert!(scene.events().is_empty());
    scene.at(1_500).tick();
    assert_eq!(scene.events(), ["pool: lapsed w t token 2"]);
    assert_eq!((scene.counts().ready, scene.counts().claimed), (1, 0));
    assert_eq!(scene.table.next_deadline(), None);
    // The new claim is another, with a token of its own.
    assert_eq!(scene.claim("v"), "claimed t version 3 token 3 attempts 0 lease 60000 waited 0");
}

#[test]
fn leases_and_delays_come_in_the_order_of_their_times() {
    let mut scene = Scene::new();
    for key in ["a", "b", "c"] {
        scene.create(key);
    }
    for (worker, lease_ms) in [("wa", 300), ("wb", 100), ("wc", 100)] {
        scene.claim_as(worker, Claim { lease_ms, ..any(worker) });
    }
    scene.at(5_000).tick();
    assert_eq!(
        scene.events(),
        ["pool: lapsed wb b token 5", "pool: lapsed wc c token 6", "pool: lapsed wa a token 4"]
    );
}

#[test]
fn a_lapsed_task_goes_to_a_waiting_claim_in_the_same_step() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.claim_as("w", Claim { lease_ms: 500, ..any("w") });
    scene.claim_wait("v", 9_000);
    scene.at(1_600).tick();
    assert_eq!(
        scene.events(),
        [
            "pool: lapsed w t token 2",
            "pool: claimed by v t version 3 token 3 attempts 0 lease 60000 waited 600",
        ]
    );
}

#[test]
fn a_lapse_is_told_once() {
    let mut scene = Scene::new();
    scene.create("t");
    scene.claim_as("w", Claim { lease_ms: 500, ..any("w") });
    scene.at(1_500).tick();
    scene.at(3_000).tick();
    assert!(scene.events().is_empty());
    // Taken up again, it can lapse again; the token is still that of the claim.
    scene.update("t", 2);
    scene.at(3_500).tick();
    assert_eq!(scene.events(), ["pool: lapsed w t token 2"]);
    assert_eq!(scene.entry("t").version, 3);
}

#[test]
fn finishing_and_putting_back_end_the_lease() {
    let mut scene = Scene::new();
    scene.create("a");
    scene.create_as(Create { priority: -1, ..new_task("b") });
    scene.claim_as("wa", Claim { lease_ms: 500, ..any("wa") });
    scene.claim_as("wb", Claim { lease_ms: 500, ..any("wb") });
    scene.finish("a", 3);
    scene.put_back("b", 4);
    scene.at(5_000).tick();
    assert!(scene.events().is_empty());
    assert_eq!(
        (scene.entry("a").state, scene.entry("b").state),
        (TaskState::Done, TaskState::Free)
    );
}
