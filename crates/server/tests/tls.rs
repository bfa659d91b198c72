//! RESP inside of TLS, from outside: with certificates of our own and a client that blocks.

mod common;
mod tls_common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Peer, Running, lock};
use keylatch_server::{Config, Server};
use tls_common::{Place, Secure, authority, socket};

#[test]
fn requests_are_served_and_thousands_at_once() {
    let place = Place::new();
    let server = place.server(|_| {});
    let mut client = place.client(&server).unwrap();
    assert_eq!(client.say("PING"), "PONG");
    assert_eq!(client.say("LOCK a ID 1"), "status=granted id=1");
    client.send(&"PING\n".repeat(10_000));
    for _ in 0..10_000 {
        assert_eq!(client.next(), "PONG");
    }
    assert_eq!(client.say("UNLOCK 1"), "1");
}

#[test]
fn requests_are_served_durably() {
    let place = Place::new();
    let data = place.path("data");
    let server = place.server(|config| config.data = Some(data));
    let mut client = place.client(&server).unwrap();
    let locks: Vec<String> = (0..500).map(|id| format!("LOCK key{id} ID {id}")).collect();
    client.send(&locks.join("\n"));
    for id in 0..500 {
        assert_eq!(client.next(), format!("status=granted id={id}"));
    }
    server.stop();
    assert_eq!(client.end(), Ok(vec![]), "the end is announced");
}

#[test]
fn a_client_of_tls_1_2_is_served() {
    let place = Place::new();
    let server = place.server(|_| {});
    let mut client = place.old_client(&server).unwrap();
    assert_eq!(client.say("PING"), "PONG");
    client.send("QUIT");
    assert_eq!(client.next(), "OK");
    assert_eq!(client.end(), Ok(vec![]), "the end is announced");
}

#[test]
fn a_lock_that_waits_is_granted_later_and_what_came_behind_it_is_served() {
    let place = Place::new();
    let server = place.server(|_| {});
    let (mut ann, mut bob) = (place.client(&server).unwrap(), place.client(&server).unwrap());
    assert_eq!(ann.say("LOCK a ID 1"), "status=granted id=1");
    bob.send(&format!("LOCK a ID 2 WAIT 60000\n{}", "PING\n".repeat(20_000)));
    ann.until_waiting(1);
    assert_eq!(ann.say("UNLOCK 1"), "1");
    assert_eq!(bob.next(), "status=granted id=2");
    for _ in 0..20_000 {
        assert_eq!(bob.next(), "PONG");
    }
}

#[test]
fn a_client_that_is_gone_waits_for_nothing() {
    let place = Place::new();
    let server = place.server(|config| config.grace = Duration::ZERO);
    let mut ann = place.client(&server).unwrap();
    assert_eq!(ann.say("LOCK a ID 1"), "status=granted id=1");
    for announced in [true, false] {
        let mut bob = place.client(&server).unwrap();
        bob.send("LOCK a WAIT 60000");
        ann.until_waiting(1);
        if announced {
            // Only TLS is over, the socket stays.
            bob.stream.conn.send_close_notify();
            bob.stream.conn.complete_io(&mut bob.stream.sock).unwrap();
            ann.until_waiting(0);
        } else {
            drop(bob);
            ann.until_waiting(0);
        }
    }
}

#[test]
fn who_says_that_nothing_more_comes_still_gets_answers() {
    let place = Place::new();
    let server = place.server(|_| {});
    let mut client = place.client(&server).unwrap();
    client.send(&"PING\n".repeat(3_000));
    client.stream.conn.send_close_notify();
    client.stream.flush().unwrap();
    client.stream.sock.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.end().map(|rest| rest.len()), Ok(3_000 * "+PONG\r\n".len()));
}

#[test]
fn megabytes_wait_for_a_client_that_reads_late() {
    let place = Place::new();
    let server = place.server(|_| {});
    let mut client = place.client(&server).unwrap();
    let meta = "x".repeat(900);
    for id in 0..300 {
        client.send(&format!("LOCK key{id} ID {id} META {meta}"));
        assert_eq!(client.next(), format!("status=granted id={id}"));
    }
    client.send(&"LOCKS\n".repeat(25));
    client.send("PING");
    std::thread::sleep(Duration::from_millis(300));
    // Others are served meanwhile.
    assert_eq!(place.client(&server).unwrap().say("PING"), "PONG");
    let mut bytes = 0;
    for _ in 0..25 {
        bytes += client.next().len();
    }
    assert!(bytes > 25 * 300 * 900, "{bytes}");
    assert_eq!(client.next(), "PONG");
}

