//! A [`Standing`] as bytes, for record stores. `docs/table-format.md` has the encoding of its parts.

use crate::codec::{CodecError, Read, Reader, Writer};
use crate::command_bytes::{read_extra, read_party, write_extra, write_party};
use crate::standing::{Standing, StandingPart, StandingWait};

impl Standing {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        // Most fit into this.
        let mut to = Writer { bytes: Vec::with_capacity(128) };
        to.id(&self.id);
        for number in [self.seq, self.token, self.since] {
            to.u64(number);
        }
        to.option(self.deadline, Writer::u64);
        to.u64(self.waited_ms);
        to.u64(self.lease_ms);
        write_party(&mut to, &self.party);
        to.bool(self.detect);
        to.bool(self.detached);
        to.list(self.parts.iter(), |to, part| {
            to.resource(&part.resource);
            to.mode(part.mode);
            to.mode(part.asked);
        });
        write_extra(&mut to, &self.extra);
        to.u64(self.wait_ms);
        to.option(self.wait.as_ref(), |to, wait| {
            to.u64(wait.asked);
            to.u64(wait.end);
            to.option(wait.grace, |to, (grace_ms, end)| {
                to.u64(grace_ms);
                to.u64(end);
            });
        });
        to.bytes
    }

    /// From bytes. Whether such a request can stand is for [`crate::Table::from_standings`].
    pub fn decode(bytes: &[u8]) -> Result<Standing, CodecError> {
        let mut from = Reader::new(bytes);
        let standing = read(&mut from)?;
        from.end()?;
        Ok(standing)
    }
}

fn read(from: &mut Reader<'_>) -> Read<Standing> {
    Ok(Standing {
        id: from.id()?,
        seq: from.u64()?,
        token: from.u64()?,
        since: from.u64()?,
        deadline: from.option(Reader::u64)?,
        waited_ms: from.u64()?,
        lease_ms: from.u64()?,
        party: read_party(from)?,
        detect: from.bool()?,
        detached: from.bool()?,
        parts: from.list(|from| {
            Ok(StandingPart { resource: from.resource()?, mode: from.mode()?, asked: from.mode()? })
        })?,
        extra: read_extra(from)?,
        wait_ms: from.u64()?,
        wait: from.option(|from| {
            Ok(StandingWait {
                asked: from.u64()?,
                end: from.u64()?,
                grace: from.option(|from| Ok((from.u64()?, from.u64()?)))?,
            })
        })?,
    })
}

#[cfg(test)]
mod tests {
    use crate::{Acquire, Command, Party, Resource, Settings, Standing, Table};

    #[test]
    fn holders_and_waiters_read_back_and_pieces_of_them_do_not() {
        let mut table = Table::new(Settings::default(), 0, 1);
        let resource = Resource::new("t", &["A".into(), crate::ANY]).unwrap();
        for (id, wait_ms) in [("holder", 0), ("waiter", 5_000)] {
            let mut ask = Acquire::new(id.into(), resource.clone(), Party::owner(id));
            ask.wait_ms = wait_ms;
            table.apply(1_000, Command::Acquire(ask));
        }
        let detach = crate::Detach { ids: None, grace_ms: 700 };
        table.apply(1_100, Command::Detach(detach));
        assert_eq!(table.standings().count(), 2);
        for standing in table.standings() {
            let bytes = standing.encode();
            assert_eq!(Standing::decode(&bytes).unwrap(), standing);
            for end in 0..bytes.len() {
                assert!(Standing::decode(&bytes[..end]).is_err());
            }
        }
    }
}
