//! What members say to each other, as bytes: Raft's own messages, and what is asked of the leader. The
//! version of all of it is agreed on before (`channel/hello`).

use std::sync::Arc;

use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    VoteRequest, VoteResponse,
};

use super::bytes::{BadBytes, Reader, decode_entry, encode_entry, write_log_id, write_stamp};
use super::types::{LogId, Stamp, Types, Vote};
use crate::cluster::{Fingerprint, MemberStatus, Role, State, Status};

/// What is asked.
pub(crate) enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    /// A piece of a snapshot; with the last one it is installed.
    Snapshot(Piece),
    Transfer(TransferLeaderRequest<Types>),
    /// A batch, of the leader.
    Commit(Stamp, Arc<[u8]>),
    /// Up to where a table must be to show everything that is acknowledged now; of the leader.
    ReadIndex,
    /// To become a member, or to be found at another address; of the leader.
    Join {
        cluster: u128,
        node: u64,
        address: String,
    },
    /// To be none any more; of the leader.
    Remove(u64),
    /// That this node shall lead; of the leader.
    Lead(u64),
    /// Who is there, as this node sees it.
    Status,
    /// What is in this node's table, in short.
    Fingerprint,
    /// To have a backup made of this node, which has everything that is acknowledged now.
    Backup,
    /// A piece of a backup that was made: which one, and from where on.
    BackupPiece(u64, u64),
    /// To join this cluster, whose members are found there; of a node that waits for that.
    Add(u128, Vec<String>),
}

/// A backup that is there to be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) backup: u64,
    pub(crate) cluster: u128,
    pub(crate) node: u64,
    pub(crate) length: u64,
}

pub(crate) struct Piece {
    pub(crate) vote: Vote,
    /// Names the transfer; another one begins anew.
    pub(crate) transfer: u64,
    pub(crate) offset: u64,
    pub(crate) last: bool,
    pub(crate) bytes: Vec<u8>,
}

/// The leader's answer to what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Led {
    Done,
    /// It is done, but the leader's disk is full: nothing new for now.
    Short,
    /// An index.
    Index(u64),
    /// It is not the leader, but perhaps this one is.
    NotLeader(Option<u64>),
    /// Nothing has happened: its disk is full.
    NoRoom,
    /// Nothing has happened, and why.
    Refused(String),
    /// This node was a member, and was taken out.
    Removed,
}

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const SNAPSHOT: u8 = 4;
const TRANSFER: u8 = 5;
const COMMIT: u8 = 6;
const READ_INDEX: u8 = 7;
const JOIN: u8 = 8;
const REMOVE: u8 = 9;
const LEAD: u8 = 10;
const STATUS: u8 = 11;
const FINGERPRINT: u8 = 12;
const BACKUP: u8 = 20;
const BACKUP_PIECE: u8 = 21;
const ADD: u8 = 22;

