//! Raft's messages over lines to the other members. openraft asks for a client for each purpose (entries,
//! heartbeats, snapshots, votes), so each has a line of its own and none waits for another.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::network::v2::RaftNetworkV2;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, EntryPayload, OptionalSend, RaftNetworkFactory};

use super::bytes::{BadBytes, Reader};
use super::message::{self, Piece, Request};
use super::outside;
use super::peers::{Line, Peers};
use super::types::{Types, Vote};

/// Entries that go together, in bytes; always at least one.
const APPEND_BYTES: usize = 4 * 1024 * 1024;
/// A piece of a snapshot.
const PIECE_BYTES: usize = 1024 * 1024;
/// How long entries may take: the other side writes and syncs them. Heartbeats are cut off sooner, by Raft.
const APPEND_WITHIN: Duration = Duration::from_secs(5);
/// How long a piece may take; the last one is behind the reading of a whole table.
const PIECE_WITHIN: Duration = Duration::from_secs(10);
const INSTALL_WITHIN: Duration = Duration::from_secs(120);

pub(crate) struct Network(pub(crate) Arc<Peers>);

impl RaftNetworkFactory<Types> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Client {
        self.0.learn(target, &node.addr);
        Client(self.0.line(target))
    }
}

pub(crate) struct Client(Line);

impl Client {
    /// One request, one reply. Whatever goes wrong, the other side may or may not have heard it.
    async fn ask<T>(
        &mut self,
        request: &Request,
        within: Duration,
        read: fn(&mut Reader<'_>) -> Result<T, BadBytes>,
    ) -> Result<T, Unreachable<Types>> {
        let reply = self.0.call(&request.to_bytes(), within).await;
        let reply = reply.map_err(|error| Unreachable::new(&error))?;
        message::reply_from_bytes(&reply, read)
            .map_err(|error| Unreachable::new(&std::io::Error::other(error)))
    }
}

impl RaftNetworkV2<Types> for Client {
    type SnapshotData = File;

    /// Sends as many entries as are good for one message, and says so if those are not all.
    async fn append_entries(
        &mut self,
        mut rpc: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        let mut bytes = 0;
        let fit = rpc.entries.iter().take_while(|entry| {
            let fits = bytes <= APPEND_BYTES;
            bytes += match &entry.payload {
                EntryPayload::Normal(changes) => changes.commands.len(),
                EntryPayload::Blank | EntryPayload::Membership(_) => 0,
            };
            fits
        });
        let (fit, all) = (fit.count(), rpc.entries.len());
        rpc.entries.truncate(fit);
        let upto = rpc.entries.last().map(|entry| entry.log_id);
        let reply = self.ask(&Request::Append(rpc), APPEND_WITHIN, message::read_append).await?;
        Ok(match reply {
            AppendEntriesResponse::Success if fit < all => {
                AppendEntriesResponse::PartialSuccess(upto)
            }
            reply => reply,
        })
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Ok(self.ask(&Request::Vote(rpc), option.hard_ttl(), message::read_voted).await?)
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Ok(self.ask(&Request::PreVote(rpc), option.hard_ttl(), message::read_voted).await?)
    }

    /// In pieces, so that neither side has all of it in memory.
    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: openraft::alias::SnapshotOf<Types, File>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let mut file = snapshot.snapshot;
        let transfer = outside::random();
        let mut cancel = Box::pin(cancel.fuse());
        let mut offset = 0;
        loop {
            let mut bytes = Vec::new();
            let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut bytes);
            read.map_err(|error| StreamingError::Unreachable(Unreachable::new(&error)))?;
            let (length, last) = (bytes.len(), bytes.len() < PIECE_BYTES);
            let piece = Request::Snapshot(Piece { vote, transfer, offset, last, bytes });
            offset += length as u64;
            let within = if last { INSTALL_WITHIN } else { PIECE_WITHIN };
            let taken = tokio::select! {
                biased;
                closed = &mut cancel => return Err(closed.into()),
                taken = self.ask(&piece, within, message::read_piece) => taken?,
            };
            if let Some(reply) = taken {
                return Ok(reply);
            }
            if last {
                let error = std::io::Error::other("the snapshot was not installed");
                return Err(StreamingError::Unreachable(Unreachable::new(&error)));
            }
        }
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let request = Request::Transfer(rpc);
        let reply = self.ask(&request, option.hard_ttl(), |_| Ok(())).await;
        Ok(Ok(reply?))
    }
}
