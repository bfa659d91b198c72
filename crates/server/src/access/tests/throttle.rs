//! What a flood of refusals leaves behind.

use std::time::{Duration, Instant};

use crate::access::throttle::{Counted, Throttle};
use crate::access::{Outcome, Record};

fn refusal(principal: &str, name: &str) -> Record {
    Record {
        principal: Some(principal.into()),
        address: Some([127, 0, 0, 1].into()),
        listener: "resp",
        what: "LOCK",
        name: Some(name.into()),
        token: None,
        outcome: Outcome::Refused("no".into()),
    }
}

#[test]
fn the_same_refusal_is_written_once_and_counted() {
    let (mut throttle, start) = (Throttle::default(), Instant::now());
    let record = refusal("p", "k");
    assert!(throttle.takes(start, &record));
    for _ in 0..1_000_000 {
        assert!(!throttle.takes(start, &record));
    }
    assert!(throttle.takes(start, &refusal("p", "other")));
    let end = throttle.ends().unwrap();
    assert_eq!(throttle.ended(start + Duration::from_secs(59)), []);
    assert_eq!(throttle.ended(end), [Counted::Again(record.clone(), 1_000_000)]);
    assert_eq!(throttle.ends(), None, "nothing to wait for");
    assert!(throttle.takes(end, &record), "in the next window it is written again");
}

#[test]
fn one_caller_cannot_hide_another_behind_many_names() {
    let (mut throttle, start) = (Throttle::default(), Instant::now());
    let written =
        (0..5_000).filter(|number| throttle.takes(start, &refusal("a", &number.to_string())));
    assert_eq!(written.count(), 60);
    assert!(throttle.takes(start, &refusal("b", "k")));
    let counted = throttle.end();
    assert_eq!(counted, [Counted::More((Some("a".into()), None), 4_940)]);
}

#[test]
fn many_callers_leave_no_more_than_the_bound() {
    let (mut throttle, start) = (Throttle::default(), Instant::now());
    let mut written = 0;
    for number in 0..20_000u32 {
        let address = Some(std::net::Ipv4Addr::from(number).into());
        let record = Record { principal: None, address, ..refusal("", "k") };
        written += usize::from(throttle.takes(start, &record));
    }
    assert_eq!(written, 600);
    let record = Record { principal: None, address: Some([0, 0, 0, 1].into()), ..refusal("", "x") };
    assert!(!throttle.takes(start, &record), "known, but there is no room");
    let counted = throttle.end();
    assert_eq!(counted.len(), 2);
    assert_eq!(counted[0], Counted::More((None, record.address), 1));
    assert_eq!(counted[1], Counted::Others(19_400));
}
