//! Backups of this member that somebody is fetching: its snapshot, made after everything was applied that had
//! been acknowledged when it was asked for. The file stays open until it is fetched, though the next snapshot
//! takes its name meanwhile.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::async_runtime::watch::WatchReceiver;
use openraft::storage::RaftStateMachine;
use parking_lot::Mutex;
use rand::RngCore;

use super::lead::Lead;
use super::message::{self, Led, Offer, Request};

/// Those that are fetched at once.
const MOST: usize = 4;
/// One that nobody has fetched anything of for so long is forgotten.
const UNUSED: Duration = Duration::from_secs(60);
/// A piece.
const PIECE_BYTES: u64 = 1024 * 1024;
/// How long it waits for a leader, and how long for an answer of it.
const LEADER: Duration = Duration::from_secs(5);
/// How long a snapshot may take; on a full disk it is tried again and again.
const WRITTEN: Duration = Duration::from_secs(120);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct Offers(Mutex<BTreeMap<u64, Open>>);

struct Open {
    file: File,
    used: Instant,
}

impl Offers {
    /// Makes one.
    pub(crate) async fn make(&self, lead: &Arc<Lead>) -> Result<Offer, String> {
        self.make_room()?;
        let index = acknowledged(lead).await?;
        let wait = lead.raft.wait(Some(LEADER));
        let applied = wait.applied_index_at_least(Some(index), "a backup").await;
        applied.map_err(|_| "this member is too far behind: ask another one")?;
        let until = Instant::now() + WRITTEN;
        loop {
            let metrics = lead.raft.data_metrics();
            let written = metrics.borrow_watched().snapshot.map(|log_id| log_id.index);
            if written >= Some(index) {
                break;
            }
            if Instant::now() >= until {
                return Err("it could not write a snapshot: is there room on its disk?".into());
            }
            // One that is being written already may not go so far; then there is another one behind it.
            let triggered = lead.raft.trigger().snapshot().await;
            triggered.map_err(|error| error.to_string())?;
            tokio::time::sleep(PAUSE).await;
        }
        let text = |error: io::Error| error.to_string();
        let snapshot = lead.machine.clone().get_current_snapshot().await.map_err(text)?;
        let file = snapshot.ok_or("there is no snapshot")?.snapshot;
        let length = file.metadata().map_err(text)?.len();
        let backup = rand::rng().next_u64();
        self.0.lock().insert(backup, Open { file, used: Instant::now() });
        let identity = &lead.peers.identity;
        Ok(Offer { backup, cluster: identity.cluster, node: identity.node, length })
    }

    fn make_room(&self) -> Result<(), String> {
        let mut open = self.0.lock();
        open.retain(|_, one| one.used.elapsed() < UNUSED);
        match open.len() < MOST {
            true => Ok(()),
            false => Err(format!("{MOST} backups are being fetched already: try again later")),
        }
    }

    /// The bytes from here on; with the last ones it is forgotten.
    pub(crate) fn piece(&self, backup: u64, offset: u64) -> Result<Vec<u8>, String> {
        let mut open = self.0.lock();
        let one = open.get_mut(&backup).ok_or("this backup is not there any more: begin again")?;
        one.used = Instant::now();
        let mut bytes = Vec::new();
        let read = one
            .file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| (&mut one.file).take(PIECE_BYTES).read_to_end(&mut bytes));
        read.map_err(|error| error.to_string())?;
        if (bytes.len() as u64) < PIECE_BYTES {
            open.remove(&backup);
        }
        Ok(bytes)
    }
}

/// Up to where the log is acknowledged, as the leader says.
async fn acknowledged(lead: &Arc<Lead>) -> Result<u64, String> {
    let until = Instant::now() + LEADER;
    loop {
        let asked = tokio::time::timeout(LEADER, ask(lead)).await;
        match asked {
            Ok(Led::Index(index)) => return Ok(index),
            Ok(Led::Refused(why)) if Instant::now() >= until => return Err(why),
            _ if Instant::now() >= until => {
                return Err("no member leads now, so it is not known what was acknowledged last. If the majority \
                            is gone for good, stop a member and say --from-data (docs/operations.md)"
                    .into());
            }
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn ask(lead: &Arc<Lead>) -> Led {
    let Some(leader) = lead.leader() else { return Led::NotLeader(None) };
    if leader == lead.peers.identity.node {
        return lead.read_index().await;
    }
    let reply = lead.peers.line(leader).call(&Request::ReadIndex.to_bytes(), LEADER).await;
    match reply {
        Err(error) => Led::Refused(error.to_string()),
        Ok(reply) => {
            message::reply_from_bytes(&reply, message::read_led).unwrap_or_else(Led::Refused)
        }
    }
}
