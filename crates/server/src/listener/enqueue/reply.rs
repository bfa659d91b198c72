//! Replies to bytes, for the enqueue listener. Each function appends one whole reply to `out`. The
//! client parses the *first* chunk it receives, so each must leave in one write; and it waits for
//! ever, so each request must get one.

use keylatch_table::{Entry, Field, Mode, Resource};
use serde::Serialize;

use crate::clock::date;

/// What unlocking or promoting an unknown uuid is told, with RC 4.
pub(crate) const DOES_NOT_EXIST: &str = "The lock does not exist!";

/// What a second live lock under one uuid is told, with RC 4.
pub(crate) const ALREADY_EXISTS: &str = "Lock already exists!";

/// Members in the order in which they are written.
#[derive(Default, Serialize)]
struct Reply<'a> {
    #[serde(rename = "RC")]
    code: &'static str,
    #[serde(rename = "OWNER", skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(rename = "MSG", skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

/// RC 0: done.
pub(crate) fn ok(out: &mut Vec<u8>) {
    // Nearly every answer.
    out.extend_from_slice(br#"{"RC":"0"}"#);
}

/// RC 1: a lock is refused because of one of this owner, if it has one.
pub(crate) fn refused(out: &mut Vec<u8>, owner: Option<&str>) {
    write(out, &Reply { code: "1", owner, message: None });
}

/// RC 2: a promotion is refused because of a lock of this owner, if it has one. The client hands on
/// only `MSG`, so the owner stands there too.
pub(crate) fn promote_refused(out: &mut Vec<u8>, owner: Option<&str>) {
    write(out, &Reply { code: "2", owner, message: owner });
}

/// RC 4: nothing was done, and why.
pub(crate) fn error(out: &mut Vec<u8>, message: &str) {
    write(out, &Reply { code: "4", owner: None, message: Some(message) });
}

/// One lock of a list, held or waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListEntry<'a> {
    /// Its alias; locks taken elsewhere have none, and their ids are not for everyone.
    pub(crate) uuid: Option<&'a str>,
    /// What is locked.
    pub(crate) resource: &'a Resource,
    /// How.
    pub(crate) mode: Mode,
    /// Whose it is, as shown.
    pub(crate) owner: Option<&'a str>,
    /// The wait it asked for.
    pub(crate) wait_ms: u64,
    /// The lease it asked for.
    pub(crate) timeout_ms: u64,
    /// When it arrived, in Unix time.
    pub(crate) arrived_unix_ms: u64,
}

impl<'a> ListEntry<'a> {
    /// An entry of the table; its own times are table time, which the caller translates.
    pub(crate) fn new(entry: &'a Entry, arrived_unix_ms: u64) -> ListEntry<'a> {
        ListEntry {
            uuid: entry.alias.as_deref(),
            resource: &entry.resource,
            mode: entry.mode,
            owner: entry.explicit.then_some(&entry.owner),
            wait_ms: entry.wait_ms,
            timeout_ms: entry.lease_asked_ms,
            arrived_unix_ms,
        }
    }
}

/// A [`ListEntry`] as it is written, in this order.
#[derive(Serialize)]
struct Row<'a> {
    uuid: Option<&'a str>,
    name: &'a str,
    argument: String,
    mode: &'static str,
    owner: Option<&'a str>,
    #[serde(rename = "waitTime")]
    wait_ms: u64,
    #[serde(rename = "timeout")]
    timeout_ms: u64,
    timestamp: String,
}

/// A list: the number of its bytes as a little-endian `u32`, then a JSON array.
///
/// The format ends at 4 GiB: entries from the first that would pass it are left out, because a
/// wrong length would be worse.
pub(crate) fn list<'a>(out: &mut Vec<u8>, entries: impl IntoIterator<Item = ListEntry<'a>>) {
    list_within(out, u32::MAX, entries);
}

fn list_within<'a>(out: &mut Vec<u8>, most: u32, entries: impl IntoIterator<Item = ListEntry<'a>>) {
    let prefix = out.len();
    out.extend_from_slice(&[0; 4]);
    let start = out.len();
    out.push(b'[');
    for entry in entries {
        let before = out.len();
        if before > start + 1 {
            out.push(b',');
        }
        write(out, &row(&entry));
        // One more byte for the bracket.
        if u32::try_from(out.len() - start).map_or(true, |length| length >= most) {
            out.truncate(before);
            break;
        }
    }
    out.push(b']');
    let length = u32::try_from(out.len() - start).expect("every entry was checked");
    out[prefix..start].copy_from_slice(&length.to_le_bytes());
}

