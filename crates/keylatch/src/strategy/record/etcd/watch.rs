//! What others have written, and that their leases have ended. One watch for the whole process that stays
//! open: etcd serves it as it writes. A watch that is made for each wait, or that begins in the past, has to
//! catch up first, which etcd does every 100 ms.

use std::sync::Weak;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::Streaming;

use super::super::store::Told;
use super::super::tasks::store::Told as TaskTold;
use super::Shared;
use super::keeper::IDLE;
use super::tasks;
use super::value;
use super::wire::{Event, WatchResponse};

/// After a failure.
const AGAIN: Duration = Duration::from_millis(200);
const DELETED: i32 = 1;

/// Goes on as long as somebody may listen.
pub(super) async fn watch(
    mut events: Streaming<WatchResponse>,
    shared: Weak<Shared>,
    tell: mpsc::UnboundedSender<Told>,
) {
    loop {
        tokio::select! {
            () = hear(&mut events, &shared, &tell) => {}
            () = tell.closed() => return,
        }
        loop {
            let Some(store) = shared.upgrade() else { return };
            match store.link.watch(store.keys.watched()).await {
                Ok(again) => {
                    events = again;
                    break;
                }
                Err(error) => tracing::debug!("not watched: {}", error.text),
            }
            drop(store);
            sleep(AGAIN).await;
        }
        // Whatever happened meanwhile was not heard.
        drop(tell.send(Told::Anything));
        if let Some(store) = shared.upgrade() {
            store.tell_tasks(TaskTold::Anything);
        }
    }
}

/// Until the watch breaks.
async fn hear(
    events: &mut Streaming<WatchResponse>,
    shared: &Weak<Shared>,
    tell: &mpsc::UnboundedSender<Told>,
) {
    while let Ok(Some(heard)) = events.message().await {
        if heard.canceled {
            return;
        }
        let Some(store) = shared.upgrade() else { return };
        for event in heard.events {
            let told = meaning(&store, event);
            if let Some(Told::Anything) = told {
                store.tell_tasks(TaskTold::Anything);
            }
            let Some(told) = told else { continue };
            if let Told::Changed { name, removed, .. } = &told
                && !removed.is_empty()
            {
                // These have not to be ended by us any more.
                let mut table = store.table.lock();
                for seq in removed {
                    table.was_removed(name, *seq);
                }
            }
            drop(tell.send(told));
        }
    }
}

fn meaning(store: &Shared, event: Event) -> Option<Told> {
    let kv = event.kv?;
    if store.keys.is_lease(&kv.key) {
        // Somebody has died, with all that it held and waited for.
        let given_back = event.prev_kv.is_some_and(|before| before.value == IDLE);
        return (event.kind == DELETED && !given_back).then_some(Told::Anything);
    }
    if store.keys.is_task_told(&kv.key) {
        if event.kind != DELETED {
            store.tell_tasks(tasks::hear(&kv.value).unwrap_or(TaskTold::Anything));
        }
        return None;
    }
    match event.kind {
        DELETED => None,
        _ => value::hear(&kv.value, store.base(), kv.mod_revision),
    }
}
