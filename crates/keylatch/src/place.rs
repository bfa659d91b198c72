//! Where the locks are if the program does not say: [`crate::Locks::open`], and the commands of the
//! binary without `--url`.
//!
//! The environment (`KEYLATCH_URL`) wins over the user's file (`keylatch/config.toml` in
//! `$XDG_CONFIG_HOME`, or in `~/.config`), which wins over the default: a SQLite file in the user's
//! state directory, for which nothing has to run.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::ConnectError;

/// The variable that says where the locks are.
pub const URL: &str = "KEYLATCH_URL";

/// The variable that has the token for a lock server, if its URL has none. (`KEYLATCH_TOKEN` is the
/// fencing token that `keylatch run` gives its command.)
pub const TOKEN: &str = "KEYLATCH_AUTH";

/// Where the locks are if nobody says.
pub fn url() -> Result<String, ConnectError> {
    url_in(&|name| std::env::var_os(name))
}

/// The token for a lock server whose URL has none.
#[cfg(feature = "server")]
pub(crate) fn token() -> Result<Option<String>, ConnectError> {
    token_in(&|name| std::env::var_os(name))
}

/// The user's own directory for what is kept between runs (`$XDG_STATE_HOME/keylatch`, or
/// `~/.local/state/keylatch`); `None` if there is no home directory.
pub fn state_dir() -> Option<PathBuf> {
    base(&|name| std::env::var_os(name), "XDG_STATE_HOME", ".local/state")
}

/// What the environment says of a variable; an argument, so that tests need not change their own.
type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn url_in(environment: Environment<'_>) -> Result<String, ConnectError> {
    // An empty variable is how scripts take one back.
    if let Some(url) = environment(URL).filter(|url| !url.is_empty()) {
        let wrong = |_| ConnectError::Configuration(format!("{URL} is not text"));
        return url.into_string().map_err(wrong);
    }
    let file = base(environment, "XDG_CONFIG_HOME", ".config").map(|dir| dir.join("config.toml"));
    if let Some(url) = file.map(|file| read(&file)).transpose()?.flatten() {
        return Ok(url);
    }
    default_url(environment)
}

#[cfg(feature = "server")]
fn token_in(environment: Environment<'_>) -> Result<Option<String>, ConnectError> {
    let token = environment(TOKEN).map(OsString::into_string);
    match token.unwrap_or_else(|| Ok(String::new())) {
        Ok(token) if token.starts_with("klt_") => Ok(Some(token)),
        Ok(nothing) if nothing.is_empty() => Ok(None),
        // Not shown: it may be a token all the same.
        _ => Err(ConnectError::Configuration(format!(
            "{TOKEN} is not the token of a lock server: those begin with klt_"
        ))),
    }
}

/// As the XDG base directories have it: a path that is not absolute counts as none.
fn base(environment: Environment<'_>, variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |value: OsString| Some(PathBuf::from(value)).filter(|path| path.is_absolute());
    let dir = environment(variable).and_then(absolute);
    let dir = dir.or_else(|| Some(environment("HOME").and_then(absolute)?.join(in_home)));
    Some(dir?.join("keylatch"))
}

/// The `url` of a file; `None` if there is no file, or it does not say.
fn read(file: &Path) -> Result<Option<String>, ConnectError> {
    let wrong = |reason: String| {
        ConnectError::Configuration(format!("{}: {}", file.display(), reason.trim_end()))
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(wrong(error.to_string())),
    };
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
    // Strict, because a mistyped name would send the locks elsewhere, where nobody sees them.
    if let Some(name) = table.keys().find(|name| *name != "url") {
        return Err(wrong(format!("`{name}` is not known; there is `url`")));
    }
    match table.get("url") {
        None => Ok(None),
        Some(toml::Value::String(url)) => Ok(Some(url.clone())),
        Some(other) => Err(wrong(format!("`url` is to be text, and is {}", other.type_str()))),
    }
}

/// A file of the user's: nothing has to run for it, and nothing to be installed.
#[cfg(feature = "sqlite")]
fn default_url(environment: Environment<'_>) -> Result<String, ConnectError> {
    let dir = base(environment, "XDG_STATE_HOME", ".local/state").ok_or_else(|| {
        ConnectError::Configuration(format!(
            "there is no home directory to keep locks in: set {URL} or XDG_STATE_HOME"
        ))
    })?;
    let path = dir.join("locks.sqlite");
    let path = path.to_str().ok_or_else(|| {
        ConnectError::Configuration(format!("{} is not text: set {URL}", path.display()))
    })?;
    Ok(format!("sqlite:{path}"))
}

#[cfg(not(feature = "sqlite"))]
fn default_url(_: Environment<'_>) -> Result<String, ConnectError> {
    Err(ConnectError::Configuration(format!(
        "nothing says where the locks are: set {URL} (the default is a file, which needs the feature \
         `sqlite`)"
    )))
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;

    /// A home directory of our own, with this configuration.
    fn found(config: Option<&str>, variables: &[(&str, &str)]) -> Result<String, String> {
        let home = tempfile::tempdir().unwrap();
        if let Some(config) = config {
            let dir = home.path().join(".config/keylatch");
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("config.toml"), config).unwrap();
        }
        let environment = |name: &str| match name {
            "HOME" => Some(home.path().into()),
            _ => variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()),
        };
        let shown = |text: String| text.replace(home.path().to_str().unwrap(), "~");
        url_in(&environment).map(shown).map_err(|error| shown(error.to_string()))
    }

    #[test]
    fn the_environment_wins_over_the_file_and_that_over_the_default() {
        let file = Some("# where they are\nurl = \"redis://here\"\n");
        let said = found(file, &[(URL, "memory:")]);
        assert_eq!(said, Ok("memory:".into()));
        assert_eq!(found(file, &[(URL, "")]), Ok("redis://here".into()));
        let default = "sqlite:~/.local/state/keylatch/locks.sqlite";
        assert_eq!(found(None, &[]), Ok(default.into()));
        assert_eq!(found(Some(""), &[]), Ok(default.into()));
        let elsewhere = [("XDG_STATE_HOME", "/state"), ("XDG_CONFIG_HOME", "/nowhere")];
        assert_eq!(found(file, &elsewhere), Ok("sqlite:/state/keylatch/locks.sqlite".into()));
        let relative = [("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "")];
        assert_eq!(found(None, &relative), Ok(default.into()), "not absolute, so none");
    }

    #[test]
    fn a_mistake_in_the_file_is_named_and_never_passed_over() {
        for (config, reason) in [
            ("ulr = \"memory:\"", "~/.config/keylatch/config.toml: `ulr` is not known"),
            ("url = 1", "`url` is to be text, and is integer"),
            ("url = redis://", "~/.config/keylatch/config.toml: TOML parse error at line 1"),
        ] {
            let error = found(Some(config), &[]).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[cfg(feature = "server")]
    #[test]
    fn what_is_no_token_is_refused_and_not_shown() {
        let token = |value: &str| token_in(&|_| Some(value.into()));
        assert_eq!(token("klt_1_secret"), Ok(Some("klt_1_secret".into())));
        assert_eq!(token(""), Ok(None));
        assert_eq!(token_in(&|_| None), Ok(None));
        let error = token("secret").unwrap_err().to_string();
        assert!(error.contains("begin with klt_") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn without_a_home_directory_it_says_what_to_set() {
        let error = url_in(&|_| None).unwrap_err().to_string();
        assert!(error.contains("set KEYLATCH_URL or XDG_STATE_HOME"), "{error}");
    }
}
