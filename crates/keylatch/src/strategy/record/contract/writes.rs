//! What a change expects, and what it does.

use super::super::store::{Expect, Found, Landed, Name, NameChange, Plain, Write};
use super::{
    Ground, and_append, change, done, id, land, one, put, queue, read, refused, removing, seqs,
    take, version,
};

pub(crate) async fn absent_means_neither_head_nor_queue(ground: &impl Ground) {
    let store = &*ground.open().await;
    let nothing = read(store, "k").await;
    assert!(nothing.head.is_none() && nothing.queue.is_empty());
    let first = and_append(change([("k", one(Expect::Absent, put("1")))]), "ann", &["k"]);
    done(store, first).await;
    refused(store, change([("k", one(Expect::Absent, put("2")))])).await;
    // A head that is gone while somebody waits: no driver does that, and still it is not nothing.
    done(store, change([("k", one(Expect::There, Write::Delete))])).await;
    let view = refused(store, change([("k", one(Expect::Absent, put("3")))])).await;
    assert!(view.names["k"].head.is_none());
    assert_eq!(view.names["k"].queue.len(), 1);
}

pub(crate) async fn there_means_any_head(ground: &impl Ground) {
    let store = &*ground.open().await;
    refused(store, change([("k", one(Expect::There, put("1")))])).await;
    done(store, change([("k", one(Expect::Absent, put("1")))])).await;
    done(store, change([("k", one(Expect::There, put("2")))])).await;
    done(store, change([("k", one(Expect::There, Write::Delete))])).await;
    let view = refused(store, change([("k", one(Expect::There, Write::Keep))])).await;
    assert!(view.names["k"].head.is_none(), "also a name that is not there is told of");
}

pub(crate) async fn a_version_means_that_one(ground: &impl Ground) {
    let store = &*ground.open().await;
    refused(store, change([("k", one(Expect::Version(1), put("1")))])).await;
    let first = done(store, change([("k", one(Expect::Absent, put("1")))])).await.version;
    let expect = |version| change([("k", one(Expect::Version(version), put("2")))]);
    refused(store, expect(first + 1)).await;
    refused(store, expect(first - 1)).await;
    let second = done(store, expect(first)).await.version;
    let view = refused(store, expect(first)).await;
    assert_eq!(view.names["k"].head.as_ref().unwrap().version, second);
    // Gone and made anew, it has never the old version again (12).
    done(store, change([("k", one(Expect::Version(second), Write::Delete))])).await;
    refused(store, expect(second)).await;
    done(store, change([("k", one(Expect::Absent, put("3")))])).await;
    refused(store, expect(first)).await;
    refused(store, expect(second)).await;
}

/// What most locks are: nobody else is there.
pub(crate) async fn an_idle_lock_is_taken_and_left(ground: &impl Ground) {
    let store = &*ground.open().await;
    let mut last = 0;
    let leave = |version| {
        let left = one(Expect::Version(version), Write::Delete);
        change([("k", NameChange { last_seq: Some(0), ..left })])
    };
    for _ in 0..5 {
        let taken = done(store, change([("k", one(Expect::Absent, put("1")))])).await;
        assert!(taken.version > last, "{} after {last}", taken.version);
        assert_eq!(taken.names["k"], Found { version: 0, last_seq: 0 });
        let head = read(store, "k").await.head.unwrap();
        assert_eq!((head.version, &head.bytes[..]), (taken.version, &b"1"[..]));
        refused(store, leave(taken.version - 1)).await;
        refused(store, change([("k", one(Expect::Absent, put("2")))])).await;
        // Somebody came and went.
        let keep = one(Expect::There, Write::Keep);
        let come = and_append(change([("k", keep)]), "ann", &["k"]);
        let ann = come.seq_of(done(store, come.clone()).await.version, 0);
        let view = refused(store, leave(taken.version)).await;
        assert_eq!(view.names["k"].queue[0].seq, ann);
        let gone = removing(Expect::There, Write::Keep, [("ann", ann)]);
        let gone = done(store, change([("k", gone)])).await;
        let left = done(store, leave(taken.version)).await;
        assert_eq!(left.names["k"], Found { version: taken.version, last_seq: 0 });
        assert!(left.version >= taken.version && left.now >= gone.now, "{left:?}");
        let none = read(store, "k").await;
        assert!(none.head.is_none() && none.queue.is_empty());
        refused(store, leave(taken.version)).await;
        last = ann.max(left.version);
    }
}

