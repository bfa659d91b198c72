//! Every row of the protocol's page and everything that is JSON but no request. `stream` has what
//! happens to the bytes before.

use keylatch_table::{Command, Reply, Settings, Table, Target};

use super::*;

mod stream;

const MAX_FRAME: usize = 128 * 1024;

const LOCK: &str = r#"{"OP":"1","eleLock":{"name":"tab1","argument":["A","@"],"mode":"E","owner":"O_1","waitTime":0,"timeout":0,"uuid":"16568_1"}}"#;
const UNLOCK: &str = r#"{"OP":"2","lockUUID":"16568_1"}"#;
const PROMOTE: &str = r#"{"OP":"3","lockUUID":"16568_4"}"#;
const LIST: &str = r#"{"OP":"4","lockName":null,"lockOwner":null}"#;

type Outcome = Result<Request, Malformed>;

/// What comes out of these segments, with nothing left over unless the stream was cut.
fn split<'a>(segments: impl IntoIterator<Item = &'a [u8]>) -> Vec<Outcome> {
    let mut splitter = Splitter::new();
    let mut buffer = Vec::new();
    let mut outcomes = Vec::new();
    for segment in segments {
        buffer.extend_from_slice(segment);
        while let Some(outcome) = splitter.next(&mut buffer, MAX_FRAME) {
            assert_eq!(splitter.is_closed(), outcome.is_err());
            outcomes.push(outcome);
        }
        assert!(buffer.len() <= MAX_FRAME);
        assert!(!splitter.is_closed() || buffer.is_empty());
    }
    outcomes.extend(splitter.end().err().map(Err));
    outcomes
}

fn whole(bytes: impl AsRef<[u8]>) -> Vec<Outcome> {
    split([bytes.as_ref()])
}

fn one(json: &str) -> Request {
    match whole(json).as_slice() {
        [Ok(request)] => request.clone(),
        other => panic!("{json}: {other:?}"),
    }
}

fn bad(json: &str) -> String {
    match one(json) {
        Request::Bad(message) => message,
        other => panic!("{json}: {other:?}"),
    }
}

