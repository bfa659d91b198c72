//! `keylatch token`: the real binary on a file of its own.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use keylatch_server::access::{Access, Right};
use serde_json::Value;
use tempfile::TempDir;

struct Desk {
    dir: TempDir,
    file: PathBuf,
}

struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Desk {
    fn new() -> Desk {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("access.toml");
        Desk { dir, file }
    }

    fn with(text: &str) -> Desk {
        let desk = Desk::new();
        std::fs::write(&desk.file, text).unwrap();
        desk
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keylatch"));
        command.arg("token").args(words).env("KEYLATCH_ACCESS", &self.file);
        command.env("XDG_STATE_HOME", self.dir.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Done {
        done(self.command(words))
    }

    /// What is said on standard output, of a command that succeeds.
    fn said(&self, words: &[&str]) -> String {
        let done = self.run(words);
        assert_eq!(done.code, Some(0), "{words:?}: {}", done.err);
        done.out.trim_end().to_owned()
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.said(&[words, &["-o", "json"]].concat())).unwrap()
    }

    fn fails(&self, words: &[&str], reason: &str) {
        let before = std::fs::read_to_string(&self.file).ok();
        let done = self.run(words);
        assert!(done.code != Some(0) && done.err.contains(reason), "{words:?}: {}", done.err);
        assert_eq!(std::fs::read_to_string(&self.file).ok(), before, "nothing has changed");
    }

    fn access(&self) -> Access {
        Access::read(&self.file).unwrap()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap()
    }
}

fn done(mut command: Command) -> Done {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_token_is_shown_once_and_is_good_until_it_is_revoked() {
    let desk = Desk::new();
    let created =
        desk.run(&["create", "billing", "--prefix", "billing:", "--right", "shared,observe"]);
    assert_eq!(created.code, Some(0), "{}", created.err);
    let token = created.out.trim_end();
    assert!(token.starts_with("klt_") && !token.contains(char::is_whitespace), "{token}");
    assert!(created.err.contains("the only time"), "{}", created.err);
    let secret = token.rsplit('_').next().unwrap();
    assert!(!created.err.contains(secret));
    assert!(!desk.text().contains(secret), "the file has a hash of it");
    assert_eq!(mode(&desk.file), 0o600);
    let principal = desk.access().by_token(token).unwrap();
    assert!(
        principal.may(Right::Observe, "billing:1") && !principal.may(Right::Exclusive, "billing:1")
    );

    // A second one for the same principal needs no rules, and adds those that are given.
    let more = [
        "--prefix",
        "billing:",
        "--right",
        "exclusive",
        "--right",
        "shared",
        "--prefix",
        "",
        "--right",
        "observe",
    ];
    let second = desk.said(&[&["create", "billing"], &more[..]].concat());
    let principal = desk.access().by_token(&second).unwrap();
    assert!(principal.may(Right::Exclusive, "billing:1") && principal.may(Right::Observe, "other"));
    assert!(!principal.may(Right::Exclusive, "other"));
    assert_eq!(principal.rules().len(), 2, "one a prefix");
    let third = desk.json(&["create", "billing"]);
    assert_eq!((&third["status"], &third["principal"]), (&"created".into(), &"billing".into()));
    assert!(desk.access().by_token(third["token"].as_str().unwrap()).is_some());

    let id = token.split('_').nth(1).unwrap();
    assert!(desk.said(&["revoke", id]).contains("revoked"));
    assert!(desk.access().by_token(token).is_none() && desk.access().by_token(&second).is_some());
    desk.fails(&["revoke", id], "no token has the id");
    // By the whole token too.
    let revoked = desk.json(&["revoke", &second]);
    assert_eq!((&revoked["status"], &revoked["principal"]), (&"revoked".into(), &"billing".into()));
    assert!(desk.access().by_token(&second).is_none());
}

#[test]
fn lists_show_neither_secrets_nor_hashes() {
    let desk = Desk::new();
    let token =
        desk.said(&["create", "a", "--prefix", "x:", "--right", "shared", "--right", "revoke"]);
    let certified = "\n[[principal]]\nname = \"b\"\ncertificate = \"b.example\"\n";
    std::fs::write(&desk.file, desk.text() + certified).unwrap();
    let (text, json) = (desk.said(&["list"]), desk.said(&["list", "-o", "json"]));
    let (id, secret) = token[4..].split_once('_').unwrap();
    let stored = desk.text();
    let hash = stored.split("sha256:").nth(1).unwrap().split('"').next().unwrap();
    for shown in [&text, &json] {
        assert!(shown.contains(id) && shown.contains("b.example"), "{shown}");
        assert!(!shown.contains(secret) && !shown.contains(hash) && !shown.contains("sha256"));
    }
    assert!(text.contains("'x:' shared,revoke"), "{text}");
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["principal"], &lines[0]["rules"][0]["prefix"]),
        (&"a".into(), &"x:".into())
    );
    assert!(lines[0]["created"].as_str().unwrap().ends_with('Z'));
    assert_eq!((&lines[1]["id"], &lines[1]["certificate"]), (&Value::Null, &"b.example".into()));
}