/// The same as a plain change, which says no more than that.
pub(crate) async fn a_plain_change_lands_or_tells_what_there_is(ground: &impl Ground) {
    let store = &*ground.open().await;
    let mut last = 0;
    for _ in 0..3 {
        let came = land(store, "k", take("1")).await.unwrap();
        let Landed::Took { version, .. } = came else { panic!("{came:?}, though nobody is there") };
        assert!(version > last, "{version} after {last}");
        let head = read(store, "k").await.head.unwrap();
        assert_eq!((head.version, &head.bytes[..]), (version, &b"1"[..]));
        for plain in [take("2"), Plain::Leave(version - 1)] {
            let came = land(store, "k", plain).await.unwrap();
            let Landed::Otherwise(view) = came else { panic!("{came:?}, though it is otherwise") };
            assert_eq!(view.names["k"].head.as_ref().map(|head| head.version), Some(version));
        }
        let keep = one(Expect::There, Write::Keep);
        let come = and_append(change([("k", keep)]), "ann", &["k"]);
        let ann = come.seq_of(done(store, come.clone()).await.version, 0);
        let came = land(store, "k", Plain::Leave(version)).await.unwrap();
        let Landed::Otherwise(view) = came else { panic!("{came:?}, though ann waits") };
        assert_eq!(view.names["k"].queue[0].seq, ann);
        done(store, change([("k", removing(Expect::There, Write::Keep, [("ann", ann)]))])).await;
        let came = land(store, "k", Plain::Leave(version)).await.unwrap();
        assert!(matches!(came, Landed::Left { .. }), "{came:?}, though nobody waits any more");
        let none = read(store, "k").await;
        assert!(none.head.is_none() && none.queue.is_empty());
        last = ann;
    }
}

/// Rule 2.
pub(crate) async fn nobody_unseen_may_have_come(ground: &impl Ground) {
    let store = &*ground.open().await;
    let head = done(store, change([("k", one(Expect::Absent, put("1")))])).await.version;
    let seen =
        |last| NameChange { last_seq: Some(last), ..one(Expect::Version(head), Write::Keep) };
    done(store, change([("k", seen(0))])).await;
    let come =
        |who: &str| and_append(change([("k", one(Expect::There, Write::Keep))]), who, &["k"]);
    done(store, come("ann")).await;
    let ann = seqs(store, "k").await[0];
    refused(store, change([("k", seen(0))])).await;
    refused(store, change([("k", seen(ann - 1))])).await;
    done(store, change([("k", seen(ann))])).await;
    done(store, come("bob")).await;
    let bob = seqs(store, "k").await[1];
    refused(store, change([("k", seen(ann))])).await;
    done(store, change([("k", seen(bob))])).await;
    // It is the largest that counts, also after another one has gone.
    let gone = removing(Expect::There, Write::Keep, [("ann", ann)]);
    done(store, change([("k", gone)])).await;
    refused(store, change([("k", seen(ann))])).await;
    let gone = removing(Expect::There, Write::Keep, [("bob", bob)]);
    done(store, change([("k", gone)])).await;
    done(store, change([("k", seen(0))])).await;
}

