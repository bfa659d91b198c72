//! Damaged snapshots. Damage that happened is caught by the checksum; content that somebody made up,
//! with a checksum that fits, is refused or is a table that works.

use std::panic::{AssertUnwindSafe, catch_unwind};

use twox_hash::XxHash3_64;

use crate::rich::{probes, rich};
use keylatch_table::{CodecError, Table};

/// Puts the right checksum behind a content.
fn sealed(mut content: Vec<u8>) -> Vec<u8> {
    let checksum = XxHash3_64::oneshot(&content);
    content.extend_from_slice(&checksum.to_le_bytes());
    content
}

fn content() -> Vec<u8> {
    let mut bytes = rich().table.snapshot();
    bytes.truncate(bytes.len() - 8);
    bytes
}

/// Restores made-up bytes: refused, or a table that passes its own check, reads back from its own
/// bytes, and survives a few commands (a debug build checks it after each). Says whether it was one.
fn survives(bytes: &[u8]) -> bool {
    let Ok(mut table) = Table::restore(bytes, 3) else { return false };
    table.check();
    let again = Table::restore(&table.snapshot(), 4).expect("a table reads back");
    assert_eq!(again.state_hash(), table.state_hash());
    // Those that touch what was restored, then everything comes to its end.
    for (at, command) in probes().into_iter().filter(|(at, _)| *at == 0 || *at >= 50_000) {
        table.apply(at, command);
    }
    table.check();
    true
}

/// Tries many made-up contents and tells of every one that ends in a panic. Returns how many of them
/// were tables.
fn all_survive(contents: impl Iterator<Item = (String, Vec<u8>)>) -> usize {
    let (mut faults, mut tables) = (Vec::new(), 0);
    for (what, content) in contents {
        let bytes = sealed(content);
        match catch_unwind(AssertUnwindSafe(|| survives(&bytes))) {
            Ok(table) => tables += usize::from(table),
            Err(_) => faults.push(what),
        }
    }
    assert!(faults.is_empty(), "{} panics (above): {faults:#?}", faults.len());
    tables
}

/// A number as the format writes it.
fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// `content` with the bytes of a range replaced.
fn spliced(content: &[u8], range: std::ops::Range<usize>, with: &[u8]) -> Vec<u8> {
    [&content[..range.start], with, &content[range.end..]].concat()
}

#[test]
fn every_truncation_is_refused() {
    let bytes = rich().table.snapshot();
    for end in 0..bytes.len() {
        assert!(Table::restore(&bytes[..end], 1).is_err(), "up to {end}");
    }
    for end in 0..8 {
        assert_eq!(Table::restore(&bytes[..end], 1).unwrap_err(), CodecError::Short);
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let bytes = rich().table.snapshot();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            assert!(Table::restore(&damaged, 1).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn bytes_behind_the_end_are_refused() {
    let mut bytes = rich().table.snapshot();
    bytes.push(0);
    assert!(Table::restore(&bytes, 1).is_err());
    let mut longer = content();
    longer.push(0);
    assert_eq!(Table::restore(&sealed(longer), 1).unwrap_err(), CodecError::Long);
}

#[test]
fn a_content_that_is_cut_off_but_sealed_is_refused() {
    let content = content();
    for end in 0..content.len() {
        assert!(Table::restore(&sealed(content[..end].to_vec()), 1).is_err(), "up to {end}");
    }
}

#[test]
fn no_changed_byte_makes_restoring_or_using_the_table_panic() {
    let content = content();
    let changed = (0..content.len()).flat_map(|at| {
        let byte = content[at];
        let mut values = match byte.is_ascii_alphabetic() {
            true if at % 3 == 0 => vec![0xff, byte ^ 1],
            true => vec![0xff], // nearly always text, where another letter changes little
            false => vec![0, 1, 0x7f, 0x80, 0xff, byte ^ 1, byte.wrapping_add(2)],
        };
        values.sort_unstable();
        values.dedup();
        let content = &content;
        values.into_iter().filter(move |value| *value != byte).map(move |value| {
            (format!("byte {at} {byte}->{value}"), spliced(content, at..at + 1, &[value]))
        })
    });
    // Many changes are harmless: a letter of an owner, a longer lease.
    assert!(all_survive(changed) > 200);
}

#[test]
fn no_other_number_makes_restoring_or_using_the_table_panic() {
    let content = content();
    // The smallest, and around what the table's own representation can hold.
    let others = [0, 1, 5, (1 << 32) - 1, 1 << 32, (1 << 62) - 1, 1 << 62, u64::MAX];
    let changed = numbers(&content).into_iter().flat_map(|range| {
        let content = &content;
        others.iter().map(move |value| {
            let what = format!("number at {} = {value}", range.start);
            (what, spliced(content, range.clone(), &number(*value)))
        })
    });
    all_survive(changed);
}

/// Where a number begins and ends, for every place that one could well begin at.
fn numbers(content: &[u8]) -> Vec<std::ops::Range<usize>> {
    let starts = (5..content.len())
        .filter(|at| content[at - 1] < 0x80 && !content[*at].is_ascii_alphabetic());
    let range = |at: usize| {
        let more = content[at..].iter().take_while(|byte| **byte >= 0x80).count();
        at..(at + more + 1).min(content.len())
    };
    starts.map(range).collect()
}

#[test]
fn no_missing_or_doubled_byte_makes_restoring_or_using_the_table_panic() {
    let content = content();
    let changed = (0..content.len()).flat_map(|at| {
        let byte = content[at];
        [
            (format!("without byte {at}"), spliced(&content, at..at + 1, &[])),
            (format!("byte {at} twice"), spliced(&content, at..at, &[byte])),
        ]
    });
    all_survive(changed);
}
