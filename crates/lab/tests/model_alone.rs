//! The model by itself: scenarios written by hand, straight from `docs/semantics.md`, so that it is not
//! only compared with a table that shares its mistakes.

mod common;

use common::{Scene, asks, resource};
use keylatch_table::{
    Acquire, Answer, Cause, Command, Detach, Error, Event, Keyed, KeyedOp, Loss, Party, Query,
    Reply, State, Target, Value,
    task::{
        Checked, Claim, Create, PutBack, TaskAction, TaskCommand, TaskEvent, TaskReply, TaskState,
    },
};

fn id(text: &str) -> Target {
    Target::Id(text.into())
}

#[test]
fn each_pair_of_modes_goes_together_as_the_table_says() {
    for (held, asked, same, other) in [
        ("S", "S", "granted", "granted"),
        ("S", "E", "waiting", "waiting"),
        ("S", "X", "waiting", "waiting"),
        ("S", "O", "waiting", "waiting"),
        ("E", "S", "waiting", "waiting"),
        ("E", "E", "granted", "waiting"),
        ("E", "X", "waiting", "waiting"),
        ("E", "O", "waiting", "waiting"),
        ("X", "S", "waiting", "waiting"),
        ("X", "E", "waiting", "waiting"),
        ("X", "X", "waiting", "waiting"),
        ("X", "O", "waiting", "waiting"),
        ("O", "S", "waiting", "waiting"),
        ("O", "E", "waiting", "waiting"),
        ("O", "X", "waiting", "waiting"),
        ("O", "O", "granted", "granted"),
    ] {
        let (held, asked) = (format!("{held} k"), format!("{asked} k"));
        for (holder, asker, expected) in [("a", "a", same), ("a", "b", other), ("", "", other)] {
            let mut scene = Scene::new();
            assert_eq!(scene.ask("1", holder, &[&held]), "granted");
            let outcome = scene.ask("2", asker, &[&asked]);
            assert_eq!(outcome, expected, "{held} by '{holder}', then {asked} by '{asker}'");
        }
    }
}

#[test]
fn readers_that_arrived_together_enter_together_and_pass_no_writer() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask("S1", "", &["S k"]), "granted");
    for (id, part) in [("E1", "E k"), ("S2", "S k"), ("E2", "E k"), ("S3", "S k"), ("S4", "S k")] {
        assert_eq!(scene.ask(id, "", &[part]), "waiting");
    }
    assert_eq!(scene.release("S1"), ["E1"]);
    assert_eq!(scene.release("E1"), ["S2"]);
    assert_eq!(scene.release("S2"), ["E2"]);
    assert_eq!(scene.release("E2"), ["S3", "S4"]);
}

#[test]
fn a_try_passes_no_writer_that_waits_either() {
    let mut scene = Scene::new();
    scene.ask("S1", "", &["S k"]);
    scene.ask("E1", "b", &["E k"]);
    let attempt = Acquire { wait_ms: 0, ..asks("S2", "c", &["S k"]) };
    let Reply::Busy(blocker) = scene.apply(&Command::Acquire(attempt)).reply else {
        panic!("it passed");
    };
    assert_eq!((&*blocker.owner, blocker.state, blocker.token), ("b", State::Waiting, 0));
}

#[test]
fn an_owner_goes_on_while_others_queue_behind_its_e() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask("1", "a", &["E k(1)"]), "granted");
    assert_eq!(scene.ask("2", "b", &["E k(@)"]), "waiting");
    assert_eq!(scene.ask("3", "c", &["E k(2)"]), "waiting");
    assert_eq!(scene.ask("4", "a", &["E k(1)"]), "granted", "cumulates");
    assert_eq!(scene.ask("5", "a", &["S k(3)"]), "granted", "of any mode");
    assert_eq!(scene.release("1"), [] as [&str; 0]);
    assert_eq!(scene.ask("6", "a", &["X k(4)"]), "granted", "the other E is still held");
    assert_eq!(scene.release("4"), [] as [&str; 0]);
    assert_eq!(scene.ask("7", "a", &["S k(5)"]), "waiting", "no E is held any more");
    assert_eq!(scene.release("5"), [] as [&str; 0]);
    assert_eq!(scene.release("6"), ["2"]);
    assert_eq!(scene.release("2"), ["3", "7"]);
}

