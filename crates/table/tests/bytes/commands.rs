//! Every command as bytes and back.

use crate::common::tasks::{checked, command, text_body};
use crate::common::{ask, resource, settings_with, target};
use keylatch_table::{
    Body, Claim, CodecError, Command, Create, Detach, Keyed, KeyedOp, Party, PutBack, TaskAction,
};

const UUID: &str = "0189abcd-ef01-7234-8567-89abcdef0123";

/// Every variant of everything, with empty, small and large values.
fn every_command() -> Vec<Command> {
    let full = ask(UUID, "S tab(A,@,#1,true,false) & X k")
        .owner("ann")
        .principal("pat")
        .wait(5_000)
        .lease(u64::MAX)
        .detect()
        .max_hold(300)
        .meta("m")
        .value("v")
        .alias("l");
    let plain = ask("", "O k").shown("").lease(0);
    let keyed = |value: Option<&[u8]>, all, op| {
        let keys = vec![resource("a"), resource("b")];
        Command::Keyed(Keyed { keys, value: value.map(Into::into), all, op })
    };
    let mut commands = vec![
        Command::Acquire(full.0.clone()),
        Command::Acquire(plain.0.clone()),
        Command::Acquire(ask("e", "E é").0),
        Command::Acquire(ask("extra", "X k").max_hold(0).0),
        Command::AcquireEach(vec![]),
        Command::AcquireEach(vec![full.0, plain.0]),
        Command::Release(target("a")),
        Command::Release(target("alias:l")),
        Command::Renew(target(UUID), None),
        Command::Renew(target("a"), Some(127)),
        Command::Renew(target("alias:l"), Some(128)),
        Command::Promote(target("a")),
        Command::Promote(target("alias:")),
        Command::Cancel(target("a")),
        Command::Cancel(target("alias:l")),
        Command::Detach(Detach { ids: None, grace_ms: 2_000 }),
        Command::Detach(Detach { ids: Some(vec![]), grace_ms: 0 }),
        Command::Detach(Detach { ids: Some(vec!["a".into(), UUID.into()]), grace_ms: 1 }),
        Command::Revoke(u64::MAX, "why".into()),
        Command::Revoke(0, "".into()),
        keyed(None, false, KeyedOp::Delete),
        keyed(Some(b""), true, KeyedOp::Expire(0)),
        keyed(Some(&[0, 255]), false, KeyedOp::Expire(5)),
        keyed(Some(b"v"), true, KeyedOp::Extend(u64::MAX)),
        Command::Keyed(Keyed { keys: vec![], value: None, all: false, op: KeyedOp::Extend(0) }),
        Command::Tick,
        Command::Settings(Box::new(settings_with(&[]))),
        Command::Settings(Box::new(settings_with(&[("waiters", u64::MAX), ("claims", 0)]))),
        Command::Rules(0),
        Command::Rules(u32::MAX),
        Command::TokenFloor(0),
        Command::TokenFloor(u64::MAX),
    ];
    commands.extend(every_action().into_iter().map(|action| command(UUID, "pool", action)));
    commands.push(command("", "", TaskAction::Cancel));
    commands
}

fn every_action() -> Vec<TaskAction> {
    let create = |body, priority, attempts| {
        TaskAction::Create(Create { key: "k".into(), body, priority, delay_ms: 7, attempts })
    };
    let json = Body { json: true, bytes: b"{}".as_slice().into() };
    let claim = |key: Option<&str>, party| {
        let key = key.map(Into::into);
        TaskAction::Claim(Claim { key, party, wait_ms: 300, lease_ms: 60_000 })
    };
    let back = |delay_ms, error: Option<&str>| {
        let error = error.map(Into::into);
        TaskAction::PutBack(checked("k", 300), PutBack { delay_ms, error })
    };
    vec![
        create(None, 0, None),
        create(Some(json), i32::MIN, Some(0)),
        create(Some(text_body("")), i32::MAX, Some(u32::MAX)),
        create(None, -1, None),
        claim(None, Party::client("w")),
        claim(Some("k"), Party { principal: Some("p".into()), ..Party::owner("ann") }),
        TaskAction::Update(checked("k", 1), None, None),
        TaskAction::Update(checked("k", u64::MAX), Some(text_body("b")), Some(0)),
        TaskAction::Finish(checked("k", 2)),
        back(0, None),
        back(500, Some("it broke")),
        TaskAction::Delete("k".into(), None),
        TaskAction::Delete("k".into(), Some(9)),
        TaskAction::Retry(None),
        TaskAction::Retry(Some("k".into())),
        TaskAction::Cancel,
    ]
}

#[test]
fn every_command_reads_back_as_it_was_written() {
    for command in every_command() {
        let bytes = command.encode();
        assert_eq!(Command::decode(&bytes), Ok(command), "{bytes:?}");
    }
}

