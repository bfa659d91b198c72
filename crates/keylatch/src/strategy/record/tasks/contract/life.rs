//! Through the strategy: what `docs/semantics.md` says of tasks.

use keylatch_table::{Body, Checked, Claim, Create, TaskAction, TaskReply, TaskState, TasksQuery};

use super::super::super::contract::Ground;
use super::{LONG_MS, POOL, Side, any, at, back, claimed, command, eventually, named, new};

pub(crate) async fn the_life_of_a_task(ground: &impl Ground) {
    let (ann, bob) = (Side::open(ground).await, Side::open(ground).await);
    assert_eq!(ann.claim("too early").await, TaskReply::Nothing);
    let version = ann.create("a").await;
    assert_eq!(bob.say("again", TaskAction::Create(new("a"))).await, TaskReply::Exists);
    assert_eq!(ann.state("a").await, Some(TaskState::Free));
    let first = bob.claimed("bob").await;
    assert!(first.version > version && first.token == first.version);
    assert_eq!((&*first.key, first.attempts, first.waited_ms), ("a", 0, 0));
    assert_eq!(&*first.body.as_ref().unwrap().bytes, b"a");
    assert!(first.lease_ms.is_some_and(|ms| ms <= LONG_MS && ms > LONG_MS - 60_000));
    assert_eq!(ann.claim("ann").await, TaskReply::Nothing);
    let update =
        TaskAction::Update(at(&first), Some(Body { json: true, bytes: (*b"{}").into() }), None);
    let updated = match bob.say("update", update).await {
        TaskReply::Updated { version, lease_ms: Some(LONG_MS) } => version,
        other => panic!("{other:?}"),
    };
    assert!(updated > first.version);
    let entry = ann.0.task_entry(POOL, "a").await.unwrap().unwrap();
    assert_eq!(
        (entry.state, entry.version, entry.token),
        (TaskState::Claimed, updated, first.token)
    );
    assert_eq!(entry.owner.as_deref(), Some("ann"));
    assert_eq!(entry.number, version);
    assert!(entry.body.unwrap().json);
    // Freed at once, with its error.
    let back = back(&keylatch_table::Claimed { version: updated, ..first.clone() }, 0);
    match bob.say("back", back).await {
        TaskReply::PutBack { version, state: TaskState::Free, attempts: 1 } => {
            assert!(version > updated);
        }
        other => panic!("{other:?}"),
    }
    let second = ann.claimed("ann again").await;
    assert_eq!((second.attempts, &*second.body.as_ref().unwrap().bytes), (1, &b"{}"[..]));
    assert!(second.token > first.token);
    match ann.finish(&second).await {
        TaskReply::Finished(version) => assert!(version > second.version),
        other => panic!("{other:?}"),
    }
    // It never comes back.
    assert_eq!(bob.claim("bob again").await, TaskReply::Nothing);
    let refused = bob.say("by name", TaskAction::Claim(named("a"))).await;
    assert_eq!(refused, TaskReply::Refused(TaskState::Done));
    let entry = bob.0.task_entry(POOL, "a").await.unwrap().unwrap();
    assert_eq!(entry.error.as_deref(), Some("it broke"));
    let stale = TaskAction::Delete("a".into(), Some(second.version));
    assert!(matches!(bob.say("not so", stale).await, TaskReply::Stale(_)));
    let delete = TaskAction::Delete("a".into(), None);
    assert_eq!(bob.say("delete", delete.clone()).await, TaskReply::Deleted);
    assert_eq!(bob.say("delete again", delete).await, TaskReply::NotFound);
    assert_eq!(ann.state("a").await, None);
    let created = ann.say("anew", TaskAction::Create(new("a"))).await;
    assert!(matches!(created, TaskReply::Created(version) if version > second.version));
}