/// Everything that somebody can write between the lines; and a token behind a rule, so that what
/// is added must not come between a principal and what belongs to it.
const WRITTEN: &str = "\
# who may do what

# ---- billing
[[principal]]
name = \"billing\" # the team
# the first one
[[principal.token]]
id = \"t1\"
hash = \"sha256:0000000000000000000000000000000000000000000000000000000000000000\" # really
# its rules
[[principal.rule]]
prefix = \"billing:\"
rights = [\"shared\"] # no more
# behind the rule
[[principal.token]]
id = \"t2\"
hash = \"sha256:0000000000000000000000000000000000000000000000000000000000000000\"
# the end
";

#[test]
fn comments_stay_and_others_keep_what_they_have() {
    let desk = Desk::with(WRITTEN);
    desk.said(&["create", "ops", "--prefix", "", "--right", "admin"]);
    assert!(desk.text().starts_with(WRITTEN), "what is new is behind it all: {}", desk.text());
    desk.said(&["create", "billing", "--prefix", "billing:", "--right", "exclusive"]);
    let text = desk.text();
    for line in WRITTEN.lines().filter(|line| line.contains('#')) {
        let comment = &line[line.find('#').unwrap()..];
        assert!(text.contains(comment), "{comment}\n{text}");
    }
    let whose = |id: &str| {
        let access = desk.access();
        let found = access.tokens().find(|(known, _)| *known == id);
        found.map(|(_, token)| token.principal().name.to_string())
    };
    assert_eq!(
        (whose("t1").as_deref(), whose("t2").as_deref()),
        (Some("billing"), Some("billing"))
    );
    assert!(!desk.access().by_name("billing").unwrap().is_admin());
    desk.said(&["revoke", "t1"]);
    desk.said(&["revoke", "t2"]);
    let text = desk.text();
    for comment in [
        "# who may do what",
        "# the first one",
        "# its rules",
        "# no more",
        "# behind the rule",
        "# the end",
    ] {
        assert!(text.contains(comment), "{comment}\n{text}");
    }
    assert_eq!((whose("t1"), whose("t2"), desk.access().tokens().count()), (None, None, 2));
    assert_eq!(desk.access().by_name("billing").unwrap().rules().len(), 1);
}

#[test]
fn what_cannot_be_done_is_said_and_changes_nothing() {
    let desk = Desk::new();
    desk.fails(&["list"], "does not exist");
    desk.fails(&["create", "a"], "'a' is new, and without rules it may do nothing");
    desk.fails(&["create", "a", "--right", "shared"], "--right comes behind the --prefix");
    desk.fails(&["create", "a", "--prefix", "x"], "--prefix 'x' has no rights");
    desk.fails(&["create", "a", "--prefix", "x", "--right", "write"], "possible values: shared");
    desk.fails(&["create", "", "--prefix", "x", "--right", "shared"], "1 to 256 bytes");
    let hash = format!("sha256:{}", "0".repeat(64));
    for (text, reason) in [
        ("[[principal]]\nname = 1\n".to_owned(), "line 2"),
        ("principal = [{name = \"a\"}]\n".to_owned(), "write it as [[..principal]] tables"),
        (
            format!("[[principal]]\nname = \"a\"\ntoken = [{{id = \"t\", hash = \"{hash}\"}}]\n"),
            "write it as [[..token]] tables",
        ),
    ] {
        let desk = Desk::with(&text);
        desk.fails(&["create", "a", "--prefix", "x", "--right", "shared"], reason);
    }
    let inline =
        format!("[[principal]]\nname = \"a\"\ntoken = [{{id = \"t\", hash = \"{hash}\"}}]\n");
    Desk::with(&inline).fails(&["revoke", "t"], "edit it by hand");
    // As JSON too, with a word for programs.
    let desk = Desk::with("name = 1");
    for (words, status) in [
        (&["list", "-o", "json"][..], "invalid"),
        (&["create", "a", "--prefix", "x", "-o", "json"], "misused"),
    ] {
        let said: Value = serde_json::from_str(&desk.run(words).err).unwrap();
        assert_eq!(said["status"], status, "{said}");
    }
    let said = Desk::with("").run(&["revoke", "t", "-o", "json"]).err;
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["status"], "not found");
}

