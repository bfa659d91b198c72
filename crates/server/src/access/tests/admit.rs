//! Every right, on a name and beside it, against every command.

use std::cell::Cell;

use keylatch_table::{
    Checked, Claim, Command, Create, Detach, Entry, Keyed, KeyedOp, LocksQuery, Mode, Party,
    PutBack, Query, Reply, RequestId, Resource, Table, Target, TaskAction, TaskCommand, TaskReply,
    TasksQuery, Text,
};

use super::{ask, lock, principal, table};
use crate::access::{Denied, Lookup, Principal, Right, Rule, admit, admit_query, as_unknown};

const ME: &str = "me";

fn id(text: &str) -> Target {
    Target::Id(text.into())
}

fn task(action: TaskAction) -> Command {
    Command::Task(TaskCommand { id: "t".into(), pool: "p:1".into(), action })
}

fn keyed(keys: &[&str]) -> Command {
    let keys = keys.iter().map(|key| Resource::plain(key).unwrap()).collect();
    Command::Keyed(Keyed { keys, value: None, all: false, op: KeyedOp::Delete })
}

fn cancel_claim(id: &str) -> Command {
    Command::Task(TaskCommand { id: id.into(), pool: "".into(), action: TaskAction::Cancel })
}

fn waiting_claim(id: &str, of: Option<&str>) -> Command {
    let party = Party { principal: of.map(Into::into), ..Party::client("c") };
    let claim = Claim { key: None, party, wait_ms: 9, lease_ms: 1 };
    let action = TaskAction::Claim(claim);
    Command::Task(TaskCommand { id: id.into(), pool: "p:5".into(), action })
}

/// A table with requests of mine, of somebody else, of nobody, all on `p:1` and the like.
fn crowded() -> (Table, u64, u64) {
    let mut table = table();
    let mine = lock(&mut table, Some(ME), "mine", &[("p:1", Mode::Optimistic)]);
    let theirs = lock(&mut table, Some("them"), "theirs", &[("p:2", Mode::Shared)]);
    lock(&mut table, None, "old", &[("p:3", Mode::Exclusive)]);
    lock(&mut table, None, "old-shared", &[("p:4", Mode::Shared)]);
    for (id, of) in [("my-claim", Some(ME)), ("their-claim", Some("them")), ("old-claim", None)] {
        let reply = table.apply(0, waiting_claim(id, of)).reply;
        assert_eq!(reply, Reply::Task(TaskReply::Waiting));
    }
    (table, mine, theirs)
}

/// A command on names that begin with `p:`, and the right without which it is refused; `None` needs
/// no right at all.
fn commands() -> Vec<(&'static str, Command, Option<Right>)> {
    let (_, mine, theirs) = crowded();
    let acquire = |mode| Command::Acquire(ask(Some(ME), "new", &[("p:1", mode)]));
    let checked = || Checked { key: "k".into(), version: 1 };
    let (shared, exclusive) = (Some(Right::Shared), Some(Right::Exclusive));
    let (admin, revoke) = (Some(Right::Admin), Some(Right::Revoke));
    let both = |second| {
        let asks = [("a", Mode::Shared), ("b", second)];
        let asks = asks.map(|(id, mode)| ask(Some(ME), id, &[("p:1", mode)]));
        Command::AcquireEach(asks.into())
    };
    let create = Create { key: "k".into(), body: None, priority: 0, delay_ms: 0, attempts: None };
    let claim = Claim { key: None, party: Party::client("c"), wait_ms: 0, lease_ms: 1 };
    vec![
        ("lock S", acquire(Mode::Shared), shared),
        ("lock O", acquire(Mode::Optimistic), shared),
        ("lock E", acquire(Mode::Cumulative), exclusive),
        ("lock X", acquire(Mode::Exclusive), exclusive),
        ("lock each", both(Mode::Shared), shared),
        ("release mine", Command::Release(id("mine")), None),
        ("renew mine", Command::Renew(id("mine"), None), None),
        ("cancel mine", Command::Cancel(id("mine")), None),
        ("promote mine", Command::Promote(id("mine")), exclusive),
        ("release theirs", Command::Release(id("theirs")), admin),
        ("renew theirs", Command::Renew(id("theirs"), Some(1)), admin),
        ("cancel theirs", Command::Cancel(id("theirs")), admin),
        ("promote theirs", Command::Promote(id("theirs")), admin),
        ("release nobody's", Command::Release(id("old")), exclusive),
        ("renew nobody's S", Command::Renew(id("old-shared"), None), shared),
        ("release unknown", Command::Release(id("unknown")), None),
        ("renew unknown", Command::Renew(id("unknown"), None), None),
        ("cancel unknown", Command::Cancel(id("unknown")), None),
        ("promote unknown", Command::Promote(id("unknown")), None),
        ("revoke mine", Command::Revoke(mine, "why".into()), revoke),
        ("revoke theirs", Command::Revoke(theirs, "why".into()), revoke),
        ("keyed", keyed(&["p:1", "p:2"]), exclusive),
        ("create", task(TaskAction::Create(create)), exclusive),
        ("claim", task(TaskAction::Claim(claim)), exclusive),
        ("update", task(TaskAction::Update(checked(), None, None)), exclusive),
        ("finish", task(TaskAction::Finish(checked())), exclusive),
        ("put back", task(TaskAction::PutBack(checked(), PutBack::default())), exclusive),
        ("delete", task(TaskAction::Delete("k".into(), None)), exclusive),
        ("retry", task(TaskAction::Retry(None)), exclusive),
        ("cancel my claim", cancel_claim("my-claim"), None),
        ("cancel their claim", cancel_claim("their-claim"), admin),
        ("cancel an old claim", cancel_claim("old-claim"), exclusive),
        ("cancel an unknown claim", cancel_claim("unknown"), None),
    ]
}

