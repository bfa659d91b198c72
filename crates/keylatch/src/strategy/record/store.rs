//! What a record store has to do. Every rule here is one of those that make the protocol safe; the
//! numbers are those of its description.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::super::Pending;

pub(crate) type Name = Arc<str>;

/// Who holds, as it was last written.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The number of that write; from one counter of the whole store (12).
    pub(crate) version: u64,
    /// When that was, on the store's clock.
    pub(crate) time: u64,
    pub(crate) bytes: Vec<u8>,
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
    pub(crate) bytes: Vec<u8>,
}

/// Some names at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// The store's clock.
    pub(crate) now: u64,
    pub(crate) names: BTreeMap<Name, Record>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) head: Option<Head>,
    /// By seq.
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
    pub(crate) names: BTreeMap<Name, NameChange>,
    /// How many numbers this write takes; its version is the first (10). At least one.
    pub(crate) numbers: u64,
    /// A waiter at the tail of several queues, with one seq (9).
    pub(crate) append: Option<Append>,
}

#[derive(Clone, Debug)]
pub(crate) struct NameChange {
    pub(crate) expect: Expect,
    /// There is no waiter with a larger seq (2).
    pub(crate) last_seq: Option<u64>,
    pub(crate) head: Write,
    /// These must still be there (3).
    pub(crate) remove: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Write {
    Keep,
    /// If nobody comes by, it may be forgotten after so long; never, if there is none (7).
    Put {
        bytes: Vec<u8>,
        keep_ms: Option<u64>,
    },
    Delete,
}

#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) to: Vec<Name>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) live_ms: u64,
}

/// What came of a change.
#[derive(Debug)]
pub(crate) enum Committed {
    /// It has happened: its version, and the seq of what was appended.
    Done { version: u64, seq: u64 },
    /// Something was otherwise, and nothing has happened. These are its names now.
    Mismatch(View),
}

/// Why a store did not answer.
#[derive(Clone, Debug)]
pub(crate) struct StoreError {
    pub(crate) text: String,
    /// Whether it may have happened all the same.
    pub(crate) unknown: bool,
}

pub(crate) trait Store: Send + Sync + 'static {
    fn read(&self, names: Vec<Name>) -> Pending<Result<View, StoreError>>;
    /// Every name in use.
    fn read_all(&self) -> Pending<Result<View, StoreError>>;
    fn commit(&self, change: Change) -> Pending<Result<Committed, StoreError>>;
    /// A waiter lives; false if it is not there any more, or was dead already (5).
    fn touch(&self, to: Vec<Name>, seq: u64, live_ms: u64) -> Pending<Result<bool, StoreError>>;
    /// Changes when something may have been written, by anyone. The driver has one, and one more for
    /// each that waits.
    fn changes(&self) -> watch::Receiver<u64>;
}
