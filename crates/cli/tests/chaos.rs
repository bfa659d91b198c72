//! The short version of `scripts/chaos cluster`: real processes, each kind of trouble once, and a judge. What the
//! judge is good for is seen by two mistakes that are made on purpose.

use std::path::PathBuf;
use std::sync::Arc;

use keylatch_chaos::fault::Kind;
use keylatch_chaos::report::Report;
use keylatch_chaos::{Length, Options, Plant};

fn run(seed: u64, plant: Option<Plant>) -> Report {
    let options = Options {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_keylatch")),
        seed,
        members: 3,
        length: Length::Faults(Kind::ALL.len() as u64),
        plant,
        stop: Arc::default(),
    };
    keylatch_chaos::run(&options, &|line| println!("{line}")).unwrap()
}

#[test]
fn a_cluster_in_every_kind_of_trouble_keeps_its_promises() {
    let report = run(1, None);
    assert!(report.is_good(), "{report}");
    assert_eq!(report.faults.len(), Kind::ALL.len(), "{report}");
    let judged = &report.count;
    assert!(judged.grants > 100 && judged.releases > 100 && judged.lapsed > 0, "{report}");
}

#[test]
fn old_data_put_back_at_all_members_is_noticed() {
    let report = run(2, Some(Plant::OldCopy));
    assert!(report.violations.iter().any(|what| what.contains("a grant is lost")), "{report}");
}

#[test]
fn a_server_that_is_no_member_and_grants_what_others_hold_is_noticed() {
    let report = run(3, Some(Plant::Stranger));
    assert!(report.violations.iter().any(|what| what.contains("both hold")), "{report}");
}