impl Request {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Request::Append(request) => {
                out.push(APPEND);
                write_vote(&request.vote, &mut out);
                write_some_log_id(request.prev_log_id.as_ref(), &mut out);
                write_some_log_id(request.leader_commit.as_ref(), &mut out);
                for entry in &request.entries {
                    write_sized(&encode_entry(entry), &mut out);
                }
            }
            Request::Vote(request) | Request::PreVote(request) => {
                out.push(if matches!(self, Request::Vote(_)) { VOTE } else { PRE_VOTE });
                write_vote(&request.vote, &mut out);
                write_some_log_id(request.last_log_id.as_ref(), &mut out);
                out.push(u8::from(request.leadership_transfer));
            }
            Request::Snapshot(piece) => {
                out.push(SNAPSHOT);
                write_vote(&piece.vote, &mut out);
                out.extend_from_slice(&piece.transfer.to_le_bytes());
                out.extend_from_slice(&piece.offset.to_le_bytes());
                out.push(u8::from(piece.last));
                out.extend_from_slice(&piece.bytes);
            }
            Request::Transfer(request) => {
                out.push(TRANSFER);
                write_vote(request.from_leader(), &mut out);
                out.extend_from_slice(&request.to_node_id().to_le_bytes());
                write_some_log_id(request.last_log_id(), &mut out);
            }
            Request::Commit(stamp, commands) => {
                out.push(COMMIT);
                write_stamp(stamp, &mut out);
                out.extend_from_slice(commands);
            }
            Request::ReadIndex => out.push(READ_INDEX),
            Request::Join { cluster, node, address } => {
                out.push(JOIN);
                out.extend_from_slice(&cluster.to_le_bytes());
                out.extend_from_slice(&node.to_le_bytes());
                out.extend_from_slice(address.as_bytes());
            }
            Request::Remove(node) => {
                out.push(REMOVE);
                out.extend_from_slice(&node.to_le_bytes());
            }
            Request::Lead(node) => {
                out.push(LEAD);
                out.extend_from_slice(&node.to_le_bytes());
            }
            Request::Status => out.push(STATUS),
            Request::Fingerprint => out.push(FINGERPRINT),
            Request::Backup => out.push(BACKUP),
            Request::BackupPiece(backup, offset) => {
                out.push(BACKUP_PIECE);
                out.extend_from_slice(&backup.to_le_bytes());
                out.extend_from_slice(&offset.to_le_bytes());
            }
            Request::Add(cluster, members) => {
                out.push(ADD);
                out.extend_from_slice(&cluster.to_le_bytes());
                for member in members {
                    write_sized(member.as_bytes(), &mut out);
                }
            }
        }
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Request, BadBytes> {
        let mut from = Reader(bytes);
        let request = match from.u8()? {
            APPEND => {
                let (vote, prev_log_id) = (from.vote()?, from.some_log_id()?);
                let leader_commit = from.some_log_id()?;
                let mut entries = Vec::new();
                while !from.0.is_empty() {
                    entries.push(decode_entry(from.sized()?)?);
                }
                Request::Append(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
            }
            kind @ (VOTE | PRE_VOTE) => {
                let mut request = VoteRequest::new(from.vote()?, from.some_log_id()?);
                request.leadership_transfer = from.u8()? == 1;
                if kind == VOTE { Request::Vote(request) } else { Request::PreVote(request) }
            }
            SNAPSHOT => Request::Snapshot(Piece {
                vote: from.vote()?,
                transfer: from.u64()?,
                offset: from.u64()?,
                last: from.u8()? == 1,
                bytes: from.rest().to_vec(),
            }),
            TRANSFER => {
                let (vote, to) = (from.vote()?, from.u64()?);
                Request::Transfer(TransferLeaderRequest::new(vote, to, from.some_log_id()?))
            }
            COMMIT => Request::Commit(from.stamp()?, from.rest().into()),
            READ_INDEX => Request::ReadIndex,
            JOIN => {
                let (cluster, node) = (from.u128()?, from.u64()?);
                Request::Join { cluster, node, address: from.text()? }
            }
            REMOVE => Request::Remove(from.u64()?),
            LEAD => Request::Lead(from.u64()?),
            STATUS => Request::Status,
            FINGERPRINT => Request::Fingerprint,
            BACKUP => Request::Backup,
            BACKUP_PIECE => Request::BackupPiece(from.u64()?, from.u64()?),
            ADD => {
                let (cluster, mut members) = (from.u128()?, Vec::new());
                while !from.0.is_empty() {
                    members.push(String::from_utf8_lossy(from.sized()?).into_owned());
                }
                Request::Add(cluster, members)
            }
            _ => return Err(BadBytes("what is asked")),
        };
        from.end()?;
        Ok(request)
    }
}

/// The reply to a request, or why it could not be carried out.
pub(crate) fn reply_to_bytes<T>(reply: Result<T, String>, write: fn(&T, &mut Vec<u8>)) -> Vec<u8> {
    match reply {
        Ok(reply) => {
            let mut out = vec![0];
            write(&reply, &mut out);
            out
        }
        Err(error) => {
            let mut out = vec![1];
            out.extend_from_slice(error.as_bytes());
            out
        }
    }
}

