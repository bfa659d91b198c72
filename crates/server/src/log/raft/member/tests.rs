//! Members in one runtime, over a channel that is not TCP, while time stands still until all of them wait.

use std::collections::{BTreeSet, VecDeque};

use keylatch_table::Command;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::log::channel::memory::Hub;
use crate::log::raft::message::Led;

struct One {
    member: Option<Member>,
    life: JoinHandle<()>,
    numbers: u64,
    _dir: TempDir,
}

impl One {
    async fn start(hub: &Hub, address: &str, join: &[&str]) -> One {
        let dir = tempfile::tempdir().unwrap();
        let start = Start {
            dir: dir.path().into(),
            sizes: LogSizes {
                segment_bytes: 65_536,
                reserve_bytes: 65_536,
                snapshot_bytes: 65_536,
            },
            settings: Settings::default(),
            hash_seed: 1,
            channel: Arc::new(hub.channel(address)),
            serves: Box::new(hub.place(address)),
            address: address.into(),
            join: join.iter().map(|address| (*address).to_owned()).collect(),
            wake: Box::new(|| {}),
        };
        let (member, life) = Member::open(start).await.unwrap();
        One { member: Some(member), life: tokio::spawn(life), numbers: 0, _dir: dir }
    }

    fn desk(&self) -> &Desk {
        &self.member.as_ref().expect("it is there").desk
    }

    fn lead(&self) -> &Arc<Lead> {
        &self.member.as_ref().expect("it is there").lead
    }

    fn node(&self) -> u64 {
        self.lead().peers.identity.node
    }

    /// Who votes, as far as its log says: two sets while they change.
    fn voters(&self) -> Vec<BTreeSet<u64>> {
        let metrics = self.lead().raft.server_metrics();
        metrics.borrow_watched().membership_config.membership().get_joint_config().clone()
    }

    fn submit(&mut self) {
        self.numbers += 1;
        self.desk().submit(self.numbers, &[Command::Tick]);
    }

    /// It neither hears nor says anything any more.
    fn kill(&mut self, hub: &Hub, own: &str, names: &[&str]) {
        self.life.abort();
        // Raft itself ends with the last of those who could ask it something.
        drop(self.member.take());
        for name in names {
            hub.cut(own, name);
        }
    }

