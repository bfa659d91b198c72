//! Bounds: what is just allowed, and what is one too many. Each refusal changes nothing.

use crate::common::{Ask, Scene, ask};

/// `setting` at `most`: `fits` is granted and `beyond` is refused with `error`.
fn bound(setting: &str, most: u64, fits: Ask, beyond: Ask, error: &str) {
    let mut scene = Scene::with(&[(setting, most)]);
    assert_eq!(scene.ask(beyond), format!("error {error}"), "{setting}");
    assert_eq!(scene.stats().seq, 0);
    assert!(scene.ask(fits).starts_with("granted"), "{setting}");
}

#[test]
fn texts_and_times_have_bounds() {
    let id = |id: &str| ask(id, "X k");
    bound("id_bytes", 3, id("abc"), id("abcd"), "TooLong(Id, 3)");
    let name = |name: &str| ask("a", &format!("X {name}"));
    bound("name_bytes", 3, name("abc"), name("abcd"), "TooLong(Name, 3)");
    bound("name_bytes", 3, name("abc(defg)"), name("abcd(e)"), "TooLong(Name, 3)");
    bound("field_bytes", 3, name("k(abc,@)"), name("k(a,abcd)"), "TooLong(Field, 3)");
    bound("field_bytes", 3, name("k(#123,true)"), name("k(#1234)"), "TooLong(Field, 3)");
    let a = || ask("a", "X k");
    bound("owner_bytes", 3, a().owner("abc"), a().owner("abcd"), "TooLong(Owner, 3)");
    bound("owner_bytes", 3, a().shown("abc"), a().shown("abcd"), "TooLong(Owner, 3)");
    let by = |principal: &str| a().principal(principal);
    bound("owner_bytes", 3, by("abc"), by("abcd"), "TooLong(Principal, 3)");
    bound("meta_bytes", 3, a().meta("abc"), a().meta("abcd"), "TooLong(Meta, 3)");
    bound("meta_bytes", 3, a().value("abc"), a().value("abcd"), "TooLong(Value, 3)");
    bound("meta_bytes", 3, a().alias("abc"), a().alias("abcd"), "TooLong(Alias, 3)");
    bound("wait_ms", 3_000, a().wait(3_000), a().wait(3_001), "TooLong(Wait, 3000)");
    bound("lease_ms", 3_000, a().lease(3_000), a().lease(3_001), "TooLong(Lease, 3000)");
    let hold = |max_hold_ms| a().lease(0).max_hold(max_hold_ms);
    bound("lease_ms", 3_000, hold(3_000), hold(3_001), "TooLong(MaxHold, 3000)");
}

#[test]
fn an_explicit_owner_and_an_alias_must_not_be_empty() {
    let mut scene = Scene::new();
    assert_eq!(scene.ask(ask("a", "X k").owner("")), "error Empty(Owner)");
    assert_eq!(scene.ask(ask("a", "X k").alias("")), "error Empty(Alias)");
    assert_eq!(scene.ask(ask("a", "X k").shown("")), "granted token 1 lease 30000 waited 0");
    assert_eq!(
        scene.ask(ask("b", "X j").meta("").value("")),
        "granted token 2 lease 30000 waited 0"
    );
}

#[test]
fn the_second_resource_is_checked_like_the_first() {
    let two = |name: &str| ask("a", &format!("X k & X {name}"));
    bound("name_bytes", 3, two("abc"), two("abcd"), "TooLong(Name, 3)");
    bound("field_bytes", 3, two("j(abc)"), two("j(abcd)"), "TooLong(Field, 3)");
}

#[test]
fn resources_of_one_request_have_a_bound() {
    let three = || ask("a", "X a & X b & X c");
    bound("resources", 3, three(), ask("a", "X a & X b & X c & X d"), "TooMany(Resources, 3)");
    bound("resources", 1, ask("a", "X a"), ask("a", "X a & X b"), "TooMany(Resources, 1)");
    let many: Vec<String> = (0..65).map(|at| format!("X k{at}")).collect();
    let mut scene = Scene::new();
    assert_eq!(scene.ask(ask("a", &many.join(" & "))), "error TooMany(Resources, 64)");
    assert!(scene.ask(ask("a", &many[..64].join(" & "))).starts_with("granted"));
}

