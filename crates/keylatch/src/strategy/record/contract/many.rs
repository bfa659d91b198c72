//! Several at once.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::super::store::{Committed, Expect, Landed, Plain, Store, Write};
use super::{
    Ground, and_append, change, commit, done, land, one, put, read, removing, seqs, take, version,
};

/// Half of them on each of two connections.
async fn two(ground: &impl Ground) -> impl Fn(usize) -> Arc<dyn Store> {
    let both = [ground.open().await, ground.open().await];
    move |number| Arc::clone(&both[number % 2])
}

pub(crate) async fn one_of_many_wins(ground: &impl Ground) {
    let store = two(ground).await;
    let mut version =
        done(&*store(0), change([("k", one(Expect::Absent, put("0")))])).await.version;
    for _ in 0..10 {
        let mut all = JoinSet::new();
        for number in 0..32 {
            let (store, expect) = (store(number), Expect::Version(version));
            all.spawn(async move {
                let ask = change([("k", one(expect, put(number.to_string())))]);
                (number, commit(&*store, ask).await)
            });
        }
        let mut won = Vec::new();
        for (number, committed) in all.join_all().await {
            match committed {
                Committed::Done(done) => won.push((number, done.version)),
                Committed::Mismatch(view) => {
                    let head = view.names["k"].head.as_ref().unwrap();
                    assert_ne!(head.version, version, "refused although nothing had changed");
                }
            }
        }
        let [(number, next)] = won[..] else { panic!("{won:?} have won") };
        let head = read(&*store(0), "k").await.head.unwrap();
        assert_eq!((head.version, head.bytes), (next, number.to_string().into_bytes()));
        version = next;
    }
}

/// Idle locks that are taken and left at the same time may go to the store together, but what comes of one is its
/// own: others' names, numbers and refusals are not mixed up with it.
pub(crate) async fn idle_locks_side_by_side(ground: &impl Ground) {
    const NAMES: usize = 40;
    let store = ground.open().await;
    // Submitted when it is called, so all of them are under way at once.
    let take = |at: usize| land(&*store, &format!("n{at}"), take(&format!("n{at}")));
    let leave = |at: usize, version| land(&*store, &format!("n{at}"), Plain::Leave(version));
    // Each name twice: one of the two is refused, and told of the other.
    let taken = (0..2 * NAMES).map(|at| {
        let take = take(at % NAMES);
        async move { (at % NAMES, take.await) }
    });
    let taken: JoinSet<_> = taken.collect();
    let (mut versions, mut refused) = (vec![0; NAMES], vec![0; NAMES]);
    for (at, came) in taken.join_all().await {
        match came.unwrap() {
            Landed::Left { .. } => panic!("nobody leaves"),
            Landed::Took { version, .. } => {
                assert_eq!(std::mem::replace(&mut versions[at], version), 0, "taken twice");
            }
            Landed::Otherwise(view) => {
                let head = view.names[&*format!("n{at}")].head.as_ref().unwrap();
                assert_eq!(head.bytes, format!("n{at}").into_bytes());
                refused[at] = head.version;
            }
        }
    }
    assert_eq!(versions, refused);
    let mut numbers = versions.clone();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), NAMES, "no number is given twice");
    // Every third is left by somebody who knows another version, and stays.
    let left = (0..NAMES).map(|at| {
        let leave = leave(at, versions[at] + u64::from(at % 3 == 0));
        async move { (at, leave.await) }
    });
    let left: JoinSet<_> = left.collect();
    for (at, came) in left.join_all().await {
        assert_eq!(matches!(came.unwrap(), Landed::Otherwise(_)), at % 3 == 0, "n{at}");
        let stays = (at % 3 == 0).then_some(versions[at]);
        assert_eq!(version(&*store, &format!("n{at}")).await, stays);
    }
}

/// Each adds one to three of four names, in every combination: nothing is lost, nobody is stuck.
pub(crate) async fn changes_that_cross_all_get_done(ground: &impl Ground) {
    const ROUNDS: u32 = 10;
    let store = two(ground).await;
    let names = ["a", "b", "c", "d"];
    done(&*store(0), change(names.map(|text| (text, one(Expect::Absent, put("0")))))).await;
    let mut all = JoinSet::new();
    for left_out in 0..names.len() {
        for twice in 0..2 {
            let store = store(left_out + twice);
            let mine: Vec<_> = (1..4).map(|step| names[(left_out + step) % 4]).collect();
            all.spawn(async move {
                let mut versions = Vec::new();
                for _ in 0..ROUNDS {
                    versions.push(add_one(&*store, &mine).await);
                }
                versions
            });
        }
    }
    let mut versions: Vec<u64> = all.join_all().await.concat();
    for text in names {
        let head = read(&*store(1), text).await.head.unwrap();
        // Two of each three of the four.
        assert_eq!(String::from_utf8(head.bytes).unwrap(), (6 * ROUNDS).to_string());
    }
    let count = versions.len();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), count, "no number is given twice");
}

async fn add_one(store: &dyn Store, names: &[&str]) -> u64 {
    let view = store.read(names.iter().map(|text| (*text).into()).collect());
    let mut view = view.await.unwrap();
    loop {
        let ask = names.iter().map(|text| {
            let head = view.names[*text].head.as_ref().unwrap();
            let count: u32 = std::str::from_utf8(&head.bytes).unwrap().parse().unwrap();
            (*text, one(Expect::Version(head.version), put((count + 1).to_string())))
        });
        match commit(store, change(ask)).await {
            Committed::Done(done) => return done.version,
            // As it is now: enough to try again at once.
            Committed::Mismatch(now) => view = now,
        }
    }
}

pub(crate) async fn appends_do_not_conflict(ground: &impl Ground) {
    let store = two(ground).await;
    let head = done(&*store(0), change([("k", one(Expect::Absent, put("0")))])).await.version;
    let mut all = JoinSet::new();
    for number in 0..64 {
        let store = store(number);
        all.spawn(async move {
            let keep = one(Expect::Version(head), Write::Keep);
            let ask = and_append(change([("k", keep)]), &number.to_string(), &["k"]);
            let done = done(&*store, ask.clone()).await;
            (ask.seq_of(done.version, 0), number)
        });
    }
    let mut come = all.join_all().await;
    come.sort_unstable();
    let seqs = seqs(&*store(1), "k").await;
    assert_eq!(seqs, come.iter().map(|(seq, _)| *seq).collect::<Vec<_>>());
    // Each can be removed once, whoever else tries.
    let mut all = JoinSet::new();
    for (number, (seq, who)) in come.iter().flat_map(|one| [*one, *one]).enumerate() {
        let store = store(number);
        all.spawn(async move {
            let who = who.to_string();
            let gone = removing(Expect::There, Write::Keep, [(&who[..], seq)]);
            matches!(commit(&*store, change([("k", gone)])).await, Committed::Done(_))
        });
    }
    let removed = all.join_all().await.into_iter().filter(|done| *done).count();
    assert_eq!(removed, come.len());
}
