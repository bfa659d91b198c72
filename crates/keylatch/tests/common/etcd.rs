//! An etcd of one member, or of several, started for a test. Unit tests include this file too.
#![allow(dead_code)] // every test file uses some of it

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A slow machine may take its time.
const STARTS: Duration = Duration::from_secs(60);

pub(crate) struct Etcd {
    process: Child,
    pub(crate) port: u16,
    peers: u16,
    dir: PathBuf,
    tls: bool,
    /// Its own name in the cluster, and all its members.
    name: String,
    cluster: String,
}

impl Etcd {
    /// On free ports, with its data below this directory.
    pub(crate) fn start(dir: &Path) -> Etcd {
        Etcd::start_with(dir, false)
    }

    /// With the certificate `cert.pem` and its key `key.pem` in this directory.
    pub(crate) fn start_tls(dir: &Path) -> Etcd {
        Etcd::start_with(dir, true)
    }

    fn start_with(dir: &Path, tls: bool) -> Etcd {
        // Somebody else may take a port between our look and its start.
        for _ in 0..10 {
            let (port, peers) = free_ports();
            let cluster = format!("one={}", peer(peers));
            let etcd = Etcd::spawn(port, peers, dir, tls, "one".into(), cluster);
            if let Some(etcd) = etcd.when_healthy() {
                return etcd;
            }
        }
        panic!("etcd does not start: is it installed? See scripts/setup");
    }

    /// A cluster of three.
    pub(crate) fn start_three(dir: &Path) -> Vec<Etcd> {
        let names = ["one", "two", "three"];
        for _ in 0..10 {
            let ports = names.map(|_| free_ports());
            let members = names.iter().zip(ports);
            let members = members.map(|(name, (_, peers))| format!("{name}={}", peer(peers)));
            let cluster = members.collect::<Vec<_>>().join(",");
            let spawn = |(name, (port, peers)): (&str, (u16, u16))| {
                let dir = dir.join(name);
                std::fs::create_dir_all(&dir).unwrap();
                Etcd::spawn(port, peers, &dir, false, name.into(), cluster.clone())
            };
            let all: Vec<Etcd> = names.into_iter().zip(ports).map(spawn).collect();
            let all: Option<Vec<Etcd>> = all.into_iter().map(Etcd::when_healthy).collect();
            if let Some(all) = all {
                return all;
            }
        }
        panic!("etcd does not start: is it installed? See scripts/setup");
    }

    fn spawn(port: u16, peers: u16, dir: &Path, tls: bool, name: String, cluster: String) -> Etcd {
        let scheme = if tls { "https" } else { "http" };
        let client = format!("{scheme}://127.0.0.1:{port}");
        let peer = peer(peers);
        let mut command = Command::new("etcd");
        if tls {
            command.arg("--cert-file").arg(dir.join("cert.pem"));
            command.arg("--key-file").arg(dir.join("key.pem"));
        }
        let process = command
            .args(["--name", &name, "--log-level", "error"])
            .arg("--data-dir")
            .arg(dir.join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is not installed: see scripts/setup");
        Etcd { process, port, peers, dir: dir.into(), tls, name, cluster }
    }

    /// Nothing, if it ends instead: perhaps somebody else has its port.
    fn when_healthy(mut self) -> Option<Etcd> {
        let since = Instant::now();
        while since.elapsed() < STARTS {
            if let Ok(Some(_)) = self.process.try_wait() {
                return None;
            }
            if self.is_healthy() {
                return Some(self);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("etcd does not answer");
    }

    pub(crate) fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    /// It ends as by a power cut, and comes back at the same place.
    pub(crate) fn kill_and_restart(mut self) -> Etcd {
        self.kill();
        self.start_again()
    }

    /// It comes back at the same place and has forgotten everything.
    pub(crate) fn wipe_and_restart(mut self) -> Etcd {
        self.kill();
        std::fs::remove_dir_all(self.dir.join("etcd")).unwrap();
        self.start_again()
    }

    fn start_again(&self) -> Etcd {
        let (name, cluster) = (self.name.clone(), self.cluster.clone());
        let again = Etcd::spawn(self.port, self.peers, &self.dir, self.tls, name, cluster);
        again.when_healthy().expect("the same ports")
    }

    pub(crate) fn kill(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }

    /// Stops it where it is, or lets it go on.
    pub(crate) fn pause(&self, paused: bool) {
        let signal = if paused { "-STOP" } else { "-CONT" };
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn is_healthy(&self) -> bool {
        // Its answer cannot be read without more; it is connected with when it is ready.
        if self.tls {
            return TcpStream::connect(("127.0.0.1", self.port)).is_ok();
        }
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        drop(stream.set_read_timeout(Some(Duration::from_secs(5))));
        let ask = b"GET /health HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        stream.write_all(ask).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.contains(r#""health":"true""#)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn peer(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn free_ports() -> (u16, u16) {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (one, other) = (free(), free());
    (one.local_addr().unwrap().port(), other.local_addr().unwrap().port())
}