fn row<'a>(entry: &ListEntry<'a>) -> Row<'a> {
    Row {
        uuid: entry.uuid,
        name: entry.resource.name(),
        argument: argument(entry.resource),
        mode: entry.mode.letter(),
        owner: entry.owner,
        wait_ms: entry.wait_ms,
        timeout_ms: entry.timeout_ms,
        timestamp: timestamp(entry.arrived_unix_ms),
    }
}

/// The fields joined by commas, as JavaScript joins an array. This protocol has no escape.
fn argument(resource: &Resource) -> String {
    let text = |field| match field {
        Field::Any => "@",
        Field::Text(text) | Field::Number(text) => text,
        Field::Bool(true) => "true",
        Field::Bool(false) => "false",
    };
    resource.fields().map(text).collect::<Vec<_>>().join(",")
}

/// `11/15/2026, 6:08:46 PM`, in UTC: the original writes `toLocaleString()` of an English server.
fn timestamp(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let half = if hour < 12 { "AM" } else { "PM" };
    let hour = if hour % 12 == 0 { 12 } else { hour % 12 };
    format!("{month}/{day}/{year}, {hour}:{minute:02}:{second:02} {half}")
}

fn write(out: &mut Vec<u8>, json: &impl Serialize) {
    serde_json::to_writer(out, json).expect("memory takes every byte, and keys are strings");
}

#[cfg(test)]
mod tests {
    use keylatch_table::Table;
    use keylatch_table::{Acquire, Answer, Command, Extra, LocksQuery, Party, Query, Settings};

    use super::*;

