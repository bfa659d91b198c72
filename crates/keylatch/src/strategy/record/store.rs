//! What a record store has to do. Every rule here is one of those that make the protocol safe; the
//! numbers are those of its description.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keylatch_table::RequestId;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::super::Pending;
use super::tasks::store::TaskStore;
use crate::carried::Carried;

pub(crate) type Name = Arc<str>;

/// Who holds, as it was last written.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The number of that write; from one counter of the whole store (12).
    pub(crate) version: u64,
    /// When that was, on the store's clock.
    pub(crate) time: u64,
    pub(crate) bytes: Vec<u8>,
    /// Only of a store that ends leases by itself and has no clock to read: those of the holders that
    /// were put with this head whose leases live. Elsewhere the clock decides.
    pub(crate) alive: Option<BTreeSet<RequestId>>,
}

/// Who waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    /// From the same counter as versions.
    pub(crate) seq: u64,
    /// When it was appended.
    pub(crate) time: u64,
    /// It is dead after that, unless it is touched before (5).
    pub(crate) alive_until: u64,
    /// Only of a store that has no clock to read, whose `time` is that of the look: when it came, by the clock of
    /// whoever appended it. To be shown, and to decide nothing.
    pub(crate) came: Option<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// Some names at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The store's clock.
    pub(crate) now: u64,
    /// Every name that was asked for, also if there is nothing of it.
    pub(crate) names: BTreeMap<Name, Record>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) head: Option<Head>,
    /// By seq. The dead may be among them.
    pub(crate) queue: Vec<Waiter>,
}

/// What must be so for a change to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Neither head nor queue.
    Absent,
    /// A head, of whatever version.
    There,
    Version(u64),
}

/// A change of some names, all or nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Change {
    pub(crate) names: BTreeMap<Name, Box<NameChange>>,
    /// How many numbers the heads take, at least one; the first is the version of all of them (10).
    pub(crate) numbers: u64,
    /// New waiters. Each takes one more number as its seq, in this order.
    pub(crate) appends: Vec<Append>,
}

impl Change {
    /// Of one name.
    pub(crate) fn of(name: impl Into<Name>, one: NameChange) -> Change {
        let names = [(name.into(), Box::new(one))].into();
        Change { names, numbers: 1, appends: Vec::new() }
    }

    /// How many numbers it takes in all, drawn after the checks, under the lock of the heads (8).
    pub(crate) fn all_numbers(&self) -> u64 {
        self.numbers.max(1) + self.appends.len() as u64
    }

    /// The seq of a new waiter, once the version is known.
    pub(crate) fn seq_of(&self, version: u64, append: usize) -> u64 {
        version + self.numbers.max(1) + append as u64
    }
}

#[derive(Clone, Debug)]
pub(crate) struct NameChange {
    pub(crate) expect: Expect,
    /// There is no waiter with a larger seq (2).
    pub(crate) last_seq: Option<u64>,
    pub(crate) head: Write,
    /// These must still be there, under this id and with this seq (3).
    pub(crate) remove: Vec<Stand>,
    /// It is told to everyone, also if nobody waits: a holder has lost its lock by this.
    pub(crate) tell: bool,
    /// Whoever stands here up to this seq is of the writer's own process, which tells them itself. If nobody
    /// stands behind them, nobody else need be told; a store may do so all the same.
    pub(crate) own_up_to: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Keep,
    Put(Put),
    Delete,
}

#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) bytes: Vec<u8>,
    /// If nobody comes by and nobody waits, it may be forgotten after so long; never, if there is
    /// none (7).
    pub(crate) keep_ms: Option<u64>,
    /// For stores that end leases by themselves: all who hold now.
    pub(crate) holders: Vec<Holder>,
}

#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) id: RequestId,
    /// How long from this write on; nothing is for ever.
    pub(crate) left_ms: Option<u64>,
    /// Whether that was set by this write; else it runs as it did.
    pub(crate) leased: bool,
}

/// A place in queues.
#[derive(Clone, Debug)]
pub(crate) struct Stand {
    pub(crate) id: RequestId,
    pub(crate) seq: u64,
}

/// A waiter at the tail of one or several queues, with one seq (9). None of these queues may have one
/// with this id (4), but for one that the same change removes: a waiter that lapsed asks again at the
/// tail. All its names are among those of the change.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) id: RequestId,
    pub(crate) to: Vec<Name>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) live_ms: u64,
}

/// What came of a change.
#[derive(Debug)]
pub(crate) enum Committed {
    Done(Done),
    /// Something was otherwise, and nothing has happened. These are its names now.
    Mismatch(View),
}

