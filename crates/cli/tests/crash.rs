//! `kill -9` under load: no acknowledged grant is missing afterwards, no token is given twice, no
//! lease is shorter than promised. `KEYLATCH_CRASHES` says how often (20).

mod common;

use std::sync::Mutex;
use std::time::Duration;

use common::Server;
use common::load::{Acknowledged, check, work};

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let crashes = common::how_many("KEYLATCH_CRASHES", 20);
    let dir = tempfile::tempdir().unwrap();
    let known = Mutex::new(Acknowledged::default());
    let mut server = Server::start(dir.path());
    for crash in 0..crashes {
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (address, known) = (server.resp, &known);
                scope.spawn(move || work(address, &format!("{crash}-{worker}"), u64::MAX, known));
            }
            // At another point each time.
            std::thread::sleep(Duration::from_millis(20 + crash * 7 % 60));
            server.kill();
            server = Server::start(dir.path());
        });
        check(server.resp, &mut known.lock().unwrap());
    }
    assert!(known.lock().unwrap().tokens.len() > 2 * crashes as usize, "there was a load");
    server.kill();
}