pub(crate) async fn attempts_run_out_and_all_failed_are_freed(ground: &impl Ground) {
    let side = Side::open(ground).await;
    for number in 0..40 {
        let create = Create { attempts: Some(1), ..new(&format!("{number}")) };
        side.say(&format!("create {number}"), TaskAction::Create(create)).await;
        let one = side.claimed(&format!("claim {number}")).await;
        match side.say(&format!("back {number}"), back(&one, 0)).await {
            TaskReply::PutBack { state: TaskState::Failed, attempts: 1, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let query = |state| TasksQuery {
        pool: POOL.into(),
        state: Some(state),
        prefix: Some("3".into()),
        limit: 5,
        cursor: 0,
    };
    let failed = side.0.tasks(query(TaskState::Failed)).await.unwrap();
    assert_eq!(
        failed.iter().map(|task| &*task.key).collect::<Vec<_>>(),
        ["3", "30", "31", "32", "33"]
    );
    assert_eq!(side.claim("nothing").await, TaskReply::Nothing);
    let one = side.say("retry one", TaskAction::Retry(Some("7".into()))).await;
    assert_eq!(one, TaskReply::Retried(1));
    let again = side.say("retry it again", TaskAction::Retry(Some("7".into()))).await;
    assert_eq!(again, TaskReply::Retried(0));
    assert_eq!(side.say("retry", TaskAction::Retry(None)).await, TaskReply::Retried(39));
    assert_eq!(side.say("retry none", TaskAction::Retry(None)).await, TaskReply::Retried(0));
    let counts = side.0.pools(Some(POOL)).await.unwrap();
    assert_eq!((counts[0].ready, counts[0].failed), (40, 0));
    assert_eq!(side.0.tasks(query(TaskState::Free)).await.unwrap().len(), 5);
    assert_eq!(side.claimed("something").await.attempts, 0);
}

pub(crate) async fn a_stale_version_changes_nothing(ground: &impl Ground) {
    let (ann, bob) = (Side::open(ground).await, Side::open(ground).await);
    ann.create("a").await;
    let first = ann.claimed("ann").await;
    ann.say("back", back(&first, 0)).await;
    let second = bob.claimed("bob").await;
    // Whoever knew the task, and whoever did not.
    for (name, side) in [("ann", &ann), ("bob", &bob)] {
        let (version, present) = (first.version, second.version);
        let old = Checked { key: "a".into(), version };
        for (number, action) in [
            TaskAction::Update(old.clone(), None, None),
            TaskAction::Finish(old.clone()),
            back(&first, 0),
            TaskAction::Delete("a".into(), Some(version)),
        ]
        .into_iter()
        .enumerate()
        {
            let reply = side.say(&format!("{name} {number}"), action).await;
            assert_eq!(reply, TaskReply::Stale(present));
        }
    }
    let not_there = Checked { key: "b".into(), version: 1 };
    assert_eq!(ann.say("b", TaskAction::Finish(not_there)).await, TaskReply::NotFound);
    assert!(matches!(bob.finish(&second).await, TaskReply::Finished(_)));
}

pub(crate) async fn an_update_after_the_lease_succeeds_if_nobody_claimed_since(
    ground: &impl Ground,
) {
    let (ann, bob) = (Side::open(ground).await, Side::open(ground).await);
    let short = Claim { lease_ms: ground.life_ms(), ..any() };
    ann.create("a").await;
    let first = claimed(ann.say("ann", TaskAction::Claim(short.clone())).await);
    eventually(async || ann.state("a").await == Some(TaskState::Free)).await;
    let counts = ann.0.pools(None).await.unwrap();
    assert_eq!((counts[0].ready, counts[0].claimed), (1, 0));
    assert_eq!(bob.say("ann", TaskAction::Claim(short.clone())).await, TaskReply::Ended);
    let update = TaskAction::Update(at(&first), None, Some(LONG_MS));
    let TaskReply::Updated { version, lease_ms } = ann.say("update", update).await else {
        panic!("nobody has claimed it");
    };
    assert_eq!(lease_ms, Some(LONG_MS));
    assert_eq!(bob.claim("bob").await, TaskReply::Nothing);
    // Now somebody does.
    let update =
        TaskAction::Update(Checked { key: "a".into(), version }, None, Some(ground.life_ms()));
    let TaskReply::Updated { version, .. } = ann.say("shorten", update).await else { panic!() };
    eventually(async || ann.state("a").await == Some(TaskState::Free)).await;
    let second = bob.claimed("bob at last").await;
    let late = TaskAction::Update(Checked { key: "a".into(), version }, None, None);
    assert_eq!(ann.say("too late", late).await, TaskReply::Stale(second.version));
}

/// As after a reply that was lost: another connection asks for the same.
pub(crate) async fn repeats_get_the_same_answer(ground: &impl Ground) {
    let (ann, bob) = (Side::open(ground).await, Side::open(ground).await);
    let create = TaskAction::Create(new("a"));
    let created = ann.say("create", create.clone()).await;
    ann.create("b").await;
    let claim = TaskAction::Claim(any());
    let first = claimed(ann.say("claim", claim.clone()).await);
    let update = TaskAction::Update(at(&first), None, None);
    for side in [&ann, &bob] {
        assert_eq!(side.say("create", create.clone()).await, created);
        let again = claimed(side.say("claim", claim.clone()).await);
        assert_eq!((again.key, again.version), (first.key.clone(), first.version));
    }
    let updated = ann.say("update", update.clone()).await;
    for side in [&bob, &ann] {
        assert_eq!(side.say("update", update.clone()).await, updated);
    }
    let TaskReply::Updated { version, .. } = updated else { panic!("{updated:?}") };
    let put_back = back(&keylatch_table::Claimed { version, ..first.clone() }, 0);
    let freed = bob.say("back", put_back.clone()).await;
    assert_eq!(ann.say("back", put_back.clone()).await, freed);
    // Also once somebody has claimed it since.
    let second = claimed(ann.say("claim again", TaskAction::Claim(named("a"))).await);
    assert_eq!(bob.say("back", put_back).await, freed);
    let finish = TaskAction::Finish(at(&second));
    let done = ann.say("finish", finish.clone()).await;
    assert_eq!(bob.say("finish", finish).await, done);
    assert_eq!(bob.say("create", create).await, created);
    assert_eq!(bob.say("claim again", TaskAction::Claim(named("a"))).await, TaskReply::Ended);
    // An id that was used for something else.
    let other = bob.0.task(command("finish", TaskAction::Finish(at(&first)))).await;
    assert!(other.unwrap_err().to_string().contains("used for something else"));
}

pub(crate) async fn wrong_commands_are_refused(ground: &impl Ground) {
    let side = Side::open(ground).await;
    let long = "k".repeat(513);
    let large = Body { json: false, bytes: vec![0; 65_537].into() };
    for action in [
        TaskAction::Create(new("")),
        TaskAction::Create(new(&long)),
        TaskAction::Create(Create { body: Some(large), ..new("a") }),
        TaskAction::Claim(named(&long)),
        TaskAction::Claim(Claim { lease_ms: u64::MAX / 4, ..any() }),
        TaskAction::Claim(Claim { wait_ms: u64::MAX / 4, ..any() }),
        TaskAction::Finish(Checked { key: "".into(), version: 1 }),
    ] {
        let wrong = side.0.task(command("wrong", action.clone())).await;
        assert!(matches!(wrong, Err(crate::error::TaskError::Invalid(_))), "{action:?}: {wrong:?}");
    }
    let mut empty = command("wrong", TaskAction::Retry(None));
    empty.pool = "".into();
    assert!(side.0.task(empty).await.is_err());
    assert_eq!(side.0.pools(None).await.unwrap(), []);
}