/// Commands for administrators of everything alone.
fn own_commands() -> Vec<Command> {
    vec![
        Command::Detach(Detach { ids: None, grace_ms: 0 }),
        Command::Tick,
        Command::Settings(Box::default()),
        Command::Rules(1),
        Command::TokenFloor(1),
    ]
}

#[test]
fn every_right_on_every_prefix_allows_what_it_says_and_nothing_else() {
    let (table, ..) = crowded();
    let mut judged = 0;
    for (what, command, needed) in commands() {
        for right in Right::ALL {
            // Whether the prefix covers the names.
            for (prefix, covers) in [
                ("", true),
                ("p", true),
                ("p:", true),
                ("q:", false),
                ("p:1:", false),
                ("P:", false),
            ] {
                let who = Principal::new(ME, vec![Rule::new(prefix, &[right])]);
                let allowed = match needed {
                    None => true,
                    Some(needed) => covers && (right == needed || right == Right::Admin),
                };
                let said = admit(&who, &command, &table);
                assert_eq!(said.is_ok(), allowed, "{what} with {right} on '{prefix}': {said:?}");
                judged += 1;
            }
        }
        assert_eq!(admit(&principal(ME, ""), &command, &table).is_ok(), needed.is_none(), "{what}");
    }
    assert_eq!(judged, commands().len() * 30);
    for command in own_commands() {
        for right in Right::ALL {
            for prefix in ["", "p:"] {
                let who = Principal::new(ME, vec![Rule::new(prefix, &[right])]);
                let allowed = right == Right::Admin && prefix.is_empty();
                assert_eq!(admit(&who, &command, &table).is_ok(), allowed, "{command:?}");
            }
        }
    }
}

#[test]
fn every_name_of_a_request_needs_its_right() {
    let table = table();
    let who = principal(ME, "a: shared; b: exclusive");
    let both = |a, b| Command::Acquire(ask(Some(ME), "new", &[("a:1", a), ("b:1", b)]));
    assert_eq!(admit(&who, &both(Mode::Shared, Mode::Exclusive), &table), Ok(()));
    let missing = |right, name: &str| Err(Denied::Missing { right, name: name.into() });
    let said = admit(&who, &both(Mode::Exclusive, Mode::Exclusive), &table);
    assert_eq!(said, missing(Right::Exclusive, "a:1"));
    let said = admit(&who, &both(Mode::Shared, Mode::Optimistic), &table);
    assert_eq!(said, missing(Right::Shared, "b:1"), "exclusive does not include shared");
    assert_eq!(admit(&who, &keyed(&["b:1", "a:1"]), &table), missing(Right::Exclusive, "a:1"));
    let each = ["a:1", "b:2", "c:1"].map(|name| ask(Some(ME), name, &[(name, Mode::Shared)]));
    let said = admit(&who, &Command::AcquireEach(each.into()), &table);
    assert_eq!(said, missing(Right::Shared, "b:2"));
}

#[test]
fn the_fields_of_a_resource_do_not_count() {
    let who = principal(ME, "table exclusive");
    let mut wide = ask(Some(ME), "new", &[("table", Mode::Exclusive)]);
    wide.part.resource = Resource::new("table", &["secret".into(), keylatch_table::ANY]).unwrap();
    assert_eq!(admit(&who, &Command::Acquire(wide), &table()), Ok(()));
}

