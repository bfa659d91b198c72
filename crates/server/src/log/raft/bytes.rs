//! Entries, votes and log ids as bytes. Little-endian; `docs/log-format.md` has the form.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keylatch_table::Command;
use openraft::impls::leader_id_adv::LeaderId;
use openraft::{BasicNode, EntryPayload};

use super::origins::Origins;
use super::types::{Changes, Entry, LogId, Membership, Source, Stamp, Vote};

/// Raised when the form changes.
const VERSION: u8 = 1;
/// The head of a snapshot of a cluster says more; that of a node alone is as it always was.
const HEAD_WITH_ORIGINS: u8 = 2;
const BLANK: u8 = 0;
const CHANGES: u8 = 1;
const MEMBERSHIP: u8 = 2;
const MEMBER_CHANGES: u8 = 3;
const GONE: u8 = 4;

/// Bytes that are not what they should be. The store has checked them, so it is a mistake of ours or
/// of a newer version.
#[derive(Debug, thiserror::Error)]
#[error("the log has an entry that this version does not understand ({0})")]
pub(crate) struct BadBytes(pub(crate) &'static str);

pub(crate) fn encode_commands(commands: &[Command]) -> Arc<[u8]> {
    let mut out = Vec::with_capacity(commands.len() * 128);
    for command in commands {
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        command.encode_to(&mut out);
        let length = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }
    out.into()
}

pub(crate) fn decode_commands(bytes: &[u8]) -> Result<Vec<Command>, BadBytes> {
    let mut from = Reader(bytes);
    let mut commands = Vec::new();
    while !from.0.is_empty() {
        let length = from.u32()? as usize;
        let command = Command::decode(from.take(length)?);
        commands.push(command.map_err(|_| BadBytes("a command"))?);
    }
    Ok(commands)
}

pub(crate) fn encode_entry(entry: &Entry) -> Vec<u8> {
    let mut out = vec![VERSION];
    write_log_id(&entry.log_id, &mut out);
    match &entry.payload {
        EntryPayload::Blank => out.push(BLANK),
        EntryPayload::Normal(changes) => {
            out.push(match changes.source {
                Source::Leader => CHANGES,
                Source::Member(_) => MEMBER_CHANGES,
                Source::Gone(_) => GONE,
            });
            out.extend_from_slice(&changes.at.to_le_bytes());
            match changes.source {
                Source::Leader => {}
                Source::Member(stamp) => write_stamp(&stamp, &mut out),
                Source::Gone(node) => out.extend_from_slice(&node.to_le_bytes()),
            }
            out.extend_from_slice(&changes.commands);
        }
        EntryPayload::Membership(membership) => {
            out.push(MEMBERSHIP);
            write_membership(membership, &mut out);
        }
    }
    out
}

pub(crate) fn decode_entry(bytes: &[u8]) -> Result<Entry, BadBytes> {
    let mut from = Reader(bytes);
    from.version()?;
    let log_id = from.log_id()?;
    let payload = match from.u8()? {
        BLANK => EntryPayload::Blank,
        kind @ (CHANGES | MEMBER_CHANGES | GONE) => {
            let at = from.u64()?;
            let source = match kind {
                CHANGES => Source::Leader,
                MEMBER_CHANGES => Source::Member(from.stamp()?),
                _ => Source::Gone(from.u64()?),
            };
            let commands = std::mem::take(&mut from.0).into();
            EntryPayload::Normal(Changes { at, source, commands })
        }
        MEMBERSHIP => EntryPayload::Membership(from.membership()?),
        _ => return Err(BadBytes("its kind")),
    };
    from.end()?;
    Ok(Entry { log_id, payload })
}

pub(crate) fn encode_vote(vote: &Vote) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&vote.leader_id.term.to_le_bytes());
    out.extend_from_slice(&vote.leader_id.node_id.to_le_bytes());
    out.push(u8::from(vote.committed));
    out
}

pub(crate) fn decode_vote(bytes: &[u8]) -> Result<Vote, BadBytes> {
    let mut from = Reader(bytes);
    from.version()?;
    let leader_id = LeaderId { term: from.u64()?, node_id: from.u64()? };
    let committed = from.u8()? == 1;
    from.end()?;
    Ok(Vote { leader_id, committed })
}

pub(crate) fn encode_log_id(log_id: &LogId) -> Vec<u8> {
    let mut out = vec![VERSION];
    write_log_id(log_id, &mut out);
    out
}

