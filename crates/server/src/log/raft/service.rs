//! What a member answers to others.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use openraft::EntryPayload;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse};
use openraft::storage::Snapshot;
use parking_lot::Mutex;

use super::lead::Lead;
use super::message::{self, Led, Piece, Request, reply_to_bytes};
use super::offers::Offers;
use super::snapshot;
use super::types::Types;
use crate::log::channel::{Answers, Hello, Refusal, Welcome};

/// Answers others, as long as it is there.
pub(crate) struct Service {
    lead: Arc<Lead>,
    dir: PathBuf,
    /// Snapshots that are on their way, by sender.
    receiving: Mutex<BTreeMap<u64, Receiving>>,
    /// Backups that are being fetched.
    offers: Offers,
}

struct Receiving {
    transfer: u64,
    file: File,
    length: u64,
}

impl Service {
    pub(crate) fn new(lead: Arc<Lead>, dir: PathBuf) -> Service {
        Service { lead, dir, receiving: Mutex::default(), offers: Offers::default() }
    }

    async fn append(
        &self,
        rpc: AppendEntriesRequest<Types>,
    ) -> Result<AppendEntriesResponse<Types>, String> {
        let bytes: usize = rpc.entries.iter().map(entry_bytes).sum();
        // Raft would stop for good. The others may go on without this node until there is room.
        if bytes > 0 && !self.lead.log.make_room(bytes as u64).map_err(|e| e.to_string())? {
            return Err("the disk of the log is full".into());
        }
        let reply = self.lead.raft.append_entries(rpc).await.map_err(|error| error.to_string())?;
        if !matches!(reply, AppendEntriesResponse::HigherVote(_)) {
            self.lead.hear();
        }
        Ok(reply)
    }

    /// A piece of a snapshot. It is installed with the last one.
    async fn receive(
        &self,
        from: u64,
        piece: Piece,
    ) -> Result<Option<SnapshotResponse<Types>>, String> {
        let whole = self.write_piece(from, &piece).map_err(|error| error.to_string())?;
        self.lead.hear();
        let Some(mut file) = whole else { return Ok(None) };
        let meta = snapshot::read_meta(&mut file).map_err(|error| error.to_string())?;
        let snapshot = Snapshot { meta, snapshot: file };
        let installed = self.lead.raft.install_full_snapshot(piece.vote, snapshot).await;
        installed.map(Some).map_err(|error| error.to_string())
    }

    /// The file, once all of it is there.
    fn write_piece(&self, from: u64, piece: &Piece) -> io::Result<Option<File>> {
        let mut receiving = self.receiving.lock();
        if piece.offset == 0 {
            let file = snapshot::begin_incoming(&self.dir, from)?;
            receiving.insert(from, Receiving { transfer: piece.transfer, file, length: 0 });
        }
        let fits = |to: &&mut Receiving| to.transfer == piece.transfer && to.length == piece.offset;
        let Some(to) = receiving.get_mut(&from).filter(fits) else {
            return Err(io::Error::other("a piece of a snapshot is missing: begin again"));
        };
        to.file.write_all(&piece.bytes)?;
        to.length += piece.bytes.len() as u64;
        if !piece.last {
            return Ok(None);
        }
        let mut file = receiving.remove(&from).expect("just written to").file;
        file.seek(SeekFrom::Start(0))?;
        Ok(Some(file))
    }
}

fn entry_bytes(entry: &super::types::Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(changes) => changes.commands.len() + 64,
        EntryPayload::Blank | EntryPayload::Membership(_) => 1_024,
    }
}

impl Answers for Service {
    fn welcome(&self, hello: &Hello) -> Result<Welcome, Refusal> {
        let own = &self.lead.peers.identity;
        let welcome = Welcome { cluster: own.cluster, node: own.node };
        match *hello {
            // Somebody who wants to join, or to know.
            Hello { cluster: 0, from: 0, to: 0 } => Ok(welcome),
            Hello { cluster, .. } if cluster != own.cluster => Err(Refusal::OtherCluster),
            Hello { to, .. } if to != 0 && to != own.node => Err(Refusal::OtherNode),
            _ => Ok(welcome),
        }
    }

    fn answer(self: Arc<Self>, from: u64, request: Vec<u8>) -> BoxFuture<'static, Vec<u8>> {
        Box::pin(async move {
            let request = match Request::from_bytes(&request) {
                Ok(request) => request,
                Err(error) => return reply_to_bytes(Err::<(), _>(error.to_string()), |(), _| {}),
            };
            let lead = &self.lead;
            let fatal = |error: &dyn std::fmt::Display| error.to_string();
            let led = match request {
                Request::Status => {
                    return reply_to_bytes(Ok(lead.status()), message::write_status);
                }
                Request::Fingerprint => {
                    let fingerprint = lead.machine.fingerprint();
                    return reply_to_bytes(Ok(fingerprint), message::write_fingerprint);
                }
                Request::Backup => {
                    return reply_to_bytes(self.offers.make(lead).await, message::write_offer);
                }
                Request::BackupPiece(backup, offset) => {
                    let piece = self.offers.piece(backup, offset);
                    return reply_to_bytes(piece, message::write_bytes);
                }
                Request::Add(cluster, _) if cluster == lead.peers.identity.cluster => {
                    Led::Refused("it is a member of this cluster already".into())
                }
                Request::Add(..) => Led::Refused(
                    "it belongs to another cluster, perhaps to one of its own: stop it, empty its data \
                     directory, and start it with --join wait"
                        .into(),
                ),
                Request::Join { cluster, .. } if cluster != lead.peers.identity.cluster => {
                    Led::Refused("it belongs to another cluster: empty its data directory to join".into())
                }
                Request::Join { node, address, .. } => lead.join(node, address).await,
                Request::Remove(node) => lead.remove(node).await,
                Request::Lead(node) => lead.hand_over_to(node).await,
                _ if from == 0 => Led::Refused("only members may ask this".into()),
                Request::Commit(stamp, _) if stamp.node != from => {
                    Led::Refused("a batch is carried by whoever made it".into())
                }
                Request::Commit(stamp, commands) => lead.commit_of(stamp, commands).await,
                Request::ReadIndex => lead.read_index().await,
                Request::Append(rpc) => {
                    return reply_to_bytes(self.append(rpc).await, message::write_append);
                }
                Request::Vote(rpc) => {
                    let reply = lead.raft.vote(rpc).await.map_err(|error| fatal(&error));
                    return reply_to_bytes(reply, message::write_voted);
                }
                Request::PreVote(rpc) => {
                    let reply = lead.raft.pre_vote(rpc).await.map_err(|error| fatal(&error));
                    return reply_to_bytes(reply, message::write_voted);
                }
                Request::Snapshot(piece) => {
                    return reply_to_bytes(self.receive(from, piece).await, message::write_piece);
                }
                Request::Transfer(rpc) => {
                    let reply = match lead.raft.handle_transfer_leader(rpc).await {
                        Ok(Ok(())) => Ok(()),
                        Ok(Err(error)) => Err(error.to_string()),
                        Err(error) => Err(error.to_string()),
                    };
                    return reply_to_bytes(reply, |(), _| {});
                }
            };
            reply_to_bytes(Ok(led), message::write_led)
        })
    }
}
