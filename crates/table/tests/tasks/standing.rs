//! A small table of one task, taken out of a big one, goes on as the big one does.

use keylatch_table::{
    Command, Counters, Reply, Settings, Table, TaskAction, TaskCommand, TaskReply, TaskStanding,
    TaskState,
};

use crate::common::tasks::{any, checked, named, new_task, text_body};

const POOL: &str = "pool";

fn command(id: &str, action: TaskAction) -> TaskCommand {
    TaskCommand { id: id.into(), pool: POOL.into(), action }
}

fn say(table: &mut Table, at: u64, command: TaskCommand) -> TaskReply {
    match table.apply(at, Command::Task(command)).reply {
        Reply::Task(reply) => reply,
        other => panic!("{other:?}"),
    }
}

/// The task of a big table, through its bytes, in a small one.
fn small(big: &Table, key: &str, ids: &[&str]) -> Table {
    let mut standing = big.task_standing(POOL, key).unwrap();
    standing.answers = ids.iter().filter_map(|id| big.task_answer(&(*id).into())).collect();
    let claim = standing.claim.as_ref().map(keylatch_table::ClaimStanding::encode);
    let claim = claim.map(|bytes| keylatch_table::ClaimStanding::decode(&bytes).unwrap());
    let bytes = standing.encode();
    let read = TaskStanding::decode(POOL.into(), key.into(), &bytes).unwrap();
    for end in 0..bytes.len() {
        assert!(TaskStanding::decode(POOL.into(), key.into(), &bytes[..end]).is_err());
    }
    let read = TaskStanding { claim, ..read };
    assert_eq!(read, standing);
    // The big table's token, so that the next version is the same.
    let keylatch_table::Answer::Stats(stats) = big.query(0, &keylatch_table::Query::Stats) else {
        panic!("no totals")
    };
    let counters = Counters { now: big.now(), token: stats.token, seq: stats.seq };
    Table::from_tasks(Settings::default(), counters, 7, [read]).unwrap()
}

#[test]
fn what_a_big_table_answers_a_small_one_answers_too() {
    let mut big = Table::new(Settings::default(), 0, 1);
    let mut create = new_task("a");
    create.body = Some(text_body("do it"));
    say(&mut big, 1_000, command("create", TaskAction::Create(create)));
    let claimed = say(&mut big, 1_500, command("ann", TaskAction::Claim(any("ann"))));
    let TaskReply::Claimed(claimed) = claimed else { panic!("{claimed:?}") };
    // In time, and after the lease.
    for at in [2_000, 90_000] {
        for action in [
            TaskAction::Update(checked("a", claimed.version), Some(text_body("more")), None),
            TaskAction::Update(checked("a", claimed.version - 1), None, Some(5_000)),
            TaskAction::Finish(checked("a", claimed.version)),
            TaskAction::PutBack(checked("a", claimed.version), keylatch_table::PutBack::default()),
            TaskAction::Claim(named("bob", "a")),
            TaskAction::Claim(any("bob")),
            TaskAction::Delete("a".into(), Some(claimed.version)),
            TaskAction::Retry(None),
        ] {
            let (mut one, mut other) = (big.clone(), small(&big, "a", &["create"]));
            let asked = command("next", action);
            let reply = say(&mut one, at, asked.clone());
            assert_eq!(say(&mut other, at, asked), reply);
            let stands = |table: &Table| table.task_standing(POOL, "a");
            assert_eq!(stands(&one), stands(&other));
        }
    }
}

#[test]
fn repeats_are_known_by_what_stands_with_the_task() {
    let mut big = Table::new(Settings::default(), 0, 1);
    let create = command("create", TaskAction::Create(new_task("a")));
    let created = say(&mut big, 1_000, create.clone());
    let claim = command("ann", TaskAction::Claim(any("ann")));
    let TaskReply::Claimed(claimed) = say(&mut big, 1_000, claim.clone()) else { panic!() };
    let mut one = small(&big, "a", &["create"]);
    assert_eq!(say(&mut one, 2_000, create.clone()), created);
    let again = say(&mut one, 2_000, claim.clone());
    assert!(matches!(again, TaskReply::Claimed(again) if again.version == claimed.version));
    // Somebody else's id for the same.
    let other = command("other", TaskAction::Create(new_task("a")));
    assert_eq!(say(&mut one, 2_000, other), TaskReply::Exists);
    // The same id for something else.
    let wrong = command("create", TaskAction::Create(new_task("b")));
    assert!(matches!(say(&mut one, 2_000, wrong), TaskReply::Error(_)));
    let finish = command("done", TaskAction::Finish(checked("a", claimed.version)));
    let done = say(&mut big, 3_000, finish.clone());
    let mut one = small(&big, "a", &["create", "done"]);
    assert_eq!(say(&mut one, 4_000, finish), done);
    assert_eq!(say(&mut one, 4_000, create), created);
    assert_eq!(say(&mut one, 4_000, claim), TaskReply::Ended);
}

#[test]
fn what_cannot_be_is_refused() {
    let mut big = Table::new(Settings::default(), 0, 1);
    say(&mut big, 1_000, command("create", TaskAction::Create(new_task("a"))));
    let task = big.task_standing(POOL, "a").unwrap();
    let counters = Counters { now: 1_000, token: 5, seq: 0 };
    let table = |tasks: Vec<TaskStanding>| {
        Table::from_tasks(Settings::default(), counters, 7, tasks).is_ok()
    };
    assert!(table(vec![task.clone()]));
    assert!(!table(vec![task.clone(), task.clone()]));
    assert!(!table(vec![TaskStanding { version: 6, ..task.clone() }]));
    assert!(!table(vec![TaskStanding { created: 1_001, ..task.clone() }]));
    assert!(!table(vec![TaskStanding { state: TaskState::Claimed, ..task.clone() }]));
    assert!(!table(vec![TaskStanding { lapsed: true, ..task }]));
}