#[test]
fn of_many_writers_at_once_none_loses_its_token() {
    let desk = Desk::with("# kept\n");
    let writers: Vec<_> = (0..12)
        .map(|number| {
            // Half of them for one principal.
            let name = if number % 2 == 0 { "same".to_owned() } else { format!("p{number}") };
            let words = ["create", &name, "--prefix", "x:", "--right", "shared"];
            let mut command = desk.command(&words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let tokens: Vec<String> = writers
        .into_iter()
        .map(|writer| {
            let output = writer.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
        })
        .collect();
    let access = desk.access();
    assert!(tokens.iter().all(|token| access.by_token(token).is_some()));
    assert_eq!((access.tokens().count(), access.principals().count()), (12, 7));
    assert!(desk.text().starts_with("# kept"));
    assert!(!desk.dir.path().join(".access.toml.new").exists());
}

#[test]
fn a_link_stays_a_link_and_a_group_can_go_on_reading() {
    let desk = Desk::new();
    let real = desk.dir.path().join("real.toml");
    std::fs::write(&real, "").unwrap();
    std::fs::set_permissions(&real, PermissionsExt::from_mode(0o664)).unwrap();
    symlink(&real, &desk.file).unwrap();
    // One that was killed has left this behind.
    std::fs::write(desk.dir.path().join(".real.toml.new"), "half of").unwrap();
    let token = desk.said(&["create", "a", "--prefix", "x:", "--right", "shared"]);
    assert!(std::fs::symlink_metadata(&desk.file).unwrap().is_symlink());
    assert!(Access::read(&real).unwrap().by_token(&token).is_some());
    assert_eq!(mode(&real), 0o640);
}

#[test]
fn the_flag_wins_over_the_variable_and_that_over_the_state_directory() {
    let desk = Desk::new();
    let elsewhere = desk.dir.path().join("new/dir/other.toml");
    let words = ["create", "a", "--prefix", "x:", "--right", "shared"];
    desk.said(&[&words[..], &["--file", elsewhere.to_str().unwrap()]].concat());
    assert!(elsewhere.exists() && !desk.file.exists());
    let mut command = desk.command(&words);
    command.env_remove("KEYLATCH_ACCESS");
    assert_eq!(done(command).code, Some(0));
    assert!(desk.dir.path().join("keylatch/access.toml").exists() && !desk.file.exists());
    desk.said(&words);
    assert!(desk.file.exists());
}

#[test]
fn a_token_that_nobody_could_read_is_taken_back() {
    let desk = Desk::with("# nobody\n");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = desk.command(&["create", "a", "--prefix", "x:", "--right", "shared"]);
    let output = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert_eq!(desk.text(), "# nobody\n");
}

#[test]
fn help_teaches() {
    let desk = Desk::new();
    let help = desk.said(&["create", "--help"]);
    for word in ["shared", "exclusive", "observe", "revoke", "admin", "Examples:"] {
        assert!(help.contains(word), "{help}");
    }
    assert!(desk.said(&["--help"]).contains("keylatch token revoke"));
}
