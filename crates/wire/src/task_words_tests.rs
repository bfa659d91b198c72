//! Each `TASK` command as people write it, what is said to those who write it wrong, and that what a
//! client writes is what the server reads.

use super::*;
use crate::{Limits, Request, read_arguments};

fn read_bytes(bytes: &[u8]) -> Result<TaskRequest, WordError> {
    let mut arguments = Arguments::default();
    let taken = read_arguments(bytes, Limits::default(), &mut arguments);
    assert_eq!(taken, Ok(Some(bytes.len())));
    match Request::read(bytes, &arguments)? {
        Request::Task(task) => Ok(task),
        other => panic!("{other:?}"),
    }
}

fn read(line: &str) -> Result<TaskRequest, WordError> {
    read_bytes(format!("{line}\r\n").as_bytes())
}

fn wanted(pool: &str, id: Option<&str>, action: TaskAction) -> TaskRequest {
    change(pool.into(), id.map(Into::into), action)
}

fn bytes(text: &str, json: bool) -> Body {
    Body { json, bytes: text.as_bytes().into() }
}

fn checked(version: u64) -> Checked {
    Checked { key: "k".into(), version }
}

#[test]
fn a_task_is_created_with_defaults_or_with_all_its_options() {
    let plain = Create { key: "k".into(), body: None, priority: 0, delay_ms: 0, attempts: None };
    assert_eq!(read("task create p k"), Ok(wanted("p", None, TaskAction::Create(plain.clone()))));
    let all = Create {
        body: Some(bytes("[1]", true)),
        priority: -5,
        delay_ms: 7,
        attempts: Some(3),
        ..plain
    };
    let line = "TASK CREATE p k JSON BODY [1] PRIORITY -5 DELAY 7 ATTEMPTS 3 ID i";
    assert_eq!(read(line), Ok(wanted("p", Some("i"), TaskAction::Create(all))));
}

#[test]
fn a_claim_has_a_lease_of_a_minute_unless_it_names_one() {
    let plain = Claim { key: None, party: Party::client(""), wait_ms: 0, lease_ms: 60_000 };
    assert_eq!(read("TASK CLAIM p"), Ok(wanted("p", None, TaskAction::Claim(plain))));
    let all = Claim { key: Some("k".into()), party: Party::owner("ann"), wait_ms: 5, lease_ms: 0 };
    let Ok(TaskRequest::Change(change)) =
        read("TASK CLAIM p KEY k OWNER ann WAIT 5 LEASE 0 ID i ASYNC")
    else {
        panic!("a claim");
    };
    assert!(change.asynchronous);
    assert_eq!(change.action, TaskAction::Claim(all));
    assert_eq!(change.id, Some("i".into()));
}

#[test]
fn what_is_written_under_a_version() {
    let update = TaskAction::Update(checked(7), Some(bytes("b", false)), Some(9));
    assert_eq!(
        read("TASK UPDATE p k VERSION 7 BODY b LEASE 9 ID i"),
        Ok(wanted("p", Some("i"), update))
    );
    let renew = TaskAction::Update(checked(7), None, None);
    assert_eq!(read("TASK UPDATE p k VERSION 7"), Ok(wanted("p", None, renew)));
    assert_eq!(
        read("TASK DONE p k VERSION 7"),
        Ok(wanted("p", None, TaskAction::Finish(checked(7))))
    );
    let back = PutBack { delay_ms: 4, error: Some("no".into()) };
    let back = TaskAction::PutBack(checked(7), back);
    assert_eq!(
        read("TASK BACK p k VERSION 7 ERROR no DELAY 4 ID i"),
        Ok(wanted("p", Some("i"), back))
    );
    let delete = |version| TaskAction::Delete("k".into(), version);
    assert_eq!(read("TASK DELETE p k"), Ok(wanted("p", None, delete(None))));
    assert_eq!(read("TASK DELETE p k VERSION 7 ID i"), Ok(wanted("p", Some("i"), delete(Some(7)))));
    assert_eq!(read("TASK RETRY p"), Ok(wanted("p", None, TaskAction::Retry(None))));
    let one = TaskAction::Retry(Some("k".into()));
    assert_eq!(read("TASK RETRY p KEY k ID i"), Ok(wanted("p", Some("i"), one)));
    assert_eq!(read("TASK CANCEL i"), Ok(wanted("", Some("i"), TaskAction::Cancel)));
}

