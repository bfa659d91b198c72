//! What every record store must do for tasks, as tests: `store` through its own calls; through the strategy over
//! it, `life`, `waits` (claims that wait), `loss` (answers that get lost) and `work` (many workers, some of which
//! die). As in `record/contract`: one test for each rule and store, and none of them needs
//! the machine to be fast.

mod life;
mod loss;
mod store;
mod waits;
mod work;

use std::sync::Arc;
use std::time::Duration;

use keylatch_table::{
    Body, Checked, Claim, Claimed, Create, Party, PutBack, RequestId, TaskAction, TaskCommand,
    TaskReply, TaskState,
};

pub(crate) use self::{life::*, loss::*, store::*, waits::*, work::*};
use super::super::contract::Ground;
use super::Tasks;
use super::store::TaskStore;

/// One test for each rule.
macro_rules! task_contract {
    ($ground:expr) => {
        $crate::strategy::record::tasks::contract::task_contract! { $ground;
            a_task_is_written_if_it_is_as_expected
            versions_never_repeat
            what_is_taken_is_what_the_table_would_give
            a_repeated_take_takes_nothing_more
            a_lease_that_ran_out_is_no_write
            what_is_given_back_is_free_though_its_writer_has_gone
            one_task_is_taken_by_one
            a_pool_is_read_in_pages_and_counted
            a_long_line_keeps_its_order_and_is_counted
            pools_keys_and_bodies_may_be_anything
            only_those_who_wait_are_told
            the_life_of_a_task
            attempts_run_out_and_all_failed_are_freed
            a_stale_version_changes_nothing
            an_update_after_the_lease_succeeds_if_nobody_claimed_since
            repeats_get_the_same_answer
            a_lost_answer_is_asked_for_again
            wrong_commands_are_refused
            a_claim_waits_for_a_task
            a_claim_waits_for_a_time
            a_claim_waits_for_a_key
            a_wait_ends
            those_who_wait_here_are_served_in_order
            a_cancelled_claim_holds_nothing
            each_task_is_done_once
            without_the_version_check_some_are_done_twice
        }
    };
    ($ground:expr; $($rule:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $rule() {
            use $crate::strategy::record::{contract::HANG, tasks::contract};
            let ground = $ground;
            let rule = contract::$rule(&ground);
            tokio::time::timeout(HANG * 4, rule).await.expect("a test that hangs");
        }
    )* };
}
pub(crate) use task_contract;

const POOL: &str = "jobs";
/// So long that nothing ends by itself while a test runs.
const LONG_MS: u64 = 600_000;

async fn open(ground: &impl Ground) -> Arc<dyn TaskStore> {
    // Whoever opened it keeps what is behind it alive.
    let store = ground.open().await;
    let tasks = store.tasks().expect("it has tasks");
    std::mem::forget(store);
    tasks
}

/// The strategy over one more connection, as of another process.
struct Side(Tasks);

impl Side {
    async fn open(ground: &impl Ground) -> Side {
        Side(Tasks::new(open(ground).await))
    }

    async fn say(&self, id: &str, action: TaskAction) -> TaskReply {
        self.0.task(command(id, action)).await.unwrap()
    }

    async fn create(&self, key: &str) -> u64 {
        match self.say(&format!("create {key}"), TaskAction::Create(new(key))).await {
            TaskReply::Created(version) => version,
            other => panic!("{other:?}"),
        }
    }

    async fn claim(&self, id: &str) -> TaskReply {
        self.say(id, TaskAction::Claim(any())).await
    }

    async fn claimed(&self, id: &str) -> Claimed {
        claimed(self.claim(id).await)
    }

    async fn finish(&self, claimed: &Claimed) -> TaskReply {
        let id = format!("finish {} {}", claimed.key, claimed.version);
        self.say(&id, TaskAction::Finish(at(claimed))).await
    }

    async fn state(&self, key: &str) -> Option<TaskState> {
        self.0.task_entry(POOL, key).await.unwrap().map(|task| task.state)
    }
}

fn command(id: &str, action: TaskAction) -> TaskCommand {
    TaskCommand { id: RequestId::new(id), pool: POOL.into(), action }
}

fn new(key: &str) -> Create {
    let body = Some(Body { json: false, bytes: key.as_bytes().into() });
    Create { key: key.into(), body, priority: 0, delay_ms: 0, attempts: None }
}

fn any() -> Claim {
    Claim { key: None, party: Party::owner("ann"), wait_ms: 0, lease_ms: LONG_MS }
}

fn named(key: &str) -> Claim {
    Claim { key: Some(key.into()), ..any() }
}

fn waiting(claim: Claim) -> TaskAction {
    TaskAction::Claim(Claim { wait_ms: LONG_MS, ..claim })
}

fn at(claimed: &Claimed) -> Checked {
    Checked { key: claimed.key.clone(), version: claimed.version }
}

fn back(claimed: &Claimed, delay_ms: u64) -> TaskAction {
    TaskAction::PutBack(at(claimed), PutBack { delay_ms, error: Some("it broke".into()) })
}

fn claimed(reply: TaskReply) -> Claimed {
    match reply {
        TaskReply::Claimed(claimed) => claimed,
        other => panic!("nothing was claimed: {other:?}"),
    }
}

/// Looks again until it is so.
async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    while !is_so().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