/// A lock request with one member of `eleLock` replaced by this JSON, or left out.
fn lock_with(member: &str, json: Option<&str>) -> String {
    let members = [
        ("name", r#""tab1""#),
        ("argument", r#"["A","@"]"#),
        ("mode", r#""E""#),
        ("owner", r#""O_1""#),
        ("waitTime", "0"),
        ("timeout", "0"),
        ("uuid", r#""16568_1""#),
    ];
    assert!(members.iter().any(|(name, _)| *name == member));
    let members = members
        .iter()
        .filter_map(|(name, usual)| {
            let value = if *name == member { json? } else { usual };
            Some(format!("\"{name}\":{value}"))
        })
        .collect::<Vec<_>>();
    format!(r#"{{"OP":"1","eleLock":{{{}}}}}"#, members.join(","))
}

fn locked(json: &str) -> Lock {
    match one(json) {
        Request::Lock(lock) => lock,
        other => panic!("{json}: {other:?}"),
    }
}

fn the_lock() -> Lock {
    Lock {
        resource: Resource::new("tab1", &["A".into(), ANY]).unwrap(),
        mode: Mode::Cumulative,
        owner: Some("O_1".into()),
        wait_ms: 0,
        timeout_ms: 900_000,
        uuid: "16568_1".into(),
    }
}

fn no_filter() -> Request {
    Request::List(Filter::default())
}

#[test]
fn every_row_of_the_page_is_read() {
    assert_eq!(one(LOCK), Request::Lock(the_lock()));
    assert_eq!(one(UNLOCK), Request::Unlock("16568_1".into()));
    assert_eq!(one(PROMOTE), Request::Promote("16568_4".into()));
    assert_eq!(one(LIST), no_filter());
}

#[test]
fn members_that_nobody_knows_are_ignored() {
    let json = r#"{"reqUUID":"1_2","x":{"OP":[1e999,"\ud800"]},"OP":"2","lockUUID":"7"}"#;
    assert_eq!(one(json), Request::Unlock("7".into()));
}

#[test]
fn a_member_given_twice_is_refused() {
    assert_eq!(bad(r#"{"OP":"2","OP":"3","lockUUID":"7"}"#), "OP is given twice!");
    assert_eq!(
        bad(r#"{"OP":"1","eleLock":{"name":"a","n\u0061me":null}}"#),
        "name is given twice!"
    );
}

#[test]
fn what_is_wrong_with_a_lock_matters_only_if_one_is_asked_for() {
    for lock in [r#"{"name":"a","name":"b","x":[{}]}"#, r#"{"\ud800":1}"#, "[1,{}]", "7", "null"] {
        let json = format!(r#"{{"eleLock":{lock},"OP":"2","lockUUID":"7"}}"#);
        assert_eq!(one(&json), Request::Unlock("7".into()), "{lock}");
    }
    assert_eq!(bad(r#"{"OP":"2","eleLock":null,"eleLock":{}}"#), "eleLock is given twice!");
    assert_eq!(bad(r#"{"OP":"2","lockUUID":null,"lockUUID":"7"}"#), "lockUUID is given twice!");
}

#[test]
fn an_op_may_be_a_string_or_a_number() {
    for op in [r#""4""#, "4", "4.0", "0.4e1", r#""\u0034""#] {
        assert_eq!(one(&format!(r#"{{"OP":{op}}}"#)), no_filter(), "{op}");
    }
    for op in [r#""5""#, "0", "-4", r#""lock""#, "4.5", r#"" 4""#, r#""44444""#] {
        assert_eq!(
            bad(&format!(r#"{{"OP":{op}}}"#)),
            "Unknown OP: 1 is lock, 2 unlock, 3 promote and 4 list!"
        );
    }
    for op in ["true", r#""""#, "[4]", r#"{"OP":"4"}"#, "1e999"] {
        assert_eq!(
            bad(&format!(r#"{{"OP":{op}}}"#)),
            "OP must be a string that is not empty!",
            "{op}"
        );
    }
    for json in ["{}", " { } ", r#"{"OP":null}"#, r#"{"op":"4"}"#] {
        assert_eq!(bad(json), "OP is missing!");
    }
}

#[test]
fn half_a_surrogate_pair_is_json_but_no_text() {
    let message = bad(&lock_with("name", Some(r#""\ud800""#)));
    assert!(message.starts_with("Bad request: "), "{message}");
    assert_eq!(locked(&lock_with("uuid", Some(r#""\ud83d\udd12""#))).uuid, "\u{1f512}");
}

#[test]
fn the_argument_must_be_an_array() {
    for argument in [
        None,
        Some("null"),
        Some(r#""A""#),
        Some("7"),
        Some("{}"),
        Some("false"),
        Some(r#""""#),
        Some(r#"{"0":"A","length":1}"#),
    ] {
        assert_eq!(bad(&lock_with("argument", argument)), "Lock argument must be array!");
    }
    assert_eq!(bad(r#"{"OP":"1","eleLock":{}}"#), "Lock argument must be array!");
}

#[test]
fn fields_keep_their_type_and_only_the_bare_at_sign_is_the_wildcard() {
    let fields = r#" [ "@" , "@@","\u0040","\\@","\\","",1,"1",1.0,1e3,-0,true,"true",false]"#;
    let lock = locked(&lock_with("argument", Some(fields)));
    let wanted = [
        ANY,
        "@@".into(),
        ANY,
        "\\@".into(),
        "\\".into(),
        "".into(),
        Field::Number("1"),
        "1".into(),
        Field::Number("1"),
        Field::Number("1000"),
        Field::Number("0"),
        Field::Bool(true),
        "true".into(),
        Field::Bool(false),
    ];
    assert_eq!(lock.resource.fields().collect::<Vec<_>>(), wanted);
    assert_eq!(
        locked(&lock_with("argument", Some("[]"))).resource,
        Resource::plain("tab1").unwrap()
    );
    for item in ["null", "[]", r#"["A"]"#, "{}", "1e999"] {
        let argument = format!(r#"["A",{item}]"#);
        assert_eq!(
            bad(&lock_with("argument", Some(&argument))),
            "Each item of a lock argument must be a string, number or boolean!"
        );
    }
}

#[test]
fn there_are_at_most_sixteen_fields_and_the_table_bounds_their_length() {
    let argument = |count| format!("[{}]", vec!["0"; count].join(","));
    assert_eq!(locked(&lock_with("argument", Some(&argument(16)))).resource.arity(), 16);
    let message = bad(&lock_with("argument", Some(&argument(17))));
    assert_eq!(message, "Bad lock: a resource has at most 16 fields!");
    assert_eq!(bad(&lock_with("argument", Some(&argument(50_000)))), message);
    let long = |length| format!("\"{}\"", "n".repeat(length));
    assert_eq!(locked(&lock_with("name", Some(&long(65_535)))).resource.name().len(), 65_535);
    let message = "Bad lock: a name or field is longer than 65,535 bytes!";
    assert_eq!(bad(&lock_with("name", Some(&long(65_536)))), message);
    let argument = format!("[{}]", long(65_536));
    assert_eq!(bad(&lock_with("argument", Some(&argument))), message);
}

#[test]
fn missing_and_wrong_members_of_a_lock_are_named() {
    for (member, json, message) in [
        ("name", None, "name is missing!"),
        ("name", Some("null"), "name is missing!"),
        ("name", Some(r#""""#), "name must be a string that is not empty!"),
        ("name", Some("5"), "name must be a string that is not empty!"),
        ("name", Some(r#"["tab1"]"#), "name must be a string that is not empty!"),
        ("mode", None, "mode is missing!"),
        ("mode", Some("null"), "mode is missing!"),
        ("mode", Some(r#""Z""#), "Unknown lock mode: there are S, E, X and O!"),
        ("mode", Some(r#""""#), "Unknown lock mode: there are S, E, X and O!"),
        ("mode", Some(r#""EE""#), "Unknown lock mode: there are S, E, X and O!"),
        ("mode", Some("1"), "Unknown lock mode: there are S, E, X and O!"),
        ("owner", Some("5"), "owner must be a string!"),
        ("owner", Some("true"), "owner must be a string!"),
        ("owner", Some("[]"), "owner must be a string!"),
        ("uuid", None, "uuid is missing!"),
        ("uuid", Some("null"), "uuid is missing!"),
        ("uuid", Some(r#""""#), "uuid must be a string that is not empty!"),
        ("uuid", Some("false"), "uuid must be a string that is not empty!"),
        ("uuid", Some("{}"), "uuid must be a string that is not empty!"),
    ] {
        assert_eq!(bad(&lock_with(member, json)), message, "{member} {json:?}");
    }
    for (json, message) in [
        (r#"{"OP":"1"}"#, "eleLock is missing!"),
        (r#"{"OP":"1","eleLock":null}"#, "eleLock is missing!"),
        (r#"{"OP":"1","eleLock":"tab1"}"#, "eleLock must be an object!"),
        (r#"{"OP":"1","eleLock":["tab1",["A"],"E",null,0,0,"1"]}"#, "eleLock must be an object!"),
    ] {
        assert_eq!(bad(json), message);
    }
}

#[test]
fn every_mode_has_its_letter() {
    for mode in Mode::ALL {
        let letter = format!("\"{}\"", mode.letter());
        assert_eq!(locked(&lock_with("mode", Some(&letter))).mode, mode);
    }
}

#[test]
fn a_falsy_owner_is_none() {
    for owner in [None, Some("null"), Some(r#""""#), Some("false"), Some("0"), Some("-0.0")] {
        assert_eq!(locked(&lock_with("owner", owner)).owner, None, "{owner:?}");
    }
}

#[test]
fn times_are_milliseconds_and_falsy_means_the_default() {
    let read = |json: Option<&str>| {
        let wait = locked(&lock_with("waitTime", json)).wait_ms;
        let timeout = locked(&lock_with("timeout", json)).timeout_ms;
        (wait, timeout)
    };
    for falsy in ["null", "0", "-0", "0.0e5", "false", r#""""#, r#""0""#, r#"" 0.0 ""#, "1e-400"] {
        assert_eq!(read(Some(falsy)), (0, 900_000), "{falsy}");
    }
    assert_eq!(read(None), (0, 900_000));
    for (json, ms) in [
        ("1", 1),
        ("1500", 1_500),
        ("1.5e3", 1_500),
        ("0.2", 1),
        ("10.01", 11),
        (r#""250""#, 250),
        (r#"" 2.5 ""#, 3),
        ("18446744073709551616", 9_007_199_254_740_991),
        ("1e999", 9_007_199_254_740_991),
        (r#""1e999""#, 9_007_199_254_740_991),
    ] {
        assert_eq!(read(Some(json)), (ms, ms), "{json}");
    }
    for json in
        ["-1", "-0.5", "-1e999", r#""-1""#, r#""NaN""#, r#""inf""#, r#""5s""#, "true", "[5]", "{}"]
    {
        for member in ["waitTime", "timeout"] {
            assert_eq!(
                bad(&lock_with(member, Some(json))),
                format!("{member} must be a number of milliseconds, 0 or more!")
            );
        }
    }
}

#[test]
fn a_uuid_may_be_a_number() {
    assert_eq!(locked(&lock_with("uuid", Some("7.0"))).uuid, "7");
    assert_eq!(one(r#"{"OP":2,"lockUUID":7}"#), Request::Unlock("7".into()));
    assert_eq!(one(r#"{"OP":3,"lockUUID":0}"#), Request::Promote("0".into()));
    for op in [2, 3] {
        for (uuid, message) in [
            (r#""x":1"#, "lockUUID is missing!"),
            (r#""lockUUID":null"#, "lockUUID is missing!"),
            (r#""lockUUID":"""#, "lockUUID must be a string that is not empty!"),
            (r#""lockUUID":[]"#, "lockUUID must be a string that is not empty!"),
        ] {
            assert_eq!(bad(&format!(r#"{{"OP":"{op}",{uuid}}}"#)), message);
        }
    }
}

#[test]
fn a_list_is_filtered_by_what_is_not_falsy() {
    let list = |name: &str, owner: &str| {
        one(&format!(r#"{{"OP":"4","lockName":{name},"lockOwner":{owner}}}"#))
    };
    let filter = |name: Option<&str>, owner: Option<&str>| {
        Request::List(Filter { name: name.map(Into::into), owner: owner.map(Into::into) })
    };
    assert_eq!(list(r#""tab1""#, r#""O_1""#), filter(Some("tab1"), Some("O_1")));
    assert_eq!(list(r#""""#, r#""O_1""#), filter(None, Some("O_1")));
    assert_eq!(list(r#""tab1""#, "false"), filter(Some("tab1"), None));
    assert_eq!(list("0", "null"), filter(None, None));
    assert_eq!(bad(r#"{"OP":"4","lockName":5}"#), "lockName must be a string!");
    assert_eq!(bad(r#"{"OP":"4","lockOwner":["O_1"]}"#), "lockOwner must be a string!");
    let query = Filter { name: Some("tab1".into()), owner: None }.into_query();
    assert_eq!(
        query,
        LocksQuery { name: Some("tab1".into()), waiters: true, ..Default::default() }
    );
}

#[test]
fn a_lock_becomes_a_command_that_the_table_knows_by_its_uuid() {
    let lock = Lock { wait_ms: 7, ..the_lock() };
    let ask = lock.clone().into_acquire("made-here".into(), "10.0.0.1:5");
    assert_eq!(ask.id, "made-here".into());
    assert_eq!(ask.part, Part::new(lock.resource.clone(), Mode::Cumulative));
    assert_eq!(ask.party, Party::owner("O_1"));
    assert_eq!((ask.wait_ms, ask.lease_ms), (7, 900_000));
    assert!(ask.also.is_empty() && !ask.detect);
    let anonymous = Lock { owner: None, uuid: "1_2".into(), ..lock };
    let other = anonymous.into_acquire("other".into(), "10.0.0.1:5");
    assert_eq!(other.party, Party::client("10.0.0.1:5"));
    assert_eq!(other.extra.alias(), Some("1_2"));

    let mut table = Table::new(Settings::default(), 0, 42);
    assert!(matches!(table.apply(1, Command::Acquire(ask)).reply, Reply::Granted(_)));
    let target = Target::Alias("16568_1".into());
    assert_eq!(table.apply(2, Command::Release(target)).reply, Reply::Released);
}
