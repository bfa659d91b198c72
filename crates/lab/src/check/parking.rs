//! Which of its blockers each waiter is parked on: the one thing that the table keeps for speed
//! alone and that decides whom it looks at when something ends. It is nobody's business outside
//! the table, so it is read from the table's debug text; a world can ask for states that differ
//! in it to count as different.
//!
//! That is not quite all: which blocker is chosen next also depends on the order in which the
//! table's index happens to visit resources. So the number of states of such a world varies by a
//! few from run to run, with the order in which threads get there, and places to park that only
//! come up through both are not all explored. What holders and waiters there are, is.
//!
//! A change of those names in the table fails here, loudly, and this file has to follow.

use keylatch_table::Table;

/// Adds, for each waiter in arrival order, the place in that order of what it is parked on.
pub(super) fn push(table: &Table, key: &mut Vec<u8>) {
    let text = format!("{table:?}");
    let requests = text.split_once("requests: Slab { slots: [").expect("the table has requests").1;
    let requests = requests.split_once("], free: ").expect("and a free list").0;
    // One piece a slot; the first piece is what stands before the first.
    let slots: Vec<&str> = requests.split("Used(Request {").collect();
    let mut seqs: Vec<Option<u64>> = Vec::new();
    let mut parked: Vec<(u64, u64)> = Vec::new();
    for (at, piece) in slots.iter().enumerate() {
        if at > 0 {
            let seq = number(piece, " seq: ").expect("a request has a seq");
            seqs.push(Some(seq));
            if let Some(on) = number(piece, " parked_on: ") {
                parked.push((seq, on));
            }
            assert_eq!(
                number(piece, " token: ") == Some(0),
                piece.contains(" parked_on: "),
                "a waiter is parked, and nobody else"
            );
        }
        seqs.extend(std::iter::repeat_n(None, piece.matches("Free(").count()));
    }
    parked.sort_unstable();
    let rank = |seq: u64| seqs.iter().flatten().filter(|other| **other < seq).count() as u8;
    key.extend(parked.iter().map(|(_, on)| rank(seqs[*on as usize].expect("parked on a request"))));
}

fn number(text: &str, name: &str) -> Option<u64> {
    let digits = text.split_once(name)?.1;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}
