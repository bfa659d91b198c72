//! Who hears of what.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use super::super::store::{Expect, NameChange, Store, Told, Write};
use super::{Ground, and_append, change, done, one, put, read, removing};

/// Nothing is under way any more after so long; if it is, a test sees less, not something wrong.
const QUIET: Duration = Duration::from_millis(300);

/// Hears what a store tells.
async fn listen(store: &dyn Store) -> UnboundedReceiver<Told> {
    store.somebody_waits(true);
    let mut told = store.told();
    quiet(&mut told).await;
    told
}

async fn quiet(told: &mut UnboundedReceiver<Told>) {
    while let Ok(told) = tokio::time::timeout(QUIET, told.recv()).await {
        assert!(told.is_some(), "the store tells as long as it is there");
    }
}

/// What is told of this name next: its version and who left. Nothing, if only something was told.
async fn heard(
    told: &mut UnboundedReceiver<Told>,
    text: &str,
    exactly: bool,
) -> Option<(u64, Vec<u64>)> {
    loop {
        match told.recv().await.expect("the store tells as long as it is there") {
            Told::Changed { name, version, mut removed } => {
                assert_eq!(&*name, text, "this is not for anyone to know");
                removed.sort_unstable();
                return Some((version, removed));
            }
            Told::Anything if exactly => {}
            Told::Anything => return None,
        }
    }
}

pub(crate) async fn others_see_what_was_written(ground: &impl Ground) {
    let (ann, bob) = (ground.open().await, ground.open().await);
    let mut version = done(&*ann, change([("k", one(Expect::Absent, put("0")))])).await.version;
    for round in 0..20u8 {
        let (writer, reader) = if round % 2 == 0 { (&*bob, &*ann) } else { (&*ann, &*bob) };
        let next = change([("k", one(Expect::Version(version), put([round])))]);
        version = done(writer, next).await.version;
        let head = read(reader, "k").await.head.unwrap();
        assert_eq!((head.version, head.bytes), (version, vec![round]));
    }
}

/// Rule 6: changes of names in whose queue somebody stood.
pub(crate) async fn those_who_wait_are_told(ground: &impl Ground) {
    let (ann, bob) = (ground.open().await, ground.open().await);
    let (mut here, mut there) = (listen(&*ann).await, listen(&*bob).await);
    let two = || ["a", "b"].map(|text| (text, one(Expect::Absent, put("0"))));
    let ask = and_append(and_append(change(two()), "eve", &["a"]), "fay", &["a"]);
    let first = done(&*ann, ask.clone()).await.version;
    let (eve, fay) = (ask.seq_of(first, 0), ask.seq_of(first, 1));
    quiet(&mut here).await;
    quiet(&mut there).await;
    // On b nobody stands.
    let write = |text, expect| (text, one(expect, put("1")));
    let both = change([write("a", Expect::There), write("b", Expect::There)]);
    let second = done(&*ann, both).await.version;
    let exactly = ground.tells_exactly();
    for (told, exactly) in [(&mut here, true), (&mut there, exactly)] {
        let heard = heard(told, "a", exactly).await;
        assert!(heard.is_none_or(|heard| heard == (second, vec![])));
        quiet(told).await;
    }
    // Who leaves is told too, also without a write of the head.
    let gone = removing(Expect::There, Write::Keep, [("fay", fay)]);
    let third = done(&*ann, change([("a", gone)])).await.version;
    for (told, exactly) in [(&mut here, true), (&mut there, exactly)] {
        let heard = heard(told, "a", exactly).await;
        assert!(heard.is_none_or(|heard| heard == (third, vec![fay])));
        quiet(told).await;
    }
    // And a deletion.
    let gone = removing(Expect::There, Write::Delete, [("eve", eve)]);
    let fourth = done(&*ann, change([("a", gone)])).await.version;
    for (told, exactly) in [(&mut here, true), (&mut there, exactly)] {
        let heard = heard(told, "a", exactly).await;
        assert!(heard.is_none_or(|heard| heard == (fourth, vec![eve])));
    }
}

/// Also if it came since the writer looked.
pub(crate) async fn who_stands_behind_the_writers_own_is_told(ground: &impl Ground) {
    let (ann, bob) = (ground.open().await, ground.open().await);
    let mut there = listen(&*bob).await;
    let mut asks = change([("k", one(Expect::Absent, put("0")))]);
    asks = and_append(asks, "ann's", &["k"]);
    let own = asks.seq_of(done(&*ann, asks.clone()).await.version, 0);
    let write = |text| NameChange { own_up_to: Some(own), ..one(Expect::There, put(text)) };
    // Nobody else is there: told or not, it concerns nobody.
    done(&*ann, change([("k", write("1"))])).await;
    quiet(&mut there).await;
    let keep = one(Expect::There, Write::Keep);
    done(&*bob, and_append(change([("k", keep)]), "bob's", &["k"])).await;
    let version = done(&*ann, change([("k", write("2"))])).await.version;
    let heard = heard(&mut there, "k", ground.tells_exactly()).await;
    assert!(heard.is_none_or(|heard| heard == (version, vec![])));
}

pub(crate) async fn what_says_tell_is_told(ground: &impl Ground) {
    let (ann, bob) = (ground.open().await, ground.open().await);
    let (mut here, mut there) = (listen(&*ann).await, listen(&*bob).await);
    let odd = "a\u{0}b 'ü' \r\n";
    for (text, told) in [("quiet", false), (odd, true)] {
        let tell = NameChange { tell: told, ..one(Expect::Absent, put("0")) };
        let version = done(&*ann, change([(text, tell)])).await.version;
        for (receiver, exactly) in [(&mut here, true), (&mut there, ground.tells_exactly())] {
            if told {
                let heard = heard(receiver, text, exactly).await;
                assert!(heard.is_none_or(|heard| heard == (version, vec![])));
            }
        }
    }
}

pub(crate) async fn appending_is_not_told(ground: &impl Ground) {
    let (ann, bob) = (ground.open().await, ground.open().await);
    let (mut here, mut there) = (listen(&*ann).await, listen(&*bob).await);
    done(&*ann, change([("k", one(Expect::Absent, put("0")))])).await;
    for who in ["eve", "fay", "gus"] {
        let keep = one(Expect::There, Write::Keep);
        done(&*ann, and_append(change([("k", keep)]), who, &["k"])).await;
    }
    let tell = NameChange { tell: true, ..one(Expect::Absent, put("0")) };
    done(&*ann, change([("other", tell)])).await;
    // This is the first that is heard of.
    heard(&mut here, "other", true).await;
    heard(&mut there, "other", ground.tells_exactly()).await;
}
