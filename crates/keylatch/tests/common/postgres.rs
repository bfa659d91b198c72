//! A PostgreSQL of our own, and a pooler in front of it. `initdb` is run once on this machine and what it made is
//! copied. PostgreSQL refuses to run as root: then it runs as the user that Debian's package made.
#![allow(dead_code)] // every test file uses some of it

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes: a hang is a failure, not a timing.
const HANG: Duration = Duration::from_secs(60);
/// Who runs it if we are root.
const USER: &str = "postgres";

/// It stops when it is dropped.
pub(crate) struct Postgres {
    process: Child,
    pub(crate) port: u16,
    data: PathBuf,
    options: Vec<String>,
}

impl Postgres {
    /// In a directory of that directory. Options are those of its configuration file: `name=value`.
    pub(crate) fn start(dir: &Path, options: &[&str]) -> Postgres {
        let data = dir.join("postgres");
        copy(&template(), &data);
        give(dir);
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        // Somebody may take the port in between; then another one is tried.
        for _ in 0..10 {
            let port = free_port();
            if let Some(process) = run(&data, port, &options) {
                return Postgres { process, port, data, options };
            }
        }
        panic!("postgres does not start: see {}", data.join("log").display())
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// As after a crash: nothing is written that was not yet.
    pub(crate) fn crash(&mut self) {
        self.signal(Signal::QUIT);
        self.process.wait().unwrap();
    }

    /// With all its processes and without a word, as by a power cut.
    pub(crate) fn kill(&mut self) {
        let pid = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        drop(self.process.kill());
        let children = children.unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            let _ = kill_process(Pid::from_raw(child).unwrap(), Signal::KILL);
        }
        self.process.wait().unwrap();
    }

    /// At the same port again.
    pub(crate) fn restart(&mut self) {
        self.process = run(&self.data, self.port, &self.options).expect("postgres starts again");
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        let _ = kill_process(pid.unwrap(), signal);
    }

    /// What psql answers.
    pub(crate) fn sql(&self, text: &str) -> String {
        let output = Command::new(program("psql"))
            .args([&self.url(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}: {errors}");
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.crash();
        }
    }
}

/// A `pgbouncer`, which gives a connection of its own only for a transaction. It stops when it is dropped.
pub(crate) struct Pooler {
    process: Child,
    port: u16,
}

impl Pooler {
    pub(crate) fn start(dir: &Path, postgres: &Postgres) -> Pooler {
        for _ in 0..10 {
            let port = free_port();
            let ini = dir.join("pgbouncer.ini");
            let text = format!(
                "[databases]\n* = host=127.0.0.1 port={} user=postgres\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
                 auth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n\
                 logfile = {}\n",
                postgres.port,
                dir.join("pgbouncer.log").display(),
            );
            std::fs::write(&ini, text).unwrap();
            give(dir);
            let mut process = as_user(program("pgbouncer"))
                .args(["-q".as_ref(), ini.as_os_str()])
                .stderr(Stdio::null())
                .spawn()
                .expect("pgbouncer is missing: scripts/setup installs it");
            if answers(&mut process, port) {
                return Pooler { process, port };
            }
        }
        panic!("pgbouncer does not start")
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn run(data: &Path, port: u16, options: &[String]) -> Option<Child> {
    // Its own children may still be there for a moment after a crash; then it does not start.
    for _ in 0..20 {
        let log = std::fs::File::options().append(true).create(true).open(data.join("log"));
        let mut command = as_user(program("postgres"));
        command.arg("-D").arg(data).args(["-p", &port.to_string()]);
        let ours =
            ["listen_addresses=127.0.0.1", "unix_socket_directories=", "shared_buffers=16MB"];
        for option in ours.into_iter().chain(options.iter().map(String::as_str)) {
            command.args(["-c", option]);
        }
        let mut process = command.stdout(Stdio::null()).stderr(log.unwrap()).spawn().unwrap();
        if answers(&mut process, port) && is_ready(port) {
            return Some(process);
        }
        drop(process.kill());
        drop(process.wait());
        std::thread::sleep(Duration::from_millis(100));
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_err() {
            return None;
        }
    }
    None
}

/// It answers before it has recovered.
fn is_ready(port: u16) -> bool {
    let since = Instant::now();
    while since.elapsed() < HANG {
        let ready = Command::new(program("pg_isready"))
            .args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()])
            .status();
        if ready.unwrap().success() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

fn answers(process: &mut Child, port: u16) -> bool {
    let since = Instant::now();
    while since.elapsed() < HANG {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        if process.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// What `initdb` makes; made once, by whoever comes first.
fn template() -> PathBuf {
    let version = Command::new(program("postgres")).arg("--version").output().unwrap().stdout;
    let version = String::from_utf8(version).unwrap();
    let version = version.split_whitespace().nth(2).unwrap();
    let user = rustix::process::getuid().as_raw();
    let made = std::env::temp_dir().join(format!("keylatch-initdb-{version}-{user}"));
    if made.exists() {
        return made;
    }
    let making = tempfile::tempdir().unwrap();
    give(making.path());
    let data = making.path().join("data");
    let output = as_user(program("initdb"))
        .args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"])
        .args(["--locale=C", "--wal-segsize=1", "-D"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    // Whoever else made it meanwhile made the same.
    drop(std::fs::rename(&data, &made));
    assert!(made.exists());
    made
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to).status();
    assert!(copied.unwrap().success(), "{} cannot be copied", from.display());
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A directory or file for whoever runs PostgreSQL.
pub(crate) fn give(path: &Path) {
    if is_root() {
        let id = |what| {
            let output = Command::new("id").args([what, USER]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            text.trim().parse().expect("there is no user postgres: scripts/setup installs it")
        };
        chown(path, Some(id("-u")), Some(id("-g"))).unwrap();
    }
}

fn as_user(program: PathBuf) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--init-groups", "--"]).arg(program);
    command
}

/// Debian does not put these where programs are looked for. The newest counts.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin").join(name)).collect();
    versions.retain(|path| path.exists());
    let number = |path: &PathBuf| {
        let version = path.ancestors().nth(2).and_then(Path::file_name);
        version.and_then(|version| version.to_str()?.parse::<u32>().ok())
    };
    versions.sort_by_key(number);
    let elsewhere =
        ["/usr/sbin", "/usr/bin", "/usr/local/bin"].map(|dir| Path::new(dir).join(name));
    let found = versions.pop().or_else(|| elsewhere.into_iter().find(|path| path.exists()));
    found.unwrap_or_else(|| name.into())
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