#[test]
fn a_wildcard_waits_for_everything_it_overlaps() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask("1", "a", &["E k(A,B)"]), "granted");
    assert_eq!(scene.ask("2", "a", &["E k(C,D)"]), "granted");
    assert_eq!(scene.ask("3", "b", &["E k(@,@)"]), "waiting");
    assert_eq!(scene.ask("4", "b", &["E k(@)"]), "granted", "another number of fields");
    assert_eq!(scene.release("1"), [] as [&str; 0]);
    assert_eq!(scene.release("2"), ["3"]);
}

#[test]
fn a_promotion_supersedes_overlapping_optimists_and_frees_waiters() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask("1", "a", &["O k"]), "granted");
    assert_eq!(scene.ask("2", "b", &["O k", "O m"]), "granted");
    assert_eq!(scene.ask("3", "c", &["X m"]), "waiting");
    let applied = scene.apply(&Command::Promote(id("1")));
    let Reply::Promoted(grant) = applied.reply.clone() else { panic!("{applied:?}") };
    assert_eq!(grant.token, 3, "a new token");
    let [Event::Lost { id: dropped, cause: Cause::Superseded, reason, .. }, Event::Granted { .. }] =
        applied.events.as_slice()
    else {
        panic!("{applied:?}");
    };
    assert_eq!((dropped.to_string().as_str(), reason.as_deref()), ("2", Some("a")));
    assert_eq!(scene.granted(), ["3"]);
    assert_eq!(scene.apply(&Command::Promote(id("1"))).reply, Reply::Promoted(grant), "a repeat");
    let lost = Loss { cause: Cause::Superseded, by: Some("a".into()) };
    assert_eq!(scene.apply(&Command::Promote(id("2"))).reply, Reply::Lost(Some(lost)));
    assert_eq!(scene.ask("1", "a", &["O k"]), "granted", "repeated after the promotion");
}

#[test]
fn only_a_sole_reader_is_promoted_and_never_an_exclusive_lock() {
    let mut scene = Scene::new();
    scene.ask("1", "a", &["S k"]);
    scene.ask("2", "b", &["S k"]);
    scene.ask("3", "c", &["X m"]);
    assert!(matches!(scene.apply(&Command::Promote(id("1"))).reply, Reply::Busy(_)));
    scene.release("2");
    assert!(matches!(scene.apply(&Command::Promote(id("1"))).reply, Reply::Promoted(_)));
    let never = Reply::Error(Error::NeverPromotable);
    assert_eq!(scene.apply(&Command::Promote(id("3"))).reply, never);
    scene.ask("4", "d", &["O m"]);
    assert_eq!(scene.apply(&Command::Promote(id("4"))).reply, Reply::Lost(None), "it waits");
}

#[test]
fn a_cycle_of_owners_is_refused_and_named() {
    let detect = |id, owner, part| Acquire { detect: true, ..asks(id, owner, &[part]) };
    let mut scene = Scene::new();
    for (id, owner, part) in [("1", "a", "X k"), ("2", "b", "X m"), ("3", "c", "X n")] {
        assert_eq!(scene.ask_with(detect(id, owner, part)), "granted");
    }
    assert_eq!(scene.ask_with(detect("4", "a", "X m")), "waiting");
    assert_eq!(scene.ask_with(detect("5", "b", "X n")), "waiting");
    let closing = scene.apply(&Command::Acquire(detect("6", "c", "X k")));
    let Reply::Deadlock(deadlock) = closing.reply else { panic!("{closing:?}") };
    assert_eq!(deadlock.cycle, ["c", "a", "b"].map(Into::into));
    assert_eq!(&*deadlock.blocker.owner, "a");
    let own = scene.apply(&Command::Acquire(detect("7", "a", "X k")));
    assert!(matches!(own.reply, Reply::Deadlock(own) if own.cycle == ["a".into()]));
    let attempt = Acquire { wait_ms: 0, ..detect("8", "c", "X k") };
    assert_eq!(scene.ask_with(attempt), "busy");
    assert_eq!(scene.ask("9", "c", &["X k"]), "waiting", "did not ask for detection");
}