#[test]
fn questions() {
    let both = |line: &str, question: TaskQuestion| {
        assert_eq!(read(line), Ok(question.clone().into()));
        let stale = Ok(TaskRequest::Question { question, stale: true });
        assert_eq!(read(&format!("{line} stale")), stale);
    };
    both("TASK GET p k", TaskQuestion::Get("p".into(), "k".into()));
    let list = TasksQuery {
        pool: "p".into(),
        state: Some(TaskState::Failed),
        prefix: Some("a".into()),
        limit: 3,
        cursor: 4,
    };
    both("TASK LIST p STATE failed PREFIX a LIMIT 3 CURSOR 4", TaskQuestion::List(list));
    both("TASK COUNTS", TaskQuestion::Counts(None));
    both("TASK COUNTS p", TaskQuestion::Counts(Some("p".into())));
    // A pool may be called so.
    let pool = TaskQuestion::Counts(Some("stale".into()));
    assert_eq!(read("TASK COUNTS stale LATEST"), Ok(pool.clone().into()));
    assert_eq!(
        read("TASK COUNTS stale STALE"),
        Ok(TaskRequest::Question { question: pool, stale: true })
    );
}

#[test]
fn errors_teach_the_syntax() {
    for (line, text) in [
        ("TASK", "SYNTAX what to do is missing; usage: TASK CREATE|CLAIM|"),
        ("TASK WORK p", "SYNTAX 'WORK' is not understood here; usage: TASK CREATE|CLAIM|"),
        ("TASK CREATE", "SYNTAX the pool is missing; usage: TASK CREATE pool key"),
        ("TASK CREATE p", "SYNTAX the key is missing"),
        ("TASK CREATE p k BODY", "SYNTAX what follows BODY is missing"),
        ("TASK CREATE p k JSON", "SYNTAX JSON says what BODY is, and there is none"),
        (
            "TASK CREATE p k PRIORITY 2147483648",
            "BADARG PRIORITY must be a whole number from -2147",
        ),
        ("TASK CREATE p k PRIORITY --1", "BADARG PRIORITY must be a whole number"),
        ("TASK CREATE p k PRIORITY -", "BADARG PRIORITY must be a whole number"),
        ("TASK CREATE p k ATTEMPTS 4294967296", "BADARG ATTEMPTS is at most 4294967295"),
        ("TASK CREATE p k DELAY -1", "BADARG DELAY must be a whole number, 0 or more"),
        ("TASK CREATE p k VERSION 1", "SYNTAX 'VERSION' is not understood here"),
        ("TASK CLAIM", "SYNTAX the pool is missing; usage: TASK CLAIM pool"),
        ("TASK CLAIM p k", "SYNTAX 'k' is not understood here; usage: TASK CLAIM pool [KEY k]"),
        ("TASK CLAIM p WAIT soon", "BADARG WAIT must be a whole number"),
        ("TASK UPDATE p k", "SYNTAX VERSION is missing: the one that the claim was answered with"),
        ("TASK UPDATE p k VERSION", "SYNTAX what follows VERSION is missing"),
        ("TASK UPDATE p k VERSION 1 JSON", "SYNTAX JSON says what BODY is"),
        ("TASK UPDATE p k VERSION x", "BADARG VERSION must be a whole number"),
        ("TASK UPDATE p k VERSION 1 DELAY 5", "SYNTAX 'DELAY' is not understood here"),
        ("TASK DONE p k", "SYNTAX VERSION is missing"),
        ("TASK DONE p k VERSION 1 NOW", "SYNTAX 'NOW' is not understood here"),
        ("TASK DONE p k VERSION 1 ID i j", "SYNTAX 'j' is not understood here"),
        ("TASK BACK p k DELAY 1", "SYNTAX VERSION is missing"),
        ("TASK BACK p k VERSION 1 LEASE 1", "SYNTAX 'LEASE' is not understood here"),
        ("TASK DELETE p", "SYNTAX the key is missing"),
        ("TASK DELETE p k v", "SYNTAX 'v' is not understood here"),
        ("TASK RETRY", "SYNTAX the pool is missing"),
        ("TASK RETRY p k", "SYNTAX 'k' is not understood here"),
        ("TASK CANCEL", "SYNTAX the id is missing"),
        ("TASK CANCEL i j", "SYNTAX 'j' is not understood here"),
        ("TASK GET p", "SYNTAX the key is missing"),
        ("TASK GET p k l", "SYNTAX 'l' is not understood here"),
        ("TASK LIST", "SYNTAX the pool is missing"),
        (
            "TASK LIST p STATE lost",
            "SYNTAX 'lost' is not a state; usage: TASK LIST pool [STATE free|",
        ),
        ("TASK LIST p LIMIT -1", "BADARG LIMIT must be a whole number"),
        ("TASK GET p k STALE l", "SYNTAX 'l' is not understood here"),
        ("TASK COUNTS p q", "SYNTAX 'q' is not understood here; usage: TASK COUNTS [pool] [STALE|"),
        ("TASK COUNTS p STALE q", "SYNTAX 'q' is not understood here"),
    ] {
        let error = read(line).unwrap_err().to_string();
        assert!(error.starts_with(text), "{line}: {error}");
    }
}

