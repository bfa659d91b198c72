//! What every record store must do, checked through its own calls: one test for each rule and store.
//!
//! A store gives a [`Ground`], a place of its own for one test, and says `contract!(its ground)` in a
//! module of tests. The rules are in `writes` (what a change does), `many` (several at once), `lives` (what
//! ends by itself) and `tells` (who hears of it). Nothing here needs the machine to be fast: a time that
//! matters is the store's own, and whatever was too slow to be judged begins again.

mod lives;
mod many;
mod tells;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use keylatch_table::RequestId;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub(crate) use self::{lives::*, many::*, tells::*, writes::*};
use super::store::{
    Append, Change, Committed, Done, Expect, Landed, Name, NameChange, Plain, Put, Record, Stand,
    Store, StoreError, View, Waiter, Write,
};

/// Longer than anything here takes: a hang is a failure, not a timing.
pub(crate) const HANG: Duration = Duration::from_secs(60);
/// So long that nothing ends by itself while a test runs.
const LONG_MS: u64 = 600_000;

/// A store for one test, and where it differs from others.
pub(crate) trait Ground: Send + Sync {
    /// One more connection to this store, as of another process.
    fn open(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// A short life of a waiter; whole seconds where the store counts in these.
    fn life_ms(&self) -> u64 {
        1_000
    }

    /// It ends leases by itself: heads say who lives, times are not the store's, and dead waiters are
    /// not among those in the queue.
    fn has_own_leases(&self) -> bool {
        false
    }

    /// What another connection wrote is told name by name, not only that there was something.
    fn tells_exactly(&self) -> bool {
        true
    }
}

/// One test for each rule.
macro_rules! contract {
    ($ground:expr) => {
        contract! { $ground;
            absent_means_neither_head_nor_queue
            there_means_any_head
            a_version_means_that_one
            an_idle_lock_is_taken_and_left
            a_plain_change_lands_or_tells_what_there_is
            nobody_unseen_may_have_come
            what_is_removed_must_still_be_there
            one_who_waits_is_not_appended_again
            one_who_is_removed_may_be_appended_again
            all_or_nothing_over_several_names
            one_waiter_has_one_seq_everywhere
            several_waiters_in_one_change
            numbers_are_counted
            numbers_grow_over_everything
            done_says_what_was_there_before
            keeping_a_head_changes_nothing_of_it
            names_ids_and_bytes_may_be_anything
            many_names_at_once
            every_name_in_use_is_found
            one_of_many_wins
            idle_locks_side_by_side
            changes_that_cross_all_get_done
            appends_do_not_conflict
            a_touched_waiter_lives
            a_lapsed_waiter_is_not_revived
            touching_what_is_not_there
            what_nobody_needs_goes
            what_is_for_ever_stays
            leases_end_by_themselves
            others_see_what_was_written
            those_who_wait_are_told
            who_stands_behind_the_writers_own_is_told
            what_says_tell_is_told
            appending_is_not_told
        }
    };
    ($ground:expr; $($rule:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $rule() {
            use $crate::strategy::record::contract;
            let ground = $ground;
            let rule = contract::$rule(&ground);
            tokio::time::timeout(contract::HANG * 2, rule).await.expect("a test that hangs");
        }
    )* };
}
pub(crate) use contract;

fn name(text: &str) -> Name {
    text.into()
}

fn id(text: &str) -> RequestId {
    RequestId::new(text)
}

fn put(bytes: impl Into<Vec<u8>>) -> Write {
    Write::Put(Put { bytes: bytes.into(), keep_ms: Some(LONG_MS), holders: Vec::new() })
}

/// What is to become of one name, without more.
fn one(expect: Expect, head: Write) -> NameChange {
    NameChange { expect, last_seq: None, head, remove: Vec::new(), tell: false, own_up_to: None }
}

fn removing<'a>(
    expect: Expect,
    head: Write,
    who: impl IntoIterator<Item = (&'a str, u64)>,
) -> NameChange {
    let stand = |(text, seq)| Stand { id: id(text), seq };
    NameChange { remove: who.into_iter().map(stand).collect(), ..one(expect, head) }
}

fn change<'a>(names: impl IntoIterator<Item = (&'a str, NameChange)>) -> Change {
    let names = names.into_iter().map(|(text, one)| (name(text), Box::new(one))).collect();
    Change { names, numbers: 1, appends: Vec::new() }
}

/// The same, with a waiter more.
fn and_append(mut change: Change, who: &str, to: &[&str]) -> Change {
    change.appends.push(Append {
        id: id(who),
        to: to.iter().map(|text| name(text)).collect(),
        bytes: who.into(),
        live_ms: LONG_MS,
    });
    change
}

/// A plain change, which goes to the store now. What comes of it.
pub(crate) fn land(
    store: &dyn Store,
    text: &str,
    plain: Plain,
) -> impl Future<Output = Result<Landed, StoreError>> + Send + use<> {
    let (tell, told) = oneshot::channel();
    let landing = Box::new(move |_, came| drop(tell.send(came)));
    let work = store.land(&Handle::current(), name(text), plain, landing);
    async move {
        if let Some(work) = work {
            work.await;
        }
        told.await.expect("it is told in any case")
    }
}

/// What takes a name.
fn take(bytes: &str) -> Plain {
    Plain::Take(Put { bytes: bytes.into(), keep_ms: Some(LONG_MS), holders: Vec::new() })
}

async fn commit(store: &dyn Store, change: Change) -> Committed {
    store.commit(change).await.unwrap()
}

/// What must happen.
async fn done(store: &dyn Store, change: Change) -> Done {
    match commit(store, change.clone()).await {
        Committed::Done(done) => done,
        Committed::Mismatch(view) => panic!("{change:?} does not fit {view:?}"),
    }
}

/// What must not happen: nothing has changed by it, and it is told what there is.
async fn refused(store: &dyn Store, change: Change) -> View {
    let names: Vec<Name> = change.names.keys().cloned().collect();
    let before = store.read(names.clone()).await.unwrap();
    let told = match commit(store, change.clone()).await {
        Committed::Mismatch(view) => view,
        Committed::Done(_) => panic!("{change:?} happened over {before:?}"),
    };
    let after = store.read(names).await.unwrap();
    assert_eq!(plain(&before), plain(&after), "{change:?} has changed something");
    assert_eq!(plain(&before), plain(&told), "a refusal tells what there is");
    assert!(before.now <= told.now && told.now <= after.now, "time runs forward");
    told
}

/// What must be equal in two views of the same: all but the time, and until when waiters live.
fn plain(view: &View) -> Vec<String> {
    let mut all = Vec::new();
    for (name, record) in &view.names {
        let head = record.head.as_ref().map(|head| (head.version, &head.bytes));
        all.push(format!("{name:?}: {head:?}"));
        all.extend(record.queue.iter().map(|waiter| format!("{} {:?}", waiter.seq, waiter.bytes)));
    }
    all
}

async fn read(store: &dyn Store, text: &str) -> Record {
    let mut view = store.read(vec![name(text)]).await.unwrap();
    assert_eq!(view.names.len(), 1);
    view.names.remove(text).expect("every name that was asked for")
}

async fn version(store: &dyn Store, text: &str) -> Option<u64> {
    read(store, text).await.head.map(|head| head.version)
}

async fn queue(store: &dyn Store, text: &str) -> Vec<Waiter> {
    read(store, text).await.queue
}

/// The seqs in a queue.
async fn seqs(store: &dyn Store, text: &str) -> Vec<u64> {
    queue(store, text).await.iter().map(|waiter| waiter.seq).collect()
}