#[test]
fn requests_in_all_have_a_bound_held_and_waiting() {
    let mut scene = Scene::with(&[("requests", 2)]);
    scene.ask(ask("a", "X k"));
    scene.ask(ask("w", "X k").wait(9_000));
    assert_eq!(scene.ask(ask("b", "X free")), "error TooMany(Requests, 2)");
    assert_eq!(scene.ask(ask("b", "X k")), "error TooMany(Requests, 2)");
    // Repeats are not new requests.
    assert_eq!(scene.ask(ask("a", "X k")), "granted token 1 lease 30000 waited 0");
    assert!(scene.ask(ask("w", "X k").wait(9_000)).starts_with("waiting"));
    scene.cancel("w");
    assert_eq!(scene.ask(ask("b", "X free")), "granted token 2 lease 30000 waited 0");
}

#[test]
fn requests_of_an_explicit_owner_have_a_bound() {
    let mut scene = Scene::with(&[("requests_of_owner", 2)]);
    scene.ask(ask("a1", "X a").owner("ann"));
    scene.ask(ask("a2", "X a").owner("ann").wait(9_000));
    assert_eq!(scene.ask(ask("a3", "X b").owner("ann")), "error TooMany(RequestsOfOwner, 2)");
    assert_eq!(
        scene.ask(ask("a3", "X b").owner("ann").principal("other")),
        "error TooMany(RequestsOfOwner, 2)"
    );
    // Others, and those without an explicit owner, are not counted with her.
    for (id, request) in [
        ("b", ask("b", "X b").owner("bob")),
        ("s1", ask("s1", "S c").shown("ann")),
        ("s2", ask("s2", "S c").shown("ann")),
        ("s3", ask("s3", "S c").shown("ann")),
    ] {
        assert!(scene.ask(request).starts_with("granted"), "{id}");
    }
    scene.release("a1");
    assert_eq!(scene.granted(), ["a2"]);
    assert!(scene.ask(ask("a3", "X d").owner("ann")).starts_with("granted"));
}

#[test]
fn requests_on_a_name_have_a_bound_if_one_is_set() {
    let mut scene = Scene::with(&[("requests_of_name", 2)]);
    // Whatever their fields; a request with two resources of the name counts once.
    scene.ask(ask("a", "X t(1) & X t(2,3)"));
    scene.ask(ask("w", "X t(1)").wait(9_000));
    assert_eq!(scene.ask(ask("b", "X t")), "error TooMany(RequestsOfName, 2)");
    assert_eq!(scene.ask(ask("b", "X u & S t(9)")), "error TooMany(RequestsOfName, 2)");
    assert!(scene.ask(ask("b", "X u")).starts_with("granted"));
    scene.release("w");
    assert!(scene.ask(ask("c", "X t")).starts_with("granted"));
    // 0 is unbounded.
    let mut scene = Scene::with(&[("requests_of_name", 0)]);
    for id in ["a", "b", "c"] {
        assert!(scene.ask(ask(id, "S t")).starts_with("granted"));
    }
}

#[test]
fn waiters_on_a_resource_have_a_bound() {
    let mut scene = Scene::with(&[("waiters", 2)]);
    scene.ask(ask("h", "X t(1)"));
    scene.ask(ask("w1", "X t(1)").wait(9_000));
    scene.ask(ask("w2", "X t(1) & X u").wait(9_000));
    let third = || ask("w3", "X t(1)").wait(9_000);
    assert_eq!(scene.ask(third()), "error TooMany(Waiters, 2)");
    assert_eq!(scene.ask(ask("w3", "X v & X t(1)").wait(9_000)), "error TooMany(Waiters, 2)");
    // Only if the request would have to queue.
    assert_eq!(scene.ask(third().wait(0)), "busy: h X held token 1 since 0 left 30000");
    // The bound is on each resource, not on what overlaps it.
    assert!(scene.ask(ask("all", "X t(@)").wait(9_000)).starts_with("waiting"));
    assert!(scene.ask(ask("u", "X u").wait(9_000)).starts_with("waiting"));
    scene.cancel("w1");
    assert!(scene.ask(third()).starts_with("waiting"));
    let mut scene = Scene::with(&[("waiters", 0)]);
    scene.ask(ask("h", "X k").wait(9_000));
    assert_eq!(scene.ask(ask("w", "X k").wait(9_000)), "error TooMany(Waiters, 0)");
}

