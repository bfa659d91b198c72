//! Many clients, and some that behave badly: everyone is served, and memory stays within a bound.
//! `KEYLATCH_CROWD` says how many idle connections there are (10,000).

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Client, HANG, Server, Start, token};
use keylatch_wire::Value;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A connection with nothing to say costs this much at most: twice what was measured.
const IDLE_BYTES: usize = 2 * 1_024;
/// A connection with work in hand.
const BUSY_BYTES: usize = 2 * 16 * 1_024;
/// What a server has in use that has not done anything yet: twice what was measured.
const EMPTY_BYTES: usize = 2 * 36 * 1_024 * 1_024;

/// This process needs a descriptor a connection, as the server does.
fn allow(connections: u64) {
    let limit = getrlimit(Resource::Nofile);
    let wanted = connections + 100;
    if limit.current.is_some_and(|current| current < wanted) {
        let most = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        assert_eq!(most, wanted, "the hard limit of open files is too low: ulimit -Hn {wanted}");
        setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum })
            .unwrap();
    }
}

/// Connections that have said something once, so that they are not taken for strangers.
fn crowd(server: &Server, count: u64) -> Vec<Client> {
    let greet = |_| {
        let mut client = server.client();
        client.send("PING").unwrap();
        client
    };
    let mut clients: Vec<Client> = (0..count).map(greet).collect();
    for client in &mut clients {
        assert!(client.next().expect("everyone is answered").is("PONG"));
    }
    clients
}

fn assert_within(server: &Server, bound: usize, what: &str) {
    let resident = server.resident();
    println!("{what}: {} KiB of {} KiB", resident / 1_024, bound / 1_024);
    assert!(resident <= bound, "{what}: {resident} bytes in use, the bound is {bound}");
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_a_thousand_busy_ones_are_all_served() {
    let idle = common::how_many("KEYLATCH_CROWD", 10_000);
    let busy = 1_000;
    allow(idle + busy);
    let dir = tempfile::tempdir().unwrap();
    // As from a shell that allows few: the server asks for what it needs.
    let server =
        Start::in_dir(dir.path()).under(&["sh", "-c", "ulimit -Sn 256; exec \"$0\" \"$@\""]);
    let server = server.start();
    assert_within(&server, EMPTY_BYTES, "empty");
    let before = server.resident();
    let mut clients = crowd(&server, idle);
    let bound = before + idle as usize * IDLE_BYTES;
    assert_within(&server, bound, "idle connections");

    // Each takes a lock of its own, and one that all want: what stands behind the wait is done
    // after it.
    let mut workers = crowd(&server, busy);
    for round in 0..5 {
        for (number, worker) in workers.iter_mut().enumerate() {
            let id = format!("{round}-{number}");
            let lines = [
                format!("LOCK own:{number} ID o{id}"),
                format!("LOCK hot ID h{id} WAIT 600000 LEASE 600000"),
                format!("UNLOCK h{id}"),
                format!("UNLOCK o{id}"),
            ];
            worker.send(&lines.join("\r\n")).unwrap();
        }
        let mut tokens = Vec::new();
        for worker in &mut workers {
            token(&worker.next().unwrap());
            tokens.push(token(&worker.next().unwrap()));
            assert_eq!(worker.next(), Some(Value::Integer(1)));
            assert_eq!(worker.next(), Some(Value::Integer(1)));
        }
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), busy as usize, "every holder has a token of its own");
    }
    let bound = bound + busy as usize * BUSY_BYTES;
    assert_within(&server, bound, "idle and busy connections");
    for client in &mut clients {
        client.send("PING").unwrap();
    }
    for client in &mut clients {
        assert!(client.next().expect("the idle are still there").is("PONG"));
    }
}

