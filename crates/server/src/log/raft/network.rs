//! Raft's messages over lines to the other members. openraft asks for a client for each purpose (entries,
//! heartbeats, snapshots, votes), so each has a line of its own and none waits for another.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Fuse};
use futures_util::{FutureExt, Stream, StreamExt};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::v2::RaftNetworkV2;
use openraft::network::{RPCOption, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, EntryPayload, OptionalSend, RaftNetworkFactory};

use super::bytes::{BadBytes, Reader};
use super::machine::Machine;
use super::message::{self, Piece, Request};
use super::outside;
use super::peers::{Line, Peers};
use super::types::{Changes, Entry, Source, Types, Vote};

/// Entries that go together, in bytes; always at least one.
const APPEND_BYTES: usize = 4 * 1024 * 1024;
/// A piece of a snapshot.
const PIECE_BYTES: usize = 1024 * 1024;
/// How long entries may take: the other side writes and syncs them. Heartbeats are cut off sooner, by Raft.
const APPEND_WITHIN: Duration = Duration::from_secs(5);
/// How long a piece may take; the last one is behind the reading of a whole table.
const PIECE_WITHIN: Duration = Duration::from_secs(10);
const INSTALL_WITHIN: Duration = Duration::from_secs(120);

/// How long it may take until a member hears that what it has is committed, if nobody there waits for it. By then there
/// is mostly more to send, and one message does for both.
const COMMITTED_WITHIN: Duration = Duration::from_millis(1);

pub(crate) struct Network {
    pub(crate) peers: Arc<Peers>,
    pub(crate) machine: Machine,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, node: &BasicNode) -> Client {
        self.peers.learn(target, &node.addr);
        Client { line: self.peers.line(target), machine: self.machine.clone() }
    }
}

pub(crate) struct Client {
    line: Line,
    machine: Machine,
}

impl Client {
    /// One request, one reply. Whatever goes wrong, the other side may or may not have heard it.
    async fn ask<T>(
        &mut self,
        request: &Request,
        within: Duration,
        read: fn(&mut Reader<'_>) -> Result<T, BadBytes>,
    ) -> Result<T, Unreachable<Types>> {
        let reply = self.line.call(&request.to_bytes(), within).await;
        let reply = reply.map_err(|error| Unreachable::new(&error))?;
        message::reply_from_bytes(&reply, read)
            .map_err(|error| Unreachable::new(&std::io::Error::other(error)))
    }
}

type Replies<'s> = BoxStream<'s, Result<StreamAppendResult<Types>, RPCError<Types>>>;

/// What is to be sent to a member.
struct Requests<S> {
    /// Asked once more after its end, if it ends behind what is committed; Raft's own stream would panic then.
    input: Fuse<S>,
    target: u64,
    machine: Machine,
    /// Somebody there waits to hear that what was sent last is committed.
    is_awaited: bool,
}

impl<S: Stream<Item = AppendEntriesRequest<Types>> + Unpin> Requests<S> {
    async fn next(&mut self) -> Option<AppendEntriesRequest<Types>> {
        let mut request = self.input.next().await?;
        while request.entries.is_empty() && !self.is_awaited {
            match tokio::time::timeout(COMMITTED_WITHIN, self.input.next()).await {
                // It says all that the one before would have said.
                Ok(Some(next)) => request = next,
                Ok(None) | Err(_) => break,
            }
        }
        if !request.entries.is_empty() {
            let is_of_target = |entry: &Entry| match &entry.payload {
                EntryPayload::Normal(Changes { source: Source::Member(stamp), .. }) => {
                    stamp.node == self.target
                }
                _ => false,
            };
            self.is_awaited =
                self.machine.waits_at(self.target) || request.entries.iter().any(is_of_target);
        }
        Some(request)
    }
}

impl RaftNetworkV2<Types> for Client {
    type SnapshotData = File;

    /// One after the other; of those that only say what is committed, some are left out.
    fn stream_append<S>(
        &mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'_, Result<Replies<'_>, RPCError<Types>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        let requests = Requests {
            input: input.fuse(),
            target: self.line.node(),
            machine: self.machine.clone(),
            is_awaited: true,
        };
        let requests =
            stream::unfold(requests, async |mut requests| Some((requests.next().await?, requests)));
        stream_append_sequential(self, Box::pin(requests), option)
    }

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

#[cfg(test)]
mod tests;