#[test]
fn bytes_may_come_one_at_a_time() {
    let place = Place::new();
    let server = place.server(|_| {});
    let (mut tls, mut socket) = place.unconnected(&server);
    socket.set_nodelay(true).unwrap();
    let (mut written, mut got) = (false, Vec::new());
    while got != b"+PONG\r\n" {
        let mut out = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut out).unwrap();
        }
        for byte in out {
            socket.write_all(&[byte]).unwrap();
            std::thread::yield_now();
        }
        if !tls.is_handshaking() && !written {
            tls.writer().write_all(b"PING\r\n").unwrap();
            written = true;
            continue;
        }
        assert!(tls.read_tls(&mut socket).unwrap() > 0);
        tls.process_new_packets().unwrap();
        let mut room = [0; 100];
        if let Ok(count) = tls.reader().read(&mut room) {
            got.extend_from_slice(&room[..count]);
        }
    }
}

#[test]
fn clients_show_certificates_if_they_are_asked_to() {
    let place = Place::new();
    let other = authority("other");
    for required in [true, false] {
        let server = place.server(|config| {
            let tls = config.tls.as_mut().unwrap();
            tls.client_ca = Some(place.ca.clone());
            tls.require_client_certificate = required;
        });
        let jobs = place.identity(&place.issuer, "jobs");
        assert_eq!(place.client_as(&server, Some(jobs)).unwrap().say("PING"), "PONG");
        let stranger = place.identity(&other, "jobs");
        let refused = place.client_as(&server, Some(stranger)).unwrap_err().to_string();
        assert!(refused.contains("UnknownCA") || refused.contains("DecryptError"), "{refused}");
        match place.client_as(&server, None) {
            Ok(mut nobody) => {
                assert!(!required);
                assert_eq!(nobody.say("PING"), "PONG");
            }
            Err(refused) => {
                assert!(required);
                assert!(refused.to_string().contains("CertificateRequired"), "{refused}");
            }
        }
    }
}

#[test]
fn who_speaks_no_tls_gets_an_alert_and_is_closed() {
    let place = Place::new();
    let server = place.server(|_| {});
    let long = "PING\r\n".repeat(5_000);
    for said in ["PING\r\n", "*1\r\n$4\r\nPING\r\n", "GET / HTTP/1.1\r\n\r\n", &long] {
        let mut socket = socket(&server);
        socket.write_all(said.as_bytes()).unwrap();
        let mut got = Vec::new();
        socket.read_to_end(&mut got).unwrap();
        assert!(matches!(got[..], [21, 3, _, 0, 2, 2, _]), "an alert, and a fatal one: {got:?}");
    }
}

