//! Members in one runtime, over a channel that is not TCP, while time stands still until all of them wait.

use std::collections::VecDeque;

use keylatch_table::Command;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::*;
use crate::log::channel::memory::Hub;

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

    fn submit(&mut self) {
        self.numbers += 1;
        self.desk().submit(self.numbers, &[Command::Tick]);
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

#[tokio::test(start_paused = true)]
async fn members_on_one_runtime_over_any_channel_are_a_cluster() {
    let hub = Hub::default();
    let mut all = vec![One::start(&hub, "one", &[]).await];
    for address in ["two", "three"] {
        all.push(One::start(&hub, address, &["one"]).await);
    }
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
    let mut all = vec![One::start(&hub, "one", &[]).await];
    for address in ["two", "three"] {
        all.push(One::start(&hub, address, &["one"]).await);
    }
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
