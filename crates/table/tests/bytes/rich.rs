//! A table with something of everything in it.

use crate::common::tasks::{any, command, named, new_task, text_body};
use crate::common::{Scene, ask};
use keylatch_table::{Claim, Command, Create, PutBack, TaskAction};

/// Holders (promoted, detached, with extras), waiters (detached, attached again), ended ids of
/// every kind, tasks in every state, waiting claims, remembered answers.
pub(crate) fn rich() -> Scene {
    let mut scene = Scene::with(&[("task_attempts", 2), ("ended_ms", 40_000)]);
    scene.say(Command::TokenFloor(300));
    locks(&mut scene);
    waiters(&mut scene);
    tasks(&mut scene);
    scene.at(1_900).tick();
    scene
}

fn locks(scene: &mut Scene) {
    // Ended: released, revoked, superseded, expired.
    scene.ask(ask("released", "X gone"));
    scene.release("released");
    scene.ask(ask("revoked", "X gone"));
    scene.revoke(302, "why");
    scene.ask(ask("expired", "X gone").lease(100));
    scene.ask(ask("promoted", "O t(1) & O t(2)").owner("ann").principal("pat"));
    scene.ask(ask("superseded", "O t(1)").owner("bob"));
    scene.promote("promoted");
    scene.at(1_100).tick();
    // Holders.
    scene.ask(ask("e1", "E work").owner("ann").detect().lease(50_000));
    scene.ask(ask("e2", "E work").owner("ann").detect().lease(0));
    scene.ask(ask("s1", "S u(1,@)").owner("cid"));
    scene.ask(ask("s2", "S u(@,#2)").shown("10.0.0.1"));
    scene.ask(ask("value", "X key").value("v").lease(20_000).max_hold(70_000));
    scene.ask(ask("full", "X k(true) & S j").meta("m").alias("name").wait(500).max_hold(90_000));
    let uuid = "0189abcd-ef01-7234-8567-89abcdef0123";
    scene.ask(ask(uuid, "X uuid").owner("dan"));
    // A holder that was granted while detached, with a longest hold.
    scene.ask(ask("before", "X away"));
    scene.ask(ask("detached-holder", "X away").wait(30_000).max_hold(80_000));
    scene.detach(&["detached-holder"], 25_000);
    scene.at(1_200).release("before");
}

fn waiters(scene: &mut Scene) {
    scene.ask(ask("w1", "X work & X free").owner("bob").detect().wait(30_000));
    scene.ask(ask("w2", "X u(1,#2)").wait(40_000).meta("meta").alias("waits"));
    scene.ask(ask("w3", "S u(1,#2)").owner("ann").wait(40_000));
    scene.ask(ask("w4", "O work").wait(35_000).lease(0));
    scene.ask(ask("w5", "X key").wait(20_000).max_hold(5_000));
    scene.detach(&["w2"], 10_000);
    scene.detach(&["w4"], 5_000);
    scene.at(1_300).ask(ask("w4", "O work").wait(35_000).lease(0));
    for id in ["cancelled", "released-waiter", "again"] {
        scene.ask(ask(id, "X key").wait(20_000));
    }
    scene.cancel("cancelled");
    scene.release("released-waiter");
    scene.cancel("again");
    scene.ask(ask("again", "S key").wait(20_000));
}

fn tasks(scene: &mut Scene) {
    scene.at(1_400);
    for (key, priority) in [("claimed", 9), ("lapsed", 8), ("kept", 7), ("detached", -3)] {
        let body = Some(text_body(key));
        scene.create_as(Create { body, priority, ..new_task(key) });
    }
    for (worker, lease_ms) in [("wc", 60_000), ("wl", 100), ("wk", 0)] {
        scene.claim_as(worker, Claim { lease_ms, ..any(worker) });
    }
    scene.task(
        "update",
        TaskAction::Update(crate::common::tasks::checked("claimed", 0), None, None),
    );
    scene.create("done");
    let version = scene.stats().token;
    scene.finish("done", version);
    scene.create_as(Create { attempts: Some(1), ..new_task("failed") });
    let version = scene.stats().token;
    scene.put_back_as("failed", version, PutBack { delay_ms: 0, error: Some("no".into()) });
    scene.create_as(Create { delay_ms: 7_000, ..new_task("delayed") });
    let version = scene.stats().token;
    scene.put_back_as("delayed", version, PutBack { delay_ms: 9_000, error: None });
    let create = TaskAction::Create(new_task("elsewhere"));
    scene.say(command("create-elsewhere", "other", create));
    scene.delete("delete", "nothing", None);
    scene.create_as(Create { attempts: Some(1), ..new_task("retried") });
    let version = scene.stats().token;
    scene.put_back("retried", version);
    scene.retry("retry", Some("retried"));
    scene.claim_as("n1", Claim { wait_ms: 30_000, ..named("n1", "delayed") });
    scene.claim_as("n2", Claim { wait_ms: 30_000, ..named("n2", "claimed") });
    let claim = Claim { wait_ms: 30_000, lease_ms: 0, ..any("n3") };
    scene.say(command("n3", "third", TaskAction::Claim(claim)));
    scene.claim_as("n4", Claim { wait_ms: 30_000, ..named("n4", "unborn") });
    scene.detach(&["n2", "n4"], 20_000);
    scene.create("unborn");
}

/// Commands that touch everything a rich table has; none depends on what the others did.
pub(crate) fn probes() -> Vec<(u64, Command)> {
    use crate::common::{resource, target};
    use keylatch_table::{Detach, Keyed, KeyedOp};
    let keyed = |op| {
        let keys = vec![resource("key"), resource("uuid")];
        Command::Keyed(Keyed { keys, value: None, all: false, op })
    };
    let retry = |id, pool| command(id, pool, TaskAction::Retry(None));
    let claim = |id: &str, claim: Claim| command(id, "pool", TaskAction::Claim(claim));
    let acquire = |ask: crate::common::Ask| Command::Acquire(ask.0);
    vec![
        (0, acquire(ask("detached-holder", "X away").wait(1).max_hold(80_000))),
        (0, keyed(KeyedOp::Expire(30_000))),
        (0, keyed(KeyedOp::Extend(10_000))),
        (0, acquire(ask("w4", "O work").wait(35_000).lease(0))),
        (0, claim("n4", Claim { wait_ms: 30_000, ..named("n4", "unborn") })),
        (0, claim("n2", Claim { wait_ms: 30_000, ..named("n2", "claimed") })),
        (0, claim("wc", any("wc"))),
        (0, Command::Promote(target("s1"))),
        (0, Command::Renew(target("alias:name"), None)),
        (0, retry("probe", "pool")),
        (2_000, acquire(ask("probe", "X u(@,@) & X t(@)").owner("ann").detect().wait(60_000))),
        (2_000, Command::Release(target("e1"))),
        (2_100, Command::Cancel(target("w1"))),
        (2_100, acquire(ask("cancelled", "S work").wait(60_000))),
        (2_200, claim("probe-claim", Claim { wait_ms: 60_000, ..any("probe") })),
        (9_000, Command::Detach(Detach { ids: None, grace_ms: 2_000 })),
        (10_500, Command::Tick),
        (12_000, retry("probe-2", "other")),
        (50_000, Command::Tick),
        (200_000, Command::Tick),
    ]
}
