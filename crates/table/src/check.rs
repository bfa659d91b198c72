//! The invariants, numbered here once; checkers elsewhere cite these numbers.
//!
//! Time and counters
//! - **T1** tokens grow: every grant and every write of a task takes a number larger than all before.
//! - **T2** table time never falls, and nothing on the board has a deadline that has passed.
//! - **T3** seq grows with every arrival; lists and queues are in its order.
//!
//! Locks
//! - **L1** no two holders conflict.
//! - **L2** a request holds all of its resources or none; it has at least one, and no two overlap.
//! - **L3** a token is 0 exactly while its request waits; no two holders share one.
//! - **L4** a waiter is blocked: nobody is forgotten. It is parked on one of its blockers.
//! - **L5** nothing is left behind: every resource, queue, owner and alias belongs to a live request.
//! - **L6** an id is live or ended or unknown, never two of these.
//!
//! Tasks
//! - **K1** a claimed task has a claim whose lease has not ended.
//! - **K2** a task that is free and due leaves no claim waiting that wants it.
//! - **K3** the counts and bytes are those of the tasks there are.
//! - **K4** only answers that a repeat may get again are remembered.

use std::collections::BTreeSet;

use crate::board::deadlines::NEVER;
use crate::board::slab::NONE;
use crate::lock::Asker;
use crate::{Table, TaskState, rules};

/// How much is checked after every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckLevel {
    /// What costs nothing measurable.
    Cheap,
    /// Everything, while the table is small.
    Full,
}

impl Default for CheckLevel {
    fn default() -> CheckLevel {
        if cfg!(debug_assertions) { CheckLevel::Full } else { CheckLevel::Cheap }
    }
}

/// The full check is quadratic; beyond this many requests a debug build checks cheaply too.
const FULL_CHECK_REQUESTS: usize = 64;

impl Table {
    /// Checks every invariant. Quadratic: for tests and small tables.
    ///
    /// # Panics
    /// If one does not hold; the message begins with its number.
    pub fn check(&self) {
        let counted = self.board.resources.masks_are_counted();
        let masks = (!counted).then_some("L5: wildcards are miscounted");
        let fault = self.find_fault().or_else(|| self.fault_in_blockers()).or(masks);
        if let Some(fault) = fault {
            panic!("{fault}");
        }
    }

    pub(crate) fn check_after_step(&self, level: CheckLevel) {
        assert!(self.board.loose.is_empty(), "L4: a waiter was not looked at");
        assert!(self.troubled.is_empty(), "an owner was not looked at");
        assert!(self.next_deadline().is_none_or(|at| at > self.now), "T2: something due is left");
        if level == CheckLevel::Full && self.board.requests.len() <= FULL_CHECK_REQUESTS {
            self.check();
        }
    }

