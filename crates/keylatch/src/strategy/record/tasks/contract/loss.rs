//! Answers that get lost: what was asked has happened, and nobody says so. The strategy asks again under the
//! same id, and nothing happens twice.

use std::collections::HashSet;
use std::sync::Arc;

use keylatch_table::{PoolCounts, TaskAction, TaskReply, Text};
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedReceiver;

use super::super::super::contract::Ground;
use super::super::super::store::StoreError;
use super::super::Tasks;
use super::super::store::{Change, Page, Seen, Take, Taken, TaskRecord, TaskStore, Told, Written};
use super::{POOL, Side, back, open};
use crate::strategy::Pending;

/// Loses the first answer to whatever changes something.
struct Lossy {
    store: Arc<dyn TaskStore>,
    lost: Arc<Mutex<HashSet<String>>>,
}

impl Lossy {
    fn lose<T: Send + 'static>(
        &self,
        what: String,
        answer: Pending<Result<T, StoreError>>,
    ) -> Pending<Result<T, StoreError>> {
        let first = self.lost.lock().insert(what);
        Box::pin(async move {
            let answer = answer.await?;
            match first {
                true => Err(StoreError { text: "lost".into(), unknown: true }),
                false => Ok(answer),
            }
        })
    }
}

impl TaskStore for Lossy {
    fn take(&self, take: Take) -> Pending<Result<Taken, StoreError>> {
        self.lose(take.id.to_string(), self.store.take(take))
    }

    fn change(&self, change: Change) -> Pending<Result<Written, StoreError>> {
        self.lose(format!("{} {:?}", change.key, change.expect), self.store.change(change))
    }

    fn task(&self, pool: &Text, key: &Text) -> Pending<Result<Seen, StoreError>> {
        self.store.task(pool, key)
    }

    fn page(&self, page: Page) -> Pending<Result<(u64, Vec<TaskRecord>), StoreError>> {
        self.store.page(page)
    }

    fn counts(&self, pool: Option<Text>) -> Pending<Result<Vec<PoolCounts>, StoreError>> {
        self.store.counts(pool)
    }

    fn told(&self) -> UnboundedReceiver<Told> {
        self.store.told()
    }

    fn lease_unit_ms(&self) -> u64 {
        self.store.lease_unit_ms()
    }
}

pub(crate) async fn a_lost_answer_is_asked_for_again(ground: &impl Ground) {
    let lost = Arc::default();
    let lossy = Lossy { store: open(ground).await, lost: Arc::clone(&lost) };
    let side = Side(Tasks::new(Arc::new(lossy)));
    for number in 0..6 {
        side.create(&format!("{number}")).await;
    }
    let mut last = 0;
    for number in 0..6 {
        let got = side.claimed(&format!("claim {number}")).await;
        assert_eq!(*got.key, *format!("{number}"), "the lost one was found again");
        assert!(got.version > last);
        last = got.version;
        match number {
            0 => match side.say("back", back(&got, super::LONG_MS)).await {
                TaskReply::PutBack { attempts, .. } => assert_eq!(attempts, 1, "counted once"),
                other => panic!("{other:?}"),
            },
            1 => {
                let delete = TaskAction::Delete(got.key.clone(), Some(got.version));
                assert_eq!(side.say("delete", delete).await, TaskReply::Deleted);
            }
            _ => {
                let done = side.finish(&got).await;
                assert!(matches!(done, TaskReply::Finished(_)), "{done:?}");
            }
        }
    }
    let counts = side.0.pools(Some(POOL)).await.unwrap().remove(0);
    assert_eq!((counts.done, counts.delayed, counts.ready, counts.claimed), (4, 1, 0, 0));
    assert_eq!(lost.lock().len(), 18, "every first answer was lost");
}
