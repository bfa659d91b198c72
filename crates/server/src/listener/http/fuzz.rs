//! The body of the fuzz target `http`: head, path, query, JSON and ids, down to the table and back.
//! It panics if it finds something wrong.

use keylatch_table::{Command, Reply, Settings, Table, TaskReply};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::{HEAD_BYTES, Session, write_answer, write_answers, write_found};
use crate::listener::resp::Changes;
use crate::listener::{Answer, Ask, Read};
use crate::metrics::Syncs;
use crate::turn::Context;

/// However the bytes come, the same is asked and answered, and each answer is one of HTTP. The first
/// byte of the input says how the rest is cut into pieces.
pub fn fuzz(input: &[u8]) {
    let Some((&seed, bytes)) = input.split_first() else { return };
    // Half of the inputs are near the bound.
    let frame_bytes = if seed.is_multiple_of(2) { 128 * 1024 } else { 64 };
    let whole = hear([bytes], frame_bytes);
    let lengths = [1, 2, 3, 5, 8, 13, 64, 256];
    let length = lengths[usize::from(seed / 2) % lengths.len()];
    if bytes.len() <= HEAD_BYTES {
        let in_pieces = hear(bytes.chunks(length), frame_bytes);
        assert_eq!(whole, in_pieces, "it depends on how the bytes come");
    }
    let cut = usize::from(seed) * bytes.len() / 256;
    let (front, back) = bytes.split_at(cut);
    assert_eq!(whole, hear([front, back], frame_bytes), "it depends on how the bytes come");
}

/// What a connection is answered, one after the other, and how much of it is a request not yet done.
fn hear<'b>(
    pieces: impl IntoIterator<Item = &'b [u8]>,
    frame_bytes: usize,
) -> (Vec<String>, usize) {
    let table = Mutex::new(Table::new(Settings::default(), 0, 1));
    // The same ids each time.
    let (mut random, syncs) = (StdRng::seed_from_u64(1), Syncs::default());
    let clock = crate::clock::Clock::new(0);
    let shown = "shown".into();
    let (mut session, mut buffer) = (Session::default(), Vec::new());
    let mut heard = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let about = (frame_bytes, &clock);
            let mut context = Context::alone(&table, &mut random, &shown, &syncs, about);
            let mut changes = Changes::default();
            match session.read(&buffer, &mut context, &mut changes) {
                Read::Incomplete => break,
                Read::Nothing(_) => unreachable!("whatever is asked is answered"),
                Read::Broken(said) => {
                    heard.push(check(&said, "closes"));
                    return (heard, 0);
                }
                Read::Ask(taken, ask) => {
                    assert!((1..=buffer.len()).contains(&taken));
                    assert!(taken <= frame_bytes + HEAD_BYTES, "{taken} bytes are too many");
                    buffer.drain(..taken);
                    match answer(ask, &table) {
                        Some(said) => heard.push(said),
                        None => return (heard, 0),
                    }
                    if changes.close {
                        return (heard, 0);
                    }
                }
            }
        }
        assert!(
            buffer.len() <= frame_bytes + HEAD_BYTES + piece.len(),
            "{} are kept",
            buffer.len()
        );
    }
    (heard, buffer.len())
}

/// What is answered; nothing if the connection listens, or waits.
fn answer(ask: Ask, table: &Mutex<Table>) -> Option<String> {
    let mut out = Vec::new();
    match ask {
        Ask::Say(said) => return Some(check(&said, "says")),
        Ask::Events(_) => return None,
        Ask::Change(command, Answer::Http(answer)) => {
            let again = Command::decode(&command.encode());
            assert_eq!(again.as_ref(), Ok(&command), "in the log");
            let reply = table.lock().apply(0, command).reply;
            if let Reply::Waiting(_) | Reply::Task(TaskReply::Waiting) = reply {
                return None;
            }
            write_answer(&answer, &reply, &mut out);
        }
        Ask::Changes(commands, Answer::Http(answer)) => {
            let mut table = table.lock();
            let replies: Vec<Reply> =
                commands.into_iter().map(|command| table.apply(0, command).reply).collect();
            write_answers(&Answer::Http(answer), &replies, &mut out);
        }
        Ask::Question(queries, Answer::Http(answer), _) => {
            let table = table.lock();
            let found: Vec<_> = queries.iter().map(|query| table.query(0, query)).collect();
            write_found(&answer, &found, table.now(), &mut out);
        }
        Ask::Change(..) | Ask::Changes(..) | Ask::Question(..) => unreachable!("asked over HTTP"),
    }
    Some(check(&out, "answers"))
}

/// One whole answer, which any client can read.
fn check(said: &[u8], why: &str) -> String {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(said) {
        Ok(httparse::Status::Complete(head)) => head,
        other => panic!("{why}: {other:?}: {}", String::from_utf8_lossy(said)),
    };
    let header = |name: &str| {
        let found = response.headers.iter().find(|header| header.name == name)?;
        Some(std::str::from_utf8(found.value).expect("text"))
    };
    let body = &said[head..];
    match header("Content-Length").map(|length| length.parse::<usize>().expect("a number")) {
        // `HEAD` has none.
        Some(length) => assert!(body.is_empty() || body.len() == length, "{why}"),
        None => assert!(body.is_empty(), "{why}"),
    }
    if header("Content-Type").is_some_and(|kind| kind.contains("json")) && !body.is_empty() {
        serde_json::from_slice::<serde_json::Value>(body).expect("JSON");
    }
    String::from_utf8(said.to_vec()).expect("text")
}
