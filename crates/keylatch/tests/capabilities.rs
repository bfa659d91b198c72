//! The table of docs/strategies/README.md is made of the same values by which the conformance suite
//! chooses its tests. `KEYLATCH_WRITE_DOCS=1 cargo test -p keylatch --test capabilities` writes it.

use std::path::Path;
use std::time::Duration;

use keylatch::{Capabilities, Durable};

const BEGIN: &str = "<!-- made by crates/keylatch/tests/capabilities.rs, which says how -->\n";
const END: &str = "<!-- end of what is made -->\n";

#[test]
fn the_table_in_the_docs_is_what_is_tested() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/strategies/README.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has its place");
    let (there, after) = rest.split_once(END).expect("and its end");
    let made = table();
    if std::env::var_os("KEYLATCH_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{made}{END}{after}")).unwrap();
        return;
    }
    assert!(there == made, "not what is tested; KEYLATCH_WRITE_DOCS=1 writes it:\n{made}");
}

type Row = (&'static str, fn(&Capabilities) -> String);

/// What is asked of each of them.
const ROWS: [Row; 16] = [
    ("for", |it| it.purpose.into()),
    ("survives", |it| it.survives.into()),
    ("an acknowledged lock is on disk", |it| match it.durable {
        Durable::No => "no".into(),
        Durable::Yes => "yes".into(),
        Durable::Configured(how) => how.into(),
        _ => panic!("a new word for the table"),
    }),
    ("clock", |it| it.clock.into()),
    ("calls to the store for a lock and its release", |it| it.cost.into()),
    ("waiters are woken by", |it| it.woken.into()),
    ("modes, wildcards, promotion, leases", |_| "yes".into()),
    ("strictly in the order of arrival", |it| yes(it.fair)),
    ("several keys at once", |it| yes(it.several_names)),
    ("may wait for one key", |it| it.waiters.to_string()),
    ("shortest lease", |it| time(it.shortest_lease)),
    ("events (`watch`)", |it| yes(it.watch)),
    ("deadlock detection", |it| yes(it.detect)),
    ("[tasks](../tasks.md)", |it| yes(it.tasks)),
    ("claims that wait are counted", |it| match it.counts_waiting {
        true => "yes".into(),
        false => "those of the process".into(),
    }),
    ("an ended id is not granted again", |it| it.ended_ids.map_or("no".into(), time)),
];

fn table() -> String {
    let all = Capabilities::ALL;
    let head = all.iter().map(|it| format!("[`{}`]({})", it.url, it.page));
    let mut rows = vec![row("", head), row("---", all.iter().map(|_| "---".into()))];
    rows.extend(ROWS.iter().map(|(name, cell)| row(name, all.iter().map(cell))));
    let feature = |it: &Capabilities| it.feature.map_or("(always)".into(), |it| format!("`{it}`"));
    rows.push(row("feature of the crate", all.iter().map(feature)));
    rows.concat()
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}

fn yes(can: bool) -> String {
    if can { "yes" } else { "refused" }.into()
}

fn time(time: Duration) -> String {
    match (time.as_secs(), time.subsec_millis()) {
        (0, ms) => format!("{ms} ms"),
        (seconds, _) => format!("{seconds} s"),
    }
}
