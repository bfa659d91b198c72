//! A Redis, started for a test.
#![allow(dead_code)] // every test file uses some of it

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes: a hang is a failure, not a timing.
const HANG: Duration = Duration::from_secs(60);

/// A Redis of our own; it is killed when it is dropped.
pub(crate) struct Redis {
    process: Child,
    pub(crate) port: u16,
}

impl Redis {
    pub(crate) fn start(dir: &Path, options: &[&str]) -> Redis {
        // Somebody may take the port in between; then another one is tried.
        for _ in 0..10 {
            let port = free_port();
            if let Some(redis) = Redis::start_at(port, dir, options) {
                return redis;
            }
        }
        panic!("redis-server does not start")
    }

    pub(crate) fn start_at(port: u16, dir: &Path, options: &[&str]) -> Option<Redis> {
        let process = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(dir)
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is missing: scripts/setup installs it");
        let mut redis = Redis { process, port };
        let since = Instant::now();
        while since.elapsed() < HANG {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Some(redis);
            }
            if redis.process.try_wait().unwrap().is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