#[test]
fn text_must_be_utf_8_and_a_body_may_be_anything() {
    let error = read_bytes(b"*4\r\n$4\r\nTASK\r\n$6\r\nCREATE\r\n$1\r\np\r\n$1\r\n\xff\r\n");
    assert_eq!(error.unwrap_err().to_string(), "BADARG the key must be valid UTF-8");
    let create = read_bytes(
        b"*6\r\n$4\r\nTASK\r\n$6\r\nCREATE\r\n$1\r\np\r\n$1\r\nk\r\n$4\r\nBODY\r\n$3\r\n\xff\r\n\r\n",
    );
    let Ok(TaskRequest::Change(change)) = create else { panic!("{create:?}") };
    let TaskAction::Create(Create { body: Some(body), .. }) = change.action else {
        panic!("a body")
    };
    assert_eq!(*body.bytes, *b"\xff\r\n");
}

#[test]
fn what_a_client_writes_is_what_the_server_reads() {
    for line in [
        "TASK CREATE p k",
        "TASK CREATE p k BODY b JSON PRIORITY -5 DELAY 7 ATTEMPTS 0 ID i",
        "TASK CLAIM p",
        "TASK CLAIM p KEY k OWNER o WAIT 5 LEASE 0 ID i ASYNC",
        "TASK UPDATE p k VERSION 7",
        "TASK UPDATE p k VERSION 7 BODY b LEASE 0 ID i",
        "TASK DONE p k VERSION 7 ID i",
        "TASK BACK p k VERSION 7",
        "TASK BACK p k VERSION 7 DELAY 5 ERROR e ID i",
        "TASK DELETE p k",
        "TASK DELETE p k VERSION 0 ID i",
        "TASK RETRY p",
        "TASK RETRY p KEY k ID i",
        "TASK CANCEL i",
        "TASK GET p k",
        "TASK LIST p",
        "TASK LIST p STATE done PREFIX a LIMIT 3 CURSOR 4",
        "TASK COUNTS",
        "TASK COUNTS p",
        "TASK GET p k STALE",
        "TASK LIST p STATE done STALE",
        "TASK COUNTS STALE",
        "TASK COUNTS p STALE",
        "TASK COUNTS stale LATEST",
        "TASK COUNTS stale STALE",
    ] {
        let request = read(line).unwrap();
        let mut bytes = Vec::new();
        write_task(&request, &mut bytes);
        assert_eq!(read_bytes(&bytes), Ok(request), "{line}");
    }
}