#[test]
fn a_reason_has_a_bound() {
    let mut scene = Scene::with(&[("meta_bytes", 3)]);
    scene.ask(ask("a", "X k"));
    assert_eq!(scene.revoke(1, "abcd"), "error TooLong(Reason, 3)");
    assert_eq!(scene.holders(), ["a"]);
    assert_eq!(scene.revoke(1, "abc"), "revoked true");
}

#[test]
fn a_renewal_has_the_bound_of_a_lease() {
    let mut scene = Scene::with(&[("lease_ms", 30_000)]);
    scene.ask(ask("a", "X k").lease(10_000));
    assert_eq!(scene.renew_for("a", 30_001), "error TooLong(Lease, 30000)");
    assert_eq!(scene.renew_for("a", 30_000), "renewed 30000");
}

#[test]
fn checks_come_in_the_order_that_is_written_down() {
    let mut scene = Scene::with(&[("requests", 2), ("requests_of_owner", 1), ("name_bytes", 4)]);
    scene.ask(ask("h", "X h").owner("ann").alias("used"));
    // Everything is wrong with it; each time the first thing is named and then put right.
    let all = |name: &str, parts: &str| ask("a", &format!("O {name} & {parts}")).shown("ann");
    let wrong = |ask: Ask| ask.detect().alias("used");
    assert_eq!(scene.ask(wrong(all("long-name", "X k & X k"))), "error TooLong(Name, 4)");
    assert_eq!(scene.ask(wrong(all("k", "X k"))), "error MixedOptimistic");
    assert_eq!(scene.ask(wrong(all("k", "O k"))), "error PartsOverlap");
    assert_eq!(scene.ask(wrong(all("k", "O j"))), "error DetectNeedsOwner");
    assert_eq!(scene.ask(wrong(all("k", "O j").owner("ann"))), "error AliasInUse");
    scene.ask(ask("h2", "X h2"));
    let last = || all("k", "O j").owner("ann");
    assert_eq!(scene.ask(last()), "error TooMany(Requests, 2)");
    scene.release("h2");
    assert_eq!(scene.ask(last()), "error TooMany(RequestsOfOwner, 1)");
    assert!(scene.ask(last().owner("bob")).starts_with("granted"));
}

#[test]
fn the_bound_of_an_owner_is_checked_before_that_of_a_name_and_before_that_of_waiters() {
    let settings = [("requests_of_owner", 1), ("requests_of_name", 1), ("waiters", 0)];
    let mut scene = Scene::with(&settings);
    scene.ask(ask("h", "X t(1)").owner("ann"));
    let next = |owner: &str| ask("a", "X t(1)").owner(owner).wait(9_000);
    assert_eq!(scene.ask(next("ann")), "error TooMany(RequestsOfOwner, 1)");
    assert_eq!(scene.ask(next("bob")), "error TooMany(RequestsOfName, 1)");
    scene.set(&[("waiters", 0)]);
    assert_eq!(scene.ask(next("bob")), "error TooMany(Waiters, 0)");
}

#[test]
fn lower_bounds_end_nothing_that_lives() {
    let mut scene = Scene::new();
    scene.ask(ask("long-id", "X long-name").lease(20_000));
    scene.ask(ask("w", "X long-name").wait(20_000));
    assert_eq!(
        scene.set(&[("id_bytes", 1), ("name_bytes", 1), ("requests", 0), ("lease_ms", 1)]),
        "done"
    );
    assert!(scene.events().is_empty());
    assert_eq!(scene.everyone(), ["long-id", "w"]);
    assert_eq!(scene.release("long-id"), "released");
    assert_eq!(scene.events(), ["granted w token 2 lease 30000 waited 0"]);
}
