//! Claims that wait.

use std::time::Duration;

use keylatch_table::{Claim, Create, TaskAction, TaskReply, TaskState};
use tokio::task::JoinHandle;

use super::super::super::contract::Ground;
use super::{LONG_MS, POOL, Side, any, back, claimed, command, eventually, named, new, waiting};

impl Side {
    /// A claim that has begun to wait.
    async fn waits(&self, id: &str, claim: Claim) -> JoinHandle<TaskReply> {
        let before = self.how_many_wait().await;
        let outcome = self.0.task(command(id, waiting(claim)));
        let waits = tokio::spawn(async move { outcome.await.unwrap() });
        eventually(async || self.how_many_wait().await > before || waits.is_finished()).await;
        waits
    }

    async fn how_many_wait(&self) -> u64 {
        let counts = self.0.pools(Some(POOL)).await.unwrap();
        counts.first().map_or(0, |counts| counts.waiting)
    }
}

pub(crate) async fn a_claim_waits_for_a_task(ground: &impl Ground) {
    let (ann, bob) = (Side::open(ground).await, Side::open(ground).await);
    for round in 0..3 {
        let waits = ann.waits(&format!("{round}"), any()).await;
        bob.create(&format!("{round}")).await;
        let got = claimed(waits.await.unwrap());
        assert_eq!(*got.key, *format!("{round}"));
        // Put back, it is for whoever waits then.
        let waits = bob.waits(&format!("bob {round}"), any()).await;
        ann.say(&format!("back {round}"), back(&got, 0)).await;
        let got = claimed(waits.await.unwrap());
        assert_eq!(got.attempts, 1);
        bob.finish(&got).await;
    }
}

pub(crate) async fn a_claim_waits_for_a_time(ground: &impl Ground) {
    let (ann, bob) = (Side::open(ground).await, Side::open(ground).await);
    // A delay.
    let create = Create { delay_ms: ground.life_ms(), ..new("later") };
    bob.say("create", TaskAction::Create(create)).await;
    let got = claimed(ann.say("delay", waiting(any())).await);
    assert_eq!(&*got.key, "later");
    ann.say("end", back(&got, LONG_MS)).await;
    // The end of somebody's lease, which began before the wait or after it.
    bob.create("a").await;
    let short = Claim { lease_ms: ground.life_ms(), ..any() };
    let held = claimed(bob.say("bob", TaskAction::Claim(short.clone())).await);
    let got = claimed(ann.say("lease", waiting(any())).await);
    assert!(got.version > held.version);
    let waits = bob.waits("bob waits", any()).await;
    let shorter = TaskAction::Update(super::at(&got), None, Some(ground.life_ms()));
    ann.say("shorter", shorter).await;
    assert_eq!(&*claimed(waits.await.unwrap()).key, "a");
}

pub(crate) async fn a_claim_waits_for_a_key(ground: &impl Ground) {
    let (ann, bob) = (Side::open(ground).await, Side::open(ground).await);
    let waits = ann.waits("b", named("b")).await;
    bob.create("a").await;
    let b = bob.create("b").await;
    let got = claimed(waits.await.unwrap());
    assert_eq!(&*got.key, "b");
    assert!(got.version > b);
    // That one, and no other.
    let waits = bob.waits("b again", named("b")).await;
    ann.finish(&got).await;
    assert_eq!(waits.await.unwrap(), TaskReply::Refused(TaskState::Done));
    assert_eq!(ann.state("a").await, Some(TaskState::Free));
    let first = claimed(bob.say("a", waiting(named("a"))).await);
    let waits = ann.waits("a again", named("a")).await;
    bob.say("back", back(&first, 0)).await;
    assert_eq!(&*claimed(waits.await.unwrap()).key, "a");
}

pub(crate) async fn a_wait_ends(ground: &impl Ground) {
    let side = Side::open(ground).await;
    let short = |key: Option<&str>| {
        let key = key.map(Into::into);
        TaskAction::Claim(Claim { key, wait_ms: 200, ..any() })
    };
    for key in [None, Some("a")] {
        assert_eq!(side.say(&format!("{key:?}"), short(key)).await, TaskReply::Nothing);
        eventually(async || side.how_many_wait().await == 0).await;
    }
    // A repeat with no wait leaves, and both are told.
    let waits = side.waits("twice", any()).await;
    assert_eq!(side.claim("twice").await, TaskReply::Nothing);
    assert_eq!(waits.await.unwrap(), TaskReply::Nothing);
    // A repeat that waits gets the same outcome.
    let waits = side.waits("both", any()).await;
    let again = side.0.task(command("both", waiting(any())));
    side.create("for both").await;
    let first = claimed(waits.await.unwrap());
    assert_eq!(claimed(again.await.unwrap()).version, first.version);
}

/// Who waits in one process does so in a line; of processes nothing is promised.
pub(crate) async fn those_who_wait_here_are_served_in_order(ground: &impl Ground) {
    let (ann, bob) = (Side::open(ground).await, Side::open(ground).await);
    let first = ann.waits("first", any()).await;
    // Its first look is over, so it stands in the line.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut others = Vec::new();
    for number in 0..4 {
        others.push(ann.waits(&format!("{number}"), any()).await);
    }
    for key in ["a", "b", "c", "d", "e"] {
        bob.create(key).await;
    }
    let mut versions = vec![claimed(first.await.unwrap()).key];
    for other in others {
        versions.push(claimed(other.await.unwrap()).key);
    }
    versions.sort_unstable();
    assert_eq!(versions.iter().map(|key| &**key).collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
}

pub(crate) async fn a_cancelled_claim_holds_nothing(ground: &impl Ground) {
    let (ann, bob) = (Side::open(ground).await, Side::open(ground).await);
    let waits = ann.waits("idle", any()).await;
    assert_eq!(ann.say("idle", TaskAction::Cancel).await, TaskReply::Cancelled(true));
    assert_eq!(waits.await.unwrap(), TaskReply::Cancelled(true));
    assert_eq!(ann.say("idle", TaskAction::Cancel).await, TaskReply::Cancelled(false));
    // At any moment of a claim, also when it has just taken something.
    for round in 0..20 {
        let key = format!("{round}");
        bob.create(&key).await;
        let outcome = ann.0.task(command(&key, waiting(any())));
        tokio::time::sleep(Duration::from_micros(u64::from(rand::random::<u16>() % 4_000))).await;
        let cancelled = ann.say(&key, TaskAction::Cancel).await;
        match outcome.await.unwrap() {
            TaskReply::Claimed(got) => {
                assert_eq!(cancelled, TaskReply::Cancelled(false));
                ann.finish(&got).await;
            }
            TaskReply::Cancelled(true) => {
                let got = claimed(bob.say(&format!("after {key}"), waiting(any())).await);
                bob.finish(&got).await;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bob.0.pools(Some(POOL)).await.unwrap()[0].done, 20);
}
