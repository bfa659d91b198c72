//! Long lists: of everything, or of what has to be searched for in everything. A hundred thousand locks are tens of
//! milliseconds and megabytes, so one such list is answered in a turn and everybody else is served between two of them;
//! and none to a connection that has not been sent what it was answered before, so what waits for a slow reader is one
//! list at most. What is behind a list on its connection waits for it.
//!
//! An answer that is longer than what may wait for a client that does not read is refused: it would be the end of the connection.

use std::collections::VecDeque;

use keylatch_table::{LocksQuery, Query};

use super::{Turns, Work};
use crate::connection::ConnectionId;
use crate::listener::Answer;

/// A list of so many requests takes a fraction of a millisecond: it is a question like any other.
const SHORT: usize = 1_000;
/// No entry of a list is shorter, so that no more of them have to be looked for than fit.
const ENTRY_BYTES: usize = 100;

/// Lists that have been asked for, and not answered.
#[derive(Default)]
pub(super) struct Lists {
    waiting: VecDeque<(ConnectionId, Work)>,
    /// There was one in this turn.
    answered: bool,
}

impl Turns {
    /// A question of a connection is on its way: if it asks for a long list, whatever comes behind it waits, and no more is looked
    /// for than can be answered.
    pub(super) fn bound_lists(&mut self, at: usize, queries: &mut [Query], answer: &Answer) {
        if !queries.iter().any(is_long) {
            return;
        }
        self.connections[at].held_back = true;
        let most = self.config.unread_bytes / ENTRY_BYTES + 1;
        for query in queries {
            // Over HTTP lists are pages anyway, and how long one is says whether there is another.
            if let (Query::Locks(LocksQuery { limit, .. }), Answer::Resp(_) | Answer::Enqueue(_)) =
                (query, answer)
                && !(1..=most).contains(limit)
            {
                *limit = most;
            }
        }
    }

    /// Gives back what can be answered now; a long list may have to wait.
    pub(super) fn put_off_list(&mut self, id: ConnectionId, work: Work) -> Option<Work> {
        if !matches!(&work, Work::Question(queries, ..) if queries.iter().any(is_long)) {
            return Some(work);
        }
        if self.lists.answered || self.connections[id.at].has_unsent() {
            self.lists.waiting.push_back((id, work));
            return None;
        }
        self.lists.answered = true;
        Some(work)
    }

    /// A turn begins: the next list that can be sent is answered.
    pub(super) fn answer_a_list(&mut self) {
        self.lists.answered = false;
        if let Some(next) = self.next_list()
            && let Some((id, work)) = self.lists.waiting.remove(next)
        {
            self.finish_unchanged(Some(id), work);
        }
    }

    /// The first one whose connection has been sent everything before it, or has gone.
    pub(super) fn next_list(&self) -> Option<usize> {
        self.lists
            .waiting
            .iter()
            .position(|(id, _)| !self.is_there(*id) || !self.connections[id.at].has_unsent())
    }
}

fn is_long(query: &Query) -> bool {
    match query {
        Query::Locks(LocksQuery { owner, limit, .. }) => {
            owner.is_some() || !(1..=SHORT).contains(limit)
        }
        Query::Tasks(tasks) => !(1..=SHORT).contains(&tasks.limit),
        _ => false,
    }
}

/// What whoever asked for too much is told.
pub(super) fn too_long(most: usize) -> String {
    format!(
        "the list has more than {most} bytes; ask for less of it, or for pages with LIMIT and CURSOR"
    )
}
