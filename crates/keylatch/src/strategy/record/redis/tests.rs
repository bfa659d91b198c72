//! With real servers; what only this store does.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::contract::{Ground, HANG, contract};
use super::super::store::Store;
use super::Redis;
use crate::error::ConnectError;

/// A server of our own; it is killed when it is dropped.
struct Server {
    process: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        // Somebody may take the port in between; then another one is tried.
        for _ in 0..10 {
            let port = free_port();
            let dir = tempfile::tempdir().unwrap();
            if let Some(process) = start_at(port, dir.path(), options) {
                return Server { process, port, dir };
            }
        }
        panic!("redis-server does not start")
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn start_at(port: u16, dir: &Path, options: &[&str]) -> Option<Child> {
    let mut process = Command::new("redis-server")
        .args(options)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(dir)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is missing: scripts/setup installs it");
    let since = Instant::now();
    while since.elapsed() < HANG {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some(process);
        }
        if process.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Ground for Server {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Redis::connect(&self.url()).await.unwrap())
    }
}

contract!(Server::start(&[]));
