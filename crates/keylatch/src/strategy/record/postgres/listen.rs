//! How a process hears of changes: by LISTEN on a connection of its own. Behind a pooler that gives a connection
//! only for one transaction nothing is ever heard, so it is tried out: a message to ourselves, sent
//! through another connection, must arrive. As long as it has not, we look: whether PostgreSQL has committed
//! anything at all since we last did.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_postgres::Notification;
use tokio_postgres::types::Type;

use super::super::store::{Name, Told};
use super::super::tasks::store::Told as TaskTold;
use super::LIMIT;
use super::link::Wire;
use super::pool::Pool;

/// How often it is looked whether something was committed, while somebody waits.
const LOOK: Duration = Duration::from_millis(50);
/// How long a message to ourselves may take.
const PROOF: Duration = Duration::from_secs(2);
/// How often it is tried, while somebody waits: a connection may be dead without our knowing.
const PROVE: Duration = Duration::from_secs(15);
/// How long until it is tried again where it did not work, or there was no connection.
const AGAIN: Duration = Duration::from_secs(600);
const RECONNECT: Duration = Duration::from_millis(500);

/// What this process does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mode {
    /// Somebody waits.
    pub(super) waits: bool,
    /// Somebody waits for a task.
    pub(super) claims_wait: bool,
    /// We are told.
    pub(super) hears: bool,
}

pub(super) type Modes = watch::Sender<Mode>;

impl Mode {
    fn somebody_waits(self) -> bool {
        self.waits || self.claims_wait
    }
}

/// Who hears: those who lock, and those with tasks once there are any.
#[derive(Clone)]
pub(super) struct Tells {
    pub(super) locks: mpsc::UnboundedSender<Told>,
    pub(super) tasks: Arc<Mutex<Option<mpsc::UnboundedSender<TaskTold>>>>,
}

impl Tells {
    fn anything(&self) {
        drop(self.locks.send(Told::Anything));
        self.task(TaskTold::Anything);
    }

    fn task(&self, told: TaskTold) {
        if let Some(tasks) = &*self.tasks.lock() {
            drop(tasks.send(told));
        }
    }
}

const TASKS: &str = "keylatch_tasks";

/// Hears as long as the store is there.
pub(super) async fn listen(pool: Arc<Pool>, modes: Weak<Modes>, tell: Tells) {
    loop {
        let Some(mut mode) = modes.upgrade().map(|modes| modes.subscribe()) else { return };
        let opened = tokio::time::timeout(LIMIT, open(&pool)).await.ok().flatten();
        let wait = match opened {
            None => RECONNECT,
            Some((wire, mut told)) => {
                let mut proven = false;
                while prove(&pool, &mut told, &tell).await {
                    proven = true;
                    pool.keeps.store(true, Ordering::Relaxed);
                    let Some(modes) = modes.upgrade() else { return };
                    modes.send_if_modified(|mode| !std::mem::replace(&mut mode.hears, true));
                    drop(modes);
                    // Something may have happened before.
                    tell.anything();
                    if !hear(&mut told, &mut mode, &tell).await {
                        break;
                    }
                }
                end(wire, &modes);
                tell.anything();
                if proven { RECONNECT } else { AGAIN }
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = closed(&mut mode) => return,
        }
    }
}

async fn open(pool: &Pool) -> Option<(Wire, mpsc::UnboundedReceiver<Notification>)> {
    let (wire, told) = pool.link.open().await.ok()?;
    wire.client.batch_execute("LISTEN keylatch; LISTEN keylatch_tasks").await.ok()?;
    Some((wire, told))
}

/// Hears no more. What a pooler has in the place of this connection should not hear either.
fn end(wire: Wire, modes: &Weak<Modes>) {
    if let Some(modes) = modes.upgrade() {
        modes.send_if_modified(|mode| std::mem::replace(&mut mode.hears, false));
    }
    tokio::spawn(async move {
        drop(
            tokio::time::timeout(
                LIMIT,
                wire.client.batch_execute("UNLISTEN keylatch; UNLISTEN keylatch_tasks"),
            )
            .await,
        );
        wire.cut();
    });
}

/// Sends ourselves a message. What else arrives meanwhile is told.
async fn prove(
    pool: &Pool,
    told: &mut mpsc::UnboundedReceiver<Notification>,
    tell: &Tells,
) -> bool {
    let word = format!("? {}", rand::random::<u64>());
    let sent = pool.query("SELECT pg_notify('keylatch', $1)", &[(&word, Type::TEXT)]).await;
    if sent.is_err() {
        return false;
    }
    let arrives = async {
        while let Some(message) = told.recv().await {
            if message.payload() == word {
                return true;
            }
            tell_of(&message, tell);
        }
        false
    };
    tokio::time::timeout(PROOF, arrives).await.unwrap_or(false)
}

/// Tells what it hears, until it is time to prove that it does; false if the connection is gone.
async fn hear(
    told: &mut mpsc::UnboundedReceiver<Notification>,
    mode: &mut watch::Receiver<Mode>,
    tell: &Tells,
) -> bool {
    let since = tokio::time::Instant::now();
    loop {
        let waits = mode.borrow_and_update().somebody_waits();
        tokio::select! {
            message = told.recv() => match message {
                Some(message) => tell_of(&message, tell),
                None => return false,
            },
            () = tokio::time::sleep_until(since + PROVE), if waits => return true,
            changed = mode.changed() => if changed.is_err() {
                return false;
            },
        }
    }
}

/// `version removed,removed name`, the name in hexadecimal. Messages to others about themselves begin with `?`.
fn tell_of(message: &Notification, tell: &Tells) {
    let text = message.payload();
    if message.channel() == TASKS {
        tell.task(super::tasks::news(text).unwrap_or(TaskTold::Anything));
    } else if !text.starts_with('?') {
        drop(tell.locks.send(parse(text).unwrap_or(Told::Anything)));
    }
}

fn parse(message: &str) -> Option<Told> {
    let mut words = message.split(' ');
    let version = words.next()?.parse().ok()?;
    let removed = words.next()?.split(',').filter(|seq| !seq.is_empty());
    let removed = removed.map(|seq| seq.parse().ok()).collect::<Option<_>>()?;
    let hex = words.next()?;
    let bytes = (0..hex.len()).step_by(2);
    let bytes = bytes.map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok());
    let name = String::from_utf8(bytes.collect::<Option<_>>()?).ok()?;
    Some(Told::Changed { name: Name::from(name), version, removed })
}

/// Looks as long as the store is there, whenever somebody waits and we do not hear.
pub(super) async fn look(pool: Arc<Pool>, mut mode: watch::Receiver<Mode>, tell: Tells) {
    let mut seen = String::new();
    loop {
        if mode.wait_for(|mode| mode.somebody_waits() && !mode.hears).await.is_err() {
            return;
        }
        // Which transactions are visible: the same text means that none was committed since.
        let rows = pool.query_again("SELECT txid_current_snapshot()::text", &[]).await;
        let snapshot = rows.ok().and_then(|rows| rows.first()?.try_get::<_, String>(0).ok());
        if let Some(snapshot) = snapshot
            && snapshot != seen
        {
            seen = snapshot;
            tell.anything();
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Until the store is gone.
pub(super) async fn closed(mode: &mut watch::Receiver<Mode>) {
    while mode.changed().await.is_ok() {}
}