#[test]
fn what_is_somebody_elses_is_answered_as_if_it_did_not_exist() {
    let (mut table, _, theirs) = crowded();
    let who = principal(ME, "p: shared,exclusive,observe; q: revoke");
    let commands = [
        Command::Release(id("theirs")),
        Command::Renew(id("theirs"), None),
        Command::Renew(id("theirs"), Some(u64::MAX)),
        Command::Cancel(id("theirs")),
        Command::Promote(id("theirs")),
    ];
    for command in commands {
        assert_eq!(admit(&who, &command, &table), Err(Denied::NotYours));
        let unknown = match &command {
            Command::Release(_) => Command::Release(id("unknown")),
            Command::Renew(_, lease) => Command::Renew(id("unknown"), *lease),
            Command::Cancel(_) => Command::Cancel(id("unknown")),
            _ => Command::Promote(id("unknown")),
        };
        assert_eq!(admit(&who, &unknown, &table), Ok(()));
        let unknown = table.apply(2, unknown);
        assert_eq!(table.apply(2, as_unknown(command)), unknown);
    }
    // Of a grant on a name that it may not see it does not learn even that.
    let stranger = principal(ME, "q: revoke");
    let revoke = Command::Revoke(theirs, "why".into());
    assert_eq!(admit(&stranger, &revoke, &table), Err(Denied::NotYours));
    assert_eq!(table.apply(2, as_unknown(revoke.clone())).reply, Reply::Revoked(false));
    let missing = Denied::Missing { right: Right::Revoke, name: "p:2".into() };
    assert_eq!(admit(&who, &revoke, &table), Err(missing));
    assert!(!table.request(&id("theirs")).is_empty(), "all of that did nothing to it");
    assert_eq!(as_unknown(Command::Tick), Command::Tick);
}

#[test]
fn a_repeat_of_somebody_elses_request_does_not_get_its_grant() {
    let (mut table, ..) = crowded();
    let who = principal(ME, "p: shared,exclusive");
    let repeat = ask(Some(ME), "theirs", &[("p:2", Mode::Shared)]);
    // The table itself takes it for a repeat: principals are no part of the content.
    assert!(matches!(table.apply(2, Command::Acquire(repeat.clone())).reply, Reply::Granted(_)));
    assert_eq!(admit(&who, &Command::Acquire(repeat.clone()), &table), Err(Denied::IdReused));
    let each = Command::AcquireEach(vec![repeat]);
    assert_eq!(admit(&who, &each, &table), Err(Denied::IdReused));
    let own = Command::Acquire(ask(Some(ME), "mine", &[("p:1", Mode::Optimistic)]));
    assert_eq!(admit(&who, &own, &table), Ok(()));
}

#[test]
fn a_request_is_administered_only_by_who_administers_all_its_names() {
    let mut table = table();
    let parts = [("a:1", Mode::Exclusive), ("b:1", Mode::Exclusive)];
    let token = lock(&mut table, Some("them"), "both", &parts);
    for (rules, allowed) in [("a: admin", false), ("a: admin; b: admin", true), (" admin", true)] {
        let who = principal(ME, rules);
        assert_eq!(admit(&who, &Command::Release(id("both")), &table).is_ok(), allowed, "{rules}");
        let revoke = Command::Revoke(token, "why".into());
        assert_eq!(admit(&who, &revoke, &table).is_ok(), allowed, "{rules}");
    }
    let who = principal(ME, "a: revoke; b: observe");
    let said = admit(&who, &Command::Revoke(token, "why".into()), &table);
    assert_eq!(said, Err(Denied::Missing { right: Right::Revoke, name: "b:1".into() }));
}

#[test]
fn aliases_belong_to_their_listener_and_promoting_still_needs_the_right() {
    let mut table = table();
    let mut request = ask(Some("enqueue"), "r", &[("p:1", Mode::Optimistic)]);
    let extra = keylatch_table::Extra { alias: Some("16568_1".into()), ..Default::default() };
    request.extra = extra.into();
    table.apply(1, Command::Acquire(request));
    let alias = || Target::Alias("16568_1".into());
    let limited = principal("enqueue", "p: shared");
    assert_eq!(admit(&limited, &Command::Release(alias()), &table), Ok(()));
    let missing = Denied::Missing { right: Right::Exclusive, name: "p:1".into() };
    assert_eq!(admit(&limited, &Command::Promote(alias()), &table), Err(missing));
    let may = principal("enqueue", "p: exclusive");
    assert_eq!(admit(&may, &Command::Promote(alias()), &table), Ok(()));
    assert_eq!(table.request(&Target::Alias("other".into())), []);
}

#[test]
fn a_waiting_claim_of_another_is_neither_joined_nor_cancelled() {
    let (mut table, ..) = crowded();
    let who = principal(ME, "p: exclusive");
    let join = |id| admit(&who, &waiting_claim(id, Some(ME)), &table);
    assert_eq!(join("my-claim"), Ok(()));
    assert_eq!(join("their-claim"), Err(Denied::IdReused));
    assert_eq!(join("old-claim"), Ok(()));
    let cancel = cancel_claim("their-claim");
    assert_eq!(admit(&who, &cancel, &table), Err(Denied::NotYours));
    let said = table.apply(0, as_unknown(cancel)).reply;
    assert_eq!(said, Reply::Task(TaskReply::Cancelled(false)), "as of an unknown one");
    assert!(table.waiting_claim(&"their-claim".into()).is_some());
}