#[test]
fn several_resources_are_held_all_or_none() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask("1", "a", &["X k"]), "granted");
    assert_eq!(scene.ask("2", "b", &["X m", "X k"]), "waiting");
    assert_eq!(scene.ask("3", "c", &["X m"]), "waiting", "its place counts on all of them");
    assert_eq!(scene.release("1"), ["2"]);
    assert_eq!(scene.release("2"), ["3"]);
    let refused = |scene: &mut Scene, parts: &[&str]| {
        scene.apply(&Command::Acquire(asks("bad", "a", parts))).reply
    };
    assert_eq!(refused(&mut scene, &["S k(1)", "S k(@)"]), Reply::Error(Error::PartsOverlap));
    assert_eq!(refused(&mut scene, &["O k", "S n"]), Reply::Error(Error::MixedOptimistic));
}

#[test]
fn a_wait_that_is_over_is_not_granted_and_a_lease_that_is_over_frees() {
    let mut scene = Scene::new();
    scene.ask_with(Acquire { lease_ms: 100, ..asks("1", "a", &["X k"]) });
    scene.ask_with(Acquire { wait_ms: 100, ..asks("2", "b", &["X k"]) });
    scene.ask_with(Acquire { wait_ms: 101, ..asks("3", "c", &["X k"]) });
    scene.at += 100;
    let applied = scene.apply(&Command::Tick);
    let [Event::TimedOut { id: late, .. }, Event::Lost { .. }, Event::Granted { .. }] =
        applied.events.as_slice()
    else {
        panic!("{applied:?}");
    };
    assert_eq!(late.to_string(), "2");
    assert_eq!(scene.granted(), ["3"]);
    assert_eq!(scene.ask("1", "a", &["X k"]), "ended");
    assert_eq!(scene.ask("2", "b", &["X k"]), "waiting", "a time-out is not an end");
}

#[test]
fn a_detached_waiter_keeps_its_place_for_its_grace() {
    let mut scene = Scene::new();
    scene.ask("1", "a", &["X k"]);
    let waiting = Acquire { lease_ms: 5_000, ..asks("2", "b", &["X k"]) };
    scene.ask_with(waiting.clone());
    scene.apply(&Command::Detach(Detach { ids: Some(vec!["2".into()]), grace_ms: 50 }));
    let applied = scene.apply(&Command::Release(id("1")));
    let [Event::Granted { grant, .. }] = applied.events.as_slice() else { panic!("{applied:?}") };
    assert_eq!(grant.lease_ms, Some(50), "the grace is the lease");
    scene.at += 20;
    let Reply::Granted(grant) = scene.apply(&Command::Acquire(waiting)).reply else {
        panic!("a repeat is granted");
    };
    assert_eq!(grant.lease_ms, Some(5_000), "from now on the lease it asked for");
}

