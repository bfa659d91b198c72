//! Promote: a held O, or a sole S, becomes an E under a new token. It never queues and does not
//! look at waiters; they are looked at afterwards.

use crate::board::slab::NONE;
use crate::{Blocker, Cause, Error, Event, Mode, Reply, Table, Target, rules};

use super::blockers::left;

impl Table {
    pub(crate) fn promote(&mut self, target: &Target, events: &mut Vec<Event>) -> Reply {
        let at = match self.held(target) {
            Ok(at) => at,
            Err(reply) => return reply,
        };
        let board = &self.board;
        let promotable = |mode| matches!(mode, Mode::Shared | Mode::Optimistic);
        let parts = || board.parts_of(at).map(|part| board.part(part));
        if !parts().any(|part| promotable(part.asked)) {
            return Reply::Error(Error::NeverPromotable);
        }
        if !parts().any(|part| promotable(part.mode)) {
            return Reply::Promoted(self.grant_of(at)); // a repeat
        }
        let (blocker, superseded) = self.others_at_promotion(at);
        if let Some(blocker) = blocker {
            return Reply::Busy(blocker);
        }
        let by = self.board.parties.party(self.board.requests[at].party).owner.clone();
        for other in superseded {
            self.lose(other, Cause::Superseded, Some(by.clone()), events);
        }
        let parts: Vec<u32> = self.board.parts_of(at).collect();
        for part in parts {
            if promotable(self.board.part(part).mode) {
                self.board.set_mode(at, part, Mode::Cumulative);
            }
        }
        let token = self.next_token();
        self.board.requests[at].token = token;
        // Its own owner's E may join it now, and may pass those it blocks now.
        self.board.loosen_parked(at);
        self.loosen_behind_waiters(at);
        if self.board.requests[at].detect {
            self.trouble(self.board.owner_of(at));
        }
        Reply::Promoted(self.grant_of(at))
    }

    /// The first holder that would conflict, and the optimistic ones to drop, both by seq.
    fn others_at_promotion(&self, at: u32) -> (Option<Blocker>, Vec<u32>) {
        let board = &self.board;
        let mut first: Option<(u64, u32)> = None;
        let mut optimistic: Vec<(u64, u32)> = Vec::new();
        for part in board.parts_of(at).map(|part| board.part(part)) {
            if part.mode != Mode::Shared && part.mode != Mode::Optimistic {
                continue;
            }
            board.resources.overlapping(&board.resources.get(part.resource).key, |resource| {
                for other in board.list(board.resources.get(resource).holders) {
                    let other = board.part(other);
                    if other.request == at {
                        continue;
                    }
                    // Beside an O there are only O, beside an S only S, which an E never joins.
                    let found = (board.requests[other.request].seq, other.request);
                    if other.mode == Mode::Optimistic {
                        optimistic.push(found);
                    } else {
                        first = Some(first.map_or(found, |best| best.min(found)));
                    }
                }
                false
            });
        }
        optimistic.sort_unstable();
        optimistic.dedup();
        let blocker = first.map(|(_, blocker)| self.describe_at_promotion(at, blocker));
        (blocker, optimistic.into_iter().map(|(_, other)| other).collect())
    }

    fn describe_at_promotion(&self, at: u32, blocker: u32) -> Blocker {
        let board = &self.board;
        let request = &board.requests[blocker];
        let same_owner =
            board.owner_of(at) != NONE && board.owner_of(at) == board.owner_of(blocker);
        let as_promoted = |mode| match mode {
            Mode::Shared | Mode::Optimistic => Mode::Cumulative,
            other => other,
        };
        let mode = board.parts_of(blocker).map(|part| board.part(part)).find(|theirs| {
            board.parts_of(at).map(|part| board.part(part)).any(|ours| {
                !rules::together(theirs.mode, as_promoted(ours.mode), same_owner)
                    && rules::overlap(
                        &board.resources.get(theirs.resource).key,
                        &board.resources.get(ours.resource).key,
                    )
            })
        });
        let party = board.parties.party(request.party);
        Blocker {
            owner: party.owner.clone(),
            explicit: party.explicit,
            mode: mode.expect("a blocker conflicts").mode,
            state: crate::State::Held,
            token: request.token,
            held_ms: self.now - request.since,
            lease_ms: left(request.deadline, self.now),
        }
    }
}