pub(crate) fn decode_log_id(bytes: &[u8]) -> Result<LogId, BadBytes> {
    let mut from = Reader(bytes);
    from.version()?;
    let log_id = from.log_id()?;
    from.end()?;
    Ok(log_id)
}

/// What a snapshot says of itself, in front of the table's bytes.
pub(crate) fn encode_snapshot_head(
    last: Option<&LogId>,
    membership_at: Option<&LogId>,
    membership: &Membership,
    origins: &Origins,
) -> Vec<u8> {
    let version = if origins.is_empty() { VERSION } else { HEAD_WITH_ORIGINS };
    let mut out = vec![version];
    for log_id in [last, membership_at] {
        out.push(u8::from(log_id.is_some()));
        if let Some(log_id) = log_id {
            write_log_id(log_id, &mut out);
        }
    }
    write_membership(membership, &mut out);
    if version == HEAD_WITH_ORIGINS {
        let origins = origins.to_bytes();
        out.extend_from_slice(&(origins.len() as u32).to_le_bytes());
        out.extend_from_slice(&origins);
    }
    out
}

/// What is behind the membership in a head of this version, and how many bytes that took.
pub(crate) fn decode_origins(version: u8, bytes: &[u8]) -> Result<(Origins, usize), BadBytes> {
    if version != HEAD_WITH_ORIGINS {
        return Ok((Origins::default(), 0));
    }
    let mut from = Reader(bytes);
    let length = from.u32()? as usize;
    Ok((Origins::from_bytes(from.take(length)?)?, 4 + length))
}

/// The log ids and the membership of a snapshot, and how many bytes they took.
pub(crate) fn decode_snapshot_head(
    bytes: &[u8],
) -> Result<(Option<LogId>, Option<LogId>, Membership, usize), BadBytes> {
    let mut from = Reader(bytes);
    if !matches!(from.u8()?, VERSION | HEAD_WITH_ORIGINS) {
        return Err(BadBytes("its version"));
    }
    let mut log_id = || -> Result<_, BadBytes> {
        Ok(match from.u8()? {
            0 => None,
            _ => Some(from.log_id()?),
        })
    };
    let (last, membership_at) = (log_id()?, log_id()?);
    let membership = from.membership()?;
    Ok((last, membership_at, membership, bytes.len() - from.0.len()))
}