#[test]
fn the_enqueue_port_has_no_tls() {
    let place = Place::new();
    let server = place.server(|_| {});
    assert!(Peer::to(&server).say(&lock("u1", "X", "ann", 0)).contains(r#""RC":"0""#));
}

#[test]
fn too_many_are_turned_away_and_others_served() {
    let place = Place::new();
    let server = place.server(|config| config.connections = 2);
    let mut all = [place.client(&server).unwrap(), place.client(&server).unwrap()];
    assert!(place.client(&server).is_err());
    for client in &mut all {
        assert_eq!(client.say("PING"), "PONG");
    }
}

#[test]
fn handshakes_that_do_not_end_are_cut() {
    let place = Place::new();
    let server = place.server(|config| config.handshake = Duration::from_secs(1));
    let hello = place.hello();
    let began = Instant::now();
    // Says nothing; says half of it; all, and nothing more; all, and is done.
    let (mut silent, mut half) = (socket(&server), socket(&server));
    let (mut whole, mut done) = (socket(&server), socket(&server));
    half.write_all(&hello[..hello.len() / 2]).unwrap();
    whole.write_all(&hello).unwrap();
    done.write_all(&hello).unwrap();
    done.shutdown(Shutdown::Write).unwrap();
    // Agrees, and says nothing; agrees, and is served for longer.
    let mut idle = place.handshaken(&server);
    let mut good = place.client(&server).unwrap();
    // Says a byte now and then.
    let mut slow = socket(&server);
    let dribble = std::thread::spawn(move || {
        for byte in hello {
            if slow.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("it was let through");
    });
    for socket in [&mut done, &mut silent, &mut half, &mut whole, &mut idle.sock] {
        if let Err(error) = socket.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
    dribble.join().unwrap();
    assert!(began.elapsed() >= Duration::from_millis(900));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(good.say("PING"), "PONG");
}

#[test]
fn a_flood_of_garbage_and_of_beginnings_does_not_keep_others_from_being_served() {
    let place = Place::new();
    let server = place.server(|_| {});
    let address = server.addresses.resp.unwrap();
    let hello = place.hello();
    let mut good = place.client(&server).unwrap();
    let mut plain = Peer::to(&server);
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let flood = std::thread::spawn(move || {
        let mut count = 0_u32;
        let mut open = std::collections::VecDeque::new();
        // It has to be one, however quickly the others are served.
        while !stop.load(Ordering::SeqCst) || count < 1_000 {
            let Ok(mut socket) = TcpStream::connect(address) else { continue };
            count += 1;
            let _ = match count % 2 {
                0 => socket.write_all(&[count as u8; 300]),
                _ => socket.write_all(&hello),
            };
            open.push_back(socket);
            if open.len() > 150 {
                open.pop_front();
            }
        }
    });
    // Each of these would wait for ever, and fail after a minute, if the flood kept it out.
    for round in 0..100 {
        assert_eq!(good.say("PING"), "PONG");
        assert!(plain.say(&lock(&format!("u{round}"), "O", "ann", 0)).contains(r#""RC":"0""#));
        if round % 50 == 0 {
            assert_eq!(place.client(&server).unwrap().say("PING"), "PONG");
        }
    }
    done.store(true, Ordering::SeqCst);
    flood.join().unwrap();
}

#[test]
fn handshakes_that_come_together_are_spread_over_turns() {
    let place = Place::new();
    let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let tls = Some(place.files());
    let config = Config { resp: Some(free), enqueue: Some(free), tls, ..Config::default() };
    let server = Server::bind(config).unwrap();
    let (addresses, stop) = (server.addresses(), server.stopper());
    // They are all there before the server has looked for the first time; 128 may wait at a door.
    let hello = place.hello();
    let crowd: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut socket = TcpStream::connect(addresses.resp.unwrap()).unwrap();
            socket.write_all(&hello).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
        .collect();
    let mut other = Peer { stream: TcpStream::connect(addresses.enqueue.unwrap()).unwrap() };
    let thread = std::thread::spawn(move || server.run().unwrap());
    let mut served = 0;
    while crowd[crowd.len() - 1].peek(&mut [0]).is_err() {
        assert!(other.say(&lock(&format!("u{served}"), "O", "ann", 0)).contains(r#""RC":"0""#));
        served += 1;
    }
    println!("{served} requests between {} handshakes", crowd.len());
    // If all were taken in one turn, it would be one or two.
    assert!(served >= 5, "{served}");
    stop.stop();
    thread.join().unwrap();
}

#[test]
fn new_certificates_are_for_new_connections_and_broken_ones_for_nobody() {
    let place = Place::new();
    let server = place.server(|_| {});
    let mut before = place.client(&server).unwrap();
    let first = before.certificate();

    let second = place.renew();
    assert_ne!(first, second);
    until(|| place.client(&server).unwrap().certificate() == second, "noticed");
    assert_eq!(before.say("PING"), "PONG");

    // At once, if asked to.
    let third = place.renew();
    server.reload();
    assert_eq!(before.say("PING"), "PONG", "behind the wake-up");
    assert_eq!(place.client(&server).unwrap().certificate(), third);

    let tls = place.files();
    let key = std::fs::read(&tls.key).unwrap();
    for broken in ["", "nonsense", "-----BEGIN PRIVATE KEY-----\nAAAA\n"] {
        std::fs::write(&tls.key, broken).unwrap();
        server.reload();
        assert_eq!(before.say("PING"), "PONG");
        assert_eq!(place.client(&server).unwrap().certificate(), third);
    }
    std::fs::remove_file(&tls.certificate).unwrap();
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!(place.client(&server).unwrap().certificate(), third);
    std::fs::write(&tls.key, key).unwrap();
    let fourth = place.renew();
    until(|| place.client(&server).unwrap().certificate() == fourth, "after all that");
    assert_eq!(before.say("PING"), "PONG");
}

#[test]
fn what_is_wrong_with_the_files_is_said() {
    let place = Place::new();
    let good = place.files();
    let write = |name: &str, text: &str| {
        std::fs::write(place.path(name), text).unwrap();
        place.path(name)
    };
    let other = place.identity(&place.issuer, "other");
    let cut = std::fs::read_to_string(&good.certificate).unwrap().replace("-----END", "END");
    let hollow = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let encrypted = hollow.replace("CERTIFICATE", "ENCRYPTED PRIVATE KEY");
    let private = hollow.replace("CERTIFICATE", "PRIVATE KEY");
    let nowhere = place.path("nowhere.pem");
    for (certificate, key, client_ca, expected) in [
        (Some(nowhere.clone()), None, None, "cannot read"),
        (Some(place.path("")), None, None, "it is not a file"),
        (Some(write("text", "hello")), None, None, "there is no certificate in"),
        (Some(write("cut", &cut)), None, None, "is not PEM"),
        (Some(write("hollow", hollow)), None, None, "hollow cannot be used"),
        (None, Some(nowhere.clone()), None, "cannot read"),
        (None, Some(good.certificate.clone()), None, "there is no private key in"),
        (None, Some(write("encrypted", &encrypted)), None, "is encrypted"),
        (None, Some(write("private", &private)), None, "private cannot be used"),
        (None, Some(other.key), None, "is not that of the first certificate in"),
        (None, None, Some(nowhere), "cannot read"),
        (None, None, Some(write("hollow", hollow)), "no client can be verified with"),
    ] {
        let mut files = good.clone();
        files.certificate = certificate.unwrap_or(files.certificate);
        files.key = key.unwrap_or(files.key);
        files.client_ca = client_ca;
        let error = tls_common::bind(files).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// Waits for something that is looked for once a second.
fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Secure {
    fn until_waiting(&mut self, count: usize) {
        until(|| self.say("LOCKS WAITERS").matches("waiting").count() == count, "waiting");
    }
}