/// Counts how often something is looked up.
struct Counting<'a>(&'a Table, Cell<usize>);

impl Lookup for Counting<'_> {
    fn request(&self, target: &Target) -> Vec<Entry> {
        self.1.set(self.1.get() + 1);
        self.0.request(target)
    }

    fn grant(&self, token: u64) -> Vec<Entry> {
        self.1.set(self.1.get() + 1);
        self.0.grant(token)
    }

    fn claim(&self, id: &RequestId) -> Option<(Text, Option<Text>)> {
        self.1.set(self.1.get() + 1);
        self.0.claim(id)
    }
}

#[test]
fn who_may_do_nothing_or_everything_costs_no_lookup() {
    let (table, mine, _) = crowded();
    let counting = Counting(&table, Cell::new(0));
    let revoke = Command::Revoke(mine, "why".into());
    let said = admit(&principal(ME, "p: shared"), &revoke, &counting).unwrap_err();
    assert_eq!(
        said.to_string(),
        "this needs the right `revoke`; ask whoever keeps the access file for it"
    );
    admit(&Principal::administrator("root"), &Command::Release(id("mine")), &counting).unwrap();
    let forbidden = Command::Acquire(ask(Some(ME), "new", &[("q:1", Mode::Shared)]));
    admit(&principal(ME, "p: shared"), &forbidden, &counting).unwrap_err();
    assert_eq!(counting.1.get(), 0);
    admit(&principal(ME, "p: shared"), &Command::Release(id("mine")), &counting).unwrap();
    assert_eq!(counting.1.get(), 1);
}

#[test]
fn grants_are_found_beyond_the_first_page() {
    let mut table = table();
    let mut token = 0;
    for number in 0..2_500 {
        let name = format!("p:{number}");
        token = lock(&mut table, Some("them"), &name, &[(&name, Mode::Exclusive)]);
    }
    assert_eq!(table.grant(token).len(), 1);
    assert_eq!(table.grant(token + 1), []);
    assert_eq!(table.grant(0), []);
}

#[test]
fn a_refusal_says_the_right_and_the_name_and_nothing_of_others() {
    let (table, ..) = crowded();
    let who = principal(ME, "p: shared");
    let said = |command: &Command| admit(&who, command, &table).unwrap_err().to_string();
    let exclusive = said(&Command::Promote(id("mine")));
    assert!(exclusive.starts_with("this needs the right `exclusive` on 'p:1'"), "{exclusive}");
    assert_eq!(said(&Command::Release(id("theirs"))), "there is no such request");
    let repeat = said(&Command::Acquire(ask(Some(ME), "theirs", &[("p:2", Mode::Shared)])));
    assert_eq!(repeat, keylatch_table::Error::IdReused.to_string());
    for text in [exclusive, repeat, said(&Command::Tick)] {
        assert!(!text.contains("theirs") && !text.contains("them"), "{text}");
    }
}

#[test]
fn questions_need_that_something_may_be_seen() {
    let key = |name: &str| Query::Key(Resource::plain(name).unwrap());
    let tasks = |pool: &str| {
        Query::Tasks(TasksQuery {
            pool: pool.into(),
            state: None,
            prefix: None,
            limit: 0,
            cursor: 0,
        })
    };
    let one = |pool: &str| Query::Task(pool.into(), "k".into());
    for right in Right::ALL {
        let who = Principal::new(ME, vec![Rule::new("p:", &[right])]);
        assert_eq!(admit_query(&who, &key("p:1")), Ok(()), "{right}");
        assert!(admit_query(&who, &key("q:1")).is_err());
        let observes = matches!(right, Right::Observe | Right::Admin);
        assert_eq!(admit_query(&who, &tasks("p:1")).is_ok(), observes);
        assert_eq!(admit_query(&who, &one("p:1")).is_ok(), observes);
        assert!(
            admit_query(&who, &tasks("q:1")).is_err() && admit_query(&who, &one("q:1")).is_err()
        );
        assert_eq!(admit_query(&who, &Query::TopOwners(3)), Err(Denied::NotAdministrator));
        for free in [Query::Locks(LocksQuery::default()), Query::Request("x".into()), Query::Pools]
        {
            assert_eq!(admit_query(&who, &free), Ok(()));
        }
    }
    assert_eq!(admit_query(&principal(ME, " observe"), &Query::TopOwners(3)), Ok(()));
}