    /// Whether what was submitted last has been applied within a time.
    async fn is_done(&self, within: Duration) -> bool {
        let done = async {
            let mut told = VecDeque::new();
            loop {
                self.desk().take(&mut told);
                let ours =
                    |told| matches!(told, Told::Done { number, .. } if number == self.numbers);
                if told.drain(..).any(ours) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(within, done).await.is_ok()
    }
}

/// On a clock that does not wait for anybody.
const LONG: Duration = Duration::from_secs(60);

async fn three(hub: &Hub) -> Vec<One> {
    let mut all = vec![One::start(hub, "one", &[]).await];
    for address in ["two", "three"] {
        all.push(One::start(hub, address, &["one"]).await);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn members_on_one_runtime_over_any_channel_are_a_cluster() {
    let hub = Hub::default();
    let mut all = three(&hub).await;
    for one in &mut all {
        one.submit();
        assert!(one.is_done(LONG).await);
    }
    for other in ["two", "three"] {
        hub.cut("one", other);
        hub.cut(other, "one");
    }
    for one in &mut all {
        one.submit();
    }
    assert!(!all[0].is_done(LONG).await, "nobody hears it");
    assert!(all[1].is_done(LONG).await && all[2].is_done(LONG).await, "they are two of three");
    hub.heal();
    assert!(all[0].is_done(LONG).await);
}

#[tokio::test(start_paused = true)]
async fn a_life_that_is_dropped_is_a_member_that_was_killed() {
    let hub = Hub::default();
    let mut all = three(&hub).await;
    for one in &mut all {
        one.submit();
        assert!(one.is_done(LONG).await);
    }
    all[0].life.abort();
    all[1].submit();
    assert!(all[1].is_done(LONG).await);
    // One that ends by itself ends its life; then one of three is left.
    drop(all[2].member.take());
    (&mut all[2].life).await.unwrap();
    all[1].submit();
    assert!(!all[1].is_done(LONG).await);
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Four members, of which the first is taking out the last and dies before it hears that anybody has the first half
/// of that change. It has reached those of `heirs`, and nobody else.
async fn die_half_way(hub: &Hub, heirs: &[usize]) -> Vec<One> {
    let names = ["one", "two", "three", "four"];
    let mut all = vec![One::start(hub, "one", &[]).await];
    for address in &names[1..] {
        all.push(One::start(hub, address, &["one"]).await);
    }
    let four_vote = |one: &One| matches!(&one.voters()[..], [all] if all.len() == 4);
    eventually("four vote", || all.iter().all(four_vote)).await;
    // What is done behind it says that it is acknowledged, too: there is one change at a time.
    for one in &mut all {
        one.submit();
        assert!(one.is_done(LONG).await);
    }
    assert!(all[0].lead().leads(), "the first one leads as long as nothing happens");
    for (at, name) in names.iter().enumerate().skip(1) {
        hub.cut(name, "one");
        if !heirs.contains(&at) {
            hub.cut("one", name);
        }
    }
    let (lead, out) = (Arc::clone(all[0].lead()), all[3].node());
    let change = tokio::spawn(async move { lead.remove(out).await });
    eventually("the first half", || heirs.iter().all(|at| all[*at].voters().len() == 2)).await;
    change.abort();
    all[0].kill(hub, "one", &names);
    all
}

/// The others have made the second half.
async fn assert_it_is_ended(all: &mut [One]) {
    let out = all[3].node();
    let ended =
        |one: &One| matches!(&one.voters()[..], [all] if all.len() == 3 && !all.contains(&out));
    eventually("the change is ended", || all[1..3].iter().all(ended)).await;
    // Two of the three are left, and that is enough again.
    all[3].life.abort();
    all[1].submit();
    assert!(all[1].is_done(LONG).await);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_members_that_a_dead_leader_began_is_ended_by_the_next_one() {
    let mut all = die_half_way(&Hub::default(), &[1, 2, 3]).await;
    assert_it_is_ended(&mut all).await;
}

/// Only the one that is to go has the first half, so nobody else can be elected. It hands over, and does not take
/// itself out.
#[tokio::test(start_paused = true)]
async fn a_leader_that_is_itself_to_go_has_another_one_end_the_change() {
    let mut all = die_half_way(&Hub::default(), &[3]).await;
    assert_it_is_ended(&mut all).await;
    let (last, entries) = (all[3].node(), all[1].lead().log.entries());
    let led: Vec<u64> = entries.iter().map(|entry| entry.log_id.leader_id.node_id).collect();
    assert!(led.contains(&last), "the one that is to go has led: {led:?}");
    assert_ne!(led.last(), Some(&last), "and another one has ended the change");
}

/// Raft makes the second half only if it is sure at that moment that it leads, and whoever wanted the change may be gone.
#[tokio::test(start_paused = true)]
async fn a_change_of_members_that_a_leader_only_began_is_ended_by_itself() {
    let hub = Hub::default();
    let mut all = three(&hub).await;
    eventually("three vote", || matches!(&all[0].voters()[..], [all] if all.len() == 3)).await;
    for one in &mut all {
        one.submit();
        assert!(one.is_done(LONG).await);
    }
    let (lead, out) = (Arc::clone(all[0].lead()), all[2].node());
    for other in ["two", "three"] {
        hub.cut(other, "one");
    }
    let change = tokio::spawn(async move { lead.remove(out).await });
    eventually("the first half", || all[0].voters().len() == 2).await;
    change.abort();
    hub.heal();
    let two = |one: &One| matches!(&one.voters()[..], [all] if all.len() == 2);
    eventually("the second half", || all[..2].iter().all(two)).await;
    let (first, entries) = (all[0].node(), all[0].lead().log.entries());
    assert!(entries.iter().all(|entry| entry.log_id.leader_id.node_id == first), "nobody else led");
}

/// The directory of a member that runs was copied, or is shared: whoever starts with it is not taken for that member.
#[tokio::test(start_paused = true)]
async fn a_member_moves_only_once_it_has_left_where_it_was() {
    let hub = Hub::default();
    let mut all = three(&hub).await;
    eventually("three vote", || matches!(&all[0].voters()[..], [all] if all.len() == 3)).await;
    let runs = |led: Led, there: &str| matches!(led, Led::Refused(why) if why.contains(there));
    let (lead, two) = (Arc::clone(all[0].lead()), all[1].node());
    eventually("it is heard", || lead.hears(two)).await;
    assert!(runs(lead.join(two, "copy".into()).await, "runs at two"));
    assert!(runs(lead.join(all[0].node(), "copy".into()).await, "runs at one"));
    all[1].kill(&hub, "two", &["one", "three"]);
    eventually("it is silent", || !lead.hears(two)).await;
    assert_eq!(lead.join(two, "elsewhere".into()).await, Led::Done);
    let metrics = lead.raft.server_metrics();
    let metrics = metrics.borrow_watched();
    let there = metrics.membership_config.membership().get_node(&two);
    assert_eq!(there.map(|node| &*node.addr), Some("elsewhere"));
}

/// Two of three are left, and of those one would be: nothing could be granted, and nothing changed back.
#[tokio::test(start_paused = true)]
async fn nobody_is_taken_out_if_most_of_those_left_do_not_answer() {
    let hub = Hub::default();
    let mut all = three(&hub).await;
    eventually("three vote", || matches!(&all[0].voters()[..], [all] if all.len() == 3)).await;
    let (lead, two, three) = (Arc::clone(all[0].lead()), all[1].node(), all[2].node());
    all[2].kill(&hub, "three", &["one", "two"]);
    eventually("it is silent", || !lead.hears(three)).await;
    let led = lead.remove(two).await;
    assert!(matches!(&led, Led::Refused(why) if why.contains("no majority")), "{led:?}");
    all[0].submit();
    assert!(all[0].is_done(LONG).await, "it goes on");
    assert_eq!(lead.remove(three).await, Led::Done);
    assert_eq!(lead.remove(two).await, Led::Done, "now that one does");
}

/// Nobody would lead until the others have lost their patience.
#[tokio::test(start_paused = true)]
async fn nobody_hands_over_to_one_who_does_not_answer() {
    let hub = Hub::default();
    let mut all = three(&hub).await;
    eventually("three vote", || matches!(&all[0].voters()[..], [all] if all.len() == 3)).await;
    let (lead, two) = (Arc::clone(all[0].lead()), all[1].node());
    hub.cut("one", "two");
    eventually("it is silent", || !lead.hears(two)).await;
    let led = lead.hand_over_to(two).await;
    assert!(matches!(&led, Led::Refused(why) if why.contains("does not answer")), "{led:?}");
    assert!(lead.leads(), "it goes on");
    all[0].submit();
    assert!(all[0].is_done(Duration::from_millis(100)).await, "as if nobody had asked");
    hub.heal();
    assert_eq!(lead.hand_over_to(two).await, Led::Done);
}
