//! Which requests are sent, and which ride on the next.

use keylatch_table::Settings;
use openraft::vote::leader_id_adv::LeaderId;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::super::types::{LogId, Stamp};
use super::*;

type Request = AppendEntriesRequest<Types>;

const LEADER: LeaderId<u64, u64> = LeaderId { term: 1, node_id: 1 };
const TARGET: u64 = 2;

/// Entries up to here, and what is committed.
fn request(entry: Option<(u64, Source)>, committed: u64) -> Request {
    let log_id = |index| LogId { leader_id: LEADER, index };
    let entries = entry.map(|(index, source)| {
        let changes = Changes { at: 0, source, commands: Arc::default() };
        Entry { log_id: log_id(index), payload: EntryPayload::Normal(changes) }
    });
    AppendEntriesRequest {
        vote: Vote { leader_id: LEADER, committed: true },
        prev_log_id: None,
        entries: entries.into_iter().collect(),
        leader_commit: Some(log_id(committed)),
    }
}

fn of(node: u64) -> Source {
    Source::Member(Stamp { node, incarnation: 1, number: 1 })
}

/// What is sent of what is put in: how many entries, and up to where it says that they are committed.
async fn sent(
    first: Vec<Request>,
    later: impl FnOnce(&UnboundedSender<Request>),
) -> Vec<(usize, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::open(dir.path(), &Settings::default(), 1).unwrap();
    let (put, taken) = unbounded_channel();
    for request in first {
        put.send(request).unwrap();
    }
    // As Raft's own: it must not be asked again after its end.
    let input = stream::unfold(taken, async |mut taken| Some((taken.recv().await?, taken)));
    let input = Box::pin(input).fuse();
    let mut requests = Requests { input, target: TARGET, machine, is_awaited: true };
    let mut sent = Vec::new();
    let note = |request: Request| (request.entries.len(), request.leader_commit.unwrap().index);
    sent.push(note(requests.next().await.unwrap()));
    sent.push(note(requests.next().await.unwrap()));
    later(&put);
    drop(put);
    while let Some(request) = requests.next().await {
        sent.push(note(request));
    }
    sent
}

#[tokio::test(start_paused = true)]
async fn what_is_committed_rides_on_the_next_entries_if_nobody_there_waits() {
    let all = vec![request(Some((1, of(1))), 0), request(None, 1), request(Some((2, of(1))), 1)];
    assert_eq!(sent(all, |_| ()).await, [(1, 0), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn it_is_sent_alone_when_nothing_follows() {
    let all = vec![request(Some((1, of(1))), 0), request(None, 1)];
    let later = |put: &UnboundedSender<Request>| put.send(request(Some((2, of(1))), 1)).unwrap();
    assert_eq!(sent(all, later).await, [(1, 0), (0, 1), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn it_is_sent_at_once_to_who_asked_for_it() {
    let all =
        vec![request(Some((1, of(TARGET))), 0), request(None, 1), request(Some((2, of(1))), 1)];
    assert_eq!(sent(all, |_| ()).await, [(1, 0), (0, 1), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn it_is_sent_alone_when_that_is_the_end() {
    let all = vec![request(Some((1, of(1))), 0), request(Some((2, of(1))), 0)];
    let later = |put: &UnboundedSender<Request>| put.send(request(None, 2)).unwrap();
    assert_eq!(sent(all, later).await, [(1, 0), (1, 0), (0, 2)]);
}
