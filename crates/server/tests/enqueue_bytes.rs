//! The enqueue protocol's page, row by row: these bytes in, exactly those bytes out. What happens
//! over time (waiting, hand-over, connections that go away) is in `enqueue.rs`.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::Running;

fn connect(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.addresses.enqueue.unwrap()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// All that is said to these bytes on a connection of their own, until the server has no more to say.
fn answer(server: &Running, segments: &[&[u8]]) -> Vec<u8> {
    let mut stream = connect(server);
    for segment in segments {
        stream.write_all(segment).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The JSON of a list, its length checked, and its timestamps checked and shown as `T`.
fn without_times(bytes: &[u8]) -> Vec<u8> {
    let (length, json) = bytes.split_at(4);
    let length = u32::from_le_bytes(length.try_into().unwrap());
    assert_eq!(length as usize, json.len(), "{}", json.escape_ascii());
    let text = std::str::from_utf8(json).unwrap();
    let mut parts = text.split(r#""timestamp":""#);
    let mut out = parts.next().unwrap().to_string();
    for part in parts {
        let (time, rest) = part.split_once('"').unwrap();
        assert!(is_time(time), "{time}");
        out += r#""timestamp":"T""#;
        out += rest;
    }
    out.into_bytes()
}

/// `11/15/2026, 6:08:46 PM`.
fn is_time(text: &str) -> bool {
    let digits = |text: &str, most| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let Some((date, time)) = text.split_once(", ") else { return false };
    let Some((time, "AM" | "PM")) = time.split_once(' ') else { return false };
    let (date, time): (Vec<_>, Vec<_>) = (date.split('/').collect(), time.split(':').collect());
    matches!(&date[..], [month, day, year] if digits(month, 2) && digits(day, 2) && year.len() == 4)
        && matches!(&time[..], [hour, minute, second]
            if digits(hour, 2) && minute.len() == 2 && second.len() == 2)
}

const LIST: &[u8] = br#"{"OP":"4","lockName":null,"lockOwner":null}"#;
const EMPTY: &[u8] = b"\x02\x00\x00\x00[]";

/// Asked one after the other, each on a connection of its own, as the client does it.
const ROWS: &[(&str, &str)] = &[
    // The page's own lock; who it refuses, and whom it names.
    (
        r#"{"OP":"1","eleLock":{"name":"tab1","argument":["A","@"],"mode":"E","owner":"O_1","waitTime":0,"timeout":0,"uuid":"16568_1"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"tab1","argument":["A","B"],"mode":"E","owner":"O_2","waitTime":0,"timeout":0,"uuid":"16568_2"}}"#,
        r#"{"RC":"1","OWNER":"O_1"}"#,
    ),
    // A refused lock leaves no uuid behind; a live one is taken.
    (r#"{"OP":"2","lockUUID":"16568_2"}"#, r#"{"RC":"4","MSG":"The lock does not exist!"}"#),
    (
        r#"{"OP":"1","eleLock":{"name":"other","argument":[],"mode":"E","owner":"O_2","uuid":"16568_1"}}"#,
        r#"{"RC":"4","MSG":"Lock already exists!"}"#,
    ),
    // Without fields that may be left out, or with falsy ones; `OWNER` of one that has none is
    // what is shown instead, so it is not here.
    (
        r#"{"OP":"1","eleLock":{"name":"tab2","argument":[],"mode":"X","owner":"O_1","uuid":"3"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"tab2","argument":[],"mode":"S","owner":null,"waitTime":null,"timeout":false,"uuid":"4"}}"#,
        r#"{"RC":"1","OWNER":"O_1"}"#,
    ),
    // Fields are compared strictly; only the bare at sign is the wildcard.
    (
        r#"{"OP":"1","eleLock":{"name":"typed","argument":[1],"mode":"X","owner":"n","uuid":"n"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"typed","argument":["1"],"mode":"X","owner":"s","uuid":"s"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"typed","argument":[1.0],"mode":"X","owner":"n","uuid":"m"}}"#,
        r#"{"RC":"1","OWNER":"n"}"#,
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"typed","argument":["@@"],"mode":"X","owner":"a","uuid":"a"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"typed","argument":["@"],"mode":"X","owner":"w","uuid":"w"}}"#,
        r#"{"RC":"1","OWNER":"n"}"#,
    ),
    // Unlock, and again.
    (r#"{"OP":"2","lockUUID":"16568_1"}"#, r#"{"RC":"0"}"#),
    (r#"{"OP":"2","lockUUID":"16568_1"}"#, r#"{"RC":"4","MSG":"The lock does not exist!"}"#),
    (r#"{"OP":"2","lockUUID":"3"}"#, r#"{"RC":"0"}"#),
    (r#"{"OP":"2","lockUUID":"n"}"#, r#"{"RC":"0"}"#),
    (r#"{"OP":"2","lockUUID":"s"}"#, r#"{"RC":"0"}"#),
    (r#"{"OP":"2","lockUUID":"a"}"#, r#"{"RC":"0"}"#),
    // Promotion: done, too late, unknown, refused by another, and of what never can be.
    (
        r#"{"OP":"1","eleLock":{"name":"o","argument":["A"],"mode":"O","owner":"O_1","uuid":"16568_4"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"o","argument":["@"],"mode":"O","owner":"O_2","uuid":"16568_5"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (r#"{"OP":"3","lockUUID":"16568_4"}"#, r#"{"RC":"0"}"#),
    (r#"{"OP":"3","lockUUID":"16568_4"}"#, r#"{"RC":"0"}"#),
    (r#"{"OP":"3","lockUUID":"16568_5"}"#, r#"{"RC":"2"}"#),
    (r#"{"OP":"3","lockUUID":"nobody"}"#, r#"{"RC":"2"}"#),
    (r#"{"OP":"2","lockUUID":"16568_5"}"#, r#"{"RC":"4","MSG":"The lock does not exist!"}"#),
    (r#"{"OP":"2","lockUUID":"16568_4"}"#, r#"{"RC":"0"}"#),
    (
        r#"{"OP":"1","eleLock":{"name":"s","argument":[],"mode":"S","owner":"O_1","uuid":"6"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"s","argument":[],"mode":"S","owner":"O_\"2\"","uuid":"7"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (r#"{"OP":"3","lockUUID":"6"}"#, r#"{"RC":"2","OWNER":"O_\"2\"","MSG":"O_\"2\""}"#),
    (r#"{"OP":"2","lockUUID":"7"}"#, r#"{"RC":"0"}"#),
    (r#"{"OP":"3","lockUUID":"6"}"#, r#"{"RC":"0"}"#),
    (r#"{"OP":"2","lockUUID":"6"}"#, r#"{"RC":"0"}"#),
    (
        r#"{"OP":"1","eleLock":{"name":"x","argument":[],"mode":"X","owner":"O_1","uuid":"8"}}"#,
        r#"{"RC":"0"}"#,
    ),
    (
        r#"{"OP":"3","lockUUID":"8"}"#,
        r#"{"RC":"4","MSG":"only a lock taken as O or S can be promoted; this one was not"}"#,
    ),
    (r#"{"OP":"2","lockUUID":"8"}"#, r#"{"RC":"0"}"#),
];

#[test]
fn each_row_of_the_page_has_its_bytes() {
    let server = Running::start();
    for (at, (request, reply)) in ROWS.iter().enumerate() {
        let got = answer(&server, &[request.as_bytes()]);
        assert_eq!(
            got.escape_ascii().to_string(),
            reply.as_bytes().escape_ascii().to_string(),
            "row {at}: {request}"
        );
    }
    assert_eq!(answer(&server, &[LIST]), EMPTY, "every row tidied up");
}

#[test]
fn each_mode_beside_each_is_as_the_table_says() {
    let server = Running::start();
    let lock = |uuid: &str, mode: char, owner: &str| {
        format!(
            r#"{{"OP":"1","eleLock":{{"name":"t","argument":["A"],"mode":"{mode}","owner":"{owner}","uuid":"{uuid}"}}}}"#
        )
    };
    for held in ['S', 'E', 'X', 'O'] {
        for asked in ['S', 'E', 'X', 'O'] {
            for owner in ["O_1", "O_2"] {
                let granted = match (held, asked) {
                    ('S', 'S') | ('O', 'O') => true,
                    ('E', 'E') => owner == "O_1",
                    _ => false,
                };
                let (first, second) = (lock("1", held, "O_1"), lock("2", asked, owner));
                let unlock = r#"{"OP":"2","lockUUID":"1"}{"OP":"2","lockUUID":"2"}"#;
                let wanted = if granted {
                    r#"{"RC":"0"}{"RC":"0"}{"RC":"0"}{"RC":"0"}"#
                } else {
                    r#"{"RC":"0"}{"RC":"1","OWNER":"O_1"}{"RC":"0"}{"RC":"4","MSG":"The lock does not exist!"}"#
                };
                let got =
                    answer(&server, &[first.as_bytes(), second.as_bytes(), unlock.as_bytes()]);
                assert_eq!(String::from_utf8(got).unwrap(), wanted, "{asked} of {owner} on {held}");
            }
        }
    }
}

#[test]
fn a_list_is_filtered_and_shows_what_counts() {
    let server = Running::start();
    for request in [
        r#"{"OP":"1","eleLock":{"name":"tab1","argument":["A","@"],"mode":"E","owner":"O_1","waitTime":0,"timeout":0,"uuid":"1_1"}}"#,
        r#"{"OP":"1","eleLock":{"name":"tab1","argument":[7,true,"a,b"],"mode":"S","owner":"O_2","waitTime":"250","timeout":60000,"uuid":"1_2"}}"#,
        r#"{"OP":"1","eleLock":{"name":"täb","argument":[],"mode":"O","owner":"O_1","timeout":"1.5e4","uuid":5}}"#,
    ] {
        assert_eq!(answer(&server, &[request.as_bytes()]), br#"{"RC":"0"}"#);
    }
    let one = r#"{"uuid":"1_1","name":"tab1","argument":"A,@","mode":"E","owner":"O_1","waitTime":0,"timeout":900000,"timestamp":"T"}"#;
    let two = r#"{"uuid":"1_2","name":"tab1","argument":"7,true,a,b","mode":"S","owner":"O_2","waitTime":250,"timeout":60000,"timestamp":"T"}"#;
    let three = r#"{"uuid":"5","name":"täb","argument":"","mode":"O","owner":"O_1","waitTime":0,"timeout":15000,"timestamp":"T"}"#;
    for (filter, wanted) in [
        (r#","lockName":null,"lockOwner":null"#, vec![one, two, three]),
        ("", vec![one, two, three]),
        (r#","lockName":"","lockOwner":0"#, vec![one, two, three]),
        (r#","lockName":"tab1","lockOwner":null"#, vec![one, two]),
        (r#","lockName":null,"lockOwner":"O_1""#, vec![one, three]),
        (r#","lockName":"tab1","lockOwner":"O_1""#, vec![one]),
        (r#","lockName":"t\u00e4b","lockOwner":"O_2""#, vec![]),
        (r#","lockName":"tab""#, vec![]),
    ] {
        let got = answer(&server, &[format!(r#"{{"OP":"4"{filter}}}"#).as_bytes()]);
        let got = String::from_utf8(without_times(&got)).unwrap();
        assert_eq!(got, format!("[{}]", wanted.join(",")), "{filter}");
    }
}

/// JSON that asks for nothing we know. The connection goes on.
const REFUSED: &[(&str, &str)] = &[
    ("null", "A request must be a JSON object!"),
    ("true", "A request must be a JSON object!"),
    ("42", "A request must be a JSON object!"),
    (r#""OP""#, "A request must be a JSON object!"),
    ("[]", "A request must be a JSON object!"),
    (r#"[{"OP":"4"}]"#, "A request must be a JSON object!"),
    ("{}", "OP is missing!"),
    (r#"{"OP":null}"#, "OP is missing!"),
    (r#"{"op":"4"}"#, "OP is missing!"),
    (r#"{"OP":""}"#, "OP must be a string that is not empty!"),
    (r#"{"OP":["4"]}"#, "OP must be a string that is not empty!"),
    (r#"{"OP":"0"}"#, "Unknown OP: 1 is lock, 2 unlock, 3 promote and 4 list!"),
    (r#"{"OP":"5"}"#, "Unknown OP: 1 is lock, 2 unlock, 3 promote and 4 list!"),
    (r#"{"OP":"lock"}"#, "Unknown OP: 1 is lock, 2 unlock, 3 promote and 4 list!"),
    (r#"{"OP":"2","OP":"3"}"#, "OP is given twice!"),
    (r#"{"OP":"1"}"#, "eleLock is missing!"),
    (r#"{"OP":"1","eleLock":null}"#, "eleLock is missing!"),
    (r#"{"OP":"1","eleLock":"tab1"}"#, "eleLock must be an object!"),
    (r#"{"OP":"1","eleLock":[]}"#, "eleLock must be an object!"),
    (r#"{"OP":"1","eleLock":{}}"#, "Lock argument must be array!"),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":"A","mode":"E","uuid":"1"}}"#,
        "Lock argument must be array!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":null,"mode":"E","uuid":"1"}}"#,
        "Lock argument must be array!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":{"0":"A"},"mode":"E","uuid":"1"}}"#,
        "Lock argument must be array!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":[null],"mode":"E","uuid":"1"}}"#,
        "Each item of a lock argument must be a string, number or boolean!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":[["A"]],"mode":"E","uuid":"1"}}"#,
        "Each item of a lock argument must be a string, number or boolean!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"mode":"E","uuid":"1"}}"#,
        "Bad lock: a resource has at most 16 fields!",
    ),
    (r#"{"OP":"1","eleLock":{"argument":[],"mode":"E","uuid":"1"}}"#, "name is missing!"),
    (
        r#"{"OP":"1","eleLock":{"name":"","argument":[],"mode":"E","uuid":"1"}}"#,
        "name must be a string that is not empty!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":5,"argument":[],"mode":"E","uuid":"1"}}"#,
        "name must be a string that is not empty!",
    ),
    (r#"{"OP":"1","eleLock":{"name":"t","argument":[],"uuid":"1"}}"#, "mode is missing!"),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":[],"mode":"Z","uuid":"1"}}"#,
        "Unknown lock mode: there are S, E, X and O!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":[],"mode":1,"uuid":"1"}}"#,
        "Unknown lock mode: there are S, E, X and O!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":[],"mode":"E","owner":5,"uuid":"1"}}"#,
        "owner must be a string!",
    ),
    (r#"{"OP":"1","eleLock":{"name":"t","argument":[],"mode":"E"}}"#, "uuid is missing!"),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":[],"mode":"E","uuid":""}}"#,
        "uuid must be a string that is not empty!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":[],"mode":"E","waitTime":-1,"uuid":"1"}}"#,
        "waitTime must be a number of milliseconds, 0 or more!",
    ),
    (
        r#"{"OP":"1","eleLock":{"name":"t","argument":[],"mode":"E","timeout":"soon","uuid":"1"}}"#,
        "timeout must be a number of milliseconds, 0 or more!",
    ),
    (r#"{"OP":"2"}"#, "lockUUID is missing!"),
    (r#"{"OP":"2","lockUUID":null}"#, "lockUUID is missing!"),
    (r#"{"OP":"2","lockUUID":""}"#, "lockUUID must be a string that is not empty!"),
    (r#"{"OP":"3"}"#, "lockUUID is missing!"),
    (r#"{"OP":"3","lockUUID":{}}"#, "lockUUID must be a string that is not empty!"),
    (r#"{"OP":"4","lockName":5}"#, "lockName must be a string!"),
    (r#"{"OP":"4","lockOwner":["O_1"]}"#, "lockOwner must be a string!"),
];

/// Bytes that are not JSON, or too much of it. The rest of the connection is discarded.
const MALFORMED: &[(&[u8], &str)] = &[
    (b"x", "The request is not JSON!"),
    (b"}", "The request is not JSON!"),
    (b"GET / HTTP/1.1\r\n\r\n", "The request is not JSON!"),
    (b"*1\r\n$4\r\nPING\r\n", "The request is not JSON!"),
    (b"\0", "The request is not JSON!"),
    (b"\xef\xbb\xbf", "The request is not JSON!"),
    (b"{OP:\"4\"}", "The request is not JSON!"),
    (b"{'OP':'4'}", "The request is not JSON!"),
    (b"{\"OP\":\"4\",}", "The request is not JSON!"),
    (b"{\"OP\":\"4\"]", "The request is not JSON!"),
    (b"{\"OP\":04}", "The request is not JSON!"),
    (b"{\"OP\":NaN}", "The request is not JSON!"),
    (b"{\"OP\":\"4\",\"x\":\"\xff\"}", "The request is not JSON!"),
    (b"{\"OP\":\"\n\"}", "The request is not JSON!"),
    (b"nul ", "The request is not JSON!"),
];

fn rc4(message: &str) -> Vec<u8> {
    let quoted = message.replace('"', "\\\"");
    format!(r#"{{"RC":"4","MSG":"{quoted}"}}"#).into_bytes()
}

#[test]
fn what_asks_for_nothing_known_is_answered_and_the_connection_goes_on() {
    let server = Running::start();
    for (request, message) in REFUSED {
        let wanted = [rc4(message), EMPTY.to_vec()].concat();
        for between in [&b" "[..], b"\r\n"] {
            let got = answer(&server, &[request.as_bytes(), between, LIST]);
            assert_eq!(
                got.escape_ascii().to_string(),
                wanted.escape_ascii().to_string(),
                "{request}"
            );
        }
    }
}

#[test]
fn after_bytes_that_are_not_json_the_rest_of_the_connection_is_discarded() {
    let server = Running::start();
    let lock = br#"{"OP":"1","eleLock":{"name":"good","argument":[],"mode":"X","owner":"O_1","uuid":"1"}}"#;
    let mut other = connect(&server);
    other.write_all(lock).unwrap();
    let mut room = [0; 64];
    assert_eq!(other.read(&mut room).unwrap(), 10);
    let deep = [b"[".repeat(1_000), b"]".repeat(1_000)].concat();
    let mut malformed = MALFORMED.to_vec();
    malformed.push((&deep, "The request is nested deeper than 64!"));
    for (bytes, message) in malformed {
        let shown = bytes[..bytes.len().min(40)].escape_ascii();
        let unlock = br#"{"OP":"2","lockUUID":"1"}"#;
        assert_eq!(answer(&server, &[bytes, unlock]), rc4(message), "{shown}");
        // What came before it is carried out.
        let wanted = [EMPTY, &rc4(message)[..]].concat();
        let got = answer(&server, &[br#"{"OP":"4","lockName":"none"}"#, bytes, unlock, unlock]);
        assert_eq!(got.escape_ascii().to_string(), wanted.escape_ascii().to_string(), "{shown}");
    }
    let long = [&b"{\"OP\":\""[..], &b"4".repeat(200_000), b"\"}", LIST].concat();
    let mut stream = connect(&server);
    stream.write_all(&long).unwrap();
    let wanted = rc4("The request is longer than 131072 bytes!");
    let mut got = vec![0; wanted.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(got, wanted);
    // The lock and the other connection are unharmed.
    other.write_all(br#"{"OP":"2","lockUUID":"1"}"#).unwrap();
    let count = other.read(&mut room).unwrap();
    assert_eq!(&room[..count], br#"{"RC":"0"}"#);
}

#[test]
fn a_request_that_is_cut_is_answered() {
    let server = Running::start();
    let whole = ROWS[0].0.as_bytes();
    for at in 1..whole.len() {
        let got = answer(&server, &[&whole[..at]]);
        assert_eq!(got, rc4("The request ends too early!"), "after {at} bytes");
    }
    assert_eq!(answer(&server, &[b""]), b"", "nothing was asked");
    assert_eq!(answer(&server, &[b" \r\n\t "]), b"", "nothing was asked");
    assert_eq!(answer(&server, &[LIST]), EMPTY, "and nothing was done");
}

#[test]
fn one_request_may_come_in_any_two_segments() {
    let server = Running::start();
    let (lock, unlock) = (ROWS[0].0, r#"{"OP":"2","lockUUID":"16568_1"}"#);
    let both = format!("{lock}{unlock}");
    for at in 1..both.len() {
        let (first, second) = both.as_bytes().split_at(at);
        let mut stream = connect(&server);
        stream.write_all(first).unwrap();
        // So that the server sees them apart, most times.
        std::thread::sleep(Duration::from_millis(1));
        stream.write_all(second).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert_eq!(got, br#"{"RC":"0"}{"RC":"0"}"#, "split at {at}");
    }
}

#[test]
fn the_server_never_closes_first() {
    let server = Running::start();
    let mut stream = connect(&server);
    for request in [LIST, b"null ", LIST, b"nonsense"] {
        stream.write_all(request).unwrap();
        let mut room = [0; 256];
        assert!(stream.read(&mut room).unwrap() > 0);
    }
    stream.write_all(LIST).unwrap();
    // Another one is served meanwhile, and this one is neither answered nor closed.
    assert_eq!(answer(&server, &[LIST]), EMPTY);
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let silent = stream.read(&mut [0]).unwrap_err();
    assert!(matches!(silent.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut));
}
