//! What goes through several files of this folder.

mod admit;
mod audit;
mod file;
mod throttle;
mod visible;

use keylatch_table::{Acquire, Command, Mode, Part, Party, Reply, Resource, Settings, Table};

use super::{Principal, Right, Rule};

/// A principal with the rules that a line says: `billing: shared,observe; : admin`.
fn principal(name: &str, rules: &str) -> Principal {
    let rule = |text: &str| {
        let (prefix, rights) = text.rsplit_once(' ').unwrap();
        let rights: Vec<Right> =
            rights.split(',').map(|word| Right::from_word(word).unwrap()).collect();
        Rule::new(prefix.trim().trim_matches('\''), &rights)
    };
    let rules = rules.split(';').filter(|text| !text.trim().is_empty()).map(rule).collect();
    Principal::new(name, rules)
}

fn part(name: &str, mode: Mode) -> Part {
    Part::new(Resource::plain(name).unwrap(), mode)
}

/// A request of `who` for some names.
fn ask(who: Option<&str>, id: &str, parts: &[(&str, Mode)]) -> Acquire {
    let mut parts = parts.iter().map(|(name, mode)| part(name, *mode));
    let first = parts.next().unwrap();
    let party = Party { principal: who.map(Into::into), ..Party::client("client") };
    let mut ask = Acquire::new(id.into(), first.resource, party);
    ask.part.mode = first.mode;
    ask.also = parts.collect();
    ask
}

fn table() -> Table {
    Table::new(Settings::default(), 0, 1)
}

/// Locks for `who`, and the token.
fn lock(table: &mut Table, who: Option<&str>, id: &str, parts: &[(&str, Mode)]) -> u64 {
    match table.apply(1, Command::Acquire(ask(who, id, parts))).reply {
        Reply::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    }
}