#[test]
fn equal_commands_have_equal_bytes_and_different_ones_different_bytes() {
    let all = every_command();
    for (at, a) in all.iter().enumerate() {
        for (other, b) in all.iter().enumerate() {
            assert_eq!(a.encode() == b.encode(), at == other, "{a:?}, {b:?}");
        }
    }
}

#[test]
fn every_truncation_is_refused() {
    for command in every_command() {
        let bytes = command.encode();
        for end in 0..bytes.len() {
            let read = Command::decode(&bytes[..end]);
            assert_eq!(read, Err(CodecError::Short), "{command:?} up to {end}");
        }
    }
}

#[test]
fn more_than_one_command_is_refused() {
    for command in every_command() {
        let mut bytes = command.encode();
        bytes.push(0);
        assert_eq!(Command::decode(&bytes), Err(CodecError::Long), "{command:?}");
    }
}

#[test]
fn unknown_numbers_are_refused() {
    for number in [0].into_iter().chain(15..=u8::MAX) {
        assert_eq!(Command::decode(&[number]), Err(CodecError::Bad("command")), "{number}");
        let read = Command::decode(&[number, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read, Err(CodecError::Bad("command")), "{number}");
    }
}

#[test]
fn unknown_numbers_inside_are_refused() {
    let refused = |command: Command, from: &[u8], to: &[u8], what| {
        let mut bytes = command.encode();
        let at = bytes.windows(from.len()).position(|found| found == from).expect("in the bytes");
        bytes.splice(at..at + from.len(), to.iter().copied());
        assert_eq!(Command::decode(&bytes), Err(CodecError::Bad(what)), "{command:?}");
    };
    // An extra with nothing in it: no extra is written so.
    let bounded = ask("e", "X k").max_hold(7).0;
    refused(Command::Acquire(bounded), &[1, 7, 0, 0, 0], &[1, 0, 0, 0, 0], "extra");
    // A target that is neither id nor alias; an id that is neither UUID nor text.
    refused(Command::Release(target("a")), &[3, 0], &[3, 2], "target");
    refused(Command::Release(target("a")), &[3, 0, 0], &[3, 0, 2], "id");
    // A UUID written as text has another, shorter form.
    refused(
        Command::Release(target("a")),
        &[0, 1, b'a'],
        &[&[0, 36], UUID.as_bytes()].concat(),
        "id",
    );
    let k = [4, 1, 0, b'k', 0];
    let as_mode = |mode: u8| [k.as_slice(), &[mode]].concat();
    refused(Command::Acquire(ask("a", "O k").0), &as_mode(3), &as_mode(4), "mode");
    // A resource whose own bytes do not fit together.
    refused(Command::Acquire(ask("a", "X k").0), &k, &[4, 1, 0, b'k', 1], "resource");
    refused(Command::Acquire(ask("a", "X k").0), &k, &[4, 2, 0, b'k', 0], "resource");
    // Flags are 0 or 1, numbers as short as they can be, texts UTF-8.
    let renew = Command::Renew(target("a"), Some(5));
    refused(renew.clone(), &[1, 5], &[2, 5], "flag");
    refused(renew.clone(), &[1, 5], &[1, 0x85, 0], "number");
    refused(renew, b"a", &[0xff], "text");
    let rules = Command::Rules(5);
    refused(rules, &[5], &[0x80, 0x80, 0x80, 0x80, 0x10], "number");
    refused(Command::TokenFloor(5), &[5], &[0xff; 10], "number");
    let keyed = |op| Command::Keyed(Keyed { keys: vec![], value: None, all: false, op });
    refused(keyed(KeyedOp::Expire(9)), &[1, 9], &[3, 9], "operation");
    refused(keyed(KeyedOp::Expire(9)), &[1, 9], &[0, 9], "operation");
    refused(command("i", "p", TaskAction::Retry(None)), &[b'p', 6], &[b'p', 8], "action");
    let settings = Command::Settings(Box::new(settings_with(&[])));
    refused(settings, b"waiters", b"Waiters", "setting");
}

#[test]
fn a_length_beyond_the_input_is_refused_before_anything_is_set_aside() {
    // A list of 2^62 requests, a text of 2^62 bytes.
    let huge = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40];
    for number in [2u8, 9, 12] {
        let bytes = [&[number], huge.as_slice()].concat();
        assert_eq!(Command::decode(&bytes), Err(CodecError::Short));
    }
    let bytes = [&[8, 1], huge.as_slice()].concat();
    assert_eq!(Command::decode(&bytes), Err(CodecError::Short));
}

#[test]
fn no_damage_to_a_command_makes_decoding_panic_and_what_is_read_reads_back() {
    for command in every_command() {
        let bytes = command.encode();
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                if let Ok(read) = Command::decode(&damaged) {
                    // Settings that were left out take their defaults, so those may differ.
                    let settings = matches!(read, Command::Settings(_));
                    assert!(settings || read.encode() == damaged, "{read:?}");
                }
            }
        }
    }
}