    /// The first invariant that does not hold, as far as one look at everything can tell.
    pub(crate) fn find_fault(&self) -> Option<&'static str> {
        self.fault_in_requests()
            .or_else(|| self.fault_in_resources())
            .or_else(|| self.fault_in_holders())
            .or_else(|| self.fault_in_tasks())
    }

    fn fault_in_requests(&self) -> Option<&'static str> {
        let board = &self.board;
        let mut tokens = BTreeSet::new();
        let (mut last, mut waiting, mut behind) = (0, 0, 0);
        for at in board.after(0) {
            let request = &board.requests[at];
            if request.seq <= last || request.seq > self.seq {
                return Some("T3: requests are not in the order of their seq");
            }
            last = request.seq;
            if request.deadline != NEVER && request.deadline <= self.now {
                return Some("T2: a deadline has passed");
            }
            if request.token > self.token {
                return Some("T1: a token from the future");
            }
            waiting += u32::from(request.waiting());
            if !request.waiting() && !tokens.insert(request.token) {
                return Some("L3: two holders share a token");
            }
            if request.waiting() {
                let parked_on = request.wait().parked_on;
                if parked_on == NONE {
                    return Some("L4: a waiter is parked nowhere");
                }
                behind += u32::from(board.requests[parked_on].waiting());
            }
        }
        let counted = (waiting, behind) == (board.waiting, board.behind_waiters);
        (!counted).then_some("L5: waiters are miscounted")
    }

    /// Holders of one resource go together, so that the first stands for all; then it is enough
    /// that the first ones of overlapping resources do.
    pub(crate) fn fault_in_holders(&self) -> Option<&'static str> {
        let board = &self.board;
        let together = |a: u32, b: u32| {
            let (a, b) = (board.part(a), board.part(b));
            let owner = board.owner_of(a.request);
            let same_owner = owner != NONE && owner == board.owner_of(b.request);
            rules::together(a.mode, b.mode, same_owner)
        };
        for (at, node) in board.resources.iter() {
            let holders: Vec<u32> = board.list(node.holders).collect();
            let mut apart = holders.windows(2).any(|pair| !together(pair[0], pair[1]));
            let Some(first) = holders.first() else { continue };
            board.resources.overlapping(&node.key, |other| {
                let head = board.resources.get(other).holders;
                apart |= other != at && head != NONE && !together(*first, head);
                apart
            });
            if apart {
                return Some("L1: two holders conflict");
            }
        }
        None
    }

    /// Everyone against everyone.
    fn fault_in_blockers(&self) -> Option<&'static str> {
        let board = &self.board;
        for at in board.after(0) {
            let asker = Asker::live(board, at);
            let blockers = board.blockers(asker);
            if !board.requests[at].waiting() {
                if blockers.iter().any(|other| !board.requests[*other].waiting()) {
                    return Some("L1: two holders conflict");
                }
                continue;
            }
            let first = board.first_blocker(asker);
            if first.is_none() || board.parking(at).is_none() {
                return Some("L4: a waiter is free");
            }
            if blockers.first().copied() != first {
                return Some("L4: the blocker that is named is not the first");
            }
            if !board.blocks(asker, board.requests[at].wait().parked_on) {
                return Some("L4: a waiter is parked on what does not block it");
            }
        }
        None
    }

    fn fault_in_resources(&self) -> Option<&'static str> {
        let board = &self.board;
        let mut parts = 0;
        for (at, node) in board.resources.iter() {
            if node.holders == NONE && node.crowd == NONE {
                return Some("L5: a resource without holder and waiter");
            }
            let crowd = if node.crowd == NONE { NONE } else { board.crowds[node.crowd].head };
            let lists = [(node.holders, false), (crowd, true)];
            for (head, waiting) in lists {
                let list: Vec<u32> = board.list(head).collect();
                parts += list.len();
                let right = |part: &u32| {
                    let part = board.part(*part);
                    part.resource == at && board.requests[part.request].waiting() == waiting
                };
                if !list.iter().all(right) {
                    return Some("L2: a part hangs in the wrong place");
                }
                if !list.is_sorted_by_key(|part| board.seq_of(*part)) {
                    return Some("T3: a queue is not in the order of seq");
                }
            }
        }
        if self.board.resources.iter().any(|(_, node)| !self.crowd_is_counted(node.crowd)) {
            return Some("L5: a queue is miscounted");
        }
        let requests = board.requests.iter();
        if requests.map(|(at, _)| board.parts_of(at).count()).sum::<usize>() != parts {
            return Some("L2: a part hangs nowhere");
        }
        let aliases = board.requests.iter().filter(|(_, request)| request.extra.alias().is_some());
        if aliases.count() != board.aliases.len() {
            return Some("L5: an alias without request");
        }
        if board.requests.len() == 0
            && board.parties.party_count() + board.resources.group_count() > 0
        {
            return Some("L5: an owner or group without request");
        }
        self.fault_in_pairs()
    }

    fn crowd_is_counted(&self, crowd: u32) -> bool {
        let board = &self.board;
        if crowd == NONE {
            return true;
        }
        let crowd = &board.crowds[crowd];
        let mut modes = [0; 4];
        board.list(crowd.head).for_each(|part| modes[board.part(part).mode as usize] += 1);
        modes == crowd.modes && modes.iter().sum::<u32>() == crowd.len
    }

    /// Resources of one request do not overlap each other.
    fn fault_in_pairs(&self) -> Option<&'static str> {
        let board = &self.board;
        let key = |part: u32| &board.resources.get(board.part(part).resource).key;
        for (at, _) in board.requests.iter() {
            let parts: Vec<u32> = board.parts_of(at).collect();
            for (position, part) in parts.iter().enumerate() {
                if parts[..position].iter().any(|other| rules::overlap(key(*part), key(*other))) {
                    return Some("L2: resources of one request overlap");
                }
            }
        }
        None
    }

    fn fault_in_tasks(&self) -> Option<&'static str> {
        let mut bytes = 0;
        for pool in self.tasks.pools.values() {
            let mut counts = [0; 4];
            for at in pool.tasks.values() {
                let task = self.tasks.task(*at);
                bytes += task.bytes();
                counts[task.state as usize] += 1;
                let live = task.claim.as_ref().is_some_and(|claim| claim.end > self.now);
                if task.state == TaskState::Claimed && !live {
                    return Some("K1: a claimed task without claim");
                }
                if task.version > self.token {
                    return Some("T1: a version from the future");
                }
            }
            let [_, claimed, done, failed] = counts;
            if [claimed, done, failed] != [pool.claimed, pool.done, pool.failed.len() as u64] {
                return Some("K3: tasks are miscounted");
            }
        }
        if bytes != self.tasks.bytes() {
            return Some("K3: bytes of tasks are miscounted");
        }
        let served = self.tasks.claims().all(|(_, claim)| {
            matches!(self.claimable(&claim.pool, claim.key.as_deref()), Ok(None))
        });
        (!served).then_some("K2: a claim waits for a task that is free")
    }
}