/// Rule 3.
pub(crate) async fn what_is_removed_must_still_be_there(ground: &impl Ground) {
    let store = &*ground.open().await;
    let both = and_append(change([("k", one(Expect::Absent, put("1")))]), "ann", &["k"]);
    done(store, and_append(both, "bob", &["k"])).await;
    let [ann, bob] = seqs(store, "k").await[..] else { panic!("two wait") };
    let remove = |who: &[(&'static str, u64)]| {
        change([("k", removing(Expect::There, put("2"), who.iter().copied()))])
    };
    refused(store, remove(&[("ann", bob)])).await;
    refused(store, remove(&[("cid", ann)])).await;
    refused(store, remove(&[("ann", ann), ("bob", ann)])).await;
    done(store, remove(&[("ann", ann)])).await;
    assert_eq!(seqs(store, "k").await, [bob]);
    refused(store, remove(&[("ann", ann)])).await;
    refused(store, remove(&[("ann", ann), ("bob", bob)])).await;
    // The same id once more has another seq.
    let again = and_append(change([("k", one(Expect::There, Write::Keep))]), "ann", &["k"]);
    done(store, again).await;
    refused(store, remove(&[("ann", ann)])).await;
    let ann = seqs(store, "k").await[1];
    done(store, remove(&[("bob", bob), ("ann", ann)])).await;
    assert!(seqs(store, "k").await.is_empty());
}

/// Rule 4.
pub(crate) async fn one_who_waits_is_not_appended_again(ground: &impl Ground) {
    let store = &*ground.open().await;
    let names =
        || change([("a", one(Expect::Absent, put("1"))), ("b", one(Expect::Absent, put("1")))]);
    done(store, and_append(names(), "ann", &["a"])).await;
    let keep = |text| (text, one(Expect::There, Write::Keep));
    refused(store, and_append(change([keep("a")]), "ann", &["a"])).await;
    // Nor where only one of its queues has it, nor beside others.
    let both = || change([keep("a"), keep("b")]);
    refused(store, and_append(both(), "ann", &["a", "b"])).await;
    refused(store, and_append(and_append(both(), "bob", &["a", "b"]), "ann", &["a"])).await;
    done(store, and_append(change([keep("b")]), "ann", &["b"])).await;
    assert_eq!(queue(store, "a").await.len(), 1);
}

/// A waiter that lapsed asks again at the tail, in the change that removes it.
pub(crate) async fn one_who_is_removed_may_be_appended_again(ground: &impl Ground) {
    let store = &*ground.open().await;
    let both = and_append(change([("k", one(Expect::Absent, put("1")))]), "ann", &["k"]);
    done(store, and_append(both, "bob", &["k"])).await;
    let [ann, bob] = seqs(store, "k").await[..] else { panic!("two wait") };
    let gone = removing(Expect::There, Write::Keep, [("ann", ann)]);
    let again = and_append(change([("k", gone)]), "ann", &["k"]);
    let seq = again.seq_of(done(store, again.clone()).await.version, 0);
    assert_eq!(seqs(store, "k").await, [bob, seq]);
}

/// Also rule 9.
pub(crate) async fn all_or_nothing_over_several_names(ground: &impl Ground) {
    let store = &*ground.open().await;
    let all = ["a", "b", "c"];
    let first = change(all.map(|text| (text, one(Expect::Absent, put("1")))));
    let first = done(store, and_append(first, "ann", &all)).await.version;
    let ann = seqs(store, "a").await[0];
    let gone = |expect, seq| removing(expect, put("2"), [("ann", seq)]);
    let fits = || gone(Expect::Version(first), ann);
    let unseen = || NameChange { last_seq: Some(ann - 1), ..fits() };
    for wrong in [gone(Expect::Absent, ann), gone(Expect::There, ann + 1), unseen()] {
        for place in 0..3 {
            let mut names = all.map(|text| (text, fits()));
            names[place].1 = wrong.clone();
            let view = refused(store, change(names)).await;
            assert_eq!(view.names.len(), 3);
        }
    }
    let version = done(store, change(all.map(|text| (text, fits())))).await.version;
    for text in all {
        let record = read(store, text).await;
        assert_eq!(record.head.unwrap().version, version);
        assert!(record.queue.is_empty());
    }
}

pub(crate) async fn one_waiter_has_one_seq_everywhere(ground: &impl Ground) {
    let store = &*ground.open().await;
    let absent = ["a", "b", "c"].map(|text| (text, one(Expect::Absent, put("1"))));
    let ask = and_append(change(absent), "ann", &["a", "c"]);
    let done = done(store, ask.clone()).await;
    let seq = ask.seq_of(done.version, 0);
    for (text, here) in [("a", vec![seq]), ("b", vec![]), ("c", vec![seq])] {
        assert_eq!(seqs(store, text).await, here, "{text}");
    }
    let waiter = &queue(store, "c").await[0];
    assert_eq!(waiter.bytes, b"ann");
    if !ground.has_own_leases() {
        assert_eq!(waiter.time, done.now);
        assert_eq!(waiter.alive_until, done.now + super::LONG_MS);
        assert_eq!(read(store, "a").await.head.unwrap().time, done.now);
    }
}

pub(crate) async fn several_waiters_in_one_change(ground: &impl Ground) {
    let store = &*ground.open().await;
    let absent = ["a", "b"].map(|text| (text, one(Expect::Absent, put("1"))));
    let mut ask = change(absent);
    ask.numbers = 3;
    // Neither their ids nor their names say the order: they stand as they were given.
    for (who, to) in [("zoe", &["b"][..]), ("ann", &["a", "b"]), ("mia", &["a"])] {
        ask = and_append(ask, who, to);
    }
    let version = done(store, ask.clone()).await.version;
    let seq = |append| ask.seq_of(version, append);
    assert_eq!(seqs(store, "a").await, [seq(1), seq(2)]);
    assert_eq!(seqs(store, "b").await, [seq(0), seq(1)]);
    let bytes: Vec<_> = queue(store, "b").await.into_iter().map(|waiter| waiter.bytes).collect();
    assert_eq!(bytes, [b"zoe", b"ann"]);
}

/// Rule 10, and what a change takes.
pub(crate) async fn numbers_are_counted(ground: &impl Ground) {
    let store = &*ground.open().await;
    let mut next = 0;
    for (numbers, appends) in [(0, 0), (1, 2), (7, 0), (64, 3), (1, 0)] {
        let text = format!("{numbers} and {appends}");
        let mut ask = change([(&text[..], one(Expect::Absent, put("1")))]);
        ask.numbers = numbers;
        for append in 0..appends {
            ask = and_append(ask, &format!("{append}"), &[&text]);
        }
        let version = done(store, ask.clone()).await.version;
        assert!(version >= next, "{version} was taken: {next} is the next free one");
        let expected: Vec<u64> = (0..appends).map(|append| ask.seq_of(version, append)).collect();
        assert_eq!(seqs(store, &text).await, expected);
        next = version + ask.all_numbers();
    }
}

/// Rule 12.
pub(crate) async fn numbers_grow_over_everything(ground: &impl Ground) {
    let (ann, bob) = (ground.open().await, ground.open().await);
    let mut last = 0;
    for round in 0..10 {
        let store = if round % 2 == 0 { &*ann } else { &*bob };
        let ask = and_append(change([("k", one(Expect::Absent, put("1")))]), "ann", &["k"]);
        let made = done(store, ask.clone()).await.version;
        assert!(made > last, "{made} after {last}");
        last = ask.seq_of(made, 0);
        let gone = removing(Expect::Version(made), Write::Delete, [("ann", last)]);
        let gone = done(store, change([("k", gone)])).await.version;
        assert!(gone > last, "{gone} after {last}");
        last = gone;
        assert_eq!(version(store, "k").await, None);
    }
    // Across a loss of everything tokens grow too: the counter begins with the time of day.
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    let about = u128::from(last).abs_diff(since);
    assert!(about < 86_400_000_000, "{last} is not about {since}");
}

pub(crate) async fn done_says_what_was_there_before(ground: &impl Ground) {
    let store = &*ground.open().await;
    let absent = ["a", "b"].map(|text| (text, one(Expect::Absent, put("1"))));
    let ask = and_append(change(absent), "ann", &["a"]);
    let first = done(store, ask.clone()).await;
    let nothing = Found { version: 0, last_seq: 0 };
    let names: Vec<Name> = ["a".into(), "b".into()].into();
    assert_eq!(first.names.keys().cloned().collect::<Vec<_>>(), names);
    assert!(first.names.values().all(|found| *found == nothing), "{first:?}");
    let ann = ask.seq_of(first.version, 0);
    let keep = |text| (text, one(Expect::There, Write::Keep));
    let ask = and_append(change([keep("a"), keep("b")]), "bob", &["a", "b"]);
    let second = done(store, ask.clone()).await;
    assert_eq!(second.names["a"], Found { version: first.version, last_seq: ann });
    assert_eq!(second.names["b"], Found { version: first.version, last_seq: 0 });
    let bob = ask.seq_of(second.version, 0);
    let gone = removing(Expect::There, put("2"), [("bob", bob)]);
    let third = done(store, change([("a", gone.clone()), ("b", gone)])).await;
    assert_eq!(third.names["a"], Found { version: first.version, last_seq: bob });
    assert_eq!(third.names["b"], Found { version: first.version, last_seq: bob });
    let last = NameChange { last_seq: Some(ann), ..one(Expect::There, Write::Delete) };
    let fourth = done(store, change([("a", last)])).await;
    assert_eq!(fourth.names["a"], Found { version: third.version, last_seq: ann });
    assert!(first.now <= second.now && second.now <= third.now && third.now <= fourth.now);
}

pub(crate) async fn keeping_a_head_changes_nothing_of_it(ground: &impl Ground) {
    let store = &*ground.open().await;
    let first = done(store, change([("k", one(Expect::Absent, put("1")))])).await;
    let before = read(store, "k").await.head.unwrap();
    let keep = one(Expect::Version(first.version), Write::Keep);
    let kept = done(store, and_append(change([("k", keep)]), "ann", &["k"])).await;
    assert!(kept.version > first.version, "it takes numbers all the same");
    let after = read(store, "k").await.head.unwrap();
    assert_eq!((before.version, before.time), (after.version, after.time));
    assert_eq!(after.bytes, b"1");
}

pub(crate) async fn names_ids_and_bytes_may_be_anything(ground: &impl Ground) {
    let store = &*ground.open().await;
    let long = "ü".repeat(256);
    let everything: Vec<u8> = (0..=255).collect();
    let large: Vec<u8> = (0..100 * 1024u32).map(|byte| (byte % 251) as u8).collect();
    let names = [
        "",
        " ",
        "a'b\"c`d",
        "\u{0}",
        "a\u{0}b",
        "line\r\nline",
        "%s {x} \\ / : * ?",
        "漢字🔒",
        &long,
    ];
    for text in names {
        for bytes in [&b""[..], b" ", b"0 1 2", b"'\"\\\0\r\n", &everything, &large] {
            let who = "ann'\" 1:\u{e9}";
            let mut ask =
                and_append(change([(text, one(Expect::Absent, put(bytes)))]), who, &[text]);
            ask.appends[0].bytes = bytes.into();
            let made = done(store, ask.clone()).await.version;
            let record = read(store, text).await;
            assert!(record.head.unwrap().bytes == bytes, "{text:?} {} bytes", bytes.len());
            assert!(record.queue[0].bytes == bytes, "{text:?} {} bytes", bytes.len());
            let all = store.read_all().await.unwrap();
            assert!(all.names.contains_key(text), "{text:?}");
            let stand = super::Stand { id: id(who), seq: ask.seq_of(made, 0) };
            let alive = store.touch(vec![(stand, vec![text.into()])], super::LONG_MS).await;
            assert_eq!(alive.unwrap(), [true]);
            let seq = ask.seq_of(made, 0);
            let gone = removing(Expect::Version(made), Write::Delete, [(who, seq)]);
            done(store, change([(text, gone)])).await;
        }
    }
}

pub(crate) async fn many_names_at_once(ground: &impl Ground) {
    let store = &*ground.open().await;
    let names: Vec<String> = (0..64).map(|number| format!("{number}")).collect();
    let names: Vec<&str> = names.iter().map(|text| &text[..]).collect();
    let absent = names.iter().map(|text| (*text, one(Expect::Absent, put(*text))));
    let ask = and_append(change(absent), "ann", &names);
    let made = done(store, ask.clone()).await;
    assert_eq!(made.names.len(), 64);
    let view = store.read(names.iter().map(|text| Name::from(*text)).collect()).await.unwrap();
    for text in &names {
        assert_eq!(view.names[*text].head.as_ref().unwrap().bytes, text.as_bytes());
    }
    let seq = ask.seq_of(made.version, 0);
    let gone = removing(Expect::Version(made.version), Write::Delete, [("ann", seq)]);
    done(store, change(names.iter().map(|text| (*text, gone.clone())))).await;
    assert!(store.read_all().await.unwrap().names.is_empty());
}

pub(crate) async fn every_name_in_use_is_found(ground: &impl Ground) {
    let store = &*ground.open().await;
    assert!(store.read_all().await.unwrap().names.is_empty());
    for text in ["a", "b", "c"] {
        done(store, and_append(change([(text, one(Expect::Absent, put("1")))]), text, &[text]))
            .await;
    }
    let seq = seqs(store, "b").await[0];
    let gone = removing(Expect::There, Write::Delete, [("b", seq)]);
    done(store, change([("b", gone)])).await;
    let all = store.read_all().await.unwrap();
    let names: Vec<&str> = all.names.keys().map(|name| &**name).collect();
    assert_eq!(names, ["a", "c"]);
    assert!(all.names.values().all(|one| one.head.is_some() && one.queue.len() == 1));
    let none = store.read(Vec::new()).await.unwrap();
    assert!(none.names.is_empty());
}