#[test]
fn a_value_decides_what_a_keyed_command_may_touch() {
    let mut scene = Scene::new();
    let extra = Value::from(&b"mine"[..]).into();
    scene.ask_with(Acquire { extra, ..asks("1", "", &["X k"]) });
    scene.ask("2", "", &["X native"]);
    let mut delete = |value: &[u8]| {
        let keys = ["k", "native", "gone"].map(resource).to_vec();
        let keyed = Keyed { keys, value: Some(value.into()), all: false, op: KeyedOp::Delete };
        let Reply::Keyed(count) = scene.apply(&Command::Keyed(keyed)).reply else {
            panic!("a count");
        };
        (count.matched, count.other, count.absent)
    };
    assert_eq!(delete(b"theirs"), (0, 2, 1));
    assert_eq!(delete(b"mine"), (1, 1, 1));
    assert_eq!(delete(b"mine"), (0, 1, 2));
    let Answer::Key(holder) = scene.model.query(0, &Query::Key(resource("k"))) else {
        panic!("a key");
    };
    assert_eq!(holder, None);
}

fn task(id: &str, action: TaskAction) -> Command {
    Command::Task(TaskCommand { id: id.into(), pool: "p".into(), action })
}

fn create(key: &str, priority: i32) -> TaskAction {
    let key = key.into();
    TaskAction::Create(Create { key, body: None, priority, delay_ms: 0, attempts: Some(2) })
}

fn claim(key: Option<&str>) -> TaskAction {
    let party = Party::owner("w");
    TaskAction::Claim(Claim { key: key.map(Into::into), party, wait_ms: 1_000, lease_ms: 100 })
}

#[test]
fn a_claim_takes_the_highest_priority_and_lives_until_its_lease_ends() {
    let mut scene = Scene::new();
    scene.apply(&task("c1", create("low", 0)));
    scene.apply(&task("c2", create("high", 1)));
    let first = scene.apply(&task("1", claim(None))).reply;
    let Reply::Task(TaskReply::Claimed(claimed)) = first.clone() else { panic!("{first:?}") };
    assert_eq!((&*claimed.key, claimed.version), ("high", claimed.token));
    assert_eq!(scene.apply(&task("1", claim(None))).reply, first, "a repeat is the same claim");
    scene.apply(&task("2", claim(None)));
    let third = scene.apply(&task("3", claim(Some("high")))).reply;
    assert_eq!(third, Reply::Task(TaskReply::Waiting));
    scene.at += 100;
    let events = scene.apply(&Command::Tick).events;
    let claimed_again = |event: &Event| match event {
        Event::Task(TaskEvent::Claimed(id, ..)) => Some(id.to_string()),
        _ => None,
    };
    assert_eq!(events.iter().filter_map(claimed_again).collect::<Vec<_>>(), ["3"]);
    assert_eq!(scene.apply(&task("1", claim(None))).reply, Reply::Task(TaskReply::Ended));
}

#[test]
fn a_task_that_is_put_back_too_often_fails_and_refuses_who_waits_for_it() {
    let mut scene = Scene::new();
    scene.apply(&task("c", create("k", 0)));
    for (attempt, expected) in [(1, TaskState::Free), (2, TaskState::Failed)] {
        let got = scene.apply(&task(&format!("claim {attempt}"), claim(Some("k")))).reply;
        let Reply::Task(TaskReply::Claimed(claimed)) = got else { panic!("{got:?}") };
        scene.apply(&task(&format!("waits {attempt}"), claim(Some("other"))));
        let checked = Checked { key: "k".into(), version: claimed.version };
        let back = TaskAction::PutBack(checked, PutBack::default());
        let back = scene.apply(&task(&format!("back {attempt}"), back)).reply;
        let Reply::Task(TaskReply::PutBack { state, attempts, .. }) = back else {
            panic!("{back:?}");
        };
        assert_eq!((state, attempts), (expected, attempt));
    }
    let refused = scene.apply(&task("late", claim(Some("k")))).reply;
    assert_eq!(refused, Reply::Task(TaskReply::Refused(TaskState::Failed)));
    let retried = scene.apply(&task("retry", TaskAction::Retry(None))).reply;
    assert_eq!(retried, Reply::Task(TaskReply::Retried(1)));
}