/// The other way round.
pub(crate) fn reply_from_bytes<T>(
    bytes: &[u8],
    read: fn(&mut Reader<'_>) -> Result<T, BadBytes>,
) -> Result<T, String> {
    let mut from = Reader(bytes);
    let mut reply = || match from.u8()? {
        0 => {
            let reply = read(&mut from)?;
            from.end()?;
            Ok(Ok(reply))
        }
        _ => Ok(Err(from.text()?)),
    };
    reply().unwrap_or_else(|error: BadBytes| Err(error.to_string()))
}

pub(crate) fn write_append(reply: &AppendEntriesResponse<Types>, out: &mut Vec<u8>) {
    match reply {
        AppendEntriesResponse::Success => out.push(0),
        AppendEntriesResponse::PartialSuccess(upto) => {
            out.push(1);
            write_some_log_id(upto.as_ref(), out);
        }
        AppendEntriesResponse::Conflict => out.push(2),
        AppendEntriesResponse::HigherVote(vote) => {
            out.push(3);
            write_vote(vote, out);
        }
    }
}

pub(crate) fn read_append(from: &mut Reader<'_>) -> Result<AppendEntriesResponse<Types>, BadBytes> {
    Ok(match from.u8()? {
        0 => AppendEntriesResponse::Success,
        1 => AppendEntriesResponse::PartialSuccess(from.some_log_id()?),
        2 => AppendEntriesResponse::Conflict,
        3 => AppendEntriesResponse::HigherVote(from.vote()?),
        _ => return Err(BadBytes("a reply")),
    })
}

pub(crate) fn write_voted(reply: &VoteResponse<Types>, out: &mut Vec<u8>) {
    write_vote(&reply.vote, out);
    out.push(u8::from(reply.vote_granted));
    write_some_log_id(reply.last_log_id.as_ref(), out);
}

pub(crate) fn read_voted(from: &mut Reader<'_>) -> Result<VoteResponse<Types>, BadBytes> {
    let (vote, granted) = (from.vote()?, from.u8()? == 1);
    Ok(VoteResponse::new(vote, from.some_log_id()?, granted))
}

/// `None`: the piece was taken, and it was not the last one.
#[allow(clippy::ref_option)] // as it is written for every reply
pub(crate) fn write_piece(reply: &Option<SnapshotResponse<Types>>, out: &mut Vec<u8>) {
    if let Some(reply) = reply {
        write_vote(&reply.vote, out);
    }
}

pub(crate) fn read_piece(
    from: &mut Reader<'_>,
) -> Result<Option<SnapshotResponse<Types>>, BadBytes> {
    if from.0.is_empty() {
        return Ok(None);
    }
    Ok(Some(SnapshotResponse::new(from.vote()?)))
}

pub(crate) fn write_led(reply: &Led, out: &mut Vec<u8>) {
    match reply {
        Led::Done => out.push(0),
        Led::Index(index) => {
            out.push(1);
            out.extend_from_slice(&index.to_le_bytes());
        }
        Led::NotLeader(leader) => {
            out.push(2);
            out.extend_from_slice(&leader.unwrap_or(0).to_le_bytes());
        }
        Led::NoRoom => out.push(3),
        Led::Refused(why) => {
            out.push(4);
            out.extend_from_slice(why.as_bytes());
        }
        Led::Removed => out.push(5),
        Led::Short => out.push(6),
    }
}

pub(crate) fn read_led(from: &mut Reader<'_>) -> Result<Led, BadBytes> {
    Ok(match from.u8()? {
        0 => Led::Done,
        1 => Led::Index(from.u64()?),
        2 => Led::NotLeader(Some(from.u64()?).filter(|leader| *leader != 0)),
        3 => Led::NoRoom,
        4 => Led::Refused(from.text()?),
        5 => Led::Removed,
        6 => Led::Short,
        _ => return Err(BadBytes("a reply")),
    })
}

pub(crate) fn write_status(status: &Status, out: &mut Vec<u8>) {
    out.extend_from_slice(&status.cluster.to_le_bytes());
    for number in [
        status.node,
        status.leader.unwrap_or(0),
        status.heard_ms.unwrap_or(u64::MAX),
        status.term,
        status.last_log,
        status.applied,
        status.snapshot,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.push(status.state as u8);
    out.push(u8::from(status.majority));
    for member in &status.members {
        out.extend_from_slice(&member.node.to_le_bytes());
        out.push(match member.role {
            Role::Voter => 0,
            Role::Learner => 1,
        });
        out.push(u8::from(member.matched.is_some()));
        out.extend_from_slice(&member.matched.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&member.heard_ms.unwrap_or(u64::MAX).to_le_bytes());
        write_sized(member.address.as_bytes(), out);
    }
}

pub(crate) fn read_status(from: &mut Reader<'_>) -> Result<Status, BadBytes> {
    let cluster = from.u128()?;
    let some = |number: u64, none: u64| Some(number).filter(|number| *number != none);
    let (node, leader) = (from.u64()?, some(from.u64()?, 0));
    let (heard_ms, term) = (some(from.u64()?, u64::MAX), from.u64()?);
    let (last_log, applied, snapshot) = (from.u64()?, from.u64()?, from.u64()?);
    let state = from.u8()? as usize;
    let state = *State::ALL.get(state).ok_or(BadBytes("what it is"))?;
    let majority = from.u8()? == 1;
    let mut members = Vec::new();
    while !from.0.is_empty() {
        let node = from.u64()?;
        let role = if from.u8()? == 0 { Role::Voter } else { Role::Learner };
        let known = from.u8()? == 1;
        let matched = Some(from.u64()?).filter(|_| known);
        let heard_ms = some(from.u64()?, u64::MAX);
        let address = String::from_utf8_lossy(from.sized()?).into_owned();
        members.push(MemberStatus { node, address, role, matched, heard_ms });
    }
    Ok(Status {
        cluster,
        node,
        state,
        leader,
        heard_ms,
        majority,
        term,
        last_log,
        applied,
        snapshot,
        members,
    })
}

pub(crate) fn write_fingerprint(fingerprint: &Fingerprint, out: &mut Vec<u8>) {
    out.extend_from_slice(&fingerprint.applied.to_le_bytes());
    out.extend_from_slice(&fingerprint.hash.to_le_bytes());
}

pub(crate) fn read_fingerprint(from: &mut Reader<'_>) -> Result<Fingerprint, BadBytes> {
    Ok(Fingerprint { applied: from.u64()?, hash: from.u64()? })
}

pub(crate) fn write_offer(offer: &Offer, out: &mut Vec<u8>) {
    out.extend_from_slice(&offer.cluster.to_le_bytes());
    for number in [offer.backup, offer.node, offer.length] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

pub(crate) fn read_offer(from: &mut Reader<'_>) -> Result<Offer, BadBytes> {
    let cluster = from.u128()?;
    Ok(Offer { cluster, backup: from.u64()?, node: from.u64()?, length: from.u64()? })
}

#[allow(clippy::ptr_arg)] // as it is written for every reply
pub(crate) fn write_bytes(bytes: &Vec<u8>, out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
}

#[allow(clippy::unnecessary_wraps)] // as it is read of every reply
pub(crate) fn read_bytes(from: &mut Reader<'_>) -> Result<Vec<u8>, BadBytes> {
    Ok(from.rest().to_vec())
}

fn write_vote(vote: &Vote, out: &mut Vec<u8>) {
    out.extend_from_slice(&vote.leader_id.term.to_le_bytes());
    out.extend_from_slice(&vote.leader_id.node_id.to_le_bytes());
    out.push(u8::from(vote.committed));
}

fn write_some_log_id(log_id: Option<&LogId>, out: &mut Vec<u8>) {
    out.push(u8::from(log_id.is_some()));
    if let Some(log_id) = log_id {
        write_log_id(log_id, out);
    }
}

fn write_sized(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

impl<'a> Reader<'a> {
    fn vote(&mut self) -> Result<Vote, BadBytes> {
        let leader_id =
            openraft::impls::leader_id_adv::LeaderId { term: self.u64()?, node_id: self.u64()? };
        Ok(Vote { leader_id, committed: self.u8()? == 1 })
    }

    fn some_log_id(&mut self) -> Result<Option<LogId>, BadBytes> {
        Ok(match self.u8()? {
            0 => None,
            _ => Some(self.log_id()?),
        })
    }

    fn sized(&mut self) -> Result<&'a [u8], BadBytes> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn text(&mut self) -> Result<String, BadBytes> {
        let text = std::str::from_utf8(self.rest()).map_err(|_| BadBytes("a text"))?;
        Ok(text.into())
    }
}