/// A change of one name where nobody else is: most of what there is.
#[derive(Debug)]
pub(crate) enum Plain {
    /// Where there is neither head nor queue.
    Take(Put),
    /// The head has this version and goes; nobody waits.
    Leave(u64),
}

impl Plain {
    /// The same as any other change.
    pub(crate) fn as_change(&self, name: &Name) -> Change {
        let (expect, head) = match self {
            Plain::Take(put) => (Expect::Absent, Write::Put(put.clone())),
            Plain::Leave(version) => (Expect::Version(*version), Write::Delete),
        };
        let (last_seq, remove) = (Some(0), Vec::new());
        let one = NameChange { expect, last_seq, head, remove, tell: false, own_up_to: None };
        Change::of(name.clone(), one)
    }
}

/// What came of a plain change.
#[derive(Debug)]
pub(crate) enum Landed {
    /// The name was taken: the version of its head, and the time of that.
    Took { version: u64, now: u64 },
    /// The name was left: the version of that, which may be the one that was expected.
    Left { version: u64 },
    /// It was otherwise, and nothing has happened.
    Otherwise(View),
}

impl Landed {
    /// What came of it as of any other change.
    fn of(plain: &Plain, committed: Committed) -> Landed {
        match (plain, committed) {
            (Plain::Take(_), Committed::Done(Done { version, now, .. })) => {
                Landed::Took { version, now }
            }
            (Plain::Leave(_), Committed::Done(Done { version, .. })) => Landed::Left { version },
            (_, Committed::Mismatch(view)) => Landed::Otherwise(view),
        }
    }
}

/// Is told what came of a plain change, which it gets back.
pub(crate) type Landing = Box<dyn FnOnce(Plain, Result<Landed, StoreError>) + Send>;

/// It has happened.
#[derive(Debug)]
pub(crate) struct Done {
    /// Of all that was written. A change that leaves nothing of its names, where nobody stood, names
    /// nothing by it: then it may as well be the one that was expected, and no number was taken.
    pub(crate) version: u64,
    /// The store's clock, which is the time of all that was written; if nothing was, it may be a
    /// little behind.
    pub(crate) now: u64,
    /// For each name of the change, what the writer may not have known.
    pub(crate) names: BTreeMap<Name, Found>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The version of its head *before* the change; 0 if there was none.
    pub(crate) version: u64,
    /// The largest seq in its queue *before* the change; 0 if nobody waited.
    pub(crate) last_seq: u64,
}

/// Why a store did not answer.
#[derive(Clone, Debug)]
pub(crate) struct StoreError {
    pub(crate) text: String,
    /// Whether it may have happened all the same.
    pub(crate) unknown: bool,
}

/// What others, or we, have written. Only what somebody may wait for is told: changes of names in whose
/// queue somebody stood before whom the writer does not tell itself, and those that say `tell`. Appending alone is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Changed {
        name: Name,
        /// Of that write; 0 if no write made it (a lease ended).
        version: u64,
        /// The seqs that left the queue.
        removed: Vec<u64>,
    },
    /// Something may have happened, anywhere: messages may have been lost.
    Anything,
}

pub(crate) trait Store: Send + Sync + 'static {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>>;
    /// Every name in use.
    fn read_all(&self) -> Pending<Result<View, StoreError>>;
    /// May begin only when it is polled. Whoever asks for it polls it until it ends.
    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>>;
    /// A change where nobody else is. What came of it is told, whatever becomes of what is returned: what is left to
    /// do for it, if it is not done by somebody else.
    fn land(
        &self,
        runtime: &Handle,
        name: Name,
        plain: Plain,
        landing: Landing,
    ) -> Option<Carried<()>> {
        let committed = self.commit(plain.as_change(&name));
        let work = async move {
            let came = committed.await.map(|committed| Landed::of(&plain, committed));
            landing(plain, came);
        };
        Some(Carried::new(runtime, Box::pin(work)))
    }
    /// These waiters live; false for one that is not there any more, or was dead already (5).
    fn touch(
        &self,
        waiters: Vec<(Stand, Vec<Name>)>,
        live_ms: u64,
    ) -> Pending<Result<Vec<bool>, StoreError>>;
    /// How many waiters one change should remove at most. Whoever else is free or dead leaves with the
    /// next one; only those whom the commands are about leave at once, however many.
    fn most_removed(&self) -> usize {
        usize::MAX
    }
    /// What is written, by anyone. Called once.
    fn told(&self) -> mpsc::UnboundedReceiver<Told>;
    /// Whether somebody of this process waits: a store that must look for changes looks more often.
    fn somebody_waits(&self, _waits: bool) {}
    /// Its tasks, if it has them. Called once.
    fn tasks(&self) -> Option<Arc<dyn TaskStore>> {
        None
    }
}