pub(crate) fn write_stamp(stamp: &Stamp, out: &mut Vec<u8>) {
    for number in [stamp.node, stamp.incarnation, stamp.number] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

pub(crate) fn write_log_id(log_id: &LogId, out: &mut Vec<u8>) {
    for number in [log_id.leader_id.term, log_id.leader_id.node_id, log_id.index] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn write_membership(membership: &Membership, out: &mut Vec<u8>) {
    let configs = membership.get_joint_config();
    out.extend_from_slice(&(configs.len() as u32).to_le_bytes());
    for config in configs {
        out.extend_from_slice(&(config.len() as u32).to_le_bytes());
        for node in config {
            out.extend_from_slice(&node.to_le_bytes());
        }
    }
    out.extend_from_slice(&(membership.nodes().count() as u32).to_le_bytes());
    for (id, node) in membership.nodes() {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&(node.addr.len() as u32).to_le_bytes());
        out.extend_from_slice(node.addr.as_bytes());
    }
}

/// Takes values from the front of bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], BadBytes> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(BadBytes("its length"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn version(&mut self) -> Result<(), BadBytes> {
        if self.u8()? == VERSION { Ok(()) } else { Err(BadBytes("its version")) }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, BadBytes> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, BadBytes> {
        let bytes = self.take(4)?.try_into().expect("four bytes");
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, BadBytes> {
        let bytes = self.take(8)?.try_into().expect("eight bytes");
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, BadBytes> {
        let bytes = self.take(16)?.try_into().expect("sixteen bytes");
        Ok(u128::from_le_bytes(bytes))
    }

    pub(crate) fn stamp(&mut self) -> Result<Stamp, BadBytes> {
        Ok(Stamp { node: self.u64()?, incarnation: self.u64()?, number: self.u64()? })
    }

    pub(crate) fn log_id(&mut self) -> Result<LogId, BadBytes> {
        let leader_id = LeaderId { term: self.u64()?, node_id: self.u64()? };
        Ok(LogId { leader_id, index: self.u64()? })
    }

    pub(crate) fn membership(&mut self) -> Result<Membership, BadBytes> {
        let mut configs = Vec::new();
        for _ in 0..self.u32()? {
            let count = self.u32()?;
            let config = (0..count).map(|_| self.u64()).collect::<Result<BTreeSet<_>, _>>()?;
            configs.push(config);
        }
        let mut nodes = BTreeMap::new();
        for _ in 0..self.u32()? {
            let id = self.u64()?;
            let length = self.u32()? as usize;
            let addr =
                std::str::from_utf8(self.take(length)?).map_err(|_| BadBytes("an address"))?;
            nodes.insert(id, BasicNode { addr: addr.into() });
        }
        if configs.is_empty() {
            return Ok(Membership::default());
        }
        Membership::new(configs, nodes).map_err(|_| BadBytes("its membership"))
    }

    pub(crate) fn end(&self) -> Result<(), BadBytes> {
        if self.0.is_empty() { Ok(()) } else { Err(BadBytes("what follows it")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_id(index: u64) -> LogId {
        LogId { leader_id: LeaderId { term: 3, node_id: 1 }, index }
    }

    fn membership() -> Membership {
        let nodes = BTreeMap::from([1, 2].map(|id| (id, BasicNode { addr: format!("host-{id}") })));
        Membership::new(vec![BTreeSet::from([1, 2]), BTreeSet::from([1])], nodes).unwrap()
    }

    #[test]
    fn entries_read_back_as_they_were_written() {
        let commands = encode_commands(&[Command::Tick, Command::Rules(1)]);
        let changes = |source| {
            EntryPayload::Normal(Changes { at: 7, source, commands: Arc::clone(&commands) })
        };
        for payload in [
            EntryPayload::Blank,
            changes(Source::Leader),
            changes(Source::Member(Stamp { node: 2, incarnation: 3, number: 4 })),
            changes(Source::Gone(5)),
            EntryPayload::Membership(membership()),
        ] {
            let entry = Entry { log_id: log_id(9), payload };
            let bytes = encode_entry(&entry);
            let back = decode_entry(&bytes).unwrap();
            assert_eq!(format!("{back:?}"), format!("{entry:?}"));
            assert_eq!(encode_entry(&back), bytes);
            let no_commands = !matches!(entry.payload, EntryPayload::Normal(_));
            for end in 0..bytes.len() {
                assert!(decode_entry(&bytes[..end]).is_err() || !no_commands, "{end}");
            }
        }
        assert!(decode_entry(&[2]).is_err() && decode_entry(&[]).is_err());
    }

    #[test]
    fn commands_read_back_and_pieces_of_them_do_not() {
        let commands = vec![Command::Tick, Command::TokenFloor(5)];
        let bytes = encode_commands(&commands);
        assert_eq!(decode_commands(&bytes).unwrap(), commands);
        assert!(decode_commands(&bytes[..bytes.len() - 1]).is_err());
        assert!(decode_commands(&[1, 0, 0, 0, 255]).unwrap_err().to_string().contains("a command"));
    }

    #[test]
    fn votes_log_ids_and_heads_read_back() {
        let vote = Vote { leader_id: LeaderId { term: 4, node_id: 2 }, committed: true };
        assert_eq!(decode_vote(&encode_vote(&vote)).unwrap(), vote);
        assert_eq!(decode_log_id(&encode_log_id(&log_id(5))).unwrap(), log_id(5));
        for (last, at) in [(None, None), (Some(log_id(8)), Some(log_id(2)))] {
            let none = Origins::default();
            let mut bytes = encode_snapshot_head(last.as_ref(), at.as_ref(), &membership(), &none);
            let length = bytes.len();
            bytes.extend_from_slice(b"table");
            let head = decode_snapshot_head(&bytes).unwrap();
            assert_eq!((head.0, head.1, head.2, head.3), (last, at, membership(), length));
            assert_eq!(decode_origins(bytes[0], &bytes[length..]).unwrap(), (none, 0));
            let mut some = Origins::default();
            some.arrive(&Stamp { node: 2, incarnation: 1, number: 7 });
            let bytes = encode_snapshot_head(last.as_ref(), at.as_ref(), &membership(), &some);
            let head = decode_snapshot_head(&bytes).unwrap();
            assert_eq!((head.2, head.3), (membership(), length));
            let origins = decode_origins(bytes[0], &bytes[length..]).unwrap();
            assert_eq!(origins, (some, bytes.len() - length));
        }
    }
}