/// Whether the server has closed the connection; what it sent before is thrown away.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut room = vec![0; 1 << 20];
    loop {
        match stream.read(&mut room) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Until the server has no other connection.
fn until_alone(client: &mut Client) {
    let since = std::time::Instant::now();
    while !client.say("INFO").text().unwrap().contains("connected_clients:1\r\n") {
        assert!(since.elapsed() < HANG, "they are still there");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn who_asks_and_never_reads_is_cut_off_and_the_others_are_served() {
    let unread = 1_048_576;
    let config = format!("unread_bytes = {unread}\nincomplete_ms = 2000");
    let server = Start::ephemeral().config(&config).start();
    let mut good = server.client();
    // A list of about half a megabyte.
    let lines: Vec<String> =
        (0..2_000).map(|n| format!("LOCK name:{n} META {}", "m".repeat(100))).collect();
    good.send(&lines.join("\r\n")).unwrap();
    for _ in &lines {
        token(&good.next().unwrap());
    }
    let before = server.resident();
    let mut bad: Vec<TcpStream> =
        (0..16).map(|_| TcpStream::connect(server.resp).unwrap()).collect();
    for stream in &mut bad {
        // It may be cut off while it is still sending.
        drop(stream.write_all("LOCKS\r\n".repeat(1_000).as_bytes()));
        assert!(good.say("PING").is("PONG"));
    }
    // Who begins to read now is not cut off.
    until_alone(&mut good);
    // Each may have what is allowed, and one list more; of that twice.
    let bound = before + 2 * bad.len() * (unread + 1_048_576);
    assert_within(&server, bound, "slow readers");
    for stream in &mut bad {
        assert!(is_closed(stream), "it may go on for ever");
        assert!(good.say("PING").is("PONG"));
    }
}

#[test]
fn events_that_nobody_reads_are_bounded_too() {
    let unread = 65_536;
    let server = Start::ephemeral().config(&format!("unread_bytes = {unread}")).start();
    let mut bad = server.client();
    bad.say("SUBSCRIBE keylatch:events");
    let (mut ann, mut bob) = (server.client(), server.client());
    // Until its end of the connection is full and then the server's.
    for n in 0..40_000 {
        ann.send(&format!("LOCK k ID a{n}\r\nUNLOCK a{n}")).unwrap();
        bob.send(&format!("LOCK k ID b{n} WAIT 600000\r\nUNLOCK b{n}")).unwrap();
        if n % 100 == 99 {
            for _ in 0..200 {
                ann.next().unwrap();
                bob.next().unwrap();
            }
        }
    }
    assert_within(&server, 2 * EMPTY_BYTES, "events");
}

#[test]
fn a_length_that_was_announced_costs_nothing_until_it_comes() {
    allow(2_000);
    let server = Start::ephemeral().start();
    let mut clients = crowd(&server, 1_000);
    let before = server.resident();
    for client in &mut clients {
        client.stream.write_all(b"*4096\r\n$131000\r\n").unwrap();
    }
    let mut peers: Vec<TcpStream> =
        (0..500).map(|_| TcpStream::connect(server.enqueue).unwrap()).collect();
    for peer in &mut peers {
        peer.write_all(b"{\"OP\":\"1\",\"eleLock\":{\"name\":\"").unwrap();
    }
    let mut good = server.client();
    assert!(good.say("PING").is("PONG"));
    assert_within(&server, before + 2 * 1_500 * 4_096, "announced");
}

#[test]
fn half_of_a_request_is_bounded_and_cut_off_after_the_idle_time() {
    allow(2_000);
    let server = Start::ephemeral().config("idle_ms = 5000").start();
    let mut clients = crowd(&server, 100);
    let before = server.resident();
    // All of a frame but its end, more than the server reads at once.
    let mut request = b"*2\r\n$4\r\nPING\r\n$130000\r\n".to_vec();
    request.resize(120_000, b'x');
    for client in &mut clients {
        client.stream.write_all(&request).unwrap();
    }
    let mut good = server.client();
    assert!(good.say("PING").is("PONG"));
    // A frame each, and what a buffer grows by; of that twice.
    assert_within(&server, before + 2 * 100 * (128 + 64) * 1_024, "half-sent frames");
    for client in &mut clients {
        // The others are not kept waiting meanwhile.
        if let Some(answer) = good.ask("PING") {
            assert!(answer.is("PONG"));
        } else {
            good = server.client();
        }
        assert!(is_closed(&mut client.stream));
    }
}

#[test]
fn a_server_that_cannot_have_the_descriptors_it_needs_says_so() {
    let limited = ["sh", "-c", "ulimit -n 200; exec \"$0\" \"$@\""];
    let mut server = Start::ephemeral().under(&limited).config("connections = 1000").start();
    let mut client = server.client();
    assert!(client.say("PING").is("PONG"));
    let said = server.kill().said;
    assert!(said.contains("1000 connections need 1064 file descriptors"), "{said}");
    assert!(said.contains("the system allows 200"), "{said}");
}

/// Descriptors run out; who waits to be accepted is accepted when there is room again.
#[test]
fn who_came_when_descriptors_had_run_out_is_served_when_others_leave() {
    let limited = ["sh", "-c", "ulimit -n 64; exec \"$0\" \"$@\""];
    let server = Start::ephemeral().under(&limited).config("connections = 1000").start();
    let mut first: Vec<Client> = (0..80).map(|_| server.client()).collect();
    let mut served = 0;
    for client in &mut first {
        client.send("PING").unwrap();
    }
    // Some of them are in, the others wait in the kernel.
    while served < 30 {
        assert!(first[served].next().unwrap().is("PONG"));
        served += 1;
    }
    drop(first.drain(..served));
    for client in &mut first {
        assert!(client.next().expect("it is accepted in the end").is("PONG"));
    }
}
