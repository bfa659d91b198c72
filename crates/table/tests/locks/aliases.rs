//! Aliases stand for the id of a live request.

use crate::common::{Scene, ask};

#[test]
fn an_alias_releases_renews_promotes_and_cancels() {
    let mut scene = Scene::new();
    scene.ask(ask("o", "O k").alias("lock").lease(5_000));
    assert_eq!(scene.at(2_000).renew("alias:lock"), "renewed 5000");
    assert_eq!(scene.promote("alias:lock"), "promoted token 2 lease 5000 waited 0");
    scene.ask(ask("w", "X k").alias("queued").wait(9_000));
    assert_eq!(scene.cancel("alias:lock"), "cancelled false");
    assert_eq!(scene.cancel("alias:queued"), "cancelled true");
    assert_eq!(scene.events(), ["withdrawn w [2 w: X k]"]);
    assert_eq!(scene.release("alias:lock"), "released");
    assert_eq!(scene.holders(), [""; 0]);
}

#[test]
fn where_no_live_request_has_it_nothing_is_known() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X k").alias("lock"));
    scene.ask(ask("w", "X k").alias("queued").wait(9_000));
    scene.cancel("alias:queued");
    scene.release("alias:lock");
    // The ids are remembered; the aliases are not.
    assert_eq!(scene.release("a"), "released");
    assert_eq!(scene.cancel("w"), "cancelled true");
    for alias in ["alias:lock", "alias:queued", "alias:never"] {
        assert_eq!(scene.release(alias), "not held");
        assert_eq!(scene.renew(alias), "lost");
        assert_eq!(scene.promote(alias), "lost");
        assert_eq!(scene.cancel(alias), "cancelled false");
    }
}

#[test]
fn an_alias_belongs_to_one_live_request_and_is_free_when_that_has_ended() {
    let mut scene = Scene::new();
    scene.ask(ask("a", "X a").alias("lock").lease(5_000));
    assert_eq!(scene.ask(ask("b", "X b").alias("lock")), "error AliasInUse");
    assert_eq!(scene.ask(ask("c", "X a").alias("lock").wait(9_000)), "error AliasInUse");
    assert_eq!(
        scene.at(6_000).ask(ask("b", "X b").alias("lock")),
        "granted token 2 lease 30000 waited 0"
    );
    // A waiter has its alias, too.
    scene.ask(ask("w", "X b").alias("queued").wait(9_000));
    assert_eq!(scene.ask(ask("d", "X d").alias("queued")), "error AliasInUse");
    scene.at(15_000).tick();
    assert_eq!(scene.ask(ask("d", "X d").alias("queued")), "granted token 3 lease 30000 waited 0");
}

#[test]
fn a_busy_request_leaves_its_alias_free() {
    let mut scene = Scene::new();
    scene.ask(ask("h", "X k"));
    scene.ask(ask("a", "X k").alias("lock"));
    assert_eq!(scene.ask(ask("b", "X b").alias("lock")), "granted token 2 lease 30000 waited 0");
}

#[test]
fn an_id_is_not_an_alias_nor_an_alias_an_id() {
    let mut scene = Scene::new();
    scene.ask(ask("one", "X a").alias("two"));
    scene.ask(ask("two", "X b").alias("one"));
    assert_eq!(scene.release("alias:two"), "released");
    assert_eq!(scene.holders(), ["two"]);
    assert_eq!(scene.release("two"), "released");
}

#[test]
fn an_alias_goes_with_the_request_when_it_is_superseded_or_revoked() {
    let mut scene = Scene::new();
    scene.ask(ask("o1", "O k").alias("one"));
    scene.ask(ask("o2", "O k").alias("two"));
    scene.promote("alias:one");
    assert_eq!(scene.renew("alias:two"), "lost");
    assert_eq!(scene.renew("o2"), "lost superseded by o1");
    scene.revoke(3, "");
    assert_eq!(scene.renew("alias:one"), "lost");
}
