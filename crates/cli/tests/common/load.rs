//! Workers that lock and release, and what must be true after the server has been stopped in
//! whatever way: no acknowledged grant is missing, no token is given twice, no lease is shorter than
//! promised.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;

use keylatch_wire::Value;

use super::{Client, number, text, token};

pub(crate) const LEASE_MS: i64 = 3_600_000;

/// What the server has said yes to.
#[derive(Default)]
pub(crate) struct Acknowledged {
    /// Token and time of each grant, by id.
    pub(crate) held: BTreeMap<String, (i64, Instant)>,
    /// Asked to release without an answer.
    pub(crate) unsure: BTreeSet<String>,
    pub(crate) tokens: BTreeSet<i64>,
}

/// Locks, and releases some, until the server is gone or `most` have been taken.
pub(crate) fn work(address: SocketAddr, name: &str, most: u64, known: &Mutex<Acknowledged>) {
    let Ok(mut client) = Client::try_to(address) else { return };
    for count in 0..most {
        // Of one length, so that none is the beginning of another.
        let id = format!("{name}-{count:06}");
        let line = format!("LOCK key:{id} ID {id} LEASE {LEASE_MS}");
        let Some(answer) = client.ask(&line) else { return };
        let token = token(&answer);
        {
            let mut known = known.lock().unwrap();
            assert!(known.tokens.insert(token), "token {token} was given twice");
            known.held.insert(id.clone(), (token, Instant::now()));
        }
        if count % 3 != 0 {
            known.lock().unwrap().unsure.insert(id.clone());
            let Some(answer) = client.ask(&format!("UNLOCK {id}")) else { return };
            assert_eq!(answer, Value::Integer(1));
            let mut known = known.lock().unwrap();
            known.unsure.remove(&id);
            known.held.remove(&id);
        }
    }
}

/// Everything acknowledged is there, and nothing that was released.
pub(crate) fn check(address: SocketAddr, known: &mut Acknowledged) {
    let mut client = Client::to(address);
    let found: BTreeMap<String, (i64, i64)> = client
        .list("")
        .iter()
        .map(|lock| (text(lock, "id").into(), (number(lock, "token"), number(lock, "lease_ms"))))
        .collect();
    for (id, (token, since)) in &known.held {
        match found.get(id) {
            None => assert!(known.unsure.contains(id), "{id} was granted and is not there"),
            Some((now, left)) => {
                assert_eq!(now, token, "{id} has another token");
                let gone = i64::try_from(since.elapsed().as_millis()).unwrap();
                assert!(*left >= LEASE_MS - gone, "{id} has {left} ms left after {gone} ms");
            }
        }
    }
    // What was asked for and not answered may be there; it is known from now on.
    known.held.retain(|id, _| found.contains_key(id));
    known.unsure.clear();
    for (id, (token, _)) in found {
        known.tokens.insert(token);
        known.held.entry(id).or_insert((token, Instant::now()));
    }
    // And whatever comes next is newer than all of it.
    let answer = client.say("LOCK next");
    let next = token(&answer);
    assert!(known.tokens.last().is_none_or(|last| next > *last), "token {next} falls back");
    known.tokens.insert(next);
    assert_eq!(client.say(&format!("UNLOCK {}", text(&answer, "id"))), Value::Integer(1));
}
