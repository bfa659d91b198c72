//! Traces reach a collector: here a socket that takes what is sent to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn spans_are_sent_to_the_collector() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let mut server = Command::new(env!("CARGO_BIN_EXE_keylatch"))
        .args([
            "serve",
            "--ephemeral",
            "--resp",
            "127.0.0.1:0",
            "--enqueue",
            "off",
            "--http",
            "off",
        ])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let address =
        lines.find_map(|line| Some(line.unwrap().trim().strip_prefix("RESP on ")?.to_string()));
    let mut client = TcpStream::connect(address.unwrap()).unwrap();
    client.write_all(b"LOCK a\r\n").unwrap();
    client.read_exact(&mut [0; 20]).unwrap();
    // What is left is sent at the end.
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let (mut stream, _) = collector.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut got = Vec::new();
    let mut room = [0; 4_096];
    let has = |got: &[u8], text: &[u8]| got.windows(text.len()).any(|window| window == text);
    while !has(&got, b"apply") {
        let count = stream.read(&mut room).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&room[..count]);
    }
    assert!(has(&got, b"POST /v1/traces") && has(&got, b"keylatch"));
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    drop(stream);
    assert!(server.wait().unwrap().success());
}