    fn text(reply: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        reply(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn listed(entries: &[ListEntry<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        list(&mut out, entries.iter().cloned());
        out
    }

    #[test]
    fn every_reply_has_exactly_its_bytes() {
        assert_eq!(text(ok), r#"{"RC":"0"}"#);
        assert_eq!(text(|out| refused(out, Some("O_1"))), r#"{"RC":"1","OWNER":"O_1"}"#);
        assert_eq!(text(|out| refused(out, None)), r#"{"RC":"1"}"#);
        assert_eq!(
            text(|out| promote_refused(out, Some("O_1"))),
            r#"{"RC":"2","OWNER":"O_1","MSG":"O_1"}"#
        );
        assert_eq!(text(|out| promote_refused(out, None)), r#"{"RC":"2"}"#);
        assert_eq!(
            text(|out| error(out, DOES_NOT_EXIST)),
            r#"{"RC":"4","MSG":"The lock does not exist!"}"#
        );
        assert_eq!(
            text(|out| error(out, ALREADY_EXISTS)),
            r#"{"RC":"4","MSG":"Lock already exists!"}"#
        );
    }

    #[test]
    fn replies_are_appended() {
        let mut out = b"before".to_vec();
        ok(&mut out);
        list(&mut out, []);
        assert_eq!(out, b"before{\"RC\":\"0\"}\x02\0\0\0[]");
    }

    #[test]
    fn text_is_escaped_so_that_it_reads_back() {
        let odd = "a\"b\\c\n\t\u{0}\u{1f}\u{7f}/\u{e9}\u{1f512}\u{2028}";
        let reply = text(|out| refused(out, Some(odd)));
        assert!(reply.starts_with(r#"{"RC":"1","OWNER":"a\"b\\c\n\t\u0000\u001f"#));
        let read: serde_json::Value = serde_json::from_str(&reply).unwrap();
        assert_eq!(read["OWNER"], odd);
    }

    #[test]
    fn the_empty_list_is_six_bytes() {
        assert_eq!(listed(&[]), [2, 0, 0, 0, 0x5b, 0x5d]);
    }

    #[test]
    fn a_list_entry_has_its_members_in_order() {
        let fields = ["A".into(), Field::Any];
        let resource = Resource::new("tab1", &fields).unwrap();
        let typed = [Field::Number("1"), Field::Bool(true), Field::Bool(false), "\\@".into()];
        let typed = Resource::new("t\"", &typed).unwrap();
        let entries = [
            ListEntry {
                uuid: Some("16568_1"),
                resource: &resource,
                mode: Mode::Cumulative,
                owner: Some("O_1"),
                wait_ms: 0,
                timeout_ms: 900_000,
                arrived_unix_ms: 1_794_766_126_789,
            },
            ListEntry {
                uuid: None,
                resource: &typed,
                mode: Mode::Shared,
                owner: None,
                wait_ms: 5,
                timeout_ms: 0,
                arrived_unix_ms: 0,
            },
        ];
        let first = concat!(
            r#"{"uuid":"16568_1","name":"tab1","argument":"A,@","mode":"E","owner":"O_1","#,
            r#""waitTime":0,"timeout":900000,"timestamp":"11/15/2026, 6:08:46 PM"}"#
        );
        let second = concat!(
            r#"{"uuid":null,"name":"t\"","argument":"1,true,false,\\@","mode":"S","owner":null,"#,
            r#""waitTime":5,"timeout":0,"timestamp":"1/1/1970, 12:00:00 AM"}"#
        );
        let one = format!("[{first}]");
        let both = format!("[{first},{second}]");
        for (entries, json) in [(&entries[..1], one), (&entries[..], both)] {
            let length = u32::try_from(json.len()).unwrap().to_le_bytes();
            assert_eq!(listed(entries), [&length, json.as_bytes()].concat());
        }
    }

    #[test]
    fn an_entry_of_the_table_is_listed_with_what_it_asked_for() {
        let resource = Resource::plain("tab1").unwrap();
        let extra = Extra { alias: Some("1_2".into()), ..Extra::default() };
        let ask = Acquire {
            wait_ms: 7,
            lease_ms: 900_000,
            extra: extra.into(),
            ..Acquire::new("made-here".into(), resource.clone(), Party::owner("O_1"))
        };
        let mut table = Table::new(Settings::default(), 0, 42);
        table.apply(1_000, Command::Acquire(ask));
        let Answer::Entries(entries) = table.query(5_000, &Query::Locks(LocksQuery::default()))
        else {
            panic!("entries were asked for");
        };
        let wanted = ListEntry {
            uuid: Some("1_2"),
            resource: &resource,
            mode: Mode::Exclusive,
            owner: Some("O_1"),
            wait_ms: 7,
            timeout_ms: 900_000,
            arrived_unix_ms: 1_000,
        };
        assert_eq!(ListEntry::new(&entries[0], entries[0].arrived), wanted);
    }

    #[test]
    fn the_length_counts_bytes_and_not_characters() {
        let resource = Resource::plain("\u{1f512}").unwrap();
        let bytes = listed(&[ListEntry {
            uuid: Some("1"),
            resource: &resource,
            mode: Mode::Exclusive,
            owner: None,
            wait_ms: 0,
            timeout_ms: 1,
            arrived_unix_ms: 0,
        }]);
        let length = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        assert_eq!(length as usize, bytes.len() - 4);
        assert!(std::str::from_utf8(&bytes[4..]).unwrap().contains(r#""name":"🔒","argument":"""#));
    }

    #[test]
    fn a_list_that_its_length_cannot_hold_ends_before() {
        let resource = Resource::plain("n").unwrap();
        let entry = ListEntry {
            uuid: Some("1"),
            resource: &resource,
            mode: Mode::Exclusive,
            owner: None,
            wait_ms: 0,
            timeout_ms: 1,
            arrived_unix_ms: 0,
        };
        let two = u32::try_from(listed(&[entry.clone(), entry.clone()]).len() - 4).unwrap();
        for (most, count) in [(two, 2), (two - 1, 1), (two / 2, 0), (2, 0)] {
            let mut out = Vec::new();
            list_within(&mut out, most, [entry.clone(), entry.clone()]);
            let length = u32::from_le_bytes(out[..4].try_into().unwrap());
            assert_eq!(length as usize, out.len() - 4);
            assert!(length <= most);
            let read: Vec<serde_json::Value> = serde_json::from_slice(&out[4..]).unwrap();
            assert_eq!(read.len(), count, "{most}");
        }
    }

    #[test]
    fn timestamps_are_those_of_an_english_clock() {
        for (unix_s, shown) in [
            (0, "1/1/1970, 12:00:00 AM"),
            (59 * 60 + 59, "1/1/1970, 12:59:59 AM"),
            (3_600, "1/1/1970, 1:00:00 AM"),
            (12 * 3_600 - 1, "1/1/1970, 11:59:59 AM"),
            (12 * 3_600, "1/1/1970, 12:00:00 PM"),
            (13 * 3_600 + 5, "1/1/1970, 1:00:05 PM"),
            (86_399, "1/1/1970, 11:59:59 PM"),
            (951_782_400, "2/29/2000, 12:00:00 AM"),
            (1_709_164_800, "2/29/2024, 12:00:00 AM"),
            (1_735_689_599, "12/31/2024, 11:59:59 PM"),
            (1_794_766_126, "11/15/2026, 6:08:46 PM"),
            (4_107_542_400, "3/1/2100, 12:00:00 AM"),
            (253_402_300_799, "12/31/9999, 11:59:59 PM"),
        ] {
            assert_eq!(timestamp(unix_s * 1_000), shown);
            assert_eq!(timestamp(unix_s * 1_000 + 999), shown);
        }
        assert!(timestamp(u64::MAX).ends_with("PM") || timestamp(u64::MAX).ends_with("AM"));
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for number in 0..400_000 {
            assert_eq!(date(number), (year, month, day));
            let days = match month {
                2 => 28 + u64::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > days {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }
}
